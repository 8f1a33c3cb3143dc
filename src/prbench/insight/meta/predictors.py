"""Which of several predictors to trust, and whether several together are worth more than one.

With few models it is easy to find a combination that fits them and nothing else. So nothing is tuned on the model that
it is judged by: for every model in turn, the choice of the best predictor and all weights come from the others, and
where families are known, from the models of other families alone (nested leave-one-family-out). A combination is
recommended only if it beats the best single predictor by more than its own error. Two predictors are compared paired,
on the models that all three boards have.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from statistics import fmean

import numpy as np

from prbench.insight.meta.board import BoardPair
from prbench.insight.meta.families import FEWEST_FAMILIES, Families, each_its_own, family_draws
from prbench.insight.meta.intervals import ALPHA, Interval, interval_of, ties_of
from prbench.insight.meta.statistics import over_families
from prbench.metrics.correlation import PERMUTATIONS, coefficient, coefficient_of_each
from prbench.metrics.estimate import FloatArray
from prbench.metrics.number_format import NumberFormat

EXACT_UP_TO = 12  # 2^12 ways to swap
SLACK = 1e-9
FEWEST_MODELS = 6
FEWEST_FOR_WEIGHTS = 12  # below, weights cannot be told from noise
RIDGE = 0.1  # shrinks the weight of a predictor that is alone by a tenth
DRAWS = 2_000
TWO = NumberFormat(2)
SINGLE, MEAN, WEIGHTED = "best single predictor", "mean of all, standardized", "weighted (ridge)"
Fit = Callable[[FloatArray, FloatArray, FloatArray], float]  # predictors, downstream, the model left out -> forecast


@dataclass(frozen=True, slots=True, kw_only=True)
class SpearmanDifference:
    """Spearman's correlation of a first benchmark with downstream, minus that of a second."""

    n: int
    first: float
    second: float
    value: float
    low: float
    high: float
    p: float  # two-sided, by swapping the two benchmarks' ranks of some models, or of some families


def compare_spearman(
    first: FloatArray,
    second: FloatArray,
    downstream: FloatArray,
    *,
    seed: int = 0,
    permutations: int = PERMUTATIONS,
    families: Families | None = None,
) -> SpearmanDifference | None:
    """Return the difference with its interval; `None` where a correlation is undefined or there are under 4 models.

    With families of several models, interval and p are over families, of which there must be 4 as well.

    The interval is made of those of the two correlations, allowing for what they share (Zou 2007, with the covariance
    of Pearson and Filon 1898). That covariance is taken at the three figures and in the middle of their intervals, and
    the smaller counts: few models make correlations look extreme, and then two benchmarks seem to share too much.
    """
    n = len(downstream)
    one, two, between = (
        coefficient(*columns, "spearman") for columns in ((first, downstream), (second, downstream), (first, second))
    )
    if one is None or two is None or between is None or n < 4 or (families and families.count < FEWEST_FAMILIES):
        return None
    intervals = (
        spearman_interval(one, first, downstream, families),
        spearman_interval(two, second, downstream, families),
        spearman_interval(between, first, second, families),
    )
    (low_one, high_one), (low_two, high_two), _ = intervals
    shared = min(_shared(one, two, between), _shared(*(fmean(limits) for limits in intervals)))
    value = one - two
    # One benchmark twice, maybe in percent: there is nothing to be unsure of. Equal ranks alone may be chance, and so
    # may be two columns of two values.
    same = np.corrcoef(first, second)[0, 1] >= 1 - SLACK and len(np.unique(first)) > 2

    def reach(of_first: float, of_second: float) -> float:
        spread = of_first**2 + of_second**2 - 2 * shared * of_first * of_second
        return 0.0 if same else math.sqrt(max(0.0, spread))

    return SpearmanDifference(
        n=n,
        first=one,
        second=two,
        value=value,
        low=value - reach(one - low_one, high_two - two),
        high=value + reach(high_one - one, two - low_two),
        p=_swapping_p(first, second, downstream, seed, permutations, families) if permutations else math.nan,
    )


def spearman_interval(
    value: float, benchmark: FloatArray, downstream: FloatArray, families: Families | None = None
) -> Interval:
    """Return the interval of one benchmark's correlation, over families where some have several models."""
    if families is not None and not families.are_single:
        found = over_families(benchmark, downstream, families)
        return (-1.0, 1.0) if found is None else (found.low, found.high)
    ties = (ties_of(benchmark), ties_of(downstream))
    return interval_of(value, len(downstream), "spearman", ties=ties) or (-1.0, 1.0)


def _shared(one: float, two: float, between: float) -> float:
    """Return the correlation of two correlations that have a column in common."""
    spread = (1 - one**2) * (1 - two**2)
    if spread <= 0:
        return 0.0
    rest = 1 - one**2 - two**2 - between**2
    return float(np.clip(((between - one * two / 2) * rest + between**3) / spread, -1.0, 1.0))


