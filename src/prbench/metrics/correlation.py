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
EXACT_UP_TO = 8  # 8! = 40,320 orders
PERMUTATIONS = 10_000
_CHUNK_CELLS = 1 << 21


def paired_columns(x: Column, y: Column) -> tuple[FloatArray, FloatArray]:
    """Return both columns without the pairs in which either value is missing."""
    if len(x) != len(y):
        raise UsageError(f"The columns have {len(x)} and {len(y)} values. Give one value or gap per model in both.")
    first, second = (np.array([np.nan if v is None else v for v in column], dtype=np.float64) for column in (x, y))
    complete = ~(np.isnan(first) | np.isnan(second))
    return first[complete], second[complete]


def pearson(x: Column, y: Column) -> float | None:
    """Pearson's correlation."""
    from scipy.stats import pearsonr

    x, y = paired_columns(x, y)
    return float(pearsonr(x, y).statistic) if _vary(x, y) else None


def spearman(x: Column, y: Column) -> float | None:
    """Spearman's rho; ties share their mean rank."""
    from scipy.stats import spearmanr

    x, y = paired_columns(x, y)
    return float(spearmanr(x, y).statistic) if _vary(x, y) else None


def kendall_tau_b(x: Column, y: Column) -> float | None:
    """Kendall's tau-b, which allows for ties."""
    from scipy.stats import kendalltau

    x, y = paired_columns(x, y)
    return float(kendalltau(x, y, variant="b").statistic) if _vary(x, y) else None


def weighted_tau(x: Column, y: Column) -> float | None:
    """Weighted tau (Vigna 2015): hyperbolic weights that make the top count most, averaged over both rankings.

    scipy ranks by decreasing value, so it must be given scores; ranks (1 is best) would weigh the bottom instead.
    """
    from scipy.stats import weightedtau

    x, y = paired_columns(x, y)
    return float(weightedtau(x, y, rank=True).statistic) if _vary(x, y) else None


def ndcg(benchmark: Column, downstream: Column, *, gain: Gain = "exponential") -> float | None:
    """NDCG of the benchmark's order, the gain coming from the downstream rank (1 is best) of n models.

    Gain 2^(n - rank + 1) - 1 (exponential) or n - rank + 1 (linear), discount log2(place + 1). Models tied downstream
    share their mean rank; models tied on the benchmark get the mean gain of their places, which is the mean over all
    ways to break the tie (McSherry and Najork 2008).
    """
    from sklearn.metrics import ndcg_score

    x, y = paired_columns(benchmark, downstream)
    return float(ndcg_score([_gains(y, gain)], [x])) if len(x) > 1 else None


def rbo(x: Column, y: Column, *, p: float = RBO_P) -> float | None:
    """Rank-biased overlap, extrapolated (Webber et al. 2010, RBO_ext), of two full rankings; `p` is the persistence.

    Sum over depths d of (1 - p) p^(d-1) times the agreement at d, plus p^n for the part beyond. A tie counts as the
    mean over all ways to break it (RBO^a of Corsi and Urbano 2024), so that a column of ties cannot inflate the
    figure.
    """
    x, y = paired_columns(x, y)
    return float(np.trace(_rbo_kernel(x, y, p))) if len(x) > 1 else None


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
    value = _coefficient(x, y, statistic, gain, p)
    if value is None:
        return None
    exact = len(x) <= EXACT_UP_TO
    null = _null(x, y, statistic, gain, p, _orders(len(x), exact=exact, seed=seed, draws=draws))
    slack = 1e-9  # the same order computed in two ways differs in the last digits
    one_sided = statistic in ("ndcg", "rbo")
    reached = null >= value - slack if one_sided else np.abs(null) >= abs(value) - slack
    count = int(reached.sum())
    return Correlation(
        statistic=statistic,
        value=value,
        n=len(x),
        p_value=count / len(null) if exact else (count + 1) / (len(null) + 1),
        null_mean=float(null.mean()),
        null_95=float(np.percentile(null, 95)),
        exact=exact,
    )


