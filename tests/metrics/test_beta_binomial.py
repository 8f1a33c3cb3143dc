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


def test_many_rows_near_the_end_are_seen_as_finely_as_few() -> None:
    # 2,000 users with 50 rows; 300 of them are wrong once and 100 twice. Integrated on a grid of 400 x 120 cells in
    # the region that counts, the interval is [0.994491, 0.995455].
    wrong = np.repeat([0.0, 1.0, 2.0], [1600, 300, 100])
    low, high = UserCounts(50 - wrong, wrong).interval()
    assert (low, high) == (pytest.approx(0.994491, abs=2e-5), pytest.approx(0.995455, abs=2e-5))


@pytest.mark.parametrize("users,pairs,share", [(20_000, 50, 0.8), (1_000, 50, 0.995), (400, 65, 0.995)])
def test_intervals_of_large_runs_hold_the_truth(users: int, pairs: int, share: float) -> None:
    generator, held = np.random.default_rng(3), 0
    for _ in range(60):
        chances = generator.beta(share * 19, (1 - share) * 19, users)  # a correlation of 0.05
        right = generator.binomial(pairs, chances).astype(float)
        low, high = UserCounts(right, pairs - right).interval()
        held += low <= share <= high
    assert held >= 52  # of 60: fewer than that come up once in 300 tries if 95 % hold it
