"""Does one benchmark predict downstream results better than another? Paired, on the models that all three have."""

import math
from dataclasses import dataclass
from itertools import product
from statistics import fmean

import numpy as np

from prbench.insight.meta.intervals import Interval, interval_of, ties_of
from prbench.metrics.correlation import PERMUTATIONS, coefficient_of_each, spearman
from prbench.metrics.estimate import FloatArray

EXACT_UP_TO = 12  # 2^12 ways to swap
SLACK = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Spearman's correlation of a first benchmark with downstream, minus that of a second."""

    n: int
    first: float
    second: float
    value: float
    low: float
    high: float
    p: float  # two-sided, by swapping the two benchmarks' ranks of some models


def compare_spearman(
    first: FloatArray, second: FloatArray, downstream: FloatArray, *, seed: int = 0, permutations: int = PERMUTATIONS
) -> Difference | None:
    """Return the difference with its interval; `None` where a correlation is undefined or there are under 4 models.

    The interval is made of those of the two correlations, allowing for what they share (Zou 2007, with the covariance
    of Pearson and Filon 1898). That covariance is taken at the three figures and in the middle of their intervals, and
    the smaller counts: few models make correlations look extreme, and then two benchmarks seem to share too much.
    """
    n = len(downstream)
    one, two, between = spearman(first, downstream), spearman(second, downstream), spearman(first, second)
    if one is None or two is None or between is None or n < 4:
        return None
    intervals = (
        spearman_interval(one, first, downstream),
        spearman_interval(two, second, downstream),
        spearman_interval(between, first, second),
    )
    (low_one, high_one), (low_two, high_two), _ = intervals
    shared = min(_shared(one, two, between), _shared(*(fmean(limits) for limits in intervals)))
    value = one - two
    # One benchmark twice, maybe in percent: there is nothing to be unsure of. Equal ranks alone may be chance, and so
    # may be two columns of two values.
    same = np.corrcoef(first, second)[0, 1] >= 1 - SLACK and len(np.unique(first)) > 2
    return Difference(
        n=n,
        first=one,
        second=two,
        value=value,
        low=value - (0.0 if same else _combined(one - low_one, high_two - two, shared)),
        high=value + (0.0 if same else _combined(high_one - one, two - low_two, shared)),
        p=_swapping_p(first, second, downstream, seed, permutations) if permutations else math.nan,
    )


def spearman_interval(value: float, benchmark: FloatArray, downstream: FloatArray) -> Interval:
    """Return the interval of one benchmark's correlation."""
    ties = (ties_of(benchmark), ties_of(downstream))
    return interval_of(value, len(downstream), "spearman", ties=ties) or (-1.0, 1.0)


def _combined(one: float, two: float, shared: float) -> float:
    return math.sqrt(max(0.0, one**2 + two**2 - 2 * shared * one * two))


def _shared(one: float, two: float, between: float) -> float:
    """Return the correlation of two correlations that have a column in common."""
    spread = (1 - one**2) * (1 - two**2)
    if spread <= 0:
        return 0.0
    rest = 1 - one**2 - two**2 - between**2
    return float(np.clip(((between - one * two / 2) * rest + between**3) / spread, -1.0, 1.0))


def _swapping_p(first: FloatArray, second: FloatArray, downstream: FloatArray, seed: int, permutations: int) -> float:
    """Return how often a difference as large comes from swapping the two ranks of models by chance."""
    from scipy.stats import rankdata

    n = len(downstream)
    exact = n <= EXACT_UP_TO
    if exact:
        swaps = np.array(list(product((False, True), repeat=n)))
    else:
        swaps = np.random.Generator(np.random.PCG64(seed)).random((permutations, n)) < 0.5
    a, b, d = (np.broadcast_to(rankdata(column), swaps.shape) for column in (first, second, downstream))
    null = coefficient_of_each(np.where(swaps, b, a), d, "pearson") - coefficient_of_each(
        np.where(swaps, a, b), d, "pearson"
    )
    observed = coefficient_of_each(a[:1], d[:1], "pearson") - coefficient_of_each(b[:1], d[:1], "pearson")
    reached = int((np.abs(null) >= abs(observed[0]) - SLACK).sum())
    return reached / len(null) if exact else (reached + 1) / (len(null) + 1)
