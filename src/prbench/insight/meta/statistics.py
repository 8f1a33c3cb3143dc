"""Everything that is asked of one benchmark and one downstream board."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import comb
from typing import Any

import numpy as np

from prbench.insight.meta.board import Board, Pair
from prbench.insight.meta.intervals import Interval, interval_of, ties_of
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
class Figure:
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


def measure(pair: Pair, choices: Choices) -> dict[str, Figure]:
    """Return every statistic of a pair, in the order of the table."""
    names: Sequence[Statistic] = ("spearman", "kendall", "pearson", "weighted_tau", "ndcg", "rbo")
    drawn = _all_draws(pair, choices)
    return {name: _figure(pair, name, choices, drawn) for name in names}


def _figure(
    pair: Pair, statistic: Statistic, choices: Choices, drawn: dict[str, tuple[FloatArray, FloatArray]]
) -> Figure:
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
        return Figure(value=None)
    ties = (ties_of(x), ties_of(y))
    spearman = float(coefficient_of_each(x[None], y[None], "spearman")[0])
    limits = interval_of(
        found.value, pair.n, statistic, spearman=spearman, gain=choices.gain, p=choices.rbo_p, ties=ties
    )
    plain = Figure(
        value=found.value,
        low=None if limits is None else limits[0],
        high=None if limits is None else limits[1],
        p=found.p_value,
        null_mean=found.null_mean,
        null_95=found.null_95,
        exact=found.exact,
        leave_one_out=_leave_one_out(pair, statistic, choices),
    )
    spreads: dict[str, Any] = {name: _spread(both, statistic, choices) for name, both in drawn.items()}
    return replace(plain, **spreads)


def _leave_one_out(pair: Pair, statistic: Statistic, choices: Choices) -> LeaveOneOut | None:
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


def _all_draws(pair: Pair, choices: Choices) -> dict[str, tuple[FloatArray, FloatArray]]:
    """Return both columns under resampling: other models, other items of the same models, and both at once."""
    if pair.n < FEWEST_TO_LEAVE_ONE_OUT:
        return {}
    generator = np.random.Generator(np.random.PCG64(choices.seed))
    models = generator.integers(0, pair.n, size=(choices.draws, pair.n))
    found = {"bootstrap_models": (pair.benchmark.scores[models], pair.downstream.scores[models])}
    if pair.has_items:
        seeds = (choices.seed + 1, choices.seed + 2)
        boards = (pair.benchmark, pair.downstream)
        x, y = (_with_other_items(board, choices.draws, seed) for board, seed in zip(boards, seeds, strict=True))
        rows = np.arange(choices.draws)[:, None]
        found |= {"bootstrap_items": (x, y), "bootstrap_both": (x[rows, models], y[rows, models])}
    return found


def _with_other_items(board: Board, draws: int, seed: int) -> FloatArray:
    if board.items is None:
        return np.tile(board.scores, (draws, 1))
    return board.items.draws(seed=seed, draws=draws)


def _spread(columns: tuple[FloatArray, FloatArray], statistic: Statistic, choices: Choices) -> Interval | None:
    samples = coefficient_of_each(*columns, statistic, gain=choices.gain, p=choices.rbo_p)
    return None if np.isnan(samples).all() else percentile_interval(samples)


@dataclass(frozen=True, slots=True, kw_only=True)
class Regret:
    """What is lost downstream by trusting the benchmark's first k models, in units of the downstream score."""

    k: int
    value: float  # the best downstream score minus the best among the first k
    chance: float  # the same for k models picked at random
    best: str
    picked: tuple[str, ...]  # the first k; of tied models, all that could be among them


def regret(benchmark: Board, downstream: Board, k: int) -> Regret:
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
    ways = comb(len(falling), count)
    weights = [comb(len(falling) - place - 1, count - 1) / ways for place in range(len(falling) - count + 1)]
    return float(sum(weight * max(floor, value) for weight, value in zip(weights, falling, strict=False)))
