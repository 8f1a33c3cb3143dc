"""How well a model's scores follow the scores that people gave themselves, person by person."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from prbench.errors import UsageError
from prbench.metrics.estimate import ClusteredRatios, FloatArray, clustered_ratios, ratio_estimates, user_folds
from prbench.metrics.personal import pair_probes
from prbench.schema import Estimate, Probe, RatedRow

LEAST_ROWS = 3  # fewer ratings of one person have no rank order worth the name
COLUMN_DIGITS = 6  # of what stands in every row: the last bits of a score depend on the batch it was in


@dataclass(frozen=True, slots=True, kw_only=True)
class RatedSummary:
    """Figures of one probe. Means are over users, so a user with many ratings weighs no more than the others."""

    alignment: Estimate | None  # headline: an unreadable score earns 0; `None` with a single user
    alignment_readable: Estimate | None
    floor: Estimate | None  # alignment of guessing the other users' mean rating each time
    spearman: Estimate | None  # `None` when no user can be ranked
    kendall: Estimate | None
    coverage: Estimate
    users: int
    users_left_out: int  # of the rank correlations: fewer than three readable rows, or all ratings equal


@dataclass(frozen=True, slots=True, kw_only=True)
class RatedContrast:
    """One probe minus another on the same items; the parts are `None` where they cannot be computed."""

    alignment: Estimate | None
    spearman: Estimate | None


def rated_summary(rows: Sequence[RatedRow]) -> RatedSummary:
    """Alignment and rank correlation of the rows of one probe.

    A model's scale is its own, so a monotone map from score to rating is fitted on the other users (isotonic
    regression, Barlow et al. 1972; five folds of users); alignment is 1 - |mapped score - rating|. Rank correlations
    need no map.
    """
    if not rows:
        raise UsageError("There are no rated rows to summarize. Check the filters and the limit of this run.")
    if len({row.probe for row in rows}) > 1:
        raise UsageError("These rated rows mix several probes, so items count twice. Give the rows of one probe.")
    rows = sorted(rows, key=lambda row: (row.user_id, row.id))
    users = [row.user_id for row in rows]
    readable = [float(row.score is not None) for row in rows]
    aligned = alignments(rows)
    floor = _floor(rows)
    correlations = rank_correlations(rows)
    return RatedSummary(
        alignment=None if aligned is None else _macro(users, np.nan_to_num(aligned)),
        alignment_readable=None if aligned is None else _macro(users, aligned),
        floor=None if floor is None else _macro(users, floor),
        spearman=_macro_of_users({user: pair[0] for user, pair in correlations.items()}, rows),
        kendall=_macro_of_users({user: pair[1] for user, pair in correlations.items()}, rows),
        coverage=ratio_estimates(readable, np.ones(len(rows)), users)[0],
        users=len(set(users)),
        users_left_out=len(set(users)) - len(correlations),
    )


def predictions(rows: Sequence[RatedRow]) -> FloatArray | None:
    """Return the score of every row on the scale of ratings, NaN where the score is missing.

    The map is isotonic, increasing, held constant beyond its ends, and fitted on the readable rows of other users.
    `None` when some fold has nothing to be fitted on: a single user, or readable scores in one fold only.
    """
    from sklearn.isotonic import IsotonicRegression

    scores = np.array([np.nan if row.score is None else row.score for row in rows], dtype=np.float64)
    ratings = _ratings(rows)
    readable = ~np.isnan(scores)
    folds = user_folds([row.user_id for row in rows])
    result = np.full(len(rows), np.nan)
    for fold in sorted(set(folds[readable].tolist())):
        others, held_out = readable & (folds != fold), readable & (folds == fold)
        if not others.any():
            return None
        curve = IsotonicRegression(increasing=True, out_of_bounds="clip").fit(scores[others], ratings[others])
        result[held_out] = curve.predict(scores[held_out])
    return result if len(set(folds.tolist())) > 1 else None


def alignments(rows: Sequence[RatedRow]) -> FloatArray | None:
    """Return 1 - |mapped score - rating| for every row, NaN where the score is missing; see `predictions`."""
    predicted = predictions(rows)
    return None if predicted is None else _closeness(predicted, rows)


def with_alignments(rows: Sequence[RatedRow]) -> list[RatedRow]:
    """Return all rows of a run with `predicted` and `alignment`, `None` where there is no score, or no map.

    Each probe has its own map, and it was fitted on other users: one more row can change the columns of all.
    """
    found = [replace(row, predicted=None, alignment=None) for row in rows]
    for probe in Probe:
        places = [place for place, row in enumerate(rows) if row.probe is probe]
        own = [rows[place] for place in places]
        predicted = predictions(own) if own else None
        if predicted is None:
            continue
        for place, value, alignment in zip(places, predicted, _closeness(predicted, own), strict=True):
            if not np.isnan(value):
                found[place] = replace(
                    found[place],
                    predicted=round(float(value), COLUMN_DIGITS),
                    alignment=round(float(alignment), COLUMN_DIGITS),
                )
    return found


def _closeness(predicted: FloatArray, rows: Sequence[RatedRow]) -> FloatArray:
    closeness: FloatArray = 1 - np.abs(predicted - _ratings(rows))
    return closeness


def _ratings(rows: Sequence[RatedRow]) -> FloatArray:
    return np.array([row.rating for row in rows], dtype=np.float64)


def _floor(rows: Sequence[RatedRow]) -> FloatArray | None:
    """Return the alignments of a model that knows nothing but the mean rating of the other users."""
    ratings = _ratings(rows)
    folds = user_folds([row.user_id for row in rows])
    if len(set(folds.tolist())) < 2:
        return None
    means = {fold: ratings[folds != fold].mean() for fold in set(folds.tolist())}
    guesses = np.array([means[fold] for fold in folds.tolist()])
    return _closeness(guesses, rows)


def rank_correlations(rows: Sequence[RatedRow]) -> dict[str, tuple[float, float]]:
    """Return Spearman's rho and Kendall's tau-b of every user who can be ranked.

    A model that gives one user the same score throughout has not ranked anything: that is a correlation of 0, not a
    gap.
    """
    from scipy.stats import kendalltau, spearmanr

    by_user: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        if row.score is not None:
            by_user.setdefault(row.user_id, []).append((row.score, row.rating))
    found = {}
    for user, pairs in sorted(by_user.items()):
        scores, ratings = zip(*pairs, strict=True)
        if len(pairs) < LEAST_ROWS or len(set(ratings)) == 1:
            continue
        constant = len(set(scores)) == 1
        found[user] = (
            (0.0, 0.0)
            if constant
            else (float(spearmanr(scores, ratings).statistic), float(kendalltau(scores, ratings).statistic))
        )
    return found


def rated_contrast(rows: Sequence[RatedRow], other: Probe) -> RatedContrast | None:
    """The user's own context minus another probe, on items that have both probes; `None` when none has.

    That is the gain over no context, or what is lost with another user's. Each probe gets its own map from score to
    rating: a context that only shifts the scale has told nothing about the user.
    """
    shared = sorted(pair_probes(rows, Probe.OWN, other), key=lambda pair: (pair[0].user_id, pair[0].id))
    if not shared:
        return None
    sides = [list(side) for side in zip(*shared, strict=True)]
    still = all(first.score == second.score is not None for first, second in zip(*sides, strict=True))
    users = [row.user_id for row in sides[0]]
    aligned = [alignments(side) for side in sides]
    alignment = None
    if aligned[0] is not None and aligned[1] is not None:
        points = np.column_stack([np.nan_to_num(aligned[0]), np.nan_to_num(aligned[1])])
        alignment = replace(_user_means(users, points).estimate(0, minus=1), n=len(users))
    spearman = _spearman_difference(sides)
    if still:  # the same scores for everybody: 0 for certain
        alignment, spearman = (each and replace(each, low=0.0, high=0.0) for each in (alignment, spearman))
    return RatedContrast(alignment=alignment, spearman=spearman)


def _spearman_difference(sides: Sequence[Sequence[RatedRow]]) -> Estimate | None:
    """Return the difference of the users' mean rho, over rows readable under both probes."""
    one, other = ({row.id for row in side if row.score is not None} for side in sides)
    readable = one & other
    first, second = (rank_correlations([row for row in side if row.id in readable]) for side in sides)
    users = sorted(first.keys() & second.keys())
    if not users:
        return None
    values = [[first[user][0], second[user][0]] for user in users]
    draws = clustered_ratios(values, np.ones((len(users), 2)), users, span=(-1.0, 1.0))
    ranked = set(users)
    return replace(draws.estimate(0, minus=1), n=sum(row.id in readable and row.user_id in ranked for row in sides[0]))


