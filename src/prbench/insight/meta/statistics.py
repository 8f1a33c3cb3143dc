"""Everything that is asked of one benchmark and one downstream board, and what the answers say in one sentence.

Each rank statistic against chance; the regret of trusting the benchmark; whether it says more than the models' size or
family does, by the correlation of what these leave unexplained. Where families of models are known, every interval of
a correlation is over families.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from prbench.insight.meta.board import BoardPair, ModelBoard
from prbench.insight.meta.families import (
    BetweenFamilies,
    Families,
    FamilyLimits,
    WithinFamilies,
    between_families,
    each_its_own,
    family_draws,
    family_interval,
    seeds_drawn,
    within_families,
)
from prbench.insight.meta.intervals import (
    Interval,
    fisher_interval,
    interval_of,
    mean_over_boards,
    rho_of_spearman,
    ties_of,
)
from prbench.insight.meta.structural import NullBand, NullSettings, StructuralNull
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
CORRELATIONS: Sequence[Statistic] = ("spearman", "kendall", "pearson")  # that have a scale of z
# What a p is the chance of.
OF_ORDERS = "any order of the models is as likely"
OF_FAMILIES = "no correlation among families"


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """What has to be stated beside the figures."""

    gain: Gain = "exponential"
    rbo_p: float = RBO_P
    top_k: int = 3
    seed: int = 0
    draws: int = DRAWS
    permutations: int = PERMUTATIONS
    family_by: str = ""  # the column or rule that tells families; "" for the column `family`
    null: NullSettings = field(default_factory=NullSettings)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaveOneOut:
    """The least and the largest value with one model left out, or one family, and which one that is."""

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
    p_if: str = ""  # what p is the chance under
    null_mean: float | None = None  # what a random order gives
    null_95: float | None = None
    exact: bool = False  # all orders, or a seeded sample of them
    leave_one_out: LeaveOneOut | None = None
    bootstrap_models: Interval | None = None  # where families are not known
    bootstrap_families: Interval | None = None  # families, variants within them, and seeds where they are known
    bootstrap_items: Interval | None = None
    bootstrap_both: Interval | None = None  # items, and models or families
    structural: NullBand | None = None  # what a board of this spread yields by itself


@dataclass(frozen=True, slots=True, kw_only=True)
class Population:
    """Which models the intervals and tests speak of."""

    over: str  # `families` or `models`
    models: int
    families: int | None  # `None`: not known
    effective_families: float | None  # as many families of equal size would tell as much
    without_family: int  # models of which no family is known; each counts as its own

    @property
    def sentence(self) -> str:
        """The population in words."""
        if self.families is None or self.effective_families is None:
            return (
                f"Intervals are over models: each of the {self.models} is taken as drawn by itself, since families "
                "are not known. If some are variants of one training, size or seed, the intervals are too narrow: "
                "give a column `family`, or --family-by."
            )
        if self.families == self.models:
            return f"Intervals are over families: each of the {self.models} models is a family of its own."
        alone = f" {self.without_family} models without a family are each their own." if self.without_family else ""
        return (
            f"Intervals are over families: the {self.models} models are of {self.families} families, which tell as "
            f"much as {self.effective_families:.1f} of equal size.{alone}"
        )


def population(pair: BoardPair) -> Population:
    """Return the population that a pair of boards speaks of."""
    families = pair.families
    return Population(
        over="models" if families is None else "families",
        models=pair.n,
        families=None if families is None else families.count,
        effective_families=None if families is None else families.effective,
        without_family=pair.n - len(pair.family_names),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ByFamily:
    """Where an association lies."""

    within: WithinFamilies | None
    between: BetweenFamilies | None


def by_family(pair: BoardPair, choices: Choices) -> ByFamily | None:
    """Return both tests; `None` where families are not known, or each model is its own."""
    families = pair.families
    if families is None or families.are_single:
        return None
    columns = (pair.benchmark.scores, pair.downstream.scores, families)
    return ByFamily(
        within=within_families(*columns, seed=choices.seed, draws=choices.permutations),
        between=between_families(*columns, seed=choices.seed, draws=choices.permutations),
    )


def measure(pair: BoardPair, choices: Choices, null: StructuralNull | None = None) -> dict[str, RankStatistic]:
    """Return every statistic of a pair, in the order of the table."""
    names: Sequence[Statistic] = ("spearman", "kendall", "pearson", "weighted_tau", "ndcg", "rbo")
    drawn = _all_draws(pair, choices)
    return {name: replace(_figure(pair, name, choices, drawn), structural=_band(null, name)) for name in names}


def _band(null: StructuralNull | None, statistic: Statistic) -> NullBand | None:
    return None if null is None else null.bands[statistic]


Blocks = list[tuple[FloatArray, FloatArray]]  # draws of both columns; those of one length come together


def _figure(pair: BoardPair, statistic: Statistic, choices: Choices, drawn: Mapping[str, Blocks]) -> RankStatistic:
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
    limits, p, p_if = _limits(pair, statistic, found.value, found.p_value, choices)
    plain = RankStatistic(
        value=found.value,
        low=None if limits is None else limits[0],
        high=None if limits is None else limits[1],
        p=p,
        p_if=p_if,
        null_mean=found.null_mean,
        null_95=found.null_95,
        exact=found.exact,
        leave_one_out=_leave_one_out(pair, statistic, choices),
    )
    spreads: dict[str, Any] = {}
    for name, blocks in drawn.items():
        samples = np.concatenate(
            [coefficient_of_each(*each, statistic, gain=choices.gain, p=choices.rbo_p) for each in blocks]
        )
        spreads[name] = None if np.isnan(samples).all() else percentile_interval(samples)
    return replace(plain, **spreads)


def _limits(
    pair: BoardPair, statistic: Statistic, value: float, p: float, choices: Choices
) -> tuple[Interval | None, float | None, str]:
    """Return the interval, p and what p is the chance under: over families where some have several models.

    Weighted tau, NDCG and RBO depend on how many models there are. Over families, theirs is what boards of n models
    give on average at the ends of Spearman's interval, and they have no p.
    """
    x, y, families = pair.benchmark.scores, pair.downstream.scores, pair.families
    ties = (ties_of(x), ties_of(y))
    spearman = float(coefficient_of_each(x[None], y[None], "spearman")[0])
    if families is None or families.are_single:
        limits = interval_of(
            value, pair.n, statistic, spearman=spearman, gain=choices.gain, p=choices.rbo_p, ties=ties
        )
        return limits, p, OF_ORDERS
    of_ranks = statistic if statistic in CORRELATIONS else "spearman"
    found = over_families(x, y, families, of_ranks)
    if found is None:
        return None, None, OF_FAMILIES
    if statistic in CORRELATIONS:
        return (found.low, found.high), found.p, OF_FAMILIES
    low, high = (
        mean_over_boards(rho_of_spearman(end), pair.n, statistic, gain=choices.gain, p=choices.rbo_p, ties=ties)
        for end in (found.low, found.high)
    )
    return (min(low, value), max(high, value)), None, OF_FAMILIES


def over_families(
    x: FloatArray, y: FloatArray, families: Families, statistic: Statistic = "spearman"
) -> FamilyLimits | None:
    """Return the interval of a correlation over families."""

    def figure(places: npt.NDArray[np.int64]) -> float:
        return float(coefficient_of_each(x[places][None], y[places][None], statistic)[0])

    value = figure(np.arange(len(x)))
    return None if math.isnan(value) else family_interval(value, figure, families)


def _leave_one_out(pair: BoardPair, statistic: Statistic, choices: Choices) -> LeaveOneOut | None:
    families = pair.families or each_its_own(pair.n)
    if families.count < FEWEST_TO_LEAVE_ONE_OUT:
        return None
    names = pair.models if families.are_single else tuple(name.strip() for name in families.names)
    places = [families.codes[place] for place in range(pair.n)] if families.are_single else range(families.count)
    values = []
    for family in places:
        kept = families.without(int(family))
        columns = (pair.benchmark.scores[kept][None], pair.downstream.scores[kept][None])
        values.append(float(coefficient_of_each(*columns, statistic, gain=choices.gain, p=choices.rbo_p)[0]))
    if np.isnan(values).all():
        return None
    least, most = int(np.nanargmin(values)), int(np.nanargmax(values))
    return LeaveOneOut(low=values[least], without_low=names[least], high=values[most], without_high=names[most])


def _all_draws(pair: BoardPair, choices: Choices) -> dict[str, Blocks]:
    """Return both columns under resampling: other models or families, other items of the same models, both at once."""
    if pair.n < FEWEST_TO_LEAVE_ONE_OUT:
        return {}
    generator = np.random.Generator(np.random.PCG64(choices.seed))
    families = pair.families or each_its_own(pair.n)
    drawn = list(family_draws(families, choices.draws, generator))
    boards = (pair.benchmark, pair.downstream)
    seeds = np.random.Generator(np.random.PCG64([choices.seed, 1]))
    of_models = [
        tuple(seeds_drawn(board.seeds, pair.models, board.scores, models, seeds) for board in boards)
        for models in drawn
    ]
    found: dict[str, Blocks] = {
        "bootstrap_models" if pair.families is None else "bootstrap_families": [(one, two) for one, two in of_models]
    }
    if any(board.items is not None for board in boards):
        x, y = (
            np.tile(board.scores, (choices.draws, 1))
            if board.items is None
            else board.items.ratios().samples(seed=choices.seed + place, draws=choices.draws)
            for place, board in enumerate(boards, start=1)
        )
        found["bootstrap_items"] = [(x, y)]
        ends = np.cumsum([0, *map(len, drawn)])
        rows = [np.arange(start, end)[:, None] for start, end in pairwise(ends)]
        found["bootstrap_both"] = [(x[row, models], y[row, models]) for row, models in zip(rows, drawn, strict=True)]
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
    families = pair.family_names
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
    from scipy.stats import t as student

    known = np.array(
        [
            place
            for place, model in enumerate(pair.models)
            if (sizes is None or model in sizes) and (families is None or model in families)
        ],
        dtype=np.int64,
    )
    used = np.linalg.matrix_rank(_covariates(pair, known, sizes, families)) - 1 if len(known) else 0
    free = len(known) - 2 - used
    if free < FEWEST_FREE:
        return PartialCorrelation(
            given=given, n=len(known), why=f"{len(known)} models with a known {given} are too few."
        )
    value = _unexplained(pair, known, sizes, families)
    if value is None:
        return PartialCorrelation(given=given, n=len(known), why=f"The {given} explains a whole column.")
    groups = None if pair.families is None else pair.families.of(known)
    if groups is None or groups.are_single:
        low, high = fisher_interval(value, len(known) - used, spread=1 + value**2 / 2)
        p = 0.0 if abs(value) >= 1 else 2 * float(student.sf(abs(value) * math.sqrt(free / (1 - value**2)), free))
        return PartialCorrelation(given=given, n=len(known), value=value, low=low, high=high, p=p)
    limits = family_interval(value, lambda places: _unexplained(pair, known[places], sizes, families), groups)
    if limits is None:
        return PartialCorrelation(given=given, n=len(known), value=value, why=f"{groups.count} families are too few.")
    return PartialCorrelation(given=given, n=len(known), value=value, low=limits.low, high=limits.high, p=limits.p)


def _covariates(
    pair: BoardPair,
    places: npt.NDArray[np.int64],
    sizes: Mapping[str, float] | None,
    families: Mapping[str, str] | None,
) -> FloatArray:
    """Return what explains ranks, a column each: a constant, the rank of the size, the family."""
    from scipy.stats import rankdata

    names = [pair.models[place] for place in places]
    columns = [np.ones(len(names))]
    if sizes is not None:
        columns.append(rankdata([sizes[name] for name in names]))
    if families is not None:
        kinds = sorted({families[name] for name in names})
        columns += [np.array([float(families[name] == kind) for name in names]) for kind in kinds[1:]]
    return np.stack(columns, axis=1)


def _unexplained(
    pair: BoardPair,
    places: npt.NDArray[np.int64],
    sizes: Mapping[str, float] | None,
    families: Mapping[str, str] | None,
) -> float | None:
    """Return the correlation of what the covariates leave of both rankings; `None` where they leave nothing of one."""
    from scipy.stats import rankdata

    explained = _covariates(pair, places, sizes, families)
    ranks = [rankdata(board.scores[places]) for board in (pair.benchmark, pair.downstream)]
    x, y = (column - explained @ np.linalg.lstsq(explained, column, rcond=None)[0] for column in ranks)
    if min(float(x @ x), float(y @ y)) < 1e-9:
        return None
    return float(x @ y / math.sqrt(float(x @ x) * float(y @ y)))
