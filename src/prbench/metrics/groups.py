"""How each group and each user is served, of pairs and of ratings, and whether a gap between groups is chance.

A group is what rows share in a field: their category, their user, or a fact of theirs; `region,age` crosses two.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

import numpy as np
import numpy.typing as npt

from prbench.errors import UsageError
from prbench.metrics.correlation import mean_ranks
from prbench.metrics.estimate import ClusteredRatios, FloatArray, clustered_ratios
from prbench.metrics.personal import has_moved, pair_probes
from prbench.metrics.ratings import COLUMN_DIGITS, LEAST_ROWS, alignments, rank_correlations
from prbench.schema import POINTS, Estimate, Json, Probe, RatedRow, Row, crossed_fields

IntArray = npt.NDArray[np.int64]
AnyRow = Row | RatedRow

GROUP_BLOCK = 32  # groups estimated at a time, which bounds the memory
PERMUTATIONS = 2_000
ROUNDING = 1e-9  # a gap by chance that is smaller by less is as large
SIGNED = (-1.0, 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupFigure:
    """One figure of every group, and how far the best stands above the worst."""

    groups: Mapping[str, Estimate]  # by name, in alphabetical order
    best: str | None = None  # `None` where no group has the figure
    worst: str | None = None
    gap: Estimate | None = None  # `None` with fewer than two groups, as is the next
    p_value: float | None = None  # see `gap_p_value`


@dataclass(frozen=True, slots=True, kw_only=True)
class Groups:
    """All figures of the groups that a field makes, the headline first; `None` for one that does not apply."""

    users: Mapping[str, int]  # by group
    figures: Mapping[str, GroupFigure | None]

    def as_json(self) -> dict[str, Json]:
        """Return the groups as they stand in a summary: what the headline says, and the further figures by name."""
        (name, headline), *further = self.figures.items()
        found = headline or GroupFigure(groups={})
        head = {key: getattr(found, key) for key in found.__dataclass_fields__}
        return {"figure": name, "users": self.users, **head, **dict(further)}


def group_of(row: AnyRow, name: str) -> str | None:
    """Return the group of a row by `category`, `user_id` or a fact of its own; see `name_of_group`."""
    return name_of_group({**row.groups, "category": row.category, "user_id": row.user_id}, name)


def name_of_group(facts: Mapping[str, Json], name: str) -> str | None:
    """Return the group of something with these facts, by one field or by several with commas between them.

    Crossed fields are named in the group, `region=north, age=young`; what lacks one of them has no group.
    """
    fields = crossed_fields(name)
    values = [facts.get(field) for field in fields]
    if any(value is None for value in values):
        return None
    if len(fields) == 1:
        return str(values[0])
    return ", ".join(f"{field}={value}" for field, value in zip(fields, values, strict=True))


def accuracy_by_group(rows: Sequence[Row], name: str = "category") -> dict[str, Estimate]:
    """Headline accuracy of each group of the rows of one probe; rows without the field are left out."""
    return _estimates(_grouped(name, [(row, (POINTS[row.verdict],)) for row in rows]))


def group_figures(rows: Sequence[AnyRow], name: str, *, seed: int = 0) -> Groups:
    """All figures of the groups that a field makes, from all rows of a run: of pairs, or of ratings."""
    own = [row for row in rows if row.probe is Probe.OWN]
    users: dict[str, set[str]] = defaultdict(set)
    for row in own:
        if (group := group_of(row, name)) is not None:
            users[group].add(row.user_id)
    if not users:
        raise UsageError(f"No row has the field {name!r} to group by. Use 'category' or a field of the rows' groups.")
    pairs = [row for row in rows if isinstance(row, Row)]
    rated = [row for row in own if isinstance(row, RatedRow)]
    figures = values_of_pairs(pairs, name) if pairs else values_of_ratings(rated, name)
    return Groups(
        users={group: len(users[group]) for group in sorted(users)},
        figures={each: None if found is None else _figure(found, seed) for each, found in figures.items()},
    )


def gap_p_value(found: "GroupedValues", *, seed: int = 0, permutations: int = PERMUTATIONS) -> float | None:
    """Return how often chance alone puts best and worst group as far apart as they are; `None` where it cannot tell.

    The null is that the group says nothing about how well somebody is served. A user with one group throughout trades
    it with other such users, rows and all, as a group is then a property of users; the rows of a user with several
    groups trade theirs among themselves. Best and worst are picked anew each time, so the picking is accounted for.
    The observed gap counts as one of the permutations (Phipson and Smyth 2010). Where no two users share a group, as
    in grouping by user, nothing can be traded.
    """
    owners, labels, count = found.owners, found.labels, len(found.names)
    last = np.zeros(len(found.users), dtype=np.int64)
    last[owners] = labels
    varies = np.zeros(len(found.users), dtype=bool)
    varies[owners[labels != last[owners]]] = True
    inside = varies[owners]
    tops, bottoms, users = found.of_users(~inside)
    fixed = last[users]
    if count < 2 or (not inside.any() and len(set(fixed.tolist())) == len(fixed)):
        return None
    values, owner, label = found.values[inside], owners[inside], labels[inside]
    generator = np.random.Generator(np.random.PCG64(seed))

    def gap(of_users: IntArray, of_rows: IntArray) -> float:
        top, bottom = _sums(of_users, tops, count), _sums(of_users, bottoms, count)
        if len(of_rows):
            more_top, more_bottom = found.sums(values, owner, of_rows)
            top, bottom = top + more_top, bottom + more_bottom
        shown = bottom > 0
        return float(np.ptp(top[shown] / bottom[shown]))

    observed = gap(fixed, label) - ROUNDING
    as_large = 1
    for _ in range(permutations):
        # Rows are in the order of their users, so each user's stay with that user.
        shuffled = np.argsort(owner + generator.random(len(owner)))
        as_large += gap(generator.permutation(fixed), label[shuffled]) >= observed
    return as_large / (1 + permutations)


PerUser = Callable[[FloatArray, IntArray], tuple[IntArray, FloatArray, IntArray]]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GroupedValues:
    """The values behind one figure, row by row in the order of users, with the group of each row.

    A group's figure is the mean of its rows or, with `per_user`, the mean over its users: that function turns the
    values of each cell (the rows of one user in one group) into one, and leaves out cells that have none.
    """

    names: Sequence[str]  # of the groups
    users: Sequence[str]
    values: FloatArray  # (rows, parts)
    owners: IntArray  # (rows,): which user
    labels: IntArray  # (rows,): which group
    per_user: PerUser | None = None  # values and cells to the cells that are left, their values, and their rows
    span: tuple[float, float] = (0.0, 1.0)
    is_still: bool = False  # a difference of two probes under which no score moved: 0 for certain

    def entries(self) -> tuple[FloatArray, IntArray, IntArray, IntArray]:
        """Return what is averaged, with the owner, the group and the number of rows of each."""
        if self.per_user is None:
            return self.values[:, 0], self.owners, self.labels, np.ones(len(self.labels), dtype=np.int64)
        cells, means, counts = self.per_user(self.values, self.owners * len(self.names) + self.labels)
        return means, cells // len(self.names), cells % len(self.names), counts

    def of_users(self, inside: npt.NDArray[np.bool_]) -> tuple[FloatArray, FloatArray, IntArray]:
        """Return numerator, denominator and owner of each user's rows inside, if they all have one group."""
        owners, values = self.owners[inside], self.values[inside]
        if self.per_user is not None:
            users, means, _ = self.per_user(values, owners)
            return means, np.ones(len(users)), users
        users, place = np.unique(owners, return_inverse=True)
        return _sums(place, values[:, 0], len(users)), _sums(place, np.ones(len(place)), len(users)), users

    def sums(self, values: FloatArray, owners: IntArray, labels: IntArray) -> tuple[FloatArray, FloatArray]:
        """Return numerator and denominator of each group, if rows of these owners had these groups."""
        count, means = len(self.names), values[:, 0]
        if self.per_user is not None:
            cells, means, _ = self.per_user(values, owners * count + labels)
            labels = cells % count
        return _sums(labels, means, count), _sums(labels, np.ones(len(labels)), count)


