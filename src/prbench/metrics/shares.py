"""A share of answers, several of which belong to one item and are not independent."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from prbench.metrics.estimate import ratio_estimates, wilson
from prbench.schema import Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusteredShare:
    """A share of points with two intervals that know that the answers to one item belong together."""

    estimate: Estimate  # bootstrap over items, 95 %; `n` counts items
    low: float  # Wilson's interval with the effective number of answers, at the level asked for
    high: float
    answers: int
    effective: float  # independent answers that would tell as much

    @property
    def per_item(self) -> float:
        """Effective answers per item."""
        return self.effective / self.estimate.n


def clustered_share(
    points: Sequence[float], items: Sequence[str], *, level: float = 0.95, seed: int = 0
) -> ClusteredShare:
    """Mean of points in [0, 1], each of them one answer to an item; answers to one item are not independent.

    Wilson's interval takes the answers divided by their design effect: the variance clustered by items over that of
    independent answers (Kish 1965). It is at most the number of answers; where all points are the same and no variance
    can be seen, it is the number of items.
    """
    names, owners = np.unique(np.array(items, dtype=object), return_inverse=True)
    values = np.array(points, dtype=np.float64)
    sums, counts = np.bincount(owners, weights=values), np.bincount(owners).astype(np.float64)
    estimate = ratio_estimates(sums, counts, [str(name) for name in names], seed=seed)[0]
    mean, total, groups = estimate.value, len(values), len(names)
    error = float(((sums - mean * counts) ** 2).sum()) * groups / max(groups - 1, 1) / total**2
    if np.ptp(values) == 0 or groups == 1:
        effective = float(groups)
    else:
        effective = min(float(total), mean * (1 - mean) / error) if error > 0 else float(total)
    low, high = wilson(mean * effective, effective, level=level)
    return ClusteredShare(estimate=estimate, low=low, high=high, answers=total, effective=effective)


def items_to_tell(share: ClusteredShare, bar: float, *, level: float = 0.95, power: float = 0.8) -> int | None:
    """Return how many items would show on which side of the bar the share lies, if it is what was seen.

    `None` when the share is the bar itself. Source of the formula: the test of one proportion, e.g. Fleiss, Levin and
    Paik 2003, section 2.5.
    """
    value = share.estimate.value
    if math.isclose(value, bar):
        return None
    normal = NormalDist()
    tail, reach = normal.inv_cdf(0.5 + level / 2), normal.inv_cdf(power)
    answers = ((tail * math.sqrt(bar * (1 - bar)) + reach * math.sqrt(value * (1 - value))) / (value - bar)) ** 2
    return math.ceil(answers / share.per_item)
