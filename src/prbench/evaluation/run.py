"""Evaluate a reward model: open the data, score it batch by batch, sum up. The public face is `prbench.evaluate`."""

import json
import logging
import platform
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from prbench.context import ContextMaker, Labels
from prbench.context.labels import SHOTS, check_labels_overlap
from prbench.data import DataSettings, ExampleStore, Rows, open_data
from prbench.errors import UsageError
from prbench.evaluation.batches import BatchResult, as_loaded, run_batches, stage_of
from prbench.evaluation.engines import Engine, LocalEngine
from prbench.evaluation.first_items import FirstItems
from prbench.evaluation.score import asked_probes, check_words_known, recorded_notes
from prbench.evaluation.settings import ONE_ORDER, PROBES, EvalSettings, Model, Shown, context_maker
from prbench.evaluation.summary import FACTS, MAX_FAILED, summarize, summarize_groups
from prbench.metrics.estimate import USERS, Over
from prbench.metrics.groups import group_table, user_table
from prbench.metrics.number_format import NumberFormat
from prbench.metrics.ratings import with_alignments
from prbench.reward_models import ModelSettings
from prbench.reward_models.base import LoadedModel, require_scores
from prbench.runs import (
    ITEMS,
    SUMMARY,
    TIMING,
    Layout,
    RowLog,
    RunConfig,
    RunStore,
    from_record,
    read_rows,
    run_id,
    to_record,
)
from prbench.runs.files import EVAL
from prbench.runs.manifest import require_facts
from prbench.schema import RETRIED, Json, Probe, Progress, RatedRow, Row, Verdict, crossed_fields

logger = logging.getLogger("prbench")
LAYOUT = Layout(kind=EVAL, made=(ITEMS, SUMMARY, TIMING))
ROW_KEY = ("id", "probe")


@dataclass(frozen=True, kw_only=True, repr=False)
class Run:
    """What an evaluation leaves behind: figures in `summary`, one row per item and probe in `items`.

        run = prbench.evaluate("lab", "control:overlap", limit=50)
        print(run.summary["accuracy"])
        lost = run.rows(probe="own", verdict="rejected")

    `folder` is where it is kept, if it is.
    """

    summary: Mapping[str, Json]
    items: Sequence[Row | RatedRow]
    folder: Path | None = None
    notes: Sequence[str] = ()  # what should be known of a model whose answers were recorded

    def rows(self, *, probe: str | None = None, verdict: str | None = None) -> list[Row | RatedRow]:
        """Return the rows, of one probe (own, none, swap) or with one verdict where that is asked for."""
        if probe is not None and probe not in set(Probe):
            raise UsageError(f"probe={probe!r}: unknown. Use one of: {', '.join(Probe)}.")
        if verdict is not None and verdict not in set(Verdict):
            raise UsageError(f"verdict={verdict!r}: unknown. Use one of: {', '.join(Verdict)}.")
        return [
            row
            for row in self.items
            if (probe is None or row.probe == probe)
            and (verdict is None or (isinstance(row, Row) and row.verdict == verdict))
        ]

    def to_pandas(self) -> Any:
        """Return the rows as a `pandas.DataFrame`, one column a field; facts of the rows are columns of their own.

        Rated rows have three columns under the names of the challenge's starter code, too: `predicted_reward`
        (`predicted`), `human_preference_score` (`rating`) and `alignment_score` (`alignment`).
        """
        try:
            import pandas
        except ImportError:
            raise UsageError("Run.to_pandas needs pandas. Install it with: pip install pandas") from None
        records = [{**record, **record.pop("groups")} for record in map(to_record, self.items)]
        return pandas.DataFrame([record | _starter_columns(record) for record in records])

    def users(self) -> list[dict[str, Json]]:
        """Return one line per user: `user`, `n`, and their figures, `None` where one does not apply.

        Of pairs these are `accuracy`, `gain` and `swap_gap`, of ratings `alignment`, `spearman` and `kendall`.
        """
        return user_table(self.items)

    def groups(self, *by: str) -> list[dict[str, Json]]:
        """Return one line per field, figure and group: its value, and how far the best and the worst group lie apart.

            run.groups()  # by the fields that the run was grouped by
            run.groups("region", "region,age")  # by other facts of its rows; a comma crosses them

        A run that was kept in a folder knows its other facts once it is read back with `prbench.load_runs`.
        """
        groups = summarize_groups(self.items, by, self.summary["seed"]) if by else self.summary["groups"]
        return group_table(groups or {})

    def __repr__(self) -> str:
        ratings = self.summary.get("ratings")
        name, found = ("alignment", ratings["alignment"]) if ratings else ("accuracy", self.summary["accuracy"])
        figure = NumberFormat(3).estimate(found) if found else "none"
        head = f"{self.summary['model']} · {self.summary['context']} on {self.summary['data']['name']}"
        own, official = "", self.summary.get("official")
        if official:
            own = f", {official['set']} {official['headline']} {NumberFormat(3).estimate(official['score'])}"
        return f"<Run {head}: {name} {figure}{own}, {self.summary['n_items']} items>"


