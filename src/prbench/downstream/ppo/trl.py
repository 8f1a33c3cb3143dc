"""GRPO and RLOO by TRL: several answers per question, each rewarded by how it compares with the others of its group.

The reward is the same text-level one as in our own loop. TRL takes `None` for an answer without a reward: it leaves
the answer out of its group's baseline and gives it an advantage of 0, so that a failure moves nothing.
"""

import copy
import shutil
import time
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch

from prbench.backends.hf import quiet_loading
from prbench.backends.llm.servers import as_dicts
from prbench.backends.trackers import active_trackers
from prbench.downstream.ppo.learner import lora_config
from prbench.downstream.ppo.loop import (
    DONE,
    POLICY,
    TRAINER,
    PpoSetup,
    check_finite,
    place_of_policy,
    read_steps,
    summarize_run,
)
from prbench.downstream.ppo.rollout import check_failure_rate, score_texts
from prbench.downstream.ppo.settings import PpoSettings
from prbench.errors import UsageError
from prbench.schema import Json
from prbench.training.backbones import last_state

# What TRL has no place for; a value that somebody chose is refused.
IGNORED = (
    *("generation_batch", "truncation_penalty", "minibatches", "value_learning_rate", "value_clip"),
    *("value_coefficient", "value_moves_policy", "entropy_coefficient", "kl_loss_coefficient", "gamma", "lam"),
    *("whiten_rewards", "whiten_advantages", "gold_every"),
)
# What TRL calls the figures of a step, and what we call them.
FIGURES = {
    "kl": "kl_per_token",
    "entropy": "entropy",
    "completions/mean_length": "length",
    "completions/clipped_ratio": "truncated",
    "clip_ratio/region_mean": "clip_fraction",
    "loss": "policy_loss",
    "grad_norm": "gradient_norm",
}


class GroupReward:
    """Our reward as a function that TRL calls with a batch of answers; it keeps what there is to report of them."""

    def __init__(self, setup: PpoSetup) -> None:
        self._setup = setup
        self.step = 0
        self.figures: dict[str, Json] = {}
        self.__name__ = "reward"  # TRL asks for it

    def __call__(self, *, completions: Sequence[Any], task: Sequence[int], **others: Any) -> list[float | None]:
        """Return one reward per answer; `None` for a failure."""
        texts = [completion[0]["content"].strip() for completion in completions]
        tasks = [self._setup.tasks[place] for place in task]
        scores = score_texts(tasks, texts, self._setup.reward)
        check_failure_rate(scores, self.step, most=self._setup.settings.max_failed)
        read = [score.value for score in scores if score is not None and score.value is not None]
        asked = sum(score is not None for score in scores)
        failed = asked - len(read)
        self.figures = {
            "reward": round(sum(read) / len(read), 6) if read else None,
            "failed": failed,
            "failure_rate": round(failed / asked, 6) if asked else 0.0,
            "empty": sum(score is None for score in scores) / len(scores),
            "rewards": asked,
        }
        if (judge := self._setup.judge) is not None:
            golds = judge.values([(one.example, text) for one, text in zip(tasks, texts, strict=True)])
            self.figures["gold"] = round(sum(golds) / len(golds), 6)
        lowest = min(read, default=None)
        return [lowest if score is None else score.value for score in scores]


def run_trl(lm: Any, processor: Any, setup: PpoSetup) -> dict[str, Json]:
    """Train the policy in `lm` by TRL, from its last checkpoint if there is one, and return the summary."""
    settings, folder = setup.settings, setup.run.folder
    _check_trl_supports(settings)
    reward = GroupReward(setup)
    checkpoints = folder / TRAINER
    trainer = _make_trainer(lm, processor, setup, reward, checkpoints)
    trainer.add_callback(_step_writer(reward, setup))
    _, last = last_state(checkpoints) if checkpoints.exists() else (None, None)
    with quiet_loading():
        trainer.train(resume_from_checkpoint=str(last) if last else None)
    policy = trainer.accelerator.unwrap_model(trainer.model)
    merged = policy.merge_and_unload() if settings.lora_rank else policy
    setup.save(merged, folder / POLICY, torch.float32)
    rows = read_steps(folder)
    summary = summarize_run(
        setup, rows, rows[-1], kl="kl_per_token", ended=DONE, updates=settings.steps, module=merged
    )
    setup.run.finish(summary)
    shutil.rmtree(checkpoints, ignore_errors=True)
    return summary


