"""What a response touches in a user's posts: features by hand, the regression by another solver."""

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import minimize
from tests.support.contexts import profile

from prbench.errors import DataError, UsageError
from prbench.reward_models import ModelSettings, load_reward_model
from prbench.reward_models.match import (
    USER_FEATURES,
    Features,
    Matcher,
    MatchWeights,
    Stance,
    score_features,
)
from prbench.schema import Example, Json, Post, RewardInput, User
from prbench.training.data import make_training_data
from prbench.training.folder import no_progress
from prbench.training.match import LIGHT, MatchConfig, fit_pairs, pair_loss, train_match

AXES = ("trains", "planes", "food")


class AxisEncoder:
    """One axis per known word: the vector of a text is the direction of the words in it."""

    name = "axes"
    identity: dict[str, Json] = {"encoder": "axes"}  # noqa: RUF012

    def encode(self, texts: list[str]) -> NDArray[np.float32]:
        raw = np.array([[float(axis in text.lower()) for axis in AXES] + [0.1] for text in texts])
        return (raw / np.linalg.norm(raw, axis=1, keepdims=True)).astype(np.float32)


def asked(response: str, *posts: str, question: str = "How do I get to Rome?") -> RewardInput:
    return RewardInput(question=question, user=profile(*posts), response=response)


def by_name(features: Features, row: int = 0) -> dict[str, float]:
    return dict(zip(USER_FEATURES, features.user[row].tolist(), strict=True))


def test_likes_and_dislikes_are_touched_apart() -> None:
    posts = ("I prefer trains over planes.",)
    touched = Matcher(AxisEncoder()).features([asked("Take trains.", *posts), asked("Take planes.", *posts)])
    train, plane = by_name(touched, 0), by_name(touched, 1)
    same, other = 1.0, 0.01 / 1.01  # cosines of texts with the same word and with two different ones
    assert train["near_for"] == pytest.approx(same, abs=1e-6)
    assert train["near_against"] == pytest.approx(other, abs=1e-6)
    assert plane["near_for"] == pytest.approx(other, abs=1e-6)
    assert plane["near_against"] == pytest.approx(same, abs=1e-6)
    assert (train["words_for"], train["words_against"]) == (1, 0)
    assert (plane["words_for"], plane["words_against"]) == (0, 1)
    assert train["near_neither"] == train["words_neither"] == 0  # there is no such clause
    assert touched.has_posts.all()


def test_what_was_asked_about_counts_and_its_words_do_not() -> None:
    matcher, posts = Matcher(AxisEncoder()), ("I love trains.",)
    about_trains = by_name(matcher.features([asked("Take trains.", *posts, question="Which trains?")]))
    about_rome = by_name(matcher.features([asked("Take trains.", *posts)]))
    assert about_trains["near_and_asked_for"] == pytest.approx(1.0, abs=1e-6)
    assert about_rome["near_and_asked_for"] == pytest.approx(0.1 / 1.01**0.5, abs=1e-6)
    assert (about_trains["words_for"], about_rome["words_for"]) == (0, 1)


def test_without_posts_all_that_is_known_is_the_response() -> None:
    features = Matcher(AxisEncoder()).features([asked("Take trains.")])
    assert not features.user.any()
    assert not features.has_posts.any()
    one, zero = np.float32(1), np.zeros(5, dtype=np.float32)
    weights = MatchWeights(
        alone=zero + one, known_free=zero, known_user=np.ones(len(USER_FEATURES), np.float32), scale=one * 2
    )
    cosine = 0.1 / 1.01**0.5  # of "Take trains." and the question
    assert score_features(weights, features)[0] == pytest.approx(2 * (1.1 / 1.01**0.5 + cosine), abs=1e-5)


def test_the_regression_is_the_minimum_of_its_formula() -> None:
    dice = np.random.default_rng(0)
    differences = dice.normal(size=(60, 5)) + np.array([0.5, 0, -0.3, 0.8, 0])
    differences[:, 4] = 0.0  # a feature that never differs gets no weight
    spread = np.sqrt((differences**2).mean(axis=0))
    share = np.array([1, 1, LIGHT, LIGHT, LIGHT])

    def formula(weights: NDArray[np.float64]) -> float:
        loss = np.logaddexp(0, -(differences @ weights)).mean()
        return float(1000 * loss + 30 / 2 * (share * (spread * weights) ** 2).sum())

    expected = minimize(formula, np.zeros(5), method="BFGS", options={"gtol": 1e-6}).x
    np.testing.assert_allclose(fit_pairs(differences, 2, 30.0), expected, atol=2e-4)


