import csv
import itertools
import json
import os
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import kendalltau, pearsonr, spearmanr, weightedtau

from prbench.errors import UsageError
from prbench.metrics.correlation import (
    coefficient,
    coefficient_of_each,
    coefficient_of_orders,
    correlate,
    paired_columns,
)

pearson, spearman = partial(coefficient, statistic="pearson"), partial(coefficient, statistic="spearman")
kendall, weighted_tau = partial(coefficient, statistic="kendall"), partial(coefficient, statistic="weighted_tau")
ndcg, rbo = partial(coefficient, statistic="ndcg"), partial(coefficient, statistic="rbo")
STATISTICS = ["pearson", "spearman", "kendall", "weighted_tau", "ndcg", "rbo"]
SHARED = Path(os.environ.get("PRBENCH_SHARED_DATA", Path(__file__).parents[3] / "shared" / "data"))

# Six reward models in the benchmark's order, with their downstream ranks under Best-of-N and under PPO.
BENCHMARK = [6.0, 5.0, 4.0, 3.0, 2.0, 1.0]
BEST_OF_N = [7.0 - rank for rank in (1, 5, 3, 4, 6, 2)]
PPO = [7.0 - rank for rank in (1, 4, 3, 5, 6, 2)]


@pytest.mark.parametrize(
    "downstream,expected",
    [
        (BEST_OF_N, {"ndcg": 0.9180, "spearman": 0.2571, "weighted_tau": 0.3905, "rbo": 0.8967}),
        (PPO, {"ndcg": 0.9265, "spearman": 0.3714, "weighted_tau": 0.4844, "rbo": 0.8967}),
    ],
)
def test_six_models_give_the_known_figures(downstream: list[float], expected: dict[str, float]) -> None:
    for statistic, value in expected.items():
        found = correlate(BENCHMARK, downstream, statistic)  # type: ignore[arg-type]
        assert found is not None
        assert round(found.value, 4) == value, statistic
        assert (found.n, found.exact) == (6, True)


def test_six_models_are_too_few_to_tell() -> None:
    p_values = [found.p_value for y in (BEST_OF_N, PPO) if (found := correlate(BENCHMARK, y)) is not None]
    assert [round(p, 2) for p in p_values] == [0.66, 0.50]
    gain = correlate(BENCHMARK, BEST_OF_N, "ndcg")
    assert gain is not None
    assert (round(gain.p_value, 3), round(gain.null_mean, 2)) == (0.129, 0.70)
    assert gain.null_95 == pytest.approx(0.954, abs=0.001)
    overlap = correlate(BENCHMARK, BEST_OF_N, "rbo")
    assert overlap is not None
    assert round(overlap.null_mean, 2) == 0.78


def test_ndcg_by_hand() -> None:
    # Order by benchmark: the worst, then the best of two. Gains 1 and 3: (1 + 3 / log2 3) / (3 + 1 / log2 3).
    assert ndcg([2, 1], [1, 2]) == pytest.approx((1 + 3 / np.log2(3)) / (3 + 1 / np.log2(3)))
    assert ndcg([2, 1], [1, 2], gain="linear") == pytest.approx((1 + 2 / np.log2(3)) / (2 + 1 / np.log2(3)))
    assert ndcg([1, 2], [10, 20]) == pytest.approx(1.0)


def test_ndcg_of_many_models_does_not_overflow() -> None:
    assert ndcg(list(range(2000)), list(range(2000))) == pytest.approx(1.0)


def test_ndcg_of_tied_benchmark_scores_is_the_mean_over_all_ways_to_break_them() -> None:
    downstream = [4.0, 1.0, 3.0, 2.0]
    ways = [ndcg(order, downstream) for order in ([4, 3, 2, 1], [4, 2, 3, 1])]
    assert ndcg([4, 2.5, 2.5, 1], downstream) == pytest.approx(np.mean(ways))


def test_rbo_by_hand() -> None:
    # Two items in reverse: agreement 0 at depth 1, 1 at depth 2: (1 - p) p + p^2.
    assert rbo([2, 1], [1, 2], p=0.5) == pytest.approx(0.5 * 0.5 + 0.25)
    assert rbo([3, 2, 1], [9, 5, 4], p=0.9) == pytest.approx(1.0)


def test_rbo_of_ties_is_the_mean_over_all_ways_to_break_them() -> None:
    x, y = [5.0, 3.0, 3.0, 3.0, 1.0], [1.0, 4.0, 2.0, 2.0, 3.0]
    ways = []
    for three in itertools.permutations([3.2, 3.1, 3.0]):
        for two in itertools.permutations([2.1, 2.0]):
            ways.append(rbo([5, *three, 1], [1, 4, *two, 3]))
    assert rbo(x, y) == pytest.approx(np.mean(ways))


def test_a_column_of_ties_does_not_inflate_rbo() -> None:
    order = [6.0, 5.0, 4.0, 3.0, 2.0, 1.0]
    by_chance = np.mean([rbo(order, list(p)) for p in itertools.permutations(order)])
    assert rbo([1.0] * 6, order) == pytest.approx(by_chance)


