"""Every figure of a pair: values, nulls, leave-one-out, resampling, regret, partial correlation, differences."""

import math

import numpy as np
import pytest
from scipy.stats import spearmanr

from prbench.insight.meta import Choices, compare_boards, predict
from prbench.insight.meta.board import PAPER_BENCHMARK, PAPER_DOWNSTREAM, BoardPair
from prbench.insight.meta.intervals import compatible_rho
from prbench.insight.meta.predictors import compare_spearman, spearman_interval
from prbench.insight.meta.resolution import corrected_for, corrected_spearman, noise_variance, reliability
from prbench.insight.meta.statistics import measure, partial_correlations, regret
from prbench.insight.meta.verdict import MetaOutcome

FAST = Choices(draws=200, permutations=500)


@pytest.mark.parametrize("number,expected", [(0, (0.9180, 0.2571, 0.66)), (1, (0.9265, 0.3714, 0.50))])
def test_the_case_of_six_models(number: int, expected: tuple[float, float, float]) -> None:
    found = predict(PAPER_BENCHMARK, PAPER_DOWNSTREAM[number], Choices())
    ndcg, spearman = found.figures["ndcg"], found.figures["spearman"]
    assert ndcg.value is not None
    assert spearman.value is not None
    assert spearman.p is not None
    assert (round(ndcg.value, 4), round(spearman.value, 4), round(spearman.p, 2)) == expected
    assert spearman.exact
    assert found.verdict.outcome is MetaOutcome.TOO_FEW


def test_leave_one_out_by_hand(pair) -> None:
    # Without the last model the order is the same; without the first, 1 2 3 against 2 3 1: rho -0.5.
    found = measure(pair([4, 3, 2, 1], [5, 3, 2, 4]), FAST)["spearman"].leave_one_out
    assert found is not None
    assert (found.high, found.without_high) == (pytest.approx(1.0), "d")
    assert (found.low, found.without_low) == (pytest.approx(-0.5), "a")


def test_linear_gain_and_persistence_are_choices(pair) -> None:
    both = pair([6, 5, 4, 3, 2, 1], [6, 2, 4, 3, 1, 5])
    plain, other = measure(both, FAST), measure(both, Choices(gain="linear", rbo_p=0.5, draws=200))
    assert plain["ndcg"].value != other["ndcg"].value
    assert plain["rbo"].value != other["rbo"].value


def test_a_flat_column_has_no_figures_and_two_models_no_interval(pair) -> None:
    assert all(figure.value is None for figure in measure(pair([1, 1, 1, 1], [1, 2, 3, 4]), FAST).values())
    two = measure(pair([1, 2], [1, 2]), FAST)["spearman"]
    assert (two.value, two.low, two.p, two.leave_one_out) == (pytest.approx(1.0), None, 1.0, None)


