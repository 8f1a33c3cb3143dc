"""Boards of models with scores, the items behind them, and two boards side by side.

The same model may have two names: what is matched, by which rule, what is left over, and what it may have meant.
"""

import csv
import io
import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path

import numpy as np
import numpy.typing as npt

from prbench.errors import DataError
from prbench.insight.meta.families import Families, families_of
from prbench.metrics.estimate import ClusteredRatios, FloatArray, clustered_ratios
from prbench.reward_models.view import without_kind

ITEM_DRAWS = 2_000
SHARE, ANYTHING = (0.0, 1.0), (-np.inf, np.inf)
CLOSE = 0.75  # similarity from which a name is suggested
COLUMNS = ("from", "to")
SAME, SPELLING, ORGANIZATION = "the same name", "spelling", "without the organization"


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemTable:
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

    @property
    def user_codes(self) -> npt.NDArray[np.int64]:
        """The number of every item's user."""
        codes: npt.NDArray[np.int64] = np.unique(np.array(self.users), return_inverse=True)[1]
        return codes

    def ratios(self) -> ClusteredRatios:
        """Return the means as ratios, clustered by users."""
        known = ~np.isnan(self.values)
        return clustered_ratios(np.where(known, self.values, 0.0), known, self.users)

    def of(self, columns: Sequence[int]) -> "ItemTable":
        """Return the same items for some of the models."""
        return replace(self, values=self.values[:, list(columns)])


@dataclass(frozen=True, slots=True, kw_only=True)
class BoardSource:
    """What the command line names, and which figure is wanted of it."""

    name: str  # "" where it was not given
    path: Path
    column: str  # likewise
    at_kl: float | None = None  # of a policy of PPO; `None` for the last one


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelBoard:
    """Models with one score each, higher is better."""

    name: str
    models: tuple[str, ...]
    scores: FloatArray
    low: FloatArray  # ends of the interval of each score; NaN where nobody gave one
    high: FloatArray
    items: ItemTable | None = None
    sizes: Mapping[str, float] = field(default_factory=dict)  # by model, where known
    families: Mapping[str, str] = field(default_factory=dict)
    seeds: Mapping[str, tuple[float, ...]] = field(default_factory=dict)  # scores by seed, of models that have several
    notes: tuple[str, ...] = ()

    def of(self, models: Sequence[str]) -> "ModelBoard":
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

    def renamed(self, names: Mapping[str, str]) -> "ModelBoard":
        """Return the board with other names for some models."""
        return replace(
            self,
            models=tuple(names.get(model, model) for model in self.models),
            sizes={names.get(model, model): size for model, size in self.sizes.items()},
            families={names.get(model, model): family for model, family in self.families.items()},
            seeds={names.get(model, model): scores for model, scores in self.seeds.items()},
        )


def board_of_scores(name: str, scores: Mapping[str, float], **more: object) -> ModelBoard:
    """Return a board without intervals."""
    nothing = np.full(len(scores), np.nan)
    values = np.array(list(scores.values()), dtype=np.float64)
    return ModelBoard(name=name, models=tuple(scores), scores=values, low=nothing, high=nothing, **more)  # type: ignore[arg-type]


def board_of_items(name: str, models: Sequence[str], items: ItemTable, **more: object) -> ModelBoard:
    """Return a board whose scores are the means of items, with their 95 % intervals, users resampled.

    An end of an interval is NaN where one user is all there is, and values may lie anywhere.
    """
    known = items.values[~np.isnan(items.values)]
    is_share = known.min() >= 0 and known.max() <= 1
    resampled = replace(items.ratios(), span=SHARE if is_share else ANYTHING)
    low, high = np.full((2, items.values.shape[1]), np.nan)
    for column in range(len(low)):
        if is_share or resampled.users[column] > 1:
            found = resampled.estimate(column)
            low[column], high[column] = found.low, found.high
    return ModelBoard(name=name, models=tuple(models), scores=items.means, low=low, high=high, items=items, **more)  # type: ignore[arg-type]


