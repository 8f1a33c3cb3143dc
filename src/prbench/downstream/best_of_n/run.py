"""Best-of-N from end to end: questions, pool, scores, grades, figures. The public face is `best_of_n`."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import ClassVar

from prbench.backends.policy import Policy
from prbench.context import Labels
from prbench.context.labels import check_labels_overlap
from prbench.data import DataSettings, ExampleStore, Rows, open_data
from prbench.downstream.best_of_n.pool import (
    WHO,
    Grades,
    Pool,
    PoolQuestion,
    RewardModelEntry,
    Scores,
    grade_pool,
    group_of,
    make_pool,
    score_pool,
    select_questions,
)
from prbench.downstream.best_of_n.pool_file import PoolFile
from prbench.downstream.best_of_n.summary import best_of_each, summarize
from prbench.downstream.policies import load_policy
from prbench.errors import UsageError
from prbench.evaluation import EvalSettings, Model, Shown, as_loaded, context_maker
from prbench.evaluation.score import asked_probes, recorded_notes
from prbench.judging import Judge, judge_for, judge_of_data
from prbench.registry import LLMS, MODELS
from prbench.reward_models import ModelSettings, read_ref, require_scores
from prbench.reward_models.base import only_compares
from prbench.runs import ITEMS, SUMMARY, TIMING, Keyed, Keys, Layout, RunConfig, RunStore, run_id
from prbench.runs.files import BON
from prbench.schema import Json, Probe, Progress
from prbench.specs import kind_of, parse_spec

LAYOUT = Layout(kind=BON, made=(ITEMS, SUMMARY, TIMING, "bon.html", "*.svg"))
StepProgress = Callable[[str], Progress | None]  # takes the name of a step, returns what is called with its progress


@dataclass(frozen=True, kw_only=True)
class BonSettings(Keyed):
    """What is sampled and what models may see."""

    n: int
    users: int | None = None
    limit: int | None = None  # questions
    policy_context: str = "none"  # or profile, plan, oracle: what the policy sees of the user
    context: EvalSettings = field(default_factory=EvalSettings)  # what models may see, and the seed of everything

    KEYS: ClassVar[Keys] = Keys("n", users=None, limit=None, policy_context="none", context={})


@dataclass(frozen=True, kw_only=True)
class BonRun:
    """What a run leaves behind: its figures in `summary`, everything else in `folder`."""

    summary: Mapping[str, Json] = field(repr=False)
    folder: Path
    failures: Mapping[str, Sequence[str]] = field(repr=False)  # what went wrong, by step or model
    notes: Sequence[str] = ()  # what should be known of models whose scores were recorded


def best_of_n(
    data: Rows | PoolFile,
    policy: str | Policy,
    models: Sequence[Model],
    settings: BonSettings,
    *,
    out: str | Path,
    which: DataSettings | None = None,
    judge: str | Judge = "",
    model_settings: ModelSettings | None = None,
    labels: Labels | None = None,
    group_by: Sequence[str] = (),
    command: str = "",
    progress_of: StepProgress = lambda step: None,
) -> BonRun:
    """Sample a pool, grade it once, score it with every model, and sum up.

    Everything is kept under `out`; what is there already is not made again. `judge` is an object, `lab`, or the spec
    of a language model that grades by rubrics; without one, data that knows its own truth names its judge. `labels`
    are shown to the models as in `evaluate`. A `PoolFile` gives the answers and, without a judge, what they are worth.
    """
    started, out, seed = time.monotonic(), Path(out), settings.context.seed
    model_settings = model_settings or ModelSettings(seed=seed)
    _check_models(models, settings)
    policy = load_policy(policy) if isinstance(policy, str) else policy
    which = which or DataSettings()
    if isinstance(data, str | Path | PoolFile):
        which = replace(which, source=str(data.path if isinstance(data, PoolFile) else data))
    questions, data_hash, judge = _open_questions(data, which, settings, judge, labels, model_settings, group_by)
    load = partial(_load_entry, settings.context, model_settings, labels, which, out)
    # What costs little to hold is loaded before anything is sampled, so that what is wrong with it is known by then.
    light = {place: load(model) for place, model in enumerate(models) if _is_light(model, settings)}
    maker = context_maker(replace(settings.context, context=settings.policy_context), out)
    sampling = progress_of(f"sampling from {policy.name}")
    pool = make_pool(questions, policy, maker, out, n=settings.n, seed=seed, data_hash=data_hash, progress=sampling)
    grades = grade_pool(pool, questions, judge, progress=progress_of("grading"))
    scored: dict[str, tuple[str, Scores]] = {}
    notes: list[str] = []
    for place, model in enumerate(models):
        entry = light.get(place) or load(model)  # of the models that are not light only one is in memory
        if entry.name not in scored:
            found = score_pool(pool, questions, entry, seed=seed, progress=progress_of(entry.name))
            scored[entry.name] = (entry.maker.kind, found)
            # A pool has no use for `none`: a model that is shown nobody is another entry. Nor has one without profiles
            # any for `swap`.
            can_swap = entry.maker.kind in ("profile", "plan") and any(each.example.user.profile for each in questions)
            asked = {*entry.probes, Probe.NONE, *([] if can_swap else [Probe.SWAP])}
            notes += recorded_notes(entry.loaded, {each.id for each in questions}.__contains__, asked)
    config = _config(questions, pool, grades, scored, seed, group_by)
    summary: dict[str, Json] = {
        "run_id": run_id(config),
        "policy": policy.name,
        "policy_context": settings.policy_context,
        "pool": pool.id,
        "data": {"name": which.source or "rows given in Python", "split": which.split, "hash": data_hash},
        "judge": dict(judge.identity),
        "seed": seed,
        **summarize(questions, pool, grades, scored, seed=seed, group_by=group_by),
    }
    plan = RunConfig(config=config, facts={"settings": settings.to_config()}, data=which.to_config(), command=command)
    with RunStore.open(out / run_id(config), LAYOUT, plan) as run:
        run.write_lines(ITEMS, _item_rows(questions, grades, scored, summary["sizes"]))
        run.write_json(TIMING, {"seconds": round(time.monotonic() - started, 3)})
        run.finish(summary)
    failures: dict[str, Sequence[str]] = {
        "sampling": tuple(pool.incomplete.values()),
        "grading": tuple(grades.missing.values()),
        **{name: scores.details for name, (_, scores) in scored.items()},
    }
    return BonRun(summary=summary, folder=out / run_id(config), failures=failures, notes=notes)


def _check_models(models: Sequence[Model], settings: BonSettings) -> None:
    """Refuse what no model may be asked, before anything is sampled."""
    if not models:
        raise UsageError("There is no reward model to pick answers. Name one with --model.")
    for name in models:
        if isinstance(name, str):
            ref = read_ref(name)
            kind = MODELS.find(ref.spec.kind)
            if kind.compares:
                raise only_compares(name, WHO)
            kind.read_options(ref.spec)
            for target in ref.spec.target.split(",") if kind.name == "implicit" else [ref.spec.target]:
                place = parse_spec(target, LLMS).target if kind_of(target) in LLMS.names else target
                # What may be a hub id or an address is for the loader to find out.
                is_path = kind.is_folder or place.startswith(("/", "./", "../"))
                if is_path and not Path(place).exists():
                    raise UsageError(f"{ref.spec.text}: there is no {place}. Check the path.")
            if ref.context(settings.context.context) == "plan" and not settings.context.planner:
                raise UsageError(f"{name}: --context plan needs a planner. Name one with --planner.")
    if settings.policy_context == "plan" and not settings.context.planner:
        raise UsageError("--policy-context plan needs a planner. Name one with --planner.")


def _open_questions(
    data: Rows | PoolFile,
    which: DataSettings,
    settings: BonSettings,
    judge: str | Judge,
    labels: Labels | None,
    model_settings: ModelSettings,
    group_by: Sequence[str],
) -> tuple[list[PoolQuestion], str, Judge]:
    """Return the questions, the hash of the rows, and the judge, which can grade every one of them."""
    seed = settings.context.seed
    with _open(data, which) as store:
        if labels is not None:
            check_labels_overlap(labels, store)
        questions = select_questions(store, users=settings.users, limit=settings.limit, seed=seed)
        data_hash = store.content_hash
        if isinstance(judge, str):
            if isinstance(data, PoolFile) and not judge:
                judge = data.judge()
            else:
                judge = judge_for(judge or judge_of_data(store), seed=seed, cache=model_settings.cache)
    judge.check([question.example for question in questions])
    for name in group_by:
        if all(group_of(question, name) is None for question in questions):
            known = ", ".join(["category", *sorted(questions[0].example.meta)])
            raise UsageError(f"--group-by {name}: no row has such a field. Known here: {known}.")
    return questions, data_hash, judge


def _open(data: Rows | PoolFile, which: DataSettings) -> ExampleStore:
    if isinstance(data, PoolFile):
        return data.open()
    return open_data(replace(which, limit=None), None if which.source else data)


def _is_light(model: Model, settings: BonSettings) -> bool:
    """True if a model costs little to hold in memory; a planner may be large."""
    if not isinstance(model, str):
        return True
    ref = read_ref(model)
    return MODELS.find(ref.spec.kind).light and ref.context(settings.context.context) != "plan"


def _load_entry(
    settings: EvalSettings,
    model_settings: ModelSettings,
    labels: Labels | None,
    which: DataSettings,
    out: Path,
    model: Model,
) -> RewardModelEntry:
    loaded = as_loaded(model, model_settings)
    require_scores(loaded, WHO, of_items=True)
    shown = Shown.of(model, settings.context, labels)
    if shown.context in ("none", "oracle") and shown.labels is labels:
        # Labeled pairs are of the user: a model that is to know nobody does not get them either.
        shown = replace(shown, labels=None)
    maker = context_maker(replace(settings, context=shown.context), out, shown.open_labels(which))
    asked_probes((Probe.OWN,), loaded, maker.kind)  # refused before anything is sampled
    return RewardModelEntry(name=model if isinstance(model, str) else loaded.spec, loaded=loaded, maker=maker)


def _config(
    questions: Sequence[PoolQuestion],
    pool: Pool,
    grades: Grades,
    scored: Mapping[str, tuple[str, Scores]],
    seed: int,
    group_by: Sequence[str],
) -> dict[str, Json]:
    """Return everything that can change a figure, and nothing else: its hash names the run."""
    return {
        "pool": pool.id,
        "grades": grades.id,
        "scores": {name: scores.id for name, (_, scores) in scored.items()},
        "questions": sha256("\n".join(question.id for question in questions).encode()).hexdigest()[:12],
        "seed": seed,
        "group_by": list(group_by),
    }


def _item_rows(
    questions: Sequence[PoolQuestion], grades: Grades, scored: Mapping[str, tuple[str, Scores]], sizes: Sequence[int]
) -> Iterator[dict[str, Json]]:
    """Yield what each model's pick among n is worth to be expected, question by question."""
    for name, (_, scores) in scored.items():
        own = scores.values[Probe.OWN]
        for question in questions:
            if question.id in own and question.id in grades.values:
                best = best_of_each(grades.values[question.id], own[question.id])
                values = {str(n): float(best[n - 1]) for n in sizes}
                yield {"id": question.id, "user_id": question.example.user.id, "model": name, "values": values}
