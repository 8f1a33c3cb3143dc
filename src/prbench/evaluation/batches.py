"""Rows in, verdicts out, batch by batch. Nothing here grows with the length of the texts."""

from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from itertools import islice

from prbench.context import ContextMaker
from prbench.data import ExampleStore
from prbench.evaluation.engines import Engine, LocalEngine, Stage, WorkItem
from prbench.evaluation.items import PendingItem, pending_items, prepare
from prbench.evaluation.rows import as_row
from prbench.evaluation.score import score_rows
from prbench.evaluation.settings import EvalSettings
from prbench.reward_models.base import LoadedModel
from prbench.schema import Progress, RatedRow, Row


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Items that are scored, then written, together. It holds whole examples, so that a worker needs no file."""

    number: int
    items: int  # also those that are finished already
    pending: tuple[PendingItem, ...]


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
    progress: Progress | None = None,
) -> Iterator[BatchResult]:
    """Yield what each batch gives, in the order in which the engine delivers them."""
    seen = 0
    sizes: dict[str, int] = {}

    def work() -> Iterator[WorkItem[Batch]]:
        nonlocal seen
        for batch in _batches(store, items_per_batch, settings, done):
            if batch.pending:
                sizes[str(batch.number)] = batch.items
                yield WorkItem(id=str(batch.number), payload=batch)
            else:
                seen += batch.items

    for number, result in engine.run(stage, work()):
        yield result
        seen += sizes.pop(number)
        if progress:
            progress(seen, len(store))
    if progress:
        progress(len(store), len(store))


def _batches(
    store: ExampleStore, items_per_batch: int, settings: EvalSettings, done: AbstractSet[tuple[str, str]]
) -> Iterator[Batch]:
    """Yield every batch. They are cut by position, so a resumed run cuts them alike."""
    positions = iter(range(len(store)))
    number = 0
    while some := list(islice(positions, items_per_batch)):
        yield Batch(number=number, items=len(some), pending=pending_items(store, some, settings, done))
        number += 1


class BatchWorker:
    """Scores batches with one model."""

    def __init__(self, loaded: LoadedModel, maker: ContextMaker, settings: EvalSettings) -> None:
        self._loaded = loaded
        self._maker = maker
        self._settings = settings

    def __call__(self, some: Sequence[Batch]) -> list[BatchResult]:
        """Return the rows of each batch."""
        return [self._result(batch) for batch in some]

    def _result(self, batch: Batch) -> BatchResult:
        before = self._tokens()
        prepared = prepare(batch.pending, self._maker, self._loaded)
        rows = [as_row(scored) for scored in score_rows(prepared, self._loaded, self._settings)]
        after = self._tokens()
        if before is None or after is None:
            return BatchResult(rows=rows, tokens=None)
        return BatchResult(rows=rows, tokens={name: count - before.get(name, 0) for name, count in after.items()})

    def _tokens(self) -> dict[str, int] | None:
        return dict(self._loaded.tokens()) if self._loaded.tokens else None
