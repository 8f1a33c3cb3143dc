"""Do two columns order the same models alike? Coefficients, each with what chance would give.

Every function takes scores, where higher is better, and drops pairs with a gap (`None` or NaN). `None` means
undefined: fewer than two pairs, or a column without variation.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from prbench.errors import UsageError
from prbench.metrics.estimate import FloatArray

Column = Sequence[float | None] | FloatArray
Gain = Literal["exponential", "linear"]
Statistic = Literal["pearson", "spearman", "kendall", "weighted_tau", "ndcg", "rbo"]

RBO_P = 0.9
ONE_SIDED = ("ndcg", "rbo")  # a random order gives them no 0
EXACT_UP_TO = 8  # 8! = 40,320 orders
PERMUTATIONS = 10_000
_CHUNK_CELLS = 1 << 18  # rows times models times models that are worked on at once


def paired_columns(x: Column, y: Column) -> tuple[FloatArray, FloatArray]:
    """Return both columns without the pairs in which either value is missing."""
    if len(x) != len(y):
        raise UsageError(f"The columns have {len(x)} and {len(y)} values. Give one value or gap per model in both.")
    first, second = (np.array([np.nan if v is None else v for v in column], dtype=np.float64) for column in (x, y))
    complete = ~(np.isnan(first) | np.isnan(second))
    return first[complete], second[complete]


def coefficient(
    x: Column, y: Column, statistic: Statistic, *, gain: Gain = "exponential", p: float = RBO_P
) -> float | None:
    """Return one coefficient of a benchmark `x` and of what comes of it downstream, `y`.

    - `pearson`, `spearman` (ties share their mean rank) and `kendall` (tau-b of Kendall 1945, which allows for ties).
    - `weighted_tau` (Vigna 2015): hyperbolic weights that make the top count most, averaged over both rankings.
    - `ndcg` (Järvelin and Kekäläinen 2002) of the benchmark's order, the gain coming from the downstream rank (1 is
      best) of n models: n - rank + 1 (linear) or 2^(n - rank + 1) - 1 (exponential), discounted by log2(place + 1).
      Models tied downstream share their mean rank; models tied on the benchmark get the mean gain of their places,
      which is the mean over all ways to break the tie (McSherry and Najork 2008).
    - `rbo`: rank-biased overlap, extrapolated (Webber et al. 2010, RBO_ext), of two full rankings; `p` is the
      persistence. Sum over depths d of (1 - p) p^(d-1) times the agreement at d, plus p^n for the part beyond. A tie
      counts as the mean over all ways to break it (RBO^a of Corsi and Urbano 2024), so that a column of ties cannot
      inflate the figure.
    """
    from scipy import stats

    x, y = paired_columns(x, y)
    varies = len(x) > 1 and bool(np.ptp(x) > 0) and bool(np.ptp(y) > 0)
    if not (varies or (len(x) > 1 and statistic in ONE_SIDED)):
        return None
    match statistic:
        case "pearson":
            found = stats.pearsonr(x, y).statistic
        case "spearman":
            found = stats.spearmanr(x, y).statistic
        case "kendall":
            found = stats.kendalltau(x, y, variant="b").statistic
        case "weighted_tau":
            # scipy ranks by decreasing value, so it must be given scores; ranks would weigh the bottom instead.
            found = stats.weightedtau(x, y, rank=True).statistic
        case "ndcg":
            from sklearn.metrics import ndcg_score

            found = ndcg_score([_gains(y, gain)], [x])
        case "rbo":
            found = _overlaps(x, y, p)
    return float(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class Correlation:
    """One coefficient beside its permutation null."""

    statistic: Statistic
    value: float
    n: int
    p_value: float
    null_mean: float  # what a random order gives: near 0 for correlations, far from 0 for NDCG and RBO
    null_95: float  # what a random order exceeds in 5 % of the cases
    exact: bool  # all orders, or a seeded sample of them


def correlate(
    x: Column,
    y: Column,
    statistic: Statistic = "spearman",
    *,
    gain: Gain = "exponential",
    p: float = RBO_P,
    seed: int = 0,
    draws: int = PERMUTATIONS,
) -> Correlation | None:
    """Return a coefficient with its permutation p-value; all n! orders up to 8 models, `draws` seeded ones beyond.

    Two-sided (as far from 0) for correlations; one-sided (as high) for NDCG and RBO, which have no zero. A sampled
    p-value counts the observed order as one of the draws, so it is never 0.
    """
    x, y = paired_columns(x, y)
    value = coefficient(x, y, statistic, gain=gain, p=p)
    if value is None:
        return None
    n, exact = len(x), len(x) <= EXACT_UP_TO
    if exact:
        orders = np.array(list(permutations(range(n))), dtype=np.int64)
    else:
        orders = np.random.Generator(np.random.PCG64(seed)).permuted(np.tile(np.arange(n), (draws, 1)), axis=1)
    null = _null(x, y, statistic, gain, p, orders)
    slack = 1e-9  # the same order computed in two ways differs in the last digits
    reached = null >= value - slack if statistic in ONE_SIDED else np.abs(null) >= abs(value) - slack
    count = int(reached.sum())
    return Correlation(
        statistic=statistic,
        value=value,
        n=n,
        p_value=count / len(null) if exact else (count + 1) / (len(null) + 1),
        null_mean=float(null.mean()),
        null_95=float(np.percentile(null, 95)),
        exact=exact,
    )


def coefficient_of_each(
    xs: FloatArray, ys: FloatArray, statistic: Statistic, *, gain: Gain = "exponential", p: float = RBO_P
) -> FloatArray:
    """Return the coefficient of every row of `xs` with the same row of `ys`; NaN where it is undefined."""
    found = np.full(len(xs), np.nan)
    varying = np.flatnonzero((np.ptp(xs, axis=1) > 0) & (np.ptp(ys, axis=1) > 0))
    size = max(1, _CHUNK_CELLS // xs.shape[1] ** 2)
    for start in range(0, len(varying), size):
        rows = varying[start : start + size]
        x, y = xs[rows], ys[rows]
        match statistic:
            case "pearson":
                found[rows] = _row_correlations(x, y)
            case "spearman":
                found[rows] = _row_correlations(mean_ranks(x), mean_ranks(y))
            case "kendall" | "weighted_tau":
                found[rows] = _taus(x, y, weighted=statistic == "weighted_tau")
            case "ndcg":
                gains = _gains(y, gain)
                found[rows] = (_discounts(x) * gains).sum(axis=1) / (_discounts(y) * gains).sum(axis=1)
            case "rbo":
                found[rows] = _overlaps(x, y, p)
    return found


def coefficient_of_orders(
    orders: npt.NDArray[np.int16],
    statistic: Statistic,
    *,
    benchmark: FloatArray | None = None,
    downstream: FloatArray | None = None,
    gain: Gain = "exponential",
    p: float = RBO_P,
) -> FloatArray:
    """Return the coefficient for each row of `orders`.

    A row has the places (0 is the lowest) that models take downstream, from the worst on the benchmark to the best.
    `benchmark` and `downstream` are the scores at these places, ascending, where some are equal. Weighted tau, whose
    ties would have to be broken anew in every order, takes them as different.
    """
    places = np.arange(orders.shape[1], dtype=np.float64)
    x, y = (places if scores is None else scores for scores in (benchmark, downstream))
    match statistic:
        case "kendall":
            return _order_taus(orders, x, y)
        case "weighted_tau":
            weights = 1 / np.arange(len(places), 0, -1.0)
            agreeing = _agreeing(places[:, None], orders.T)
            both = weights @ agreeing + (agreeing * weights[orders.T]).sum(axis=0)
            taus: FloatArray = both / (2 * (len(places) - 1) * weights.sum())
            return taus
        case _:
            return _null(x, y, statistic, gain, p, orders)


def _order_taus(orders: npt.NDArray[np.integer], x: FloatArray, y: FloatArray) -> FloatArray:
    """Return tau-b of x with y in each order; all have the same ties, and so the same largest value."""
    (better_x, tied_x), (better_y, tied_y) = _standing(x), _standing(y)
    most = [len(x) ** 2 - float(tied.sum()) for tied in (tied_x, tied_y)]
    agreeing = _agreeing(better_x[:, None], better_y.astype(np.int16)[orders.T])
    taus: FloatArray = agreeing.sum(axis=0) / math.sqrt(most[0] * most[1])
    return taus


def _agreeing(x: npt.NDArray[Any], y: npt.NDArray[Any]) -> npt.NDArray[np.int16]:
    """Return each model's concordant minus discordant pairs, (models, rows); x may be one column for all rows."""
    x, y = (np.ascontiguousarray(places, dtype=np.int16) for places in (x, y))  # differences then run along memory
    found = np.zeros(y.shape, dtype=np.int16)
    for model in range(len(y) - 1):
        signs = np.sign(x[model + 1 :] - x[model]) * np.sign(y[model + 1 :] - y[model])
        found[model] += signs.sum(axis=0, dtype=np.int16)
        found[model + 1 :] += signs
    return found