def test_rbo_refuses_an_impossible_persistence() -> None:
    with pytest.raises(UsageError, match="between 0 and 1"):
        rbo([1, 2], [1, 2], p=1.0)


def test_weighted_tau_weighs_the_top() -> None:
    order = [6.0, 5.0, 4.0, 3.0, 2.0, 1.0]
    top_swapped, bottom_swapped = [5.0, 6.0, 4.0, 3.0, 2.0, 1.0], [6.0, 5.0, 4.0, 3.0, 1.0, 2.0]
    top, bottom = weighted_tau(order, top_swapped), weighted_tau(order, bottom_swapped)
    assert top is not None
    assert bottom is not None
    assert top < bottom
    # scipy ranks by decreasing value: given ranks instead of scores it weighs the wrong end.
    ranks, swapped_ranks = [7 - v for v in order], [7 - v for v in top_swapped]
    assert weightedtau(ranks, swapped_ranks).statistic == pytest.approx(bottom)


def test_coefficients_agree_with_scipy_and_drop_gaps_pairwise() -> None:
    x = [1.0, None, 3.0, 2.0, 5.0, 4.0, float("nan")]
    y = [2.0, 9.0, 2.0, 1.0, None, 7.0, 3.0]
    kept = ([1.0, 3.0, 2.0, 4.0], [2.0, 2.0, 1.0, 7.0])
    assert [column.tolist() for column in paired_columns(x, y)] == [*kept]
    assert pearson(x, y) == pytest.approx(pearsonr(*kept).statistic)
    assert spearman(x, y) == pytest.approx(spearmanr(*kept).statistic)
    assert kendall(x, y) == pytest.approx(kendalltau(*kept).statistic)
    assert weighted_tau(x, y) == pytest.approx(weightedtau(*kept).statistic)


@pytest.mark.parametrize("statistic", ["pearson", "spearman", "kendall", "weighted_tau"])
def test_a_column_without_variation_has_no_correlation(statistic) -> None:  # type: ignore[no-untyped-def]
    assert coefficient([1, 1, 1], [1, 2, 3], statistic) is None
    assert coefficient([1, None], [1, 2], statistic) is None
    assert correlate([1, 1, 1], [1, 2, 3]) is None


def test_columns_of_different_length_are_refused() -> None:
    with pytest.raises(UsageError, match="3 and 2"):
        spearman([1, 2, 3], [1, 2])


@pytest.mark.parametrize("statistic", STATISTICS)
def test_null_is_the_coefficient_of_every_order(statistic: str) -> None:
    scalar = partial(coefficient, statistic=statistic)
    x, y = [3.0, 1.0, 1.0, 4.0, 2.0], [2.0, 2.0, 1.0, 5.0, 3.0]  # ties in both
    values = np.array([scalar(x, list(order)) for order in itertools.permutations(y)])
    observed = scalar(x, y)
    one_sided = statistic in ("ndcg", "rbo")
    reached = values >= observed - 1e-9 if one_sided else np.abs(values) >= abs(observed) - 1e-9
    found = correlate(x, y, statistic)  # type: ignore[arg-type]
    assert found is not None
    assert found.value == observed
    assert found.p_value == pytest.approx(reached.mean())
    assert found.null_mean == pytest.approx(values.mean())


def test_perfect_agreement_of_four_models_by_hand() -> None:
    # Of 24 orders only the same and the reverse reach |rho| = 1.
    found = correlate([1, 2, 3, 4], [1, 2, 3, 4])
    assert found is not None
    assert found.p_value == pytest.approx(2 / 24)


def test_more_than_eight_models_are_sampled_with_a_seed_and_never_p_zero() -> None:
    x = list(range(12))
    first, again, other = (correlate(x, x, "kendall", seed=s, draws=999) for s in (1, 1, 2))
    assert first is not None
    assert other is not None
    assert first == again
    assert not first.exact
    assert first.p_value == other.p_value == 1 / 1000


@pytest.mark.parametrize("statistic", ["spearman", "pearson", "kendall"])
def test_sampled_p_is_close_to_scipys(statistic: str) -> None:
    generator = np.random.default_rng(2)
    x = generator.normal(size=40)
    y = 0.3 * x + generator.normal(size=40)
    library = {"spearman": spearmanr, "pearson": pearsonr, "kendall": kendalltau}[statistic]
    found = correlate(x, y, statistic)  # type: ignore[arg-type]
    assert found is not None
    assert found.p_value == pytest.approx(library(x, y).pvalue, abs=0.02)


@pytest.mark.skipif(not (SHARED / "tables").is_dir(), reason="the shared result tables are not here")
def test_published_tables_give_the_independently_computed_correlations() -> None:
    expected = json.loads((SHARED / "tables" / "EXPECTED_correlations.json").read_text())
    with (SHARED / "tables" / "alpacaeval_benchmarks_vs_arena.csv").open() as file:
        models = list(csv.DictReader(file))
    for pair, figures in expected["alpacaeval_benchmarks_vs_arena"].items():
        x, y = ([float(model[name]) if model[name] else None for model in models] for name in pair.split(" ~ "))
        assert len(paired_columns(x, y)[0]) == figures["n"]
        assert pearson(x, y) == pytest.approx(figures["pearson"], abs=1e-6)
        assert spearman(x, y) == pytest.approx(figures["spearman"], abs=1e-6)
        assert kendall(x, y) == pytest.approx(figures["kendall_tau_b"], abs=1e-6)


