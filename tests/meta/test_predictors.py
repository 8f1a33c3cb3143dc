"""Which predictor to trust: the right one, none, or a mix, and never one that only fits these models."""

import numpy as np
import pytest

from prbench.insight.meta.board import BoardPair, board_of_scores
from prbench.insight.meta.predictors import MEAN, SINGLE, WEIGHTED, recommend


def pairs(columns: dict[str, np.ndarray], downstream: np.ndarray) -> list[BoardPair]:
    names = [f"m{place}" for place in range(len(downstream))]
    down = board_of_scores("down", dict(zip(names, downstream, strict=True)))
    return [
        BoardPair(benchmark=board_of_scores(name, dict(zip(names, values, strict=True))), downstream=down)
        for name, values in columns.items()
    ]


def test_the_best_comes_first_with_paired_intervals() -> None:
    generator = np.random.default_rng(0)
    truth = generator.normal(size=24)
    columns = {"noise": generator.normal(size=24), "good": truth + 0.2 * generator.normal(size=24)}
    found = recommend(pairs(columns, truth))
    assert found is not None
    assert [each.name for each in found.predictors] == ["good", "noise"]
    assert found.predictors[0].behind_best is None
    assert found.predictors[1].behind_best.low > 0
    assert found.use == "good"
    assert "ahead of all others" in found.sentence
    assert [way.name for way in found.ways] == [SINGLE, MEAN, WEIGHTED]


def test_a_predictor_that_points_down_counts_by_its_size() -> None:
    generator = np.random.default_rng(1)
    truth = generator.normal(size=20)
    columns = {"bias": -truth + 0.1 * generator.normal(size=20), "weak": truth + 3 * generator.normal(size=20)}
    found = recommend(pairs(columns, truth))
    assert found is not None
    assert found.use == "bias"
    assert found.weights == {"bias": -1.0}
    assert found.predictors[0].spearman < -0.9


def test_two_halves_are_better_together() -> None:
    generator = np.random.default_rng(2)
    one, two = generator.normal(size=(2, 40))
    found = recommend(pairs({"one": one, "two": two}, one + two))
    assert found is not None
    assert found.use in (MEAN, WEIGHTED)
    assert found.weights["one"] == pytest.approx(found.weights["two"], rel=0.3)


@pytest.mark.parametrize("seed", range(5))
def test_many_random_predictors_are_not_recommended_as_a_mix(seed: int) -> None:
    generator = np.random.default_rng(seed)
    columns = {f"p{number}": generator.normal(size=8) for number in range(12)}
    found = recommend(pairs(columns, generator.normal(size=8)))
    assert found is not None
    assert WEIGHTED not in [way.name for way in found.ways]  # eight models cannot weigh twelve predictors
    assert found.use not in (MEAN, WEIGHTED) or next(way for way in found.ways if way.name == MEAN).skill > 0
    apparent = abs(found.predictors[0].spearman)
    assert apparent > 0.4  # the best of twelve looks good on the models that chose it
    assert next(way for way in found.ways if way.name == SINGLE).skill < apparent**2


def test_too_few_models_or_predictors() -> None:
    assert recommend(pairs({"a": np.arange(5.0), "b": np.arange(5.0)}, np.arange(5.0))) is None
    assert recommend(pairs({"a": np.arange(8.0), "b": np.ones(8)}, np.arange(8.0))) is None
