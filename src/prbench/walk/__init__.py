"""The walk: rows in, verdicts out, step by step. Nothing here grows with the length of the texts."""

from collections.abc import Callable, Iterator
from collections.abc import Set as AbstractSet
from itertools import islice

from prbench.context import ContextMaker
from prbench.data import ExampleStore
from prbench.reward_models.base import Loaded
from prbench.schema import RatedRow, Row
from prbench.walk.answer import answer
from prbench.walk.ask import ask
from prbench.walk.settings import PROBES, EvalSettings

__all__ = ["PROBES", "EvalSettings", "Progress", "walk"]

Progress = Callable[[int, int], None]  # items done, items in all


def walk(
    store: ExampleStore,
    loaded: Loaded,
    maker: ContextMaker,
    settings: EvalSettings,
    *,
    done: AbstractSet[tuple[str, str]] = frozenset(),
    progress: Progress | None = None,
) -> Iterator[list[Row | RatedRow]]:
    """Yield the rows of one step after the other. Steps are cut by position, so a resumed run cuts them alike."""
    positions = iter(range(len(store)))
    seen = 0
    while step := list(islice(positions, loaded.items_per_step)):
        asked = ask(store, step, loaded, maker, settings, done)
        if asked:
            yield answer(asked, loaded, settings)
        seen += len(step)
        if progress:
            progress(seen, len(store))
