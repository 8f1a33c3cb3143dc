"""Evaluate a reward model: open the data, walk over it, sum up. The public face is `prbench.evaluate`."""

import json
import platform
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from pathlib import Path

from prbench.context import ContextMaker, make_context
from prbench.data import ExampleStore, open_examples
from prbench.errors import UsageError
from prbench.lab import LAB, default_dataset
from prbench.llm import CachedLLM, load_llm
from prbench.reward_models import ModelSettings, load_reward_model, wrap
from prbench.reward_models.base import Loaded, PairJudge, RewardModel
from prbench.runs import SUMMARY, TIMING, RunStore, read_rows, run_id
from prbench.schema import Example, Json, RatedExample, RatedRow, Row
from prbench.summary import FACTS, summarise
from prbench.walk import EvalSettings, Progress, walk

Rows = str | Path | Iterable[Example | RatedExample | Mapping[str, Json]]
Model = str | RewardModel | PairJudge | Loaded


@dataclass(frozen=True, kw_only=True)
class DataSettings:
    """Which rows to take. `source` is how the command line names them; empty for rows given in Python."""

    source: str = ""
    subset: str | None = None
    split: str | None = None
    revision: str | None = None
    limit: int | None = None
    skip_bad_rows: int = 0


@dataclass(frozen=True, kw_only=True)
class Run:
    """What an evaluation leaves behind."""

    summary: Mapping[str, Json]
    rows: Sequence[Row | RatedRow]
    folder: Path | None = None


def evaluate(
    data: Rows,
    model: Model,
    context: str | None = None,
    *,
    out: str | Path | None = None,
    settings: EvalSettings | None = None,
    group_by: Sequence[str] = (),
    which: DataSettings | None = None,
    model_settings: ModelSettings | None = None,
    progress: Progress | None = None,
) -> Run:
    """Ask `model` about every pair of `data`, and return the rows with their summary.

    `data` is a path, a hub id, `lab`, or the examples themselves; `model` is a spec string or any object with
    `score(inputs)`. With `out`, the run is kept in a folder there and continued if it was interrupted.
    """
    how = settings or EvalSettings()
    if context is not None:
        how = replace(how, context=context)
    which = which or DataSettings()
    if isinstance(data, str | Path):
        which = replace(which, source=str(data))
    with open_data(which, None if which.source else data) as store:
        loaded = as_loaded(model, model_settings or ModelSettings(seed=how.seed))
        place = Path(out) if out else None
        return evaluate_store(store, loaded, how, which, group_by=group_by, out=place, progress=progress)


def open_data(which: DataSettings, rows: Rows | None = None) -> ExampleStore:
    """Open the rows that `which.source` names, or those given in Python."""
    if rows is None and which.source == LAB:
        rows = default_dataset(which.split or "test")
    return open_examples(
        which.source if rows is None else rows,
        subset=which.subset,
        split=which.split,
        revision=which.revision,
        limit=which.limit,
        skip_bad_rows=which.skip_bad_rows,
    )


def as_loaded(model: Model, settings: ModelSettings) -> Loaded:
    """Return the model with what the walk must know about it."""
    if isinstance(model, Loaded):
        return model
    return load_reward_model(model, settings) if isinstance(model, str) else wrap(model)


def evaluate_store(
    store: ExampleStore,
    loaded: Loaded,
    settings: EvalSettings,
    which: DataSettings,
    *,
    group_by: Sequence[str] = (),
    out: Path | None = None,
    fresh: bool = False,
    command: str = "",
    progress: Progress | None = None,
) -> Run:
    """Evaluate one model on validated rows; with `out`, into a run folder that can be continued."""
    _refuse_mismatch(store, loaded, settings)
    _refuse_unknown_groups(store, group_by)
    maker = context_maker(settings, out)
    config = run_config(store, loaded, settings, maker)
    facts = _facts(config, store, which, group_by)
    if out is None:
        rows = [row for step in walk(store, loaded, maker, settings, progress=progress) for row in step]
        rows.sort(key=lambda row: (row.id, row.probe))
        return Run(summary=summarise(rows, facts), rows=rows)
    folder = out / run_id(config)
    started = time.monotonic()
    with RunStore(folder, _manifest(config, facts, which, command), fresh=fresh) as run:
        done = run.finished()
        for step in walk(store, loaded, maker, settings, done=done, progress=progress):
            run.append(step)
        rows = read_rows(folder, groups=(*group_by, *FACTS))
        summary = summarise(rows, facts)
        run.write_json(SUMMARY, summary)
        run.write_json(TIMING, _timing(loaded, time.monotonic() - started, len(rows) - len(done)))
    return Run(summary=summary, rows=rows, folder=folder)


