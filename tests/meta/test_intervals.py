"""Intervals: known limits, ties, and coverage of simulated boards."""

import numpy as np
import pytest
from scipy.stats import spearmanr

from prbench.insight.meta.intervals import (
    compatible_rho,
    fisher_interval,
    interval_of,
    population_value,
    rho_of_spearman,
    ties_of,
)
from prbench.metrics.correlation import coefficient_of_each, correlate


def test_too_few_models_have_no_interval() -> None:
    assert interval_of(1.0, 3, "spearman") is None
    assert interval_of(1.0, 4, "spearman") is not None


@pytest.mark.parametrize("statistic", ["spearman", "kendall", "weighted_tau"])
def test_perfect_agreement_of_six_models_is_far_from_certain(statistic) -> None:  # type: ignore[no-untyped-def]
    low, high = interval_of(1.0, 6, statistic, spearman=1.0) or (0.0, 0.0)
    assert high == 1.0
    assert 0.3 < low < 0.8
    again = interval_of(-1.0, 6, statistic, spearman=-1.0) or (0.0, 0.0)
    assert again[0] == pytest.approx(-1.0)


@pytest.mark.parametrize(("value", "n"), [(1.0, 4), (0.9, 5), (29 / 35, 6), (0.6, 20)])
def test_an_interval_mirrors_for_the_opposite_correlation(value: float, n: int) -> None:
    up, down = interval_of(value, n, "spearman"), interval_of(-value, n, "spearman")
    assert up is not None
    assert down is not None
    assert up == pytest.approx((-down[1], -down[0]), abs=1e-6)


def test_boards_that_come_to_the_very_figure_count_half() -> None:
    # Whole, the limits would be -0.65 and 0.84.
    assert interval_of(9 / 35, 6, "spearman") == pytest.approx((-0.64, 0.82), abs=0.01)


def test_it_is_close_to_fishers_where_models_are_many() -> None:
    ours = interval_of(0.6, 100, "spearman")
    assert ours == pytest.approx(fisher_interval(0.6, 100, spread=1 + 0.6**2 / 2), abs=0.03)


def test_ndcg_of_six_models_says_almost_nothing() -> None:
    low, high = interval_of(0.9180, 6, "ndcg") or (0.0, 0.0)
    assert low < 0.70 < 0.918 < high  # 0.70 is what chance gives


def test_known_values_of_the_copula() -> None:
    assert population_value(1.0, "spearman") == pytest.approx(1.0)
    assert population_value(0.5, "kendall") == pytest.approx(1 / 3)
    assert rho_of_spearman(population_value(0.7, "spearman")) == pytest.approx(0.7)


def test_ties_of_counts_from_the_lowest_score() -> None:
    assert ties_of(np.array([0.5, 0.9, 0.5, 0.5, 0.7])) == (3, 1, 1)
    assert ties_of(np.array([3.0, 1.0, 2.0])) == ()


def test_with_ties_the_interval_agrees_with_the_permutation_test() -> None:
    x = np.array([0.5, 0.5, 0.5, 0.5, 0.5, 0.6, 0.7, 0.8, 0.9])
    y = np.array([0.1, 0.4, 0.3, 0.2, 0.0, 0.15, 0.5, 0.45, 0.6])
    found = correlate(x, y, "kendall", draws=20_000)
    assert found is not None
    spearman = float(spearmanr(x, y).statistic)
    low, _ = interval_of(found.value, 9, "kendall", spearman=spearman, ties=(ties_of(x), ties_of(y))) or (0.0, 0.0)
    assert (low > 0) == (found.p_value < 0.05)


def test_boards_of_one_tau_are_told_apart_by_their_spearman() -> None:
    # The orders 4 0 1 2 3 5 and 2 1 0 4 3 5 have four pairs turned round each: tau is 1 - 2 * 4 / 15. The squared
    # distances add up to 20 and to 10, so Spearman is 1 - 6 * 20 / 210 and 1 - 6 * 10 / 210.
    less, more = (interval_of(7 / 15, 6, "kendall", spearman=1 - 6 * far / 210) for far in (20, 10))
    assert less is not None
    assert more is not None
    assert less[0] < more[0]
    assert less[1] < more[1]
    with pytest.raises(ValueError, match="needs the Spearman"):
        interval_of(7 / 15, 6, "kendall")


@pytest.mark.parametrize("n,rho", [(6, 0.0), (6, 0.5), (6, 0.95), (12, 0.8)])
def test_coverage_of_kendall(n: int, rho: float) -> None:
    generator = np.random.default_rng(n)
    x, noise = generator.standard_normal((2, 2_000, n))
    y = rho * x + np.sqrt(1 - rho**2) * noise
    figures = np.stack([coefficient_of_each(x, y, name) for name in ("kendall", "spearman")], axis=1).round(9)
    limits = {(tau, rank): interval_of(tau, n, "kendall", spearman=rank) for tau, rank in {*map(tuple, figures)}}
    truth = population_value(rho, "kendall")
    inside = [limits[tau, rank][0] <= truth <= limits[tau, rank][1] for tau, rank in figures]  # type: ignore[index]
    assert 0.93 <= np.mean(inside) <= 0.97


@pytest.mark.parametrize("n,rho", [(6, 0.0), (6, 0.95), (12, 0.8)])
def test_coverage_of_spearman(n: int, rho: float) -> None:
    generator = np.random.default_rng(n)
    x, noise = generator.standard_normal((2, 2_000, n))
    values = coefficient_of_each(x, rho * x + np.sqrt(1 - rho**2) * noise, "spearman")
    limits = {value: interval_of(float(value), n, "spearman") for value in np.unique(values)}
    truth = population_value(rho, "spearman")
    inside = [limits[value][0] - 1e-9 <= truth <= limits[value][1] + 1e-9 for value in values]  # type: ignore[index]
    assert 0.93 <= np.mean(inside) <= 0.975


def test_compatible_rho_holds_the_point() -> None:
    low, high = compatible_rho(0.5, 12)
    assert low < rho_of_spearman(0.5) < high
