"""How a run does on every slice, against the rest of the items, and beside other runs."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from prbench.insight.diagnose.fields import Field
from prbench.metrics.compare import ALPHA, holm, mcnemar_p
from prbench.metrics.estimate import FloatArray, RatioDraws, ratio_draws
from prbench.schema import POINTS, Estimate, Row

FEWEST_ITEMS, FEWEST_USERS = 20, 10  # of a slice and of the rest: with fewer, no test is made
COLUMNS_AT_A_TIME = 64  # ratios resampled together, which bounds the memory

Members = npt.NDArray[np.bool_]  # of the items, which are in the slice


class Finding(StrEnum):
    """What a slice shows about a run."""

    WEAKER = "weaker"
    STRONGER = "stronger"
    ALIKE = "no difference shown"
    TOO_SMALL = "too small"
    NOT_TESTED = "not tested"


@dataclass(frozen=True, kw_only=True)
class Test:
    """A difference in accuracy; `holm_p` is adjusted over all slices and runs that were tested together."""

    difference: Estimate
    p_value: float
    holm_p: float

    @property
    def is_shown(self) -> bool:
        """True if the difference stands after the correction."""
        return self.holm_p < ALPHA


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One run on one slice."""

    accuracy: Estimate
    against_rest: Test | None  # slice minus all other items; `None` where the slice is too small or not tested
    against_first: Test | None  # this run minus the first one, on the slice; `None` for the first run
    by_outcome: bool = False  # the slice is made of verdicts, so no test of verdicts on it means anything

    @property
    def finding(self) -> Finding:
        """Whether this run is worse here than elsewhere."""
        if self.by_outcome:
            return Finding.NOT_TESTED
        if self.against_rest is None:
            return Finding.TOO_SMALL
        if not self.against_rest.is_shown:
            return Finding.ALIKE
        return Finding.WEAKER if self.against_rest.difference.value < 0 else Finding.STRONGER

    @property
    def extra_errors(self) -> float:
        """How many errors there would be fewer if the slice went as well as the rest."""
        if self.against_rest is None:
            return 0.0
        return -self.against_rest.difference.value * self.accuracy.n


@dataclass(frozen=True, kw_only=True)
class Slice:
    """Some of the items, and how every run does on them."""

    field: str
    value: str
    items: tuple[int, ...]  # their places among all items
    users: int
    disagreement: float | None  # share of items on which the runs' verdicts differ; `None` for one run
    cells: tuple[Cell, ...]

    @property
    def name(self) -> str:
        """As `--slice` takes it."""
        return f"{self.field}={self.value}"


def measure(runs: Sequence[Sequence[Row]], fields: Sequence[Field], *, seed: int = 0) -> list[Slice]:
    """Return every slice of every field, with the tests adjusted by Holm; slices by outcome get none."""
    points = np.array([[POINTS[row.verdict] for row in rows] for rows in runs])  # (runs, items)
    users = [row.user_id for row in runs[0]]
    differ = _differ(runs)
    cut = [(field, value) for field in fields for value in field.order]
    at_a_time = max(1, COLUMNS_AT_A_TIME // (2 * len(runs)))
    found: list[Slice] = []
    for start in range(0, len(cut), at_a_time):
        block = cut[start : start + at_a_time]
        members = np.array([[value in each for each in field.values] for field, value in block])
        draws = _draws(points, members, users, seed)
        for place, (field, value) in enumerate(block):
            columns = 2 * len(runs) * place
            if field.by_outcome:
                cells = tuple(_untested(draws, columns, len(runs)))
            else:
                cells = tuple(_cells(draws, columns, points, members[place], users))
            found.append(_slice(field.name, value, members[place], users, differ, cells))
    return _adjusted(found)


def _draws(points: FloatArray, members: Members, users: Sequence[str], seed: int) -> RatioDraws:
    """Return, for every slice, each run's accuracy in it and then each run's accuracy outside, on the same draws."""
    tops, bottoms = [], []
    for member in members:
        for side in (member, ~member):
            tops += [points[run] * side for run in range(len(points))]
            bottoms += [side.astype(np.float64)] * len(points)
    return ratio_draws(np.stack(tops, axis=1), np.stack(bottoms, axis=1), users, seed=seed)


def _slice(
    field: str, value: str, member: Members, users: Sequence[str], differ: FloatArray, cells: tuple[Cell, ...]
) -> Slice:
    places = np.flatnonzero(member).tolist()
    return Slice(
        field=field,
        value=value,
        items=tuple(places),
        users=len({users[place] for place in places}),
        disagreement=float(differ[places].mean()) if len(cells) > 1 else None,
        cells=cells,
    )


def _cells(draws: RatioDraws, first: int, points: FloatArray, member: Members, users: Sequence[str]) -> Iterator[Cell]:
    runs = len(points)
    large = _is_large(member, users)
    can_test = large and _is_large(~member, users)
    for run in range(runs):
        inside, outside = first + run, first + runs + run
        rest = paired = None
        if can_test:
            rows_p = _fisher(points[run][member], points[run][~member])
            rest = _test(draws, inside, outside, rows_p)
        if large and run:
            better, worse = points[run][member], points[0][member]
            rows_p = mcnemar_p(int((better > worse).sum()), int((better < worse).sum()))
            paired = _test(draws, inside, first, rows_p)
        yield Cell(accuracy=draws.estimate(inside), against_rest=rest, against_first=paired)


def _untested(draws: RatioDraws, first: int, runs: int) -> Iterator[Cell]:
    for run in range(runs):
        yield Cell(accuracy=draws.estimate(first + run), against_rest=None, against_first=None, by_outcome=True)


def _is_large(member: Members, users: Sequence[str]) -> bool:
    places = np.flatnonzero(member).tolist()
    return len(places) >= FEWEST_ITEMS and len({users[place] for place in places}) >= FEWEST_USERS


def _test(draws: RatioDraws, one: int, other: int, rows_p: float) -> Test:
    """Test a difference; as on a board, it counts only if both the items and the users show it."""
    p_value = max(rows_p, draws.p_value(one, minus=other) or 0.0)
    return Test(difference=draws.estimate(one, minus=other), p_value=p_value, holm_p=p_value)


def _fisher(inside: FloatArray, outside: FloatArray) -> float:
    """Return Fisher's exact p-value; a tie is not right here, so that all numbers are whole."""
    from scipy.stats import fisher_exact

    table = [[int((side == 1).sum()), int((side < 1).sum())] for side in (inside, outside)]
    return float(fisher_exact(table).pvalue)


def _differ(runs: Sequence[Sequence[Row]]) -> FloatArray:
    return np.array([float(len({row.verdict for row in same}) > 1) for same in zip(*runs, strict=True)])


def _adjusted(slices: Sequence[Slice]) -> list[Slice]:
    """Adjust the p-values: all comparisons with the rest are one family, all between runs another."""
    rest = iter(holm([cell.against_rest.p_value for each in slices for cell in each.cells if cell.against_rest]))
    first = iter(holm([cell.against_first.p_value for each in slices for cell in each.cells if cell.against_first]))
    return [
        replace(
            each,
            cells=tuple(
                replace(
                    cell,
                    against_rest=cell.against_rest and replace(cell.against_rest, holm_p=next(rest)),
                    against_first=cell.against_first and replace(cell.against_first, holm_p=next(first)),
                )
                for cell in each.cells
            ),
        )
        for each in slices
    ]
