"""Figures of groups and users, the gap between best and worst group, and how often chance alone makes such a gap."""

from itertools import permutations
from statistics import fmean

import numpy as np
import pytest
from scipy.stats import spearmanr

from prbench.errors import UsageError
from prbench.metrics.accuracy import macro_user_accuracy
from prbench.metrics.groups import (
    GroupedValues,
    accuracy_by_group,
    gap_p_value,
    group_figures,
    group_of,
    user_correlations,
    user_means,
    user_table,
    values_of_ratings,
)
from prbench.metrics.personal import personalization_gain, swap
from prbench.metrics.ratings import alignments, rated_summary
from prbench.schema import Probe, RatedRow, Row, Verdict

C, R, T, U = Verdict.CHOSEN, Verdict.REJECTED, Verdict.TIE, Verdict.UNREADABLE
OWN, NONE, SWAP = Probe.OWN, Probe.NONE, Probe.SWAP
GRID = [place / 7 for place in range(8)]


def make_rows(verdicts: list[Verdict], users: list[str] | None = None, category: str = "art") -> list[Row]:
    users = users or [f"u{i}" for i in range(len(verdicts))]
    return [
        Row(id=f"{category}{i}", probe=OWN, user_id=user, category=category, verdict=verdict)
        for i, (verdict, user) in enumerate(zip(verdicts, users, strict=True))
    ]


def pair(user: str, place: int, verdict: Verdict, probe: Probe = OWN, **facts: str) -> Row:
    return Row(id=f"{user}-{place}", probe=probe, user_id=user, category="", verdict=verdict, groups=facts)


