"""Intervals: for ratios of sums over rows, clustered by users; Wilson's for a single user; a bootstrap for the rest.

One user's pairs are not independent, so the user is the unit. Every accuracy, gain, gap and group figure is a ratio of
sums over rows, or a difference of two, and gets its interval in `ClusteredRatios.estimate`: a share from a
beta-binomial posterior, a difference on the same rows from the test by the signs of users, a difference of groups from
the intervals of its shares. How often they hold the truth is measured in
docs/research/intervals.md. Where questions recur among users, the same rows cluster twice. For the same reason users,
and not rows, are dealt to the folds that something is fitted on.
"""

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from statistics import NormalDist
from typing import Literal

import numpy as np
import numpy.typing as npt

from prbench.errors import UsageError
from prbench.metrics.beta_binomial import MOST_PER_USER, UserCounts
from prbench.metrics.sign_flips import SignFlips
from prbench.schema import Estimate, RatedRow, Row

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
Over = Literal["users", "users,questions"]  # what is thought of as drawn anew: the population of an interval
Span = tuple[float, float]  # the range in which one row's value lies; infinite ends: no bounds

USERS: Over = "users"
USERS_AND_QUESTIONS: Over = "users,questions"
DRAWS = 10_000
LEVEL = 0.95
FOLDS = 5
FEW_CHANGES = 4  # rows that differ between two sides: fewer tell too little of how many do
CAUTIOUS_CORRELATION = 0.35  # of two rows of one user, where all rows are alike and nothing tells: high for real data
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


def user_weights(sizes: IntArray, *, seed: int, draws: int = DRAWS) -> Iterator[FloatArray]:
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


@dataclass(frozen=True, slots=True)
class Spread:
    """A value with its clustered standard error and the degrees of freedom behind that error."""

    value: float
    error: float
    freedom: float
    worth: float  # independent rows that would tell as much, where no cluster departs from the whole

    def quantile(self, probability: float) -> float:
        """Return the quantile of Student's t with these degrees of freedom."""
        from scipy.special import stdtrit

        return float(stdtrit(self.freedom, probability))


