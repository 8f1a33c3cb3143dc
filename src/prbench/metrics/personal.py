"""Does the verdict depend on who is asking? The same items under two probes, always compared item by item."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from prbench.errors import UsageError
from prbench.metrics.accuracy import accuracy
from prbench.metrics.estimate import USERS, ClusteredRatios, Over, clustered_ratios, questions_of, ratio_estimates
from prbench.schema import POINTS, Estimate, Probe, Problem, RatedRow, Row, Verdict

AnyRow = TypeVar("AnyRow", Row, RatedRow)
DOSE_EDGES = (0, 1, 3, 5, 10, 25, 50, 100)
MARGIN_TOLERANCE = 0.01  # of the spread of the margins: below that, a margin has not moved


def pair_probes(rows: Sequence[AnyRow], first: Probe, second: Probe) -> list[tuple[AnyRow, AnyRow]]:
    """Return the rows of the items that have both probes, in the order of their ids.

    An item of which nothing was recorded under one of them is left out: nobody knows what the model would have said.
    """
    one, other = _recorded(rows, first), _recorded(rows, second)
    return [(one[item], other[item]) for item in sorted(one.keys() & other.keys())]


def count_left_out(rows: Sequence[Row | RatedRow], first: Probe, second: Probe) -> int:
    """Return how many of the items that have both probes `pair_probes` leaves out."""
    one, other = ({row.id: row.problem for row in rows if row.probe is probe} for probe in (first, second))
    return sum(Problem.NOT_RECORDED in (one[item], other[item]) for item in one.keys() & other.keys())


def _recorded(rows: Sequence[AnyRow], probe: Probe) -> dict[str, AnyRow]:
    return {item: row for item, row in by_id(rows, probe).items() if row.problem is not Problem.NOT_RECORDED}


def by_id(rows: Sequence[AnyRow], probe: Probe) -> dict[str, AnyRow]:
    """Return the rows of one probe by item; an item may have one row under it."""
    found: dict[str, AnyRow] = {}
    for row in rows:
        if row.probe is not probe:
            continue
        if row.id in found:
            raise UsageError(f"Item {row.id!r} has two rows for probe {probe.value!r}. Give the rows of one run.")
        found[row.id] = row
    return found


def personalization_gain(rows: Sequence[Row], *, over: Over = USERS) -> Estimate | None:
    """Headline accuracy with the user's context minus without any, over items that have both probes.

    A tie is half a point and an unreadable verdict none, on both sides. `None` when no item has both probes.
    """
    pairs = pair_probes(rows, Probe.OWN, Probe.NONE)
    return _contrast(pairs, over).difference() if pairs else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Swap:
    """What happens when the model is told about somebody else."""

    own: Estimate
    swapped: Estimate
    gap: Estimate  # own minus swapped; 0 without an interval where no score moved
    flip_rate: Estimate | None  # `None` when no item is readable under both probes


def swap(rows: Sequence[Row], *, over: Over = USERS) -> Swap | None:
    """Accuracy with the own and with another user's context, over items that have both probes; `None` when none has.

    Own and swapped count ties as half and unreadable verdicts as wrong. The flip rate is the share of verdicts that
    change (to or from a tie included) among the items readable under both probes: a lost reply is not a change of
    mind.
    """
    pairs = pair_probes(rows, Probe.OWN, Probe.SWAP)
    if not pairs:
        return None
    contrast = _contrast(pairs, over)
    readable = contrast.ratios.counts[2] > 0
    return Swap(
        own=contrast.ratios.estimate(0),
        swapped=contrast.ratios.estimate(1),
        gap=contrast.difference(),
        flip_rate=contrast.ratios.estimate(2) if readable else None,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Contrast:
    """Accuracy under two probes of the same items, and the share of verdicts that change, as three ratios."""

    ratios: ClusteredRatios
    moved: bool  # did any score?

    def difference(self) -> Estimate:
        """Return the first accuracy minus the second one."""
        found = self.ratios.estimate(0, minus=1)
        # A model that gave every item the same scores twice ignores the context, for certain.
        return found if self.moved else replace(found, low=0.0, high=0.0)


def _contrast(pairs: Sequence[tuple[Row, Row]], over: Over) -> _Contrast:
    tops, bottoms = [], []
    for first, second in pairs:
        readable = float(_both_readable(first, second))
        changed = float(first.verdict is not second.verdict)
        tops.append([POINTS[first.verdict], POINTS[second.verdict], readable * changed])
        bottoms.append([1.0, 1.0, readable])
    measured = [first for first, _ in pairs]
    users = [row.user_id for row in measured]
    return _Contrast(
        ratios=clustered_ratios(tops, bottoms, users, questions=questions_of(measured, over)),
        moved=any(map(has_moved, *zip(*pairs, strict=True))),
    )


def has_moved(first: Row, second: Row) -> bool:
    """Tell whether a model answered an item differently under two probes; a judge's own words count."""
    if first.verdict is Verdict.UNREADABLE or second.verdict is Verdict.UNREADABLE:
        return True  # nothing is known, so nothing is certain
    scores = (first.score_chosen, first.score_rejected), (second.score_chosen, second.score_rejected)
    return first.verdict is not second.verdict or scores[0] != scores[1] or first.orders != second.orders


