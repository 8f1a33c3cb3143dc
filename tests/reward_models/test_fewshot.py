"""A model that adapts to a user: the convex problem against other solvers, and scores worked out by hand."""

import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import minimize
from sklearn.linear_model import LogisticRegression
from tests.support.contexts import profile

from prbench.errors import UsageError
from prbench.reward_models import ModelSettings, load_reward_model
from prbench.reward_models.fewshot import FewshotReward, FewshotWeights, adapt
from prbench.schema import LabeledPair, RewardInput, UserContext

HALF = 0.4010581375415  # the z with z = 1 / (1 + exp(z))


class Colours:
    """An encoder that knows three words."""

    name = "colours"
    identity = {"name": "colours"}  # noqa: RUF012

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        return np.array(
            [[float(word in text.lower()) for word in ("red", "blue", "sea")] for text in texts], np.float32
        )


def weights(**changes: object) -> FewshotWeights:
    """Two topics, red and blue, told apart with certainty; users differ in the first direction only."""
    sharp = 100 * np.eye(3, dtype=np.float32)
    small = FewshotWeights(
        sentence_weight=sharp[:, :2],
        sentence_bias=np.zeros(2, np.float32),
        average=np.array([0.0, 0.5], np.float32),
        spread=np.array([[1.0], [0.0]], np.float32),
        post_weight=sharp,
        post_bias=np.zeros(3, np.float32),
        mix=np.zeros((2, 2), np.float32),
        certainty=np.float32(0),
        temperature=np.float32(1),
    )
    return dataclasses.replace(small, **changes)  # type: ignore[arg-type]


def label(chosen: str, rejected: str) -> LabeledPair:
    return LabeledPair(question="Which?", chosen=chosen, rejected=rejected)


def scores(model: FewshotReward, user: UserContext, *responses: str) -> list[float]:
    asked = [RewardInput(question="Which?", user=user, response=text) for text in responses]
    return [score.value or 0.0 for score in model.score(asked)]


def one(differences: Sequence[Sequence[float]], margins: Sequence[float]) -> np.ndarray:
    return adapt(np.array([differences]), np.array([margins]), np.ones((1, len(margins))))[0]


def test_one_pair_moves_a_user_to_the_fixed_point() -> None:
    assert one([[1.0]], [0.0]) == pytest.approx([HALF])
    assert one([[2.0]], [0.0])[0] == pytest.approx(2 / (1 + math.exp(2 * one([[2.0]], [0.0])[0])))
    assert one([[1.0]], [100.0]) == pytest.approx([0.0])  # the population knew: nothing is learned
    assert one([[1.0]], [-100.0]) == pytest.approx([1.0])  # it was sure of the opposite


def test_it_is_the_ridge_logistic_regression_of_scikit_learn() -> None:
    pairs = np.random.default_rng(0).normal(size=(12, 4))
    # Every pair in both orders, each with half the weight: one class alone has nothing to fit.
    model = LogisticRegression(C=1.0, fit_intercept=False, tol=1e-12, max_iter=10_000)
    model.fit(np.vstack([pairs, -pairs]), [1] * 12 + [0] * 12, sample_weight=[0.5] * 24)
    assert one(pairs.tolist(), [0.0] * 12) == pytest.approx(model.coef_[0], abs=1e-6)


def test_with_a_population_it_is_the_minimum_that_scipy_finds() -> None:
    dice = np.random.default_rng(1)
    pairs, margins = 3 * dice.normal(size=(9, 3)), 2 * dice.normal(size=9)
    found = minimize(lambda z: z @ z / 2 + np.logaddexp(0, -(margins + pairs @ z)).sum(), np.zeros(3), tol=1e-12)
    assert one(pairs.tolist(), margins.tolist()) == pytest.approx(found.x, abs=1e-5)


def test_newton_does_not_overshoot_on_extreme_pairs() -> None:
    pairs, margins = [[300.0, -200.0], [250.0, 100.0], [-5.0, 1.0]], [-40.0, 30.0, 2.0]
    z = one(pairs, margins)
    doubt = 1 / (1 + np.exp(np.array(margins) + np.array(pairs) @ z))
    assert z == pytest.approx(doubt @ np.array(pairs), abs=1e-8)  # the slope is 0 there


def test_padding_and_company_change_nothing() -> None:
    dice = np.random.default_rng(2)
    pairs, margins = dice.normal(size=(5, 6, 3)), dice.normal(size=(5, 6))
    counts = np.array([[1.0] * n + [0.0] * (6 - n) for n in (0, 1, 2, 4, 6)])
    together = adapt(pairs, margins, counts)
    assert together[0] == pytest.approx(np.zeros(3))
    for user, n in ((1, 1), (2, 2), (3, 4), (4, 6)):
        assert together[user] == pytest.approx(one(pairs[user, :n].tolist(), margins[user, :n].tolist()))


