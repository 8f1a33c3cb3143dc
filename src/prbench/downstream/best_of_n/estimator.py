"""What the best of n samples is worth, for every n up to the size of the pool, without bias and without chance.

Of a pool of N samples, every subset of n is as likely as any other to have been drawn. Ordered by score, the sample of
rank i is the best of C(i-1, n-1) of the C(N, n) subsets, so the expected value of the best of n is

    V(n) = sum over i = n..N of C(i-1, n-1) / C(N, n) * v(i)

Equal scores are one block: whichever of it is picked is a matter of chance, so each has the mean value of its block.
Below are the curves V(n) themselves, and what such a curve says: where it is highest, and whether it turns down.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt
from scipy.special import gammaln

from prbench.errors import UsageError
from prbench.metrics.estimate import FloatArray


def best_of_each(values: npt.ArrayLike, scores: npt.ArrayLike) -> FloatArray:
    """Return the expected value of the best-scored of n samples, for n = 1..N."""
    expected: FloatArray = rank_weights(np.asarray(values).size) @ in_order_of_score(values, scores)
    return expected


def win_rate_each(values: npt.ArrayLike, scores: npt.ArrayLike) -> FloatArray:
    """Return how often the best-scored of n samples is worth more than one sample, for n = 1..N; equal is half a win.

    Both are drawn from the pool, independently of each other, so the rate is 1/2 at n = 1. That the one may be among
    the n adds (n-1) / (2N(n+1)) to an oracle's rate without ties, which is less than 1/(2N).
    """
    worth = np.asarray(values, dtype=np.float64)
    below = np.searchsorted(np.sort(worth), worth, side="left")
    not_above = np.searchsorted(np.sort(worth), worth, side="right")
    return best_of_each((below + not_above) / (2 * worth.size), scores)


def in_order_of_score(values: npt.ArrayLike, scores: npt.ArrayLike) -> FloatArray:
    """Return the values by ascending score, with the mean of the block where scores are equal."""
    worth, score = np.asarray(values, dtype=np.float64), np.asarray(scores, dtype=np.float64)
    if worth.ndim != 1 or worth.shape != score.shape or not worth.size:
        raise UsageError(f"{score.size} scores do not belong to {worth.size} values. Give one score for each sample.")
    if not (np.isfinite(worth).all() and np.isfinite(score).all()):
        raise UsageError("A value or a score is missing or infinite. Leave its question out.")
    _, block, size = np.unique(score, return_inverse=True, return_counts=True)
    means = np.bincount(block, weights=worth) / size
    ordered: FloatArray = np.repeat(means, size)
    return ordered


@cache
def rank_weights(size: int) -> FloatArray:
    """Return the weights of the ranks (columns) for every n (rows): 0 where fewer than n samples are ranked so low."""
    n = np.arange(1, size + 1)[:, None]
    rank = np.arange(1, size + 1)[None, :]
    with np.errstate(invalid="ignore"):
        logs = _log_choose(rank - 1, n - 1) - _log_choose(np.array(size), n)
    weights = np.where(rank >= n, np.exp(np.where(rank >= n, logs, 0.0)), 0.0)
    weights /= weights.sum(axis=1, keepdims=True)  # rounding of the logarithms, some 1e-14
    weights.setflags(write=False)
    return weights


def kl_bound(n: int) -> float:
    """Return log n - (n-1)/n: no more nats than this lie between the best of n and the policy (Beirami 2401.01879)."""
    if n < 1:
        raise UsageError(f"The best of {n} samples is nothing. Take 1 or more.")
    return float(np.log(n) - (n - 1) / n)


def sizes_up_to(size: int) -> tuple[int, ...]:
    """Return the n that are shown: powers of two, and the size of the pool."""
    powers = [2**power for power in range(size.bit_length()) if 2**power <= size]
    return tuple(dict.fromkeys([*powers, size]))


def _log_choose(total: npt.NDArray[np.int64], part: npt.NDArray[np.int64]) -> FloatArray:
    logs: FloatArray = gammaln(total + 1) - gammaln(part + 1) - gammaln(total - part + 1)
    return logs


@dataclass(frozen=True, slots=True, kw_only=True)
class Overoptimization:
    """The fit of gain = d (alpha - beta d) with d the root of the KL bound (Gao 2210.10760, for Best-of-N)."""

    alpha: float
    beta: float
    peak_d: float | None  # where the fit is highest; `None` where it never turns down
    peak_gain: float | None
    is_within: bool  # the peak lies within the n that were sampled
    drop: float  # of the curve itself, from its highest point to the largest n
    rmse: float  # between fit and curve


@dataclass(frozen=True, slots=True, kw_only=True)
class Ties:
    """How often the best score of a pool is shared, so that chance picks."""

    pools: float  # share of pools whose best score several samples have
    consequential: float  # share of pools in which those samples are not worth the same
    size: float  # samples that share the best score, on average over all pools


def best_n(curve: npt.ArrayLike) -> int:
    """Return the n at which the curve is highest; the smallest of several."""
    return int(np.argmax(np.asarray(curve))) + 1


def area_over_log_n(curve: npt.ArrayLike) -> float:
    """Return the mean height of the curve over log n, from 1 to N."""
    heights = np.asarray(curve, dtype=np.float64)
    if heights.size == 1:
        return float(heights[0])
    places = np.log(np.arange(1, heights.size + 1))
    return float(np.trapezoid(heights, places) / places[-1])


def fit_overoptimization(curve: npt.ArrayLike, sizes: Sequence[int]) -> Overoptimization | None:
    """Fit the law at the given n by least squares; with fewer than three of them above 1 there is nothing to fit."""
    heights = np.asarray(curve, dtype=np.float64)
    above = [n for n in sizes if n > 1]
    if len(above) < 3:
        return None
    d = np.sqrt([kl_bound(n) for n in above])
    gains = heights[np.array(above) - 1] - heights[0]
    design = np.stack([d, -(d**2)], axis=1)
    (alpha, beta), *_ = np.linalg.lstsq(design, gains, rcond=None)
    turns = alpha > 0 and beta > 0
    peak = float(alpha / (2 * beta)) if turns else None
    return Overoptimization(
        alpha=float(alpha),
        beta=float(beta),
        peak_d=peak,
        peak_gain=float(alpha**2 / (4 * beta)) if turns else None,
        is_within=peak is not None and peak <= float(d[-1]),
        drop=float(heights.max() - heights[-1]),
        rmse=float(np.sqrt(np.mean((design @ np.array([alpha, beta]) - gains) ** 2))),
    )


def count_ties(values: Sequence[FloatArray], scores: Sequence[FloatArray]) -> Ties:
    """Look at the best scores of all pools."""
    tops = [worth[score == score.max()] for worth, score in zip(values, scores, strict=True)]
    return Ties(
        pools=float(np.mean([top.size > 1 for top in tops])),
        consequential=float(np.mean([np.ptp(top) > 0 for top in tops])),
        size=float(np.mean([top.size for top in tops])),
    )


def pooled_spread(pools: Sequence[FloatArray]) -> float:
    """Return the standard deviation within pools, over all of them."""
    return float(np.sqrt(np.mean([np.var(pool) for pool in pools]))) if pools else 0.0