@dataclass(frozen=True, slots=True, kw_only=True)
class MajoritySplit:
    """Accuracy where this user wants what most users want, and where not; `None` where no pair is of that kind."""

    minority: Estimate | None
    majority: Estimate | None


def majority_split(rows: Sequence[Row], *, probe: Probe = Probe.OWN, over: Over = USERS) -> MajoritySplit | None:
    """Headline accuracy of the rows of `probe`, apart for pairs on which this user sides with the minority or not.

    That is a fact about people, `row.groups["majority"]`; pairs without it are left out. `None` where no pair has it:
    a model's own errors do not tell what most people want (see `impersonal_errors`).
    """
    measured = by_id(rows, probe)
    known = [(row, fact) for row in measured.values() if isinstance(fact := row.groups.get("majority"), bool)]
    if not known:
        return None
    member = np.array([[float(not fact), float(fact)] for _, fact in known])
    points = np.array([[POINTS[row.verdict]] for row, _ in known])
    asked = [row for row, _ in known]
    users = [row.user_id for row in asked]
    ratios = clustered_ratios(points * member, member, users, questions=questions_of(asked, over))
    minority, majority = (ratios.estimate(column) if ratios.counts[column] else None for column in (0, 1))
    return MajoritySplit(minority=minority, majority=majority)


@dataclass(frozen=True, slots=True, kw_only=True)
class ImpersonalErrors:
    """What knowing the user mends, on the pairs that the model gets wrong when it knows nobody."""

    own: Estimate
    swapped: Estimate
    gap: Estimate  # own minus swapped


def impersonal_errors(rows: Sequence[Row], *, over: Over = USERS) -> ImpersonalErrors | None:
    """Accuracy with the own and with another user's profile, on the pairs that the `none` probe gets wrong.

    Accuracy on pairs that were chosen for their errors rises by itself when anything changes, be it noise; so it says
    nothing alone. Another user's profile changes as much, and what is left over it is due to this user. `None` where
    no pair is wrong under `none`, or a probe is missing.
    """
    wrong = {item for item, row in by_id(rows, Probe.NONE).items() if row.verdict is Verdict.REJECTED}
    pairs = [pair for pair in pair_probes(rows, Probe.OWN, Probe.SWAP) if pair[0].id in wrong]
    if not pairs:
        return None
    contrast = _contrast(pairs, over)
    return ImpersonalErrors(
        own=contrast.ratios.estimate(0), swapped=contrast.ratios.estimate(1), gap=contrast.difference()
    )


def profile_sensitivity(rows: Sequence[Row]) -> Estimate | None:
    """Share of items whose margin moves when the own context is replaced by another user's.

    A margin is score(chosen) - score(rejected); it has moved when it changes by more than a hundredth of the standard
    deviation of the own margins, so that rounding noise does not count. A low share means that the profile is ignored.
    `None` for models without scores.
    """
    margins = [
        (one, two, own.user_id)
        for own, changed in pair_probes(rows, Probe.OWN, Probe.SWAP)
        if (one := margin(own)) is not None and (two := margin(changed)) is not None
    ]
    if not margins:
        return None
    own_margins = np.array([one for one, _, _ in margins])
    moved = np.abs(own_margins - [two for _, two, _ in margins]) > MARGIN_TOLERANCE * own_margins.std()
    owners = [user for _, _, user in margins]
    return ratio_estimates(moved.astype(float), np.ones(len(moved)), owners)[0]


def margin(row: Row) -> float | None:
    """Return score(chosen) - score(rejected), or `None` where a score is missing."""
    if row.score_chosen is None or row.score_rejected is None:
        return None
    difference = row.score_chosen - row.score_rejected
    return difference if math.isfinite(difference) else None  # two huge scores can be further apart than a float goes


@dataclass(frozen=True, slots=True, kw_only=True)
class Dose:
    """Accuracy of the items for which the model saw between `low` and `high` posts; `high` is `None` for no limit."""

    low: int
    high: int | None
    accuracy: Estimate


def dose_response(rows: Sequence[Row], *, over: Over = USERS) -> list[Dose]:
    """Headline accuracy by the number of posts (or planned aspects) that the model saw; empty buckets are left out.

    Users with long and short histories differ in other ways too: this is a description, not an effect; an effect needs
    the same items at several `--posts`.
    """
    measured = [row for row in rows if row.probe is Probe.OWN]
    doses = []
    for low, following in zip(DOSE_EDGES, [*DOSE_EDGES[1:], None], strict=True):
        inside = [row for row in measured if low <= row.posts_used < (math.inf if following is None else following)]
        if inside:
            high = None if following is None else following - 1
            doses.append(Dose(low=low, high=high, accuracy=accuracy(inside, over=over)))
    return doses


def own_none_agreement(rows: Sequence[Row]) -> Estimate | None:
    """Share of items with the same verdict with and without the user's context, among those readable under both.

    Near 1: the model gives everybody the average user's answer. `None` when no item is readable under both probes.
    """
    pairs = [pair for pair in pair_probes(rows, Probe.OWN, Probe.NONE) if _both_readable(*pair)]
    if not pairs:
        return None
    same = [float(own.verdict is none.verdict) for own, none in pairs]
    return ratio_estimates(same, np.ones(len(pairs)), [own.user_id for own, _ in pairs])[0]


def _both_readable(first: Row, second: Row) -> bool:
    return Verdict.UNREADABLE not in (first.verdict, second.verdict)
