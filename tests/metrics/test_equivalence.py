import numpy as np
import pytest
from scipy.stats import t
from statsmodels.api import OLS
from statsmodels.stats.weightstats import ttost_paired

from prbench.errors import UsageError
from prbench.metrics.equivalence import (
    Equivalence,
    equivalence,
    equivalence_power,
    items_needed,
    resolved_margin,
)


def of_pairs(first: list[float], second: list[float], margin: float, **more: float) -> Equivalence:
    differences = [one - two for one, two in zip(first, second, strict=True)]
    return equivalence(differences, [str(i) for i in range(len(first))], margin=margin, span=4.0, **more)


def test_by_hand_and_by_statsmodels() -> None:
    first, second = [4.0, 5.0, 3.0, 4.0, 5.0], [4.0, 4.0, 3.0, 5.0, 5.0]
    result = of_pairs(first, second, 1.0)
    # Differences 0 1 0 -1 0: mean 0, standard deviation sqrt(1/2), error 0.316; t = 1 / 0.316 = 3.162 on 4 df.
    assert (result.difference, result.n, result.items) == (0.0, 5, 5)
    p_value, upper, lower = ttost_paired(np.array(first), np.array(second), -1, 1)
    assert result.p_value == pytest.approx(p_value)
    assert (result.p_above, result.p_below) == (pytest.approx(upper[1]), pytest.approx(lower[1]))
    assert result.p_value == pytest.approx(0.01705, abs=1e-4)
    assert result.equivalent
    # The 90 % interval is 2.132 errors to each side, and inside the margin.
    assert (result.low, result.high) == pytest.approx((-0.674, 0.674), abs=1e-3)


def test_both_one_sided_tests_by_the_formula() -> None:
    values = np.array([0.5, -0.25, 0.0, 0.75, 0.25, 0.0, 0.5, -0.5])
    result = equivalence(values.tolist(), list("abcdefgh"), margin=0.6, span=4.0)
    error = values.std(ddof=1) / np.sqrt(8)
    assert result.p_above == pytest.approx(1 - t.cdf((values.mean() + 0.6) / error, 7))
    assert result.p_below == pytest.approx(t.cdf((values.mean() - 0.6) / error, 7))
    assert result.p_value == max(result.p_above, result.p_below)
    assert (result.low, result.high) == pytest.approx(values.mean() + error * t.ppf(0.95, 7) * np.array([-1, 1]))


def test_raters_of_one_item_are_clustered_as_statsmodels_does_it() -> None:
    generator = np.random.default_rng(2)
    items = np.repeat(np.arange(30), generator.integers(1, 4, size=30))
    values = 0.2 + generator.normal(size=30)[items] + generator.normal(scale=0.5, size=len(items))
    result = equivalence(values.tolist(), [str(i) for i in items], margin=0.5, span=4.0)
    fitted = OLS(values, np.ones(len(values))).fit(cov_type="cluster", cov_kwds={"groups": items}, use_t=True)
    assert (result.n, result.items) == (len(items), 30)
    assert (result.low, result.high) == pytest.approx(fitted.conf_int(alpha=0.1)[0])


def test_equally_many_raters_give_the_test_of_the_items_means() -> None:
    generator = np.random.default_rng(4)
    table = generator.integers(-2, 3, size=(25, 3)) / 1.0
    clustered = equivalence(table.ravel().tolist(), [str(i) for i in range(25) for _ in range(3)], margin=0.4, span=4)
    p_value = ttost_paired(table.mean(axis=1), np.zeros(25), -0.4, 0.4)[0]
    assert clustered.p_value == pytest.approx(p_value)


def test_no_significant_difference_is_not_equivalence() -> None:
    result = of_pairs([1.0, 5.0, 2.0, 4.0], [5.0, 1.0, 4.0, 3.0], 0.5)
    assert result.low < 0 < result.high
    assert not result.equivalent
    assert result.p_beyond > 0.05
    assert not result.beyond


def test_a_large_difference_is_shown_to_be_beyond_the_margin() -> None:
    result = of_pairs([5.0, 4.0, 5.0, 5.0, 4.0, 5.0], [2.0, 2.0, 3.0, 2.0, 1.0, 3.0], 0.5)
    assert not result.equivalent
    assert result.low > 0.5
    assert result.p_beyond < 0.001
    assert result.beyond
    assert result.needed is not None
    assert result.needed <= 6


