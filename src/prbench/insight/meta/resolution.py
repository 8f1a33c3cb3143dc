"""What the choice of items adds to the differences between models, and how many items, users and models are needed.

The correlation that ever more items would give is corrected for their noise. The study of a benchmark's resolution
takes the item rows of a board that is there already. Two disjoint sets of users are drawn again and again, and the
models are ranked by each: as far as the two rankings agree, the benchmark agrees with itself. That takes two sets, so
it can be tried with half of the users at most; the reliability, the ceiling and the smallest difference follow from
variances, and are told for larger sets too.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

import numpy as np

from prbench.errors import DataError
from prbench.insight.meta.board import BoardPair, ItemTable, ModelBoard
from prbench.insight.meta.intervals import (
    Interval,
    compatible_rho,
    interval_of,
    models_needed,
    population_value,
    rho_of_spearman,
    ties_of,
)
from prbench.insight.meta.statistics import over_families
from prbench.metrics.correlation import coefficient, coefficient_of_each
from prbench.metrics.estimate import FloatArray
from prbench.schema import Estimate, Json

SPLITS = 400
FEWEST_MODELS, FEWEST_USERS, FEWEST_TO_SPLIT = 4, 2, 4
RELIABILITIES = (0.8, 0.9, 0.95)
CORRELATIONS = (0.3, 0.5, 0.7, 0.9)
BOARD_SIZES = (6, 12, 24)
ITEMS_PER_USER = (1, 2, 4, 8)
POWER_AND_LEVEL = 2.8016  # z of 97.5 % plus z of 80 %
MOST = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Corrected:
    """Spearman's correlation of the scores that ever more items would give."""

    spearman: Estimate
    reliability_benchmark: float  # share of the variance between models that other items would show again
    reliability_downstream: float


def noise_variance(items: ItemTable) -> float:
    """Return the variance, from items alone, of one model's score beside the others'; users are clusters.

    How hard an item is for all models alike does not count, because it moves no model past another.
    """
    known = ~np.isnan(items.values)
    residuals = np.where(known, items.values - items.means, 0.0) / known.sum(axis=0)
    codes = items.user_codes
    users = int(codes.max()) + 1
    by_user = np.zeros((users, items.values.shape[1]))
    np.add.at(by_user, codes, residuals)
    contrasts = by_user - by_user.mean(axis=1, keepdims=True)
    return float((contrasts**2).sum() / (by_user.shape[1] - 1) * users / max(1, users - 1))


def reliability(board: ModelBoard) -> float | None:
    """Return the share of the variance between models that is no noise of the items; `None` where it is not known."""
    n = len(board.models)
    if board.items is None or n < FEWEST_MODELS or len(set(board.items.users)) < FEWEST_USERS:
        return None
    spread = float(np.var(board.scores, ddof=1))
    if spread <= 0:
        return None
    # 1 / spread is too large on average, by (n - 1) / (n - 3) for normal scores.
    return 1 - (n - 3) / (n - 1) * noise_variance(board.items) / spread


def corrected_spearman(pair: BoardPair) -> Corrected | None:
    """Return the correlation corrected for the noise of items (Spearman 1904), or `None` where that is not known.

    A side without item rows counts as measured without noise. Where noise is all that there is, nothing can be said:
    the interval goes from -1 to 1.
    """
    value = coefficient(pair.benchmark.scores, pair.downstream.scores, "spearman")
    both = [reliability(board) for board in (pair.benchmark, pair.downstream)]
    if value is None or both == [None, None]:
        return None
    first, second = (1.0 if share is None else share for share in both)
    ties = (ties_of(pair.benchmark.scores), ties_of(pair.downstream.scores))
    share = first * second if min(first, second) > 0 else 0.0
    rhos = compatible_rho(value, pair.n, ties)
    if pair.families is not None and not pair.families.are_single:
        limits = over_families(pair.benchmark.scores, pair.downstream.scores, pair.families)
        rhos = (-1.0, 1.0) if limits is None else (rho_of_spearman(limits.low), rho_of_spearman(limits.high))
    found, low, high = corrected_for(value, rhos, share)
    return Corrected(
        spearman=Estimate(value=found, low=low, high=high, n=pair.n),
        reliability_benchmark=first,
        reliability_downstream=second,
    )


def corrected_for(value: float, limits: Interval, reliabilities: float) -> tuple[float, float, float]:
    """Return Spearman's correlation and its interval, given limits of rho and the product of both reliabilities."""
    if reliabilities <= 0:
        return value, -1.0, 1.0
    scale = reliabilities**-0.5
    rhos = (rho_of_spearman(value), *limits)
    found, low, high = (population_value(float(np.clip(rho * scale, -1.0, 1.0)), "spearman") for rho in rhos)
    return found, low, high


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolutionAt:
    """What a benchmark of so many users would tell about these models."""

    users: int
    items: int
    agreement: float | None  # Spearman between the rankings by two such sets; `None`: there are not enough users
    agreement_low: float | None  # where 95 % of the splits lie
    agreement_high: float | None
    same_best: float | None  # share of the splits in which both sets have the same best model
    reliability: float  # share of the variance between models that is no noise of items
    ceiling: float  # the largest correlation with anything that such a set can show
    smallest_difference: float  # of two models' scores, at 80 % power


