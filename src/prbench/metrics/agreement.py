"""How far people agree with each other.

Intervals come from resampling items: the raters are the ones we have, and the question is what other items would show.
Every coefficient is a function of sums over items, so that a draw costs one product of matrices, and the value is the
same function of all items' sums.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Literal

import numpy as np
import numpy.typing as npt

from prbench.errors import DataError, UsageError
from prbench.metrics.estimate import FloatArray, ratio_estimates, weighted_estimate, wilson
from prbench.schema import Estimate

Label = str | int | float
Level = Literal["nominal", "ordinal", "interval"]
Exchange = tuple[Label, Label]  # two labels whose names are arbitrary, such as the first and the second response
ITEM_DRAWS = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelTable:
    """Labels of raters (rows) on items (columns); a code is a place in `categories`, or -1 for a gap."""

    raters: tuple[str, ...]
    items: tuple[str, ...]
    categories: tuple[Label, ...]
    codes: npt.NDArray[np.int64]

    def counts(self) -> npt.NDArray[np.int64]:
        """Return how many raters gave each item each label: (items, categories)."""
        places = range(len(self.categories))
        return np.stack([(self.codes == place).sum(axis=0) for place in places], axis=1)


def label_table(
    labels: Iterable[tuple[str, str, Label | None]], *, categories: Sequence[Label] | None = None
) -> LabelTable:
    """Make a table of (rater, item, label) triples; a label of `None` is a gap.

    `categories` gives the labels in their order, which ordinal alpha needs when they are words. Without it they are
    sorted.
    """
    given: dict[tuple[str, str], Label] = {}
    for rater, item, label in labels:
        if label is None:
            continue
        if (rater, item) in given:
            raise DataError(f"Rater {rater!r} labeled item {item!r} twice. Keep one label of the two.")
        given[rater, item] = label
    if not given:
        raise UsageError("There is no label to compute agreement from. Check that the annotations were exported.")
    found = set(given.values())
    ordered = tuple(sorted(found, key=_label_order)) if categories is None else tuple(categories)
    if unknown := sorted(found - set(ordered), key=_label_order):
        raise DataError(f"Label {unknown[0]!r} is not among the categories {list(ordered)}. Add or correct it.")
    raters, items = sorted({rater for rater, _ in given}), sorted({item for _, item in given})
    row, column = {name: i for i, name in enumerate(raters)}, {name: i for i, name in enumerate(items)}
    codes = np.full((len(raters), len(items)), -1, dtype=np.int64)
    for (rater, item), label in given.items():
        codes[row[rater], column[item]] = ordered.index(label)
    return LabelTable(raters=tuple(raters), items=tuple(items), categories=ordered, codes=codes)


def _label_order(label: Label) -> tuple[bool, float, str]:
    return (True, 0.0, label) if isinstance(label, str) else (False, float(label), "")


def krippendorff_alpha(
    table: LabelTable,
    level: Level = "nominal",
    *,
    exchange: Exchange | None = None,
    clusters: Sequence[str] | None = None,
    seed: int = 0,
    draws: int = ITEM_DRAWS,
) -> Estimate | None:
    """Krippendorff's alpha (2011) over the items with at least two labels; gaps are allowed.

    `None` when it is undefined: fewer than two such items, or everybody gave the same label to everything. `interval`
    needs labels that are numbers; `ordinal` takes the order of the table's categories. `exchange` names two labels
    that are the same but for the order of the responses: every item then counts a second time with them exchanged, so
    that chance is what it is for somebody who does not know the order. `clusters` names the unit to resample, where
    several items of the table belong together.
    """
    counts = table.counts()
    usable = counts.sum(axis=1) > 1
    owners = [owner for owner, keep in zip(clusters or table.items, usable, strict=True) if keep]
    counts = counts[usable]
    both = _with_mirrored(table, counts, exchange)
    if len(set(owners)) < 2 or np.count_nonzero(both.sum(axis=0)) < 2:
        return None
    domain = np.arange(len(table.categories), dtype=np.float64)
    if level == "interval":
        if any(isinstance(category, str) for category in table.categories):
            raise UsageError("Interval alpha needs labels that are numbers. Use nominal or ordinal for words.")
        domain = np.array([float(category) for category in table.categories])
    # Krippendorff's coincidences of each item: (items, categories, categories)
    pairs = counts[:, :, None] * counts[:, None, :] - np.eye(counts.shape[1], dtype=np.int64) * counts[:, :, None]
    cells = np.asarray(pairs / (counts.sum(axis=1) - 1)[:, None, None], dtype=np.float64)
    if exchange is not None:
        order = _exchanged(table, exchange)
        cells = cells + cells[:, order][:, :, order]
    return _over_items(
        lambda sums: _alphas(sums, domain, level),
        cells.reshape(len(cells), -1),
        owners,
        chance=_chance_disagreement(both.sum(axis=0)),
        seed=seed,
        draws=draws,
    )


def _alphas(sums: FloatArray, domain: FloatArray, level: Level) -> FloatArray:
    """Return alpha of every draw from its coincidences (draws, categories squared); nan where it is undefined.

    The distance of two labels is 1 (nominal), or the square of the difference of their numbers (interval) or of their
    mean ranks (ordinal; Krippendorff 2011, section C).
    """
    size = len(domain)
    found = sums.reshape(len(sums), size, size)
    labels = found.sum(axis=2)
    if level == "nominal":
        distances = (1 - np.eye(size))[None]
    else:
        places = labels.cumsum(axis=1) - labels / 2 if level == "ordinal" else domain[None, :]
        distances = (places[:, :, None] - places[:, None, :]) ** 2
    observed = (found * distances).sum(axis=(1, 2))
    expected = (labels[:, :, None] * labels[:, None, :] * distances).sum(axis=(1, 2)) / (labels.sum(axis=1) - 1)
    return _one_minus(observed, expected)


def fleiss_kappa(
    table: LabelTable, *, exchange: Exchange | None = None, seed: int = 0, draws: int = ITEM_DRAWS
) -> Estimate | None:
    """Fleiss' kappa (1971) over the items with the usual number of labels, as it needs equally many on each.

    The raters need not be the same from item to item. The usual number is the most frequent one above 1 (the larger,
    if two are); `n` says how many items have it. `None` when it is undefined: fewer than two such items, or one label
    for everything. `exchange` as for alpha.
    """
    counts = table.counts()
    given = counts.sum(axis=1)
    times = Counter(given[given > 1].tolist())
    if not times:
        return None
    usual = max(times, key=lambda number: (times[number], number))
    items = [item for item, number in zip(table.items, given, strict=True) if number == usual]
    counts = counts[given == usual]
    both = _with_mirrored(table, counts, exchange)
    if len(items) < 2 or np.count_nonzero(both.sum(axis=0)) < 2:
        return None
    same = ((counts * (counts - 1)).sum(axis=1) / (usual * (usual - 1)))[:, None]
    shares = counts / usual
    if exchange is not None:
        shares = (shares + shares[:, _exchanged(table, exchange)]) / 2

    def kappas(sums: FloatArray) -> FloatArray:
        share = sums[:, 2:] / sums[:, 1:2]
        return _one_minus(1 - sums[:, 0] / sums[:, 1], 1 - (share**2).sum(axis=1))

    return _over_items(
        kappas,
        np.hstack([same, np.ones((len(items), 1)), shares]),
        items,
        chance=_chance_disagreement(both.sum(axis=0)),
        seed=seed,
        draws=draws,
    )


def cohen_kappa(
    table: LabelTable,
    first: str,
    second: str,
    *,
    exchange: Exchange | None = None,
    seed: int = 0,
    draws: int = ITEM_DRAWS,
) -> Estimate | None:
    """Cohen's kappa (1960, unweighted) of two raters over the items that both labeled; `exchange` as for alpha.

    `None` when it is undefined: fewer than two such items, or one label for everything.
    """
    for rater in (first, second):
        if rater not in table.raters:
            raise UsageError(f"There is no rater {rater!r}. Known raters: {', '.join(table.raters)}.")
    codes = table.codes.T
    size = len(table.categories)
    one, two = codes[:, table.raters.index(first)], codes[:, table.raters.index(second)]
    known = (one >= 0) & (two >= 0)
    cells = np.zeros((len(codes), size * size))
    cells[np.flatnonzero(known), (one * size + two)[known]] = 1.0
    if exchange is not None:
        order = _exchanged(table, exchange)
        squares = cells.reshape(-1, size, size)
        cells = (squares + squares[:, order][:, :, order]).reshape(-1, size * size)
    common = np.flatnonzero(cells.any(axis=1))
    size = len(table.categories)
    confusion = cells.sum(axis=0).reshape(size, size)
    if len(common) < 2 or np.count_nonzero(confusion.sum(axis=0) + confusion.sum(axis=1)) < 2:
        return None
    return _over_items(
        lambda sums: _kappas(sums, size),
        cells[common],
        [table.items[place] for place in common.tolist()],
        chance=1 - float(confusion.sum(axis=0) @ confusion.sum(axis=1)) / confusion.sum() ** 2,
        seed=seed,
        draws=draws,
    )


def _kappas(sums: FloatArray, size: int) -> FloatArray:
    """Return Cohen's kappa of every draw from its confusions (draws, categories squared)."""
    found = sums.reshape(len(sums), size, size)
    with np.errstate(divide="ignore", invalid="ignore"):
        found = found / found.sum(axis=(1, 2))[:, None, None]
    observed = 1 - np.trace(found, axis1=1, axis2=2)
    return _one_minus(observed, 1 - (found.sum(axis=1) * found.sum(axis=2)).sum(axis=1))