def _check_trl_supports(settings: PpoSettings) -> None:
    if settings.kl_budget is not None:
        raise UsageError(f"--kl-budget: only --algorithm ppo keeps one, not {settings.algorithm}. Leave it out.")
    if settings.truncated == "penalize":
        raise UsageError(
            f"truncated=penalize: only for ppo. Use --set truncated=score or =mask with {settings.algorithm}."
        )
    defaults = {field.name: field.default for field in fields(PpoSettings)}
    if chosen := [name for name in IGNORED if getattr(settings, name) != defaults[name]]:
        raise UsageError(f"--set {chosen[0]}: {settings.algorithm} by TRL does not know it. Leave it out.")
    if settings.rollout_batch % settings.microbatch or settings.rollout_batch % settings.group_size:
        raise UsageError(
            f"rollout_batch={settings.rollout_batch}: must be a multiple of microbatch={settings.microbatch} and of "
            f"group_size={settings.group_size}."
        )


def _make_trainer(lm: Any, processor: Any, setup: PpoSetup, reward: GroupReward, checkpoints: Path) -> Any:
    try:
        import trl
        from datasets import Dataset
    except ImportError as error:
        raise UsageError("grpo and rloo need TRL. Install it with: pip install 'prbench[train]'") from error
    from transformers import PrinterCallback

    settings, tokenizer = setup.settings, setup.tokenizer
    kinds = {"grpo": (trl.GRPOTrainer, trl.GRPOConfig), "rloo": (trl.RLOOTrainer, trl.RLOOConfig)}
    make_trainer, make_config = kinds[settings.algorithm]
    rows = [
        {"prompt": as_dicts(tokenizer.turns(task.prompt)), "task": place} for place, task in enumerate(setup.tasks)
    ]
    # The trainer would train with the tokenizer's own pad token, or give it one; answers end where ours end.
    if processor.pad_token is None:
        processor.pad_token = processor.convert_ids_to_tokens(tokenizer.pad)
    trainer = make_trainer(
        model=lm,
        reward_funcs=[reward],
        args=make_config(**_trl_arguments(lm, settings, checkpoints)),
        train_dataset=Dataset.from_list(rows),
        processing_class=processor,
        peft_config=lora_config(settings),
    )
    trainer.remove_callback(PrinterCallback)
    return trainer


def _trl_arguments(lm: Any, settings: PpoSettings, checkpoints: Path) -> dict[str, Any]:
    on_gpu = next(lm.parameters()).device.type == "cuda"
    passes = settings.epochs  # TRL counts optimizer steps: each batch of answers is gone over so many times
    return {
        "output_dir": str(checkpoints),
        "max_steps": settings.steps * passes,
        "per_device_train_batch_size": settings.microbatch,
        "gradient_accumulation_steps": settings.rollout_batch // settings.microbatch,
        "num_generations": settings.group_size,
        "num_iterations": passes,
        "max_completion_length": settings.max_new_tokens,
        "temperature": settings.temperature,
        "beta": settings.kl_coefficient,
        "epsilon": settings.clip,
        "mask_truncated_completions": settings.truncated == "mask",
        "learning_rate": settings.learning_rate,
        "lr_scheduler_type": "constant_with_warmup",
        "warmup_steps": settings.warmup_steps * passes,
        "weight_decay": settings.weight_decay,
        "max_grad_norm": settings.max_grad_norm,
        "seed": settings.seed,
        "bf16": settings.dtype == "bfloat16" or (settings.dtype == "auto" and on_gpu),
        "use_cpu": not on_gpu,
        "save_strategy": "steps",
        "save_steps": settings.checkpoint_every * passes,
        "save_total_limit": 1,
        "logging_steps": passes,
        "disable_tqdm": True,
        "gradient_checkpointing": False,
        **active_trackers().trainer_arguments(every_steps=passes),
    }


def _step_writer(reward: GroupReward, setup: PpoSetup) -> Any:
    from transformers import TrainerCallback

    class StepWriter(TrainerCallback):  # type: ignore[misc]
        """Writes a row for every step, and keeps policies."""

        started = time.monotonic()

        def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, float], **kwargs: Any) -> None:
            if "reward" not in logs:
                return
            now = time.monotonic()
            figures = {ours: round(logs[theirs], 6) for theirs, ours in FIGURES.items() if theirs in logs}
            seconds, self.started = round(now - self.started, 3), now
            done = state.global_step // setup.settings.epochs
            check_finite({**reward.figures, **figures}, done - 1)
            row = {"step": done - 1, **reward.figures, **figures, "beyond_budget": False, "seconds": seconds}
            setup.steps.append([row])
            setup.on_step(row)
            reward.step = done

        def on_save(self, args: Any, state: Any, control: Any, model: Any, **kwargs: Any) -> None:
            if setup.settings.lora_rank:
                model = copy.deepcopy(model).merge_and_unload()
            done = state.global_step // setup.settings.epochs
            setup.save(model, place_of_policy(setup.run.folder, done), torch.float32)

    return StepWriter()
