"""Does the verdict depend on who is asking? The same items under two probes, always compared item by item."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from prbench.errors import UsageError
from prbench.metrics.accuracy import accuracy
from prbench.metrics.estimate import ratio_draws, ratio_estimates
from prbench.schema import POINTS, Estimate, Probe, RatedRow, Row, Verdict

AnyRow = TypeVar("AnyRow", Row, RatedRow)
DOSE_EDGES = (0, 1, 3, 5, 10, 25, 50, 100)
MARGIN_TOLERANCE = 0.01  # of the spread of the margins: below that, a margin has not moved


def pair_probes(rows: Sequence[Row], first: Probe, second: Probe) -> list[tuple[Row, Row]]:
    """Return the rows of the items that have both probes, in the order of their ids."""
    one, other = by_id(rows, first), by_id(rows, second)
    return [(one[item], other[item]) for item in sorted(one.keys() & other.keys())]


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


def personalization_gain(rows: Sequence[Row], *, seed: int = 0) -> Estimate | None:
    """Headline accuracy with the user's context minus without any, over items that have both probes.

    A tie is half a point and an unreadable verdict none, on both sides. `None` when no item has both probes.
    """
    pairs = pair_probes(rows, Probe.OWN, Probe.NONE)
    if not pairs:
        return None
    points = [[POINTS[own.verdict], POINTS[none.verdict]] for own, none in pairs]
    owners = [own.user_id for own, _ in pairs]
    return ratio_draws(points, np.ones((len(pairs), 2)), owners, seed=seed).estimate(0, minus=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Swap:
    """What happens when the model is told about somebody else."""

    own: Estimate
    swapped: Estimate
    gap: Estimate  # own minus swapped; 0 for a model that ignores the user
    flip_rate: Estimate | None  # `None` when no item is readable under both probes


def swap(rows: Sequence[Row], *, seed: int = 0) -> Swap | None:
    """Accuracy with the own and with another user's context, over items that have both probes; `None` when none has.

    Own and swapped count ties as half and unreadable verdicts as wrong. The flip rate is the share of verdicts that
    change (to or from a tie included) among the items readable under both probes: a lost reply is not a change of
    mind.
    """
    pairs = pair_probes(rows, Probe.OWN, Probe.SWAP)
    if not pairs:
        return None
    tops, bottoms = [], []
    for own, other in pairs:
        readable = float(_both_readable(own, other))
        changed = float(own.verdict is not other.verdict)
        tops.append([POINTS[own.verdict], POINTS[other.verdict], readable * changed])
        bottoms.append([1.0, 1.0, readable])
    draws = ratio_draws(tops, bottoms, [own.user_id for own, _ in pairs], seed=seed)
    return Swap(
        own=draws.estimate(0),
        swapped=draws.estimate(1),
        gap=draws.estimate(0, minus=1),
        flip_rate=draws.estimate(2) if draws.counts[2] else None,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class MajoritySplit:
    """Accuracy where this user wants what most users want, and where not; `None` where no pair is of that kind."""

    minority: Estimate | None
    majority: Estimate | None


def majority_split(rows: Sequence[Row], *, probe: Probe = Probe.OWN, seed: int = 0) -> MajoritySplit | None:
    """Headline accuracy of the rows of `probe`, apart for pairs on which this user sides with the minority or not.

    Known facts come first: `row.groups["majority"]`, and then pairs without it are left out. Where no row has it, the
    model's own `none` probe stands for the population: wrong means minority, right means majority, and items on which
    it ties or cannot be read are left out. `None` where that cannot be told: no `none` probe, or it is the `none`
    probe that is measured.
    """
    measured = by_id(rows, probe)
    if not measured:
        return None
    sides, _ = majority_sides(measured, by_id(rows, Probe.NONE))
    if not sides:
        return None
    items = sorted(measured)
    member = [[float(sides[item] is False), float(sides[item] is True)] for item in items]
    points = [[POINTS[measured[item].verdict]] for item in items]
    owners = [measured[item].user_id for item in items]
    draws = ratio_draws(np.array(points) * np.array(member), member, owners, seed=seed)
    minority, majority = (draws.estimate(column) if draws.counts[column] else None for column in (0, 1))
    return MajoritySplit(minority=minority, majority=majority)


def majority_sides(measured: Mapping[str, Row], alone: Mapping[str, Row]) -> tuple[Mapping[str, bool | None], bool]:
    """Return by item whether its user sides with the majority, and whether the model's own verdicts had to tell.

    `alone` has the rows of the `none` probe, by item; see `majority_split`. Empty where nothing tells.
    """
    facts = {item: row.groups.get("majority") for item, row in measured.items()}
    if any(isinstance(fact, bool) for fact in facts.values()):
        return {item: fact if isinstance(fact, bool) else None for item, fact in facts.items()}, False
    verdicts = {item: row.verdict for item, row in alone.items()}
    # Where the context never changes the verdict, right and wrong follow from how the groups were made.
    if all(verdicts.get(item, row.verdict) is row.verdict for item, row in measured.items()):
        return {}, True
    known = {Verdict.CHOSEN: True, Verdict.REJECTED: False}
    return {item: known.get(verdicts[item]) if item in verdicts else None for item in measured}, True


def profile_sensitivity(rows: Sequence[Row], *, seed: int = 0) -> Estimate | None:
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
    return ratio_estimates(moved.astype(float), np.ones(len(moved)), owners, seed=seed)[0]


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


def dose_response(rows: Sequence[Row], *, seed: int = 0) -> list[Dose]:
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
            doses.append(Dose(low=low, high=high, accuracy=accuracy(inside, seed=seed)))
    return doses


def own_none_agreement(rows: Sequence[Row], *, seed: int = 0) -> Estimate | None:
    """Share of items with the same verdict with and without the user's context, among those readable under both.

    Near 1: the model gives everybody the average user's answer. `None` when no item is readable under both probes.
    """
    pairs = [pair for pair in pair_probes(rows, Probe.OWN, Probe.NONE) if _both_readable(*pair)]
    if not pairs:
        return None
    same = [float(own.verdict is none.verdict) for own, none in pairs]
    return ratio_estimates(same, np.ones(len(pairs)), [own.user_id for own, _ in pairs], seed=seed)[0]


def _both_readable(first: Row, second: Row) -> bool:
    return Verdict.UNREADABLE not in (first.verdict, second.verdict)
