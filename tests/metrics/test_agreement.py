import numpy as np
import pytest
from sklearn.metrics import cohen_kappa_score
from statsmodels.stats.weightstats import ttost_paired

from prbench.errors import DataError, UsageError
from prbench.metrics.agreement import (
    LabelTable,
    agreement_with_people,
    cohen_kappa,
    equivalence,
    fleiss_kappa,
    krippendorff_alpha,
    label_table,
    majority_labels,
    pairwise_cohen_kappa,
    raw_agreement,
)


def from_lines(*lines: str) -> LabelTable:
    """One line per rater, one character per item, `*` for a gap."""
    return label_table(
        (f"rater{r}", f"item{i:03}", None if mark == "*" else int(mark))
        for r, line in enumerate(lines)
        for i, mark in enumerate(line.replace(" ", ""))
    )


# Krippendorff, "Computing Krippendorff's alpha-reliability" (2011), section C: four observers, twelve units.
KRIPPENDORFF = from_lines(
    "1 2 3 3 2 1 4 1 2 * * *", "1 2 3 3 2 2 4 1 2 5 * 3", "* 3 3 3 2 3 4 2 2 5 1 *", "1 2 3 3 2 4 4 1 2 5 1 *"
)

# Fleiss (1971) as worked out in the encyclopaedia's article: ten subjects, fourteen raters, five categories.
FLEISS_COUNTS = [
    [0, 0, 0, 0, 14], [0, 2, 6, 4, 2], [0, 0, 3, 5, 6], [0, 3, 9, 2, 0], [2, 2, 8, 1, 1],
    [7, 7, 0, 0, 0], [3, 2, 6, 3, 0], [2, 5, 3, 2, 2], [6, 5, 2, 1, 0], [0, 2, 2, 3, 7],
]  # fmt: skip


def fleiss_table() -> LabelTable:
    return label_table(
        (f"rater{rater:02}", f"item{item}", label)
        for item, counts in enumerate(FLEISS_COUNTS)
        for rater, label in enumerate(np.repeat(range(5), counts).tolist())
    )


def two_raters(yes_yes: int, yes_no: int, no_yes: int, no_no: int) -> LabelTable:
    pairs = [("y", "y")] * yes_yes + [("y", "n")] * yes_no + [("n", "y")] * no_yes + [("n", "n")] * no_no
    return label_table((rater, f"i{i:03}", pair[rater == "b"]) for i, pair in enumerate(pairs) for rater in "ab")


@pytest.mark.parametrize("level,expected", [("nominal", 0.743), ("ordinal", 0.815), ("interval", 0.849)])
def test_alpha_of_krippendorffs_own_example(level, expected: float) -> None:  # type: ignore[no-untyped-def]
    estimate = krippendorff_alpha(KRIPPENDORFF, level, draws=200)
    assert estimate is not None
    assert round(estimate.value, 3) == expected
    assert estimate.low < estimate.value < estimate.high <= 1.0
    assert estimate.n == 11  # the last unit has one label only


def test_fleiss_kappa_of_the_textbook_example() -> None:
    estimate = fleiss_kappa(fleiss_table(), draws=200)
    assert estimate is not None
    assert round(estimate.value, 3) == 0.210
    assert estimate.n == 10


@pytest.mark.parametrize(
    "cells,expected", [((20, 5, 10, 15), 0.400), ((45, 15, 25, 15), 0.130), ((25, 35, 5, 35), 0.259)]
)
def test_cohens_kappa_of_the_textbook_examples(cells: tuple[int, int, int, int], expected: float) -> None:
    estimate = cohen_kappa(two_raters(*cells), "a", "b", draws=200)
    assert estimate is not None
    assert round(estimate.value, 3) == expected
    assert estimate.low < estimate.value < estimate.high


