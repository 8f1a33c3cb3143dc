import numpy as np
import pytest
from scipy.stats import binom

from prbench.errors import UsageError
from prbench.metrics.compare import compare, holm, mcnemar_p, rank_board, required_pairs, resolution
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


def test_a_model_against_itself_shows_no_difference() -> None:
    rows = make_rows([C, R, T, U] * 10)
    test = compare(rows, rows)
    assert (test.difference.value, test.difference.low, test.difference.high) == (0.0, 0.0, 0.0)
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
    assert test.clustered_p == pytest.approx(ttest_rel(first.astype(float), second.astype(float)).pvalue, rel=0.15)


def test_few_users_widen_the_standard_error_as_the_t_test_does() -> None:
    from scipy.stats import ttest_rel

    first, second = [1, 1, 1, 0, 1], [0, 0, 1, 0, 1]
    test = compare(make_rows([C if v else R for v in first]), make_rows([C if v else R for v in second]))
    assert test.clustered_p == pytest.approx(ttest_rel(first, second).pvalue, rel=0.03)


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


def test_models_that_cannot_be_told_apart_share_a_group() -> None:
    good = [C] * 160 + [R] * 40
    nearly = [C] * 158 + [R] * 42
    bad = [R] * 100 + [C] * 100
    board = rank_board({"good": make_rows(good), "nearly": make_rows(nearly), "bad": make_rows(bad)})
    assert [(line.name, line.group) for line in board.standings] == [("good", 1), ("nearly", 1), ("bad", 2)]
    assert board.standings[0].accuracy.value == 0.8
    assert (board.n, len(board.tests), len(board.holm_p)) == (200, 3, 3)
    assert all(adjusted >= test.p_value for adjusted, test in zip(board.holm_p, board.tests, strict=True))


def test_a_later_group_is_measured_against_its_own_best_model() -> None:
    shares = {"best": 190, "middle": 140, "near middle": 138, "last": 90}
    board = rank_board({name: make_rows([C] * right + [R] * (200 - right)) for name, right in shares.items()})
    assert [(line.name, line.group) for line in board.standings] == [
        ("best", 1),
        ("middle", 2),
        ("near middle", 2),
        ("last", 3),
    ]


def test_equal_models_are_ordered_by_name() -> None:
    rows = make_rows([C, R, C])
    board = rank_board({"b": rows, "a": rows})
    assert [(line.name, line.group) for line in board.standings] == [("a", 1), ("b", 1)]


def test_a_board_of_one_model_states_its_resolution_by_assumption() -> None:
    board = rank_board({"only": make_rows([C] * 2000 + [R] * 830)})
    assert [line.group for line in board.standings] == [1]
    assert board.discordance == 0.2
    assert board.resolution == resolution(2830, 0.2)


def test_an_empty_board_is_refused() -> None:
    with pytest.raises(UsageError, match="no run"):
        rank_board({})


@pytest.mark.parametrize("discordance,points", [(0.1, 1.7), (0.2, 2.4), (0.3, 2.9)])
def test_resolution_of_2830_pairs(discordance: float, points: float) -> None:
    smallest = resolution(2830, discordance)
    assert smallest is not None
    assert round(100 * smallest, 1) == points


def test_resolution_and_required_pairs_are_inverse() -> None:
    for n in (100, 767, 2830):
        smallest = resolution(n, 0.25)
        assert smallest is not None
        assert required_pairs(smallest * (1 + 1e-9), 0.25) == n


def test_resolution_has_the_stated_power() -> None:
    n, discordance = 600, 0.2
    smallest = resolution(n, discordance)
    assert smallest is not None
    power = 0.0
    for discordant in range(60, 190):
        wins = np.arange(discordant + 1)
        # The normal approximation of McNemar's test, which the formula is made for.
        shown = np.abs(2 * wins - discordant) > 1.96 * np.sqrt(discordant)
        chance = binom.pmf(wins, discordant, 0.5 + smallest / (2 * discordance))
        power += binom.pmf(discordant, n, discordance) * chance[shown].sum()
    assert power == pytest.approx(0.8, abs=0.015)


def test_too_few_pairs_show_nothing() -> None:
    assert resolution(5, 0.1) is None
    assert resolution(0) is None
    assert resolution(1000, 0.0) is None


def test_observed_resolution_agrees_with_the_formula_for_independent_items() -> None:
    generator = np.random.default_rng(0)
    flips = generator.random(1000) < 0.2
    base = generator.random(1000) < 0.5
    test = compare(
        make_rows([C if b else R for b in base]),
        make_rows([C if b != f else R for b, f in zip(base, flips, strict=True)]),
    )
    formula = resolution(1000, test.discordance)
    assert formula is not None
    assert test.resolution == pytest.approx(formula, rel=0.05)


@pytest.mark.parametrize("difference,discordance", [(0.3, 0.2), (0.0, 0.2), (0.1, 1.5)])
def test_impossible_plans_are_refused(difference: float, discordance: float) -> None:
    with pytest.raises(UsageError):
        required_pairs(difference, discordance)