def tabulate(rows: Sequence[tuple[str, str, str, float]]) -> tuple[tuple[str, ...], ItemTable]:
    """Return the models and the table of rows (model, item, user, value); an item belongs to its user."""
    models = tuple(dict.fromkeys(model for model, _, _, _ in rows))
    items = tuple(dict.fromkeys((item, user) for _, item, user, _ in rows))
    column, row = {name: place for place, name in enumerate(models)}, {key: place for place, key in enumerate(items)}
    values = np.full((len(items), len(models)), np.nan)
    for model, item, user, value in rows:
        values[row[item, user], column[model]] = value
    return models, ItemTable(
        ids=tuple(item for item, _ in items), users=tuple(user for _, user in items), values=values
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class BoardPair:
    """A benchmark and downstream results about the same models, in the same order."""

    benchmark: ModelBoard
    downstream: ModelBoard

    @property
    def models(self) -> tuple[str, ...]:
        """The models of both."""
        return self.benchmark.models

    @property
    def n(self) -> int:
        """How many models there are."""
        return len(self.models)

    @property
    def family_names(self) -> dict[str, str]:
        """The families that either board tells of these models; the benchmark's word counts."""
        told = {**self.downstream.families, **self.benchmark.families}
        return {model: told[model] for model in self.models if model in told}

    @property
    def families(self) -> Families | None:
        """The family of every model, one without any being its own; `None` where no board tells families."""
        told = self.family_names
        # A tab stands in no name of a family, so that a model alone is never taken for one of a family of its name.
        return families_of([told.get(model, f"\t{model}") for model in self.models]) if told else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """One model on both sides."""

    benchmark: str
    downstream: str
    rule: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Matches:
    """How the names of two boards go together."""

    matched: tuple[Match, ...]
    only_benchmark: tuple[str, ...]
    only_downstream: tuple[str, ...]
    suggestions: tuple[tuple[str, str], ...]  # names that look alike and were not used


def read_map(path: Path) -> dict[str, str]:
    """Return other names for models: a CSV with the columns from,to, or a JSON object."""
    if not path.exists():
        raise DataError(f"--map {path}: there is no such file.")
    try:
        text = path.read_text(encoding="utf-8-sig")
        names = json.loads(text) if path.suffix.lower() == ".json" else _csv_map(text, path)
    except ValueError:
        raise DataError(
            f"--map {path}: is not valid. Write a CSV with the columns from,to, or a JSON object."
        ) from None
    if not isinstance(names, dict) or not all(isinstance(each, str) for each in names.values()):
        raise DataError(f"--map {path}: must be an object of names, e.g. {{'Skywork-V2-8B': 'Skywork/…'}}.")
    return names


def _csv_map(text: str, path: Path) -> dict[str, str]:
    reader = csv.DictReader(io.StringIO(text))
    if tuple(reader.fieldnames or ()) != COLUMNS:
        raise DataError(f"--map {path}: must have the columns from,to. It has {', '.join(reader.fieldnames or ())}.")
    names: dict[str, str] = {}
    for row in reader:
        before, after = (str(row[column] or "").strip() for column in COLUMNS)
        if not before or not after:
            raise DataError(f"--map {path}:{reader.line_num}: a name is empty. Give both, or drop the line.")
        if names.get(before, after) != after:
            raise DataError(f"--map {path}:{reader.line_num}: {before!r} has two meanings. Keep one.")
        names[before] = after
    return names


def apply_map(boards: Sequence[ModelBoard], names: Mapping[str, str]) -> tuple[list[ModelBoard], list[str]]:
    """Return the boards under the names of the map, and a line about every name that no board has."""
    known = {model for board in boards for model in board.models}
    notes = [f"The map names {name!r}, which is on no board." for name in names if name not in known]
    renamed = [board.renamed(names) for board in boards]
    for board in renamed:
        twice = [model for model, count in Counter(board.models).items() if count > 1]
        if twice:
            raise DataError(f"{board.name}: the map gives the name {twice[0]!r} to two models. Correct the map.")
    return renamed, notes


def match(benchmark: ModelBoard, downstream: ModelBoard) -> Matches:
    """Match the models of two boards; a rule counts only where it leaves no choice."""
    matched: dict[str, Match] = {}
    taken: set[str] = set()
    for rule, key in ((SAME, str), (SPELLING, _spelling), (ORGANIZATION, _without_organization)):
        left = [name for name in benchmark.models if name not in matched]
        right = [name for name in downstream.models if name not in taken]
        ours, theirs = (Counter(map(key, names)) for names in (left, right))
        by_key = {key(name): name for name in right}
        for name in left:
            other = by_key.get(key(name))
            if other is None or ours[key(name)] > 1 or theirs[key(name)] > 1:
                continue
            if rule == ORGANIZATION and "/" in name and "/" in other:
                continue  # two organizations, so two models
            matched[name] = Match(benchmark=name, downstream=other, rule=rule)
            taken.add(other)
    only_ours = tuple(name for name in benchmark.models if name not in matched)
    only_theirs = tuple(name for name in downstream.models if name not in taken)
    by_end = {_without_organization(name): name for name in only_theirs}
    return Matches(
        matched=tuple(matched[name] for name in benchmark.models if name in matched),
        only_benchmark=only_ours,
        only_downstream=only_theirs,
        suggestions=tuple(
            (name, by_end[end])
            for name in only_ours
            for end in get_close_matches(_without_organization(name), by_end, n=1, cutoff=CLOSE)
        ),
    )


def pair_up(benchmark: ModelBoard, downstream: ModelBoard) -> tuple[BoardPair, Matches]:
    """Return both boards with the models that they share, under the benchmark's names."""
    found = match(benchmark, downstream)
    names = {each.downstream: each.benchmark for each in found.matched}
    shared = [each.benchmark for each in found.matched]
    pair = BoardPair(benchmark=benchmark.of(shared), downstream=downstream.renamed(names).of(shared))
    return pair, found


def _spelling(name: str) -> str:
    """Return a name without case, and with one sign for all that separates words."""
    return re.sub(r"[\s_\-]+", "-", name.strip().casefold()).removesuffix("-")


def _without_organization(name: str) -> str:
    """Return the last part of a path or hub id, without the kind of a spec."""
    return _spelling(without_kind(name)).rpartition("/")[2]


# The case that this command was made for: six reward models in two orders. Read off the published figures (NDCG 0.9180
# and 0.9265, Spearman 0.2571 and 0.3714): of all 720 orders of six models, one each fits. These are the places that
# the models take downstream, in the benchmark's order.
PAPER_PLACES = {"Best-of-N": (1, 5, 3, 4, 6, 2), "PPO": (1, 4, 3, 5, 6, 2)}
PAPER_BENCHMARK = board_of_scores("benchmark", {model: float(6 - place) for place, model in enumerate("ABCDEF")})
PAPER_DOWNSTREAM = tuple(
    board_of_scores(name, {model: 7.0 - place for model, place in zip("ABCDEF", places, strict=True)})
    for name, places in PAPER_PLACES.items()
)
