"""The public functions: what the command line does, for Python. `import prbench` and use them from there.

Data is a path, a hub id, `lab`, or rows; a model is a spec (`prbench models` lists them) or any object of yours.
Options that people reach for are keyword arguments. What lies one import deeper: `prbench.construction`,
`prbench.people`, `prbench.insight`, `prbench.serve`, `prbench.judging`, `prbench.registry`.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from prbench.backends.policy import Policy
from prbench.context import Ask, ContextMaker, fit_for
from prbench.context.labels import SHOTS
from prbench.data import ExampleStore
from prbench.errors import UsageError
from prbench.evaluation import DataSettings, EvalSettings, Model, Rows, Run, context_maker, open_data, open_labels
from prbench.evaluation import evaluate as evaluate_with
from prbench.evaluation.run import Shown, as_loaded
from prbench.evaluation.summary import summarize
from prbench.judging import Judge
from prbench.reward_models import DTYPES, Loaded, ModelSettings, load_reward_model, require_scores
from prbench.runs import find_runs
from prbench.runs.names import EVAL
from prbench.schema import Example, Json, Post, Probe, Progress, RewardInput, User

log = logging.getLogger("prbench")


def load_dataset(
    data: Rows,
    *,
    subset: str | None = None,
    split: str | None = None,
    revision: str | None = None,
    limit: int | None = None,
    skip_bad_rows: int = 0,
) -> ExampleStore:
    """Return the checked examples of a dataset: a sequence of `Example`, or of rated rows.

    pairs = prbench.load_dataset("lab", limit=100)
    print(len(pairs), pairs[0].question)
    """
    which = _which(data, subset, split, revision, limit, skip_bad_rows)
    return open_data(which, None if which.source else data)


def load_model(
    spec: str, *, seed: int = 0, batch_size: int | None = None, max_length: int | None = None, dtype: str = "auto"
) -> Loaded:
    """Return the reward model that a spec names, ready to score; `.model.score(inputs)` asks it.

    model = prbench.load_model("control:overlap")
    run = prbench.evaluate("lab", model, limit=50)
    """
    return load_reward_model(_spec(spec, "load_model"), _settings(seed, batch_size, max_length, dtype))


def evaluate(
    data: Rows,
    model: Model,
    context: str = "profile",
    *,
    posts: int = 10,
    rank: str = "recent",
    planner: str = "",
    probes: str | Sequence[str] = ("own", "none", "swap"),
    orders: str = "both",
    labels: Rows | None = None,
    shots: int = SHOTS,
    subset: str | None = None,
    split: str | None = None,
    limit: int | None = None,
    group_by: str | Sequence[str] = (),
    seed: int = 0,
    batch_size: int | None = None,
    max_length: int | None = None,
    dtype: str = "auto",
    out: str | Path | None = None,
    progress: Progress | None = None,
) -> Run:
    """Ask a reward model about every pair, and return the run: its figures in `summary`, its rows in `rows()`.

        run = prbench.evaluate("lab", "control:overlap", limit=50, probes=("own", "swap"))
        print(run, run.summary["swap"]["gap"])

    `context` is what the model may know of the user: none, profile, plan (by `planner`) or, as a ceiling, oracle.
    `labels` are pairs that the users compared before, of which the model sees up to `shots`, never the one under test.
    With `out`, the run is kept in a folder there, and continued if it was interrupted.
    """
    _at_least(1, shots=shots)
    return evaluate_with(
        data,
        model,
        out=out,
        settings=EvalSettings(
            context=context,
            posts=posts,
            rank=rank,
            planner=planner,
            probes=_probes(probes),
            orders=orders,
            seed=seed,
        ),
        group_by=_names(group_by),
        which=replace(_which(data, subset, split, None, limit, 0), source=""),
        model_settings=_settings(seed, batch_size, max_length, dtype),
        progress=progress,
        labels=labels,
        shots=shots,
    )


def load_runs(*paths: str | Path) -> list[Run]:
    """Return the finished evaluations in these folders, every figure computed anew from the rows.

        for run in prbench.load_runs("runs"):
            print(run)

    A folder of runs means all that lie directly in it. Runs of other kinds and unfinished ones are left out, with a
    line in the log.
    """
    found = find_runs([Path(path) for path in paths or ("runs",)], kinds=(EVAL,), groups=None, replies=True)
    for line in found.left_out:
        log.warning("%s", line)
    runs = []
    for stored in found.runs:
        summary = summarize(stored.rows, stored.manifest["facts"])
        runs.append(Run(summary=summary, items=stored.rows, folder=stored.folder))
    return runs


@dataclass(frozen=True, kw_only=True)
class PoolRun:
    """What Best-of-N leaves behind: its figures in `summary`, everything else in `folder`."""

    summary: Mapping[str, Json] = field(repr=False)
    folder: Path


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
) -> PoolRun:
    """Sample `n` answers to every question, let each reward model pick, and say what the users get, for every n.

        run = prbench.best_of_n("lab", "lab", ["head:lab-user", "control:longest"], n=8, users=20)
        print(run.summary["models"]["head:lab-user"]["captured_headroom"])

    The pool is sampled and graded once, and kept under `out`. `judge` is an object, `lab`, or a language model that
    grades by rubrics; data that knows its own truth needs none.
    """
    from prbench.downstream.best_of_n.run import BonSettings
    from prbench.downstream.best_of_n.run import best_of_n as best_of_n_with

    which = _which(data, subset, split, None, None, 0)
    _at_least(1, n=n, users=users, limit=limit, shots=shots)
    context_settings = EvalSettings(context=context, posts=posts, rank=rank, planner=planner, seed=seed)
    run = best_of_n_with(
        data,
        policy,
        [models] if isinstance(models, str) or not isinstance(models, Sequence) else models,
        BonSettings(n=n, users=users, limit=limit, policy_context=policy_context, context=context_settings),
        out=out,
        which=which,
        judge=judge,
        model_settings=_settings(seed, batch_size, max_length, dtype),
        labels=None if labels is None else open_labels(labels, which, shots=shots),
        group_by=_names(group_by),
    )
    return PoolRun(summary=run.summary, folder=run.folder)


@dataclass(frozen=True, kw_only=True)
class TrainedModel:
    """A model that was trained: `spec` is what every other function takes, and `--model` on the command line."""

    spec: str
    folder: Path
    facts: Mapping[str, Json] = field(repr=False)


def train(
    method: str,
    data: str,
    *,
    out: str | Path,
    train_split: str | None = None,
    validation_split: str | None = None,
    subset: str | None = None,
    limit: int | None = None,
    hold_out: float | None = None,
    fresh: bool = False,
    **settings: Any,
) -> TrainedModel:
    """Train a reward model by one of the methods of `prbench train`, into a folder that can be continued.

        model = prbench.train("match", "lab", out="my-match", limit=200)
        prbench.evaluate("lab", model.spec, limit=50)

    `settings` are those of the method (`prbench train --method match --help` lists them).
    """
    from prbench.training.data import load_training_data
    from prbench.training.methods import load_method, make_config
    from prbench.training.methods import train as train_with

    code = load_method(method)
    config = make_config(code, [], **settings)
    _at_least(1, limit=limit)
    rows = load_training_data(
        data,
        train_split=train_split,
        validation_split=validation_split,
        subset=subset,
        limit=limit,
        held_out=hold_out,
    )
    trained = train_with(code, rows, config, Path(out), fresh=fresh)
    return TrainedModel(spec=trained.spec, folder=Path(out), facts=trained.facts)


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
    from prbench.downstream.ppo.training import Asked, gold_of_data, train_policy
    from prbench.training.data import split_to_learn

    wanted = read_settings((), policy=policy, reward=_spec(model, "optimize_policy"), **settings)
    _at_least(1, shots=shots)
    which = _which(data, subset, split_to_learn(data, split) if isinstance(data, str) else split, None, limit, 0)
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
        asked=Asked(data=which.source or "rows given in Python", split=which.split or ""),
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
    """
    shown = Shown.of(model, context)
    if shown.labels is not None:
        raise UsageError(f"{model}: a reward function is shown no labeled pairs. Leave labels and shots out.")
    if shown.context == "oracle":
        raise UsageError(f"{model}: trainers pass no rubrics. Use none, profile or plan as context.")
    loaded = as_loaded(model, _settings(seed, batch_size, max_length, dtype))
    require_scores(loaded, "a reward function")
    maker = context_maker(
        EvalSettings(context=shown.context, posts=posts, rank=rank, planner=planner, seed=seed), None
    )
    return RewardFunction(loaded, maker)


