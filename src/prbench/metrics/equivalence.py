"""Are two means the same, for all that matters? "No significant difference" is no answer to that; this is.

The t test knows nothing of items that nobody has seen, so a bound on what they could do has to pass as well, when all
that is known is how far one item can lie. Gaffke's bound: draw random weights for the items and for one more, unseen,
that lies at the far end of the scale. The share of draws in which the weighted mean reaches a value is the p-value of
a mean that large. If all items are the same it is the binomial bound of having seen none of those that differ; for
items with two values it is the bound of Clopper and Pearson. Sources: Gaffke 2005; Learned-Miller and Thomas 2020,
arXiv:1905.06208, who conjecture that no distribution breaks it. A t test is broken by rare large differences.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from prbench.errors import UsageError
from prbench.metrics.estimate import FloatArray

POWER = 0.8
MOST_ITEMS = 10_000_000  # beyond this, "how many would be needed" has no useful answer
_NODES, _REACH = 200, 12.0  # of the integral, whose integrand falls off at least with the third power of sinh


@dataclass(frozen=True, slots=True, kw_only=True)
class Equivalence:
    """Two one-sided tests of a mean difference against a margin on either side.

    Every p-value is the larger of two, and the interval the wider of two: by the t test, and by Gaffke's bound on what
    unseen items could do.
    """

    difference: float
    low: float  # interval at 1 - 2 alpha: it lies within the margin exactly when `equivalent`
    high: float
    margin: float
    alpha: float
    p_above: float  # that the difference is -margin or less
    p_below: float  # that the difference is +margin or more
    p_beyond: float  # that the difference is within the margin: small when it is shown to be larger
    t_above: float  # the same by the t test alone, for comparison
    t_below: float
    tests: int  # that have to pass together
    resolves: float  # the margin that so many items show with 80 % power, if there is no difference at all
    needed: int | None  # items that would show on which side of the margin it lies, if it is what was seen
    n: int  # differences
    items: int

    @property
    def p_value(self) -> float:
        """The larger of the two one-sided p-values: both have to be small."""
        return max(self.p_above, self.p_below)

    @property
    def equivalent(self) -> bool:
        """True if the difference is shown to lie within the margin."""
        return self.p_value < self.alpha

    @property
    def beyond(self) -> bool:
        """True if the difference is shown to exceed the margin, at alpha over all tests: any one of them would do."""
        return self.p_beyond < self.alpha / self.tests


@dataclass(frozen=True, slots=True, kw_only=True)
class Unseen:
    """How much further than a t test an interval reaches for unseen items, to one side."""

    room: float = 0.0  # from the mean to the end of the scale
    rate: float = 0.0

    def reach(self, items: int) -> float:
        """Return the extra with so many items; exact where all items are the same."""
        return self.room * -math.expm1(-self.rate / items)


NOTHING_UNSEEN = Unseen()


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemMeans:
    """The means of items; those with the same mean are merged, and `times` says how many they are."""

    means: FloatArray
    times: FloatArray
    span: float  # no mean lies beyond it, on either side

    def mirrored(self) -> "ItemMeans":
        """Return the same items with the other sign."""
        return ItemMeans(means=-self.means, times=self.times, span=self.span)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sample:
    """What both tests need to know of the differences."""

    mean: float
    error: float  # clustered by items
    items: ItemMeans
    groups: int

    @property
    def deviation(self) -> float:
        return self.error * math.sqrt(self.groups)

    def t_at_least(self, target: float) -> float:
        """Return the p-value of a mean of `target` or more by the t test; without any variation it is certain."""
        from scipy.special import stdtr

        if self.error == 0:
            return float(target <= self.mean)
        return float(stdtr(self.groups - 1, (self.mean - target) / self.error))

    def p_at_least(self, target: float) -> float:
        return max(self.t_at_least(target), p_at_least(self.items, target))

    def upper(self, level: float) -> float:
        return max(self.mean + _critical(self.groups, level) * self.error, upper_bound(self.items, level))

    def unseen(self, upper: float, level: float) -> Unseen:
        """Return the part of the upper bound that the t test does not know of."""
        room = self.items.span - self.mean
        extra = upper - self.mean - _critical(self.groups, level) * self.error
        return Unseen(room=room, rate=-self.groups * math.log1p(-extra / room)) if 0 < extra < room else Unseen()

    def mirrored(self) -> "_Sample":
        return _Sample(mean=-self.mean, error=self.error, items=self.items.mirrored(), groups=self.groups)


def equivalence(
    differences: Sequence[float],
    items: Sequence[str],
    *,
    margin: float,
    span: float,
    alpha: float = 0.05,
    tests: int = 1,
) -> Equivalence:
    """Test whether the mean of paired differences lies within the margin (TOST, Schuirmann 1987).

    Several differences may belong to one item (several raters): the standard error is clustered by items (CR1), with
    items - 1 degrees of freedom. With equally many per item this is the paired t test of the items' means. A t test
    knows nothing of rare large differences that so few items do not show, and is blind where all are the same. So
    Gaffke's bound on the items' means has to pass as well: `span` is the largest difference that a pair can have, and
    an unseen item may have it. `tests` says how many such tests must all pass: each may then be made at alpha, but
    `beyond` is held to alpha over their number.
    """
    if not margin > 0:
        raise UsageError(f"The equivalence margin is {margin}. Give a number above 0.")
    if margin >= span:
        raise UsageError(f"The equivalence margin is {margin}, and no difference can exceed {span}. Give less.")
    if not 0 < alpha < 0.5:
        raise UsageError(f"The level alpha is {alpha}. Give a number between 0 and 0.5.")
    sample = _sample(differences, items, span=span)
    mirror = sample.mirrored()
    low, high = -mirror.upper(alpha), sample.upper(alpha)
    unseen = (mirror.unseen(-low, alpha), sample.unseen(high, alpha))
    return Equivalence(
        difference=sample.mean,
        low=low,
        high=high,
        margin=margin,
        alpha=alpha,
        p_above=mirror.p_at_least(margin),
        p_below=sample.p_at_least(margin),
        p_beyond=(mirror if sample.mean > 0 else sample).p_at_least(-margin),
        t_above=mirror.t_at_least(margin),
        t_below=sample.t_at_least(margin),
        tests=tests,
        resolves=resolved_margin(sample.error, sample.groups, alpha=alpha)
        + max(side.reach(sample.groups) for side in unseen),
        needed=_items_to_settle(sample, margin, unseen, alpha=alpha, tests=tests),
        n=len(differences),
        items=sample.groups,
    )


def _sample(differences: Sequence[float], items: Sequence[str], *, span: float) -> _Sample:
    names, owners = np.unique(np.array(items, dtype=object), return_inverse=True)
    if len(names) < 2:
        raise UsageError(f"An equivalence test needs at least 2 items, and there are {len(names)}.")
    values = np.array(differences, dtype=np.float64)
    if np.abs(values).max() > span:
        raise UsageError(
            f"A difference is {np.abs(values).max():g}, and none can exceed {span:g}. Give a larger span."
        )
    mean, total, groups = float(values.mean()), len(values), len(names)
    residuals = np.bincount(owners, weights=values - mean)
    error = math.sqrt(groups / (groups - 1) * float((residuals**2).sum())) / total
    if np.ptp(values) == 0:
        error = 0.0
    elif error < 1e-12:  # the raters differ, but their differences cancel out on every single item
        error = float(values.std(ddof=1)) / math.sqrt(total)
    means = np.bincount(owners, weights=values) / np.bincount(owners)
    return _Sample(mean=mean, error=error, items=merge_items(means, span=span), groups=groups)


def _critical(groups: int, level: float) -> float:
    from scipy.special import stdtrit

    return float(stdtrit(groups - 1, 1 - level))


def _items_to_settle(
    sample: _Sample, margin: float, unseen: tuple[Unseen, Unseen], *, alpha: float, tests: int
) -> int | None:
    """Return how many items would show the difference within the margin or, if it lies there, beyond it."""
    if abs(sample.mean) <= margin:
        return items_needed(sample.deviation, margin, difference=sample.mean, alpha=alpha, unseen=unseen)
    level = alpha / tests
    towards = sample.mirrored() if sample.mean > 0 else sample
    extra, room = towards.unseen(towards.upper(level), level), abs(sample.mean) - margin
    return _fewest(lambda items: _pass_chance(room - extra.reach(items), sample.deviation, items, level) >= POWER)


def _pass_chance(room: float, deviation: float, items: int, level: float) -> float:
    """Return the chance that a one-sided test passes, whose mean has this much room."""
    from scipy.special import ndtr

    if deviation == 0:
        return float(room > 0)
    return float(ndtr(room * math.sqrt(items) / deviation - _critical(items, level)))


def _fewest(is_enough: Callable[[int], bool]) -> int | None:
    """Return the smallest number of items that is enough; `None` if ten million are not."""
    if not is_enough(MOST_ITEMS):
        return None
    few, enough = 1, 2
    while not is_enough(enough):
        few, enough = enough, enough * 2
    while enough - few > 1:
        middle = (few + enough) // 2
        few, enough = (few, middle) if is_enough(middle) else (middle, enough)
    return enough


def resolved_margin(error: float, items: int, *, alpha: float = 0.05) -> float:
    """Return the margin that a t test with this standard error passes with 80 % power, if nothing differs."""
    from scipy.special import ndtri

    return float(error * (_critical(items, alpha) + ndtri((1 + POWER) / 2)))


def items_needed(
    deviation: float,
    margin: float,
    *,
    difference: float = 0.0,
    alpha: float = 0.05,
    unseen: tuple[Unseen, Unseen] = (NOTHING_UNSEEN, NOTHING_UNSEEN),
) -> int | None:
    """Return how many items make the test pass with 80 % power, if the true difference is this one.

    `deviation` is the standard deviation of the items' differences. `None` when the difference is not within the
    margin, or more than ten million items would be needed.
    """
    if abs(difference) >= margin:
        return None
    power = partial(equivalence_power, deviation, margin=margin, difference=difference, alpha=alpha, unseen=unseen)
    return _fewest(lambda items: power(items) >= POWER)


def equivalence_power(
    deviation: float,
    items: int,
    margin: float,
    *,
    difference: float = 0.0,
    alpha: float = 0.05,
    unseen: tuple[Unseen, Unseen] = (NOTHING_UNSEEN, NOTHING_UNSEEN),
) -> float:
    """Return the chance that the test passes; normal approximation with the critical value of t.

    `unseen` is what the interval reaches further down and further up for items that nobody has seen.
    """
    down, up = (part.reach(items) for part in unseen)
    above = _pass_chance(margin + difference - down, deviation, items, alpha)
    below = _pass_chance(margin - difference - up, deviation, items, alpha)
    return max(0.0, above + below - 1)


def merge_items(means: FloatArray, *, span: float) -> ItemMeans:
    """Return items of the given means, each of which counts once, however many answers it has."""
    kinds, times = np.unique(means, return_counts=True)
    return ItemMeans(means=kinds, times=times.astype(np.float64), span=span)


def p_at_least(items: ItemMeans, target: float) -> float:
    """Return the p-value of a mean of `target` or more, unseen items included."""
    return _chance_positive(np.append(items.means, items.span) - target, np.append(items.times, 1.0))


def upper_bound(items: ItemMeans, level: float) -> float:
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
