"""What to label next: entropies by hand, blind to the label, spread over users and slices."""

import numpy as np
import pytest

from prbench.insight.diagnose.label_next import information, most_informative, probabilities
from prbench.insight.diagnose.slices import Field
from prbench.schema import Row, Verdict

RIGHT, WRONG = Verdict.CHOSEN, Verdict.REJECTED


def scored(make_row, margins: list[float], users: list[str] | None = None) -> list[Row]:
    return [
        make_row(f"i{n:02d}", users[n] if users else f"u{n}", RIGHT if margin > 0 else WRONG, margin=margin)
        for n, margin in enumerate(margins)
    ]


def test_one_run_is_worth_its_doubt_in_bits() -> None:
    value, apart = information(np.array([[0.5, 0.25, 1.0]]))
    # H(1/4) = 2 - 3/4 log2 3
    assert value == pytest.approx([1.0, 2 - 0.75 * np.log2(3), 0.0], abs=1e-9)
    assert apart.tolist() == [0.0, 0.0, 0.0]


def test_runs_at_odds_are_worth_more_than_doubt_that_they_share() -> None:
    opinions = np.array([[1.0, 0.5, 0.9], [0.0, 0.5, 0.9]])
    value, apart = information(opinions)
    assert apart == pytest.approx([1.0, 0.0, 0.0], abs=1e-9)
    # All disagreement; a tenth of one bit of common doubt; a tenth of H(0.9) = 0.469 bits.
    assert value == pytest.approx([1.0, 0.1, 0.0468996], abs=1e-6)


def test_a_margin_counts_by_the_mean_size_of_margins_not_by_labels(make_row) -> None:
    margins = [4.0, 2.0, -1.0, 3.0]
    # T is half the mean size: 2.5 / 2.
    expected = np.array([1 / (1 + np.exp(-m / 1.25)) for m in margins])
    assert probabilities(scored(make_row, margins)) == pytest.approx(expected)
    assert probabilities(scored(make_row, [-m for m in margins])) == pytest.approx(1 - expected)


@pytest.mark.parametrize("right", [0, 1, 4])
def test_a_verdict_without_scores_counts_the_same_however_often_the_run_is_right(make_row, right: int) -> None:
    verdicts = [RIGHT] * right + [WRONG] * (4 - right) + [Verdict.UNREADABLE]
    rows = [make_row(f"{n}", "u", verdict) for n, verdict in enumerate(verdicts)]
    assert probabilities(rows).tolist() == [0.75] * right + [0.25] * (4 - right) + [0.5]


@pytest.mark.parametrize("exchanged", [0.5, 1.0])
def test_exchanging_the_responses_names_the_same_items_in_the_same_order(make_row, exchanged: float) -> None:
    dice = np.random.default_rng(0)
    # Three runs, each right more often than not, with margins of their own size and one of them without scores.
    runs = [size * dice.normal(0.7, 1.0, size=300) for size in (1.0, 5.0)]
    flips = np.where(dice.random(300) < exchanged, -1.0, 1.0)
    bare = dice.normal(0.7, 1.0, size=300)
    ids = []
    for signs in (np.ones(300), flips):
        rows = [scored(make_row, list(margins * signs)) for margins in runs]
        rows.append([make_row(f"i{n:02d}", f"u{n}", RIGHT if m > 0 else WRONG) for n, m in enumerate(bare * signs)])
        ids.append([each.id for each in most_informative(rows, 30)])
    assert ids[0] == ids[1]


def test_the_smallest_margins_of_one_run_come_first(make_row) -> None:
    rows = scored(make_row, [3.0, 0.1, -0.2, 2.0, -1.0])
    assert [each.id for each in most_informative([rows], 3)] == ["i01", "i02", "i04"]


def test_no_user_is_asked_twice_before_everybody_was_asked_once(make_row) -> None:
    rows = scored(make_row, [0.1, 0.2, 0.3, 4.0, 5.0], users=["a", "a", "a", "b", "c"])
    assert [each.user_id for each in most_informative([rows], 4)] == ["a", "b", "c", "a"]


def test_no_slice_gets_more_than_its_share_before_the_others_had_theirs(make_row) -> None:
    rows = scored(make_row, [0.1, 0.2, 0.3, 0.4, 5.0, 6.0, 7.0, 8.0])
    halves = Field(name="half", values=[("low",)] * 4 + [("high",)] * 4, order=("high", "low"))
    assert [each.place for each in most_informative([rows], 4, spread=[halves])] == [0, 1, 4, 5]
    assert [each.place for each in most_informative([rows], 4)] == [0, 1, 2, 3]


def test_equal_items_are_ordered_by_id_alone_whatever_the_order_of_the_rows(make_row) -> None:
    rows = scored(make_row, [1.0] * 12)
    forwards = [each.id for each in most_informative([rows], 5)]
    backwards = [each.id for each in most_informative([rows[::-1]], 5)]
    assert forwards == backwards
    assert forwards != sorted(forwards)


def test_more_than_there_are_gives_all(make_row) -> None:
    assert len(most_informative([scored(make_row, [1.0, 2.0])], 9)) == 2