@dataclass(frozen=True, kw_only=True)
class ClusteredRatios:
    """Several ratios of sums over the same rows, each with what its interval needs to know of the clusters."""

    tops: FloatArray  # (rows, ratios), in an order that only the content decides
    bottoms: FloatArray  # (rows, ratios)
    owners: IntArray  # (rows,) the user of every row
    questions: IntArray | None  # (rows,) the question of every row, where questions count as drawn too
    span: Span

    @cached_property
    def values(self) -> FloatArray:
        """The ratios."""
        with np.errstate(divide="ignore", invalid="ignore"):
            result: FloatArray = self.tops.sum(axis=0) / self.bottoms.sum(axis=0)
        return result

    @cached_property
    def counts(self) -> IntArray:
        """How many rows stand behind each ratio."""
        counts: IntArray = np.count_nonzero(self.bottoms, axis=0)
        return counts

    @cached_property
    def users(self) -> IntArray:
        """How many users stand behind each ratio."""
        return np.array([len(np.unique(self.owners[column != 0])) for column in self.bottoms.T])

    def estimate(self, column: int, *, minus: int | None = None) -> Estimate:
        """Return one ratio, or what is left of it after another one, with its 95 % interval.

        Clusters tell nothing of a single user, who gets Wilson's interval over rows. A figure without bounds gets
        value ± t · error.
        """
        columns = [column] if minus is None else [column, minus]
        count = int(self.counts[columns].min())
        if count == 0:
            behind = "this number" if minus is None else "one side of this difference"
            raise UsageError(f"There are no rows behind {behind}. Check the filters and the limit of this run.")
        least, most = self._span(minus)
        value = float(self.values[column] - (0.0 if minus is None else self.values[minus]))
        if self.users[columns].min() < 2:
            if not math.isfinite(most - least):
                raise UsageError("One user is behind a figure without bounds, so it has no interval. Add users.")
            width = most - least
            low, high = (least + width * end for end in wilson(count * (value - least) / width, count))
        else:
            low, high = self._ends(column, minus)
        return Estimate(value=value, low=low, high=high, n=count)

    def p_value(self, column: int, *, minus: int | None = None) -> float | None:
        """Return the p-value against 0 that belongs to the interval; `None` where users tell nothing.

        On the same rows it is that of the test by the signs of users (`SignFlips`). Otherwise, and where too few rows
        or users differ for that test, it is that of the t whose 5 % point is the end of the interval.
        """
        from scipy.special import stdtr

        if self.users[[column] if minus is None else [column, minus]].min() < 2:
            return None
        least = 0.0
        if minus is not None and self.questions is None and self._are_paired(column, minus):
            signs = self._signs(self.owners, column, minus)
            least = signs.p_value()
            if self._is_told_by(signs, column, minus):
                return least
        found = self.spread(column, minus=minus)
        if found.value == 0:
            return 1.0
        low, high = self._ends(column, minus)
        arm = found.value - low if found.value > 0 else high - found.value
        if arm == 0:  # of a figure without bounds, whose rows are all alike
            return None
        by_interval = 2 * stdtr(found.freedom, -abs(found.value) / arm * found.quantile(0.5 + LEVEL / 2))
        return max(float(by_interval), least)

    def _are_paired(self, column: int, minus: int) -> bool:
        return np.array_equal(self.bottoms[:, column], self.bottoms[:, minus])

    def _ends(self, column: int, minus: int | None) -> Span:
        """Return the interval of a ratio or a difference behind which there are two users at least.

        With questions as a second cluster, the squared arms over users and over questions are added, and those over
        their cells, which both count, are taken off, as Cameron, Gelbach and Miller (2011) do with variances; an arm
        is never shorter than either.
        """
        least, most = self._span(minus)
        if minus is not None and self._are_paired(column, minus):
            of_users, *others = (self._paired_ends(clusters, column, minus) for clusters in self._ways)
        elif not math.isfinite(most - least):
            return interval_of(self.spread(column, minus=minus), (least, most))
        elif minus is None:
            of_users, *others = (self._share_ends(clusters, column) for clusters in self._ways)
        else:
            of_users, *others = (self._contrast_ends(clusters, column, minus) for clusters in self._ways)
        if not others:
            return of_users
        value = float(self.values[column] - (0.0 if minus is None else self.values[minus]))
        downs, ups = ([abs(ends[side] - value) for ends in (of_users, *others)] for side in (0, 1))
        down, up = (
            math.sqrt(max(user**2 + question**2 - cell**2, user**2, question**2))
            for user, question, cell in (downs, ups)
        )
        return max(value - down, least), min(value + up, most)

    @property
    def _ways(self) -> list[IntArray]:
        """The clusters: users, and where questions count as drawn too, questions and the cells of both."""
        return [self.owners] if self.questions is None else [self.owners, self.questions, self._cells]

    @cached_property
    def _cells(self) -> IntArray:
        assert self.questions is not None
        # Numbered from 0 without gaps: there may be a million users and as many questions.
        cells: IntArray = np.unique(
            self.owners * (int(self.questions.max()) + 1) + self.questions, return_inverse=True
        )[1]
        return cells

    def _share_ends(self, clusters: IntArray, column: int) -> Span:
        """Return the interval of one ratio by one way to cluster: a beta-binomial posterior, stretched to the range.

        Where all rows are alike, it reaches as far as so many rows can agree by chance, if those of one user
        correlate by `CAUTIOUS_CORRELATION`.
        """
        least, most = self.span
        counts, value = self._user_counts(clusters, column), float(self.values[column])
        if counts is None:
            alike = _ratio_spread(self.tops[:, column], self.bottoms[:, column], clusters)[:3]
            return interval_of(Spread(value, *alike), self.span)
        low, high = (least + (most - least) * end for end in counts.interval())
        return min(low, value), max(high, value)

    def _user_counts(self, clusters: IntArray, column: int) -> UserCounts | None:
        """Return rows at the upper and the lower end of the range that would tell as much; `None`: all are alike.

        Ties, and other values inside the range, vary less than right and wrong: they stand for more rows.
        """
        bottom = self.bottoms[:, column]
        top = (self.tops[:, column] - self.span[0] * bottom) / (self.span[1] - self.span[0])
        total, share = bottom.sum(), top.sum() / bottom.sum()
        independent = float(((top - share * bottom) ** 2).sum())
        if independent <= _ROUNDING * total**2 or not 0 < share < 1:
            return None
        behind = np.bincount(clusters, weights=bottom)
        inside = behind > 0
        rows = np.clip(behind[inside] * share * (1 - share) * total / independent, 1.0, MOST_PER_USER)
        right = np.bincount(clusters, weights=top)[inside] / behind[inside] * rows
        # Rounded, so that users who are alike are seen to be.
        return UserCounts(np.clip(np.round(right, 9), 0.0, None), np.clip(np.round(rows - right, 9), 0.0, None))

    def _signs(self, clusters: IntArray, column: int, minus: int) -> SignFlips:
        """Return the differences on the same rows, cluster by cluster."""
        lost, bottom = self.tops[:, column] - self.tops[:, minus], self.bottoms[:, column]
        sums = _sums(np.stack([lost, bottom], axis=1), clusters)
        return SignFlips(sums[:, 0], sums[:, 1])

    def _paired_ends(self, clusters: IntArray, column: int, minus: int) -> Span:
        """Return the interval of a difference on the same rows by one way to cluster.

        It holds what the test by the signs of clusters does not reject, and is longer on the side to which their
        departures are skewed: by Johnson's (1978) term, which is only ever added, since a few clusters show less
        skewness than there is. Where too few rows or clusters differ, it is a clustered t with a cautious error.
        """
        least, most = self._span(minus)
        found, ends, longer = self._paired(clusters, column, minus)
        if ends is None:
            low, high = interval_of(found, (least, most))
            rejected = self._signs(clusters, column, minus).p_value() < 1 - LEVEL
            return (low, high) if rejected else (min(low, 0.0), max(high, 0.0))
        low, high = max(ends[0] - max(-longer, 0.0), least), min(ends[1] + max(longer, 0.0), most)
        # Where the test rejects 0, so does the interval.
        return ends if low <= 0 <= high and not ends[0] <= 0 <= ends[1] else (low, high)

    def _is_told_by(self, signs: SignFlips, column: int, minus: int) -> bool:
        """Tell whether enough rows and enough clusters differ for the signs of clusters to tell anything."""
        lost = self.tops[:, column] - self.tops[:, minus]
        return signs.can_reject(1 - LEVEL) and bool(np.count_nonzero(lost) >= FEW_CHANGES)

    @cached_property
    def _known_pairs(self) -> dict[tuple[int, int, int], tuple[Spread, Span | None, float]]:
        return {}

    def _paired(self, clusters: IntArray, column: int, minus: int) -> tuple[Spread, Span | None, float]:
        """Return what `_pair` returns, which interval, p-value and resolution all ask for."""
        key = (id(clusters), column, minus)
        if key not in self._known_pairs:
            self._known_pairs[key] = self._pair(clusters, column, minus)
        return self._known_pairs[key]

    def _pair(self, clusters: IntArray, column: int, minus: int) -> tuple[Spread, Span | None, float]:
        """Return the spread of a difference on the same rows, the interval by signs, and Johnson's term.

        The difference is one ratio, of the differences row by row. Where hardly any differ, their sum of squares is
        known badly; it is not taken to be less than if none did.
        """
        lost, bottom = self.tops[:, column] - self.tops[:, minus], self.bottoms[:, column]
        value = float(self.values[column] - self.values[minus])
        error, freedom, worth, departures = _ratio_spread(lost, bottom, clusters)
        if error == 0 or np.count_nonzero(lost) < FEW_CHANGES:
            return Spread(value, max(error, _cautious_error(freedom, worth, self._width)), freedom, worth), None, 0.0
        signs = self._signs(clusters, column, minus)
        if not self._is_told_by(signs, column, minus):
            return Spread(value, error, freedom, worth), None, 0.0
        ends = signs.interval(1 - LEVEL)
        z = NormalDist().inv_cdf(0.5 + LEVEL / 2)
        longer = float((departures**3).sum()) / error**2 * (2 * z**2 + 1) / 6
        return Spread(value, error, freedom, worth), ends, longer

    def _contrast_ends(self, clusters: IntArray, column: int, minus: int) -> Span:
        """Return the interval of a difference of groups by one way to cluster, from those of its two shares.

        Each arm is made of the arms that lead there (Zou and Donner 2008); users in both groups are taken into
        account by the correlation of their departures.
        """
        columns = (column, minus)
        ends = [self._share_ends(clusters, each) for each in columns]
        departures = [_ratio_spread(self.tops[:, each], self.bottoms[:, each], clusters)[3] for each in columns]
        size = math.sqrt(float((departures[0] ** 2).sum() * (departures[1] ** 2).sum()))
        together = float(departures[0] @ departures[1]) / size if size else 0.0
        first, second = (float(self.values[each]) for each in columns)

        def arm(one: float, other: float) -> float:
            return math.sqrt(max(one**2 + other**2 - 2 * together * one * other, 0.0))

        down = arm(first - ends[0][0], ends[1][1] - second)
        up = arm(ends[0][1] - first, second - ends[1][0])
        return first - second - down, first - second + up

    def spread(self, column: int, *, minus: int | None = None) -> Spread:
        """Return a ratio or a difference with its standard error; two users at least have to be behind it.

        With questions as a second cluster, the variances over users and over questions are added, and that over their
        cells, which both count, is taken off (Cameron, Gelbach and Miller 2011); it is never below either.
        """
        by_user, *others = (self._one_way(clusters, column, minus) for clusters in self._ways)
        if not others:
            return by_user
        by_question, by_cell = others
        parts = [by_user.error**2, by_question.error**2]
        variance = max(sum(parts) - by_cell.error**2, *parts)
        # The fewer degrees of freedom of the two, so that it is never narrower than the interval for new users alone.
        freedom = min(by_user.freedom, by_question.freedom)
        return Spread(by_user.value, math.sqrt(variance), freedom, min(by_user.worth, by_question.worth))

    def samples(self, *, seed: int = 0, draws: int = DRAWS) -> FloatArray:
        """Return what the ratios would be with other users, (draws, ratios): the plain bootstrap over users."""
        count = self.tops.shape[1]
        sums = _sums(np.hstack([self.tops, self.bottoms]), self.owners)
        kinds, sizes = np.unique(sums, axis=0, return_counts=True)
        with np.errstate(divide="ignore", invalid="ignore"):
            drawn = np.concatenate([weights @ kinds for weights in user_weights(sizes, seed=seed, draws=draws)])
            result: FloatArray = drawn[:, :count] / drawn[:, count:]
        return result

    def _span(self, minus: int | None) -> Span:
        width = self.span[1] - self.span[0]
        return self.span if minus is None else (-width, width)

    def combined(self, weights: Mapping[int, float]) -> Spread:
        """Return a weighted sum of ratios, by column, with its clustered standard error."""
        value = float(sum(weight * self.values[column] for column, weight in weights.items()))
        return Spread(value, *self._sum_of(self.owners, weights))

    def _one_way(self, clusters: IntArray, column: int, minus: int | None) -> Spread:
        """Return the spread by one way to cluster."""
        if minus is not None and self._are_paired(column, minus):
            return self._paired(clusters, column, minus)[0]
        if minus is not None:
            value = float(self.values[column] - self.values[minus])
            return Spread(value, *self._sum_of(clusters, {column: 1.0, minus: -1.0}))
        found = _ratio_spread(self.tops[:, column], self.bottoms[:, column], clusters)[:3]
        return Spread(float(self.values[column]), *found)

    @property
    def _width(self) -> float:
        width = self.span[1] - self.span[0]
        return width if math.isfinite(width) else 0.0

    def _sum_of(self, clusters: IntArray, weights: Mapping[int, float]) -> tuple[float, float, float]:
        """Return the same for a weighted sum of ratios, which may stand on different rows."""
        parts = [_ratio_spread(self.tops[:, column], self.bottoms[:, column], clusters) for column in weights]
        factors = list(weights.values())
        # What is all right in few rows is not known for certain: it brings the error of so many rows that agree.
        floors = [0.0 if part[0] else _cautious_error(part[1], part[2], self._width) for part in parts]
        variances = [
            factor**2 * max(part[0], floor) ** 2 for factor, part, floor in zip(factors, parts, floors, strict=True)
        ]
        departures = sum(factor * part[3] for factor, part in zip(factors, parts, strict=True))
        variance = float(np.sum(np.square(departures)))
        variance += sum((factor * floor) ** 2 for factor, floor in zip(factors, floors, strict=True))
        # Welch (1947), for groups of users that differ in size.
        shares = sum(each**2 / part[1] for each, part in zip(variances, parts, strict=True))
        freedom = sum(variances) ** 2 / shares if shares else min(part[1] for part in parts)
        behind = np.stack([np.bincount(clusters, weights=self.bottoms[:, column]) for column in weights])
        if (np.count_nonzero(behind, axis=0) > 1).any():  # users on several sides are no users more
            held = np.abs(factors) @ (behind / behind.sum(axis=1, keepdims=True))
            freedom = min(freedom, max(float(held.sum() ** 2 / (held**2).sum()) - 1, 1.0))
        return math.sqrt(variance), freedom, min(part[2] for part in parts)