def pairwise_cohen_kappa(
    table: LabelTable, *, exchange: Exchange | None = None, seed: int = 0, draws: int = ITEM_DRAWS
) -> dict[tuple[str, str], Estimate | None]:
    """Cohen's kappa of every two raters."""
    pairs = combinations(table.raters, 2)
    return {(one, two): cohen_kappa(table, one, two, exchange=exchange, seed=seed, draws=draws) for one, two in pairs}


def pooled_cohen_kappa(
    table: LabelTable, *, exchange: Exchange | None = None, seed: int = 0, draws: int = ITEM_DRAWS
) -> Estimate | None:
    """Cohen's kappa of all pairs of raters together: one minus their disagreements over those that chance would give.

    Chance sets a rater's labels on all items against another's, each pair weighted by its common items. With two
    raters this is Cohen's kappa, without gaps that of Conger 1980. The mean of the pairs' own kappas (Light 1971) has
    no place here: with few common items each of them leans, and the mean of many leans for sure. `exchange` as for
    alpha. `None` when it is undefined: fewer than two items with two labels, or one label for everything.
    """
    codes = table.codes[:, (table.codes >= 0).sum(axis=0) > 1].T  # (items, raters)
    if len(codes) < 2:
        return None
    together = (codes >= 0).T.astype(np.float64) @ (codes >= 0)  # items that two raters have in common
    np.fill_diagonal(together, 0.0)
    labels = (codes[:, :, None] == np.arange(len(table.categories))).astype(np.float64)  # (items, raters, categories)
    counts = labels.sum(axis=1)
    pairs = counts.sum(axis=1) * (counts.sum(axis=1) - 1)
    differ = pairs - (counts * (counts - 1)).sum(axis=1)
    if exchange is not None:
        labels = (labels + labels[:, :, _exchanged(table, exchange)]) / 2
    cells = np.hstack([differ[:, None], pairs[:, None], labels.reshape(len(codes), -1)])
    chance = float(_chance_of_pairs(cells.sum(axis=0)[None, 2:], together)[0])
    if chance < 1e-12:
        return None
    return _over_items(
        lambda sums: _one_minus(sums[:, 0] / sums[:, 1], _chance_of_pairs(sums[:, 2:], together)),
        cells,
        [str(number) for number in range(len(codes))],
        chance=chance,
        seed=seed,
        draws=draws,
    )