def _starter_columns(record: Mapping[str, Json]) -> dict[str, Json]:
    """Return what the challenge's starter code says of a rated response, under its names."""
    names = {"predicted_reward": "predicted", "human_preference_score": "rating", "alignment_score": "alignment"}
    return {name: record[own] for name, own in names.items()} if "rating" in record else {}


def evaluate(
    data: Rows,
    model: Model,
    context: str | None = None,
    *,
    out: str | Path | None = None,
    settings: EvalSettings | None = None,
    group_by: Sequence[str] = (),
    over: Over = USERS,
    max_failed: float = MAX_FAILED,
    which: DataSettings | None = None,
    model_settings: ModelSettings | None = None,
    progress: Progress | None = None,
    engine: Engine | None = None,
    labels: Rows | None = None,
    shots: int = SHOTS,
) -> Run:
    """Ask `model` about every pair of `data`, and return the rows with their summary.

    `data` is a path, a hub id, `lab`, or the examples themselves; `model` is a spec string or any object with
    `score(inputs)`. With `out`, the run is kept in a folder there and continued if it was interrupted. Without an
    `engine`, everything runs in this process. `labels` are pairs, of which the model gets to see up to `shots` of the
    user who asks, but never the one under test.
    """
    how = settings or EvalSettings()
    if context is not None:
        how = replace(how, context=context)
    which = which or DataSettings()
    if isinstance(data, str | Path):
        which = replace(which, source=str(data))
    shown = Shown.of(model, how.context, labels, shots)
    how = replace(how, context=shown.context)
    with open_data(which, None if which.source else data) as store:
        engine = engine or LocalEngine()
        loaded = as_loaded(model, model_settings or ModelSettings(seed=how.seed), engine)
        return evaluate_store(
            store,
            loaded,
            how,
            which,
            group_by=group_by,
            over=over,
            max_failed=max_failed,
            out=Path(out) if out else None,
            progress=progress,
            engine=engine,
            labels=shown.open_labels(which),
        )


def evaluate_store(
    store: ExampleStore,
    loaded: LoadedModel,
    settings: EvalSettings,
    which: DataSettings,
    *,
    group_by: Sequence[str] = (),
    over: Over = USERS,
    max_failed: float = MAX_FAILED,
    out: Path | None = None,
    fresh: bool = False,
    command: str = "",
    progress: Progress | None = None,
    engine: Engine | None = None,
    labels: Labels | None = None,
    warn: Callable[[str], None] = logger.warning,
) -> Run:
    """Evaluate one model on validated rows; with `out`, into a run folder that can be continued.

    `warn` gets a line as soon as it is clear that most of the first items cannot be read.
    """
    settings, notes = _as_recorded(loaded, settings, store)
    _check_rows(store, loaded, settings, group_by, over, labels)
    maker = context_maker(settings, out, labels)
    config = run_config(store, loaded, settings, maker)
    facts = _facts(config, settings, store, which) | {
        "group_by": list(group_by),
        "resample": over,
        "max_failed": max_failed,
    }
    results = partial(
        run_batches,
        engine or LocalEngine(),
        stage_of(loaded, maker, settings, out, labels),
        store,
        loaded.items_per_step,
        settings,
        labeled=labels is not None,
        progress=progress,
    )
    if out is None:
        rows = [row for answered in _watched(results(), loaded, warn) for row in answered.rows]
        rows = _with_columns(sorted(rows, key=lambda row: (row.id, row.probe)))
        return Run(summary=summarize(rows, facts, settings.probes), items=rows, notes=notes)
    folder = out / run_id(config)
    asked = RunConfig(
        config=config, facts=facts, data=which.to_config(), command=command, environment=_environment_of(loaded)
    )
    started = time.monotonic()
    tokens: Counter[str] = Counter()
    with RunStore.open(folder, LAYOUT, asked, fresh=fresh) as run:
        require_facts(folder, run.manifest)
        log = run.rows(ITEMS, key=ROW_KEY)
        retry = partial(_is_asked_again, store=store, settings=settings)
        done = {(str(item), str(probe)) for item, probe in log.completed(retry=retry)}
        for answered in _watched(results(done=done), loaded, warn):
            log.append(map(to_record, answered.rows))
            tokens.update(answered.tokens or {})
        log.compact(lambda key: (store.position(key[0]), settings.probes.index(Probe(key[1]))))
        rows = fill_columns(log, read_rows(folder, groups=(*group_by, *FACTS)))
        summary = summarize(rows, facts, settings.probes)
        run.write_json(
            TIMING,
            {
                "seconds": round(time.monotonic() - started, 3),
                "rows_computed": len(rows) - len(done),
                "tokens": dict(tokens) or None,
                "machine": {"system": platform.system(), "processor": platform.machine()},
            },
        )
        run.finish(summary)
    return Run(summary=summary, items=rows, folder=folder, notes=notes)


