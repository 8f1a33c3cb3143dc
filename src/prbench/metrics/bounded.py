"""What items that nobody has seen could do to a mean, when all that is known is how far one item can lie.

Gaffke's bound: draw random weights for the items and for one more, unseen, that lies at the far end of the scale. The
share of draws in which the weighted mean reaches a value is the p-value of a mean that large. If all items are the
same it is the binomial bound of having seen none of those that differ; for items with two values it is the bound of
Clopper and Pearson. Sources: Gaffke 2005; Learned-Miller and Thomas 2020, arXiv:1905.06208, who conjecture that no
distribution breaks it. A t test is broken by rare large differences.
"""

import math
from dataclasses import dataclass

import numpy as np

from prbench.metrics.estimate import FloatArray

_NODES, _REACH = 200, 12.0  # of the integral, whose integrand falls off at least with the third power of sinh


@dataclass(frozen=True, slots=True, kw_only=True)
class Items:
    """The means of items; those with the same mean are merged, and `times` says how many they are."""

    means: FloatArray
    times: FloatArray
    span: float  # no mean lies beyond it, on either side

    def mirrored(self) -> "Items":
        """Return the same items with the other sign."""
        return Items(means=-self.means, times=self.times, span=self.span)


def merge_items(means: FloatArray, *, span: float) -> Items:
    """Return items of the given means, each of which counts once, however many answers it has."""
    kinds, times = np.unique(means, return_counts=True)
    return Items(means=kinds, times=times.astype(np.float64), span=span)


def p_at_least(items: Items, target: float) -> float:
    """Return the p-value of a mean of `target` or more, unseen items included."""
    return _chance_positive(np.append(items.means, items.span) - target, np.append(items.times, 1.0))


def upper_bound(items: Items, level: float) -> float:
    """Return the mean that has this p-value: with unseen items it is larger with no more than that chance."""
    from scipy.optimize import brentq

    lowest = float(items.means.min())
    if lowest >= items.span:
        return items.span
    return float(brentq(lambda target: p_at_least(items, target) - level, lowest, items.span, xtol=1e-7))


def _chance_positive(distances: FloatArray, shapes: FloatArray) -> float:
    """Return the chance that a sum of independent gamma variables, each times its distance, is above 0.

    The moment generating function is a product of powers. It is inverted along the line through its saddle point,
    which keeps small chances exact (Lugannani and Rice 1980, before their approximation).
    """
    from scipy.optimize import minimize_scalar

    if distances.min() >= 0:
        return 1.0
    top = float(distances.max())
    if top <= 0:
        return 0.0

    def log_height(place: float) -> float:
        return -float(shapes @ np.log1p(-distances * place)) - math.log(place)

    found = minimize_scalar(log_height, bounds=(0.0, 1 / top), method="bounded", options={"xatol": 1e-4 / top})
    saddle = float(found.x)
    curvature = float(shapes @ (distances / (1 - distances * saddle)) ** 2) + 1 / saddle**2
    steps = np.linspace(0.0, _REACH, _NODES)
    line = saddle + 1j * np.sinh(steps) / math.sqrt(curvature)
    heights = np.exp(-np.log(1 - np.outer(line, distances)) @ shapes - np.log(line) - log_height(saddle))
    heights = heights.real * np.cosh(steps) / math.sqrt(curvature)
    area = (float(heights.sum()) - float(heights[0]) / 2) * _REACH / (_NODES - 1)
    return min(1.0, max(0.0, area * math.exp(log_height(saddle)) / math.pi))
