"""An export that verl runs: prompts, a reward that asks `prbench serve`, a whole configuration, and a launcher.

    export_verl(Path("run"), data=train, validation=held_out, settings=settings, server="http://host:8000")

The files under `verl_files/` are copied as they are and need no prbench where they run. What decides the run (the
settings, the served model with its template, the data) is written into `config.yaml` and `export.json`.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from hashlib import sha256
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from prbench.backends.llm.servers import as_dicts
from prbench.backends.policy import answer_template
from prbench.context import Labels
from prbench.downstream.ppo.exporting import ExportedPrompt, ServedReward, prepare_export
from prbench.downstream.ppo.settings import PpoSettings
from prbench.downstream.rewards import SOURCE, verl_row
from prbench.errors import UsageError
from prbench.runs.files import replacing, write_json
from prbench.schema import Example, Json

if TYPE_CHECKING:
    pass

VERL = "0.9.1"  # the release whose code the export is tested with
EXPORT, README = "export.json", "README.md"
COPIED = ("reward.py", "sampler.py", "preflight.py", "launch.sh")
TRAIN, VALIDATION, CONFIG = "train.parquet", "validation.parquet", "config.yaml"
PATIENCE_SECONDS = 300.0
LENGTH_STEP = 64  # `max_prompt_length` is a multiple of this
ESTIMATORS = {"ppo": "gae", "grpo": "grpo", "rloo": "rloo"}
CONFIG_HEAD = """\
# What this run changes in verl's own `ppo_trainer`, which it is laid over:
#   python -m verl.trainer.main_ppo --config-dir FOLDER --config-name config
# `launch.sh` checks the reward server first, and fills in what `???` leaves open.
"""


def export_verl(
    folder: Path,
    *,
    data: Sequence[Example],
    validation: Sequence[Example],
    settings: PpoSettings,
    server: str,
    labels: Labels | None = None,
    validation_labels: Labels | None = None,
) -> list[Path]:
    """Write a folder that verl runs, and return its files. It appears when it is complete.

    The reward server must be up: its model and template are written into the export, and every reply is held to them.
    Labeled pairs, of the users of either file, are shown to the reward model, never to the policy.
    """
    if settings.rollout_batch % settings.minibatches:
        raise UsageError(
            f"--rollout-batch {settings.rollout_batch} is no multiple of minibatches={settings.minibatches}, and verl "
            "would fill the last one up. Change one of them."
        )
    given = prepare_export(
        folder,
        data=data,
        validation=validation,
        settings=settings,
        server=server,
        labels=labels,
        validation_labels=validation_labels,
    )
    served, policy, train, held_out = given.served, given.policy, given.train, given.held_out
    longest = given.longest_prompt
    config = make_config(settings, served, policy, train_rows=len(train), longest_prompt=longest)

    with replacing(folder) as building:
        building.mkdir()
        _write_prompts(train, building / TRAIN)
        _write_prompts(held_out, building / VALIDATION)
        text = yaml.safe_dump(config, sort_keys=False, allow_unicode=True, width=119)
        (building / CONFIG).write_text(CONFIG_HEAD + text, encoding="utf-8")
        for name in COPIED:
            (building / name).write_bytes(files("prbench.downstream.ppo").joinpath("verl_files", name).read_bytes())
        (building / "launch.sh").chmod(0o755)
        facts = _facts(settings, served, policy, train, held_out, config, labels.shots if labels else 0)
        facts["files"] = {path.name: sha256(path.read_bytes()).hexdigest() for path in sorted(building.iterdir())}
        write_json(building / EXPORT, facts)
        (building / README).write_text(make_readme(settings, facts), encoding="utf-8")
    return sorted(folder.iterdir())


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


def _write_prompts(prompts: Sequence[ExportedPrompt], path: Path) -> None:
    """Write the columns that verl's `RLHFDataset` and reward manager read."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    text = pa.string()
    schema = pa.schema(
        {
            "data_source": text,
            "prompt": pa.list_(pa.struct({"role": text, "content": text})),
            "ability": text,
            "reward_model": pa.struct({"style": text, "ground_truth": text}),
            "extra_info": pa.struct(
                {"index": pa.int64(), "id": text, "user_id": text, "question": text, "user": text}
            ),
        }
    )
    rows = [
        verl_row(number, prompt.example, as_dicts(prompt.turns), prompt.reward_context)
        for number, prompt in enumerate(prompts)
    ]
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), path, compression="zstd")


