"""What a curve of value against n says: where it is highest, what it is worth, whether it turns down."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from prbench.downstream.best_of_n.estimator import kl_bound
from prbench.metrics.estimate import FloatArray


@dataclass(frozen=True, slots=True, kw_only=True)
class Overoptimisation:
    """The fit of gain = d (alpha - beta d) with d the root of the KL bound (Gao 2210.10760, for Best-of-N)."""

    alpha: float
    beta: float
    peak_d: float | None  # where the fit is highest; `None` where it never turns down
    peak_gain: float | None
    is_within: bool  # the peak lies within the n that were sampled
    drop: float  # of the curve itself, from its highest point to the largest n
    misfit: float  # root of the mean squared difference between fit and curve


@dataclass(frozen=True, slots=True, kw_only=True)
class Ties:
    """How often the best score of a pool is shared, so that chance picks."""

    pools: float  # share of pools whose best score several samples have
    matter: float  # share of pools in which those samples are not worth the same
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


def fit_overoptimisation(curve: npt.ArrayLike, sizes: Sequence[int]) -> Overoptimisation | None:
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
    return Overoptimisation(
        alpha=float(alpha),
        beta=float(beta),
        peak_d=peak,
        peak_gain=float(alpha**2 / (4 * beta)) if turns else None,
        is_within=peak is not None and peak <= float(d[-1]),
        drop=float(heights.max() - heights[-1]),
        misfit=float(np.sqrt(np.mean((design @ np.array([alpha, beta]) - gains) ** 2))),
    )


def count_ties(values: Sequence[FloatArray], scores: Sequence[FloatArray]) -> Ties:
    """Look at the best scores of all pools."""
    tops = [worth[score == score.max()] for worth, score in zip(values, scores, strict=True)]
    return Ties(
        pools=float(np.mean([top.size > 1 for top in tops])),
        matter=float(np.mean([np.ptp(top) > 0 for top in tops])),
        size=float(np.mean([top.size for top in tops])),
    )


def pooled_spread(pools: Sequence[FloatArray]) -> float:
    """Return the standard deviation within pools, over all of them."""
    return float(np.sqrt(np.mean([np.var(pool) for pool in pools]))) if pools else 0.0
