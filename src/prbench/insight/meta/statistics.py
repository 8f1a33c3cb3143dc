"""Everything that is asked of one benchmark and one downstream board, and what the answers say in one sentence.

Each rank statistic against chance; the regret of trusting the benchmark; whether it says more than the models' size or
family does, by the correlation of what these leave unexplained; and the conclusion: yes, no, the wrong way round, or
too few models to tell.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

import numpy as np

from prbench.insight.meta.board import BoardPair, ModelBoard
from prbench.insight.meta.intervals import (
    ALPHA,
    MOST_MODELS,
    Interval,
    fisher_interval,
    interval_of,
    models_needed,
    ties_of,
)
from prbench.metrics.correlation import (
    PERMUTATIONS,
    RBO_P,
    Gain,
    Statistic,
    coefficient_of_each,
    correlate,
)
from prbench.metrics.estimate import FloatArray, percentile_interval

DRAWS = 2_000
FEWEST_TO_LEAVE_ONE_OUT = 4
FEWEST_FREE = 2  # models beyond what the covariates and the two columns use up
BAR = 0.5  # a correlation worth having


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """What has to be stated beside the figures."""

    gain: Gain = "exponential"
    rbo_p: float = RBO_P
    top_k: int = 3
    seed: int = 0
    draws: int = DRAWS
    permutations: int = PERMUTATIONS


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaveOneOut:
    """The least and the largest value with one model left out, and which one that is."""

    low: float
    without_low: str
    high: float
    without_high: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RankStatistic:
    """One statistic; what is undefined is `None`."""

    value: float | None
    low: float | None = None
    high: float | None = None
    p: float | None = None  # two-sided for correlations, one-sided for NDCG and RBO, which have no zero
    null_mean: float | None = None  # what a random order gives
    null_95: float | None = None
    exact: bool = False  # all orders, or a seeded sample of them
    leave_one_out: LeaveOneOut | None = None
    bootstrap_models: Interval | None = None
    bootstrap_items: Interval | None = None
    bootstrap_both: Interval | None = None


def measure(pair: BoardPair, choices: Choices) -> dict[str, RankStatistic]:
    """Return every statistic of a pair, in the order of the table."""
    names: Sequence[Statistic] = ("spearman", "kendall", "pearson", "weighted_tau", "ndcg", "rbo")
    drawn = _all_draws(pair, choices)
    return {name: _figure(pair, name, choices, drawn) for name in names}


def _figure(
    pair: BoardPair, statistic: Statistic, choices: Choices, drawn: dict[str, tuple[FloatArray, FloatArray]]
) -> RankStatistic:
    x, y = pair.benchmark.scores, pair.downstream.scores
    found = correlate(
        x,
        y,
        statistic,
        gain=choices.gain,
        p=choices.rbo_p,
        seed=choices.seed,
        draws=choices.permutations,
    )
    if found is None or pair.n < 2 or not (np.ptp(x) > 0 and np.ptp(y) > 0):
        return RankStatistic(value=None)
    ties = (ties_of(x), ties_of(y))
    spearman = float(coefficient_of_each(x[None], y[None], "spearman")[0])
    limits = interval_of(
        found.value, pair.n, statistic, spearman=spearman, gain=choices.gain, p=choices.rbo_p, ties=ties
    )
    plain = RankStatistic(
        value=found.value,
        low=None if limits is None else limits[0],
        high=None if limits is None else limits[1],
        p=found.p_value,
        null_mean=found.null_mean,
        null_95=found.null_95,
        exact=found.exact,
        leave_one_out=_leave_one_out(pair, statistic, choices),
    )
    spreads: dict[str, Any] = {}
    for name, columns in drawn.items():
        samples = coefficient_of_each(*columns, statistic, gain=choices.gain, p=choices.rbo_p)
        spreads[name] = None if np.isnan(samples).all() else percentile_interval(samples)
    return replace(plain, **spreads)


def _leave_one_out(pair: BoardPair, statistic: Statistic, choices: Choices) -> LeaveOneOut | None:
    n = pair.n
    if n < FEWEST_TO_LEAVE_ONE_OUT:
        return None
    kept = np.array([[other for other in range(n) if other != left] for left in range(n)])
    columns = (pair.benchmark.scores[kept], pair.downstream.scores[kept])
    values = coefficient_of_each(*columns, statistic, gain=choices.gain, p=choices.rbo_p)
    if np.isnan(values).all():
        return None
    least, most = int(np.nanargmin(values)), int(np.nanargmax(values))
    return LeaveOneOut(
        low=float(values[least]),
        without_low=pair.models[least],
        high=float(values[most]),
        without_high=pair.models[most],
    )


def _all_draws(pair: BoardPair, choices: Choices) -> dict[str, tuple[FloatArray, FloatArray]]:
    """Return both columns under resampling: other models, other items of the same models, and both at once."""
    if pair.n < FEWEST_TO_LEAVE_ONE_OUT:
        return {}
    generator = np.random.Generator(np.random.PCG64(choices.seed))
    models = generator.integers(0, pair.n, size=(choices.draws, pair.n))
    found = {"bootstrap_models": (pair.benchmark.scores[models], pair.downstream.scores[models])}
    boards = (pair.benchmark, pair.downstream)
    if any(board.items is not None for board in boards):
        x, y = (
            np.tile(board.scores, (choices.draws, 1))
            if board.items is None
            else board.items.ratios().samples(seed=choices.seed + place, draws=choices.draws)
            for place, board in enumerate(boards, start=1)
        )
        rows = np.arange(choices.draws)[:, None]
        found |= {"bootstrap_items": (x, y), "bootstrap_both": (x[rows, models], y[rows, models])}
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Regret:
    """What is lost downstream by trusting the benchmark's first k models, in units of the downstream score."""

    k: int
    value: float  # the best downstream score minus the best among the first k
    chance: float  # the same for k models picked at random
    best: str
    picked: tuple[str, ...]  # the first k; of tied models, all that could be among them


