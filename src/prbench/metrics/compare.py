"""Which of several models is better, and what this many pairs can tell at all.

Every comparison is paired: two models on the same items under the same probe.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import median

import numpy as np

from prbench.errors import UsageError
from prbench.metrics.estimate import (
    USERS,
    ClusteredRatios,
    FloatArray,
    Over,
    Spread,
    clustered_ratios,
    independent_rows,
    questions_of,
)
from prbench.schema import POINTS, Estimate, Row

ALPHA = 0.05
POWER = 0.8
# What two models are taken to differ by where nothing was observed yet.
ASSUMED_DISCORDANCE = 0.2  # share of pairs on which they differ
ASSUMED_CORRELATION = 0.05  # of two pairs of one user
MIN_USERS = 5  # with fewer, p is above 0.05 whatever the difference: by signs, it is 2 ** -users at least (mid-p)


@dataclass(frozen=True, slots=True, kw_only=True)
class PairTest:
    """Two models on the same items. `difference` is first minus second in headline accuracy."""

    first: str
    second: str
    difference: Estimate
    first_better: int  # items on which the first earns more points
    second_better: int
    mcnemar_p: float  # exact; takes items as independent
    clustered_p: float | None  # by the signs of users, which also give the interval; `None` with a single user
    resolution: float | None  # true differences of at least this are found with 80 % probability

    @property
    def p_value(self) -> float:
        """The p-value over users; with a single user, that of McNemar's test."""
        return self.mcnemar_p if self.clustered_p is None else self.clustered_p

    @property
    def discordance(self) -> float:
        """Share of items on which the two models earn different points."""
        return (self.first_better + self.second_better) / self.difference.n


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """One line of a board. Two models that share a letter cannot be told apart; two that share none can."""

    name: str
    accuracy: Estimate
    letters: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaderboard:
    """Models ranked on the items that all of them have."""

    standings: tuple[Standing, ...]
    tests: tuple[PairTest, ...]
    holm_p: tuple[float, ...]  # adjusted over the whole board, in the order of `tests`
    n: int
    resolution: "DetectableDifference"


@dataclass(frozen=True, slots=True, kw_only=True)
class DetectableDifference:
    """The smallest true difference between two models that a set finds with 80 % probability at 5 %."""

    difference: float | None  # `None`: so few users show none
    pairs: int
    tests: int  # pairs of models whose differences told the variance (their median); 0: it is assumed, not seen

    @property
    def _of_pairs(self) -> str:
        return "one pair of models" if self.tests == 1 else f"median of {self.tests} pairs of models"

    @property
    def sentence(self) -> str:
        """What it says, in words."""
        known = (
            f"by the variance between the models of this board, clustered by users ({self._of_pairs})"
            if self.tests
            else f"assuming that two models differ on {100 * ASSUMED_DISCORDANCE:.0f} % of the pairs and that "
            f"pairs of one user correlate by {ASSUMED_CORRELATION}"
        )
        if self.difference is None:
            return f"Resolution: {self.pairs} pairs of these users cannot show any difference, {known}."
        return (
            f"Resolution: with {self.pairs} pairs, true differences of at least {100 * self.difference:.1f} points "
            f"are found with 80 % probability in a single comparison, {known}."
        )


def compare(
    first: Sequence[Row], second: Sequence[Row], *, names: tuple[str, str] = ("first", "second"), over: Over = USERS
) -> PairTest:
    """Test two models on the items that both have; a tie is half a point, an unreadable verdict none.

    McNemar's test (1947) knows only right and wrong. Here an item speaks for the model that earns more points on it
    (right over tie or wrong, tie over wrong), and items with equal points speak for neither: without ties that is
    McNemar's test, with ties it is the exact sign test.
    """
    ratios, points = _shared_ratios([first, second], over)
    return _test_pair(ratios, points, names, (0, 1))


def rank_board(runs: Mapping[str, Sequence[Row]], *, over: Over = USERS) -> Leaderboard:
    """Rank models by headline accuracy and give them letters.

    All pairs of models are tested on the items that all models share, and the p-values are adjusted by Holm over the
    whole board. Two models share a letter where that test does not tell them apart, and only there (compact letter
    display). Equal accuracies are ordered by name.
    """
    if not runs:
        raise UsageError("There is no run to rank. Give at least one run folder.")
    names = sorted(runs)
    ratios, points = _shared_ratios([runs[name] for name in names], over)
    pairs = list(combinations(range(len(names)), 2))
    tests = [_test_pair(ratios, points, (names[one], names[two]), (one, two)) for one, two in pairs]
    adjusted = holm([test.p_value for test in tests])
    ranked = sorted(range(len(names)), key=lambda column: (-ratios.values[column], names[column]))
    place = {column: position for position, column in enumerate(ranked)}
    apart = [(place[one], place[two]) for (one, two), p in zip(pairs, adjusted, strict=True) if p < ALPHA]
    letters = letters_of(len(names), apart)
    rows_of_users = np.bincount(ratios.owners).tolist()
    return Leaderboard(
        standings=tuple(
            Standing(name=names[column], accuracy=ratios.estimate(column), letters=letters[position])
            for position, column in enumerate(ranked)
        ),
        tests=tuple(tests),
        holm_p=tuple(adjusted),
        n=len(points),
        resolution=_observed_resolution(tests) or planned_resolution(rows_of_users),
    )