def _refuse_mismatch(store: ExampleStore, loaded: Loaded, settings: EvalSettings) -> None:
    if store.kind != "rated":
        return
    if isinstance(loaded.model, PairJudge):
        raise UsageError(f"{loaded.spec} only compares, and rated rows have one response each. Use rating:… instead.")
    if settings.context == "oracle":
        raise UsageError("--context oracle needs rubrics, and rated rows have none. Use none, profile or plan.")


def _refuse_unknown_groups(store: ExampleStore, group_by: Sequence[str]) -> None:
    """Stop before the walk if a field is in no row; rows that merely lack it are left out of its groups."""
    for name in set(group_by) - {"category", "user_id"}:
        if not any(name in example.meta or (name == "split" and example.split) for example in store):
            known = ", ".join(["category", "user_id", *sorted(store[0].meta)])
            raise UsageError(f"--group-by {name}: no row has such a field. Known here: {known}.")


def context_maker(settings: EvalSettings, out: Path | None) -> ContextMaker:
    """Return what turns a user into text, with the planner behind a request cache when there is a place for one."""
    planner = None
    if settings.context == "plan":
        if not settings.planner:
            raise UsageError("--context plan needs a planner, e.g. --planner local:smollm2 or openai:MODEL@URL.")
        planner = load_llm(settings.planner, seed=settings.seed)
        if out is not None:
            planner = CachedLLM(planner, out / "cache" / "llm.sqlite")
    return make_context(
        settings.context, posts=settings.posts, rank=settings.rank, planner=planner, encoder=settings.encoder
    )


def run_config(store: ExampleStore, loaded: Loaded, settings: EvalSettings, maker: ContextMaker) -> dict[str, Json]:
    """Return everything that can change a result, and nothing else: its hash names the run."""
    config = {
        "model": loaded.spec,
        "model_kind": loaded.kind,
        "model_identity": dict(loaded.identity),
        "template_hash": loaded.template_hash,
        "data_hash": store.content_hash,
        "context": dict(maker.identity),
        "settings": asdict(settings),
    }
    plain: dict[str, Json] = json.loads(json.dumps(config))  # as it will read when it comes back from the manifest
    return plain


def _facts(
    config: Mapping[str, Json], store: ExampleStore, which: DataSettings, group_by: Sequence[str]
) -> dict[str, Json]:
    """Return the head of the summary: which run this is."""
    return {
        "run_id": run_id(config),
        "model": config["model"],
        "kind": config["model_kind"],
        "data": {
            "name": which.source or "rows given in Python",
            "hash": store.content_hash,
            "rows": len(store),
            "users": store.users,
            "bad_rows": len(store.bad_rows),
        },
        "context": config["settings"]["context"],
        "seed": config["settings"]["seed"],
        "group_by": list(group_by),
    }


def _manifest(
    config: Mapping[str, Json], facts: Mapping[str, Json], which: DataSettings, command: str
) -> dict[str, Json]:
    return {
        "run_id": facts["run_id"],
        "config": config,
        "facts": facts,
        "data": asdict(which),
        "command": command,
        "versions": {"prbench": version("prbench"), "python": platform.python_version()},
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


def _timing(loaded: Loaded, seconds: float, rows: int) -> dict[str, Json]:
    return {
        "seconds": round(seconds, 3),
        "rows_computed": rows,
        "tokens": loaded.tokens() if loaded.tokens else None,
        "machine": {"system": platform.system(), "processor": platform.machine()},
    }
