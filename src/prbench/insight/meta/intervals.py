"""Intervals for correlations of few models: the true correlations that a board of n models is compatible with.

Resampling six models cannot say how far six other models would differ, so nothing is resampled here. Two columns
joined by a Gaussian copula order models in a way that depends on its rho alone, whatever the scales are. Boards of n
models are simulated for every rho; those rho stay in the interval under which the observed figure is no exception
(Blaker 2000: the tail that the figure lies in, plus the largest tail on the other side that is no larger, exceeds
5 %). Six ranks can take few values, which would make this too cautious; so, as with mid-P values (Lancaster 1961),
boards that come to the observed figure itself count half. Of six models Kendall's tau takes 16 values only; boards of
one tau are told apart by their Spearman correlation. `experiments/meta_coverage.py` compares the method with others.
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from prbench.metrics.correlation import RBO_P, Gain, Statistic, coefficient_of_orders
from prbench.metrics.estimate import LEVEL, FloatArray

FARTHEST = 3.8  # atanh(rho) up to which boards are simulated; 0.999
CELLS = 200_000  # models of all boards that are simulated for one rho
FEWEST_BOARDS, MOST_BOARDS = 1_500, 8_000
SEED = 20260408
SLACK = 1e-9  # the same order computed in two ways differs in the last digits
FINER = 1e-6  # of Spearman, added to Kendall: two values of tau differ by more
ALPHA, POWER = 0.05, 0.8
FEWEST_FOR_P = 5  # with four models no order has a two-sided p under 0.05
MOST_MODELS = 10_000  # beyond, the number itself is no use
Interval = tuple[float, float]
Ties = tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulated:
    """What one statistic of n models comes to, by the true rho."""

    z: FloatArray  # (points,) atanh(rho), ascending
    values: FloatArray  # (points, boards), ascending in each row
    worst: float  # at rho -1
    best: float  # at rho 1

    def compatible(self, observed: float) -> Interval:
        """Return the least and the largest rho under which the observed value is no exception."""
        boards = self.values.shape[1]
        at_least = (self.values >= observed - SLACK).sum(axis=1)
        at_most = (self.values <= observed + SLACK).sum(axis=1)
        rising, falling = self.values, self.values[:, ::-1]
        rows = np.arange(len(self.z))
        # The other tail ends before the first value with which it would be the larger one.
        below = (rising < rising[rows, np.minimum(at_least, boards - 1)][:, None] - SLACK).sum(axis=1)
        above = (falling > falling[rows, np.minimum(at_most, boards - 1)][:, None] + SLACK).sum(axis=1)
        counts = np.where(at_least <= at_most, at_least + below, at_most + above)
        equal = at_least + at_most - boards
        share: FloatArray = np.minimum(counts, boards) / boards - equal / (2 * boards)
        support = np.maximum(share, 1e-12)
        bar = 1 - LEVEL
        inside = np.flatnonzero(support > bar)
        if not len(inside):  # a value that so many models hardly ever have: what comes nearest
            nearest = math.tanh(float(self.z[int(support.argmax())]))
            return nearest, nearest
        first, last = int(inside[0]), int(inside[-1])
        low = -1.0 if first == 0 else math.tanh(self._crossing(support, first - 1, first, bar))
        high = 1.0 if last == len(self.z) - 1 else math.tanh(self._crossing(support, last + 1, last, bar))
        return low, high

    def mean_at(self, rho: float) -> float:
        """Return what the statistic comes to on average."""
        if abs(rho) >= 1:
            return self.best if rho > 0 else self.worst
        return float(np.interp(math.atanh(rho), self.z, self.values.mean(axis=1)))

    def _crossing(self, support: FloatArray, outside: int, inside: int, bar: float) -> float:
        logs = np.log(support[[outside, inside]])
        share = (math.log(bar) - logs[0]) / (logs[1] - logs[0])
        return float(self.z[outside] + share * (self.z[inside] - self.z[outside]))


def ties_of(scores: FloatArray) -> Ties:
    """Return how many models share each score, from the lowest score on; empty where all differ."""
    counts = np.unique(scores, return_counts=True)[1]
    return () if len(counts) == len(scores) else tuple(int(count) for count in counts)


def interval_of(
    value: float,
    n: int,
    statistic: Statistic,
    *,
    spearman: float | None = None,
    gain: Gain = "exponential",
    p: float = RBO_P,
    ties: tuple[Ties, Ties] = ((), ()),
) -> Interval | None:
    """Return the 95 % interval of a statistic of n models; `None` for fewer than four.

    Simulated boards have the ties that the observed one has on both sides. Kendall's needs the board's `spearman`.

    Pearson's is by Fisher's z. Spearman's and Kendall's are for the correlation of all models that there could be;
    those of weighted tau, NDCG and RBO, which depend on n, are for their mean over boards of n models.
    """
    if n < 4:
        return None
    if statistic == "pearson":
        return fisher_interval(value, n)
    simulated = simulate(n, statistic, gain, p, ties)
    observed = value
    if statistic == "kendall":
        if spearman is None:
            raise ValueError("Kendall's interval needs the Spearman correlation of the same board")
        observed += FINER * spearman
    low, high = (
        population_value(rho, statistic) if statistic in ("spearman", "kendall") else simulated.mean_at(rho)
        for rho in simulated.compatible(observed)
    )
    return min(low, value), max(high, value)


def mean_over_boards(
    rho: float, n: int, statistic: Statistic, *, gain: Gain, p: float, ties: tuple[Ties, Ties]
) -> float:
    """Return what a statistic comes to on average over boards of n models whose copula has that rho."""
    return simulate(n, statistic, gain, p, ties).mean_at(rho)


def compatible_rho(value: float, n: int, ties: tuple[Ties, Ties] = ((), ())) -> Interval:
    """Return the rho of the copula that a Spearman correlation of n models is compatible with."""
    return simulate(n, "spearman", "exponential", RBO_P, ties).compatible(value)


def population_value(rho: float, statistic: Statistic) -> float:
    """Return Spearman's or Kendall's correlation of a Gaussian copula (Kruskal 1958), or rho itself."""
    match statistic:
        case "spearman":
            return 6 / math.pi * math.asin(rho / 2)
        case "kendall":
            return 2 / math.pi * math.asin(rho)
        case _:
            return rho


def rho_of_spearman(value: float) -> float:
    """Return the rho of the copula with that Spearman correlation."""
    return 2 * math.sin(math.pi * value / 6)


def fisher_interval(value: float, n: float, *, spread: float = 1.0) -> Interval:
    """Return Fisher's interval; `spread` is the variance of z times n - 3, which is 1 for normal scores."""
    if n <= 3:
        return -1.0, 1.0
    if abs(value) >= 1:
        return (value, value)
    half = NormalDist().inv_cdf(0.5 + LEVEL / 2) * math.sqrt(spread / (n - 3))
    return math.tanh(math.atanh(value) - half), math.tanh(math.atanh(value) + half)


