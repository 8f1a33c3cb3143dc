"""How far people agree with each other, and a model with people.

Intervals come from resampling items: the raters are the ones we have, and the question is what other items would show.
Every coefficient is a function of sums over items, so that a draw costs one product of matrices; the value itself
comes from the package that is known for it.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
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
            raise DataError(f"Rater {rater!r} labelled item {item!r} twice. Keep one label of the two.")
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
    """Krippendorff's alpha over the items with at least two labels; gaps are allowed.

    `None` when it is undefined: fewer than two such items, or everybody gave the same label to everything. `interval`
    needs labels that are numbers; `ordinal` takes the order of the table's categories. `exchange` names two labels
    that are the same but for the order of the responses: every item then counts a second time with them exchanged, so
    that chance is what it is for somebody who does not know the order. `clusters` names the unit to resample, where
    several items of the table belong together.
    """
    import krippendorff

    counts = table.counts()
    usable = counts.sum(axis=1) > 1
    owners = [owner for owner, keep in zip(clusters or table.items, usable, strict=True) if keep]
    counts = counts[usable]
    both = _with_mirrored(table, counts, exchange)
    if len(set(owners)) < 2 or np.count_nonzero(both.sum(axis=0)) < 2:
        return None
    domain = _numbers(table) if level == "interval" else np.arange(len(table.categories), dtype=np.float64)
    value = float(krippendorff.alpha(value_counts=both, value_domain=domain.tolist(), level_of_measurement=level))
    cells = _coincidences(counts)
    if exchange is not None:
        order = _exchanged(table, exchange)
        cells = cells + cells[:, order][:, :, order]
    return _over_items(
        lambda sums: _alphas(sums, domain, level),
        cells.reshape(len(cells), -1),
        owners,
        value=value,
        chance=_chance_disagreement(both.sum(axis=0)),
        seed=seed,
        draws=draws,
    )


def _coincidences(counts: npt.NDArray[np.int64]) -> FloatArray:
    """Return Krippendorff's coincidences of each item: (items, categories, categories)."""
    pairs = counts[:, :, None] * counts[:, None, :] - np.eye(counts.shape[1], dtype=np.int64) * counts[:, :, None]
    return np.asarray(pairs / (counts.sum(axis=1) - 1)[:, None, None], dtype=np.float64)


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


def _numbers(table: LabelTable) -> FloatArray:
    if any(isinstance(category, str) for category in table.categories):
        raise UsageError("Interval alpha needs labels that are numbers. Use nominal or ordinal for words.")
    return np.array([float(category) for category in table.categories])


def fleiss_kappa(
    table: LabelTable, *, exchange: Exchange | None = None, seed: int = 0, draws: int = ITEM_DRAWS
) -> Estimate | None:
    """Fleiss' kappa over the items with the usual number of labels, as it needs equally many on each.

    The raters need not be the same from item to item. The usual number is the most frequent one above 1 (the larger,
    if two are); `n` says how many items have it. `None` when it is undefined: fewer than two such items, or one label
    for everything. `exchange` as for alpha.
    """
    from statsmodels.stats.inter_rater import fleiss_kappa as kappa

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
        value=float(kappa(both)),
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
    """Cohen's kappa (unweighted) of two raters over the items that both labelled; `exchange` as for alpha.

    `None` when it is undefined: fewer than two such items, or one label for everything.
    """
    from statsmodels.stats.inter_rater import cohens_kappa

    for rater in (first, second):
        if rater not in table.raters:
            raise UsageError(f"There is no rater {rater!r}. Known raters: {', '.join(table.raters)}.")
    cells = _confusions(table, table.codes.T, table.raters.index(first), table.raters.index(second), exchange)
    common = np.flatnonzero(cells.any(axis=1))
    size = len(table.categories)
    confusion = cells.sum(axis=0).reshape(size, size)
    if len(common) < 2 or np.count_nonzero(confusion.sum(axis=0) + confusion.sum(axis=1)) < 2:
        return None
    return _over_items(
        lambda sums: _kappas(sums, size),
        cells[common],
        [table.items[place] for place in common.tolist()],
        value=float(cohens_kappa(confusion, return_results=False)),
        chance=1 - float(confusion.sum(axis=0) @ confusion.sum(axis=1)) / confusion.sum() ** 2,
        seed=seed,
        draws=draws,
    )


def _confusions(
    table: LabelTable, codes: npt.NDArray[np.int64], first: int, second: int, exchange: Exchange | None
) -> FloatArray:
    """Return one row per row of codes (items, raters): 1 at the two raters' pair of labels, all 0 for a gap."""
    size = len(table.categories)
    one, two = codes[:, first], codes[:, second]
    known = (one >= 0) & (two >= 0)
    cells = np.zeros((len(codes), size * size))
    cells[np.flatnonzero(known), (one * size + two)[known]] = 1.0
    if exchange is not None:
        order = _exchanged(table, exchange)
        squares = cells.reshape(-1, size, size)
        cells = (squares + squares[:, order][:, :, order]).reshape(-1, size * size)
    return cells


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


