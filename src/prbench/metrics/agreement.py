"""How far people agree with each other, and a model with people.

Intervals come from resampling items: the raters are the ones we have, and the question is what other items would show.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Literal

import numpy as np
import numpy.typing as npt

from prbench.errors import DataError, UsageError
from prbench.metrics.estimate import FloatArray, percentile_interval, ratio_estimates
from prbench.schema import Estimate

Label = str | int | float
Level = Literal["nominal", "ordinal", "interval"]
ITEM_DRAWS = 2_000


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
    table: LabelTable, level: Level = "nominal", *, seed: int = 0, draws: int = ITEM_DRAWS
) -> Estimate | None:
    """Krippendorff's alpha over the items with at least two labels; gaps are allowed.

    `None` when it is undefined: no such item, or everybody gave the same label to everything. `interval` needs labels
    that are numbers; `ordinal` takes the order of the table's categories.
    """
    import krippendorff

    counts = table.counts()[table.counts().sum(axis=1) > 1]
    if level == "interval":
        if any(isinstance(category, str) for category in table.categories):
            raise UsageError("Interval alpha needs labels that are numbers. Use nominal or ordinal for words.")
        domain = [float(category) for category in table.categories]
    else:
        domain = [float(place) for place in range(len(table.categories))]

    def alpha(chosen: npt.NDArray[np.int64]) -> float:
        if np.count_nonzero(chosen.sum(axis=0)) < 2:
            return np.nan
        return float(krippendorff.alpha(value_counts=chosen, value_domain=domain, level_of_measurement=level))

    return _over_items(alpha, counts, seed=seed, draws=draws)


def fleiss_kappa(table: LabelTable, *, seed: int = 0, draws: int = ITEM_DRAWS) -> Estimate | None:
    """Fleiss' kappa over the items that every rater labelled, as it knows no gaps; `n` says how many those are.

    `None` when it is undefined: fewer than two raters, no complete item, or one label for everything.
    """
    if len(table.raters) < 2:
        return None
    from statsmodels.stats.inter_rater import fleiss_kappa as kappa

    def fleiss(chosen: npt.NDArray[np.int64]) -> float:
        return float(kappa(chosen)) if np.count_nonzero(chosen.sum(axis=0)) > 1 else np.nan

    counts = table.counts()
    return _over_items(fleiss, counts[counts.sum(axis=1) == len(table.raters)], seed=seed, draws=draws)


def cohen_kappa(
    table: LabelTable, first: str, second: str, *, seed: int = 0, draws: int = ITEM_DRAWS
) -> Estimate | None:
    """Cohen's kappa (unweighted) of two raters over the items that both labelled; `None` when it is undefined."""
    from statsmodels.stats.inter_rater import cohens_kappa

    for rater in (first, second):
        if rater not in table.raters:
            raise UsageError(f"There is no rater {rater!r}. Known raters: {', '.join(table.raters)}.")
    both = table.codes[[table.raters.index(first), table.raters.index(second)]].T
    size = len(table.categories)

    def kappa(chosen: npt.NDArray[np.int64]) -> float:
        if len(np.unique(chosen)) < 2:
            return np.nan
        confusion = np.bincount(chosen[:, 0] * size + chosen[:, 1], minlength=size * size).reshape(size, size)
        return float(cohens_kappa(confusion, return_results=False))

    return _over_items(kappa, both[(both >= 0).all(axis=1)], seed=seed, draws=draws)


def pairwise_cohen_kappa(
    table: LabelTable, *, seed: int = 0, draws: int = ITEM_DRAWS
) -> dict[tuple[str, str], Estimate | None]:
    """Cohen's kappa of every two raters."""
    pairs = combinations(table.raters, 2)
    return {(one, two): cohen_kappa(table, one, two, seed=seed, draws=draws) for one, two in pairs}


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Equivalence:
    """Two one-sided tests: `equivalent` when the mean difference lies within the margin, shown at 5 %."""

    difference: float  # mean of first - second
    low: float  # 90 % interval: it lies within the margin exactly when `equivalent`
    high: float
    margin: float
    p_value: float
    equivalent: bool
    n: int


def equivalence(
    first: Sequence[float | None], second: Sequence[float | None], *, margin: float, alpha: float = 0.05
) -> Equivalence:
    """Test whether paired ratings differ by less than `margin` (TOST); pairs with a gap are left out.

    "No significant difference" is no proof of equality; this is. Give one pair per item (the mean over raters),
    because the test takes the pairs as independent. The margin is yours to justify, in the unit of the ratings.
    """
    if margin <= 0:
        raise UsageError(f"The equivalence margin is {margin}. Give a number above 0.")
    pairs = [(a, b) for a, b in zip(first, second, strict=True) if a is not None and b is not None]
    if len(pairs) < 2:
        raise UsageError(f"An equivalence test needs at least 2 complete pairs, and there are {len(pairs)}.")
    one, two = np.array(pairs, dtype=np.float64).T
    mean = float(np.mean(one - two))
    if np.ptp(one - two) == 0:  # no variation: the t statistic is undefined, the answer is not
        p_value, low, high = (0.0 if abs(mean) < margin else 1.0), mean, mean
    else:
        from statsmodels.stats.weightstats import DescrStatsW, ttost_paired

        p_value = float(ttost_paired(one, two, -margin, margin)[0])
        low, high = (float(end) for end in DescrStatsW(one - two).tconfint_mean(alpha=2 * alpha))
    return Equivalence(
        difference=mean, low=low, high=high, margin=margin, p_value=p_value, equivalent=p_value < alpha, n=len(pairs)
    )


def _over_items(
    statistic: Callable[[npt.NDArray[np.int64]], float], rows: npt.NDArray[np.int64], *, seed: int, draws: int
) -> Estimate | None:
    """Return a statistic of the items' rows with its bootstrap interval, or `None` where it is undefined."""
    value = statistic(rows) if len(rows) else np.nan
    if np.isnan(value):
        return None
    generator = np.random.Generator(np.random.PCG64(seed))
    samples: FloatArray = np.array(
        [statistic(rows[generator.integers(0, len(rows), size=len(rows))]) for _ in range(draws)]
    )
    low, high = percentile_interval(samples) if not np.isnan(samples).all() else (value, value)
    return Estimate(value=float(value), low=low, high=high, n=len(rows))
