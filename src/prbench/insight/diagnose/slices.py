"""By what a set can be cut into slices, and how a run does on every slice, against the rest, and beside other runs.

A slice is cut by facts of rows, users and texts, whatever a dataset offers.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from prbench.errors import UsageError
from prbench.insight.diagnose.run_table import RunTable
from prbench.metrics.compare import ALPHA, holm, mcnemar_p
from prbench.metrics.estimate import ClusteredRatios, FloatArray, clustered_ratios
from prbench.metrics.personal import DOSE_EDGES
from prbench.schema import POINTS, Estimate, Example, Json, Row, Verdict

MOST_VALUES = 40  # of a field that is taken without being asked for: beyond that it names things, such as pairs
MOST_NUMBERS = 8  # different numbers that stay as they are; more are put into quarters
LONGEST_VALUE = 60  # characters of one member of a list that may name a slice
MINORITY = "minority"  # the field that says on which side the chosen response is, and so tells the label
IN_MINORITY: Mapping[bool | None, str] = {
    True: "no",
    False: "yes",
}  # by whether the pair is known to side with the majority
IMPERSONAL = "without a profile"  # the field that says how the first run answers when it knows nobody
IMPERSONAL_ANSWERS = {Verdict.CHOSEN: "right", Verdict.REJECTED: "wrong"}

FEWEST_ITEMS, FEWEST_USERS = 20, 10  # of a slice and of the rest: with fewer, no test is made
COLUMNS_AT_A_TIME = 64  # ratios estimated together, which bounds the memory

Members = npt.NDArray[np.bool_]  # of the items, which are in the slice
Values = Sequence[tuple[str, ...]]  # per item the slices it is in: none, one, or several


@dataclass(frozen=True, kw_only=True)
class Field:
    """One way to cut the items into slices."""

    name: str
    values: Values
    order: tuple[str, ...]  # the slices as they are shown
    by_outcome: bool = False  # made of a run's own verdicts, so that a difference follows from how it was made


def find_fields(run_table: RunTable, wanted: Sequence[str] = ()) -> list[Field]:
    """Return the fields to cut by: those that were asked for, else all that have at least two sensible values."""
    found = {field.name: field for field in _all_fields(run_table)}
    for name in wanted:
        if name not in found:
            known = ", ".join(f"'{one}'" if " " in one else one for one in found) or "none"
            raise UsageError(f"--by {name}: the items have no such field. Known here: {known}.")
    if wanted:
        return [found[name] for name in dict.fromkeys(wanted)]
    return [field for field in found.values() if 1 < len(field.order) <= MOST_VALUES]


def _all_fields(run_table: RunTable) -> Iterable[Field]:
    rows = run_table.items
    yield _by_word("category", [row.category for row in rows])
    names = sorted({name for row in rows for name in row.groups} - {"majority", "category"})
    for name in names:
        facts = [row.groups.get(name) for row in rows]
        numbers = [fact for fact in facts if isinstance(fact, int | float) and not isinstance(fact, bool)]
        if numbers and len(numbers) == sum(fact is not None for fact in facts):
            yield _by_number(name, facts)
        else:
            yield _by_word(name, [None if fact is None else str(fact) for fact in facts])
    yield from _of_lists(rows, run_table.examples)
    if any(row.groups.get("majority") in IN_MINORITY for row in rows):
        yield _by_word(MINORITY, [IN_MINORITY.get(row.groups.get("majority")) for row in rows])
    elif run_table.alone[0]:
        alone = [run_table.alone[0].get(row.id) for row in rows]
        yield replace(
            _by_word(IMPERSONAL, [IMPERSONAL_ANSWERS.get(row.verdict) if row else None for row in alone]),
            by_outcome=True,
        )
    seen = _by_dose("posts seen", [row.posts_used for row in rows])
    yield seen
    if run_table.examples:
        examples = [run_table.examples[row.id] for row in rows]
        posts = _by_dose("posts", [len(one.user.profile) for one in examples])
        if posts.values != seen.values:
            yield posts
        yield _by_number("words of the question", [len(one.question.split()) for one in examples])


def _of_lists(rows: Sequence[Row], examples: Mapping[str, Example]) -> Iterable[Field]:
    """Yield facts that are lists of short words, so that an item is in several slices; `gold` gives its traits."""
    if not examples:
        return
    metas = [examples[row.id].meta for row in rows]
    for name in sorted({name for meta in metas for name, value in meta.items() if _is_list_of_words(value)}):
        facts: list[Json] = [meta.get(name) for meta in metas]
        words = [tuple(sorted(set(fact))) if _is_list_of_words(fact) else () for fact in facts]
        yield _field(name, words, sorted)
    traits = [_traits(meta.get("gold")) for meta in metas]
    if any(traits):
        yield _field("trait", traits, sorted)


def _traits(gold: Json) -> tuple[str, ...]:
    """Return the traits in which the two responses differ, on either side."""
    if not isinstance(gold, dict):
        return ()
    sides = [side for side in gold.values() if _is_list_of_words(side)]
    return tuple(sorted({trait for side in sides for trait in side}))


def _by_word(name: str, values: Sequence[str | None]) -> Field:
    return _field(name, [() if value is None else (value or "(none)",) for value in values], sorted)


def _by_dose(name: str, counts: Sequence[int]) -> Field:
    """Cut a number of posts at the edges that the dose-response figures have."""
    if len(set(counts)) <= MOST_NUMBERS:
        return _by_number(name, counts)
    ends = [*(edge - 1 for edge in DOSE_EDGES[1:]), None]
    labels = [f"{low}+" if high is None else _span(low, high) for low, high in zip(DOSE_EDGES, ends, strict=True)]
    places = np.searchsorted(DOSE_EDGES, counts, side="right") - 1
    return _field(name, [(labels[place],) for place in places.tolist()], lambda _: labels)


def _by_number(name: str, numbers: Sequence[Json]) -> Field:
    """Keep few different numbers as they are, and put more into quarters of the items."""
    known = sorted({number for number in numbers if number is not None})
    if len(known) <= MOST_NUMBERS:
        labels = {number: f"{number:g}" for number in known}
    else:
        # Four parts with about as many items each; equal numbers stay together.
        counts, before = Counter(number for number in numbers if number is not None), 0
        parts: list[list[float]] = [[], [], [], []]
        for number in known:
            middle = before + counts[number] / 2
            parts[min(3, math.floor(4 * middle / counts.total()))].append(number)
            before += counts[number]
        labels = {number: _span(part[0], part[-1]) for part in parts for number in part}
    order = list(dict.fromkeys(labels[number] for number in known))
    return _field(name, [() if number is None else (labels[number],) for number in numbers], lambda _: order)


def _span(low: float, high: float) -> str:
    return f"{low:g}" if low == high else f"{low:g}–{high:g}"


def _field(name: str, values: Values, arrange: Callable[[Iterable[str]], Sequence[str]]) -> Field:
    found = {value for each in values for value in each}
    return Field(name=name, values=values, order=tuple(value for value in arrange(found) if value in found))


def _is_list_of_words(value: Json) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(one, str) and len(one) <= LONGEST_VALUE for one in value)


class SliceFinding(StrEnum):
    """What a slice shows about a run."""

    WEAKER = "weaker"
    STRONGER = "stronger"
    ALIKE = "no difference shown"
    TOO_SMALL = "too small"
    NOT_TESTED = "not tested"


@dataclass(frozen=True, kw_only=True)
class AccuracyTest:
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
    against_rest: AccuracyTest | None  # slice minus all other items; `None` where the slice is too small or not tested
    against_first: AccuracyTest | None  # this run minus the first one, on the slice; `None` for the first run
    by_outcome: bool = False  # the slice is made of verdicts, so no test of verdicts on it means anything

    @property
    def finding(self) -> SliceFinding:
        """Whether this run is worse here than elsewhere."""
        if self.by_outcome:
            return SliceFinding.NOT_TESTED
        if self.against_rest is None:
            return SliceFinding.TOO_SMALL
        if not self.against_rest.is_shown:
            return SliceFinding.ALIKE
        return SliceFinding.WEAKER if self.against_rest.difference.value < 0 else SliceFinding.STRONGER

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


def measure(runs: Sequence[Sequence[Row]], fields: Sequence[Field]) -> list[Slice]:
    """Return every slice of every field, with the tests adjusted by Holm; slices by outcome get none."""
    points = np.array([[POINTS[row.verdict] for row in rows] for rows in runs])  # (runs, items)
    users = [row.user_id for row in runs[0]]
    differ = np.array([float(len({row.verdict for row in same}) > 1) for same in zip(*runs, strict=True)])
    cut = [(field, value) for field in fields for value in field.order]
    at_a_time = max(1, COLUMNS_AT_A_TIME // (2 * len(runs)))
    found: list[Slice] = []
    for start in range(0, len(cut), at_a_time):
        block = cut[start : start + at_a_time]
        members = np.array([[value in each for each in field.values] for field, value in block])
        # For every slice, each run's accuracy in it and then each run's accuracy outside.
        sides = [side for member in members for side in (member, ~member)]
        tops = [points[run] * side for side in sides for run in range(len(runs))]
        bottoms = [side.astype(np.float64) for side in sides for _ in runs]
        draws = clustered_ratios(np.stack(tops, axis=1), np.stack(bottoms, axis=1), users)
        for place, (field, value) in enumerate(block):
            items = np.flatnonzero(members[place]).tolist()
            cells = _cells(draws, 2 * len(runs) * place, points, members[place], users, field.by_outcome)
            found.append(
                Slice(
                    field=field.name,
                    value=value,
                    items=tuple(items),
                    users=len({users[item] for item in items}),
                    disagreement=float(differ[items].mean()) if len(runs) > 1 else None,
                    cells=tuple(cells),
                )
            )
    rest = iter(holm([cell.against_rest.p_value for each in found for cell in each.cells if cell.against_rest]))
    first = iter(holm([cell.against_first.p_value for each in found for cell in each.cells if cell.against_first]))
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
        for each in found
    ]


def _cells(
    draws: ClusteredRatios, first: int, points: FloatArray, member: Members, users: Sequence[str], by_outcome: bool
) -> Iterator[Cell]:
    from scipy.stats import fisher_exact

    runs = len(points)
    large = not by_outcome and _is_large(member, users)
    can_test = large and _is_large(~member, users)
    for run in range(runs):
        inside, outside = first + run, first + runs + run
        rest = paired = None
        if can_test:
            sides = (points[run][member], points[run][~member])
            table = [[int((side == 1).sum()), int((side < 1).sum())] for side in sides]  # a tie is not right here
            rest = _test(draws, inside, outside, float(fisher_exact(table).pvalue))
        if large and run:
            better, worse = points[run][member], points[0][member]
            items_p = mcnemar_p(int((better > worse).sum()), int((better < worse).sum()))
            paired = _test(draws, inside, first, items_p)
        accuracy = draws.estimate(inside)
        yield Cell(accuracy=accuracy, against_rest=rest, against_first=paired, by_outcome=by_outcome)


def _is_large(member: Members, users: Sequence[str]) -> bool:
    places = np.flatnonzero(member).tolist()
    return len(places) >= FEWEST_ITEMS and len({users[place] for place in places}) >= FEWEST_USERS


def _test(draws: ClusteredRatios, one: int, other: int, items_p: float) -> AccuracyTest:
    """Test a difference; as on a board, it counts only if both the items and the users show it."""
    p_value = max(items_p, draws.p_value(one, minus=other) or 0.0)
    return AccuracyTest(difference=draws.estimate(one, minus=other), p_value=p_value, holm_p=p_value)