class RewardFunction:
    """Scores completions; `None` where the model could not tell, which trainers leave out."""

    def __init__(self, loaded: Loaded, maker: ContextMaker) -> None:
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


def _which(
    data: Rows, subset: str | None, split: str | None, revision: str | None, limit: int | None, skip_bad_rows: int
) -> DataSettings:
    if isinstance(data, Mapping) or not isinstance(data, str | Path | Iterable):
        raise UsageError(
            f"data of type {type(data).__name__} cannot be read. Give a path, a name, a hub id, or a list of rows."
        )
    _at_least(1, limit=limit)
    return DataSettings(
        source=str(data) if isinstance(data, str | Path) else "",
        subset=subset,
        split=split,
        revision=revision,
        limit=limit,
        skip_bad_rows=skip_bad_rows,
    )


def _settings(seed: int, batch_size: int | None, max_length: int | None, dtype: str) -> ModelSettings:
    _at_least(1, batch_size=batch_size, max_length=max_length)
    if dtype not in DTYPES:
        raise UsageError(f"dtype={dtype!r}: unknown. Use one of: {', '.join(DTYPES)}.")
    return ModelSettings(seed=seed, batch_size=batch_size or 0, max_length=max_length, dtype=dtype)


def _at_least(least: int, **numbers: int | None) -> None:
    for name, number in numbers.items():
        is_whole = isinstance(number, int) and not isinstance(number, bool)
        if number is not None and (not is_whole or number < least):
            raise UsageError(f"{name}={number!r}: give a whole number of at least {least}, or None.")


def _spec(model: Any, who: str) -> str:
    if not isinstance(model, str):
        raise UsageError(f"{who} takes a spec, e.g. control:overlap or python:package.module:Factory, not {model!r}.")
    return model


def _names(given: str | Sequence[str]) -> Sequence[str]:
    return (given,) if isinstance(given, str) else given


def _probes(given: str | Sequence[str]) -> tuple[Probe, ...]:
    names = _names(given)
    known = {probe.value: probe for probe in Probe}
    for name in names:
        if name not in known:
            raise UsageError(f"probes: {name!r} is unknown. Use some of: {', '.join(known)}.")
    if Probe.OWN not in names:
        raise UsageError("probes: 'own' is missing, and every figure is compared with it. Add it.")
    return tuple(known[name] for name in known if name in names)
