"""Are two means the same, for all that matters? "No significant difference" is no answer to that; this is."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from prbench.errors import UsageError

POWER = 0.8
MOST_ITEMS = 10_000_000  # beyond this, "how many would be needed" has no useful answer


@dataclass(frozen=True, slots=True, kw_only=True)
class Equivalence:
    """Two one-sided tests of a mean difference against a margin on either side."""

    difference: float
    low: float  # interval at 1 - 2 alpha: it lies within the margin exactly when `equivalent`
    high: float
    margin: float
    alpha: float
    p_above: float  # that the difference is -margin or less
    p_below: float  # that the difference is +margin or more
    p_beyond: float  # that the difference is within the margin: small when it is shown to be larger
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
    items - 1 degrees of freedom. With equally many per item this is the paired t test of the items' means. `span` is
    the largest difference that a pair can have. Where all differences are the same a t test is blind; the p-values are
    then the binomial bound on having seen no item of those that would have to be different. `tests` says how many
    such tests must all pass: each may then be made at alpha, but `beyond` is held to alpha over their number.
    """
    if margin <= 0:
        raise UsageError(f"The equivalence margin is {margin}. Give a number above 0.")
    if margin >= span:
        raise UsageError(f"The equivalence margin is {margin}, and no difference can exceed {span}. Give less.")
    if not 0 < alpha < 0.5:
        raise UsageError(f"The level alpha is {alpha}. Give a number between 0 and 0.5.")
    names, owners = np.unique(np.array(items, dtype=object), return_inverse=True)
    if len(names) < 2:
        raise UsageError(f"An equivalence test needs at least 2 items, and there are {len(names)}.")
    values = np.array(differences, dtype=np.float64)
    mean, total, groups = float(values.mean()), len(values), len(names)
    residuals = np.bincount(owners, weights=values - mean)
    error = math.sqrt(groups / (groups - 1) * float((residuals**2).sum())) / total
    if np.ptp(values) == 0:
        return _without_variation(mean, groups, total, margin=margin, span=span, alpha=alpha, tests=tests)
    if error < 1e-12:  # the raters differ, but their differences cancel out on every single item
        error = float(values.std(ddof=1)) / math.sqrt(total)
    return _by_t(mean, error, groups, total, margin=margin, alpha=alpha, tests=tests)


def _by_t(
    mean: float, error: float, groups: int, total: int, *, margin: float, alpha: float, tests: int
) -> Equivalence:
    from scipy.special import stdtr, stdtrit

    freedom = groups - 1
    half = float(stdtrit(freedom, 1 - alpha)) * error
    return Equivalence(
        difference=mean,
        low=mean - half,
        high=mean + half,
        margin=margin,
        alpha=alpha,
        p_above=float(stdtr(freedom, -(mean + margin) / error)),
        p_below=float(stdtr(freedom, (mean - margin) / error)),
        p_beyond=float(stdtr(freedom, (margin - abs(mean)) / error)),
        tests=tests,
        resolves=resolved_margin(error, groups, alpha=alpha),
        needed=_items_to_settle(error * math.sqrt(groups), margin, mean, alpha=alpha, tests=tests),
        n=total,
        items=groups,
    )


def _without_variation(
    mean: float, groups: int, total: int, *, margin: float, span: float, alpha: float, tests: int
) -> Equivalence:
    """Bound what unseen items could do: a share of them would have to differ by up to the whole span."""
    up, down = (span - mean), (span + mean)  # how far one item can lie from the mean

    def unseen(distance: float, room: float) -> float:
        """Chance to see none of the items that must differ for the mean to move this far."""
        return 1.0 if distance <= 0 else max(0.0, 1 - distance / room) ** groups

    share = 1 - alpha ** (1 / groups)
    distance, room = (margin - mean, up) if mean >= 0 else (margin + mean, down)
    level = alpha
    if distance < 0:  # it lies beyond the margin, and that is what more items would show
        distance, room, level = -distance, (down if mean > 0 else up), alpha / tests
    needed = math.floor(math.log(level) / math.log1p(-distance / room)) + 1 if 0 < distance < room else None
    return Equivalence(
        difference=mean,
        low=mean - share * down,
        high=mean + share * up,
        margin=margin,
        alpha=alpha,
        p_above=unseen(margin + mean, down),
        p_below=unseen(margin - mean, up),
        p_beyond=unseen(abs(mean) - margin, down if mean > 0 else up),
        tests=tests,
        resolves=abs(mean) + share * (up if mean >= 0 else down),
        needed=needed,
        n=total,
        items=groups,
    )


def _items_to_settle(deviation: float, margin: float, difference: float, *, alpha: float, tests: int) -> int | None:
    """Return how many items would show the difference within the margin or, if it lies there, beyond it."""
    if abs(difference) <= margin:
        return items_needed(deviation, margin, difference=difference, alpha=alpha)
    from scipy.special import ndtri

    reach = float(ndtri(1 - alpha / tests) + ndtri(POWER))
    return math.ceil((deviation * reach / (abs(difference) - margin)) ** 2) + 1  # one for t instead of z


def resolved_margin(error: float, items: int, *, alpha: float = 0.05, power: float = POWER) -> float:
    """Return the margin that a test with this standard error passes with the given power, if nothing differs."""
    from scipy.special import ndtri, stdtrit

    return float(error * (stdtrit(items - 1, 1 - alpha) + ndtri((1 + power) / 2)))


def items_needed(
    deviation: float, margin: float, *, difference: float = 0.0, alpha: float = 0.05, power: float = POWER
) -> int | None:
    """Return how many items make the test pass with the given power, if the true difference is this one.

    `deviation` is the standard deviation of the items' differences. `None` when the difference is not within the
    margin, or more than ten million items would be needed.
    """
    if (
        abs(difference) >= margin
        or equivalence_power(deviation, MOST_ITEMS, margin, difference=difference, alpha=alpha) < power
    ):
        return None
    few, enough = 1, 2
    while equivalence_power(deviation, enough, margin, difference=difference, alpha=alpha) < power:
        few, enough = enough, enough * 2
    while enough - few > 1:
        middle = (few + enough) // 2
        if equivalence_power(deviation, middle, margin, difference=difference, alpha=alpha) < power:
            few = middle
        else:
            enough = middle
    return enough


def equivalence_power(
    deviation: float, items: int, margin: float, *, difference: float = 0.0, alpha: float = 0.05
) -> float:
    """Return the chance that the test passes; normal approximation with the critical value of t."""
    from scipy.special import ndtr, stdtrit

    error = deviation / math.sqrt(items)
    critical = float(stdtrit(items - 1, 1 - alpha))
    above = ndtr((margin - difference) / error - critical)
    below = ndtr((margin + difference) / error - critical)
    return max(0.0, float(above + below - 1))