def test_the_loss_is_bradley_terry() -> None:
    assert pair_loss(np.array([0.0, np.log(3)])) == pytest.approx((np.log(2) + np.log(4 / 3)) / 2)


def rows(count: int, name: str) -> list[Example]:
    """People who take one thing over another, and responses that suit them or not."""
    made = []
    for number in range(count):
        liked, other = ("trains", "planes") if number % 2 else ("planes", "trains")
        user = User(id=f"{name}{number}", profile=(Post(id=f"{name}{number}", text=f"Day {number}. I love {liked}."),))
        made.append(
            Example(
                id=f"{name}{number}",
                user=user,
                question=f"How do I travel on day {number}?",
                chosen=f"Take {liked} on day {number}.",
                rejected=f"Take {other} on day {number}.",
            )
        )
    return made


@pytest.fixture
def axes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("prbench.backends.encoders._load_once", lambda name: AxisEncoder())


@pytest.mark.usefixtures("axes")
def test_a_trained_folder_tells_users_apart_and_its_seed_changes_nothing(tmp_path) -> None:  # type: ignore[no-untyped-def]
    data = make_training_data(rows(40, "a"), rows(20, "b"))
    trained = train_match(data, MatchConfig(), tmp_path / "one", no_progress)
    train_match(data, MatchConfig(seed=7), tmp_path / "two", no_progress)
    assert MatchWeights.load(tmp_path / "one").hash == MatchWeights.load(tmp_path / "two").hash
    assert trained.spec == f"match:{tmp_path / 'one'}"
    assert trained.facts["validation_accuracy"] == 1.0
    model = load_reward_model(trained.spec, ModelSettings()).model
    likes = [asked(f"Take {thing} today.", f"I love {loved}.") for loved in AXES[:2] for thing in AXES[:2]]
    scores = [score.value for score in model.score(likes)]
    assert scores[0] > scores[1]
    assert scores[3] > scores[2]
    alone = [score.value for score in model.score([asked("Take trains."), asked("Take planes.")])]
    assert alone[0] == pytest.approx(alone[1], abs=0.2)  # half of the training users love each


@pytest.mark.usefixtures("axes")
def test_a_model_that_knows_no_users_does_not_look_at_posts(tmp_path) -> None:  # type: ignore[no-untyped-def]
    data = make_training_data(rows(40, "a"), rows(20, "b"))
    trained = train_match(data, MatchConfig(knows_users=False), tmp_path, no_progress)
    assert trained.context == "none"
    model = load_reward_model(trained.spec, ModelSettings()).model
    one, other = (model.score([asked("Take trains.", *posts)])[0] for posts in ((), ("I love planes.",)))
    assert one == other


@pytest.mark.usefixtures("axes")
def test_what_cannot_be_trained_gets_one_line(tmp_path) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(UsageError, match="posts=0 cannot be used"):
        MatchConfig(posts=0)
    with pytest.raises(UsageError, match="penalty=-1 cannot be used"):
        MatchConfig(penalty=-1)
    bare = [Example(id=one.id, user=User(id=one.user.id, profile=()), question="Q?", chosen="A", rejected="B")
            for one in rows(4, "c")]  # fmt: skip
    with pytest.raises(DataError, match="no row of the train split has a post"):
        train_match(make_training_data(bare[:2], bare[2:]), MatchConfig(), tmp_path, no_progress)


def test_another_folder_is_refused(tmp_path) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(UsageError, match=r"there is no match\.npz in that folder"):
        MatchWeights.load(tmp_path)
    np.savez(tmp_path / "match.npz", alone=np.zeros(2))
    with pytest.raises(UsageError, match="has no 'known_free', so it is no model of ours"):
        MatchWeights.load(tmp_path)


def test_every_stance_has_its_features() -> None:
    assert len(USER_FEATURES) == 3 * len(Stance) + 2