def _sums(codes: IntArray, values: FloatArray, count: int) -> FloatArray:
    return np.bincount(codes, weights=values, minlength=count).astype(np.float64)


def user_means(values: FloatArray, cells: IntArray) -> tuple[IntArray, FloatArray, IntArray]:
    """Return the mean of each cell."""
    found, place, counts = np.unique(cells, return_inverse=True, return_counts=True)
    return found, np.bincount(place, weights=values[:, 0]) / counts, counts


def user_correlations(values: FloatArray, cells: IntArray) -> tuple[IntArray, FloatArray, IntArray]:
    """Return Spearman's rho of each cell that can be ranked, for values (score, rating); see `rank_correlations`."""
    found, place, counts = np.unique(cells, return_inverse=True, return_counts=True)
    centered: list[FloatArray] = []
    if not len(cells):
        return found, np.zeros(0), counts
    for column in values.T:
        # One ranking of all rows, cell by cell: within a cell, ranks are moved by a constant, and no correlation is.
        codes = np.unique(column, return_inverse=True)[1]
        ranks = mean_ranks((place * (codes.max() + 1) + codes).astype(np.float64)[None, :])[0]
        centered.append(ranks - (np.bincount(place, weights=ranks) / counts)[place])
    scores, ratings = centered
    together = np.bincount(place, weights=scores * ratings)
    spread = np.sqrt(np.bincount(place, weights=scores**2) * np.bincount(place, weights=ratings**2))
    rho = np.divide(together, spread, out=np.zeros_like(together), where=spread > 0)
    ranked = (counts >= LEAST_ROWS) & (np.bincount(place, weights=ratings**2) > 0)
    return found[ranked], rho[ranked], counts[ranked]