@dataclass(frozen=True, slots=True, kw_only=True)
class NeededFor:
    """What a wanted reliability takes."""

    reliability: float
    users: int | None  # `None`: more than a million, or the models do not differ
    items: int | None
    users_by_items: dict[int, int | None]  # users, by how many items each brings


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelsToShow:
    """What it takes to show a correlation with downstream."""

    correlation: float
    models: int  # measured without noise
    models_with_these_items: int
    intervals: dict[int, tuple[float, float]]  # the usual interval, by the number of models


@dataclass(frozen=True, slots=True, kw_only=True)
class PartOfBoard:
    """What parts of the board say about a downstream board: so many of its users and so many of its models."""

    downstream: str
    users: int
    items: int
    models: int
    mean: float  # Spearman with downstream
    low: float  # where 95 % of the parts lie
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolution:
    """The study of one board."""

    board: str
    models: int
    users: int
    items: int
    reliability: float
    sizes: tuple[ResolutionAt, ...]
    needed: tuple[NeededFor, ...]
    power: tuple[ModelsToShow, ...]
    parts: tuple[PartOfBoard, ...] = ()  # where downstream boards are known

    @property
    def headline(self) -> str:
        """What was studied, and the main figure."""
        return (
            f"{self.board}: {self.models} models, {self.items} items of {self.users} users; "
            f"reliability {self.reliability:.2f}"
        )

    @property
    def advice(self) -> list[str]:
        """What a builder should do."""
        lines = []
        for each in self.needed:
            takes = f"{each.users} users ({each.items} items)" if each.users else "more than can be had"
            verb = "has them" if each.users is not None and each.users <= self.users else "does not have them"
            lines.append(f"A reliability of {each.reliability:g} takes {takes}; this board {verb}.")
        return lines

    def as_json(self) -> dict[str, Json]:
        """Return the study for machines."""
        return asdict(self)


def measure_resolution(board: ModelBoard, pairs: Sequence[BoardPair] = (), *, seed: int = 0) -> Resolution:
    """Study a board that has item rows, and how parts of it correlate with the downstream boards of the pairs."""
    items, share = board.items, reliability(board)
    if items is None:
        raise DataError(f"{board.name}: has no item rows, so its resolution cannot be studied. Give model,item,score.")
    users = len(set(items.users))
    if share is None or users < FEWEST_TO_SPLIT:
        raise DataError(
            f"{board.name}: {len(board.models)} models and {users} users are too few. The resolution needs "
            f"{FEWEST_MODELS} models that differ, and {FEWEST_TO_SPLIT} users."
        )
    noise = noise_variance(items)
    signal = share / (1 - share) * noise if 0 < share < 1 else 0.0 if share <= 0 else float(np.var(board.scores))
    per_user = len(items.ids) / users
    return Resolution(
        board=board.name,
        models=len(board.models),
        users=users,
        items=len(items.ids),
        reliability=share,
        sizes=tuple(_size(items, count, users, signal, noise, seed) for count in _counts(users)),
        needed=tuple(_needed(items, wanted, signal, noise, users, per_user) for wanted in RELIABILITIES),
        power=tuple(
            ModelsToShow(
                correlation=each,
                models=models_needed(each),
                models_with_these_items=models_needed(each * max(share, 0.0) ** 0.5),
                intervals={n: interval_of(each, n, "spearman") or (-1.0, 1.0) for n in BOARD_SIZES},
            )
            for each in CORRELATIONS
        ),
        parts=tuple(part for pair in pairs for part in _parts(pair, seed)),
    )


def _counts(users: int) -> list[int]:
    """Return the sizes to study: halved again and again from half of the users, then all of them, and beyond."""
    half = users // 2
    falling = [half >> step for step in range(half.bit_length()) if half >> step >= 2]
    return [*reversed(falling[:6]), users, 2 * users, 4 * users]


def _size(items: ItemTable, users: int, of: int, signal: float, noise: float, seed: int) -> ResolutionAt:
    share = signal / (signal + noise * of / users) if signal > 0 else 0.0
    found, best = _splits(items, users, seed) if 2 * users <= of else (None, None)
    low, high = (None, None) if found is None else np.percentile(found, [2.5, 97.5])
    return ResolutionAt(
        users=users,
        items=round(users * len(items.ids) / of),
        agreement=None if found is None else float(found.mean()),
        agreement_low=None if low is None else float(low),
        agreement_high=None if high is None else float(high),
        same_best=best,
        reliability=share,
        ceiling=share**0.5,
        smallest_difference=POWER_AND_LEVEL * float(np.sqrt(2 * noise * of / users)),
    )


