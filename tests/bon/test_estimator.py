"""The best of n without bias, against every subset that could have been drawn; what a curve of it says."""

from itertools import combinations
from math import comb, log, sqrt
from statistics import fmean

import numpy as np
import pytest

from prbench.downstream.best_of_n.summary import (
    area_over_log_n,
    best_n,
    best_of_each,
    count_ties,
    fit_overoptimization,
    in_order_of_score,
    kl_bound,
    pooled_spread,
    rank_weights,
    sizes_up_to,
    win_rate_each,
)
from prbench.errors import UsageError


def by_all_subsets(values: list[float], scores: list[float], n: int) -> float:
    """The mean over all subsets of n; where several share the best score, each is picked as often as the others."""
    found = []
    for subset in combinations(range(len(values)), n):
        top = max(scores[place] for place in subset)
        found.append(fmean(values[place] for place in subset if scores[place] == top))
    return fmean(found)


@pytest.mark.parametrize("size", range(1, 11))
@pytest.mark.parametrize("levels", [2, 3, 1000])
def test_the_formula_is_the_mean_over_all_subsets(size: int, levels: int) -> None:
    dice = np.random.default_rng(100 * size + levels)
    values = dice.normal(size=size).tolist()
    scores = dice.integers(0, levels, size=size).astype(float).tolist()  # two and three levels: many ties
    expected = [by_all_subsets(values, scores, n) for n in range(1, size + 1)]
    assert best_of_each(values, scores) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("levels", [2, 1000])
def test_the_win_rate_is_the_mean_over_all_subsets_and_single_samples(levels: int) -> None:
    dice = np.random.default_rng(levels)
    values = dice.integers(0, 4, size=8).astype(float).tolist()
    scores = dice.integers(0, levels, size=8).astype(float).tolist()

    def beats(value: float) -> float:
        return fmean(1.0 if value > other else 0.5 if value == other else 0.0 for other in values)

    expected = [by_all_subsets([beats(value) for value in values], scores, n) for n in range(1, 9)]
    assert win_rate_each(values, scores) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("n", [1, 3, 8, 16])
def test_an_oracle_wins_as_often_as_theory_says(n: int) -> None:
    # Against a fresh sample the best of n wins n / (n+1) of the time (Beirami 2401.01879).
    values = np.random.default_rng(n).permutation(16)
    assert win_rate_each(values, values)[n - 1] == pytest.approx(n / (n + 1) + (n - 1) / (2 * 16 * (n + 1)))


def test_by_hand() -> None:
    # Values 0, 3, 9 in the order of their scores. Best of two: {0,3} 3, {0,9} 9, {3,9} 9; of three: 9.
    assert best_of_each([9, 0, 3], [0.9, 0.1, 0.5]) == pytest.approx([4, 7, 9])
    # The first two share a score: each of them stands for 1.5.
    assert best_of_each([9, 0, 3], [0.9, 0.1, 0.1]) == pytest.approx([4, (1.5 + 9 + 9) / 3, 9])


def test_a_constant_reward_gives_the_mean_of_the_pool_at_every_n() -> None:
    values = [0.0, 1.0, 5.0, -2.0, 4.0]
    assert best_of_each(values, [7.0] * 5) == pytest.approx([fmean(values)] * 5)


def test_ties_are_not_resolved_to_the_first_sample() -> None:
    # Two public tools take the first of equal scores: here that would be worth 1 instead of 1/2.
    assert best_of_each([1.0, 0.0], [3.0, 3.0])[1] == 0.5


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_what_is_no_number_is_refused(bad: float) -> None:
    with pytest.raises(UsageError, match="missing or infinite"):
        best_of_each([1.0, 2.0], [0.0, bad])
    with pytest.raises(UsageError, match="missing or infinite"):
        best_of_each([1.0, bad], [0.0, 1.0])


def test_one_score_for_each_sample() -> None:
    with pytest.raises(UsageError, match="2 scores do not belong to 3 values"):
        in_order_of_score([1.0, 2.0, 3.0], [1.0, 2.0])


