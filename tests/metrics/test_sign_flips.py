"""The test by the signs of users, against all signs one by one, and its interval."""

from itertools import product

import numpy as np
import numpy.typing as npt
import pytest

from prbench.metrics.sign_flips import SignFlips, flip_p

Floats = npt.NDArray[np.float64]


def by_all_signs(terms: Floats) -> float:
    """The exact two-sided mid-p value."""
    sums = np.abs(np.array(list(product([1, -1], repeat=len(terms)))) @ terms)
    place = abs(terms.sum())
    return float((sums > place + 1e-9).mean() + (np.abs(sums - place) <= 1e-9).mean() / 2)


@pytest.mark.parametrize("users", [9, 12])
def test_p_value_is_that_of_all_signs(users: int) -> None:
    generator = np.random.default_rng(users)
    ratios = []
    for _ in range(40):
        terms = generator.normal(0.35, 1, users)
        exact = by_all_signs(terms)
        if exact > 0.005:
            ratios.append(flip_p(terms, np.ones(users)) / exact)
    assert np.median(ratios) == pytest.approx(1, abs=0.05)
    assert 0.6 < min(ratios) <= max(ratios) < 1.6


def test_where_all_users_have_one_sign_it_is_the_mid_p_value() -> None:
    # Of 2^8 signs two are as far: 2 / 256, of which half counts.
    assert flip_p(np.array([1.0, 2.0, 3.0, 1.0, 1.0, 5.0, 1.0, 1.0]), np.ones(8)) == pytest.approx(1 / 256)
    assert flip_p(np.array([0.0, 0.0]), np.ones(2)) == 1.0
    assert flip_p(np.array([2.0, -2.0]), np.ones(2)) == 1.0


def test_one_small_step_from_the_farthest_sum_is_no_jump() -> None:
    nearly = flip_p(np.array([1.0] * 10 + [-0.01]), np.ones(11))
    assert nearly == pytest.approx(by_all_signs(np.array([1.0] * 10 + [-0.01])), rel=0.5)


def test_users_who_are_alike_are_counted() -> None:
    terms = np.array([1.0, 1.0, 2.0, -1.0, 3.0, 1.0, -2.0, 2.0])
    kinds, counts = np.unique(terms, return_counts=True)
    assert flip_p(kinds, counts.astype(float)) == pytest.approx(flip_p(terms, np.ones(8)))


def test_interval_holds_what_the_test_does_not_reject() -> None:
    generator = np.random.default_rng(3)
    rows = generator.integers(1, 40, 15).astype(float)
    signs = SignFlips(generator.normal(0.1, 0.3, 15) * rows, rows)
    low, high = signs.interval(0.05)
    assert (signs.p_value(low), signs.p_value(high)) == pytest.approx((0.05, 0.05), rel=1e-4)
    assert signs.p_value((low + high) / 2) > 0.05
    assert signs.p_value(high + 0.02) < 0.05


def test_interval_of_many_equal_users_is_that_of_the_t_test() -> None:
    from scipy.stats import ttest_1samp

    differences = np.random.default_rng(4).normal(0.2, 1, 200)
    expected = ttest_1samp(differences, 0).confidence_interval(0.95)
    found = SignFlips(differences, np.ones(200)).interval(0.05)
    assert found == pytest.approx((expected.low, expected.high), abs=0.01 * (expected.high - expected.low))


def test_fewer_than_five_users_who_differ_or_eight_in_all_tell_nothing() -> None:
    sums, rows = np.array([1.0, 2.0, 1.0, 3.0, 0.0, 0.0, 0.0, 0.0]), np.full(8, 10.0)
    assert not SignFlips(sums, rows).can_reject(0.05)
    sums[4] = 1.0
    assert SignFlips(sums, rows).can_reject(0.05)
    assert not SignFlips(sums[:7], rows[:7]).can_reject(0.05)


def test_thousands_of_users_end_in_an_interval_and_not_in_an_underflow() -> None:
    # Half of the signs of 3,000 users to the 3,000th power is less than any float.
    sums = np.where(np.arange(3000) % 10 < 7, 1.0, 0.0)
    signs = SignFlips(sums, np.ones(3000))
    low, high = signs.interval(0.05)
    assert (low, high) == pytest.approx((0.7 - 1.96 * 0.00837, 0.7 + 1.96 * 0.00837), abs=1e-3)
    assert signs.p_value() < 1e-300