def test_cohens_kappa_agrees_with_sklearn_for_every_pair_and_skips_gaps() -> None:
    kappas = pairwise_cohen_kappa(KRIPPENDORFF, draws=50)
    assert len(kappas) == 6
    for (one, two), estimate in kappas.items():
        rows = KRIPPENDORFF.codes[[KRIPPENDORFF.raters.index(one), KRIPPENDORFF.raters.index(two)]]
        both = rows[:, (rows >= 0).all(axis=0)]
        assert estimate is not None
        assert estimate.value == pytest.approx(cohen_kappa_score(*both))
        assert estimate.n == both.shape[1]


def test_cohens_interval_is_close_to_the_asymptotic_one() -> None:
    from statsmodels.stats.inter_rater import cohens_kappa

    estimate = cohen_kappa(two_raters(80, 20, 40, 60), "a", "b", draws=2000)
    asymptotic = cohens_kappa(np.array([[80, 20], [40, 60]]))
    assert estimate is not None
    assert (estimate.low, estimate.high) == pytest.approx((asymptotic.kappa_low, asymptotic.kappa_upp), abs=0.02)


def test_fleiss_kappa_uses_only_complete_items() -> None:
    complete = fleiss_kappa(from_lines("1121", "1221", "1122"), draws=20)
    with_gaps = fleiss_kappa(from_lines("1121*1", "1221*2", "112212"), draws=20)
    assert complete is not None
    assert with_gaps is not None
    assert with_gaps.n == 5
    assert fleiss_kappa(from_lines("1121"), draws=20) is None


def test_coefficients_are_undefined_when_everybody_always_says_the_same() -> None:
    table = from_lines("1111", "1111")
    assert krippendorff_alpha(table, draws=20) is None
    assert fleiss_kappa(table, draws=20) is None
    assert cohen_kappa(table, "rater0", "rater1", draws=20) is None
    agreement = raw_agreement(table)
    assert agreement is not None
    assert agreement.value == 1.0


def test_coefficients_are_undefined_without_two_labels_on_an_item() -> None:
    table = from_lines("12**", "**12")
    assert krippendorff_alpha(table, draws=20) is None
    assert raw_agreement(table) is None
    assert cohen_kappa(table, "rater0", "rater1", draws=20) is None


def test_raw_agreement_counts_pairs_of_labels() -> None:
    # Three raters: all agree (3 of 3 pairs), one differs (1 of 3), two labels that agree (1 of 1).
    agreement = raw_agreement(from_lines("112*", "1121", "12**"))
    assert agreement is not None
    assert (agreement.value, agreement.n) == (pytest.approx(5 / 7), 3)


def test_ordered_words_need_their_order() -> None:
    words = [
        ("a", "1", "low"),
        ("b", "1", "mid"),
        ("a", "2", "high"),
        ("b", "2", "high"),
        ("a", "3", "low"),
        ("b", "3", "low"),
    ]
    right = krippendorff_alpha(label_table(words, categories=["low", "mid", "high"]), "ordinal", draws=20)
    wrong = krippendorff_alpha(label_table(words, categories=["low", "high", "mid"]), "ordinal", draws=20)
    assert right is not None
    assert wrong is not None
    assert right.value > wrong.value
    with pytest.raises(UsageError, match="numbers"):
        krippendorff_alpha(label_table(words), "interval")


def test_bad_labels_are_named() -> None:
    with pytest.raises(DataError, match="'ann' labelled item 'i' twice"):
        label_table([("ann", "i", 1), ("ann", "i", 2)])
    with pytest.raises(DataError, match="'maybe' is not among"):
        label_table([("ann", "i", "maybe")], categories=["yes", "no"])
    with pytest.raises(UsageError, match="no label"):
        label_table([("ann", "i", None)])
    with pytest.raises(UsageError, match="no rater 'x'"):
        cohen_kappa(from_lines("12", "12"), "x", "rater1")


def test_majority_is_open_when_labels_are_equally_frequent() -> None:
    assert majority_labels(from_lines("112", "121", "12*")) == {"item000": 1, "item001": 2, "item002": None}