def _facts(
    settings: PpoSettings,
    served: ServedReward,
    policy: str,
    train: Sequence[ExportedPrompt],
    validation: Sequence[ExportedPrompt],
    config: Mapping[str, Any],
    shots: int,
) -> dict[str, Json]:
    both = (*train, *validation)
    users = {each.example.user.id for each in train} & {each.example.user.id for each in validation}
    dropped = [(each.policy_context.dropped, each.reward_context.dropped) for each in both]
    # The run's name without its hash: policy, reward model, contexts, labels, seed.
    spec, _, digest = served.model.name.rpartition("#")
    contexts = "-".join(dict.fromkeys((settings.context, settings.context_of_reward)))
    labels = (f"labels{shots}",) if shots else ()
    parts = (
        *(settings.algorithm, Path(settings.policy).name, spec, digest, contexts),
        *(*labels, f"seed{settings.seed}"),
    )
    return {
        "name": re.sub(r"[^A-Za-z0-9.-]+", "-", "_".join(parts).replace("_", "-")).strip("-."),
        "server": served.url,
        "model": served.model.name,
        "template_hash": served.loaded.template_hash,
        "policy": policy,
        "policy_template": answer_template().hash,
        "settings": asdict(settings),
        "labels": shots,
        "reward_moments": {"center": served.center, "spread": served.spread, "measured": served.measured},
        "train_rows": len(train),
        "validation_rows": len(validation),
        "users_in_both": len(users),
        "longest_prompt": max(each.tokens for each in both),
        "max_prompt_length": config["data"]["max_prompt_length"],
        "posts_dropped": {
            "policy": sum(of_policy for of_policy, _ in dropped),
            "reward": sum(of_reward for _, of_reward in dropped),
        },
        "prompts_with_posts_dropped": sum(any(each) for each in dropped),
        "versions": {"prbench": version("prbench"), "verl": VERL},
    }


def make_readme(settings: PpoSettings, facts: Mapping[str, Any]) -> str:
    """Return the text that explains an export, from what `export.json` says of it."""
    from jinja2 import Environment, StrictUndefined

    dropped, moments = facts["posts_dropped"], facts["reward_moments"]
    shared = f" {facts['users_in_both']} users stand in both files." if facts["users_in_both"] else ""
    prompts = f"All posts fit.{shared}"
    if facts["prompts_with_posts_dropped"]:
        prompts = (
            f"In {facts['prompts_with_posts_dropped']} prompts the last posts did not fit a window: "
            f"{dropped['policy']} posts are not shown to the policy, {dropped['reward']} not to the reward model."
            f"{shared}"
        )
    scale = "PPO maximizes the model's raw score."
    if moments["measured"]:
        scale = (
            f"PPO maximizes (raw score - {moments['center']:.6g}) / {moments['spread']:.6g}: mean and standard "
            f"deviation of {moments['measured']} scores of responses to the training questions, measured at the "
            "export. So `algorithm.kl_ctrl.kl_coef` is in units of the reward's own spread. The raw score is logged "
            "beside it."
        )
    template = files("prbench.downstream.ppo").joinpath("verl_files", README).read_text(encoding="utf-8")
    words = Environment(undefined=StrictUndefined, keep_trailing_newline=True, autoescape=False)  # Markdown
    return words.from_string(template).render(
        **{key: facts[key] for key in facts if key not in ("settings", "files")},
        reward=facts["model"].rpartition("#")[0],
        version=facts["versions"]["prbench"],
        verl_version=facts["versions"]["verl"],
        max_failed=f"{settings.max_failed:.0%}",
        patience=f"{PATIENCE_SECONDS:g}",
        prompts=prompts,
        moments=scale,
        differences=_differences(settings),
    )


def _differences(settings: PpoSettings) -> list[str]:
    """Return what verl does otherwise than our own loop, under these settings."""
    lines = [
        "The critic is a model of its own, and not a head on the policy: `value_learning_rate` "
        f"({settings.value_learning_rate:g}) moves all of its weights, and `value_coefficient` has no part in it. "
        "Where it is unsteady, lower `critic.optim.lr`.",
        "Sampling depends on vLLM's batches, so equal seeds give like runs and not equal ones.",
        "Each pass leaves out the rows that do not fill a step; the order changes with every pass.",
        "An empty answer is sent to the reward model like any other.",
    ]
    if settings.algorithm != "ppo":
        lines[0] = f"`{settings.algorithm}` needs no critic."
    if settings.truncated != "score":
        lines.append(
            f"A truncated answer is scored as it stands (`truncated={settings.truncated}` has no counterpart)."
        )
    if settings.kl_budget is not None:
        lines.append(
            f"There is no KL budget: verl would not stop at {settings.kl_budget:g} nats. Watch "
            "`actor/reward_kl_penalty`, which is per token."
        )
    if settings.whiten_rewards:
        lines.append("Rewards are scaled by moments that were measured once, not by running ones.")
    if not settings.whiten_advantages and settings.algorithm == "ppo":
        lines.append("Advantages are whitened all the same; verl always does.")
    return lines