def _user_means(users: Sequence[str], values: FloatArray) -> ClusteredRatios:
    """Return draws of the mean over users of each user's mean; NaN cells do not count."""
    names = sorted(set(users))
    position = {user: index for index, user in enumerate(names)}
    owners = np.array([position[user] for user in users])
    known = ~np.isnan(values)
    sums = np.stack([np.bincount(owners, weights=column, minlength=len(names)) for column in np.nan_to_num(values).T])
    counts = np.stack([np.bincount(owners, weights=column, minlength=len(names)) for column in known.T])
    means = np.divide(sums, counts, out=np.zeros_like(sums), where=counts > 0)
    return clustered_ratios(means.T, (counts > 0).T.astype(float), names)


def _macro(users: Sequence[str], values: FloatArray) -> Estimate | None:
    known = int(np.count_nonzero(~np.isnan(values)))
    if known == 0:
        return None
    return replace(_user_means(users, values[:, None]).estimate(0), n=known)


def _macro_of_users(values: dict[str, float], rows: Sequence[RatedRow]) -> Estimate | None:
    if not values:
        return None
    users = sorted(values)
    points = [values[user] for user in users]
    mean = ratio_estimates(points, np.ones(len(users)), users, span=(-1.0, 1.0))[0]
    return replace(mean, n=sum(row.user_id in values and row.score is not None for row in rows))