def test_weights_are_exact_and_stay_so_for_large_pools() -> None:
    exact = [[comb(rank - 1, n - 1) / comb(12, n) for rank in range(1, 13)] for n in range(1, 13)]
    assert np.allclose(rank_weights(12), exact, atol=1e-15)
    large = rank_weights(2048)
    assert np.isfinite(large).all()
    assert np.allclose(large.sum(axis=1), 1, atol=1e-12)
    # The best rank of all is in a subset of n with probability n / N.
    assert large[:, -1] == pytest.approx(np.arange(1, 2049) / 2048, rel=1e-9)


def test_the_estimate_has_no_bias_and_the_first_n_have_the_same_mean() -> None:
    dice = np.random.default_rng(5)
    pools = dice.normal(size=(20_000, 16))
    estimated = np.mean([best_of_each(pool, pool)[3] for pool in pools])
    assert estimated == pytest.approx(pools[:, :4].max(axis=1).mean(), abs=0.02)
    assert estimated == pytest.approx(1.0294, abs=0.01)  # the expected maximum of four normal variables


def test_the_bound_on_the_kl_divergence() -> None:
    assert [round(kl_bound(n), 2) for n in (1, 4, 16, 64, 128)] == [0.0, 0.64, 1.84, 3.17, 3.86]
    assert kl_bound(2) == pytest.approx(log(2) - 0.5)
    with pytest.raises(UsageError):
        kl_bound(0)


@pytest.mark.parametrize("size,shown", [(1, (1,)), (2, (1, 2)), (6, (1, 2, 4, 6)), (64, (1, 2, 4, 8, 16, 32, 64))])
def test_powers_of_two_and_the_whole_pool_are_shown(size: int, shown: tuple[int, ...]) -> None:
    assert sizes_up_to(size) == shown


SIZES = (1, 2, 4, 8, 16, 32, 64)


def test_best_n_is_the_smallest_of_the_highest() -> None:
    assert best_n([0.0, 2.0, 2.0, 1.0]) == 2


def test_the_area_is_the_mean_height_over_log_n() -> None:
    assert area_over_log_n([3.0] * 10) == pytest.approx(3.0)
    assert area_over_log_n([log(n) for n in range(1, 65)]) == pytest.approx(log(64) / 2)  # a straight line in log n
    assert area_over_log_n([1.5]) == 1.5


def test_the_fit_finds_the_law_that_made_the_curve() -> None:
    d = np.sqrt([kl_bound(n) for n in range(1, 65)])
    fit = fit_overoptimization(0.3 + d * (0.8 - 0.4 * d), SIZES)
    assert fit is not None
    assert (fit.alpha, fit.beta) == pytest.approx((0.8, 0.4))
    assert fit.peak_d == pytest.approx(1.0)
    assert fit.peak_gain == pytest.approx(0.4)
    assert fit.is_within
    assert fit.rmse == pytest.approx(0.0, abs=1e-12)
    last = sqrt(kl_bound(64))
    highest = max(x * (0.8 - 0.4 * x) for x in d)
    assert fit.drop == pytest.approx(highest - last * (0.8 - 0.4 * last))


def test_a_curve_that_only_rises_has_no_peak_within_reach() -> None:
    d = np.sqrt([kl_bound(n) for n in range(1, 65)])
    fit = fit_overoptimization(d * (0.8 - 0.01 * d), SIZES)
    assert fit is not None
    assert not fit.is_within
    assert fit.drop == 0
    straight = fit_overoptimization(0.5 * d, SIZES)
    assert straight is not None
    assert straight.peak_d is None or not straight.is_within


def test_too_few_points_are_not_fitted() -> None:
    assert fit_overoptimization([0.0, 1.0, 1.0, 2.0], (1, 2, 4)) is None


def test_ties_at_the_top_are_counted_and_those_of_consequence_apart() -> None:
    values = [np.array(v) for v in ([1.0, 0.0, 5.0], [1.0, 1.0, 0.0], [1.0, 2.0, 3.0], [0.0, 1.0, 2.0])]
    scores = [np.array(s) for s in ([2.0, 2.0, 1.0], [9.0, 9.0, 1.0], [1.0, 2.0, 3.0], [3.0, 1.0, 1.0])]
    ties = count_ties(values, scores)
    assert (ties.pools, ties.consequential, ties.size) == (0.5, 0.25, 1.5)


def test_spread_within_pools_ignores_what_pools_differ_in() -> None:
    assert pooled_spread([np.array([0.0, 2.0]), np.array([100.0, 102.0])]) == pytest.approx(1.0)
    assert pooled_spread([]) == 0.0