def _splits(items: ItemTable, users: int, seed: int) -> tuple[FloatArray | None, float | None]:
    """Return Spearman between two disjoint sets of users, and how often both have the same best model."""
    sums, counts = _by_user(items)
    generator = np.random.Generator(np.random.PCG64([seed, users]))
    shuffled = generator.permuted(np.tile(np.arange(len(sums)), (SPLITS, 1)), axis=1)
    with np.errstate(invalid="ignore"):
        first, second = (
            sums[part].sum(axis=1) / counts[part].sum(axis=1)
            for part in (shuffled[:, :users], shuffled[:, users : 2 * users])
        )
    whole = ~(np.isnan(first).any(axis=1) | np.isnan(second).any(axis=1))
    found = coefficient_of_each(first[whole], second[whole], "spearman")
    same = first[whole].argmax(axis=1) == second[whole].argmax(axis=1)
    known = found[~np.isnan(found)]
    return (known, float(same.mean())) if len(known) else (None, None)


def _parts(pair: BoardPair, seed: int) -> Iterator[PartOfBoard]:
    """Yield Spearman with downstream for parts of the users and of the models, drawn without replacement."""
    items, total = pair.benchmark.items, pair.n
    if items is None or total < FEWEST_MODELS:
        return
    sums, counts = _by_user(items)
    for users in [count for count in _counts(len(sums)) if count <= len(sums)]:
        generator = np.random.Generator(np.random.PCG64([seed, users]))
        drawn = generator.permuted(np.tile(np.arange(len(sums)), (SPLITS, 1)), axis=1)[:, :users]
        with np.errstate(invalid="ignore"):
            scores = sums[drawn].sum(axis=1) / counts[drawn].sum(axis=1)
        for models in [*(size for size in BOARD_SIZES if size < total), total]:
            chosen = generator.permuted(np.tile(np.arange(total), (SPLITS, 1)), axis=1)[:, :models]
            x, y = np.take_along_axis(scores, chosen, axis=1), pair.downstream.scores[chosen]
            whole = ~np.isnan(x).any(axis=1)
            found = coefficient_of_each(x[whole], y[whole], "spearman")
            found = found[~np.isnan(found)]
            if len(found):
                low, high = np.percentile(found, [2.5, 97.5])
                yield PartOfBoard(
                    downstream=pair.downstream.name,
                    users=users,
                    items=round(users * len(items.ids) / len(sums)),
                    models=models,
                    mean=float(found.mean()),
                    low=float(low),
                    high=float(high),
                )


def _by_user(items: ItemTable) -> tuple[FloatArray, FloatArray]:
    known = ~np.isnan(items.values)
    codes = items.user_codes
    sums, counts = (np.zeros((codes.max() + 1, items.values.shape[1])) for _ in range(2))
    np.add.at(sums, codes, np.where(known, items.values, 0.0))
    np.add.at(counts, codes, known)
    return sums, counts


def _needed(items: ItemTable, wanted: float, signal: float, noise: float, users: int, per_user: float) -> NeededFor:
    allowed = signal * (1 - wanted) / wanted  # noise that leaves the wanted reliability
    count = _ceil(noise * users / allowed) if allowed > 0 else None
    between, within = _components(items, noise * users)
    return NeededFor(
        reliability=wanted,
        users=count,
        items=None if count is None else round(count * per_user),
        users_by_items={
            each: _ceil((between + within / each) / allowed) if allowed > 0 else None for each in ITEMS_PER_USER
        }
        if within is not None
        else {},
    )


def _components(items: ItemTable, one_user: float) -> tuple[float, float | None]:
    """Return the variance of a model's score from users and from items within users, for one user with one item.

    `one_user` is the variance from one of these users, who bring several items each. With one item per user the two
    cannot be told apart: the second is `None`.
    """
    codes = items.user_codes
    whole = ~np.isnan(items.values).any(axis=1)
    values, codes = items.values[whole], codes[whole]
    contrasts = values - values.mean(axis=1, keepdims=True)
    counts = np.bincount(codes, minlength=codes.max() + 1 if len(codes) else 1)
    spare = int((counts[counts > 0] - 1).sum())
    if spare < 1:
        return one_user, None
    means = np.zeros((len(counts), values.shape[1]))
    np.add.at(means, codes, contrasts)
    means /= np.maximum(counts, 1)[:, None]
    within = float(((contrasts - means[codes]) ** 2).sum() / (spare * (values.shape[1] - 1)))
    usual = 1 / float(np.mean(1 / counts[counts > 0]))
    return max(0.0, one_user - within / usual), within


def _ceil(value: float) -> int | None:
    return None if value > MOST else max(2, int(np.ceil(value)))