def _chance_of_pairs(sums: FloatArray, weights: FloatArray) -> FloatArray:
    """Return how often two raters would differ by chance, from their sums of labels (draws, raters times categories).

    A rater without any item in a draw is left out of it.
    """
    labels = sums.reshape(len(sums), len(weights), -1)
    given = labels.sum(axis=2)
    shares = labels / np.maximum(given, 1.0)[:, :, None]
    present = (given > 0).astype(np.float64)
    same = np.einsum("drk,drk->d", np.einsum("drk,rs->dsk", shares, weights, optimize=True), shares)
    return np.asarray(1 - same / np.einsum("dr,dr->d", present @ weights, present), dtype=np.float64)


def raw_agreement(table: LabelTable) -> Estimate | None:
    """Share of the pairs of labels on one item that are the same, over all items; `None` when no item has two labels.

    `n` counts the items with at least two labels. Nothing is taken off for chance: see alpha and kappa.
    """
    counts = table.counts()
    same = (counts * (counts - 1) / 2).sum(axis=1)
    total = counts.sum(axis=1)
    pairs = total * (total - 1) / 2
    return ratio_estimates(same, pairs, table.items)[0] if pairs.any() else None


def majority_labels(table: LabelTable) -> dict[str, Label | None]:
    """Return each item's most frequent label; `None` where several are equally frequent."""
    majority: dict[str, Label | None] = {}
    for item, counts in zip(table.items, table.counts(), strict=True):
        top = np.flatnonzero(counts == counts.max())
        majority[item] = table.categories[int(top[0])] if len(top) == 1 else None
    return majority