def coefficient_of_each(
    xs: FloatArray, ys: FloatArray, statistic: Statistic, *, gain: Gain = "exponential", p: float = RBO_P
) -> FloatArray:
    """Return the coefficient of every row of `xs` with the same row of `ys`; NaN where it is undefined."""
    from scipy.stats import rankdata

    found = np.full(len(xs), np.nan)
    varies = (np.ptp(xs, axis=1) > 0) & (np.ptp(ys, axis=1) > 0)
    xs, ys = xs[varies], ys[varies]
    match statistic:
        case "pearson":
            values = _row_correlations(xs, ys)
        case "spearman":
            values = _row_correlations(rankdata(xs, axis=1), rankdata(ys, axis=1))
        case "kendall" | "weighted_tau":
            size = max(1, _CHUNK_CELLS // xs.shape[1] ** 2)
            parts = [slice(start, start + size) for start in range(0, len(xs), size)]
            weighted = statistic == "weighted_tau"
            values = np.concatenate([_taus(xs[part], ys[part], weighted=weighted) for part in parts] or [np.empty(0)])
        case "ndcg":
            values = np.array([_plain_ndcg(x, y, gain) for x, y in zip(xs, ys, strict=True)])
        case "rbo":
            values = np.array([np.trace(_rbo_kernel(x, y, p)) for x, y in zip(xs, ys, strict=True)])
    found[varies] = values
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
            agreeing = _agreeing(orders.T, places)
            both = weights @ agreeing + (agreeing * weights[orders.T]).sum(axis=0)
            taus: FloatArray = both / (2 * (len(places) - 1) * weights.sum())
            return taus
        case _:
            return _null(x, y, statistic, gain, p, orders.astype(np.int64))


def _order_taus(orders: npt.NDArray[np.int16], x: FloatArray, y: FloatArray) -> FloatArray:
    """Return tau-b for each order; it has the same ties, and so the same largest value, in all of them."""
    codes = [np.unique(scores, return_inverse=True)[1].astype(np.int16) for scores in (x, y)]
    most = [len(x) ** 2 - float((np.bincount(each) ** 2).sum()) for each in codes]
    taus: FloatArray = _agreeing(codes[1][orders.T], codes[0]).sum(axis=0) / math.sqrt(most[0] * most[1])
    return taus


def _agreeing(places: npt.NDArray[np.int16], x: npt.NDArray[Any]) -> npt.NDArray[np.int16]:
    """Return each model's concordant minus discordant pairs, (models, orders), for ascending x."""
    places = np.ascontiguousarray(places)  # each comparison then runs along memory
    found = np.zeros(places.shape, dtype=np.int16)
    for place in range(len(places) - 1):
        rest = places[place + 1 :]
        signs = (rest > places[place]).view(np.int8) - (rest < places[place]).view(np.int8)
        signs[x[place + 1 :] == x[place]] = 0
        found[place] += signs.sum(axis=0, dtype=np.int16)
        found[place + 1 :] += signs
    return found


def _row_correlations(xs: FloatArray, ys: FloatArray) -> FloatArray:
    x, y = (values - values.mean(axis=1, keepdims=True) for values in (xs, ys))
    ratio: FloatArray = (x * y).sum(axis=1) / np.sqrt((x**2).sum(axis=1) * (y**2).sum(axis=1))
    return ratio


def _plain_ndcg(benchmark: FloatArray, downstream: FloatArray, gain: Gain) -> float:
    gains = _gains(downstream, gain)
    return float(_discounts(benchmark) @ gains / (_discounts(gains) @ gains))


def _coefficient(x: FloatArray, y: FloatArray, statistic: Statistic, gain: Gain, p: float) -> float | None:
    match statistic:
        case "pearson":
            return pearson(x, y)
        case "spearman":
            return spearman(x, y)
        case "kendall":
            return kendall_tau_b(x, y)
        case "weighted_tau":
            return weighted_tau(x, y)
        case "ndcg":
            return ndcg(x, y, gain=gain)
        case "rbo":
            return rbo(x, y, p=p)


def _orders(n: int, *, exact: bool, seed: int, draws: int) -> npt.NDArray[np.int64]:
    if exact:
        return np.array(list(permutations(range(n))), dtype=np.int64)
    generator = np.random.Generator(np.random.PCG64(seed))
    return generator.permuted(np.tile(np.arange(n), (draws, 1)), axis=1)


def _null(
    x: FloatArray, y: FloatArray, statistic: Statistic, gain: Gain, p: float, orders: npt.NDArray[np.int64]
) -> FloatArray:
    """Return the coefficient of x with y in each of the orders.

    A library call per order would take minutes, so these are written out; the tests hold them to the libraries'
    values.
    """
    from scipy.stats import rankdata

    match statistic:
        case "pearson":
            kernel = np.outer(_standardised(x), _standardised(y))
        case "spearman":
            kernel = np.outer(_standardised(rankdata(x)), _standardised(rankdata(y)))
        case "ndcg":
            gains = _gains(y, gain)
            best = _discounts(gains) @ gains
            kernel = np.outer(_discounts(x), gains) / best
        case "rbo":
            kernel = _rbo_kernel(x, y, p)
        case "kendall" | "weighted_tau":
            size = max(1, _CHUNK_CELLS // len(x) ** 2)
            starts = range(0, len(orders), size)
            weighted = statistic == "weighted_tau"
            return np.concatenate([_taus(x, y[orders[s : s + size]], weighted=weighted) for s in starts])
    # The others are sums over models of something that depends on the model's x and on the y it is given.
    null: FloatArray = kernel[np.arange(len(x)), orders].sum(axis=1)
    return null


def _taus(x: FloatArray, ys: FloatArray, *, weighted: bool) -> FloatArray:
    """Return tau-b or weighted tau of x with each row of `ys` (orders, n)."""
    from scipy.stats import rankdata

    xs = np.broadcast_to(x, ys.shape)
    x_codes, y_codes = (rankdata(values, method="dense", axis=1) for values in (xs, ys))
    signs_x, signs_y = (np.sign(codes[:, :, None] - codes[:, None, :]) for codes in (x_codes, y_codes))
    if not weighted:
        return _concordance(signs_x, signs_y, np.ones_like(ys))
    n = ys.shape[1]
    # Ranked by x with ties broken by y, then by y with ties broken by x; the best model has rank 0 and weight 1.
    by_x, by_y = (_places(a * (n + 1) + b) for a, b in ((x_codes, y_codes), (y_codes, x_codes)))
    taus = [_concordance(signs_x, signs_y, 1 / (places + 1)) for places in (by_x, by_y)]
    mean: FloatArray = (taus[0] + taus[1]) / 2
    return mean


def _places(keys: FloatArray) -> FloatArray:
    """Return the place of each value in its row, 0 for the highest."""
    places: FloatArray = (-keys).argsort(axis=1).argsort(axis=1).astype(np.float64)
    return places


def _concordance(signs_x: FloatArray, signs_y: FloatArray, weights: FloatArray) -> FloatArray:
    pair = weights[:, :, None] + weights[:, None, :]
    both, one, two = ((pair * signs).sum(axis=(1, 2)) for signs in (signs_x * signs_y, signs_x**2, signs_y**2))
    ratio: FloatArray = both / np.sqrt(one * two)
    return ratio


def _gains(downstream: FloatArray, gain: Gain) -> FloatArray:
    """Return each model's gain; the exponential one is divided by 2^n, which NDCG does not see and floats do."""
    from scipy.stats import rankdata

    rank = rankdata(-downstream)
    n = len(downstream)
    gains: FloatArray = np.exp2(1 - rank) - 2.0**-n if gain == "exponential" else n - rank + 1
    return gains


def _discounts(benchmark: FloatArray) -> FloatArray:
    """Return each model's discount 1 / log2(place + 1), averaged over the places that tied models share."""
    _, group, counts = np.unique(-benchmark, return_inverse=True, return_counts=True)
    places = 1 / np.log2(np.arange(len(benchmark)) + 2)
    means: FloatArray = (np.bincount(np.sort(group), weights=places) / counts)[group]
    return means


def _rbo_kernel(x: FloatArray, y: FloatArray, p: float) -> FloatArray:
    """Return K with RBO = sum over models of K[model, model]; K[i, j] is for model i at the place j of y."""
    if not 0 < p < 1:
        raise UsageError(f"The persistence of RBO is {p}. Give a number between 0 and 1; 0.9 is usual.")
    n = len(x)
    depths = np.arange(1, n + 1)
    weights = (1 - p) * p ** (depths - 1) / depths
    weights[-1] += p**n / n  # beyond the last depth the agreement stays what it is there
    kernel: FloatArray = (_presence(x) * weights) @ _presence(y).T
    return kernel


def _presence(values: FloatArray) -> FloatArray:
    """Return the chance that each model is among the first d, for every depth d: (models, depths)."""
    _, group, counts = np.unique(-values, return_inverse=True, return_counts=True)
    before = (np.cumsum(counts) - counts)[group]
    depths = np.arange(1, len(values) + 1)
    chance: FloatArray = np.clip((depths[None, :] - before[:, None]) / counts[group][:, None], 0.0, 1.0)
    return chance


def _standardised(values: FloatArray) -> FloatArray:
    """Return the values with mean 0 and length 1, so that a dot product is a correlation."""
    centred = values - values.mean()
    unit: FloatArray = centred / math.sqrt(float(centred @ centred))
    return unit


def _vary(x: FloatArray, y: FloatArray) -> bool:
    return len(x) > 1 and bool(np.ptp(x) > 0) and bool(np.ptp(y) > 0)
