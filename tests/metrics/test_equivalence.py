import numpy as np
import pytest
from scipy.stats import beta, binom, t
from statsmodels.api import OLS
from statsmodels.stats.weightstats import ttost_paired

from prbench.errors import UsageError
from prbench.metrics.equivalence import (
    Equivalence,
    equivalence,
    equivalence_power,
    items_needed,
    merge_items,
    p_at_least,
    resolved_margin,
    upper_bound,
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
    assert max(result.t_above, result.t_below) == pytest.approx(p_value)
    assert (result.t_above, result.t_below) == (pytest.approx(upper[1]), pytest.approx(lower[1]))
    assert p_value == pytest.approx(0.01705, abs=1e-4)
    # Five items leave room for much that was not seen: if one in four were at 4, (3/4)^5 of such samples miss it.
    assert result.p_value > (3 / 4) ** 5
    assert not result.equivalent


def test_both_one_sided_tests_by_the_formula() -> None:
    values = np.array([0.5, -0.25, 0.0, 0.75, 0.25, 0.0, 0.5, -0.5])
    result = equivalence(values.tolist(), list("abcdefgh"), margin=0.6, span=0.8)
    error = values.std(ddof=1) / np.sqrt(8)
    assert result.t_above == pytest.approx(1 - t.cdf((values.mean() + 0.6) / error, 7))
    assert result.t_below == pytest.approx(t.cdf((values.mean() - 0.6) / error, 7))
    assert result.p_value == max(result.p_above, result.p_below)
    # On so short a scale unseen items matter less than the variation that is seen.
    assert (result.p_above, result.p_below) == (result.t_above, result.t_below)


def test_raters_of_one_item_are_clustered_as_statsmodels_does_it() -> None:
    generator = np.random.default_rng(2)
    items = np.repeat(np.arange(30), generator.integers(1, 4, size=30))
    values = 0.2 + generator.normal(size=30)[items] + generator.normal(scale=0.5, size=len(items))
    result = equivalence(values.tolist(), [str(i) for i in items], margin=0.5, span=4.0)
    fitted = OLS(values, np.ones(len(values))).fit(cov_type="cluster", cov_kwds={"groups": items}, use_t=True)
    assert (result.n, result.items) == (len(items), 30)
    above = t.sf((fitted.params[0] + 0.5) / fitted.bse[0], 29)
    assert (result.t_above, result.t_below) == pytest.approx(
        (above, t.cdf((fitted.params[0] - 0.5) / fitted.bse[0], 29))
    )


def test_equally_many_raters_give_the_test_of_the_items_means() -> None:
    generator = np.random.default_rng(4)
    table = generator.integers(-2, 3, size=(25, 3)) / 1.0
    clustered = equivalence(table.ravel().tolist(), [str(i) for i in range(25) for _ in range(3)], margin=0.4, span=4)
    p_value = ttost_paired(table.mean(axis=1), np.zeros(25), -0.4, 0.4)[0]
    assert max(clustered.t_above, clustered.t_below) == pytest.approx(p_value)


def test_no_significant_difference_is_not_equivalence() -> None:
    result = of_pairs([1.0, 5.0, 2.0, 4.0], [5.0, 1.0, 4.0, 3.0], 0.5)
    assert result.low < 0 < result.high
    assert not result.equivalent
    assert result.p_beyond > 0.05
    assert not result.beyond


def test_a_large_difference_is_shown_to_be_beyond_the_margin() -> None:
    first, second = [5.0, 4.0, 5.0, 5.0, 4.0, 5.0], [2.0, 2.0, 3.0, 2.0, 1.0, 3.0]
    result = of_pairs(first * 3, second * 3, 0.5)
    assert not result.equivalent
    assert result.low > 0.5
    assert result.p_beyond < 0.01
    assert result.beyond
    few = of_pairs(first, second, 0.5)  # a third of them: a t test is sure, with what nobody saw it is not
    assert not few.beyond
    assert few.needed is not None
    assert 6 < few.needed <= 18


def test_few_items_without_variation_prove_nothing_and_many_do() -> None:
    # One item in eight would have to differ by 4 to make a mean difference of 0.5: (7/8)^n is below 5 % from 23 on.
    few, many = of_pairs([3.0] * 22, [3.0] * 22, 0.5), of_pairs([3.0] * 23, [3.0] * 23, 0.5)
    assert (few.p_value, few.needed) == (pytest.approx((7 / 8) ** 22), 23)
    assert not few.equivalent
    assert many.equivalent
    assert many.high < 0.5 < few.high
    assert (few.low, few.high) == pytest.approx((-4 * (1 - 0.05 ** (1 / 22)), 4 * (1 - 0.05 ** (1 / 22))))


def test_fewer_items_or_more_difference_never_make_a_better_case() -> None:
    seven = of_pairs([4.0] + [3.0] * 6, [3.0] * 7, 0.5)  # a t test alone would say p = 0.023
    assert seven.t_below < 0.05
    assert seven.p_value > (7 / 8) ** 7
    assert not seven.equivalent
    p_values = [of_pairs([4.0] * ones + [3.0] * (40 - ones), [3.0] * 40, 0.5).p_value for ones in range(12)]
    assert p_values == sorted(p_values)
    p_values = [of_pairs([4.0] + [3.0] * (n - 1), [3.0] * n, 0.5).p_value for n in range(4, 40, 5)]
    assert p_values == sorted(p_values, reverse=True)


@pytest.mark.parametrize("large,items", [(2, 50), (3, 50), (0, 30), (7, 120)])
def test_two_values_have_the_bound_of_clopper_and_pearson(large: int, items: int) -> None:
    # A mean of 0.5 is one item in eight at 4: the p-value is the chance to see so few of them.
    result = of_pairs([5.0] * large + [1.0] * (items - large), [1.0] * items, 0.5)
    assert p_at_least(merge_items(np.array([4.0] * large + [0.0] * (items - large)), span=4.0), 0.5) == pytest.approx(
        binom.cdf(large, items, 1 / 8)
    )
    assert result.high >= 4 * beta.ppf(0.95, large + 1, items - large) - 1e-6


def test_the_bound_is_that_of_random_weights_with_one_item_at_the_end() -> None:
    generator = np.random.default_rng(1)
    means = generator.integers(-2, 3, size=20) / 2
    weights = generator.exponential(size=(200_000, 21))
    drawn = weights @ np.append(means, 4.0) / weights.sum(axis=1)
    items = merge_items(means, span=4.0)
    for target in (0.0, 0.3, 0.6):
        assert p_at_least(items, target) == pytest.approx((drawn >= target).mean(), abs=0.005)  # 4 standard errors
    assert upper_bound(items, 0.05) == pytest.approx(np.quantile(drawn, 0.95), abs=0.01)
    assert p_at_least(items, upper_bound(items, 0.05)) == pytest.approx(0.05)
    assert upper_bound(merge_items(np.full(3, 4.0), span=4.0), 0.05) == 4.0


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["rare and large", "raters disagree", "uneven raters", "rounded"])
def test_a_difference_at_the_margin_is_called_equal_in_at_most_five_percent(kind: str) -> None:
    # Of 200 samples 10 may pass; 19 or more have a chance of 0.7 %. A t test alone passes 36 with uneven raters.
    generator, items = np.random.default_rng(5), 50

    def rare(size: int) -> np.ndarray:
        return np.where(generator.random(size) < 1 / 8, 4.0, 0.0)

    passed = 0
    for _ in range(200):
        sizes = generator.choice([1, 1, 1, 6], items) if kind == "uneven raters" else np.full(items, 2)
        match kind:
            case "raters disagree":
                values = rare(2 * items)
            case "rounded":
                values = np.clip(np.round(generator.normal(0.5, 1.0, 2 * items)), -4, 4)
            case _:
                values = np.repeat(rare(items), sizes)
        names = [str(i) for i in np.repeat(np.arange(items), sizes)]
        passed += equivalence(values.tolist(), names, margin=0.5, span=4.0).equivalent
    assert passed <= 18


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


