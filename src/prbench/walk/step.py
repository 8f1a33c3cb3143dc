"""One step of the walk: items that are scored, then written, together. It is the same wherever it runs."""

from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from itertools import islice

from prbench.context import ContextMaker
from prbench.data import ExampleStore
from prbench.reward_models.base import Loaded
from prbench.schema import RatedRow, Row
from prbench.walk.answer import answer
from prbench.walk.ask import Wanted, still_wanted, with_contexts
from prbench.walk.settings import EvalSettings


@dataclass(frozen=True, kw_only=True)
class Step:
    """What a worker needs of the data. It holds whole examples, so that a worker needs no access to the file."""

    number: int
    items: int  # also those that are finished already
    wanted: tuple[Wanted, ...]


@dataclass(frozen=True, kw_only=True)
class Answered:
    """What a step gives."""

    rows: Sequence[Row | RatedRow]
    tokens: Mapping[str, int] | None  # read for these rows; `None`: not counted


def steps(
    store: ExampleStore, items_per_step: int, settings: EvalSettings, done: AbstractSet[tuple[str, str]]
) -> Iterator[Step]:
    """Yield every step. They are cut by position, so a resumed run cuts them alike."""
    positions = iter(range(len(store)))
    number = 0
    while some := list(islice(positions, items_per_step)):
        yield Step(number=number, items=len(some), wanted=still_wanted(store, some, settings, done))
        number += 1


class StepWorker:
    """Answers steps with one model."""

    def __init__(self, loaded: Loaded, maker: ContextMaker, settings: EvalSettings) -> None:
        self._loaded = loaded
        self._maker = maker
        self._settings = settings

    def __call__(self, some: Sequence[Step]) -> list[Answered]:
        """Return the rows of each step."""
        return [self._answer(step) for step in some]

    def _answer(self, step: Step) -> Answered:
        before = self._tokens()
        rows = answer(with_contexts(step.wanted, self._loaded, self._maker), self._loaded, self._settings)
        after = self._tokens()
        if before is None or after is None:
            return Answered(rows=rows, tokens=None)
        return Answered(rows=rows, tokens={name: count - before.get(name, 0) for name, count in after.items()})

    def _tokens(self) -> dict[str, int] | None:
        return dict(self._loaded.tokens()) if self._loaded.tokens else None
