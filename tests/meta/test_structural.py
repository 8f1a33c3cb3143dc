"""The structural null: what correlation a board yields by itself."""

import numpy as np
import pytest

from prbench.errors import UsageError
from prbench.insight.meta import Choices, NullSettings, predict
from prbench.insight.meta.board import BoardPair, board_of_scores
from prbench.insight.meta.structural import (
    NullBand,
    as_accuracies,
    band_of,
    simulate_boards,
    structural_null,
    weights_for,
)
from prbench.metrics.correlation import coefficient_of_each

SMALL = NullSettings(draws=60, users=100, pairs=800)


def pair_of(scores: np.ndarray) -> BoardPair:
    board = board_of_scores("b", {f"m{place}": float(each) for place, each in enumerate(scores)})
    return BoardPair(benchmark=board, downstream=board)


def test_thirty_models_that_read_nothing_correlate() -> None:
    """Written and run apart from this code: median 0.949 (0.918 to 0.974); at 60 % or less 0.27 (-0.42 to 0.72)."""
    generator = np.random.default_rng(0)
    boards = 150
    wants = np.where(np.arange(30) < 10, 0.0, generator.uniform(0, 1, (boards, 30)))
    accuracy, value = simulate_boards(generator, wants, generator.uniform(0, 1, (boards, 30)))
    band = band_of(coefficient_of_each(accuracy, value, "spearman"))
    assert band is not None
    assert (band.low, band.median, band.high) == pytest.approx((0.918, 0.949, 0.974), abs=0.012)
    poor = [
        coefficient_of_each(x[None, x <= 0.6], y[None, x <= 0.6], "spearman")[0]
        for x, y in zip(accuracy, value, strict=True)
    ]
    near_chance = band_of(np.array(poor))
    assert near_chance is not None
    assert near_chance.median == pytest.approx(0.27, abs=0.08)
    assert near_chance.low == pytest.approx(-0.42, abs=0.2)
    assert near_chance.high == pytest.approx(0.72, abs=0.06)


def test_weights_give_the_accuracies_asked_for() -> None:
    wanted = np.array([0.45, 0.5, 0.6, 0.8, 0.95])
    generator = np.random.default_rng(0)
    follows = np.tile(np.linspace(0, 1, 5), (3, 1))
    wants = weights_for(wanted, follows, 8)
    assert wants[0, 1] == pytest.approx(0, abs=0.01)  # who knows nothing is right half of the time
    accuracy, _ = simulate_boards(generator, wants, follows, pairs=200_000, users=2)
    assert np.abs(accuracy - wanted).max() < 0.005


def test_the_band_depends_on_the_spread() -> None:
    wide = structural_null(pair_of(np.linspace(0.5, 0.9, 12)), SMALL)
    narrow = structural_null(pair_of(np.linspace(0.49, 0.51, 12)), SMALL)
    assert wide is not None
    assert narrow is not None
    assert wide.bands["spearman"].low > 0.8  # type: ignore[union-attr]
    assert narrow.bands["spearman"].low < 0 < narrow.bands["spearman"].high  # type: ignore[union-attr]
    assert set(wide.bands) == {"spearman", "kendall", "pearson", "weighted_tau", "ndcg", "rbo"}


def test_it_is_the_same_for_the_same_seed() -> None:
    one, two = (structural_null(pair_of(np.linspace(0.5, 0.9, 6)), SMALL, seed=3) for _ in range(2))
    assert one == two
    assert one != structural_null(pair_of(np.linspace(0.5, 0.9, 6)), SMALL, seed=4)


def test_what_is_assumed_is_recorded() -> None:
    found = structural_null(pair_of(np.linspace(3, 5, 6)), NullSettings(draws=20, traits=5, best_of=4))
    assert found is not None
    said = found.as_json()
    assert (said["traits"], said["best_of"], said["pairs"], said["users"]) == (5, 4, 1_600, 200)
    assert (said["models"], said["families"], said["draws"]) == (6, 6, 20)
    assert structural_null(pair_of(np.linspace(3, 5, 6)), NullSettings(draws=0)) is None
    with pytest.raises(UsageError, match="at least 2 traits"):
        NullSettings(traits=1)


@pytest.mark.parametrize(
    "scores,expected,words",
    [
        ([0.4, 0.9], [0.4, 0.9], "accuracies"),
        ([40.0, 90.0], [0.4, 0.9], "accuracies in percent"),
        ([-1.0, 1.0, 3.0], [0.5, 0.7, 0.9], "no accuracies: the least stands for 0.50 and the largest for 0.90"),
    ],
)
def test_scores_are_read_as_accuracies(scores: list[float], expected: list[float], words: str) -> None:
    found, said = as_accuracies(np.array(scores))
    assert found.tolist() == pytest.approx(expected)
    assert said == words


def test_a_band_has_an_inside() -> None:
    band = NullBand(low=0.2, median=0.4, high=0.6)
    assert [band.place(value) for value in (0.1, 0.2, 0.6, 0.7)] == ["below", "inside", "inside", "above"]


def test_the_verdict_takes_it_into_account() -> None:
    scores = np.linspace(0.5, 0.9, 12)
    models = [f"m{place}" for place in range(12)]
    order = [0, 2, 1, 3, 5, 4, 6, 7, 9, 8, 10, 11]
    benchmark = board_of_scores("b", dict(zip(models, scores, strict=True)))
    down = board_of_scores("d", {models[place]: float(rank) for rank, place in enumerate(order)})
    found = predict(benchmark, down, Choices(draws=200, permutations=500, null=SMALL))
    assert found.verdict.outcome == "no more than the design yields by itself"
    band = found.figures["spearman"].structural
    assert band is not None
    assert f"{band.low:.2f} to {band.high:.2f}" in found.verdict.sentence
    off = predict(benchmark, down, Choices(draws=200, permutations=500, null=NullSettings(draws=0)))
    assert (off.verdict.outcome, off.null) == ("predicts", None)