def letters_of(count: int, apart: Collection[tuple[int, int]]) -> list[str]:
    """Return the letters of `count` models, best first, of which these pairs can be told apart.

    Each letter is a largest set without such a pair, grown from the first two models that share none yet, so that two
    models share a letter exactly where they cannot be told apart (compact letter display: Piepho 2004).
    """
    split = {(min(pair), max(pair)) for pair in apart}
    groups: list[list[int]] = []
    for one in range(count):
        for other in range(one, count):  # with itself, too: a model may differ from all others
            if (one, other) in split or any(one in group and other in group for group in groups):
                continue
            grown = sorted({one, other})
            for third in range(count):
                if third not in grown and not any((min(third, each), max(third, each)) in split for each in grown):
                    grown.append(third)
            groups.append(sorted(grown))
    groups.sort()
    return ["".join(_letter(place) for place, group in enumerate(groups) if model in group) for model in range(count)]


def _letter(place: int) -> str:
    """Return the name of a group: a to z, then with a number behind it."""
    rounds, letter = divmod(place, 26)
    return chr(ord("a") + letter) + (str(rounds) if rounds else "")


def _shared_ratios(runs: Sequence[Sequence[Row]], over: Over) -> tuple[ClusteredRatios, FloatArray]:
    """Return the accuracies on the items that all runs have, and the points (items, models) behind them."""
    keyed = [{(row.probe, row.id): row for row in rows} for rows in runs]
    if any(len(by_item) < len(rows) for by_item, rows in zip(keyed, runs, strict=True)):
        raise UsageError("An item has two rows for the same probe in one run. Give the rows of one run at a time.")
    shared = sorted(set.intersection(*(set(rows) for rows in keyed)))
    if not shared:
        raise UsageError(
            "These runs have no item in common, so nothing can be compared. Evaluate them on the same data."
        )
    points = np.array([[POINTS[rows[item].verdict] for rows in keyed] for item in shared])
    rows = [keyed[0][item] for item in shared]
    users = [row.user_id for row in rows]
    return clustered_ratios(points, np.ones_like(points), users, questions=questions_of(rows, over)), points


def _test_pair(
    ratios: ClusteredRatios, points: FloatArray, names: tuple[str, str], columns: tuple[int, int]
) -> PairTest:
    first, second = columns
    first_better = int(np.sum(points[:, first] > points[:, second]))
    second_better = int(np.sum(points[:, first] < points[:, second]))
    can_reject = ratios.users[first] >= MIN_USERS
    return PairTest(
        first=names[0],
        second=names[1],
        difference=ratios.estimate(first, minus=second),
        first_better=first_better,
        second_better=second_better,
        mcnemar_p=mcnemar_p(first_better, second_better),
        clustered_p=ratios.p_value(first, minus=second),
        resolution=smallest_difference(ratios.spread(first, minus=second)) if can_reject else None,
    )


def mcnemar_p(first_better: int, second_better: int) -> float:
    """Return the exact two-sided p-value of McNemar's test; 1 when no item speaks for either model."""
    from scipy.stats import binomtest

    differing = first_better + second_better
    return float(binomtest(first_better, differing).pvalue) if differing else 1.0


def holm(p_values: Sequence[float]) -> list[float]:
    """Return the p-values adjusted by Holm's step-down procedure (Holm 1979), in the same order."""
    order = np.argsort(p_values)
    multiplied = np.asarray(p_values)[order] * np.arange(len(p_values), 0, -1)
    adjusted = np.empty(len(p_values))
    adjusted[order] = np.minimum(np.maximum.accumulate(multiplied), 1.0)
    return adjusted.tolist()


def smallest_difference(found: Spread) -> float | None:
    """Return the true difference that a test with this error finds with 80 % probability; `None` where none differs.

    (t_0.975 + t_0.8) standard errors of a clustered t (Cohen 1988, section 2.3); the test by signs finds as much from
    20 users up, and a little less with fewer (docs/research/intervals.md).
    """
    return (found.quantile(1 - ALPHA / 2) + found.quantile(POWER)) * found.error or None


def _observed_resolution(tests: Sequence[PairTest]) -> DetectableDifference | None:
    """Return what the tests of a board can find; `None` where no two of its models differ."""
    seen = [test.resolution for test in tests if test.resolution is not None]
    if not seen:
        return None
    found = median(seen)
    # No two models are further apart than 1.
    shown = found if found <= 1 else None
    return DetectableDifference(difference=shown, pairs=tests[0].difference.n, tests=len(seen))


def planned_resolution(rows_of_users: Collection[int]) -> DetectableDifference:
    """Return what a set will find in two models of which nothing was seen yet, under the assumptions named above."""
    pairs = sum(rows_of_users)
    users = pairs**2 / sum(rows**2 for rows in rows_of_users)  # effective ones (Kish 1965)
    difference = None
    if users >= MIN_USERS:
        error = math.sqrt(ASSUMED_DISCORDANCE / independent_rows(rows_of_users, ASSUMED_CORRELATION))
        difference = smallest_difference(Spread(0.0, error, users - 1, users))
    # Two models cannot be further apart than the share of pairs on which they differ.
    shown = difference if difference is not None and difference <= ASSUMED_DISCORDANCE else None
    return DetectableDifference(difference=shown, pairs=pairs, tests=0)