def _row_correlations(xs: FloatArray, ys: FloatArray) -> FloatArray:
    x, y = (values - values.mean(axis=1, keepdims=True) for values in (xs, ys))
    ratio: FloatArray = (x * y).sum(axis=1) / np.sqrt((x**2).sum(axis=1) * (y**2).sum(axis=1))
    return ratio


def _null(
    x: FloatArray, y: FloatArray, statistic: Statistic, gain: Gain, p: float, orders: npt.NDArray[np.integer]
) -> FloatArray:
    """Return the coefficient of x with y in each of the orders.

    A library call per order would take minutes, so these are written out; the tests hold them to the libraries'
    values.
    """
    match statistic:
        case "pearson":
            kernel = np.outer(_standardize(x), _standardize(y))
        case "spearman":
            kernel = np.outer(_standardize(mean_ranks(x)), _standardize(mean_ranks(y)))
        case "ndcg":
            gains = _gains(y, gain)
            kernel = np.outer(_discounts(x), gains) / (_discounts(y) @ gains)
        case "rbo":
            kernel = (_presence(x) * _depth_weights(len(x), p)) @ _presence(y).T
        case "kendall":
            return _order_taus(orders, x, y)
        case "weighted_tau":
            return coefficient_of_each(np.broadcast_to(x, orders.shape), y[orders], statistic)
    # The others are sums over models of something that depends on the model's x and on the y it is given.
    given = (values.take(places) for values, places in zip(kernel, orders.T, strict=True))
    return sum(given, start=np.zeros(len(orders)))