def test_what_cannot_be_tested_is_said() -> None:
    with pytest.raises(UsageError, match="margin is 0"):
        of_pairs([1.0, 2.0], [1.0, 2.0], 0.0)
    with pytest.raises(UsageError, match="no difference can exceed 4"):
        of_pairs([1.0, 2.0], [1.0, 2.0], 4.0)
    with pytest.raises(UsageError, match="at least 2 items, and there are 1"):
        equivalence([1.0, 0.0], ["a", "a"], margin=1, span=4)
    with pytest.raises(UsageError, match="A difference is 5, and none can exceed 4"):
        of_pairs([6.0, 2.0], [1.0, 2.0], 1.0)
    with pytest.raises(UsageError, match=r"alpha is 0\.5"):
        of_pairs([1.0, 2.0], [1.0, 2.0], 1.0, alpha=0.5)


def test_items_needed_is_open_when_no_number_would_do() -> None:
    assert items_needed(1.0, 0.5, difference=0.5) is None
    assert items_needed(1.0, 0.5, difference=0.4999) is None


@pytest.mark.slow
@pytest.mark.parametrize("ahead", [0, 2])
def test_the_items_named_settle_it_with_eighty_percent_power(ahead: int) -> None:
    # Differences of half points around 0.1, and around 2.1: the first lie within the margin, the others beyond it.
    seen = np.array([-1, -0.5, -0.5, 0, 0, 0, 0, 0.5, 0.5, 0.5, 0.5, 1.0, -1, 0.5, 1]) + ahead
    names = [str(i) for i in range(15)]
    result = equivalence(seen.tolist(), names, margin=0.5 if ahead == 0 else 1.7, span=4.0, tests=3)
    assert (result.equivalent, result.beyond) == (False, False)
    assert result.needed is not None
    generator, settled = np.random.default_rng(6), 0
    for _ in range(100):
        drawn = generator.choice(seen, result.needed).tolist()
        again = equivalence(drawn, [str(i) for i in range(result.needed)], margin=result.margin, span=4.0, tests=3)
        settled += again.equivalent if ahead == 0 else again.beyond
    assert 70 <= settled <= 98  # 80 to 95 on average: the plan is a little cautious
