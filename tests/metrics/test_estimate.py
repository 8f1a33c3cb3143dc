import math
import random
import tracemalloc

import numpy as np
import pytest
from statsmodels.stats.proportion import proportion_confint

from prbench.errors import UsageError
from prbench.metrics.beta_binomial import UserCounts
from prbench.metrics.estimate import (
    clustered_ratios,
    percentile_interval,
    ratio_estimates,
    user_weights,
    weighted_estimate,
    wilson,
)
from prbench.metrics.sign_flips import SignFlips


def test_wilson_of_eight_in_ten_by_hand() -> None:
    # z = 1.96: centre (0.8 + 0.19207) / 1.38415 = 0.71674, half width 0.22655
    assert wilson(8, 10) == pytest.approx((0.4901625, 0.9433178), abs=1e-6)


@pytest.mark.parametrize("successes,n", [(0, 5), (5, 5), (1, 3), (50, 100), (700, 1000)])
def test_wilson_agrees_with_statsmodels(successes: int, n: int) -> None:
    assert wilson(successes, n) == pytest.approx(proportion_confint(successes, n, method="wilson"), abs=1e-12)


def test_wilson_reaches_the_ends_exactly() -> None:
    assert wilson(0, 7)[0] == 0.0
    assert wilson(7, 7)[1] == 1.0


def test_wilson_of_nothing_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="no rows"):
        wilson(0, 0)


def test_estimate_of_no_rows_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="no rows"):
        ratio_estimates([], [], [])


def test_every_draw_has_as_many_users_as_there_are() -> None:
    blocks = list(user_weights(np.ones(7, dtype=int), seed=3, draws=1000))
    assert sum(len(block) for block in blocks) == 1000
    assert all((block.sum(axis=1) == 7).all() for block in blocks)


def test_draws_in_several_blocks_have_the_right_moments() -> None:
    weights = np.concatenate(
        list(user_weights(np.ones(3000, dtype=int), seed=0, draws=2000))
    )  # 6 million cells: three blocks
    assert weights.shape == (2000, 3000)
    # A count is binomial(users, 1/users): mean 1, variance 1 - 1/users.
    assert weights.mean() == 1.0
    assert weights.var() == pytest.approx(1 - 1 / 3000, rel=0.01)


@pytest.mark.parametrize("sizes", [[2950, 45, 5], [20, 10, 5]])  # counts of kinds, and one user at a time
def test_counts_of_kinds_are_drawn_as_if_user_by_user(sizes: list[int]) -> None:
    weights = np.concatenate(list(user_weights(np.array(sizes), seed=0, draws=20_000)))
    users = sum(sizes)
    assert (weights.sum(axis=1) == users).all()
    shares = np.array(sizes) / users
    assert weights.mean(axis=0) == pytest.approx(users * shares, rel=0.02)
    assert weights.var(axis=0) == pytest.approx(users * shares * (1 - shares), rel=0.06)


def test_standard_error_is_a_jackknife_over_users() -> None:
    numerators, users = [1.0, 0.0, 1.0, 1.0, 0.5], ["a", "a", "b", "c", "c"]
    sums, counts = np.array([1.0, 1.0, 1.5]), np.array([2, 1, 2])
    value = 3.5 / 5
    # Leave out one user at a time; to first order, each moves the ratio by its residual over the rows of the others.
    moved = (sums - value * counts) / (5 - counts)
    found = clustered_ratios(numerators, np.ones(5), users).spread(0)
    assert found.value == pytest.approx(0.7)
    assert found.error == pytest.approx(np.sqrt((2 / 3) * (moved**2).sum()))
    assert found.freedom == pytest.approx(25 / 9 - 1)  # (2 + 1 + 2)^2 / (4 + 1 + 4) users of equal size, less one


def test_a_figure_without_bounds_gets_t_times_its_error() -> None:
    from scipy.stats import ttest_1samp

    values = [0.3, 1.9, -0.4, 2.2, 0.8]
    found = ratio_estimates(values, np.ones(5), list("abcde"), span=(-math.inf, math.inf))[0]
    expected = ttest_1samp(values, 0).confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high))


def test_interval_of_a_share_is_that_of_the_beta_binomial() -> None:
    points = [1.0, 1.0, 1.0, 0.0, 1.0, 0.0, 1.0, 1.0, 1.0, 1.0]
    users = [name for name in "abcde" for _ in range(2)]
    expected = UserCounts(np.array([2.0, 1.0, 1.0, 2.0, 2.0]), np.array([0.0, 1.0, 1.0, 0.0, 0.0])).interval()
    estimate = ratio_estimates(points, np.ones(10), users)[0]
    assert (estimate.low, estimate.high) == pytest.approx(expected)


