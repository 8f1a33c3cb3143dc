import gzip
import json
import os
from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import cohen_kappa_score

from prbench.errors import DataError, UsageError
from prbench.metrics.agreement import (
    LabelTable,
    cohen_kappa,
    fleiss_kappa,
    krippendorff_alpha,
    label_table,
    majority_labels,
    pairwise_cohen_kappa,
    pooled_cohen_kappa,
    raw_agreement,
)
from prbench.metrics.estimate import clustered_share, items_to_tell, wilson

SHARED = Path(os.environ.get("PRBENCH_SHARED_DATA", Path(__file__).parents[3] / "shared" / "data"))
PANDALM = SHARED / "pandalm_3annotators.jsonl.gz"


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


# Fleiss, "Measuring nominal scale agreement among many raters" (1971), table 1: thirty patients, six of the raters on
# each, five diagnoses (depression, personality disorder, schizophrenia, neurosis, other).
FLEISS_DIAGNOSES = """
    00060 03003 01401 00006 03030 20400 00402 20310 20040 00006 10050 11040 03300 10050 02031
    00501 30012 51000 02040 10203 00006 01050 02013 20040 10041 05010 40002 02040 10500 00006
"""
DIAGNOSES = [[int(count) for count in patient] for patient in FLEISS_DIAGNOSES.split()]

# Hayes and Krippendorff, "Answering the call for a standard reliability measure" (2007), table 1: five observers and
# forty articles, from "sure loser" (0) to "likely winner" (3).
HAYES = from_lines(
    "112*001122 *013112110 0020100111 1223222221",
    "1130000*21 1023111210 0030210211 1122222221",
    "2030002221 0022112300 1*30*10122 02*2232*21",
    "*13****0*1 0022***31* 103021122* *122***12*",
    "2**0001*2* ***3112**0 *0**2*0**2 0*2*2222*1",
)


