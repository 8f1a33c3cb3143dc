"""Rows in, verdicts out, batch by batch, here or in workers that load the model themselves.

Nothing here grows with the length of the texts.
"""

import platform
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from prbench.context import ContextMaker, Labels
from prbench.data import ExampleStore
from prbench.errors import UsageError
from prbench.evaluation.engines import Engine, LocalEngine, Stage, WorkItem
from prbench.evaluation.score import PendingItem, as_row, pending_items, prepare, score_rows
from prbench.evaluation.settings import EvalSettings, Model, context_maker
from prbench.reward_models import ModelSettings, load_ref, load_reward_model, read_ref, wrap
from prbench.reward_models.base import LoadedModel, RemoteModelRef, detach
from prbench.schema import Progress, RatedRow, Row

Batch = tuple[PendingItem, ...]  # scored, then written, together; whole examples, so that a worker needs no file


@dataclass(frozen=True, kw_only=True)
class BatchResult:
    """What a batch gives."""

    rows: Sequence[Row | RatedRow]
    tokens: Mapping[str, int] | None  # read for these rows; `None`: not counted


def evaluate_rows(
    store: ExampleStore,
    loaded: LoadedModel,
    maker: ContextMaker,
    settings: EvalSettings,
    *,
    progress: Progress | None = None,
) -> Iterator[list[Row | RatedRow]]:
    """Yield the rows of one batch after the other, with a model that is loaded here."""
    stage = Stage(name=loaded.spec, make_worker=lambda: BatchWorker(loaded, maker, settings))
    results = run_batches(LocalEngine(), stage, store, loaded.items_per_step, settings, progress=progress)
    return (list(result.rows) for result in results)


def run_batches(
    engine: Engine,
    stage: Stage[Batch, BatchResult],
    store: ExampleStore,
    items_per_batch: int,
    settings: EvalSettings,
    *,
    done: AbstractSet[tuple[str, str]] = frozenset(),
    labeled: bool = False,
    progress: Progress | None = None,
) -> Iterator[BatchResult]:
    """Yield what each batch gives, in the order in which the engine delivers them."""
    seen = 0
    sizes: dict[str, int] = {}

    def work() -> Iterator[WorkItem[Batch]]:
        nonlocal seen
        for number, start in enumerate(range(0, len(store), items_per_batch)):  # a resumed run cuts them alike
            positions = range(start, min(start + items_per_batch, len(store)))
            if pending := pending_items(store, positions, settings, done, labeled=labeled):
                sizes[str(number)] = len(positions)
                yield WorkItem(id=str(number), payload=pending)
            else:
                seen += len(positions)

    for number, result in engine.run(stage, work()):
        yield result
        seen += sizes.pop(number)
        if progress:
            progress(seen, len(store))
    if progress:
        progress(len(store), len(store))


class BatchWorker:
    """Scores batches with one model."""

    def __init__(self, loaded: LoadedModel, maker: ContextMaker, settings: EvalSettings) -> None:
        self._loaded = loaded
        self._maker = maker
        self._settings = settings

    def __call__(self, some: Sequence[Batch]) -> list[BatchResult]:
        """Return the rows of each batch."""
        results = []
        for batch in some:
            before = self._tokens()
            prepared = prepare(batch, self._maker, self._loaded)
            rows = [as_row(scored) for scored in score_rows(prepared, self._loaded, self._settings)]
            after = self._tokens()
            read = {name: count - before.get(name, 0) for name, count in after.items()}
            results.append(BatchResult(rows=rows, tokens=read if self._loaded.tokens else None))
        return results

    def _tokens(self) -> dict[str, int]:
        return dict(self._loaded.tokens()) if self._loaded.tokens else {}


def as_loaded(model: Model, settings: ModelSettings, engine: Engine | None = None) -> LoadedModel:
    """Return the model with what a run must know about it; where workers load it, without the model itself."""
    if engine is None or not engine.loads_in_workers:
        if isinstance(model, LoadedModel):
            return model
        return load_ref(read_ref(model), settings) if isinstance(model, str) else wrap(model)
    if isinstance(model, LoadedModel) and isinstance(model.model, RemoteModelRef):
        return model
    if not isinstance(model, str):
        raise UsageError(
            "Workers load a model by its spec, and this one is an object in Python. Use the local engine."
        )
    model = read_ref(model).text
    settings = replace(settings, cache=settings.cache and settings.cache.absolute())
    stage = Stage(name=f"loading {model}", make_worker=partial(_describe_in_worker, model, settings))
    ((_, loaded),) = engine.run(stage, [WorkItem(id=model, payload=None)])
    return loaded


def _describe_in_worker(spec: str, settings: ModelSettings) -> Callable[[Sequence[None]], list[LoadedModel]]:
    """Load a model in a worker, to say what it is."""
    loaded = detach(load_reward_model(spec, settings), settings)
    return lambda asked: [loaded for _ in asked]


@dataclass(frozen=True, kw_only=True)
class ScoreInWorker:
    """Builds in a worker what answers steps: the model by its spec, and the contexts."""

    described: LoadedModel
    remote: RemoteModelRef
    settings: EvalSettings
    out: Path | None
    host: str  # of the process that writes the run
    labels: Labels | None = None

    def __call__(self) -> BatchWorker:
        model_settings, out = self.remote.settings, self.out
        if platform.node() != self.host:
            # Two machines must not write one SQLite file: here the replies are kept under this machine's name.
            out = out and out / "cache" / platform.node()
            cache = model_settings.cache
            model_settings = replace(model_settings, cache=cache and cache.parent / platform.node() / cache.name)
        loaded = load_reward_model(self.remote.spec, model_settings)
        for fact in ("identity", "template_hash", "items_per_step"):
            here, there = getattr(loaded, fact), getattr(self.described, fact)
            if here != there:
                raise UsageError(
                    f"{loaded.spec} is another model on {platform.node()}: its {fact} is {here}, but the run began "
                    f"with {there}. Copy one model to all nodes."
                )
        return BatchWorker(loaded, context_maker(self.settings, out, self.labels), self.settings)


def stage_of(
    loaded: LoadedModel, maker: ContextMaker, settings: EvalSettings, out: Path | None, labels: Labels | None
) -> Stage[Batch, BatchResult]:
    """Return what the engine runs: with a model that is loaded here, or with one that each worker loads."""
    if isinstance(loaded.model, RemoteModelRef):
        make_worker: Callable[[], BatchWorker] = ScoreInWorker(
            described=loaded,
            remote=loaded.model,
            settings=settings,
            out=out and out.absolute(),
            host=platform.node(),
            labels=labels,
        )
    else:
        make_worker = partial(BatchWorker, loaded, maker, settings)
    return Stage(name=loaded.spec, make_worker=make_worker)
