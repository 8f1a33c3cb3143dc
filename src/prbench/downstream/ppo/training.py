"""One PPO run from beginning to end: load what the settings name, train in a folder that can be resumed."""

import copy
import io
from collections.abc import Sequence
from contextlib import redirect_stderr
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from prbench.backends.hf import quiet_loading
from prbench.backends.llm.asking import cut
from prbench.backends.policy import answer_template
from prbench.context import ContextMaker, Labels
from prbench.context.labels import check_labels_shown
from prbench.data import DataSettings, content_hash
from prbench.downstream.ppo.loop import (
    LAYOUT,
    STEPS,
    PpoSetup,
    StepCallback,
    run_ppo,
    weights_hash,
)
from prbench.downstream.ppo.rollout import PromptTokenizer, Reward, load_reward, make_tasks
from prbench.downstream.ppo.settings import PpoSettings
from prbench.errors import DataError, UsageError
from prbench.evaluation import EvalSettings, Shown, context_maker
from prbench.judging import LabJudge, judge_for, knows_truth
from prbench.reward_models import ModelSettings
from prbench.runs import RunConfig, RunStore
from prbench.runs.files import replacing
from prbench.schema import Example, Json
from prbench.training.backbones import LANGUAGE_MODEL, Backbone, load_backbone


def gold_judge(spec: str, examples: Sequence[Example]) -> LabJudge:
    """Return the judge that was asked for, if it can measure gold on the way: the lab's alone can."""
    judge = judge_for(spec)
    if not isinstance(judge, LabJudge):
        raise UsageError(f"--judge {spec}: only the lab's judge measures on the way. Use `--judge lab`, or none.")
    judge.check(examples)
    return judge


def gold_of_data(judge: str, examples: Sequence[Example]) -> tuple[LabJudge | None, str]:
    """Return what measures gold on the way where the data's own `judge` can; else nothing, and a line that says so.

    Any other judge is not even loaded, so what a dataset card names does not matter.
    """
    if not knows_truth(judge):
        return None, f"no gold on the way: the data's own judge is {cut(judge)!r}, not the lab's" if judge else ""
    try:
        return gold_judge(judge, examples), ""
    except DataError as error:
        return None, f"no gold on the way: {error}"


def train_policy(
    examples: Sequence[Example],
    settings: PpoSettings,
    out: Path,
    *,
    reward: Reward | None = None,
    model_settings: ModelSettings | None = None,
    labels: Labels | None = None,
    judge: LabJudge | None = None,
    which: DataSettings | None = None,
    command: str = "",
    fresh: bool = False,
    on_step: StepCallback = lambda row: None,
) -> dict[str, Json]:
    """Train the policy on the questions of these examples into the folder `out`, and return the summary.

    `reward` takes the place of what `settings.reward` names, for rewards that are objects in Python. `labels` are
    shown to the reward model, never to the policy. A `judge` measures what the answers are worth on the way, and
    changes nothing. `which` and `command` say in the manifest where the rows came from. The same call again resumes
    where it was interrupted, and comes to the same weights.
    """
    if not examples:
        raise DataError("There are no rows to ask the policy about. Check --data, --split and --limit.")
    if labels is not None:
        check_labels_shown(labels, examples)
    which = which or DataSettings()
    which = replace(which, source=which.source or "rows given in Python")
    if reward is None:
        labels = labels_for(settings.reward, settings, labels, which)
        if labels is not None:  # those of its spec
            check_labels_shown(labels, examples)
    reward = reward or load_reward(settings.reward, model_settings or ModelSettings(seed=settings.seed))
    backbone = load_policy_backbone(settings.policy)
    contexts = contexts_of(settings, out, labels)
    plan = _plan(examples, settings, reward, backbone, contexts, which, command)
    with RunStore.open(out, LAYOUT, plan, fresh=fresh) as run:
        steps = run.rows(STEPS, key=("step",))
        if (done := run.summary) is not None:
            return done
        tokenizer = tokenizer_of(backbone, settings.policy)
        setup = PpoSetup(
            settings=settings,
            tasks=make_tasks(examples, tokenizer, *contexts, max_new_tokens=settings.max_new_tokens),
            tokenizer=tokenizer,
            reward=reward,
            run=run,
            steps=steps,
            save=lambda lm, path, dtype: save_policy(lm, backbone.tokenizer, path, dtype),
            on_step=on_step,
            judge=judge,
        )
        if settings.algorithm == "ppo":
            return run_ppo(backbone.model, setup)
        from prbench.downstream.ppo.trl import run_trl

        return run_trl(backbone.model, backbone.tokenizer, setup)


