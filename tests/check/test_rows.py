"""The plain counts, worked out by hand."""

import pytest

from prbench.construction.check import (
    check_profiles,
    check_recurrence,
    check_resolution,
    check_rows,
    check_users,
    count_rows_of_users,
)
from prbench.construction.check.finding import BAD, GOOD, LOOK
from prbench.data import open_examples


def test_bad_rows_are_counted(pair) -> None:
    rows = [pair(0), pair(1, question=""), pair(2)]
    with open_examples(rows, skip_bad_rows=1) as store:
        finding = check_rows(store)
    assert (finding.verdict, finding.figure) == (LOOK, "2 good rows, 1 bad")
    with open_examples([pair(0)]) as store:
        assert check_rows(store).verdict == GOOD


def test_users_are_worth_less_when_one_has_most_rows(pair, open_rows) -> None:
    store = open_rows([pair(0, user_id="a"), pair(1, user_id="a"), pair(2, user_id="a"), pair(3, user_id="b")])
    values = check_users(store).values
    assert values["effective_users"] == pytest.approx(1 / (0.75**2 + 0.25**2))  # 1.6
    assert values["recurrence"] == 0.5
    assert (values["users"], values["rows_per_user"], values["most_rows"]) == (2, 2.0, 3)


def test_thirty_equal_users_are_enough(pair, open_rows) -> None:
    assert check_users(open_rows([pair(n) for n in range(30)])).verdict == GOOD
    few = check_users(open_rows([pair(n) for n in range(29)]))
    assert (few.verdict, few.values["effective_users"]) == (LOOK, pytest.approx(29))


def test_rows_without_posts_are_told_apart_from_a_general_set(pair, open_rows) -> None:
    assert check_profiles(open_rows([pair(0)])).verdict == GOOD
    some = check_profiles(open_rows([pair(0), pair(1, profile=[])]))
    assert (some.verdict, some.values["rows_without"], some.values["mean"]) == (LOOK, 1, 0.5)
    assert "cannot be personal" in some.remedy
    assert "--context none" in check_profiles(open_rows([pair(0, profile=[])])).remedy


def test_resolution_by_the_number_of_pairs() -> None:
    assert check_resolution([1] * 10).verdict == BAD
    assert check_resolution([1] * 200).verdict == LOOK
    assert check_resolution([1] * 1600).verdict == GOOD
    assert check_resolution([1] * 1600).values["smallest_difference"] == pytest.approx(0.031, abs=5e-4)


def test_resolution_is_that_of_the_effective_pairs_and_says_what_it_assumes() -> None:
    finding = check_resolution([16] * 100)  # m = 16: 1600 / 1.75 = 914.3
    assert finding.values["effective_pairs"] == 914
    # (1.984 + 0.845) sqrt(0.2 / 914.3), with 99 degrees of freedom
    assert finding.values["smallest_difference"] == pytest.approx(0.04185, abs=1e-5)
    assert finding.figure.startswith("with 1600 pairs, true differences of at least 4.2 points are found with 80 %")
    assert finding.figure.endswith(
        "assuming that two models differ on 20 % of the pairs and that pairs of one user correlate by 0.05"
    )
    alone = check_resolution([1600])  # worth 20 at most, however many rows
    assert (alone.verdict, alone.values["effective_pairs"]) == (BAD, 19)


def test_rows_of_users_are_counted(pair, open_rows) -> None:
    store = open_rows([pair(0, user_id="a"), pair(1, user_id="a"), pair(2, user_id="b")])
    assert count_rows_of_users(store) == {"a": 2, "b": 1}


def test_texts_that_recur_are_counted(pair, open_rows) -> None:
    # Three rows: one question twice, one response twice (two sentences), and the post of `pair` in every row.
    rows = [
        pair(0, user_id="a", question="What is best?", chosen="Bake it slowly at home. Then let it rest well."),
        pair(1, user_id="b", question="What is best?", chosen="Bake it slowly at home. Then let it rest well."),
        pair(2, user_id="b", question="And what is worst?", chosen="Buy one that is ready made."),
    ]
    found = check_recurrence(open_rows(rows))
    assert found.verdict == GOOD  # used 1.5 times each at most
    assert found.values["questions"] == {"distinct": 2, "uses": 3}
    assert found.values["responses"]["uses"] == 6
    # Pairs per user as a row sees them (1 + 4) / 3, questions likewise: 1 + (5/3 - 1) 0.05
    assert found.values["design_effect_users"] == pytest.approx(1 + (5 / 3 - 1) * 0.05, abs=1e-4)
    assert found.values["design_effect_questions"] == found.values["design_effect_users"]
    assert "2 questions used 3 times" in found.figure