def regret(benchmark: ModelBoard, downstream: ModelBoard, k: int) -> Regret:
    """Return the regret of the first k; models tied on the benchmark are picked with equal chance."""
    x, y = benchmark.scores, downstream.scores
    k = min(k, len(x))
    bar = np.sort(x)[-k]
    sure, tied = y[x > bar], y[x == bar]
    open_places = k - len(sure)
    picked = [model for model, score in zip(benchmark.models, x, strict=True) if score >= bar]
    return Regret(
        k=k,
        value=float(y.max() - _expected_best(sure, tied, open_places)),
        chance=float(y.max() - _expected_best(np.empty(0), y, k)),
        best=downstream.models[int(y.argmax())],
        picked=tuple(picked),
    )


def _expected_best(sure: FloatArray, tied: FloatArray, count: int) -> float:
    """Return the mean over all ways to pick `count` of the tied ones, of the best among them and the sure ones."""
    falling = np.sort(tied)[::-1]
    floor = float(sure.max()) if len(sure) else -np.inf
    ways = math.comb(len(falling), count)
    weights = [math.comb(len(falling) - place - 1, count - 1) / ways for place in range(len(falling) - count + 1)]
    return float(sum(weight * max(floor, value) for weight, value in zip(weights, falling, strict=False)))


@dataclass(frozen=True, slots=True, kw_only=True)
class PartialCorrelation:
    """Spearman's correlation given something else; without a value, `why` says what is missing."""

    given: str
    n: int
    value: float | None = None
    low: float | None = None
    high: float | None = None
    p: float | None = None
    why: str = ""


def partial_correlations(pair: BoardPair) -> list[PartialCorrelation]:
    """Return the correlation given size, given family, and given both, as far as the boards tell them."""
    sizes = {**pair.downstream.sizes, **pair.benchmark.sizes}
    families = {**pair.downstream.families, **pair.benchmark.families}
    found = []
    if sizes:
        found.append(_partial(pair, "size", sizes, None))
    if families:
        found.append(_partial(pair, "family", None, families))
    if sizes and families:
        found.append(_partial(pair, "size and family", sizes, families))
    return found