def _as_recorded(
    loaded: LoadedModel, settings: EvalSettings, store: ExampleStore
) -> tuple[EvalSettings, Sequence[str]]:
    """Return what can be asked of a model that was recorded, with notes on what cannot; of others, all of it."""
    if loaded.recorded is None:
        return settings, ()
    probes = asked_probes(settings.probes, loaded, settings.context)
    notes = recorded_notes(loaded, store.has, probes if probes != settings.probes else PROBES)
    orders = ONE_ORDER if ONE_ORDER in (loaded.recorded.orders, settings.orders) else settings.orders
    return replace(settings, probes=probes, orders=orders), notes


def _check_rows(
    store: ExampleStore,
    loaded: LoadedModel,
    settings: EvalSettings,
    group_by: Sequence[str],
    over: Over,
    labels: Labels | None,
) -> None:
    """Refuse what these rows cannot be asked, before anything is."""
    if store.kind == "rated":
        require_scores(loaded, "a rated row", of_items=True)
        if over != USERS:
            raise UsageError(f"--resample {over} is for pairs; figures of ratings are means over users. Leave it out.")
        if settings.context == "oracle":
            raise UsageError("--context oracle needs rubrics, and rated rows have none. Use none, profile or plan.")
    _check_groups(store, group_by)
    if labels is not None:
        check_labels_overlap(labels, store)
    check_words_known(loaded, store)


def _watched(
    results: Iterator[BatchResult], loaded: LoadedModel, warn: Callable[[str], None]
) -> Iterator[BatchResult]:
    """Yield the results, and warn in passing where most of the first items cannot be read."""
    first = FirstItems(loaded.spec, is_recorded=loaded.recorded is not None)
    for answered in results:
        if line := first.add(answered.rows):
            warn(line)
        yield answered
    if line := first.end():
        warn(line)


def fill_columns(log: RowLog, rows: Sequence[Row | RatedRow]) -> list[Row | RatedRow]:
    """Return the rows of a finished run, and write into them what is known only now that all are there.

    They are computed anew each time, so a run that was killed, continued, or made smaller has the columns of its rows.
    """
    found = _with_columns(rows)
    columns = {
        (row.id, row.probe): {"predicted": row.predicted, "alignment": row.alignment}
        for row in found
        if isinstance(row, RatedRow)
    }
    if columns:
        log.fill(columns)
    return found


def _with_columns(rows: Sequence[Row | RatedRow]) -> list[Row | RatedRow]:
    rated = [row for row in rows if isinstance(row, RatedRow)]
    return list(with_alignments(rated)) if rated else list(rows)  # a run has rows of one kind


def _is_asked_again(record: Mapping[str, Json], *, store: ExampleStore, settings: EvalSettings) -> bool:
    """True for a row to ask again. A damaged row, or one of an item or probe that is not asked, is an error."""
    row = from_record(record, groups=(), replies=False)
    store.position(row.id)
    settings.probes.index(row.probe)
    return row.problem in RETRIED


def _check_groups(store: ExampleStore, group_by: Sequence[str]) -> None:
    """Stop before the first row if a field is in no row; rows that merely lack it are left out of its groups."""
    for name in set(group_by):
        fields = set(crossed_fields(name)) - {"category", "user_id"}
        if not any(
            all(field in example.meta or (field == "split" and example.split) for field in fields) for example in store
        ):
            known = ", ".join(["category", "user_id", *sorted(store[0].meta)])
            raise UsageError(f"--group-by {name}: no row has such a field. Known here: {known}.")


def run_config(
    store: ExampleStore, loaded: LoadedModel, settings: EvalSettings, maker: ContextMaker
) -> dict[str, Json]:
    """Return everything that can change a result, and nothing else: its hash names the run."""
    config = {
        "model": loaded.spec,
        "model_kind": loaded.kind,
        "model_identity": dict(loaded.identity),
        "template_hash": loaded.template_hash,
        "data_hash": store.content_hash,
        "context": dict(maker.identity),
        "settings": settings.to_config(),
    }
    plain: dict[str, Json] = json.loads(json.dumps(config))  # as it will read when it comes back from the manifest
    return plain


def run_context(config: Mapping[str, Json], settings: EvalSettings) -> str:
    """Return what boards call the context of a run: `profile`, or `profile, 10 labels`."""
    labels = config["context"].get("labels")
    return f"{settings.context}, {labels['shots']} labels" if labels else settings.context


def _facts(
    config: Mapping[str, Json],
    settings: EvalSettings,
    store: ExampleStore,
    which: DataSettings,
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
        "context": run_context(config, settings),
        "seed": settings.seed,
    }


def _environment_of(loaded: LoadedModel) -> dict[str, Json]:
    """Return what only the model knows of what computes: its precision, and what a server says that it serves."""
    names = {"dtype": "precision", "api": "server", "model": "served_model", "version": "server_version"}
    return {names[key]: value for key, value in loaded.identity.items() if key in names}
