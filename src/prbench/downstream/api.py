"""Best-of-N, PPO and rewards for trainers in Python: options are keyword arguments."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prbench.backends.policy import Policy
from prbench.context import Ask, ContextMaker, fit_for
from prbench.context.labels import SHOTS
from prbench.data import Rows, open_data, select_rows
from prbench.errors import UsageError
from prbench.evaluation import EvalSettings, Model, Shown, as_loaded, context_maker, open_labels
from prbench.evaluation.api import as_names
from prbench.judging import Judge
from prbench.reward_models import LoadedModel, check_is_spec, model_settings, require_scores
from prbench.schema import Example, Json, Post, RewardInput, User
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


def reward_function(
    model: Model,
    context: str = "profile",
    *,
    posts: int = 10,
    rank: str = "recent",
    planner: str = "",
    seed: int = 0,
    batch_size: int | None = None,
    max_length: int | None = None,
    dtype: str = "auto",
) -> "RewardFunction":
    """Return a reward model as the function that trainers call: TRL's `GRPOTrainer(reward_funcs=…)` and others.

        reward = prbench.reward_function("head:lab-user")
        reward(prompts=["How do I save?"], completions=["Count coins."], profile=[[{"text": "I am thrifty."}]])

    `context` and the options after it are those of `evaluate`. A failed score is `None`, which trainers leave out.
    """
    shown = Shown.of(model, context)
    if shown.labels is not None:
        raise UsageError(f"{model}: a reward function is shown no labeled pairs. Leave labels and shots out.")
    if shown.context == "oracle":
        raise UsageError(f"{model}: trainers pass no rubrics. Use none, profile or plan as context.")
    loaded = as_loaded(model, model_settings(seed, batch_size, max_length, dtype))
    maker = context_maker(
        EvalSettings(context=shown.context, posts=posts, rank=rank, planner=planner, seed=seed), None
    )
    return RewardFunction(loaded, maker)


class RewardFunction:
    """Scores completions; `None` where the model could not tell, which trainers leave out."""

    def __init__(self, loaded: LoadedModel, maker: ContextMaker) -> None:
        self._loaded, self._maker = loaded, maker
        self._model = require_scores(loaded, "a reward function")
        self.__name__ = loaded.spec  # trainers name their columns after it

    def __call__(
        self,
        prompts: Sequence[Any],
        completions: Sequence[Any],
        *,
        question: Sequence[str] | None = None,
        profile: Sequence[Sequence[Mapping[str, Json]]] | None = None,
        **columns: Any,
    ) -> list[float | None]:
        """Return one score per completion.

        Prompts and completions are texts, or lists of messages as chat templates take them. The columns `question`
        (else the last message of the prompt) and `profile` (posts with a `text` each) are those of a prbench dataset;
        other columns of the trainer's rows are not looked at.
        """
        questions = list(question) if question is not None else [_last_text(prompt) for prompt in prompts]
        profiles = profile if profile is not None else [()] * len(completions)
        if not len(questions) == len(profiles) == len(completions):
            raise UsageError(
                f"{self.__name__}: {len(questions)} questions, {len(profiles)} profiles and {len(completions)} "
                "completions do not belong together. Give one of each per completion."
            )
        users = [
            User(id=str(place), profile=tuple(_post(number, post) for number, post in enumerate(some)))
            for place, some in enumerate(profiles)
        ]
        asks = [Ask(user=user, question=asked) for user, asked in zip(users, questions, strict=True)]
        texts = [_last_text(completion) for completion in completions]
        fitted = [
            fit_for(self._loaded, known, question=asked, responses=(text,))
            for known, asked, text in zip(self._maker.contexts(asks), questions, texts, strict=True)
        ]
        able = [place for place, known in enumerate(fitted) if not known.problem]
        inputs = [RewardInput(question=questions[place], response=texts[place], user=fitted[place]) for place in able]
        values = dict(zip(able, (score.value for score in self._model.score(inputs)), strict=True)) if able else {}
        return [values.get(place) for place in range(len(texts))]


def _post(number: int, post: Mapping[str, Json]) -> Post:
    if not isinstance(post, Mapping) or not isinstance(post.get("text"), str):
        raise UsageError(f"profile: post {number} has no text. A post is a mapping with the key 'text'.")
    return Post(id=str(post.get("id", number)), text=post["text"], category=str(post.get("category") or ""))


def _last_text(messages: Any) -> str:
    """Return a text, or what the last of some messages says."""
    return messages if isinstance(messages, str) else str(messages[-1]["content"])