def _partial(
    pair: BoardPair, given: str, sizes: Mapping[str, float] | None, families: Mapping[str, str] | None
) -> PartialCorrelation:
    from scipy.stats import rankdata
    from scipy.stats import t as student

    known = [
        place
        for place, model in enumerate(pair.models)
        if (sizes is None or model in sizes) and (families is None or model in families)
    ]
    names = [pair.models[place] for place in known]
    columns = [np.ones(len(known))]
    if sizes is not None:
        columns.append(rankdata([sizes[name] for name in names]))
    if families is not None:
        kinds = sorted({families[name] for name in names})
        columns += [np.array([float(families[name] == kind) for name in names]) for kind in kinds[1:]]
    explained = np.stack(columns, axis=1)
    used = int(np.linalg.matrix_rank(explained)) - 1 if known else 0
    free = len(known) - 2 - used
    if free < FEWEST_FREE:
        return PartialCorrelation(
            given=given, n=len(known), why=f"{len(known)} models with a known {given} are too few."
        )
    ranks = [rankdata(board.scores[known]) for board in (pair.benchmark, pair.downstream)]
    x, y = (column - explained @ np.linalg.lstsq(explained, column, rcond=None)[0] for column in ranks)
    if min(float(x @ x), float(y @ y)) < 1e-9:
        return PartialCorrelation(given=given, n=len(known), why=f"The {given} explains a whole column.")
    value = float(x @ y / math.sqrt(float(x @ x) * float(y @ y)))
    low, high = fisher_interval(value, len(known) - used, spread=1 + value**2 / 2)
    p = 0.0 if abs(value) >= 1 else 2 * float(student.sf(abs(value) * math.sqrt(free / (1 - value**2)), free))
    return PartialCorrelation(given=given, n=len(known), value=value, low=low, high=high, p=p)


class MetaOutcome(StrEnum):
    """Whether a benchmark predicts downstream results."""

    PREDICTS = "predicts"
    REVERSED = "reversed"
    DOES_NOT = "does not predict"
    TOO_FEW = "too few models to tell"


@dataclass(frozen=True, slots=True, kw_only=True)
class Conclusion:
    """An outcome with its reason."""

    outcome: MetaOutcome
    sentence: str
    needed: int | None  # models that would show the observed correlation; `None`: it is 0, or there is none
    needed_for_bar: int  # models that would show a correlation worth having


def conclude(
    *,
    n: int,
    value: float | None,
    low: float | None,
    high: float | None,
    p: float | None,
    bar: float = BAR,
) -> Conclusion:
    """Say whether the ranking by the benchmark predicts the ranking downstream, from Spearman's correlation.

    `bar` is the correlation that would make the benchmark worth its cost: a correlation is denied when the interval
    stays below it, and nothing is said when the interval holds both 0 and the bar.
    """
    for_bar = models_needed(bar)
    over = "1 model" if n == 1 else f"{n} models"
    if value is None or p is None or low is None or high is None:
        flat = value is None and n >= 2
        why = f"all {n} models have the same score on one side" if flat else f"{over} can show nothing"
        sentence = f"Too few models to tell: {why}. About {for_bar} models would show a correlation of {bar:.2f}."
        return Conclusion(outcome=MetaOutcome.TOO_FEW, sentence=sentence, needed=None, needed_for_bar=for_bar)
    needed = models_needed(value) if value else None
    small_p = "< 0.001" if p < 0.001 else f"= {p:.3f}" if p < 0.01 else f"= {p:.2f}"
    figures = f"Spearman {value:.2f}, 95 % interval {low:.2f} to {high:.2f}, p {small_p}"
    if p < ALPHA and value < 0:
        outcome = MetaOutcome.REVERSED
        sentence = (
            f"It predicts the wrong way round: over {over}, what ranks high here ranks low downstream ({figures})."
        )
    elif p < ALPHA and high < bar:
        outcome = MetaOutcome.DOES_NOT
        ruled_out = f"over {over} there is a correlation, but one of {bar:.2f} can be ruled out"
        sentence = f"It does not predict well enough: {ruled_out} ({figures})."
    elif p < ALPHA:
        outcome, how = MetaOutcome.PREDICTS, "strongly" if low >= bar else "how strongly is open"
        sentence = f"It predicts the downstream ranking, {how}: over {over}, {figures}."
    elif high < bar:
        outcome = MetaOutcome.DOES_NOT
        ruled_out = f"over {over}, a correlation of {bar:.2f} can be ruled out"
        sentence = f"It does not predict the downstream ranking: {ruled_out} ({figures})."
    else:
        outcome = MetaOutcome.TOO_FEW
        by_chance = f"chance gives a correlation as far from 0 in {100 * p:.0f} % of the cases"
        would = f"{for_bar} models would show a correlation of {bar:.2f}"
        if needed is not None and needed < MOST_MODELS:
            would = f"{needed} models would show one of {abs(value):.2f}, and {would},"
        sentence = f"Too few models to tell: with {over}, {by_chance} ({figures}). About {would} with 80 % power."
    return Conclusion(outcome=outcome, sentence=sentence, needed=needed, needed_for_bar=for_bar)