def _ratio_spread(top: FloatArray, bottom: FloatArray, clusters: IntArray) -> tuple[float, float, float, FloatArray]:
    """Return standard error, degrees of freedom, worth in independent rows, and every cluster's own departure.

    The error is that of the jackknife over clusters (CR3: MacKinnon and White 1985), which does not shrink where one
    cluster holds much of the rows. The clusters count as (sum n)^2 / sum n^2 of equal ones (Kish 1965).
    """
    total = float(bottom.sum())
    departures = np.asarray(np.bincount(clusters, weights=top - top.sum() / total * bottom), dtype=np.float64)
    behind = np.bincount(clusters, weights=bottom)
    rows = np.bincount(clusters, weights=bottom != 0)
    count, effective = np.count_nonzero(behind), total**2 / float((behind**2).sum())
    worth = independent_rows(rows[rows > 0].tolist(), CAUTIOUS_CORRELATION)
    if count > 1:
        departures = departures / (1 - behind / total) * math.sqrt((count - 1) / count)
    variance = float((departures**2).sum())
    if variance <= _ROUNDING * total**2:
        variance, departures = 0.0, np.zeros_like(departures)
    return math.sqrt(variance) / total, max(effective - 1, 1.0), worth, departures / total


def independent_rows(rows_of_users: Collection[float], correlation: float) -> float:
    """Return how many independent rows these are worth: n / (1 + (m - 1) rho), Kish's design effect (1965).

    m is the mean number of rows per user as a row sees it, so that users with many rows count: sum of squares / n.
    """
    rows = sum(rows_of_users)
    rows_per_user = sum(count**2 for count in rows_of_users) / rows
    return rows / (1 + (rows_per_user - 1) * correlation)