def _plan(
    examples: Sequence[Example],
    settings: PpoSettings,
    reward: Reward,
    backbone: Backbone,
    contexts: tuple[ContextMaker, ContextMaker],
    which: DataSettings,
    command: str,
) -> RunConfig:
    return RunConfig(
        config={  # everything that can change the outcome; its hash names the run
            "settings": settings.to_config(),
            "reward": dict(reward.identity),
            "data_hash": content_hash(examples),
            "context": dict(contexts[0].identity),
            "reward_context": dict(contexts[1].identity),
            "template_hash": answer_template().hash,
            "policy_weights": weights_hash(backbone.model),
        },
        facts={"rows": len(examples)},
        data={"name": which.source, "split": which.split or ""},
        command=command,
        environment={"precision": settings.dtype},
    )


def labels_for(model: str, settings: PpoSettings, labels: Labels | None, which: DataSettings) -> Labels | None:
    """Return the labeled pairs that a reward model is shown: those of its spec, or those that were given."""
    shown = Shown.of(model, settings.context_of_reward, labels)
    if labels is not None and shown.labels is None:
        raise UsageError(f"--labels {labels.name}: --model {model} is shown none of them. Leave them out.")
    return shown.open_labels(which)


def load_policy_backbone(name: str) -> Backbone:
    """Load a policy in float32, on a GPU where there is one."""
    try:
        backbone = load_backbone(name, LANGUAGE_MODEL)
    except UsageError as error:  # which names the option of `prbench train`
        raise UsageError(str(error).replace("--backbone", "--policy", 1)) from error
    backbone.model.to("cuda" if torch.cuda.is_available() else "cpu")
    return backbone


def tokenizer_of(backbone: Backbone, name: str) -> PromptTokenizer:
    """Return what lays out prompts for a policy."""
    return PromptTokenizer(backbone.tokenizer, backbone.model.config, name, backbone.model.generation_config)


def contexts_of(
    settings: PpoSettings, out: Path | None, labels: Labels | None = None
) -> tuple[ContextMaker, ContextMaker]:
    """Return what makes the contexts of the policy, and those of the reward model; labels are for the latter."""
    if "plan" in (settings.context, settings.context_of_reward) and not settings.planner:
        raise UsageError("--context plan needs a planner, e.g. --planner local:smollm2, openai:MODEL@URL or DIR.")

    def maker(kind: str, labels: Labels | None = None) -> ContextMaker:
        how = EvalSettings(
            context=kind, posts=settings.posts, rank=settings.rank, planner=settings.planner, seed=settings.seed
        )
        return context_maker(how, out, labels)

    policy = maker(settings.context)
    same = settings.context_of_reward == settings.context and labels is None
    return policy, policy if same else maker(settings.context_of_reward, labels)


def save_policy(lm: Any, tokenizer: Any, folder: Path, dtype: torch.dtype) -> None:
    """Write a policy that `--policy` and every Hugging Face loader take; it is there whole or not at all."""
    same = next(lm.parameters()).dtype == dtype
    # The writer's bar asks nobody whether to show itself.
    with replacing(folder) as scratch, quiet_loading(), redirect_stderr(io.StringIO()):
        (lm if same else copy.deepcopy(lm).to(dtype)).save_pretrained(scratch)
        tokenizer.save_pretrained(scratch)