def fleiss_table(rows: list[list[int]]) -> LabelTable:
    return label_table(
        (f"rater{rater:02}", f"item{item:02}", label)
        for item, counts in enumerate(rows)
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


@pytest.mark.parametrize("level,expected", [("nominal", 0.477), ("ordinal", 0.760), ("interval", 0.757)])
def test_alpha_of_hayes_and_krippendorffs_example(level, expected: float) -> None:  # type: ignore[no-untyped-def]
    estimate = krippendorff_alpha(HAYES, level)
    assert estimate is not None
    assert (round(estimate.value, 3), estimate.n) == (expected, 40)


@pytest.mark.parametrize("rows,expected", [(FLEISS_COUNTS, 0.210), (DIAGNOSES, 0.430)])
def test_fleiss_kappa_of_the_published_examples(rows: list[list[int]], expected: float) -> None:
    estimate = fleiss_kappa(fleiss_table(rows))
    assert estimate is not None
    assert round(estimate.value, 3) == expected
    assert estimate.low < estimate.value < estimate.high
    assert estimate.n == len(rows)


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
    with pytest.raises(DataError, match="'ann' labeled item 'i' twice"):
        label_table([("ann", "i", 1), ("ann", "i", 2)])
    with pytest.raises(DataError, match="'maybe' is not among"):
        label_table([("ann", "i", "maybe")], categories=["yes", "no"])
    with pytest.raises(UsageError, match="no label"):
        label_table([("ann", "i", None)])
    with pytest.raises(UsageError, match="no rater 'x'"):
        cohen_kappa(from_lines("12", "12"), "x", "rater1")


def test_majority_is_open_when_labels_are_equally_frequent() -> None:
    assert majority_labels(from_lines("112", "121", "12*")) == {"item000": 1, "item001": 2, "item002": None}


def test_intervals_are_seeded() -> None:
    first, again = (krippendorff_alpha(KRIPPENDORFF, draws=100, seed=7) for _ in range(2))
    assert first == again


# Fleiss, Levin and Paik, "Statistical Methods for Rates and Proportions" (2003), section 18.1: two raters, one hundred
# subjects, psychotic, neurotic or organic. Observed 0.89, by chance 0.80 * 0.80 + 0.10 * 0.05 + 0.10 * 0.15 = 0.66.
DIAGNOSED_TWICE = [[75, 1, 4], [5, 4, 1], [0, 0, 10]]


def confused(counts: list[list[int]]) -> LabelTable:
    pairs = [(one, two) for one, row in enumerate(counts) for two, count in enumerate(row) for _ in range(count)]
    return label_table(("ab"[r], f"i{i:03}", label) for i, pair in enumerate(pairs) for r, label in enumerate(pair))


def test_cohens_kappa_of_three_diagnoses() -> None:
    estimate = cohen_kappa(confused(DIAGNOSED_TWICE), "a", "b")
    assert estimate is not None
    assert round(estimate.value, 3) == round(0.23 / 0.34, 3) == 0.676


def random_table(generator: np.random.Generator, *, gaps: bool) -> LabelTable:
    """Two to six raters, 12 to 40 items, two to five labels, which are numbers at random distances."""
    raters, items, labels = generator.integers(2, 7), generator.integers(12, 41), generator.integers(2, 6)
    truth = generator.integers(0, labels, size=items)
    codes = np.where(generator.random((raters, items)) < 0.5, truth, generator.integers(0, labels, (raters, items)))
    if gaps:
        codes[generator.random((raters, items)) < 0.3] = -1
    return LabelTable(
        raters=tuple("abcdef"[:raters]),
        items=tuple(f"i{place:02}" for place in range(items)),
        categories=tuple(np.cumsum(generator.integers(1, 5, labels)).tolist()),
        codes=codes,
    )


@pytest.mark.parametrize("level", ["nominal", "ordinal", "interval"])
def test_alpha_equals_that_of_the_package_krippendorff(level) -> None:  # type: ignore[no-untyped-def]
    import krippendorff

    generator = np.random.default_rng(3)
    for _ in range(100):
        table = random_table(generator, gaps=True)
        numbers = np.append(np.array(table.categories, dtype=float), np.nan)
        theirs = krippendorff.alpha(numbers[table.codes], level_of_measurement=level)
        alpha = krippendorff_alpha(table, level, draws=20)
        assert alpha is not None
        assert alpha.value == pytest.approx(theirs, abs=1e-12)


def test_kappas_equal_those_of_statsmodels() -> None:
    from statsmodels.stats.inter_rater import cohens_kappa
    from statsmodels.stats.inter_rater import fleiss_kappa as their_fleiss

    generator = np.random.default_rng(4)
    for _ in range(100):
        table = random_table(generator, gaps=False)
        kappa, fleiss = cohen_kappa(table, "a", "b", draws=20), fleiss_kappa(table, draws=20)
        assert kappa is not None
        assert fleiss is not None
        confusion = np.zeros((len(table.categories),) * 2)
        np.add.at(confusion, (table.codes[0], table.codes[1]), 1)
        assert kappa.value == pytest.approx(cohens_kappa(confusion, return_results=False), abs=1e-12)
        assert fleiss.value == pytest.approx(their_fleiss(table.counts()), abs=1e-12)


def test_resampling_keeps_the_items_of_a_cluster_together() -> None:
    # Twenty clusters of ten copies of one item each: no more is known than from twenty items.
    marks = "11121112111211121112", "11211112211111121112"
    single = krippendorff_alpha(from_lines(*marks))
    copies = [(f"r{r}", f"{i:02}-{c}", line[i]) for r, line in enumerate(marks) for i in range(20) for c in range(10)]
    table = label_table(copies)
    together = krippendorff_alpha(table, clusters=[item[:2] for item in table.items])
    apart = krippendorff_alpha(table)
    assert single is not None
    assert together is not None
    assert apart is not None
    assert together.high - together.low == pytest.approx(single.high - single.low, rel=0.1)
    assert apart.high - apart.low < 0.5 * (together.high - together.low)


SIDES = ("chosen", "rejected")


def chosen_or_not(*lines: str) -> LabelTable:
    words = {"c": "chosen", "r": "rejected", "t": "tie", "*": None}
    return label_table(
        ((f"p{r}", f"i{i:03}", words[mark]) for r, line in enumerate(lines) for i, mark in enumerate(line)),
        categories=["chosen", "rejected", "tie"],
    )


def test_chance_does_not_know_which_response_is_the_chosen_one() -> None:
    # 96 times both say chosen, 4 times they differ. As words the labels are so uneven that chance alone agrees on
    # 98 * 98 + 2 * 2 of 10,000; without the names of the responses it agrees on one half.
    table = chosen_or_not("c" * 98 + "rr", "c" * 96 + "rrcc")
    kappa = cohen_kappa(table, "p0", "p1")
    blind = cohen_kappa(table, "p0", "p1", exchange=SIDES)
    assert kappa is not None
    assert blind is not None
    assert kappa.value == pytest.approx((0.96 - 0.9608) / (1 - 0.9608))
    assert blind.value == pytest.approx((0.96 - 0.5) / 0.5)
    alpha = krippendorff_alpha(table, exchange=SIDES)
    assert alpha is not None
    # n = 400 labels after exchange, 200 of each: expected disagreement 200 * 200 * 2 / (400 * 399).
    assert alpha.value == pytest.approx(1 - 0.04 / (200 * 200 * 2 / (400 * 399)))
    fleiss = fleiss_kappa(table, exchange=SIDES)
    assert fleiss is not None
    assert fleiss.value == pytest.approx(0.92)


def test_exchange_is_what_renaming_the_responses_by_a_coin_gives() -> None:
    generator = np.random.default_rng(11)
    table = chosen_or_not(*("".join(generator.choice(list("cccccrt"), size=3000)) for _ in range(2)))
    codes = table.codes.copy()
    for place in np.flatnonzero(generator.integers(0, 2, size=3000)):
        codes[:, place] = np.array([1, 0, 2])[codes[:, place]]
    renamed = LabelTable(raters=table.raters, items=table.items, categories=table.categories, codes=codes)
    expected, blind = krippendorff_alpha(renamed), krippendorff_alpha(table, exchange=SIDES)
    assert expected is not None
    assert blind is not None
    assert blind.value == pytest.approx(expected.value, abs=0.01)


def test_complete_agreement_has_a_lower_end_below_one() -> None:
    # Wilson leaves 16.1 % of 20 items for disagreement; chance would disagree on about one half.
    table = from_lines("1212" * 5, "1212" * 5)
    kappa, alpha = cohen_kappa(table, "rater0", "rater1"), krippendorff_alpha(table)
    assert kappa is not None
    assert alpha is not None
    assert kappa.low == pytest.approx(1 - (1 - wilson(20, 20)[0]) / 0.5)
    assert (kappa.value, kappa.high) == (1.0, 1.0)
    assert 0.6 < kappa.low < alpha.low < 0.7
    pooled = pooled_cohen_kappa(table)
    assert pooled is not None
    assert (pooled.value, pooled.low) == (1.0, pytest.approx(kappa.low))


def test_one_item_tells_nothing_about_others() -> None:
    table = from_lines("1*", "2*", "*2")
    assert krippendorff_alpha(table) is None
    assert fleiss_kappa(table) is None
    assert cohen_kappa(table, "rater0", "rater1") is None


def test_fleiss_kappa_does_not_ask_for_the_same_raters() -> None:
    # Two of four raters on each item: 11 12 22 12 11 22. They agree on 4 of 6, and half of the labels are 1.
    estimate = fleiss_kappa(from_lines("12****", "1***12", "*122**", "**2112"), draws=100)
    assert estimate is not None
    assert (estimate.value, estimate.n) == (pytest.approx((4 / 6 - 0.5) / 0.5), 6)


def test_the_pooled_kappa_of_two_raters_is_cohens() -> None:
    table = from_lines("11221122*1" * 6, "1122121112" * 6)
    for exchange in (None, (1, 2)):
        pooled = pooled_cohen_kappa(table, exchange=exchange, draws=4_000)
        cohens = cohen_kappa(table, "rater0", "rater1", exchange=exchange, draws=4_000)
        assert pooled is not None
        assert cohens is not None
        assert (pooled.value, pooled.n) == (pytest.approx(cohens.value), cohens.n)
        assert (pooled.low, pooled.high) == pytest.approx((cohens.low, cohens.high), abs=0.04)  # other draws


def test_the_pooled_kappa_by_hand() -> None:
    # Pairs 0-1, 0-2, 1-2 have 4, 2 and 2 items in common and differ on 1, 1 and 0 of them: 2 of 8.
    table = from_lines("1122", "1222", "12**")
    # Shares of 1: 1/2, 1/4, 1/2. By chance 0-1 differ on 1/2 of the items, 0-2 on 1/2, and 1-2 on 1/2.
    pooled = pooled_cohen_kappa(table, draws=100)
    assert pooled is not None
    assert (pooled.value, pooled.n) == (pytest.approx(1 - (2 / 8) / (1 / 2)), 4)
    assert pooled_cohen_kappa(from_lines("1111")) is None
    assert pooled_cohen_kappa(from_lines("1111", "1111")) is None
    assert pooled_cohen_kappa(from_lines("1*", "2*", "*2")) is None


@pytest.mark.slow
@pytest.mark.parametrize("people,items,per_item", [(3, 100, 2), (10, 200, 2), (20, 200, 3)])
def test_the_pooled_kappa_is_covered_however_few_items_two_people_share(
    people: int, items: int, per_item: int
) -> None:
    # Right 80 %, wrong 10 %, tie 10 %. Two agree on 0.66; by chance, not knowing the sides, on 2 * 0.45^2 + 0.1^2.
    by_chance = 2 * 0.45**2 + 0.1**2
    truth = (0.66 - by_chance) / (1 - by_chance)
    words = ("chosen", "rejected", "tie")
    generator, held = np.random.default_rng(3), 0
    for _ in range(100):
        who = np.argsort(generator.random((items, people)), axis=1)[:, :per_item]
        said = generator.choice(3, size=(items, per_item), p=[0.8, 0.1, 0.1])
        rows = [(f"p{who[i, turn]}", f"i{i}", words[said[i, turn]]) for i in range(items) for turn in range(per_item)]
        pooled = pooled_cohen_kappa(label_table(rows, categories=words), exchange=SIDES, draws=400)
        assert pooled is not None
        held += pooled.low <= truth <= pooled.high
    assert held >= 88  # 95 on average; fewer than 88 have a chance of 0.2 %. The mean of kappas was held 88, 82 and 73


def test_labels_to_exchange_must_be_among_the_categories() -> None:
    with pytest.raises(UsageError, match="no label 'chosen'"):
        krippendorff_alpha(from_lines("12", "12"), exchange=SIDES)


def test_a_share_of_single_answers_has_wilsons_interval() -> None:
    share = clustered_share([1.0] * 30 + [0.0] * 10, [str(i) for i in range(40)])
    # The clustered variance has 39 in the denominator, where the binomial one has 40.
    assert share.effective == pytest.approx(39)
    assert (share.low, share.high) == pytest.approx(wilson(0.75 * 39, 39))


def test_answers_that_repeat_each_other_count_once() -> None:
    once = clustered_share([1.0] * 30 + [0.0] * 10, [str(i) for i in range(40)])
    thrice = clustered_share(([1.0] * 30 + [0.0] * 10) * 3, [str(i) for i in range(40)] * 3)
    assert (thrice.answers, thrice.estimate.n) == (120, 40)
    assert (thrice.low, thrice.high) == pytest.approx((once.low, once.high))
    assert (thrice.estimate.low, thrice.estimate.high) == pytest.approx((once.estimate.low, once.estimate.high))


def test_unanimous_answers_count_by_items() -> None:
    share = clustered_share([1.0] * 30, [str(i % 10) for i in range(30)])
    assert (share.low, share.high) == (pytest.approx(wilson(10, 10)[0]), 1.0)
    assert share.estimate.low == pytest.approx(share.low)


def test_answers_that_are_all_ties_count_by_items_as_well() -> None:
    share = clustered_share([0.5] * 30, [str(i % 10) for i in range(30)])
    assert (share.effective, share.answers) == (10, 30)
    assert (share.low, share.high) == pytest.approx(wilson(5, 10))


def test_items_of_uneven_difficulty_are_covered_by_the_clustered_interval_only() -> None:
    # Three answers each to 60 items whose chance of a right answer varies from item to item (beta, mean 0.8). Of 200
    # seeded panels the clustered interval should hold 0.8 in 190, give or take three times 3.1; that of 180
    # independent answers is too narrow.
    generator = np.random.default_rng(12)
    items = [str(i) for i in range(60)] * 3
    clustered = naive = 0
    for _ in range(200):
        answers = (generator.random((3, 60)) < generator.beta(1.6, 0.4, size=60)).ravel()
        share = clustered_share(answers.astype(float).tolist(), items)
        clustered += share.low <= 0.8 <= share.high
        low, high = wilson(answers.sum(), 180)
        naive += low <= 0.8 <= high
    assert 181 <= clustered <= 199
    assert naive < 180


def test_the_items_needed_follow_the_textbook_formula() -> None:
    share = clustered_share([1.0] * 32 + [0.0] * 8, [str(i) for i in range(40)])
    # Share 0.80 against 0.75: (1.960 * sqrt(0.1875) + 0.8416 * sqrt(0.16))^2 / 0.0025 = 563, for 39 effective of 40.
    assert items_to_tell(share, 0.75) == pytest.approx(563.3 * 40 / 39, abs=2)
    assert items_to_tell(share, 0.8) is None


def test_a_panel_of_known_reliability_is_found_within_its_interval() -> None:
    # Three people who each err with chance e about a fair coin agree with chance 1 - 2 e (1 - e); chance agrees on
    # one half, so alpha is 1 - 2 e (1 - e) / 0.5 = (1 - 2 e)^2. Of 200 seeded panels, 95 % of the intervals should
    # hold it: 190 on average, with a standard deviation of 3.1. The bounds are three of those to either side.
    generator = np.random.default_rng(5)
    expected, held = (1 - 2 * 0.15) ** 2, 0
    for _ in range(200):
        truth = generator.integers(0, 2, size=100)
        codes = np.where(generator.random((3, 100)) < 0.15, 1 - truth, truth)
        table = LabelTable(
            raters=("a", "b", "c"), items=tuple(f"{i:03}" for i in range(100)), categories=("x", "y"), codes=codes
        )
        alpha = krippendorff_alpha(table, draws=1000, seed=1)
        assert alpha is not None
        held += alpha.low <= expected <= alpha.high
    assert 181 <= held <= 199


@pytest.mark.skipif(not PANDALM.is_file(), reason="the shared annotations are not here")
def test_the_kappas_that_pandalm_published_for_its_test_set() -> None:
    # WeOpenML/PandaLM, README: 0.85 for annotators 1 and 2, 0.88 for 1 and 3, 0.86 for 2 and 3.
    with gzip.open(PANDALM, "rt", encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    table = label_table((name, row["id"], label) for row in rows for name, label in row["labels"].items())
    kappas = [kappa for kappa in pairwise_cohen_kappa(table, draws=100).values() if kappa is not None]
    assert [round(kappa.value, 2) for kappa in kappas] == [0.85, 0.88, 0.86]
