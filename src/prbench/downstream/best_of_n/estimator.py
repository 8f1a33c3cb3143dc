"""What the best of n samples is worth, for every n up to the size of the pool, without bias and without chance.

Of a pool of N samples, every subset of n is as likely as any other to have been drawn. Ordered by score, the sample of
rank i is the best of C(i-1, n-1) of the C(N, n) subsets, so the expected value of the best of n is

    V(n) = sum over i = n..N of C(i-1, n-1) / C(N, n) * v(i)

Equal scores are one block: whichever of it is picked is a matter of chance, so each has the mean value of its block.
"""

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


def best_of(values: npt.ArrayLike, scores: npt.ArrayLike, n: int) -> float:
    """Return the expected value of the best-scored of n samples."""
    check_n(n, np.asarray(values).size)
    return float(best_of_each(values, scores)[n - 1])


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


def check_n(n: int, size: int) -> None:
    """Refuse an n that the pool cannot tell about: the best of more samples than there are is not known."""
    if n > size:
        raise UsageError(f"The pool has {size} samples, so it cannot tell about the best of {n}. Sample more.")
    if n < 1:
        raise UsageError(f"The best of {n} samples is nothing. Take 1 or more.")


def sizes_up_to(size: int) -> tuple[int, ...]:
    """Return the n that are shown: powers of two, and the size of the pool."""
    powers = [2**power for power in range(size.bit_length()) if 2**power <= size]
    return tuple(dict.fromkeys([*powers, size]))


def _log_choose(total: npt.NDArray[np.int64], part: npt.NDArray[np.int64]) -> FloatArray:
    logs: FloatArray = gammaln(total + 1) - gammaln(part + 1) - gammaln(total - part + 1)
    return logs
