"""Intervals: the cluster bootstrap over users, and Wilson's interval where resampling users cannot tell anything.

One user's pairs are not independent, so users are resampled and rows are not (Davison and Hinkley 1997, section 3.8;
Field and Welsh 2007). One set of draws serves all ratios that are asked for together, which is what makes their
differences paired. Every accuracy, gain, gap and group figure is a ratio of sums over users and gets its interval in
`RatioDraws.estimate`. For the same reason users, and not rows, are dealt to the folds that something is fitted on.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from prbench.errors import UsageError
from prbench.schema import Estimate

FloatArray = npt.NDArray[np.float64]

DRAWS = 10_000
LEVEL = 0.95
FOLDS = 5
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
    center = (p + z * z / (2 * n)) / (1 + z * z / n)
    half = z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n)) / (1 + z * z / n)
    # At the ends of the range the closed form misses 0 or 1 by a rounding error.
    return (0.0 if p <= 0 else center - half, 1.0 if p >= 1 else center + half)


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


def percentile_interval(samples: FloatArray) -> tuple[float, float]:
    """Return the 95 % percentile interval (Efron 1979) of one statistic; draws without a value are left out."""
    tail = 100 * (1 - LEVEL) / 2
    low, high = np.percentile(samples[~np.isnan(samples)], [tail, 100 - tail])
    return float(low), float(high)


@dataclass(frozen=True, slots=True, kw_only=True)
class RatioDraws:
    """Several ratios of sums over rows, all computed on the same draws of users."""

    values: FloatArray  # (ratios,)
    counts: npt.NDArray[np.int64]  # (ratios,) rows with a denominator
    users: npt.NDArray[np.int64]  # (ratios,) users with a denominator
    samples: FloatArray  # (draws, ratios)
    span: tuple[float, float]  # the range in which one row's value lies

    def estimate(self, column: int, *, minus: int | None = None) -> Estimate:
        """Return one ratio, or what is left of it after another one, with its 95 % interval.

        A difference is paired by the common draws. The bootstrap sees no variation when one user is behind the figure,
        or when it stands at an end of its range; the interval is then Wilson's over rows, stretched to the range.
        """
        columns = [column] if minus is None else [column, minus]
        count, users = int(self.counts[columns].min()), int(self.users[columns].min())
        if count == 0:
            behind = "this number" if minus is None else "one side of this difference"
            raise UsageError(f"There are no rows behind {behind}. Check the filters and the limit of this run.")
        least, most = self.span
        value, samples = self.values[column], self.samples[:, column]
        if minus is not None:
            least, most = least - most, most - least
            value, samples = value - self.values[minus], samples - self.samples[:, minus]
        width = most - least
        if users > 1 and value not in (least, most):
            low, high = percentile_interval(samples)
        else:
            low, high = (least + width * end for end in wilson(count * (value - least) / width, count))
        return Estimate(value=float(value), low=float(low), high=float(high), n=count)

    def p_value(self, column: int, *, minus: int) -> float | None:
        """Return the p-value of a t test on a difference, users resampled; `None` with a single user."""
        from scipy.stats import t

        error, users = self.standard_error(column, minus=minus), int(self.users[[column, minus]].min())
        if error is None:
            return None
        difference = float(self.values[column] - self.values[minus])
        if error == 0:
            return 1.0 if difference == 0 else 0.0
        return float(2 * t.sf(abs(difference) / error, users - 1))

    def standard_error(self, column: int, *, minus: int) -> float | None:
        """Return the bootstrap's error of a difference, corrected for few users; `None` with a single one."""
        users = int(self.users[[column, minus]].min())
        if users < 2:
            return None
        samples = self.samples[:, column] - self.samples[:, minus]
        return float(samples[~np.isnan(samples)].std() * math.sqrt(users / (users - 1)))


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
    top, bottom = (
        columns[:, None] if columns.ndim == 1 else columns
        for columns in (np.asarray(values, dtype=np.float64) for values in (numerators, denominators))
    )
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusteredShare:
    """A share of points with two intervals that know that the answers to one item belong together."""

    estimate: Estimate  # bootstrap over items, 95 %; `n` counts items
    low: float  # Wilson's interval with the effective number of answers, at the level asked for
    high: float
    answers: int
    effective: float  # independent answers that would tell as much


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


def items_to_tell(share: ClusteredShare, bar: float, *, level: float = 0.95) -> int | None:
    """Return how many items show with 80 % power on which side of the bar the share lies, if it is what was seen.

    `None` when the share is the bar itself. Source of the formula: the test of one proportion, e.g. Fleiss, Levin and
    Paik 2003, section 2.5.
    """
    value = share.estimate.value
    if math.isclose(value, bar):
        return None
    normal = NormalDist()
    tail, reach = normal.inv_cdf(0.5 + level / 2), normal.inv_cdf(0.8)
    answers = ((tail * math.sqrt(bar * (1 - bar)) + reach * math.sqrt(value * (1 - value))) / (value - bar)) ** 2
    return math.ceil(answers / (share.effective / share.estimate.n))


def user_folds(user_ids: Sequence[str]) -> npt.NDArray[np.int64]:
    """Return the fold of each row: a hash of its user's id, so that adding a user moves nobody else.

    When all of a handful of users hash alike, each becomes a fold of their own. One user is one fold.
    """
    fold_of = {user: int.from_bytes(sha256(user.encode()).digest()[:8], "big") % FOLDS for user in set(user_ids)}
    if len(set(fold_of.values())) == 1:
        fold_of = {user: index for index, user in enumerate(sorted(fold_of))}
    return np.array([fold_of[user] for user in user_ids], dtype=np.int64)
