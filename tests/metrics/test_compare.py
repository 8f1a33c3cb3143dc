import numpy as np
import pytest

from prbench.errors import UsageError
from prbench.metrics.compare import (
    compare,
    holm,
    letters_of,
    mcnemar_p,
    planned_resolution,
    rank_board,
    smallest_difference,
)
from prbench.metrics.estimate import Spread, independent_rows
from prbench.schema import Probe, Row, Verdict

C, R, T, U = Verdict.CHOSEN, Verdict.REJECTED, Verdict.TIE, Verdict.UNREADABLE


def make_rows(verdicts: list[Verdict], users: list[str] | None = None, probe: Probe = Probe.OWN) -> list[Row]:
    users = users or [f"u{i:04}" for i in range(len(verdicts))]
    return [
        Row(id=f"{i:04}", probe=probe, user_id=user, category="", verdict=verdict)
        for i, (verdict, user) in enumerate(zip(verdicts, users, strict=True))
    ]


def test_exact_mcnemar_by_hand() -> None:
    # Eight against two: 2 (1 + 10 + 45) / 1024.
    assert mcnemar_p(8, 2) == pytest.approx(112 / 1024)
    assert mcnemar_p(0, 0) == 1.0


def test_exact_mcnemar_equals_that_of_statsmodels() -> None:
    from statsmodels.stats.contingency_tables import mcnemar

    counts = [(1, 0), (0, 1), (5, 5), (30, 12), (3, 40), *np.random.default_rng(1).integers(0, 400, (100, 2)).tolist()]
    for better, worse in counts:
        theirs = mcnemar([[0, better], [worse, 0]], exact=True).pvalue
        assert mcnemar_p(better, worse) == pytest.approx(theirs, abs=1e-12)


def test_comparison_counts_the_items_that_speak_for_each_model() -> None:
    test = compare(make_rows([C, C, C, R, U, C]), make_rows([C, R, R, C, R, C]))
    assert (test.first_better, test.second_better, test.difference.n) == (2, 1, 6)
    assert test.difference.value == pytest.approx(1 / 6)
    assert test.discordance == pytest.approx(0.5)
    assert test.mcnemar_p == 1.0


def test_a_tie_loses_to_right_and_beats_wrong() -> None:
    test = compare(make_rows([T, T, T]), make_rows([C, R, T]))
    assert (test.first_better, test.second_better) == (1, 1)
    assert test.difference.value == 0.0


def test_only_common_items_are_compared() -> None:
    test = compare(make_rows([C, C, C, C]), make_rows([R, C]))
    assert test.difference.n == 2


def test_runs_without_a_common_item_are_refused() -> None:
    with pytest.raises(UsageError, match="no item in common"):
        compare(make_rows([C]), make_rows([C], probe=Probe.NONE))
    with pytest.raises(UsageError, match="two rows"):
        compare(make_rows([C]) * 2, make_rows([C]))


def test_two_models_with_the_same_verdicts_show_no_difference_but_may_differ_on_other_users() -> None:
    rows = make_rows([C, R, T, U] * 10)
    test = compare(rows, rows)
    # None of 40 users differs: Wilson's upper end for 0 of 40 is z^2 / (40 + z^2).
    reach = 1.959964**2 / (40 + 1.959964**2)
    assert (test.difference.value, test.difference.low, test.difference.high) == pytest.approx(
        (0, -np.tanh(reach), np.tanh(reach))  # on Fisher's z
    )
    assert test.p_value == 1.0


def test_many_pairs_of_few_users_are_not_many_observations() -> None:
    # Two of three users prefer the first model throughout: sixty items, but only three people.
    users = [name for name in "abc" for _ in range(20)]
    test = compare(make_rows([C] * 40 + [R] * 20, users), make_rows([R] * 40 + [C] * 20, users))
    assert test.mcnemar_p < 0.02
    assert test.clustered_p is not None
    assert test.clustered_p > 0.5
    assert test.p_value == test.clustered_p


def test_clustered_p_agrees_with_the_paired_t_test_for_independent_items() -> None:
    from scipy.stats import ttest_rel

    generator = np.random.default_rng(3)
    first, second = (generator.random(400) < share for share in (0.75, 0.65))
    test = compare(make_rows([C if hit else R for hit in first]), make_rows([C if hit else R for hit in second]))
    assert test.clustered_p == pytest.approx(ttest_rel(first.astype(float), second.astype(float)).pvalue, rel=0.05)