def test_ties_stand_for_more_rows_than_right_and_wrong() -> None:
    # Half of the points with half of the spread: a quarter of the variance, as four times the rows would have.
    users = [f"u{i // 10:02}" for i in range(400)]
    points = np.array([0.25, 0.75] * 200)
    tied = ratio_estimates(points, np.ones(400), users)[0]
    right = ratio_estimates([0.0, 1.0] * 800, np.ones(1600), [f"u{i // 40:02}" for i in range(1600)])[0]
    assert (tied.low, tied.high) == pytest.approx((right.low, right.high), abs=1e-3)


def test_interval_of_a_paired_difference_holds_what_the_test_does_not_reject() -> None:
    generator = np.random.default_rng(6)
    users = [f"u{i // 12:02}" for i in range(240)]
    points = (generator.random((240, 2)) < np.array([0.8, 0.7])).astype(float)
    ratios = clustered_ratios(points, np.ones((240, 2)), users)
    lost = (points[:, 0] - points[:, 1]).reshape(20, 12).sum(axis=1)
    low, high = SignFlips(lost, np.full(20, 12.0)).interval(0.05)
    found = ratios.estimate(0, minus=1)
    # One end is longer, by the skewness that was seen.
    assert found.low <= low + 1e-9
    assert found.high >= high - 1e-9
    assert found.high - found.low < 1.3 * (high - low)
    assert ratios.p_value(0, minus=1) == pytest.approx(SignFlips(lost, np.full(20, 12.0)).p_value())


def test_interval_of_a_difference_of_groups_is_made_of_the_arms_of_both() -> None:
    generator = np.random.default_rng(8)
    points = (generator.random(400) < np.repeat([0.9, 0.6], 200)).astype(float)
    member = np.repeat(np.eye(2), 200, axis=0)
    users = [f"u{i // 10:02}" for i in range(400)]
    ratios = clustered_ratios(points[:, None] * member, member, users)
    gap, first, second = ratios.estimate(0, minus=1), ratios.estimate(0), ratios.estimate(1)
    # Squares of arms add up (Zou and Donner 2008), and no user is in both groups.
    down = math.hypot(first.value - first.low, second.high - second.value)
    up = math.hypot(first.high - first.value, second.value - second.low)
    assert gap.value - gap.low == pytest.approx(down)
    assert gap.high - gap.value == pytest.approx(up)
    p = ratios.p_value(0, minus=1)
    assert p is not None
    assert p < 0.05
    assert gap.low > 0


def test_interval_over_users_and_questions_adds_their_variances_and_takes_off_that_of_cells() -> None:
    # Two users answer the same two questions: 1, 1 and 1, 0.
    points, users, questions = [1.0, 1.0, 1.0, 0.0], ["a", "a", "b", "b"], ["q", "r", "q", "r"]
    found = clustered_ratios(points, np.ones(4), users, questions=questions).spread(0)
    # Residuals 1/4, 1/4, 1/4, -3/4: users add up to 1/2 and -1/2, questions likewise, cells are the rows.
    # Jackknife: a cluster of half the rows moves the mean by its sum / 2, cells by theirs / 3.
    by_user = by_question = (1 / 2) * 2 * (0.5 / 2) ** 2
    by_cell = (3 / 4) * (3 * (0.25 / 3) ** 2 + (0.75 / 3) ** 2)
    assert found.error == pytest.approx(math.sqrt(by_user + by_question - by_cell))


def test_questions_that_nobody_shares_change_nothing() -> None:
    generator = np.random.default_rng(1)
    points, users = generator.integers(0, 2, 60).astype(float), [f"u{i // 3}" for i in range(60)]
    alone = ratio_estimates(points, np.ones(60), users)[0]
    both = ratio_estimates(points, np.ones(60), users, questions=[f"q{i}" for i in range(60)])[0]
    assert (both.low, both.high) == pytest.approx((alone.low, alone.high), rel=0.1)


def test_interval_of_independent_rows_is_the_textbook_one() -> None:
    users = [f"u{i}" for i in range(900)]
    estimate = ratio_estimates([float(i % 3 > 0) for i in range(900)], np.ones(900), users)[0]
    half = 1.96 * math.sqrt(2 / 9 / 900)
    assert estimate.high - estimate.low == pytest.approx(2 * half, rel=0.05)


def test_repeating_a_users_rows_does_not_narrow_the_interval() -> None:
    points, users = [float(i % 3 > 0) for i in range(60)], [f"u{i:02}" for i in range(60)]
    once = ratio_estimates(points, np.ones(60), users)[0]
    ten_times = ratio_estimates(points * 10, np.ones(600), users * 10)[0]
    # The correlation of rows that are all the same is 1, as nearly as 600 rows can tell.
    assert (ten_times.low, ten_times.high) == pytest.approx((once.low, once.high), abs=0.01)
    assert ten_times.n == 600


