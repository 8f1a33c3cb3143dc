"""Rewards: any model of ours, the oracle, noise and failures that hang on the text alone, and nothing that leaks."""

from collections.abc import Sequence
from statistics import fmean, stdev
from typing import Any

import pytest
from tests.support.contexts import profile

from prbench.errors import DataError, UsageError
from prbench.lab import LabSize, make_split
from prbench.ppo.rewards import (
    Candidate,
    FailingReward,
    ModelReward,
    NoisyReward,
    OracleReward,
    load_reward,
)
from prbench.reward_models import ModelSettings
from prbench.reward_models.base import Loaded
from prbench.reward_models.fake import FakeReward
from prbench.reward_models.scores import too_long
from prbench.schema import Aspect, Example, RewardInput, Score, User

SETTINGS = ModelSettings(seed=3)


def candidate(response: str, *, posts: Sequence[str] = (), **changes: Any) -> Candidate:
    example = Example(id="e", user=User(id="u"), question="Which?", chosen="a", rejected="b", **changes)
    return Candidate(example=example, user=profile(*posts), response=response)


def test_a_model_sees_question_context_and_answer_and_nothing_else() -> None:
    fake = FakeReward(lambda given: float(len(given.response)))
    reward = ModelReward(Loaded(spec="fake", kind="fake", model=fake, identity=fake.identity))
    asked = candidate(
        "Seeds.", posts=["I garden."], rubric=(Aspect(aspect="SECRET-RUBRIC"),), narrative="SECRET-STORY"
    )
    assert [score.value for score in reward.score([asked])] == [6.0]
    (given,) = fake.inputs
    assert (given.question, given.response) == ("Which?", "Seeds.")
    assert "I garden." in given.context
    assert "SECRET" not in repr(given)


def test_posts_are_dropped_before_an_answer_is_cut() -> None:
    class Narrow:
        """Takes no context of more than 90 characters."""

        def __init__(self) -> None:
            self.seen: list[RewardInput] = []

        def score(self, inputs: Sequence[RewardInput]) -> list[Score]:
            self.seen += inputs
            return [Score(value=1.0) if len(each.context) <= 90 else too_long(200, 90) for each in inputs]

    model = Narrow()
    loaded = Loaded(
        spec="narrow", kind="custom", model=model, fits=lambda each: len(getattr(each, "context", "")) <= 90
    )
    (score,) = ModelReward(loaded).score([candidate("The whole answer.", posts=["short", "x" * 200])])
    assert score.value == 1.0
    assert model.seen[-1].response == "The whole answer."
    assert "short" in model.seen[-1].context
    assert "xxx" not in model.seen[-1].context


def test_a_model_that_only_compares_is_refused() -> None:
    class Judge:
        def prefer(self, pairs: Any) -> list[Any]:
            return []

    with pytest.raises(UsageError, match="only compares"):
        ModelReward(Loaded(spec="judge:x", kind="judge", model=Judge()))


def test_the_oracle_knows_what_the_user_wants() -> None:
    examples = list(make_split("train", LabSize(users=40, pairs=24)))
    reward = load_reward("oracle", SETTINGS)
    assert isinstance(reward, OracleReward)
    chosen = reward.score([Candidate(example=each, user=profile(), response=each.chosen) for each in examples])
    rejected = reward.score([Candidate(example=each, user=profile(), response=each.rejected) for each in examples])
    assert all((one.value or 0) > (other.value or 0) for one, other in zip(chosen, rejected, strict=True))


def test_the_oracle_needs_the_lab() -> None:
    with pytest.raises(DataError, match="needs --data lab"):
        load_reward("oracle", SETTINGS).score([candidate("Anything.")])


def test_noise_hangs_on_the_text_and_the_seed() -> None:
    inner = load_reward("fake:constant", SETTINGS)
    asked = [candidate(f"answer {number}") for number in range(2000)]
    noisy = [score.value or 0.0 for score in NoisyReward(inner, deviation=0.5, seed=1).score(asked)]
    assert fmean(noisy) == pytest.approx(0, abs=0.05)
    assert stdev(noisy) == pytest.approx(0.5, rel=0.05)
    again = NoisyReward(inner, deviation=0.5, seed=1).score(asked[::-1])[::-1]
    assert [score.value for score in again] == noisy
    assert NoisyReward(inner, deviation=0.5, seed=2).score(asked[:1])[0].value != noisy[0]


def test_failures_come_at_the_asked_rate_and_are_no_number() -> None:
    reward = FailingReward(load_reward("fake:constant", SETTINGS), share=0.05, seed=0)
    scores = reward.score([candidate(f"answer {number}") for number in range(2000)])
    failures = [score for score in scores if score.value is None]
    assert 60 < len(failures) < 140
    assert all(score.detail == "injected failure" for score in failures)


def test_specs_may_end_in_noise_and_failures_and_both_change_the_identity() -> None:
    plain, noisy = load_reward("fake:length", SETTINGS), load_reward("fake:length+noise=0.5+fail=0.1", SETTINGS)
    assert isinstance(noisy, FailingReward)
    assert noisy.identity["of"]["of"] == plain.identity
    assert (noisy.identity["fail"], noisy.identity["of"]["noise"]) == (0.1, 0.5)
    with pytest.raises(UsageError, match="no number"):
        load_reward("fake:length+noise=-.-", SETTINGS)


@pytest.mark.parametrize("ending", ["+noise=1e999", "+noise=-1", "+fail=-0.5"])
def test_an_amount_is_finite_and_not_negative(ending: str) -> None:
    with pytest.raises(UsageError, match="negative or not finite"):
        load_reward(f"fake:length{ending}", SETTINGS)