def _swapping_p(
    first: FloatArray,
    second: FloatArray,
    downstream: FloatArray,
    seed: int,
    permutations: int,
    families: Families | None,
) -> float:
    """Return how often a difference as large comes from swapping the two ranks of models, or families, by chance."""
    from scipy.stats import rankdata

    groups = each_its_own(len(downstream)) if families is None or families.are_single else families
    n = groups.count
    exact = n <= EXACT_UP_TO
    if exact:
        swaps = np.array(list(product((False, True), repeat=n)))
    else:
        swaps = np.random.Generator(np.random.PCG64(seed)).random((permutations, n)) < 0.5
    swaps = swaps[:, groups.codes]  # a family's models are swapped together
    a, b, d = (np.broadcast_to(rankdata(column), swaps.shape) for column in (first, second, downstream))
    null = coefficient_of_each(np.where(swaps, b, a), d, "pearson") - coefficient_of_each(
        np.where(swaps, a, b), d, "pearson"
    )
    observed = coefficient_of_each(a[:1], d[:1], "pearson") - coefficient_of_each(b[:1], d[:1], "pearson")
    reached = int((np.abs(null) >= abs(observed[0]) - SLACK).sum())
    return reached / len(null) if exact else (reached + 1) / (len(null) + 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Predictor:
    """One predictor on the models that all have."""

    name: str
    spearman: float
    low: float
    high: float
    behind_best: SpearmanDifference | None  # the best one minus this one; `None` for the best itself


@dataclass(frozen=True, slots=True, kw_only=True)
class ForecastSkill:
    """One way to forecast a model that was left out."""

    name: str
    skill: float  # 1 - squared error / that of guessing the others' mean; 0 is no use, 1 is perfect
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Recommendation:
    """Which score to use, and how sure that is."""

    downstream: str
    n: int
    predictors: tuple[Predictor, ...]  # best first
    ways: tuple[ForecastSkill, ...]
    use: str  # a predictor, a way to mix them, or "" for none
    weights: dict[str, float]  # of the standardized predictors in the recommended score
    sentence: str


def recommend(pairs: Sequence[BoardPair], *, seed: int = 0) -> Recommendation | None:
    """Compare predictors of the same downstream board, on the models that all of them have."""
    from scipy.stats import rankdata

    shared = [model for model in pairs[0].models if all(model in pair.models for pair in pairs)]
    if len(shared) < FEWEST_MODELS:
        return None
    downstream = pairs[0].downstream.of(shared)
    families = BoardPair(benchmark=pairs[0].benchmark.of(shared), downstream=downstream).families
    groups = each_its_own(len(shared)) if families is None or families.are_single else families
    if groups.count < FEWEST_FAMILIES:
        return None
    columns = {pair.benchmark.name: pair.benchmark.of(shared).scores for pair in pairs}
    columns = {name: scores for name, scores in columns.items() if np.ptp(scores) > 0}
    if len(columns) < 2 or np.ptp(downstream.scores) == 0:
        return None
    values = {name: coefficient(scores, downstream.scores, "spearman") or 0.0 for name, scores in columns.items()}
    order = sorted(values, key=lambda name: (-abs(values[name]), name))
    best = order[0]
    found = []
    for name in order:
        low, high = spearman_interval(values[name], columns[name], downstream.scores, groups)
        # A predictor that points the other way is as good as its size: both are turned to point upwards.
        ahead, this = (math.copysign(1.0, values[each]) * columns[each] for each in (best, name))
        behind = None if name == best else compare_spearman(ahead, this, downstream.scores, seed=seed, families=groups)
        found.append(Predictor(name=name, spearman=values[name], low=low, high=high, behind_best=behind))
    predictors = tuple(found)
    # On ranks, as the headline is: one model far away must not decide.
    table, target = np.stack(list(columns.values()), axis=1), rankdata(downstream.scores) / len(shared)
    ways, is_better = _ways(table, target, groups, seed)
    use, sentence = _advice(predictors, ways, is_better, len(shared))
    return Recommendation(
        downstream=downstream.name,
        n=len(shared),
        predictors=predictors,
        ways=tuple(ways),
        use=use,
        weights=_weights(use, list(columns), table, target),
        sentence=sentence,
    )


def _ways(
    predictors: FloatArray, target: FloatArray, families: Families, seed: int
) -> tuple[list[ForecastSkill], bool]:
    """Return the ways to forecast, judged on models that they did not see, and whether the best mix beats one alone.

    They saw no model of the same family either. A mix is better if it is ahead by more than the standard error of the
    difference, over the same draws of families.
    """
    fits: dict[str, Fit] = {SINGLE: _single, MEAN: _mean}
    if len(target) >= FEWEST_FOR_WEIGHTS:
        fits[WEIGHTED] = _ridge
    others = [families.without(int(family)) for family in families.codes]  # of every model: those of other families
    guesses = np.array([(target[left] - target[seen].mean()) ** 2 for left, seen in enumerate(others)])
    drawn = list(family_draws(families, DRAWS, np.random.Generator(np.random.PCG64(seed))))
    ways, samples = [], {}
    for name, fit in fits.items():
        forecasts = [fit(predictors[seen], target[seen], predictors[left]) for left, seen in enumerate(others)]
        errors = (target - np.array(forecasts)) ** 2
        samples[name] = np.concatenate([1 - errors[rows].sum(axis=1) / guesses[rows].sum(axis=1) for rows in drawn])
        low, high = np.percentile(samples[name], [2.5, 97.5])
        skill = float(1 - errors.sum() / guesses.sum())
        ways.append(ForecastSkill(name=name, skill=skill, low=float(low), high=float(high)))
    mix = max(ways[1:], key=lambda way: way.skill)
    error = float((samples[mix.name] - samples[SINGLE]).std())
    return ways, mix.skill - ways[0].skill > error


def _standardize(predictors: FloatArray, left_out: FloatArray) -> tuple[FloatArray, FloatArray]:
    mean, spread = predictors.mean(axis=0), predictors.std(axis=0)
    safe = np.where(spread > 0, spread, 1.0)
    return (predictors - mean) / safe, (left_out - mean) / safe


def _line(x: FloatArray, y: FloatArray, at: float) -> float:
    """Return the value at a place of the least-squares line."""
    spread = float(((x - x.mean()) ** 2).sum())
    slope = float(((x - x.mean()) * (y - y.mean())).sum()) / spread if spread > 0 else 0.0
    return float(y.mean() + slope * (at - x.mean()))


def _signs(x: FloatArray, y: FloatArray) -> FloatArray:
    signs: FloatArray = np.where(((x - x.mean(axis=0)) * (y - y.mean())[:, None]).sum(axis=0) < 0, -1.0, 1.0)
    return signs


def _single(predictors: FloatArray, target: FloatArray, left_out: FloatArray) -> float:
    sizes = [abs(coefficient(column, target, "spearman") or 0.0) for column in predictors.T]
    best = int(np.argmax(sizes))
    return _line(predictors[:, best], target, float(left_out[best]))


def _mean(predictors: FloatArray, target: FloatArray, left_out: FloatArray) -> float:
    x, at = _standardize(predictors, left_out)
    signs = _signs(x, target)
    return _line((x * signs).mean(axis=1), target, float((at * signs).mean()))


def _ridge(predictors: FloatArray, target: FloatArray, left_out: FloatArray) -> float:
    x, at = _standardize(predictors, left_out)
    return float(target.mean() + at @ _ridge_weights(x, target))


def _ridge_weights(x: FloatArray, target: FloatArray) -> FloatArray:
    penalty = RIDGE * len(target) * np.eye(x.shape[1])
    weights: FloatArray = np.linalg.solve(x.T @ x + penalty, x.T @ (target - target.mean()))
    return weights


def _weights(use: str, names: Sequence[str], table: FloatArray, target: FloatArray) -> dict[str, float]:
    """Return what each standardized predictor counts in the recommended score; empty where none is recommended."""
    x, _ = _standardize(table, table[0])
    signs = _signs(x, target)
    if use in names:
        return {use: float(signs[names.index(use)])}
    if not use:
        return {}
    values = signs / len(names) if use == MEAN else _ridge_weights(x, target)
    return dict(zip(names, map(float, values), strict=True))


def _is_shown(gap: SpearmanDifference) -> bool:
    """True if both the interval and p say that the best predictor is ahead."""
    return gap.low > 0 and gap.p < ALPHA


def _advice(
    predictors: Sequence[Predictor], ways: Sequence[ForecastSkill], is_better: bool, n: int
) -> tuple[str, str]:
    best = predictors[0]
    single = next(way for way in ways if way.name == SINGLE)
    rival = max((way for way in ways if way.name != SINGLE), key=lambda way: way.skill)
    rivals = [each for each in predictors[1:] if each.behind_best is not None and not _is_shown(each.behind_best)]
    if max(single.skill, rival.skill) <= 0:
        return "", (
            f"No predictor, and no mix of them, forecasts a model that was left out better than the mean of the "
            f"others does ({n} models)."
        )
    if is_better:
        return rival.name, (
            f"Use the {rival.name}: on models left out its skill is {TWO.of(rival.skill, rival.low, rival.high)}, "
            f"that of a single predictor {single.skill:.2f} ({n} models)."
        )
    told = f"cannot be told from {', '.join(each.name for each in rivals)}" if rivals else "is ahead of all others"
    return best.name, (
        f"Use {best.name}: Spearman {TWO.of(best.spearman, best.low, best.high)} over {n} models; it {told}. "
        f"A mix of all is not better by more than its error (skill {rival.skill:.2f} against {single.skill:.2f})."
    )
