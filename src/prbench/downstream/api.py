"""Best-of-N and PPO in Python: options are keyword arguments."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prbench.backends.policy import Policy
from prbench.context.labels import SHOTS
from prbench.data import Rows, open_data, select_rows
from prbench.errors import UsageError
from prbench.evaluation import EvalSettings, Model, open_labels
from prbench.evaluation.api import as_names
from prbench.judging import Judge
from prbench.reward_models import check_is_spec, model_settings
from prbench.schema import Example, Json
from prbench.specs import check_at_least

if TYPE_CHECKING:
    from prbench.downstream.best_of_n.run import BonRun

log = logging.getLogger("prbench")


def best_of_n(
    data: Rows,
    policy: str | Policy,
    models: Model | Sequence[Model],
    *,
    n: int = 64,
    out: str | Path = "runs",
    context: str = "profile",
    policy_context: str = "none",
    posts: int = 10,
    rank: str = "recent",
    planner: str = "",
    labels: Rows | None = None,
    shots: int = SHOTS,
    judge: str | Judge = "",
    subset: str | None = None,
    split: str | None = None,
    users: int | None = None,
    limit: int | None = None,
    group_by: str | Sequence[str] = (),
    seed: int = 0,
    batch_size: int | None = None,
    max_length: int | None = None,
    dtype: str = "auto",
) -> "BonRun":
    """Sample `n` answers to every question, let each reward model pick, and say what the users get, for every n.

        run = prbench.best_of_n("lab", "lab", ["head:lab-user", "control:longest"], n=8, users=20)
        print(run.summary["models"]["head:lab-user"]["captured_headroom"])

    The pool is sampled and graded once, and kept under `out`. `judge` is an object, `lab`, or a language model that
    grades by rubrics; data that knows its own truth needs none.
    """
    from prbench.downstream.best_of_n.run import BonSettings
    from prbench.downstream.best_of_n.run import best_of_n as best_of_n_with

    which = select_rows(data, subset=subset, split=split)
    check_at_least(1, n=n, users=users, limit=limit, shots=shots)
    context_settings = EvalSettings(context=context, posts=posts, rank=rank, planner=planner, seed=seed)
    return best_of_n_with(
        data,
        policy,
        [models] if isinstance(models, str) or not isinstance(models, Sequence) else models,
        BonSettings(n=n, users=users, limit=limit, policy_context=policy_context, context=context_settings),
        out=out,
        which=which,
        judge=judge,
        model_settings=model_settings(seed, batch_size, max_length, dtype),
        labels=None if labels is None else open_labels(labels, which, shots=shots),
        group_by=as_names(group_by),
    )


@dataclass(frozen=True, kw_only=True)
class PolicyRun:
    """A policy that was trained: `policy` is what `best_of_n` takes as its policy."""

    policy: str
    folder: Path
    summary: Mapping[str, Json] = field(repr=False)


def optimize_policy(
    data: Rows,
    policy: str,
    model: str,
    *,
    out: str | Path,
    split: str | None = None,
    subset: str | None = None,
    limit: int | None = None,
    labels: Rows | None = None,
    shots: int = SHOTS,
    fresh: bool = False,
    **settings: Any,
) -> PolicyRun:
    """Train a language model by PPO (or `algorithm="grpo"`, `"rloo"`) on a reward model's scores of its answers.

        run = prbench.optimize_policy("lab", "smollm2", "head:lab-user", split="train", out="runs/ppo", steps=50)
        prbench.best_of_n("lab", run.policy, "head:lab-user", n=4)

    `settings` are those of `prbench ppo --set`. The same call again goes on where it was interrupted.
    """
    from prbench.downstream.ppo.settings import read_settings
    from prbench.downstream.ppo.training import gold_of_data, train_policy
    from prbench.training.data import split_to_learn

    wanted = read_settings((), policy=policy, reward=check_is_spec(model, "optimize_policy"), **settings)
    check_at_least(1, shots=shots)
    if isinstance(data, str):
        split = split_to_learn(data, split)
    which = select_rows(data, subset=subset, split=split, limit=limit)
    with open_data(which, None if which.source else data) as store:
        examples = [row for row in store if isinstance(row, Example)]
        if len(examples) < len(store):
            raise UsageError(f"{store.name}: holds rated responses, and PPO asks questions of pairs.")
        judge, note = gold_of_data(store.named_judge, examples)
    if note:
        log.warning("%s: %s", which.source or "rows given in Python", note)
    summary = train_policy(
        examples,
        wanted,
        Path(out),
        labels=None if labels is None else open_labels(labels, which, shots=shots),
        judge=judge,
        which=which,
        fresh=fresh,
    )
    return PolicyRun(policy=f"hf:{Path(out) / 'policy'}", folder=Path(out), summary=summary)
