"""The walk: rows in, verdicts out, step by step. Nothing here grows with the length of the texts."""

from collections.abc import Callable, Iterator
from collections.abc import Set as AbstractSet

from prbench.context import ContextMaker
from prbench.data import ExampleStore
from prbench.engine import Engine, LocalEngine, Stage, WorkItem
from prbench.reward_models.base import Loaded
from prbench.schema import RatedRow, Row
from prbench.walk.settings import PROBES, EvalSettings
from prbench.walk.step import Answered, Step, StepWorker, steps

__all__ = ["PROBES", "Answered", "EvalSettings", "Progress", "Step", "StepWorker", "walk", "walk_on"]

Progress = Callable[[int, int], None]  # items done, items in all


def walk(
    store: ExampleStore,
    loaded: Loaded,
    maker: ContextMaker,
    settings: EvalSettings,
    *,
    progress: Progress | None = None,
) -> Iterator[list[Row | RatedRow]]:
    """Yield the rows of one step after the other, with a model that is loaded here."""
    stage = Stage(name=loaded.spec, make_worker=lambda: StepWorker(loaded, maker, settings))
    work = walk_on(LocalEngine(), stage, store, loaded.items_per_step, settings, progress=progress)
    return (list(answered.rows) for answered in work)


def walk_on(
    engine: Engine,
    stage: Stage[Step, Answered],
    store: ExampleStore,
    items_per_step: int,
    settings: EvalSettings,
    *,
    done: AbstractSet[tuple[str, str]] = frozenset(),
    progress: Progress | None = None,
) -> Iterator[Answered]:
    """Yield what each step gives, in the order in which the engine delivers them."""
    seen = 0
    sizes: dict[str, int] = {}

    def work() -> Iterator[WorkItem[Step]]:
        nonlocal seen
        for step in steps(store, items_per_step, settings, done):
            if step.wanted:
                sizes[str(step.number)] = step.items
                yield WorkItem(id=str(step.number), payload=step)
            else:
                seen += step.items

    for number, answered in engine.run(stage, work()):
        yield answered
        seen += sizes.pop(number)
        if progress:
            progress(seen, len(store))
    if progress:
        progress(len(store), len(store))
