"""Rewards: any model of ours, the truth, noise and failures that hang on the text alone, and nothing that leaks."""

from collections.abc import Sequence
from typing import Any

import pytest
from tests.support.contexts import profile

from prbench.context import contexts_of, make_context
from prbench.downstream.ppo.rollout import ModelReward, RewardCandidate, load_reward
from prbench.errors import UsageError
from prbench.judging import LabJudge
from prbench.lab import LabSize, make_split
from prbench.reward_models import ModelSettings
from prbench.reward_models.base import Loaded, too_long
from prbench.reward_models.fake import FakeReward
from prbench.schema import Aspect, Example, RewardInput, Score, User

SETTINGS = ModelSettings(seed=3)
NOISE = [-0.042402632936784736, 0.008678018577077238, -0.5428912436696235]
FAILURES = (86, [13, 14, 63])


def candidate(response: str, *, posts: Sequence[str] = (), **changes: Any) -> RewardCandidate:
    example = Example(id="e", user=User(id="u"), question="Which?", chosen="a", rejected="b", **changes)
    return RewardCandidate(example=example, user=profile(*posts), response=response)


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


def test_the_truth_knows_what_the_user_wants_and_is_the_gold_of_the_example() -> None:
    examples = list(make_split("train", LabSize(users=40, pairs=24)))
    reward = load_reward("control:gold", SETTINGS)
    told = contexts_of(make_context("oracle"), examples)
    chosen, rejected = (
        [
            score.value or 0.0
            for score in reward.score(
                [
                    RewardCandidate(example=each, user=user, response=getattr(each, side))
                    for each, user in zip(examples, told, strict=True)
                ]
            )
        ]
        for side in ("chosen", "rejected")
    )
    assert all(one > other for one, other in zip(chosen, rejected, strict=True))
    assert chosen == LabJudge().values([(each, each.chosen) for each in examples])
    assert rejected == LabJudge().values([(each, each.rejected) for each in examples])


def test_noise_and_failures_depend_on_user_question_answer_and_seed() -> None:
    """The numbers are those of before the noise was an option: fixed here, so that they stay."""
    asked = [candidate(f"answer {number}", posts=["anything", str(number)]) for number in range(3)]
    noisy = [score.value for score in load_reward("fake:constant?noise=0.5", SETTINGS).score(asked)]
    assert noisy == pytest.approx(NOISE)
    reward = load_reward("fake:constant?fail=0.05", SETTINGS)
    scores = reward.score([candidate(f"answer {number}") for number in range(2000)])
    failures = [number for number, score in enumerate(scores) if score.value is None]
    assert (len(failures), failures[:3]) == FAILURES
    assert all(scores[number].detail == "injected failure" for number in failures)


def test_noise_and_failures_change_the_identity() -> None:
    plain, noisy = load_reward("fake:length", SETTINGS), load_reward("fake:length?noise=0.5&fail=0.1", SETTINGS)
    assert noisy.identity["model"]["disturbed"] == {"noise": 0.5, "fail": 0.1, "seed": 3}
    assert plain.identity["model"].keys() < noisy.identity["model"].keys()