def _cautious_error(freedom: float, worth: float, width: float) -> float:
    """Return the error of a figure whose rows are all alike: t of it reaches as far as `wilson` does for none of n."""
    from scipy.special import stdtrit

    return width * wilson(0, worth)[1] / float(stdtrit(freedom, 0.5 + LEVEL / 2))


_ROUNDING = 1e-24  # a squared departure below it is the rounding error of sums


def _sums(cells: FloatArray, clusters: IntArray) -> FloatArray:
    """Return the sums of rows cluster by cluster: (rows, columns) to (clusters, columns)."""
    return np.stack([np.bincount(clusters, weights=column) for column in cells.T], axis=1)


def _on_the_logit(value: float, span: Span) -> tuple[float, float]:
    """Return where a value lies on the logit of its range, and how steep the logit is there; as it is without bounds.

    For a difference of shares, the logit within (-1, 1) is twice Fisher's z, and its middle is no difference.
    """
    least, most = span
    if not math.isfinite(most - least):
        return value, 1.0
    below, above = value - least, most - value
    return math.log(below / above), (most - least) / (below * above)


def interval_of(found: Spread, span: Span) -> Span:
    """Return the 95 % interval of a value within a range: value ± t · error on the logit of the range, brought back.

    For a difference of shares that is Fisher's z.
    """
    from scipy.special import expit

    least, most = span
    bounded = math.isfinite(most - least)
    if found.error == 0 or not least < found.value < most:
        # As if Wilson's upper end for none of so many rows stood at one end of the range.
        reach = wilson(0, found.worth)[1] if bounded else 0.0
        return (
            found.value - reach * (found.value - least if bounded else 0.0),
            found.value + reach * (most - found.value if bounded else 0.0),
        )
    place, slope = _on_the_logit(found.value, span)
    half = found.quantile(0.5 + LEVEL / 2) * found.error * slope
    if not bounded:
        return place - half, place + half
    low, high = (least + (most - least) * float(expit(end)) for end in (place - half, place + half))
    return low, high