def values_of_pairs(rows: Sequence[Row], name: str) -> dict[str, GroupedValues | None]:
    """Return what is behind each figure of groups of pairs, from the rows of all probes."""
    own = [(row, (POINTS[row.verdict],)) for row in rows if row.probe is Probe.OWN]
    return {
        "accuracy": _grouped(name, own),
        "gain": _contrast(rows, Probe.NONE, name),
        "swap_gap": _contrast(rows, Probe.SWAP, name),
    }


def _contrast(rows: Sequence[Row], other: Probe, name: str) -> GroupedValues | None:
    found = _grouped(name, _lost(rows, other), span=SIGNED)
    moved = any(has_moved(*pair) for pair in pair_probes(rows, Probe.OWN, other))
    return None if found is None else replace(found, is_still=not moved)


def _lost(rows: Sequence[Row], other: Probe) -> list[tuple[Row, tuple[float]]]:
    """Return what each pair loses without the user's own context: its points minus those under another probe."""
    return [
        (own, (POINTS[own.verdict] - POINTS[changed.verdict],)) for own, changed in pair_probes(rows, Probe.OWN, other)
    ]


def values_of_ratings(rows: Sequence[RatedRow], name: str) -> dict[str, GroupedValues | None]:
    """Return what is behind each figure of groups of ratings, from the rows of one probe."""
    ranked = [(row, (row.score, row.rating)) for row in rows if row.score is not None]
    return {
        "alignment": _grouped(name, _aligned(rows), per_user=user_means),
        "spearman": _grouped(name, ranked, per_user=user_correlations, span=SIGNED),
    }


def _aligned(rows: Sequence[RatedRow]) -> list[tuple[RatedRow, tuple[float]]]:
    """Return the alignment of each row of one probe, 0 for one that is unreadable; none where it does not apply."""
    found = alignments(rows)
    return [] if found is None else [(row, (a,)) for row, a in zip(rows, np.nan_to_num(found).tolist(), strict=True)]


def _grouped(
    name: str,
    values: Iterable[tuple[AnyRow, tuple[float, ...]]],
    *,
    per_user: PerUser | None = None,
    span: tuple[float, float] = (0.0, 1.0),
) -> GroupedValues | None:
    """Return the values of the rows that have a group; `None` where no row has."""
    known = [
        (row.user_id, row.id, group, value) for row, value in values if (group := group_of(row, name)) is not None
    ]
    if not known:
        return None
    known.sort()  # sums of floats depend on their order
    users, owners = np.unique(np.array([each[0] for each in known], dtype=object), return_inverse=True)
    names, labels = np.unique(np.array([each[2] for each in known], dtype=object), return_inverse=True)
    return GroupedValues(
        names=names.tolist(),
        users=users.tolist(),
        values=np.array([each[3] for each in known], dtype=np.float64),
        owners=owners,
        labels=labels,
        per_user=per_user,
        span=span,
    )


def _figure(found: GroupedValues, seed: int) -> GroupFigure | None:
    groups = _estimates(found)
    if not groups:
        return None
    if found.is_still:
        groups = {name: replace(estimate, low=0.0, high=0.0) for name, estimate in groups.items()}
    best = max(groups, key=lambda name: groups[name].value)
    worst = min(reversed(groups), key=lambda name: groups[name].value)  # another one, where all are alike
    if len(groups) < 2:
        return GroupFigure(groups=groups, best=best, worst=worst)
    if found.is_still:
        return GroupFigure(groups=groups, best=best, worst=worst, gap=replace(groups[worst], n=groups[best].n))
    draws, _ = _draws(found, [best, worst])
    gap = replace(draws.estimate(0, minus=1), n=min(groups[best].n, groups[worst].n))
    return GroupFigure(groups=groups, best=best, worst=worst, gap=gap, p_value=gap_p_value(found, seed=seed))