def test_few_items_without_variation_prove_nothing_and_many_do() -> None:
    # One item in eight would have to differ by 4 to make a mean difference of 0.5: (7/8)^n is below 5 % from 23 on.
    few, many = of_pairs([3.0] * 22, [3.0] * 22, 0.5), of_pairs([3.0] * 23, [3.0] * 23, 0.5)
    assert (few.p_value, few.needed) == (pytest.approx((7 / 8) ** 22), 23)
    assert not few.equivalent
    assert many.equivalent
    assert many.high < 0.5 < few.high
    assert (few.low, few.high) == pytest.approx((-4 * (1 - 0.05 ** (1 / 22)), 4 * (1 - 0.05 ** (1 / 22))))


def test_a_constant_difference_beyond_the_margin_is_not_equivalent() -> None:
    result = of_pairs([4.0] * 50, [3.0] * 50, 0.5)
    # To bring the mean down to 0.5, one item in ten would have to be at -4.
    assert result.p_value == 1.0
    assert result.p_beyond == pytest.approx(0.9**50)
    assert result.needed == 29  # 0.9^28 is 5.2 %, 0.9^29 is 4.7 %


def test_raters_that_cancel_out_on_every_item_are_no_certainty() -> None:
    result = equivalence([1.0, -1.0] * 4, [str(i // 2) for i in range(8)], margin=0.5, span=4.0)
    assert result.low < -0.5
    assert not result.equivalent


@pytest.mark.parametrize("difference", [0.0, 0.2])
def test_the_stated_power_is_what_simulation_gives(difference: float) -> None:
    needed = items_needed(1.2, 0.5, difference=difference)
    assert needed is not None
    assert equivalence_power(1.2, needed, 0.5, difference=difference) >= 0.8
    assert equivalence_power(1.2, needed - 1, 0.5, difference=difference) < 0.8
    samples = np.random.default_rng(8).normal(difference, 1.2, size=(20_000, needed))
    errors = samples.std(axis=1, ddof=1) / np.sqrt(needed)
    critical = t.ppf(0.95, needed - 1)
    passed = (np.abs(samples.mean(axis=1)) + critical * errors < 0.5).mean()
    assert passed == pytest.approx(0.8, abs=0.02)


def test_the_resolved_margin_is_that_of_eighty_percent_power() -> None:
    margin = resolved_margin(1.2 / np.sqrt(60), 60)
    assert equivalence_power(1.2, 60, margin) == pytest.approx(0.8)
    assert items_needed(1.2, margin * 1.0001) == 60


def test_the_test_passes_a_difference_at_the_margin_in_five_percent_of_samples() -> None:
    samples = np.random.default_rng(9).normal(0.5, 0.8, size=(1000, 40))
    names = [str(i) for i in range(40)]
    passed = sum(equivalence(row.tolist(), names, margin=0.5, span=4.0).equivalent for row in samples)
    assert 30 <= passed <= 71  # 50 on average, three standard deviations of 6.9


def test_what_cannot_be_tested_is_said() -> None:
    with pytest.raises(UsageError, match="margin is 0"):
        of_pairs([1.0, 2.0], [1.0, 2.0], 0.0)
    with pytest.raises(UsageError, match="no difference can exceed 4"):
        of_pairs([1.0, 2.0], [1.0, 2.0], 4.0)
    with pytest.raises(UsageError, match="at least 2 items, and there are 1"):
        equivalence([1.0, 0.0], ["a", "a"], margin=1, span=4)
    with pytest.raises(UsageError, match=r"alpha is 0\.5"):
        of_pairs([1.0, 2.0], [1.0, 2.0], 1.0, alpha=0.5)


def test_items_needed_is_open_when_no_number_would_do() -> None:
    assert items_needed(1.0, 0.5, difference=0.5) is None
    assert items_needed(1.0, 0.5, difference=0.4999) is None


def test_items_to_show_a_difference_beyond_the_margin_give_eighty_percent_power() -> None:
    values = np.array([1.9, -0.5, 1.4, 0.1, 1.1, 0.6]) - 0.1  # mean 0.667, beyond a margin of 0.5 but not shown to be
    result = equivalence(values.tolist(), list("abcdef"), margin=0.5, span=4.0, tests=3)
    assert not result.beyond
    assert result.needed is not None
    shape = (4_000, result.needed)
    samples = np.random.default_rng(6).normal(values.mean(), values.std(ddof=1), size=shape)
    errors = samples.std(axis=1, ddof=1) / np.sqrt(result.needed)
    shown = t.sf((samples.mean(axis=1) - 0.5) / errors, result.needed - 1) < 0.05 / 3
    assert shown.mean() == pytest.approx(0.8, abs=0.03)