def test_few_users_get_the_test_by_signs() -> None:
    # Two of five users differ, both for the first model: of four signs two are as far, half of which count.
    test = compare(
        make_rows([C if v else R for v in [1, 1, 1, 0, 1]]), make_rows([C if v else R for v in [0, 0, 1, 0, 1]])
    )
    assert test.clustered_p == pytest.approx(0.25)
    assert test.difference.low <= 0
    # Eight of eight: 1 of 2^8.
    test = compare(make_rows([C] * 8), make_rows([R] * 7 + [T]))
    assert test.clustered_p == pytest.approx(1 / 256)
    assert test.difference.low > 0


def test_one_user_leaves_mcnemar_alone() -> None:
    test = compare(make_rows([C, C, R], ["a"] * 3), make_rows([R, C, R], ["a"] * 3))
    assert test.clustered_p is None
    assert test.resolution is None
    assert test.p_value == test.mcnemar_p


def test_holm_by_hand() -> None:
    # Sorted 0.01, 0.03, 0.04 times 3, 2, 1, then made monotone.
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([]) == []


def test_holm_equals_that_of_statsmodels() -> None:
    from statsmodels.stats.multitest import multipletests

    generator = np.random.default_rng(2)
    for n in range(1, 60):
        p_values = (generator.random(n) ** 4).round(3).tolist()  # rounded: with ties and zeros
        assert holm(p_values) == pytest.approx(multipletests(p_values, method="holm")[1], abs=1e-12)


def test_models_that_cannot_be_told_apart_share_a_letter() -> None:
    good = [C] * 160 + [R] * 40
    nearly = [C] * 158 + [R] * 42
    bad = [R] * 100 + [C] * 100
    board = rank_board({"good": make_rows(good), "nearly": make_rows(nearly), "bad": make_rows(bad)})
    assert [(line.name, line.letters) for line in board.standings] == [("good", "a"), ("nearly", "a"), ("bad", "b")]
    assert board.standings[0].accuracy.value == 0.8
    assert (board.n, len(board.tests), len(board.holm_p)) == (200, 3, 3)
    assert all(adjusted >= test.p_value for adjusted, test in zip(board.holm_p, board.tests, strict=True))


def test_a_model_between_two_others_has_the_letters_of_both() -> None:
    # 80, 75 and 70 %: the neighbors cannot be told apart, the first and the last can.
    shares = {"best": 160, "middle": 150, "last": 140}
    board = rank_board({name: make_rows([C] * right + [R] * (200 - right)) for name, right in shares.items()})
    assert [test.p_value < 0.05 / 3 for test in board.tests] == [True, True, True]
    twins = {name: make_rows(verdicts) for name, verdicts in _overlapping().items()}
    board = rank_board(twins)
    assert [(line.name, line.letters) for line in board.standings] == [("best", "a"), ("middle", "ab"), ("last", "b")]


def _overlapping() -> dict[str, list[Verdict]]:
    """Three models on 200 items: best over last on 30 more, the middle one 15 from either, with much disagreement."""
    generator = np.random.default_rng(5)
    best = [C] * 150 + [R] * 50
    last = [C] * 110 + [R] * 90
    middle = [C] * 130 + [R] * 70
    return {
        "best": best,
        "middle": [middle[place] for place in generator.permutation(200)],
        "last": [last[place] for place in generator.permutation(200)],
    }


def test_letters_by_hand() -> None:
    # Of four models only 0 and 2, 0 and 3, 1 and 3 can be told apart.
    assert letters_of(4, [(0, 2), (0, 3), (1, 3)]) == ["a", "ab", "bc", "c"]
    assert letters_of(3, []) == ["a", "a", "a"]
    assert letters_of(3, [(0, 1), (0, 2), (1, 2)]) == ["a", "b", "c"]
    # The audit's board of three: neighbors of the best, but not of each other.
    assert letters_of(3, [(1, 2)]) == ["ab", "a", "b"]


def test_models_share_a_letter_exactly_where_they_cannot_be_told_apart() -> None:
    generator = np.random.default_rng(1)
    for _ in range(200):
        count = int(generator.integers(2, 9))
        pairs = [(one, two) for one in range(count) for two in range(one + 1, count)]
        apart = {pair for pair in pairs if generator.random() < 0.4}
        letters = letters_of(count, apart)
        assert {pair for pair in pairs if not set(letters[pair[0]]) & set(letters[pair[1]])} == apart