def _taus(xs: FloatArray, ys: FloatArray, *, weighted: bool) -> FloatArray:
    """Return tau-b or weighted tau of each row; a pair of models weighs the sum of their two weights.

    So the sum over pairs is one over models: a model's weight times its concordant minus discordant pairs.
    """
    n = xs.shape[1]
    (better_x, tied_x), (better_y, tied_y) = _standing(xs), _standing(ys)
    agreeing = _agreeing(better_x.T, better_y.T).T
    if weighted:
        # Ranked by x with ties broken by y, then by y with ties broken by x; the best model has weight 1.
        rankings = [-(better_x * n + better_y), -(better_y * n + better_x)]
        weights = [_mean_over_ties(ranking, 1 / np.arange(1, n + 1)) for ranking in rankings]
    else:
        weights = [np.ones(xs.shape)]
    sums = [[(each * pairs).sum(axis=1) for pairs in (agreeing, n - tied_x, n - tied_y)] for each in weights]
    taus: FloatArray = np.mean([both / np.sqrt(one * two) for both, one, two in sums], axis=0)
    return taus


def _gains(downstream: FloatArray, gain: Gain) -> FloatArray:
    """Return each model's gain; the exponential one is divided by 2^n, which NDCG does not see and floats do."""
    ranks = mean_ranks(downstream)
    n = downstream.shape[-1]
    gains: FloatArray = np.exp2(1 - ranks) - 2.0**-n if gain == "exponential" else n - ranks + 1
    return gains