def test_order_of_rows_changes_no_digit() -> None:
    generator = random.Random(1)
    rows = [(generator.random(), f"u{generator.randrange(12)}") for _ in range(200)]
    expected = ratio_estimates([v for v, _ in rows], np.ones(200), [u for _, u in rows])
    generator.shuffle(rows)
    assert ratio_estimates([v for v, _ in rows], np.ones(200), [u for _, u in rows]) == expected


def test_difference_is_paired() -> None:
    generator = np.random.default_rng(0)
    users = [f"u{i}" for i in range(300)]
    base = generator.integers(0, 2, 300).astype(float)
    better = np.where(np.arange(300) < 30, 1.0, base)
    draws = clustered_ratios(np.column_stack([better, base]), np.ones((300, 2)), users)
    paired = draws.estimate(0, minus=1)
    alone = draws.estimate(0)
    assert paired.value == pytest.approx(better.mean() - base.mean())
    assert paired.high - paired.low < 0.5 * (alone.high - alone.low)


def test_difference_of_equal_columns_reaches_as_far_as_so_many_users_may_agree_by_chance() -> None:
    draws = clustered_ratios([[1, 1], [0, 0], [1, 1]], np.ones((3, 2)), ["a", "b", "c"])
    difference = draws.estimate(0, minus=1)
    high = math.tanh(wilson(0, 3)[1])  # on Fisher's z
    assert (difference.value, difference.n) == (0.0, 3)
    assert (difference.low, difference.high) == pytest.approx((-high, high))


def test_the_error_of_a_difference_of_groups_is_welchs() -> None:
    from scipy.stats import ttest_ind

    generator = np.random.default_rng(2)
    points = np.concatenate([generator.random(12) < 0.4, generator.random(60) < 0.7]).astype(float)
    member = np.zeros((72, 2))
    member[:12, 0] = member[12:, 1] = 1
    users = [f"u{i:02}" for i in range(72)]
    ratios = clustered_ratios(points[:, None] * member, member, users)
    theirs = ttest_ind(points[:12], points[12:], equal_var=False)
    found = ratios.spread(0, minus=1)
    assert found.value / found.error == pytest.approx(theirs.statistic)
    assert found.freedom == pytest.approx(theirs.df)


def test_one_user_gets_wilsons_interval_over_rows() -> None:
    estimate = ratio_estimates([1.0] * 8 + [0.0] * 2, np.ones(10), ["a"] * 10)[0]
    assert (estimate.low, estimate.high) == pytest.approx(wilson(8, 10))


def test_a_group_of_one_user_among_others_gets_wilsons_interval_too() -> None:
    member = np.array([[1, 0], [1, 0], [0, 1], [0, 1], [0, 1]], dtype=float)
    points = np.array([1, 0, 1, 0, 1], dtype=float)
    alone = clustered_ratios(points[:, None] * member, member, ["a", "a", "b", "c", "d"]).estimate(0)
    assert (alone.value, alone.low, alone.high, alone.n) == pytest.approx((0.5, *wilson(1, 2), 2))


def test_all_right_is_not_certainty() -> None:
    estimate = ratio_estimates(np.ones(10), np.ones(10), [f"u{i}" for i in range(10)])[0]
    assert (estimate.value, estimate.high) == (1.0, 1.0)
    assert estimate.low == pytest.approx(wilson(10, 10)[0])


def test_wilsons_interval_is_stretched_to_the_range() -> None:
    estimate = ratio_estimates([1.0, -1.0, 1.0, 1.0], np.ones(4), ["a"] * 4, span=(-1.0, 1.0))[0]
    low, high = wilson(3, 4)  # three of four at the upper end
    assert estimate.value == 0.5
    assert (estimate.low, estimate.high) == pytest.approx((2 * low - 1, 2 * high - 1))


def test_a_ratio_without_rows_is_a_usage_error() -> None:
    draws = clustered_ratios([[1, 0], [0, 0]], [[1, 0], [1, 0]], ["a", "b"])
    with pytest.raises(UsageError, match="no rows behind"):
        draws.estimate(1)


def test_draws_without_a_denominator_are_left_out() -> None:
    assert percentile_interval(np.array([np.nan, 0.25, 0.25, np.nan])) == (0.25, 0.25)


