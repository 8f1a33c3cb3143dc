"""The configuration that verl runs an export with."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

from prbench.downstream.ppo.settings import PpoSettings
from prbench.reward_models.base import LoadedModel
from prbench.reward_models.server import PrbenchServerReward
from prbench.schema import Json

SOURCE = "prbench"
TRAIN, VALIDATION, CONFIG = "train.parquet", "validation.parquet", "config.yaml"
PATIENCE_SECONDS = 300.0
LENGTH_STEP = 64  # `max_prompt_length` is a multiple of this
ESTIMATORS = {"ppo": "gae", "grpo": "grpo", "rloo": "rloo"}
CONFIG_HEAD = """\
# What this run changes in verl's own `ppo_trainer`, which it is laid over:
#   python -m verl.trainer.main_ppo --config-dir FOLDER --config-name config
# `launch.sh` checks the reward server first, and fills in what `???` leaves open.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedReward:
    """The reward model behind the server, and how its scores are scattered."""

    url: str
    loaded: LoadedModel
    model: PrbenchServerReward
    center: float = 0.0
    spread: float = 1.0
    measured: int = 0  # scores that say so


def make_config(
    settings: PpoSettings, served: ServedReward, policy: str, *, train_rows: int, longest_prompt: int
) -> dict[str, Json]:
    """Return all that this run changes in verl's own configuration."""
    prompt_length = -(-longest_prompt // LENGTH_STEP) * LENGTH_STEP
    answers = 1 if settings.algorithm == "ppo" else settings.group_size
    engine = {"seed": settings.seed, "dtype": "bfloat16" if settings.dtype == "auto" else settings.dtype}
    return {
        "defaults": ["ppo_trainer", "_self_"],
        "prbench": {
            "folder": "???",
            "run": "???",  # the name with the hash of all that can change the result
            "server": served.url,
            "policy": policy,
            "model": served.model.name,
            "template_hash": served.loaded.template_hash,
        },
        "data": {
            "train_files": f"${{prbench.folder}}/{TRAIN}",
            "val_files": f"${{prbench.folder}}/{VALIDATION}",
            "train_batch_size": settings.rollout_batch,
            "max_prompt_length": prompt_length,
            "max_response_length": settings.max_new_tokens,
            "filter_overlong_prompts": False,  # there are none
            "truncation": "error",
            "shuffle": True,
            "seed": settings.seed,
            "validation_shuffle": False,
            "dataloader_num_workers": 0,
        },
        "algorithm": {
            "adv_estimator": ESTIMATORS[settings.algorithm],
            "gamma": settings.gamma,
            "lam": settings.lam,
            "use_kl_in_reward": True,
            "kl_penalty": "kl",
            "kl_ctrl": {"type": "fixed", "kl_coef": settings.kl_coefficient},
        },
        "actor_rollout_ref": _policy(settings, engine, answers, prompt_length),
        "critic": _critic(settings, engine, prompt_length),
        "reward": _reward(settings, served),
        "trainer": _trainer(settings, answers, train_rows),
    }


def _policy(settings: PpoSettings, engine: Mapping[str, Json], answers: int, prompt_length: int) -> dict[str, Json]:
    total_length = prompt_length + settings.max_new_tokens
    return {
        "model": {
            "path": "${prbench.policy}",
            "lora_rank": settings.lora_rank,
            "lora_alpha": settings.lora_alpha,
            "target_modules": "all-linear",
        },
        "actor": {
            "optim": _optimizer(settings, settings.learning_rate),
            "fsdp_config": dict(engine),
            "grad_clip": settings.max_grad_norm,
            "ppo_mini_batch_size": settings.rollout_batch // settings.minibatches,
            "ppo_epochs": settings.epochs,
            "use_dynamic_bsz": True,  # as many rows in one pass as these tokens allow, on any number of devices
            "ppo_max_token_len_per_gpu": settings.microbatch * total_length,
            "clip_ratio": settings.clip,
            "clip_ratio_low": settings.clip,
            "clip_ratio_high": settings.clip,
            "entropy_coeff": settings.entropy_coefficient,
            "use_kl_loss": settings.kl_loss_coefficient > 0,  # beside the one in the reward
            "kl_loss_coef": settings.kl_loss_coefficient,
            "kl_loss_type": "k2",
            "data_loader_seed": settings.seed,
        },
        "ref": {"fsdp_config": dict(engine)},
        "rollout": {
            "name": "vllm",
            "n": answers,
            "temperature": settings.temperature,
            "top_p": 1.0,
            "top_k": -1,
            "seed": settings.seed,
            "dtype": engine["dtype"],
            "tensor_model_parallel_size": 1,
            "max_model_len": total_length,
            "max_num_seqs": settings.generation_batch,
            "val_kwargs": {"n": 1, "do_sample": False, "temperature": 0},
        },
    }


def _critic(settings: PpoSettings, engine: Mapping[str, Json], prompt_length: int) -> dict[str, Json]:
    return {
        "enable": settings.algorithm == "ppo",
        "model": {"path": "${prbench.policy}"},
        "optim": _optimizer(settings, settings.value_learning_rate),
        "fsdp": dict(engine),
        "grad_clip": settings.max_grad_norm,
        "ppo_max_token_len_per_gpu": settings.microbatch * (prompt_length + settings.max_new_tokens),
        "cliprange_value": settings.value_clip,
        "data_loader_seed": settings.seed,
    }


def _reward(settings: PpoSettings, served: ServedReward) -> dict[str, Json]:
    return {
        "custom_reward_function": {
            "path": "${prbench.folder}/reward.py",
            "name": "compute_score",
            "reward_kwargs": {
                "server": "${prbench.server}",
                "model": "${prbench.model}",
                "template_hash": "${prbench.template_hash}",
                "center": served.center,
                "spread": served.spread,
                "max_failed": settings.max_failed,
                "patience_seconds": PATIENCE_SECONDS,
            },
        },
        # The only one that lets an error through; the rate-limited one pays 0 for it.
        "reward_manager": {"source": "register", "name": "naive"},
        "reward_model": {"enable": False},
    }


def _trainer(settings: PpoSettings, answers: int, train_rows: int) -> dict[str, Json]:
    return {
        "project_name": SOURCE,
        "experiment_name": "${prbench.run}",
        "default_local_dir": "${prbench.folder}/runs/${prbench.run}",
        "resume_mode": "disable",
        "logger": ["console", "file", "tensorboard"],
        "total_training_steps": settings.steps,
        "total_epochs": math.ceil(settings.steps / (train_rows // settings.rollout_batch)),
        "save_freq": settings.checkpoint_every,
        "test_freq": settings.checkpoint_every,
        "val_before_train": True,
        "nnodes": 1,
        "n_gpus_per_node": 1,
        "use_v1": True,
        "v1": {
            "trainer_mode": "sync",
            "sampler": {
                "custom_sampler": {"path": "${prbench.folder}/sampler.py", "name": "StoppingReplayBuffer"},
                "sampler_kwargs": {"max_failed": settings.max_failed, "answers_per_prompt": answers},
            },
        },
    }


def _optimizer(settings: PpoSettings, learning_rate: float) -> dict[str, Json]:
    return {
        "lr": learning_rate,
        "lr_warmup_steps": settings.warmup_steps,
        "weight_decay": settings.weight_decay,
        "clip_grad": settings.max_grad_norm,
    }


def write_config(config: Mapping[str, Json], path: Path) -> None:
    """Write a configuration, and above it how it is read."""
    text = yaml.safe_dump(config, sort_keys=False, allow_unicode=True, width=119)
    path.write_text(CONFIG_HEAD + text, encoding="utf-8")
