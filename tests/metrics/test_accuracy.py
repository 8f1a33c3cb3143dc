import pytest

from prbench.errors import UsageError
from prbench.metrics.accuracy import (
    accuracy,
    accuracy_readable,
    coverage,
    macro_user_accuracy,
    tie_rate,
    unreadable_counts,
    worst_decile_accuracy,
)
from prbench.metrics.estimate import wilson
from prbench.schema import Probe, Problem, Row, Verdict

C, R, T, U = Verdict.CHOSEN, Verdict.REJECTED, Verdict.TIE, Verdict.UNREADABLE


def make_rows(verdicts: list[Verdict], users: list[str] | None = None, category: str = "art") -> list[Row]:
    users = users or [f"u{i}" for i in range(len(verdicts))]
    return [
        Row(id=f"{category}{i}", probe=Probe.OWN, user_id=user, category=category, verdict=verdict)
        for i, (verdict, user) in enumerate(zip(verdicts, users, strict=True))
    ]


def test_headline_counts_unreadable_as_wrong_and_a_tie_as_half() -> None:
    estimate = accuracy(make_rows([C, R, T, U]))
    assert (estimate.value, estimate.n) == (1.5 / 4, 4)


def test_readable_accuracy_leaves_unreadable_out() -> None:
    estimate = accuracy_readable(make_rows([C, R, T, U]))
    assert estimate is not None
    assert (estimate.value, estimate.n) == (0.5, 3)


def test_unparsed_verdicts_cannot_raise_the_accuracy() -> None:
    # One public tool scores unparsed replies as "A", which adds half of the failures to the accuracy.
    assert accuracy(make_rows([C, C, R, R])).value == 0.5
    assert accuracy(make_rows([C, C, R, R] + [U] * 4)).value == 0.25


def test_a_run_with_nothing_readable_has_no_readable_accuracy() -> None:
    rows = make_rows([U, U])
    assert accuracy_readable(rows) is None
    assert accuracy(rows).value == 0.0
    assert coverage(rows).value == 0.0


def test_coverage_and_tie_rate_are_shares_of_all_pairs() -> None:
    rows = make_rows([C, T, T, U, R])
    assert coverage(rows).value == pytest.approx(0.8)
    assert tie_rate(rows).value == pytest.approx(0.4)


@pytest.mark.parametrize("metric", [accuracy, accuracy_readable, coverage, tie_rate, macro_user_accuracy])
def test_no_rows_is_a_usage_error(metric) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(UsageError, match="no rows"):
        metric([])


def test_interval_of_independent_pairs_is_close_to_wilsons() -> None:
    estimate = accuracy(make_rows([C] * 150 + [R] * 50))
    assert (estimate.low, estimate.high) == pytest.approx(wilson(150, 200), abs=0.01)


def test_unreadable_pairs_are_counted_by_reason() -> None:
    reasons = [Problem.FAILED, Problem.NO_VERDICT, Problem.FAILED]
    rows = [
        Row(id=str(i), probe=Probe.OWN, user_id="u", category="", verdict=U, problem=reason)
        for i, reason in enumerate(reasons)
    ]
    assert unreadable_counts([*rows, *make_rows([C])]) == {"no_verdict": 1, "failed": 2}


def test_macro_accuracy_weighs_users_equally() -> None:
    rows = make_rows([C, C, C, C, R, C], ["a", "a", "a", "a", "b", "c"])
    assert accuracy(rows).value == pytest.approx(5 / 6)
    macro = macro_user_accuracy(rows)
    assert (macro.value, macro.n) == (pytest.approx(2 / 3), 6)


def test_macro_accuracy_of_one_user_is_the_accuracy() -> None:
    rows = make_rows([C, R, C], ["a"] * 3)
    assert macro_user_accuracy(rows) == accuracy(rows)


def test_worst_decile_is_the_mean_of_the_lowest_tenth_of_the_users() -> None:
    users = [f"u{i:02}" for i in range(20) for _ in range(4)]
    verdicts = [R, R, R, C] + [R, R, C, C] + [C] * 72  # 0.25, 0.5 and eighteen users with 1.0
    worst = worst_decile_accuracy(make_rows(verdicts, users))
    assert (worst.users, worst.accuracy.value, worst.accuracy.n) == (2, 0.375, 80)
    assert worst.accuracy.low <= 0.375 <= worst.accuracy.high


def test_a_part_of_a_decile_is_a_whole_user() -> None:
    assert worst_decile_accuracy(make_rows([C] * 11)).users == 2
    assert worst_decile_accuracy(make_rows([C] * 30)).users == 3
    assert worst_decile_accuracy(make_rows([C, R])).users == 1


def test_binomial_null_explains_a_low_decile_of_users_with_one_pair() -> None:
    worst = worst_decile_accuracy(make_rows([C] * 80 + [R] * 20))
    assert worst.accuracy.value == 0.0
    assert worst.null.value == pytest.approx(0.0, abs=0.01)


def test_binomial_null_shows_users_who_are_served_worse() -> None:
    users = [f"u{i:02}" for i in range(20) for _ in range(50)]
    verdicts = [R] * 100 + [C] * 900
    worst = worst_decile_accuracy(make_rows(verdicts, users))
    assert worst.accuracy.value == 0.0
    # Twenty binomials of 50 pairs at 0.9: the two lowest lie near 0.9 - 1.6 standard deviations of 0.042.
    assert worst.null.value == pytest.approx(0.82, abs=0.02)
    assert worst.accuracy.value < worst.null.low


def test_order_of_rows_changes_no_digit() -> None:
    rows = make_rows([C, R, T, U, C, C, R, T] * 5, [f"u{i % 7}" for i in range(40)])
    for metric in (accuracy, macro_user_accuracy, worst_decile_accuracy):
        assert metric(rows) == metric(rows[::-1])
