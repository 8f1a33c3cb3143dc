"""The posterior of a share, against integrals of scipy and what is known by hand."""

import math

import numpy as np
import pytest
from scipy.stats import beta, betabinom

from prbench.metrics.beta_binomial import UserCounts


def posterior_by_hand(right: list[int], rows: int) -> tuple[float, float]:
    """Integrate scipy's beta-binomial over a fine grid of both priors, for users of one size."""
    angles = (np.arange(500) + 0.5) / 500 * math.pi / 2  # flat: Jeffreys' prior of the share
    roots = (np.arange(150) + 0.5) / 150  # flat: the prior of the root of the correlation
    share, rho = np.sin(angles)[:, None] ** 2, roots[None, :] ** 2
    size = (1 - rho) / rho
    likelihood = np.prod([betabinom.pmf(each, rows, share * size, (1 - share) * size) for each in right], axis=0)
    below = np.cumsum(likelihood.sum(axis=1)) / likelihood.sum()
    low, high = np.interp([0.025, 0.975], below, angles)
    return float(np.sin(low) ** 2), float(np.sin(high) ** 2)


@pytest.mark.parametrize("right", [[5, 7, 8, 8, 3, 6], [20, 20, 19, 20, 12, 20, 20, 18], [1, 0, 0, 2]])
def test_interval_is_that_of_scipys_beta_binomial(right: list[int]) -> None:
    rows = max(8, *right)
    counts = UserCounts(np.array(right, dtype=float), np.array([rows - each for each in right], dtype=float))
    low, high = posterior_by_hand(right, rows)
    assert counts.interval() == pytest.approx((low, high), abs=0.01 * (high - low))


def test_one_row_per_user_is_jeffreys_interval() -> None:
    right = np.array([1.0] * 22 + [0.0] * 8)
    expected = beta.ppf([0.025, 0.975], 22.5, 8.5)
    assert UserCounts(right, 1 - right).interval() == pytest.approx(tuple(expected), abs=2e-3)


def test_the_same_share_from_users_who_differ_is_known_less_well() -> None:
    rows = np.full(12, 20.0)
    alike, unlike = np.full(12, 16.0), np.array([20.0] * 9 + [4.0] * 3)
    assert alike.sum() == unlike.sum()
    widths = [high - low for low, high in (UserCounts(each, rows - each).interval() for each in (alike, unlike))]
    assert widths[1] > 2 * widths[0]


def test_near_the_end_the_interval_knows_that_a_bad_user_may_have_been_missed() -> None:
    # Three of 400 rows wrong, all of different users: rows that were independent would reach down to 97.8 %.
    right = np.array([40.0] * 7 + [39.0] * 3)
    low, _ = UserCounts(right, 40 - right).interval()
    assert low < 0.97


def test_users_with_many_rows_count_as_in_the_ratio_of_sums() -> None:
    # Small users are right two times of three, large ones more often: users have 0.71 on average, rows 0.81.
    right = np.array([1.0, 2.0, 3.0, 2.0, 1.0, 3.0] * 5 + [70.0, 85.0, 78.0, 62.0, 90.0] * 2)
    rows = np.array([3.0] * 30 + [93.0] * 10)
    low, high = UserCounts(right, rows - right).interval()
    assert (low + high) / 2 == pytest.approx(right.sum() / rows.sum(), abs=0.04)


def test_what_other_users_tell_of_the_correlation_narrows_or_widens() -> None:
    own = UserCounts(np.array([9.0, 8.0, 10.0, 7.0]), np.array([1.0, 2.0, 0.0, 3.0]))
    low, high = own.interval()
    generator = np.random.default_rng(1)
    alike, unlike = generator.binomial(10, 0.8, 40).astype(float), np.repeat([10.0, 2.0], [30, 10])
    narrow, wide = (own.interval(UserCounts(each, 10 - each).evidence()) for each in (alike, unlike))
    assert narrow[1] - narrow[0] < high - low < wide[1] - wide[0]
