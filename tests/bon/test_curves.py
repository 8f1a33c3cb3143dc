"""What a curve says, on curves whose answers are known."""

from math import log, sqrt

import numpy as np
import pytest

from prbench.downstream.best_of_n.estimator import (
    area_over_log_n,
    best_n,
    count_ties,
    fit_overoptimization,
    kl_bound,
    pooled_spread,
)

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