def test_items_are_resampled_where_there_are_rows(item_board, pair) -> None:
    worth = [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
    boards = BoardPair(benchmark=item_board(worth), downstream=item_board(worth[::-1], seed=1))
    found = measure(boards, FAST)["spearman"]
    assert found.bootstrap_items is not None
    assert found.bootstrap_both is not None
    assert found.bootstrap_items[1] < -0.5  # the same models in reverse: other items do not turn them round
    plain = measure(pair([1, 2, 3, 4], [1, 2, 4, 3]), FAST)["spearman"]
    assert plain.bootstrap_models is not None
    assert plain.bootstrap_items is None


def test_regret_by_hand(scores) -> None:
    down = scores(5, 1, 3, 9)
    first = regret(scores(4, 3, 2, 1), down, 1)
    assert (first.value, first.best, first.picked) == (4.0, "d", ("a",))
    assert first.chance == pytest.approx(9 - 18 / 4)
    # Of three tied for two places: {5,1}, {5,3}, {1,3}: the best is 5, 5 or 3.
    tied = regret(scores(2, 2, 2, 1), down, 2)
    assert tied.value == pytest.approx(9 - 13 / 3)
    assert tied.picked == ("a", "b", "c")
    assert regret(scores(1, 2, 3, 4), down, 9).value == 0


def test_partial_correlation_of_what_size_explains(pair) -> None:
    size = np.arange(12.0)
    generator = np.random.default_rng(0)
    both = pair(size + generator.normal(size=12), size + generator.normal(size=12))
    sizes = {model: 10.0**place for place, model in enumerate(both.models)}
    known = BoardPair(benchmark=both.benchmark.renamed({}), downstream=both.downstream)
    object.__setattr__(known.benchmark, "sizes", sizes)
    (found,) = partial_correlations(known)
    plain = spearmanr(both.benchmark.scores, both.downstream.scores).statistic
    assert found.value is not None
    assert found.value < plain
    # The closed form for one covariate.
    x, y = (spearmanr(board.scores, size).statistic for board in (both.benchmark, both.downstream))
    assert found.value == pytest.approx((plain - x * y) / np.sqrt((1 - x**2) * (1 - y**2)))


def test_partial_correlation_says_why_there_is_none(scores) -> None:
    one, two = scores(1, 2, 3, 4, 5), scores(2, 1, 3, 5, 4)
    object.__setattr__(one, "families", {model: model for model in one.models})
    (found,) = partial_correlations(BoardPair(benchmark=one, downstream=two))
    assert (found.value, found.why) == (None, "5 models with a known family are too few.")


def test_equal_benchmarks_do_not_differ() -> None:
    x, y = np.arange(8.0), np.array([0, 2, 1, 3, 5, 4, 7, 6.0])
    same = compare_spearman(x, x * 10, y)
    assert same is not None
    assert (same.value, same.p) == (0.0, 1.0)
    assert same.low == pytest.approx(same.high, abs=1e-6)


def test_few_models_do_not_make_two_benchmarks_share_more_than_is_sure() -> None:
    x, y, z = np.arange(8.0), np.array([0, 2, 1, 3, 5, 4, 7, 6.0]), np.array([3, 1, 0, 2, 6, 4, 7, 5.0])
    found = compare_spearman(x, z, y)
    assert found is not None
    one, two = (spearman_interval(value, column, y) for value, column in ((found.first, x), (found.second, z)))
    apart = math.hypot(found.first - one[0], two[1] - found.second)  # as if they shared nothing
    by_the_figures = math.sqrt(
        apart**2 - 2 * 0.3599 * (found.first - one[0]) * (two[1] - found.second)
    )  # Pearson and Filon with 0.9286, 0.8333 and 0.7143 give 0.3599
    assert by_the_figures < found.value - found.low <= apart


def test_columns_of_two_values_may_agree_by_chance() -> None:
    x, y = np.array([0, 0, 1, 1, 1, 0.0]), np.array([0, 2, 1, 3, 5, 4.0])
    found = compare_spearman(x, 5 + 4 * x, y)
    assert found is not None
    assert found.low < 0 < found.high


def test_benchmarks_that_rank_six_models_alike_may_differ_on_others() -> None:
    x, y = np.arange(6.0), np.array([0, 2, 1, 3, 5, 4.0])
    found = compare_spearman(x, x**2, y)
    assert found is not None
    assert found.value == 0.0
    assert found.low < -0.2
    assert found.high > 0.2


def test_a_difference_by_hand() -> None:
    d = np.arange(6.0)
    found = compare_spearman(d, d[::-1].copy(), d)
    assert found is not None
    assert (found.first, found.second, found.value) == (pytest.approx(1), pytest.approx(-1), pytest.approx(2))
    assert found.low > 0
    assert compare_spearman(d[:3], d[:3], d[:3]) is None
    assert compare_spearman(np.ones(6), d, d) is None


def test_many_models_swap_with_a_seed() -> None:
    generator = np.random.default_rng(1)
    d = generator.normal(size=30)
    good, bad = d + 0.3 * generator.normal(size=30), generator.normal(size=30)
    first, again = (compare_spearman(good, bad, d, seed=3, permutations=999) for _ in range(2))
    assert first == again
    assert first is not None
    assert first.low > 0
    assert first.p < 0.05


def test_noise_variance_by_hand(item_board) -> None:
    board = item_board([0.0, 1.0, 2.0, 3.0], users=200, each=2, noise=0.5)
    # 400 items with variance 0.25 each: 0.25 / 400 per model; hardness moves all models alike.
    assert board.items is not None
    assert noise_variance(board.items) == pytest.approx(0.25 / 400, rel=0.25)
    assert reliability(board) == pytest.approx(1.0, abs=0.01)


def test_the_correction_for_noise(item_board, pair) -> None:
    assert corrected_spearman(pair([1, 2, 3, 4], [1, 2, 4, 3])) is None
    limits = compatible_rho(0.5, 12)
    assert corrected_for(0.5, limits, 1.0)[0] == pytest.approx(0.5)
    assert corrected_for(0.5, limits, 0.5)[0] > 0.65
    assert corrected_for(0.5, limits, 0.0)[1:] == (-1.0, 1.0)
    worth = list(np.random.default_rng(0).normal(size=10))
    noisy = BoardPair(benchmark=item_board(worth, noise=4.0), downstream=item_board(worth, noise=0.1, seed=5))
    found = corrected_spearman(noisy)
    assert found is not None
    assert found.reliability_benchmark < 0.98 < found.reliability_downstream


def test_every_benchmark_meets_every_downstream(scores) -> None:
    boards = [scores(*np.random.default_rng(seed).permutation(7), name=f"b{seed}") for seed in range(4)]
    found = compare_boards(boards[:2], boards[2:], choices=FAST)
    assert [each.name for each in found.predictions] == ["b0 → b2", "b1 → b2", "b0 → b3", "b1 → b3"]
    assert [(each.first, each.second, each.downstream) for each in found.compared] == [
        ("b0", "b1", "b2"),
        ("b0", "b1", "b3"),
    ]


def test_one_user_says_nothing_about_noise(item_board) -> None:
    board = item_board([0.0, 1.0, 2.0, 3.0, 5.0], users=1, each=20)
    assert np.isnan(board.low).all()
    assert reliability(board) is None
    assert corrected_spearman(BoardPair(benchmark=board, downstream=board)) is None


def test_shared_users_are_told(item_board) -> None:
    worth = [0.0, 1.0, 2.0, 3.0, 5.0]
    found = compare_boards([item_board(worth)], [item_board(worth, seed=1, name="down")], choices=FAST)
    assert found.notes == (
        "items and down share 40 users, so a part of the correlation may be theirs alone. Use other users.",
    )