def models_needed(correlation: float, *, power: float = POWER) -> int:
    """Return how many models show a Spearman correlation with this power, two-sided.

    By Fisher's z, whose variance for ranks is 1.06 / (n - 3) (Fieller, Hartley and Pearson 1957); never fewer than can
    show anything. `experiments/meta_coverage.py` holds it against simulated boards.
    """
    size = abs(correlation)
    if size <= 0:
        return MOST_MODELS
    z = math.atanh(min(size, 0.999))
    total = NormalDist().inv_cdf(1 - ALPHA / 2) + NormalDist().inv_cdf(power)
    return min(MOST_MODELS, max(FEWEST_FOR_P + 1, math.ceil(3 + 1.06 * (total / z) ** 2)))


@lru_cache(maxsize=12)
def simulate(n: int, statistic: Statistic, gain: Gain, p: float, ties: tuple[Ties, Ties] = ((), ())) -> Simulated:
    """Return what the statistic comes to on simulated boards of n models."""
    z, orders = _simulated_orders(n)
    if statistic in ("kendall", "weighted_tau"):  # all pairs of models are compared: fewer boards, in the same time
        orders = orders[:, : max(FEWEST_BOARDS, 10 * CELLS // n**2)]
    benchmark, downstream = (
        np.repeat(np.arange(len(counts), dtype=np.float64), counts) if counts else None for counts in ties
    )

    def coefficients(some: npt.NDArray[np.int16]) -> FloatArray:
        found = coefficient_of_orders(some, statistic, benchmark=benchmark, downstream=downstream, gain=gain, p=p)
        if statistic == "kendall":
            found = found + FINER * coefficient_of_orders(some, "spearman", benchmark=benchmark, downstream=downstream)
        return found

    values = np.stack([np.sort(coefficients(each)) for each in orders])
    worst, best = coefficients(np.stack([np.arange(n)[::-1], np.arange(n)]).astype(np.int16))
    return Simulated(z=z, values=values, worst=float(worst), best=float(best))


@lru_cache(maxsize=2)
def _simulated_orders(n: int) -> tuple[FloatArray, npt.NDArray[np.int16]]:
    """Return the grid of atanh(rho), and the orders of all boards: (points, boards, models).

    The same draws serve every rho, so that tails change smoothly along the grid.
    """
    boards = min(MOST_BOARDS, max(FEWEST_BOARDS, CELLS // n))
    generator = np.random.Generator(np.random.PCG64(SEED))
    x = np.sort(generator.standard_normal((boards, n)), axis=1)
    noise = generator.standard_normal((boards, n))
    half = np.linspace(0.0, FARTHEST, 1 + math.ceil(FARTHEST / min(0.1, 0.5 / math.sqrt(n))))
    above = np.stack([_places(np.tanh(z) * x + noise / np.cosh(z)) for z in half])
    above[0, 1::2] = n - 1 - above[0, : boards - 1 : 2]  # at 0 both tails are the same, whatever was drawn
    below = (n - 1 - above[:0:-1]).astype(np.int16)  # a board of -rho is one of rho, read from its other end
    return np.concatenate([-half[:0:-1], half]), np.concatenate([below, above])


def _places(values: FloatArray) -> npt.NDArray[np.int16]:
    places = np.empty(values.shape, dtype=np.int16)
    np.put_along_axis(places, values.argsort(axis=1), np.arange(values.shape[1], dtype=np.int16)[None, :], axis=1)
    return places