def _estimates(found: GroupedValues | None) -> dict[str, Estimate]:
    """Return the figure of each group that has one."""
    groups: dict[str, Estimate] = {}
    if found is not None and len(found.entries()[0]):
        for start in range(0, len(found.names), GROUP_BLOCK):
            block = found.names[start : start + GROUP_BLOCK]
            draws, counts = _draws(found, block)
            groups |= {
                name: replace(draws.estimate(column), n=int(counts[column]))
                for column, name in enumerate(block)
                if counts[column]
            }
    return groups


def _draws(found: GroupedValues, names: Sequence[str]) -> tuple[ClusteredRatios, IntArray]:
    """Return one ratio per group over the same rows, and how many rows are behind each."""
    values, owners, labels, counts = found.entries()
    member = labels[:, None] == np.array([found.names.index(name) for name in names])[None, :]
    users = [found.users[owner] for owner in owners.tolist()]
    draws = clustered_ratios(values[:, None] * member, member.astype(np.float64), users, span=found.span)
    return draws, counts @ member


def user_table(rows: Sequence[AnyRow]) -> list[dict[str, Json]]:
    """One line per user, from all rows of a run; `None` where a figure does not apply.

    Of pairs: n, accuracy, gain and swap gap. Of ratings: n, alignment, Spearman's rho and Kendall's tau-b. What is
    unreadable earns 0, as in the headline figures, so the mean of the column is the figure by user.
    """
    counts: dict[str, int] = defaultdict(int)
    for row in rows:
        if row.probe is Probe.OWN:
            counts[row.user_id] += 1
    pairs = [row for row in rows if isinstance(row, Row)]
    columns = _pair_columns(pairs) if pairs else _rating_columns([row for row in rows if isinstance(row, RatedRow)])
    return [
        {"user": user, "n": counts[user], **{name: _rounded(column.get(user)) for name, column in columns.items()}}
        for user in sorted(counts)
    ]


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, COLUMN_DIGITS) + 0.0


def _pair_columns(rows: Sequence[Row]) -> dict[str, dict[str, float]]:
    own = [(row, (POINTS[row.verdict],)) for row in rows if row.probe is Probe.OWN]
    sides = {"accuracy": own, "gain": _lost(rows, Probe.NONE), "swap_gap": _lost(rows, Probe.SWAP)}
    return {name: _by_user(values) for name, values in sides.items()}


def _rating_columns(rows: Sequence[RatedRow]) -> dict[str, dict[str, float]]:
    own = sorted((row for row in rows if row.probe is Probe.OWN), key=lambda row: (row.user_id, row.id))
    ranked = rank_correlations(own)
    return {
        "alignment": _by_user(_aligned(own)),
        "spearman": {user: rho for user, (rho, _) in ranked.items()},
        "kendall": {user: tau for user, (_, tau) in ranked.items()},
    }


def _by_user(values: Iterable[tuple[AnyRow, tuple[float]]]) -> dict[str, float]:
    found: dict[str, list[float]] = defaultdict(list)
    for row, (value,) in values:
        found[row.user_id].append(value)
    return {user: fmean(of_user) for user, of_user in found.items()}


def group_table(groups: Mapping[str, Json]) -> list[dict[str, Json]]:
    """One line per field, figure and group, from `groups` of a summary; gap and p-value are those of the figure."""
    return [
        {
            "field": field,
            "figure": name,
            "group": group,
            "users": found["users"][group],
            "n": estimate["n"],
            **{part: estimate[part] for part in ("value", "low", "high")},
            "place": "best" if group == figure["best"] else "worst" if group == figure["worst"] else "",
            **{f"gap{end}": (figure["gap"] or {}).get(part) for part, end in GAP_PARTS},
            "p_value": figure["p_value"],
        }
        for field, found in groups.items()
        for name, figure in figures_of(found).items()
        for group, estimate in figure["groups"].items()
    ]


GAP_PARTS = (("value", ""), ("low", "_low"), ("high", "_high"))


def figures_of(found: Mapping[str, Json]) -> dict[str, Mapping[str, Json]]:
    """Return the figures of one field of `groups` in a summary by name, the headline first; those that apply."""
    further = {name: each for name, each in found.items() if name in ("gain", "swap_gap", "spearman") and each}
    return {found["figure"]: found, **further}