def clustered_ratios(
    numerators: npt.ArrayLike,
    denominators: npt.ArrayLike,
    user_ids: Sequence[str],
    *,
    questions: Sequence[str] | None = None,
    span: Span = (0.0, 1.0),
) -> ClusteredRatios:
    """Return sum(numerator) / sum(denominator) for every column, with what intervals and differences need.

    Arrays have one row per row and one column per ratio (or are flat, for one ratio). A row outside a ratio has 0 in
    both. With `questions`, one name a row, intervals are for new users and new questions. The result does not depend
    on the order of the rows.
    """
    if not user_ids:
        raise UsageError("There are no rows to make an estimate from. Check the filters and the limit of this run.")
    top, bottom = (
        columns[:, None] if columns.ndim == 1 else columns
        for columns in (np.asarray(values, dtype=np.float64) for values in (numerators, denominators))
    )
    owners = _codes(user_ids)
    topics = None if questions is None else _codes(questions)
    # Sums of floats depend on their order, so rows are brought into one that only their content decides.
    order = np.lexsort((*top.T, *bottom.T, *([] if topics is None else [topics]), owners))
    return ClusteredRatios(
        tops=top[order],
        bottoms=bottom[order],
        owners=owners[order],
        questions=None if topics is None else topics[order],
        span=span,
    )