def test_equal_models_are_ordered_by_name() -> None:
    rows = make_rows([C, R, C])
    board = rank_board({"b": rows, "a": rows})
    assert [(line.name, line.letters) for line in board.standings] == [("a", "a"), ("b", "a")]


def test_a_board_of_one_model_states_its_resolution_by_assumption() -> None:
    board = rank_board({"only": make_rows([C] * 2000 + [R] * 830)})
    assert [line.letters for line in board.standings] == ["a"]
    assert board.resolution == planned_resolution([1] * 2830)
    assert board.resolution.tests == 0
    assert "assuming that two models differ on 20 % of the pairs" in board.resolution.sentence


def test_an_empty_board_is_refused() -> None:
    with pytest.raises(UsageError, match="no run"):
        rank_board({})


def test_resolution_is_that_of_the_clustered_test() -> None:
    from scipy.stats import t

    generator = np.random.default_rng(0)
    users = [f"u{i // 5:03}" for i in range(1000)]
    flips = np.repeat(generator.random(200) < 0.2, 5)  # a user's five pairs flip together
    base = generator.random(1000) < 0.5
    first, second = base.astype(float), (base != flips).astype(float)
    test = compare(make_rows([C if b else R for b in first], users), make_rows([C if b else R for b in second], users))
    sums = (first - second).reshape(200, 5).sum(axis=1)
    error = sums.std(ddof=1) / np.sqrt(200) / 5  # of the mean over users of equal size, which the jackknife also gives
    assert test.resolution == pytest.approx((t.ppf(0.975, 199) + t.ppf(0.8, 199)) * error)


def test_a_board_of_few_users_promises_no_difference_above_one() -> None:
    users = ["ana", "ben"]
    found = rank_board({"x": make_rows([C, R], users), "y": make_rows([R, C], users)}).resolution
    assert found.difference is None  # the signs of two users are all alike in half of the cases
    assert "2 pairs of these users cannot show any difference" in found.sentence


def test_independent_rows_by_hand() -> None:
    assert independent_rows([1] * 50, 0.05) == 50
    assert independent_rows([4] * 400, 0.05) == pytest.approx(1600 / 1.15)  # m = 4, 1 + 3 * 0.05
    assert independent_rows([3, 1], 0.05) == pytest.approx(4 / 1.075)  # m = (9 + 1) / 4 = 2.5


def test_planned_resolution_by_hand() -> None:
    # 2,830 users with one pair each, differing on 20 %: 2.80 sqrt(0.2 / 2830) = 2.36 points.
    found = planned_resolution([1] * 2830)
    assert found.difference == pytest.approx(0.02356, abs=2e-5)
    assert planned_resolution([40]).difference is None
    assert planned_resolution([1] * 10).difference is None  # 3.1 sqrt(0.2 / 10) = 0.44 of at most 0.2
    assert "40 pairs of these users cannot show any difference" in planned_resolution([40]).sentence


def test_smallest_difference_has_the_stated_power() -> None:
    from scipy.stats import nct, t

    error, freedom = 0.02, 29.0
    smallest = smallest_difference(Spread(0.0, error, freedom, 30.0))
    assert smallest is not None
    power = nct.sf(t.ppf(0.975, freedom), freedom, smallest / error)
    assert power == pytest.approx(0.8, abs=0.005)


@pytest.mark.parametrize("users,finds", [(2, False), (4, False), (5, True), (12, True)])
def test_a_resolution_is_only_given_where_the_test_can_find_anything(users: int, finds: bool) -> None:
    # Every user is better served by the first model. By chance the signs of n users are all alike with 2 ** (1 - n),
    # of which mid-p counts half.
    names = [f"u{number}" for number in range(users) for _ in range(20)]
    better = make_rows(([C] * 19 + [R]) * users, names)
    verdicts = [[C] * (8 + number % 3) + [R] * (12 - number % 3) for number in range(users)]
    worse = make_rows([each for several in verdicts for each in several], names)
    board = rank_board({"better": better, "worse": worse})
    (test,) = board.tests
    assert (test.p_value < 0.05) is finds
    assert (test.resolution is not None) is finds
    assert ("cannot show any difference" in board.resolution.sentence) is not finds
