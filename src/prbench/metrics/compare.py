"""Which of several models is better, and what this many pairs can tell at all.

Every comparison is paired: two models on the same items under the same probe.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import NormalDist, median

import numpy as np

from prbench.errors import UsageError
from prbench.metrics.estimate import FloatArray, RatioDraws, ratio_draws
from prbench.schema import POINTS, Estimate, Row

ALPHA = 0.05
POWER = 0.8
_quantile = NormalDist().inv_cdf
ASSUMED_DISCORDANCE = 0.2  # share of pairs on which two models differ, where nothing was observed yet


@dataclass(frozen=True, slots=True, kw_only=True)
class PairTest:
    """Two models on the same items. `difference` is first minus second in headline accuracy."""

    first: str
    second: str
    difference: Estimate
    first_better: int  # items on which the first earns more points
    second_better: int
    mcnemar_p: float  # exact; takes items as independent
    clustered_p: float | None  # t test on the difference with users resampled; `None` with a single user
    resolution: float | None  # smallest difference that these pairs show at 80 % power, users clustered

    @property
    def p_value(self) -> float:
        """The larger of both p-values: a difference counts only if both the items and the users show it."""
        return self.mcnemar_p if self.clustered_p is None else max(self.mcnemar_p, self.clustered_p)

    @property
    def discordance(self) -> float:
        """Share of items on which the two models earn different points."""
        return (self.first_better + self.second_better) / self.difference.n


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """One line of a board. Models that share a `group` cannot be told apart from the best of that group."""

    name: str
    accuracy: Estimate
    group: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaderboard:
    """Models ranked on the items that all of them have."""

    standings: tuple[Standing, ...]
    tests: tuple[PairTest, ...]
    holm_p: tuple[float, ...]  # adjusted over the whole board, in the order of `tests`
    n: int
    discordance: float  # median over pairs of models; the stated assumption when there is only one model
    resolution: float | None  # smallest difference that n pairs can show; `None`: they can show none


def compare(
    first: Sequence[Row], second: Sequence[Row], *, names: tuple[str, str] = ("first", "second"), seed: int = 0
) -> PairTest:
    """Test two models on the items that both have; a tie is half a point, an unreadable verdict none.

    McNemar's test (1947) knows only right and wrong. Here an item speaks for the model that earns more points on it
    (right over tie or wrong, tie over wrong), and items with equal points speak for neither: without ties that is
    McNemar's test, with ties it is the exact sign test.
    """
    points, users = _shared_points([first, second])
    draws = ratio_draws(points, np.ones_like(points), users, seed=seed)
    return _test_pair(draws, points, names, (0, 1))


def rank_board(runs: Mapping[str, Sequence[Row]], *, seed: int = 0) -> Leaderboard:
    """Rank models by headline accuracy and put those that cannot be told apart into one group.

    All pairs of models are tested on the items that all models share, and the p-values are adjusted by Holm over the
    whole board. Going down the ranking, a model joins the current group unless it differs from the group's best model
    at 5 %; the first that does opens the next group. Equal accuracies are ordered by name.
    """
    if not runs:
        raise UsageError("There is no run to rank. Give at least one run folder.")
    names = sorted(runs)
    points, users = _shared_points([runs[name] for name in names])
    draws = ratio_draws(points, np.ones_like(points), users, seed=seed)
    pairs = list(combinations(range(len(names)), 2))
    tests = [_test_pair(draws, points, (names[one], names[two]), (one, two)) for one, two in pairs]
    adjusted = holm([test.p_value for test in tests])
    apart = {pair for pair, p in zip(pairs, adjusted, strict=True) if p < ALPHA}
    ranked = sorted(range(len(names)), key=lambda column: (-draws.values[column], names[column]))
    leader, group = ranked[0], 1
    standings = []
    for column in ranked:
        if (min(leader, column), max(leader, column)) in apart:
            leader, group = column, group + 1
        standings.append(Standing(name=names[column], accuracy=draws.estimate(column), group=group))
    discordance = median(test.discordance for test in tests) if tests else ASSUMED_DISCORDANCE
    return Leaderboard(
        standings=tuple(standings),
        tests=tuple(tests),
        holm_p=tuple(adjusted),
        n=len(users),
        discordance=discordance,
        resolution=resolution(len(users), discordance),
    )


def _shared_points(runs: Sequence[Sequence[Row]]) -> tuple[FloatArray, list[str]]:
    """Return the points (items, models) and the users of the items that all runs have."""
    keyed = [{(row.probe, row.id): row for row in rows} for rows in runs]
    if any(len(by_item) < len(rows) for by_item, rows in zip(keyed, runs, strict=True)):
        raise UsageError("An item has two rows for the same probe in one run. Give the rows of one run at a time.")
    shared = sorted(set.intersection(*(set(rows) for rows in keyed)))
    if not shared:
        raise UsageError(
            "These runs have no item in common, so nothing can be compared. Evaluate them on the same data."
        )
    points = np.array([[POINTS[rows[item].verdict] for rows in keyed] for item in shared])
    return points, [keyed[0][item].user_id for item in shared]


def _test_pair(draws: RatioDraws, points: FloatArray, names: tuple[str, str], columns: tuple[int, int]) -> PairTest:
    first, second = columns
    first_better = int(np.sum(points[:, first] > points[:, second]))
    second_better = int(np.sum(points[:, first] < points[:, second]))
    error = draws.standard_error(first, minus=second)
    return PairTest(
        first=names[0],
        second=names[1],
        difference=draws.estimate(first, minus=second),
        first_better=first_better,
        second_better=second_better,
        mcnemar_p=mcnemar_p(first_better, second_better),
        clustered_p=draws.p_value(first, minus=second),
        resolution=None if not error else error * (_quantile(1 - ALPHA / 2) + _quantile(POWER)),
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


def resolution(n: int, discordance: float = ASSUMED_DISCORDANCE) -> float | None:
    """Return the smallest difference in accuracy that `n` pairs show with 80 % power, or `None` when they show none.

    `discordance` is the share of pairs on which the two models differ; no difference can exceed it. Solves
    n d^2 = (z_a sqrt(q) + z_b sqrt(q - d^2))^2 for d (Connor 1987, for McNemar's test), q being the discordance.
    """
    _check_share(discordance)
    z_alpha, z_beta = _quantile(1 - ALPHA / 2), _quantile(POWER)
    inner = n + z_beta**2 - z_alpha**2
    if n <= 0 or inner < 0:
        return None
    smallest = math.sqrt(discordance) * (math.sqrt(n) * z_alpha + z_beta * math.sqrt(inner)) / (n + z_beta**2)
    return smallest if 0 < smallest <= discordance else None


def required_pairs(difference: float, discordance: float = ASSUMED_DISCORDANCE) -> int:
    """Return how many pairs it takes to show `difference`; see `resolution`."""
    _check_share(discordance)
    if not 0 < difference <= discordance:
        raise UsageError(
            f"A difference of {difference} cannot be seen with a discordance of {discordance}: it must be above 0 and "
            "at most the share of pairs on which the models differ."
        )
    z_alpha, z_beta = _quantile(1 - ALPHA / 2), _quantile(POWER)
    root = z_alpha * math.sqrt(discordance) + z_beta * math.sqrt(discordance - difference**2)
    return math.ceil((root / difference) ** 2)


def _check_share(discordance: float) -> None:
    if not 0 <= discordance <= 1:
        raise UsageError(f"The discordance {discordance} is no share. Give a number between 0 and 1.")
