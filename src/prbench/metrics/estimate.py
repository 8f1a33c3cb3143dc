"""Intervals: the cluster bootstrap over users, and Wilson's interval where resampling users cannot tell anything.

One user's pairs are not independent, so users are resampled and rows are not. One set of draws serves all ratios that
are asked for together, which is what makes their differences paired.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from prbench.errors import UsageError
from prbench.schema import Estimate

FloatArray = npt.NDArray[np.float64]

DRAWS = 10_000
LEVEL = 0.95
_BLOCK_CELLS = 1 << 18  # cells of one (draws, users) block: 2 MB as float64
_USERS_PER_KIND = 20  # from this many users per kind on, drawing counts of kinds is faster than drawing users


def wilson(successes: float, n: float, *, level: float = LEVEL) -> tuple[float, float]:
    """Return Wilson's score interval for a proportion; `successes` may hold halves (ties).

    Source: Wilson 1927. For values anywhere in [0, 1] with that mean it is conservative, because no such variable
    varies more than a coin of the same mean.
    """
    if n <= 0:
        raise UsageError("There are no rows to make an interval from. Check the filters and the limit of this run.")
    z = NormalDist().inv_cdf(0.5 + level / 2)
    p = successes / n
    centre = (p + z * z / (2 * n)) / (1 + z * z / n)
    half = z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n)) / (1 + z * z / n)
    # At the ends of the range the closed form misses 0 or 1 by a rounding error.
    return (0.0 if p <= 0 else centre - half, 1.0 if p >= 1 else centre + half)


def user_weights(sizes: npt.NDArray[np.int64], *, seed: int, draws: int = DRAWS) -> Iterator[FloatArray]:
    """Yield how often each kind of user is drawn, in blocks of shape (draws, kinds) that bound the memory.

    `sizes` says how many users are of each kind: users whose rows add up to the same are interchangeable. Where kinds
    are few, their counts are drawn at once (multinomial), which is the same experiment at a fraction of the cost.
    """
    generator = np.random.Generator(np.random.PCG64(seed))
    users = int(sizes.sum())
    if len(sizes) * _USERS_PER_KIND <= users:
        yield generator.multinomial(users, sizes / users, size=draws).astype(np.float64)
        return
    kind_of = np.repeat(np.arange(len(sizes)), sizes)
    kinds = len(sizes)
    block = max(1, _BLOCK_CELLS // users)
    for start in range(0, draws, block):
        rows = min(block, draws - start)
        drawn = generator.integers(0, users, size=(rows, users), dtype=np.int32)
        cells = kind_of[drawn] if kinds < users else drawn
        places = (cells + np.arange(rows)[:, None] * kinds).ravel()
        yield np.bincount(places, minlength=rows * kinds).reshape(rows, kinds).astype(np.float64)


def percentile_interval(samples: FloatArray, *, level: float = LEVEL) -> tuple[float, float]:
    """Return the percentile interval of one statistic; draws in which it is undefined are left out."""
    defined = samples[~np.isnan(samples)]
    tail = 100 * (1 - level) / 2
    low, high = np.percentile(defined, [tail, 100 - tail])
    return float(low), float(high)


@dataclass(frozen=True, slots=True, kw_only=True)
class RatioDraws:
    """Several ratios of sums over rows, all computed on the same draws of users."""

    values: FloatArray  # (ratios,)
    counts: npt.NDArray[np.int64]  # (ratios,) rows with a denominator
    users: npt.NDArray[np.int64]  # (ratios,) users with a denominator
    samples: FloatArray  # (draws, ratios)
    span: tuple[float, float]  # the range in which one row's value lies

    def estimate(self, column: int) -> Estimate:
        """Return one ratio with its 95 % interval.

        The bootstrap sees no variation when one user is behind the ratio, or when the ratio stands at an end of its
        range; the interval is then Wilson's over rows, stretched to the range.
        """
        count = int(self.counts[column])
        if count == 0:
            raise UsageError("There are no rows behind this number. Check the filters and the limit of this run.")
        value = float(self.values[column])
        low, high = self._interval(self.samples[:, column], value, count, int(self.users[column]), self.span)
        return Estimate(value=value, low=low, high=high, n=count)

    def difference(self, first: int, second: int) -> Estimate:
        """Return ratio `first` minus ratio `second`, paired by the common draws."""
        count = int(min(self.counts[first], self.counts[second]))
        if count == 0:
            raise UsageError("There are no rows behind one side of this difference. Check the filters of this run.")
        width = self.span[1] - self.span[0]
        value = float(self.values[first] - self.values[second])
        users = int(min(self.users[first], self.users[second]))
        samples = self.samples[:, first] - self.samples[:, second]
        low, high = self._interval(samples, value, count, users, (-width, width))
        return Estimate(value=value, low=low, high=high, n=count)

    @staticmethod
    def _interval(
        samples: FloatArray, value: float, count: int, users: int, span: tuple[float, float]
    ) -> tuple[float, float]:
        if users > 1 and value not in span:
            return percentile_interval(samples)
        width = span[1] - span[0]
        low, high = wilson(count * (value - span[0]) / width, count)
        return span[0] + width * low, span[0] + width * high


def ratio_draws(
    numerators: npt.ArrayLike,
    denominators: npt.ArrayLike,
    user_ids: Sequence[str],
    *,
    seed: int = 0,
    draws: int = DRAWS,
    span: tuple[float, float] = (0.0, 1.0),
) -> RatioDraws:
    """Return sum(numerator) / sum(denominator) for every column, with draws for intervals and differences.

    Arrays have one row per row and one column per ratio (or are flat, for one ratio). A row outside a ratio has 0 in
    both. The result does not depend on the order of the rows.
    """
    if not user_ids:
        raise UsageError("There are no rows to make an estimate from. Check the filters and the limit of this run.")
    top, bottom = _as_columns(numerators), _as_columns(denominators)
    ratios = top.shape[1]
    codes = {user: code for code, user in enumerate(sorted(set(user_ids)))}
    owners = np.array([codes[user] for user in user_ids])
    cells = np.hstack([top, bottom])
    # Sums of floats depend on their order, so rows are brought into one that only their content decides.
    order = np.lexsort((*cells.T, owners))
    cells, owners = cells[order], owners[order]
    starts = np.searchsorted(owners, np.arange(len(codes)))
    sums = np.add.reduceat(cells, starts, axis=0)  # (users, 2 * ratios)
    kinds, sizes = np.unique(sums, axis=0, return_counts=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        totals = sizes @ kinds
        drawn = np.concatenate([weights @ kinds for weights in user_weights(sizes, seed=seed, draws=draws)])
        return RatioDraws(
            values=totals[:ratios] / totals[ratios:],
            counts=np.count_nonzero(bottom, axis=0),
            users=np.count_nonzero(sums[:, ratios:], axis=0),
            samples=drawn[:, :ratios] / drawn[:, ratios:],
            span=span,
        )


def _as_columns(values: npt.ArrayLike) -> FloatArray:
    array = np.asarray(values, dtype=np.float64)
    return array[:, None] if array.ndim == 1 else array


def ratio_estimates(
    numerators: npt.ArrayLike,
    denominators: npt.ArrayLike,
    user_ids: Sequence[str],
    *,
    seed: int = 0,
    draws: int = DRAWS,
    span: tuple[float, float] = (0.0, 1.0),
) -> list[Estimate]:
    """Return one estimate per column, all from the same draws of users; see `ratio_draws`."""
    ratios = ratio_draws(numerators, denominators, user_ids, seed=seed, draws=draws, span=span)
    return [ratios.estimate(column) for column in range(len(ratios.values))]


def weighted_estimate(
    statistic: Callable[[FloatArray], FloatArray],
    sizes: npt.NDArray[np.int64],
    *,
    n: int,
    seed: int = 0,
    draws: int = DRAWS,
) -> Estimate:
    """Return any statistic of user weights: `statistic` turns weights (draws, kinds) into values (draws,).

    For what is no ratio of sums, such as the worst decile; `sizes` is as in `user_weights`. The caller deals with the
    case of a single user.
    """
    value = float(statistic(sizes[None, :].astype(np.float64))[0])
    samples = np.concatenate([statistic(weights) for weights in user_weights(sizes, seed=seed, draws=draws)])
    low, high = percentile_interval(samples)
    return Estimate(value=value, low=low, high=high, n=n)