def rated_people(noise: dict[str, float], users: int = 40, seed: int = 0) -> list[RatedRow]:
    """Users who rate along a grid; the model scores each rating with the noise of the user's region."""
    dice = np.random.default_rng(seed)
    regions = sorted(noise)
    return [
        RatedRow(
            id=f"u{user:02}-{place}",
            probe=OWN,
            user_id=f"u{user:02}",
            category="",
            rating=rating,
            score=rating + noise[region] * float(dice.normal()),
            groups={"region": region, "age": ("old", "young")[user // 2 % 2]},
        )
        for user in range(users)
        for region in (regions[user % len(regions)],)
        for place, rating in enumerate(GRID)
    ]


def test_groups_have_their_accuracy_and_the_gap_between_best_and_worst() -> None:
    rows = make_rows([C, C, C, R]) + make_rows([C, R, R, R], category="life") + make_rows([C, R], category="society")
    found = group_figures(rows, "category")
    accuracy = found.figures["accuracy"]
    assert accuracy is not None
    assert {name: (e.value, e.n) for name, e in accuracy.groups.items()} == {
        "art": (0.75, 4),
        "life": (0.25, 4),
        "society": (0.5, 2),
    }
    assert accuracy.groups == accuracy_by_group(rows)
    assert (accuracy.best, accuracy.worst) == ("art", "life")
    assert accuracy.gap is not None
    assert (accuracy.gap.value, accuracy.gap.n) == (0.5, 4)
    assert accuracy.gap.low <= 0.5 <= accuracy.gap.high
    assert (found.figures["gain"], found.figures["swap_gap"]) == (None, None)  # no rows of the other probes
    assert found.users == {"art": 4, "life": 4, "society": 2}


def test_one_group_has_neither_gap_nor_p_value() -> None:
    found = group_figures(make_rows([C, R]), "category").figures["accuracy"]
    assert found is not None
    assert (found.best, found.worst, found.gap, found.p_value) == ("art", "art", None, None)


def test_groups_come_from_a_field_of_the_rows_and_rows_without_it_are_left_out() -> None:
    rows = [
        Row(id="1", probe=OWN, user_id="a", category="x", verdict=C, groups={"tier": 1}),
        Row(id="2", probe=OWN, user_id="b", category="x", verdict=R, groups={"tier": 2}),
        Row(id="3", probe=OWN, user_id="c", category="x", verdict=R),
    ]
    assert {name: e.value for name, e in accuracy_by_group(rows, "tier").items()} == {"1": 1.0, "2": 0.0}
    with pytest.raises(UsageError, match="'level'"):
        group_figures(rows, "level")


def test_a_comma_crosses_fields_and_a_row_needs_all_of_them() -> None:
    row = pair("a", 0, C, region="north", age="young")
    assert group_of(row, "region") == "north"
    assert group_of(row, "region, age") == "region=north, age=young"
    assert group_of(row, "user_id,age") == "user_id=a, age=young"
    assert group_of(row, "region,height") is None
    found = group_figures(rated_people({"north": 0.1, "south": 0.1}), "region,age")
    assert found.users == {f"region={r}, age={a}": 10 for r in ("north", "south") for a in ("old", "young")}


def test_gain_and_swap_gap_of_a_group_are_those_of_its_rows_alone() -> None:
    dice = np.random.default_rng(0)
    rows = [
        pair(f"u{user}", place, list(Verdict)[dice.integers(4)], probe, region="north" if user % 3 else "south")
        for user in range(12)
        for place in range(4)
        for probe in (OWN, NONE, SWAP)
    ]
    found = group_figures(rows, "region").figures
    for region in ("north", "south"):
        here = [row for row in rows if row.groups["region"] == region]
        gain, swapped = personalization_gain(here), swap(here)
        assert gain is not None
        assert swapped is not None
        for name, alone in (("gain", gain), ("swap_gap", swapped.gap)):
            figure = found[name]
            assert figure is not None
            assert (figure.groups[region].value, figure.groups[region].n) == (pytest.approx(alone.value), alone.n)


def test_a_planted_difference_between_groups_of_raters_is_found_with_its_size() -> None:
    noise = {"north": 0.05, "south": 0.6}
    # What the planted noise comes to with very many users is the truth that the interval must hold.
    truth = group_figures(rated_people(noise, users=4000, seed=1), "region").figures["alignment"]
    found = group_figures(rated_people(noise), "region")
    alignment, spearman = found.figures["alignment"], found.figures["spearman"]
    assert truth is not None
    assert truth.gap is not None
    assert alignment is not None
    assert alignment.gap is not None
    assert (alignment.best, alignment.worst, alignment.groups["south"].n) == ("north", "south", 160)
    assert alignment.gap.low < truth.gap.value < alignment.gap.high
    assert alignment.gap.low > 0.1
    assert alignment.p_value == pytest.approx(1 / 2001)  # none of the 2,000 permutations comes near
    assert spearman is not None
    assert spearman.worst == "south"
    assert spearman.p_value == pytest.approx(1 / 2001)


def test_raters_without_a_difference_are_called_different_in_five_of_a_hundred_cases() -> None:
    found = [values_of_ratings(rated_people({"north": 0.4, "south": 0.4}, seed=seed), "region") for seed in range(200)]
    for name in ("alignment", "spearman"):
        p_values = []
        for seed, figures in enumerate(found):
            figure = figures[name]
            assert figure is not None
            p_values.append(gap_p_value(figure, seed=seed, permutations=99))
        assert 0.02 <= fmean(p is not None and p <= 0.05 for p in p_values) <= 0.09
        assert fmean(p or 0.0 for p in p_values) == pytest.approx(0.5, abs=0.06)


def simulated(seed: int, how: str) -> GroupedValues:
    """40 users of different quality with 8 rows each, in three groups that say nothing."""
    dice = np.random.default_rng([seed, 1])
    quality = np.repeat(dice.beta(4, 2, size=40), 8)
    of_user, of_row = np.repeat(dice.integers(3, size=40), 8), dice.integers(3, size=320)
    owners = np.repeat(np.arange(40), 8)
    labels = {"of users": of_user, "of rows": of_row, "mixed": np.where(owners % 2, of_user, of_row)}[how]
    return GroupedValues(
        names=["a", "b", "c"],
        users=[str(user) for user in range(40)],
        values=(dice.random(320) < quality).astype(np.float64)[:, None],
        owners=owners,
        labels=labels,
        per_user=user_means if seed % 2 else None,
    )


@pytest.mark.parametrize("how", ["of users", "of rows", "mixed"])
def test_groups_that_say_nothing_are_called_different_in_five_of_a_hundred_cases(how: str) -> None:
    p_values = [gap_p_value(simulated(seed, how), seed=seed, permutations=99) for seed in range(400)]
    assert 0.02 <= fmean(p is not None and p <= 0.05 for p in p_values) <= 0.09


def test_the_p_value_is_the_share_of_all_permutations_of_the_users() -> None:
    points = {"a": [1, 1, 1], "b": [1, 1], "c": [1, 0], "d": [0, 0, 0, 1]}
    regions = ["north", "north", "south", "south"]
    rows = [
        pair(user, place, C if point else R, region=region)
        for (user, won), region in zip(points.items(), regions, strict=True)
        for place, point in enumerate(won)
    ]

    def gap(labels: tuple[str, ...]) -> float:
        won: dict[str, list[int]] = {}
        for values, label in zip(points.values(), labels, strict=True):
            won.setdefault(label, []).extend(values)
        means = [fmean(values) for values in won.values()]
        return max(means) - min(means)

    observed = gap(tuple(regions))
    exact = fmean(gap(labels) >= observed - 1e-9 for labels in permutations(regions))
    assert exact == pytest.approx(1 / 3)  # a and b together, in either region
    figure = group_figures(rows, "region").figures["accuracy"]
    assert figure is not None
    assert figure.p_value == pytest.approx(exact, abs=0.04)


def test_where_no_two_users_share_a_group_chance_cannot_be_told() -> None:
    rows = [pair(f"u{user}", place, C if user else R) for user in range(5) for place in range(3)]
    figure = group_figures(rows, "user_id").figures["accuracy"]
    assert figure is not None
    assert figure.gap is not None
    assert (figure.gap.value, figure.p_value) == (1.0, None)


def test_correlations_of_cells_are_those_of_scipy() -> None:
    dice = np.random.default_rng(3)
    cells = dice.integers(6, size=60)
    values = np.round(dice.random((60, 2)), 1)  # with ties
    values[cells == 2, 0] = 0.5  # a model that ranks nothing
    values[cells == 4, 1] = 0.5  # a user who cannot be ranked
    found, rho, counts = user_correlations(values, cells)
    assert found.tolist() == [0, 1, 2, 3, 5]
    assert counts.tolist() == [int((cells == cell).sum()) for cell in found]
    expected = [0.0 if cell == 2 else spearmanr(*values[cells == cell].T).statistic for cell in found]
    assert rho == pytest.approx(expected)


def test_the_columns_of_the_users_have_the_headline_figures_as_their_means() -> None:
    dice = np.random.default_rng(0)
    rows = [
        pair(f"u{user}", place, list(Verdict)[dice.integers(4)], probe)
        for user in range(6)
        for place in range(user + 1)
        for probe in (OWN, NONE)
    ]
    table = user_table(rows)
    own = [row for row in rows if row.probe is OWN]
    assert fmean(line["accuracy"] for line in table) == pytest.approx(macro_user_accuracy(own).value, abs=1e-6)
    assert [(line["user"], line["n"]) for line in table] == [(f"u{user}", user + 1) for user in range(6)]
    assert {line["swap_gap"] for line in table} == {None}
    gain = personalization_gain([row for row in rows if row.user_id == "u5"])
    assert gain is not None
    assert table[5]["gain"] == pytest.approx(gain.value, abs=1e-6)

    raters = rated_people({"north": 0.1, "south": 0.5})
    raters[3] = RatedRow(id="u00-3", probe=OWN, user_id="u00", category="", rating=GRID[3], score=None)
    table, summary = user_table(raters), rated_summary(raters)
    for name in ("alignment", "spearman", "kendall"):
        figure = getattr(summary, name)
        assert fmean(line[name] for line in table) == pytest.approx(figure.value, abs=1e-6)


def test_a_group_of_raters_has_the_mean_of_its_users() -> None:
    rows = rated_people({"north": 0.1, "south": 0.5})
    aligned = alignments(rows)
    assert aligned is not None
    south = {row.user_id for row in rows if row.groups["region"] == "south"}
    means = [np.mean([a for row, a in zip(rows, aligned, strict=True) if row.user_id == user]) for user in south]
    figure = group_figures(rows, "region").figures["alignment"]
    assert figure is not None
    assert figure.groups["south"].value == pytest.approx(np.mean(means))


def test_one_rater_has_no_alignment_by_group() -> None:
    rows = [
        RatedRow(id=str(i), probe=OWN, user_id="a", category="xy"[i % 2], rating=i / 7, score=i / 7) for i in range(8)
    ]
    found = group_figures(rows, "category").as_json()
    assert (found["figure"], found["groups"], found["worst"]) == ("alignment", {}, None)
    assert found["spearman"].groups["x"].value == 1.0


def test_order_of_rows_changes_no_digit() -> None:
    rows = make_rows([C, R, T, U, C, C, R, T] * 5, [f"u{i % 7}" for i in range(40)]) + make_rows([R] * 9, category="b")
    assert group_figures(rows, "category") == group_figures(rows[::-1], "category")
    raters = rated_people({"north": 0.1, "south": 0.5}, users=12)
    assert group_figures(raters, "region") == group_figures(raters[::-1], "region")