def questions_of(rows: Sequence[Row | RatedRow], over: Over) -> list[str] | None:
    """Return the question of every row where questions are to count as drawn anew, else `None`."""
    if over == USERS:
        return None
    if not all(row.question_hash for row in rows):
        raise UsageError("These rows do not name their questions, so nothing is known of new ones. Resample users.")
    return [row.question_hash for row in rows]


def _codes(names: Sequence[str]) -> IntArray:
    """Number names from 0 in alphabetical order."""
    codes = {name: code for code, name in enumerate(sorted(set(names)))}
    return np.array([codes[name] for name in names])


def ratio_estimates(
    numerators: npt.ArrayLike,
    denominators: npt.ArrayLike,
    user_ids: Sequence[str],
    *,
    questions: Sequence[str] | None = None,
    span: Span = (0.0, 1.0),
) -> list[Estimate]:
    """Return one estimate per column; see `clustered_ratios`."""
    ratios = clustered_ratios(numerators, denominators, user_ids, questions=questions, span=span)
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

    estimate: Estimate  # clustered by items, 95 %; `n` counts items
    low: float  # Wilson's interval with the effective number of answers, at the level asked for
    high: float
    answers: int
    effective: float  # independent answers that would tell as much


def clustered_share(points: Sequence[float], items: Sequence[str], *, level: float = 0.95) -> ClusteredShare:
    """Mean of points in [0, 1], each of them one answer to an item; answers to one item are not independent.

    Wilson's interval takes the answers divided by their design effect: the variance clustered by items over that of
    independent answers (Kish 1965). It is at most the number of answers; where all points are the same and no variance
    can be seen, it is the number of items.
    """
    names, owners = np.unique(np.array(items, dtype=object), return_inverse=True)
    values = np.array(points, dtype=np.float64)
    sums, counts = np.bincount(owners, weights=values), np.bincount(owners).astype(np.float64)
    estimate = ratio_estimates(sums, counts, [str(name) for name in names])[0]
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