@pytest.mark.parametrize("statistic", STATISTICS)
def test_many_rows_at_once_are_what_single_rows_give(statistic: str) -> None:
    generator = np.random.default_rng(4)
    xs, ys = generator.integers(0, 6, size=(2, 40, 7)).astype(float)  # with many ties
    xs[0] = 1.0
    found = coefficient_of_each(xs, ys, statistic)  # type: ignore[arg-type]
    assert np.isnan(found[0])
    single = [partial(coefficient, statistic=statistic)(list(x), list(y)) for x, y in zip(xs[1:], ys[1:], strict=True)]
    assert found[1:] == pytest.approx([np.nan if value is None else value for value in single], nan_ok=True)


@pytest.mark.parametrize("statistic", STATISTICS)
@pytest.mark.parametrize("models", [2, 3, 30])
def test_rows_do_not_touch_each_other(statistic: str, models: int) -> None:
    generator = np.random.default_rng(5)
    xs, ys = generator.integers(0, 2 + models // 3, size=(2, 700, models)).astype(float)  # ties; more than one chunk
    together = coefficient_of_each(xs, ys, statistic)  # type: ignore[arg-type]
    alone = [coefficient_of_each(xs[[row]], ys[[row]], statistic)[0] for row in range(700)]  # type: ignore[arg-type]
    assert together == pytest.approx(alone, abs=1e-12, nan_ok=True)


@pytest.mark.parametrize("statistic", [name for name in STATISTICS if name != "pearson"])
def test_orders_give_what_their_scores_give(statistic: str) -> None:
    orders = np.array(list(itertools.permutations(range(5))), dtype=np.int16)
    found = coefficient_of_orders(orders, statistic)  # type: ignore[arg-type]
    places = list(range(5))
    assert found == pytest.approx([partial(coefficient, statistic=statistic)(places, list(order)) for order in orders])


@pytest.mark.parametrize("statistic", ["spearman", "kendall", "ndcg", "rbo"])
def test_orders_of_tied_scores(statistic: str) -> None:
    x, y = np.array([0.0, 0, 0, 1, 2]), np.array([0.0, 1, 1, 2, 2])
    orders = np.array(list(itertools.permutations(range(5))), dtype=np.int16)
    found = coefficient_of_orders(orders, statistic, benchmark=x, downstream=y)  # type: ignore[arg-type]
    assert found == pytest.approx([partial(coefficient, statistic=statistic)(x, y[order]) for order in orders])


def test_weighted_tau_with_a_tie_by_hand() -> None:
    # Scores (3, 2, 2) and (3, 1, 2). Ranked by either side with ties broken by the other: a, c, b with weights
    # 1, 1/2, 1/3. Both pairs with a agree, weights 3/2 and 4/3; the pair b, c is tied in x and counts in y alone, 5/6.
    agree, untied_x, untied_y = 3 / 2 + 4 / 3, 3 / 2 + 4 / 3, 3 / 2 + 4 / 3 + 5 / 6
    assert weighted_tau([3, 2, 2], [3, 1, 2]) == pytest.approx(agree / np.sqrt(untied_x * untied_y))


def test_rbo_with_a_tie_by_hand() -> None:
    # First a, then b and c tied; against a, b, c. Agreement 1 at depth 1, (1 + 1/2) / 2 at depth 2, 1 at depth 3:
    # (1 - p) (1 + p 3/4 + p^2) + p^3.
    p = 0.9
    assert rbo([2, 1, 1], [3, 2, 1], p=p) == pytest.approx((1 - p) * (1 + 0.75 * p + p * p) + p**3)


def test_ndcg_with_ties_on_both_sides_by_hand() -> None:
    # Downstream ranks 1, 2.5, 2.5 of three: gains 7, 2^1.5 - 1 twice. The benchmark ties the first two places.
    low = 2**1.5 - 1
    first, second, third = 1.0, 1 / np.log2(3), 0.5
    found = (first + second) / 2 * (7 + low) + third * low
    best = first * 7 + (second + third) * low
    assert ndcg([2, 2, 1], [9, 5, 5]) == pytest.approx(found / best)


def test_ndcg_agrees_with_scikit_learn() -> None:
    from sklearn.metrics import ndcg_score

    x, y = [5.0, 4, 3, 2, 1], [2.0, 5, 1, 4, 3]
    ranks = np.array([4, 1, 5, 2, 3])
    assert ndcg(x, y) == pytest.approx(ndcg_score([2.0 ** (6 - ranks) - 1], [x]))
    assert ndcg(x, y, gain="linear") == pytest.approx(ndcg_score([6 - ranks], [x]))