def _discounts(benchmark: FloatArray) -> FloatArray:
    """Return each model's discount 1 / log2(place + 1), averaged over the places that tied models share."""
    return _mean_over_ties(benchmark, 1 / np.log2(np.arange(benchmark.shape[-1]) + 2))


def _overlaps(xs: FloatArray, ys: FloatArray, p: float) -> FloatArray:
    """Return the rank-biased overlap of each row."""
    shared = np.einsum("...md,...md->...d", _presence(xs), _presence(ys))  # (rows, depths)
    overlaps: FloatArray = shared @ _depth_weights(xs.shape[-1], p)
    return overlaps


def _depth_weights(n: int, p: float) -> FloatArray:
    """Return what a model that both rankings have among the first d adds to RBO, for every depth d."""
    if not 0 < p < 1:
        raise UsageError(f"The persistence of RBO is {p}. Give a number between 0 and 1; 0.9 is usual.")
    depths = np.arange(1, n + 1)
    weights: FloatArray = (1 - p) * p ** (depths - 1) / depths
    weights[-1] += p**n / n  # beyond the last depth the agreement stays what it is there
    return weights


def _presence(values: FloatArray) -> FloatArray:
    """Return the chance that each model is among the first d, for every depth d: (rows, models, depths)."""
    better, tied = (counts[..., None].astype(np.float64) for counts in _standing(values))
    chance: FloatArray = np.arange(1, values.shape[-1] + 1) - better
    chance /= tied  # in place, as is the next: these arrays are large
    return chance.clip(0.0, 1.0, out=chance)


def mean_ranks(values: FloatArray) -> FloatArray:
    """Return the rank of each model in its row, 1 for the highest; ties share their mean rank."""
    better, tied = _standing(values)
    ranks: FloatArray = better + (tied + 1) / 2
    return ranks


def _mean_over_ties(values: npt.NDArray[Any], of_places: FloatArray) -> FloatArray:
    """Return what each model gets if the highest value of a row takes the first place and ties share theirs."""
    better, tied = _standing(values)
    totals = np.concatenate([[0.0], np.cumsum(of_places)])
    means: FloatArray = (totals[better + tied] - totals[better]) / tied
    return means


def _standing(values: npt.NDArray[Any]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return how many models of its row are better than each model, and how many have its value, itself included."""
    n = values.shape[-1]
    by_row = (-values).argsort(axis=-1).reshape(-1, n)
    order = (by_row + np.arange(0, values.size, n)[:, None]).ravel()  # as indices into all values
    falling = values.take(order)
    differs = np.ones(values.size, dtype=bool)  # from the value before it; the first of a row does
    differs[1:] = falling[1:] != falling[:-1]
    differs[::n] = True
    starts = np.flatnonzero(differs)
    counts = np.diff(starts, append=values.size)
    better, tied = np.empty(values.size, dtype=np.int64), np.empty(values.size, dtype=np.int64)
    better[order], tied[order] = np.repeat(starts % n, counts), np.repeat(counts, counts)
    return better.reshape(values.shape), tied.reshape(values.shape)


def _standardize(values: FloatArray) -> FloatArray:
    """Return the values with mean 0 and length 1, so that a dot product is a correlation."""
    centered = values - values.mean()
    unit: FloatArray = centered / math.sqrt(float(centered @ centered))
    return unit