def test_statistic_of_weights_uses_the_same_draws() -> None:
    values = np.array([0.2, 0.4, 0.9])
    as_statistic = weighted_estimate(
        lambda w: w @ values / w.sum(axis=1), np.ones(3, dtype=int), n=3, seed=4, draws=400
    )
    samples = clustered_ratios(values, np.ones(3), ["a", "b", "c"]).samples(seed=4, draws=400)[:, 0]
    assert as_statistic.value == pytest.approx(values.mean())
    assert (as_statistic.low, as_statistic.high) == pytest.approx(percentile_interval(samples))


def test_samples_equal_a_bootstrap_written_as_a_loop() -> None:
    numerators, users = [1.0, 0.0, 1.0, 1.0, 0.5], ["a", "a", "b", "c", "c"]
    sums, counts = np.array([1.0, 1.0, 1.5]), np.array([1, 2, 2])  # of b, a and c, as they are drawn
    weights = np.concatenate(list(user_weights(np.ones(3, dtype=int), seed=5, draws=500)))
    expected = np.array([sum(w * sums) / sum(w * counts) for w in weights])
    found = clustered_ratios(numerators, np.ones(5), users).samples(seed=5, draws=500)[:, 0]
    assert sorted(found) == pytest.approx(sorted(expected))


def test_thirty_ratios_of_2830_users_take_bounded_memory() -> None:
    generator = np.random.default_rng(0)
    points = generator.integers(0, 2, (2830, 30)).astype(float)  # no two users alike: the slow way
    users = [f"u{i}" for i in range(2830)]
    tracemalloc.start()
    estimates = ratio_estimates(points, np.ones_like(points), users)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(estimates) == 30
    assert peak < 120e6


def test_one_user_with_nearly_all_rows_ends_in_an_interval_and_not_in_an_overflow() -> None:
    points, users = [1.0] * 1000 + [0.0], ["a"] * 1000 + ["b"]
    estimate = ratio_estimates(points, np.ones(1001), users)[0]
    assert 0.0 <= estimate.low < estimate.value < estimate.high <= 1.0


def test_a_small_group_that_is_all_right_is_not_known_for_certain() -> None:
    # Three users with two rows each, all right, beside 200 of 85 %: the truth may well be the same.
    generator = np.random.default_rng(3)
    large = generator.random(1000) < 0.85
    points = np.concatenate([np.ones(6), large])
    member = np.zeros((1006, 2))
    member[:6, 0] = member[6:, 1] = 1
    users = [f"s{i // 2}" for i in range(6)] + [f"u{i // 5}" for i in range(1000)]
    ratios = clustered_ratios(points[:, None] * member, member, users)
    gap = ratios.estimate(0, minus=1)
    p = ratios.p_value(0, minus=1)
    assert gap.low < 0 < gap.value
    assert p is not None
    assert p > 0.05


@pytest.mark.parametrize("rows,share", [(1, 1.0), (10, 0.1)])
def test_a_difference_that_is_the_same_for_every_user_has_a_p_that_agrees_with_its_interval(
    rows: int, share: float
) -> None:
    for count in (2, 10):
        first = np.concatenate([np.arange(rows) < round(rows * share) for _ in range(count)]).astype(float)
        users = [f"u{i // rows}" for i in range(rows * count)]
        ratios = clustered_ratios(np.stack([first, np.zeros_like(first)], axis=1), np.ones((len(first), 2)), users)
        found, p = ratios.estimate(0, minus=1), ratios.p_value(0, minus=1)
        assert p is not None
        assert (p < 0.05) == (found.low > 0)


def test_the_interval_for_new_questions_is_never_narrower_than_that_for_new_users() -> None:
    generator = np.random.default_rng(4)
    for _ in range(50):
        users, questions = int(generator.integers(3, 12)), int(generator.integers(2, 12))
        owners = np.repeat(np.arange(users), questions)
        asked = np.tile(np.arange(questions), users)
        points = (generator.random(len(owners)) < 0.7).astype(float)
        names = [f"u{each}" for each in owners]
        alone = ratio_estimates(points, np.ones(len(points)), names)[0]
        both = ratio_estimates(points, np.ones(len(points)), names, questions=[f"q{each}" for each in asked])[0]
        assert both.low <= alone.low + 1e-12
        assert both.high >= alone.high - 1e-12


def test_groups_of_the_same_users_have_no_more_degrees_of_freedom_than_users() -> None:
    generator = np.random.default_rng(5)
    points = generator.integers(0, 2, 60).astype(float)
    member = np.tile(np.array([[1.0, 0.0], [0.0, 1.0]]), (30, 1))  # every user's rows are half in either group
    found = clustered_ratios(points[:, None] * member, member, [f"u{i // 10}" for i in range(60)]).spread(0, minus=1)
    assert found.freedom <= 5