def mean_cohen_kappa(
    table: LabelTable,
    kappas: Mapping[tuple[str, str], Estimate | None],
    *,
    exchange: Exchange | None = None,
    seed: int = 0,
    draws: int = ITEM_DRAWS,
) -> Estimate | None:
    """Mean of the raters' pairwise kappas (Light 1971), each weighted by the items that the two have in common.

    `kappas` come from `pairwise_cohen_kappa`; with no gaps the weights are equal. All pairs share the draws of items.
    `None` when no pair has a kappa. `n` counts the items with at least two labels.
    """
    defined = {pair: kappa for pair, kappa in kappas.items() if kappa is not None}
    if not defined:
        return None
    weights = np.array([kappa.n for kappa in defined.values()], dtype=np.float64)
    value = float(weights @ [kappa.value for kappa in defined.values()] / weights.sum())
    labelled = table.codes.T[(table.codes >= 0).sum(axis=0) > 1]
    kinds, sizes = np.unique(labelled, axis=0, return_counts=True)
    parts = []
    for one, two in defined:
        cells = _confusions(table, kinds, table.raters.index(one), table.raters.index(two), exchange)
        parts.append((np.flatnonzero(cells.any(axis=1)), cells[cells.any(axis=1)]))

    def mean(times: FloatArray) -> FloatArray:
        found = np.stack([_kappas(times[:, rows] @ cells, len(table.categories)) for rows, cells in parts], axis=1)
        present = weights * ~np.isnan(found)
        with np.errstate(divide="ignore", invalid="ignore"):
            means: FloatArray = (np.nan_to_num(found) * present).sum(axis=1) / present.sum(axis=1)
        return means

    drawn = weighted_estimate(mean, sizes, n=int(sizes.sum()), seed=seed, draws=draws)
    if value > 1 - 1e-12:
        return replace(drawn, value=1.0, low=min(kappa.low for kappa in defined.values()), high=1.0)
    return replace(drawn, value=value)


def raw_agreement(table: LabelTable, *, seed: int = 0) -> Estimate | None:
    """Share of the pairs of labels on one item that are the same, over all items; `None` when no item has two labels.

    `n` counts the items with at least two labels. Nothing is taken off for chance: see alpha and kappa.
    """
    counts = table.counts()
    same = (counts * (counts - 1) / 2).sum(axis=1)
    total = counts.sum(axis=1)
    pairs = total * (total - 1) / 2
    return ratio_estimates(same, pairs, table.items, seed=seed)[0] if pairs.any() else None


def majority_labels(table: LabelTable) -> dict[str, Label | None]:
    """Return each item's most frequent label; `None` where several are equally frequent."""
    majority: dict[str, Label | None] = {}
    for item, counts in zip(table.items, table.counts(), strict=True):
        top = np.flatnonzero(counts == counts.max())
        majority[item] = table.categories[int(top[0])] if len(top) == 1 else None
    return majority


@dataclass(frozen=True, slots=True, kw_only=True)
class PeopleAgreement:
    """How a model's verdicts agree with people, beside how people agree with each other on the same items."""

    with_majority: Estimate | None
    kappa_with_majority: Estimate | None  # over items with a verdict
    with_each: Estimate  # share of single labels that the model's verdict equals
    among_people: Estimate | None  # raw agreement; a model cannot be expected to do better than this
    no_majority: int  # items left out of `with_majority`
    coverage: Estimate


def agreement_with_people(
    table: LabelTable, verdicts: Mapping[str, Label | None], *, seed: int = 0, draws: int = ITEM_DRAWS
) -> PeopleAgreement:
    """Compare verdicts (or the benchmark's labels) with people's, over the items that are in both.

    A verdict of `None` is unreadable: it disagrees with everybody and lowers the coverage.
    """
    keep = [place for place, item in enumerate(table.items) if item in verdicts]
    if not keep:
        raise UsageError("The verdicts and the annotations have no item in common. Give both for the same data.")
    items = [table.items[place] for place in keep]
    part = LabelTable(raters=table.raters, items=tuple(items), categories=table.categories, codes=table.codes[:, keep])
    majority = {item: label for item, label in majority_labels(part).items() if label is not None}
    hits = [float(verdicts[item] == label) for item, label in majority.items()]
    counts = Counter(
        (item, part.categories[code]) for place, item in enumerate(items) for code in part.codes[:, place] if code >= 0
    )
    matched = [counts[item, label] if (label := verdicts[item]) is not None else 0 for item in items]
    pair: list[tuple[str, str, Label | None]] = [("people", item, label) for item, label in majority.items()]
    pair += [("model", item, verdicts[item]) for item in majority]
    readable = any(verdicts[item] is not None for item in majority)
    return PeopleAgreement(
        with_majority=ratio_estimates(hits, np.ones(len(hits)), list(majority), seed=seed)[0] if majority else None,
        kappa_with_majority=(
            cohen_kappa(label_table(pair), "people", "model", seed=seed, draws=draws) if readable else None
        ),
        with_each=ratio_estimates(matched, part.counts().sum(axis=1), items, seed=seed)[0],
        among_people=raw_agreement(part, seed=seed),
        no_majority=len(items) - len(majority),
        coverage=ratio_estimates(
            [float(verdicts[item] is not None) for item in items], np.ones(len(items)), items, seed=seed
        )[0],
    )


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
    value: float,
    chance: float,
    seed: int,
    draws: int,
) -> Estimate:
    """Return a value with its bootstrap interval; `statistic` computes it from sums of cells (draws, cells).

    Complete agreement looks the same in every draw. The lower end is then what Wilson's interval leaves for the
    disagreement on other items, over the disagreement `chance` would give.
    """
    names, places = np.unique(np.array(owners, dtype=object), return_inverse=True)
    sums = np.zeros((len(names), cells.shape[1]))
    np.add.at(sums, places, cells)
    if value > 1 - 1e-12:
        disagreement = 1 - wilson(len(names), len(names))[0]
        return Estimate(value=1.0, low=max(-1.0, 1 - disagreement / chance), high=1.0, n=len(owners))
    kinds, sizes = np.unique(sums, axis=0, return_counts=True)
    drawn = weighted_estimate(lambda times: statistic(times @ kinds), sizes, n=len(owners), seed=seed, draws=draws)
    return replace(drawn, value=value)