def _with_mirrored(
    table: LabelTable, counts: npt.NDArray[np.int64], exchange: Exchange | None
) -> npt.NDArray[np.int64]:
    return counts if exchange is None else np.vstack([counts, counts[:, _exchanged(table, exchange)]])


def _exchanged(table: LabelTable, exchange: Exchange) -> list[int]:
    """Return the places of the categories after the two labels have changed theirs."""
    for label in exchange:
        if label not in table.categories:
            raise UsageError(f"There is no label {label!r} to exchange. Give it among the categories of the table.")
    one, two = (table.categories.index(label) for label in exchange)
    swapped = {one: two, two: one}
    return [swapped.get(place, place) for place in range(len(table.categories))]


def _chance_disagreement(totals: npt.NDArray[np.int64]) -> float:
    """Return how often two labels drawn at random from all that were given are different."""
    n = float(totals.sum())
    return float((n * n - (totals.astype(np.float64) ** 2).sum()) / (n * (n - 1)))


def _one_minus(observed: FloatArray, expected: FloatArray) -> FloatArray:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(expected > 1e-12, 1 - observed / expected, np.nan)


def _over_items(
    statistic: Callable[[FloatArray], FloatArray],
    cells: FloatArray,
    owners: Sequence[str],
    *,
    chance: float,
    seed: int,
    draws: int,
) -> Estimate:
    """Return a coefficient with its bootstrap interval; `statistic` computes it from sums of cells (draws, cells).

    Complete agreement looks the same in every draw. The lower end is then what Wilson's interval leaves for the
    disagreement on other items, over the disagreement `chance` would give.
    """
    names, places = np.unique(np.array(owners, dtype=object), return_inverse=True)
    sums = np.zeros((len(names), cells.shape[1]))
    np.add.at(sums, places, cells)
    if statistic(sums.sum(axis=0)[None])[0] > 1 - 1e-12:
        disagreement = 1 - wilson(len(names), len(names))[0]
        return Estimate(value=1.0, low=max(-1.0, 1 - disagreement / chance), high=1.0, n=len(owners))
    kinds, sizes = np.unique(sums, axis=0, return_counts=True)
    return weighted_estimate(lambda times: statistic(times @ kinds), sizes, n=len(owners), seed=seed, draws=draws)
