"""The records: a board of models with scores, the items behind them, and two boards side by side."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from prbench.metrics.estimate import FloatArray, RatioDraws, ratio_draws

ITEM_DRAWS = 2_000
SHARE, ANYTHING = (0.0, 1.0), (-np.inf, np.inf)


@dataclass(frozen=True, slots=True, kw_only=True)
class Items:
    """One value per item and model, NaN where a model has none. One user's items are not independent."""

    ids: tuple[str, ...]
    users: tuple[str, ...]  # of each item; the item itself where users are not known
    values: FloatArray  # (items, models)

    @property
    def means(self) -> FloatArray:
        """The mean over items of every model."""
        known = ~np.isnan(self.values)
        sums: FloatArray = np.where(known, self.values, 0.0).sum(axis=0) / known.sum(axis=0)
        return sums

    def draws(self, *, seed: int, draws: int = ITEM_DRAWS) -> FloatArray:
        """Return what the means would be with other users: (draws, models)."""
        return self._resampled(seed, draws).samples

    def interval(self, *, seed: int) -> tuple[FloatArray, FloatArray]:
        """Return the ends of the 95 % interval of every mean, users resampled; NaN where one user is all there is."""
        known = self.values[~np.isnan(self.values)]
        is_share = known.min() >= 0 and known.max() <= 1
        resampled = replace(self._resampled(seed, ITEM_DRAWS), span=SHARE if is_share else ANYTHING)
        ends = np.full((2, self.values.shape[1]), np.nan)
        for column in range(ends.shape[1]):
            if is_share or resampled.users[column] > 1:
                found = resampled.estimate(column)
                ends[:, column] = found.low, found.high
        return ends[0], ends[1]

    def of(self, columns: Sequence[int]) -> "Items":
        """Return the same items for some of the models."""
        return replace(self, values=self.values[:, list(columns)])

    def _resampled(self, seed: int, draws: int) -> RatioDraws:
        known = ~np.isnan(self.values)
        return ratio_draws(np.where(known, self.values, 0.0), known, self.users, seed=seed, draws=draws)


@dataclass(frozen=True, slots=True, kw_only=True)
class Board:
    """Models with one score each, higher is better."""

    name: str
    models: tuple[str, ...]
    scores: FloatArray
    low: FloatArray  # ends of the interval of each score; NaN where nobody gave one
    high: FloatArray
    items: Items | None = None
    sizes: Mapping[str, float] = field(default_factory=dict)  # by model, where known
    families: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def of(self, models: Sequence[str]) -> "Board":
        """Return the board of some of its models, in the order given."""
        places = [self.models.index(model) for model in models]
        return replace(
            self,
            models=tuple(models),
            scores=self.scores[places],
            low=self.low[places],
            high=self.high[places],
            items=None if self.items is None else self.items.of(places),
        )

    def renamed(self, names: Mapping[str, str]) -> "Board":
        """Return the board with other names for some models."""
        return replace(
            self,
            models=tuple(names.get(model, model) for model in self.models),
            sizes={names.get(model, model): size for model, size in self.sizes.items()},
            families={names.get(model, model): family for model, family in self.families.items()},
        )


def board_of_scores(name: str, scores: Mapping[str, float], **more: object) -> Board:
    """Return a board without intervals."""
    nothing = np.full(len(scores), np.nan)
    values = np.array(list(scores.values()), dtype=np.float64)
    return Board(name=name, models=tuple(scores), scores=values, low=nothing, high=nothing, **more)  # type: ignore[arg-type]


def board_of_items(name: str, models: Sequence[str], items: Items, *, seed: int = 0, **more: object) -> Board:
    """Return a board whose scores are the means of items."""
    low, high = items.interval(seed=seed)
    return Board(name=name, models=tuple(models), scores=items.means, low=low, high=high, items=items, **more)  # type: ignore[arg-type]


def tabulate(rows: Sequence[tuple[str, str, str, float]]) -> tuple[tuple[str, ...], Items]:
    """Return the models and the table of rows (model, item, user, value); an item belongs to its user."""
    models = tuple(dict.fromkeys(model for model, _, _, _ in rows))
    items = tuple(dict.fromkeys((item, user) for _, item, user, _ in rows))
    column, row = {name: place for place, name in enumerate(models)}, {key: place for place, key in enumerate(items)}
    values = np.full((len(items), len(models)), np.nan)
    for model, item, user, value in rows:
        values[row[item, user], column[model]] = value
    return models, Items(ids=tuple(item for item, _ in items), users=tuple(user for _, user in items), values=values)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A benchmark and downstream results about the same models, in the same order."""

    benchmark: Board
    downstream: Board

    @property
    def models(self) -> tuple[str, ...]:
        """The models of both."""
        return self.benchmark.models

    @property
    def n(self) -> int:
        """How many models there are."""
        return len(self.models)

    @property
    def has_items(self) -> bool:
        """True if at least one side can be resampled by items."""
        return self.benchmark.items is not None or self.downstream.items is not None

    def without(self, model: str) -> "Pair":
        """Return the pair without one model."""
        kept = [each for each in self.models if each != model]
        return Pair(benchmark=self.benchmark.of(kept), downstream=self.downstream.of(kept))
