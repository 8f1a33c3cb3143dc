"""Slices: counts and differences by hand, tests by other packages, and no finding where users do not show one."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import beta, fisher_exact

from prbench.insight.diagnose.slices import Field, SliceFinding, measure
from prbench.schema import Row, Verdict

RIGHT, WRONG, TIE = Verdict.CHOSEN, Verdict.REJECTED, Verdict.TIE


def field_of(values: list[str], name: str = "level") -> Field:
    return Field(name=name, values=[(value,) for value in values], order=tuple(sorted(set(values))))


def by_user(make_row, blocks: list[tuple[str, int, int, int]]) -> tuple[list[Row], Field]:
    """Rows of blocks (slice, users, right, wrong per user)."""
    rows, values = [], []
    for value, users, right, wrong in blocks:
        for user in range(users):
            for number, verdict in enumerate([RIGHT] * right + [WRONG] * wrong):
                rows.append(make_row(f"{value}{user}-{number}-{len(rows)}", f"{value}-{user}-{right}", verdict))
                values.append(value)
    return rows, field_of(values)


def test_counts_accuracy_and_difference_by_hand(make_row) -> None:
    rows, field = by_user(make_row, [("oblique", 20, 1, 1), ("plain", 30, 9, 1)])
    oblique, plain = measure([rows], [field])
    assert (oblique.name, len(oblique.items), oblique.users, oblique.disagreement) == ("level=oblique", 40, 20, None)
    assert oblique.cells[0].accuracy.value == 0.5
    assert plain.cells[0].accuracy.value == 0.9
    assert oblique.cells[0].against_rest.difference.value == pytest.approx(-0.4)
    # 40 pairs at 0.4 below the rest: 16 errors more than there would be.
    assert oblique.cells[0].extra_errors == pytest.approx(16.0)
    assert (oblique.cells[0].finding, plain.cells[0].finding) == (SliceFinding.WEAKER, SliceFinding.STRONGER)


def test_the_items_test_is_fishers_and_holm_doubles_it_for_two_slices(make_row) -> None:
    # Every user has the same share, so that the items decide; that users differ a little is never ruled out.
    rows, field = by_user(make_row, [("a", 20, 3, 2), ("b", 20, 4, 1)])
    one, other = measure([rows], [field])
    expected = fisher_exact([[60, 40], [80, 20]]).pvalue
    found = one.cells[0].against_rest.p_value
    assert expected <= found < 1.25 * expected
    assert one.cells[0].against_rest.holm_p == pytest.approx(2 * found)
    assert other.cells[0].against_rest.holm_p == pytest.approx(2 * found)


def test_what_a_few_users_cause_is_not_shown_however_many_items_they_have(make_row) -> None:
    blocks = [("a", 5, 0, 10), ("a", 5, 10, 0), ("b", 2, 0, 10), ("b", 8, 10, 0)]
    rows, field = by_user(make_row, blocks)
    one, _ = measure([rows], [field])
    test = one.cells[0].against_rest
    assert fisher_exact([[50, 50], [80, 20]]).pvalue < 0.0001
    # All rows of a user are alike, so that users count: Jeffreys' intervals for 5 and for 8 of 10, put together by
    # squares of arms; what rows tell of their correlation falls a little short of that.
    first, second = (beta.ppf([0.025, 0.975], right + 0.5, 10.5 - right) for right in (8, 5))
    low = 0.3 - math.hypot(0.8 - first[0], second[1] - 0.5)
    assert test.difference.low == pytest.approx(-0.3 - math.hypot(0.5 - second[0], first[1] - 0.8), abs=0.05)
    assert test.difference.high == pytest.approx(-low, abs=0.05)
    assert test.p_value > 0.1
    assert one.cells[0].finding is SliceFinding.ALIKE


@pytest.mark.parametrize("users,each,finding", [(19, 1, "too small"), (20, 1, "weaker"), (9, 10, "too small")])
def test_a_small_slice_is_said_to_be_too_small(make_row, users: int, each: int, finding: str) -> None:
    rows, field = by_user(make_row, [("a", users, 0, each), ("b", 60, 9, 1)])
    one, _ = measure([rows], [field])
    assert one.cells[0].finding.value == finding
    assert (one.cells[0].against_rest is None) == (finding == "too small")


def test_a_slice_without_a_rest_is_too_small_to_compare(make_row) -> None:
    rows, field = by_user(make_row, [("a", 30, 1, 1)])
    (only,) = measure([rows], [field])
    assert only.cells[0].finding is SliceFinding.TOO_SMALL
    assert only.cells[0].extra_errors == 0.0


def test_an_item_may_be_in_several_slices_or_in_none(make_row) -> None:
    rows = [make_row(f"{n}", f"u{n}", RIGHT if n % 2 else WRONG) for n in range(60)]
    values = [("thrift", "time") if n < 30 else ("time",) if n < 50 else () for n in range(60)]
    slices = measure([rows], [Field(name="trait", values=values, order=("thrift", "time"))])
    assert [len(each.items) for each in slices] == [30, 50]


def test_runs_side_by_side_are_paired(make_row) -> None:
    first = [make_row(f"{n}", f"u{n}", RIGHT if n < 30 else WRONG) for n in range(60)]
    second = [make_row(f"{n}", f"u{n}", RIGHT if n < 45 else WRONG) for n in range(60)]
    field = field_of(["a"] * 20 + ["b"] * 40)
    easy, hard = measure([first, second], [field])
    assert (easy.disagreement, hard.disagreement) == (0.0, 15 / 40)
    assert easy.cells[1].against_first.difference.value == 0.0
    assert easy.cells[1].against_first.p_value == 1.0
    assert hard.cells[0].against_first is None
    # 10 and 25 of 40: 15 items speak for the second run and none against it.
    assert hard.cells[1].against_first.difference.value == pytest.approx(15 / 40)
    assert hard.cells[1].against_first.p_value >= 2 * 0.5**15
    assert hard.cells[1].against_first.is_shown


def test_a_slice_by_outcome_is_shown_without_a_test_and_does_not_weigh_on_the_others(make_row) -> None:
    rows, level = by_user(make_row, [("a", 20, 3, 2), ("b", 20, 4, 1)])
    wrong = ["yes" if row.verdict is WRONG else "no" for row in rows]
    alone = measure([rows, rows], [level])
    no, yes, *others = measure([rows, rows], [replace(field_of(wrong, "minority"), by_outcome=True), level])
    assert [(each.name, each.cells[0].accuracy.value) for each in (no, yes)] == [
        ("minority=no", 1.0),
        ("minority=yes", 0.0),
    ]
    for cell in (*no.cells, *yes.cells):
        assert (cell.finding, cell.against_rest, cell.against_first) == (SliceFinding.NOT_TESTED, None, None)
        assert cell.extra_errors == 0.0
    # Holm counts only tests that were made.
    assert [each.cells for each in others] == [each.cells for each in alone]


def test_a_tie_is_half_a_point(make_row) -> None:
    rows = [make_row(f"{n}", f"u{n}", TIE if n < 10 else RIGHT) for n in range(40)]
    one, _ = measure([rows], [field_of(["a"] * 20 + ["b"] * 20)])
    assert one.cells[0].accuracy.value == 0.75


def test_pure_chance_is_rarely_called_a_weakness(make_row) -> None:
    dice = np.random.default_rng(5)
    false_alarms = 0
    for _ in range(10):
        shares = dice.beta(8, 2, size=60)  # users differ, slices do not
        rows = [
            make_row(f"{u}-{n}", f"u{u}", RIGHT if dice.random() < shares[u] else WRONG)
            for u in range(60)
            for n in range(4)
        ]
        fields = [field_of([str(v) for v in dice.integers(0, 4, size=len(rows))], name) for name in "ab"]
        findings = {cell.finding for each in measure([rows], fields) for cell in each.cells}
        false_alarms += bool(findings & {SliceFinding.WEAKER, SliceFinding.STRONGER})
    assert false_alarms <= 2  # at 5 %, three or more of ten happen once in ninety times