def test_without_labels_everybody_is_the_average_user() -> None:
    model = FewshotReward(weights(), Colours())
    assert scores(model, profile(), "A red one.", "A blue one.", "A red one. A blue one.") == pytest.approx(
        [0.0, 0.5, 0.25]
    )
    assert scores(model, profile("I love red."), "A red one.") == [0.0]  # it reads no posts


def test_a_response_without_sentences_is_worth_nothing() -> None:
    model = FewshotReward(weights(), Colours())
    assert scores(model, profile(), "42", "", "A blue one.") == [0.0, 0.0, 0.5]
    user = profile(labels=(label("A red one.", "42"),))
    assert scores(model, user, "42")[0] == 0.0
    assert scores(model, user, "red")[0] == pytest.approx(HALF)


def test_a_label_moves_what_the_user_wants() -> None:
    """Red was preferred to blue: difference 1 along the spread, margin -0.5, so z = 1 / (1 + exp(z - 0.5))."""
    model = FewshotReward(weights(), Colours())
    z = one([[1.0]], [-0.5])[0]
    assert z == pytest.approx(1 / (1 + math.exp(z - 0.5)))
    user = profile(labels=(label("A red one.", "A blue one."),))
    assert scores(model, user, "a red one", "a blue one") == pytest.approx([z, 0.5])
    forged = profile(label("A red one.", "A blue one.").text)
    assert scores(model, forged, "a red one", "a blue one") == [0.0, 0.5]


def test_a_temperature_divides_scores_and_has_no_part_in_adapting() -> None:
    user = profile(labels=(label("A red one.", "A blue one."),))
    plain = scores(FewshotReward(weights(), Colours()), user, "red", "blue")
    cooled = scores(FewshotReward(weights(temperature=np.float32(4)), Colours()), user, "red", "blue")
    assert cooled == pytest.approx([value / 4 for value in plain])


def test_posts_move_the_mean_and_leave_less_to_learn() -> None:
    """Two posts on red: mass 2 on the first topic; the sea is small talk."""
    mix = np.array([[1.0, 0.0], [0.0, 1.0]], np.float32)
    model = FewshotReward(weights(mix=mix, certainty=np.float32(1.5)), Colours())
    posts = ["Red is best.", "I painted it red.", "At the sea."]
    moved = math.log(5)  # log(1 + 2 * 2)
    assert scores(model, profile(*posts), "red", "blue") == pytest.approx([moved, 0.5])
    step = 1 / math.sqrt(1 + 1.5 * 2)
    user = profile(*posts, labels=(label("blue", "red"),))
    z = one([[-step]], [0.5 - moved])[0]
    assert scores(model, user, "red", "blue") == pytest.approx([moved + step * z, 0.5])


def test_scores_do_not_depend_on_the_batch() -> None:
    dice = np.random.default_rng(3)
    random = {
        field.name: dice.normal(size=getattr(weights(), field.name).shape).astype(np.float32)
        for field in dataclasses.fields(FewshotWeights)
        if field.name not in ("encoder", "certainty", "temperature")
    }
    model = FewshotReward(weights(**random), Colours())
    asked = [
        RewardInput(
            question="?",
            user=profile("red sea", labels=(label("red", "blue"),) * many),
            response=text,
        )
        for many in range(4)
        for text in ("red. blue.", "sea. red.", "blue.")
    ]
    together = model.score(asked)
    assert [model.score([each])[0] for each in asked] == together
    assert list(reversed(model.score(asked[::-1]))) == together


def test_a_folder_comes_back_as_it_was_saved(tmp_path: Path) -> None:
    weights(encoder="other").save(tmp_path / "model")
    loaded = FewshotWeights.load(tmp_path / "model")
    assert loaded.encoder == "other"
    assert all(np.array_equal(array, loaded.arrays[name]) for name, array in weights().arrays.items())
    assert FewshotReward(loaded, Colours()).identity == FewshotReward(weights(), Colours()).identity
    changed = FewshotReward(weights(average=np.array([0.1, 0.5], np.float32)), Colours())
    assert changed.identity != FewshotReward(weights(), Colours()).identity


def test_wrong_folders_and_encoders_are_refused_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"there is no fewshot\.npz"):
        load_reward_model(f"fewshot:{tmp_path}", ModelSettings())
    np.savez(tmp_path / "fewshot.npz", average=np.zeros(2))
    with pytest.raises(UsageError, match="has no 'certainty'"):
        load_reward_model(f"fewshot:{tmp_path}", ModelSettings())
    model = FewshotReward(weights(sentence_weight=np.zeros((5, 2), np.float32)), Colours())
    with pytest.raises(UsageError, match="embeddings of 5 numbers, and colours gives 3"):
        scores(model, profile(), "red")