def test_model_is_compared_with_the_majority_and_with_each_person() -> None:
    people = from_lines("11221", "11212", "12211")
    verdicts = {"item000": 1, "item001": 2, "item002": 2, "item003": None, "item004": 1, "other": 1}
    result = agreement_with_people(people, verdicts, draws=100)
    # Majorities 1 1 2 1 1; the model says 1 2 2 - 1.
    assert result.with_majority is not None
    assert (result.with_majority.value, result.with_majority.n) == (pytest.approx(3 / 5), 5)
    # Equal labels: 3 + 1 + 3 + 0 + 2 of 15.
    assert (result.with_each.value, result.with_each.n) == (pytest.approx(9 / 15), 5)
    assert result.among_people is not None
    assert result.among_people.value == pytest.approx((3 + 1 + 3 + 1 + 1) / 15)
    assert result.coverage.value == pytest.approx(4 / 5)
    # Four readable items, majority 1 1 2 1 against 1 2 2 1: observed 3/4, by chance (3*2 + 1*2) / 16.
    assert result.kappa_with_majority is not None
    assert result.kappa_with_majority.value == pytest.approx((0.75 - 0.5) / 0.5)


def test_items_without_a_majority_are_counted() -> None:
    result = agreement_with_people(from_lines("12", "11"), {"item000": 1, "item001": 2}, draws=20)
    assert result.no_majority == 1
    assert result.with_majority is not None
    assert result.with_majority.n == 1


def test_a_model_that_was_never_readable_agrees_with_nobody() -> None:
    result = agreement_with_people(from_lines("12", "12"), {"item000": None, "item001": None})
    assert result.with_majority is not None
    assert (result.with_majority.value, result.coverage.value) == (0.0, 0.0)
    assert result.kappa_with_majority is None
    with pytest.raises(UsageError, match="no item in common"):
        agreement_with_people(from_lines("12", "12"), {"elsewhere": 1})


def test_equivalence_by_hand_and_by_statsmodels() -> None:
    first, second = [4.0, 5.0, 3.0, 4.0, None, 5.0], [4.0, 4.0, 3.0, 5.0, 2.0, 5.0]
    result = equivalence(first, second, margin=1.0)
    # Differences 0 1 0 -1 0: mean 0, standard deviation sqrt(1/2), error 0.316; t = 1 / 0.316 = 3.162 on 4 df.
    assert (result.difference, result.n) == (0.0, 5)
    complete = [0, 1, 2, 3, 5]
    expected = ttost_paired(np.array([first[i] for i in complete]), np.array([second[i] for i in complete]), -1, 1)[0]
    assert result.p_value == pytest.approx(expected)
    assert result.p_value == pytest.approx(0.01705, abs=1e-4)
    assert result.equivalent
    # The 90 % interval is 2.132 errors to each side, and inside the margin.
    assert (result.low, result.high) == pytest.approx((-0.674, 0.674), abs=1e-3)


def test_no_significant_difference_is_not_equivalence() -> None:
    result = equivalence([1.0, 5.0, 2.0, 4.0], [5.0, 1.0, 4.0, 3.0], margin=0.5)
    assert result.low < 0 < result.high
    assert not result.equivalent


def test_equivalence_without_variation() -> None:
    assert equivalence([3.0, 4.0], [3.0, 4.0], margin=0.1).equivalent
    assert not equivalence([3.0, 4.0], [2.0, 3.0], margin=0.5).equivalent


def test_equivalence_needs_a_margin_and_pairs() -> None:
    with pytest.raises(UsageError, match="margin"):
        equivalence([1.0, 2.0], [1.0, 2.0], margin=0)
    with pytest.raises(UsageError, match="at least 2"):
        equivalence([1.0, None], [1.0, 2.0], margin=1)


def test_intervals_are_seeded() -> None:
    first, again = (krippendorff_alpha(KRIPPENDORFF, draws=100, seed=7) for _ in range(2))
    assert first == again
