from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from prbench.errors import UsageError
from prbench.reward_models import ModelSettings, load_reward_model, wrap
from prbench.reward_models.base import PairJudge, RewardModel
from prbench.reward_models.fake import FakeReward
from prbench.schema import Comparison, PairInput, Pick, Problem, RewardInput, Score, UserContext

INPUTS = [
    RewardInput(question="Q", user=UserContext.from_text("C"), response=response) for response in ("a", "bb", "ccc")
]
PAIRS = [PairInput(question="Q", user=UserContext.from_text("C"), first="a", second="b")]


class Returns:
    """A user's model that returns what it was given."""

    def __init__(self, values: Any) -> None:
        self.values = values

    def score(self, inputs: Sequence[RewardInput]) -> Any:
        return self.values


class Prefers:
    """A user's judge that returns what it was given."""

    name = "my judge"
    template_hash = "ff00"

    def __init__(self, answers: Any) -> None:
        self.answers = answers
        self.identity = {"weights": "abc"}

    def prefer(self, pairs: Sequence[PairInput]) -> Any:
        return self.answers

    def fits(self, each: RewardInput | PairInput) -> bool:
        return False


def score(values: Any) -> list[Score]:
    model = wrap(Returns(values)).model
    assert isinstance(model, RewardModel)
    return model.score(INPUTS)


def test_plain_numbers_become_scores_and_none_has_no_score() -> None:
    assert score([1, np.float32(0.5), None]) == [
        Score(value=1.0),
        Score(value=0.5),
        Score(value=None, problem=Problem.NO_VERDICT),
    ]
    assert score(np.array([1.0, 2.0, 3.0]))[2].value == 3.0
    assert score([Score(value=2.0, raw="two"), 1, 1])[0] == Score(value=2.0, raw="two")


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf"), Score(value=float("nan"))])
def test_number_that_is_not_finite_is_a_failure_never_a_score(bad: Any) -> None:
    assert score([0.0, bad, 1.0])[1] == Score(value=None, problem=Problem.FAILED, detail="not a finite number")


@pytest.mark.parametrize(
    "values,fact",
    [([1.0], "1 values for 3 inputs"), (5.0, "not a list"), (["1", 2, 3], "returned a str"), ([[1], 2, 3], "a list")],
)
def test_wrong_return_is_refused_and_says_what_came_back(values: Any, fact: str) -> None:
    with pytest.raises(UsageError, match=fact):
        score(values)


def test_name_and_identity_come_from_the_object_or_its_class() -> None:
    plain, judge = wrap(Returns([])), wrap(Prefers([]))
    assert (plain.spec, plain.kind, plain.template_hash, plain.fits) == ("Returns", "custom", "", None)
    assert str(plain.identity["class"]).endswith("Returns")
    assert (judge.spec, judge.identity, judge.template_hash) == ("my judge", {"weights": "abc"}, "ff00")
    assert judge.fits is not None
    assert judge.fits(PAIRS[0]) is False


def test_scoring_object_is_no_judge_and_a_judge_scores_nothing() -> None:
    assert not isinstance(wrap(Returns([])).model, PairJudge)
    assert not isinstance(wrap(Prefers([])).model, RewardModel)


def test_picks_and_their_names_become_comparisons() -> None:
    for answer in (Pick.SECOND, "second", Comparison(pick=Pick.SECOND)):
        model = wrap(Prefers([answer])).model
        assert isinstance(model, PairJudge)
        assert model.prefer(PAIRS) == [Comparison(pick=Pick.SECOND)]


@pytest.mark.parametrize("answers", [["B"], [], [1]])
def test_wrong_preference_is_refused(answers: Any) -> None:
    model = wrap(Prefers(answers)).model
    assert isinstance(model, PairJudge)
    with pytest.raises(UsageError, match="my judge: prefer returned"):
        model.prefer(PAIRS)


def test_object_that_can_neither_score_nor_prefer_is_refused() -> None:
    with pytest.raises(UsageError, match="neither score"):
        wrap(object())


def test_fake_counts_calls_and_keeps_what_it_saw() -> None:
    fake = FakeReward(lambda each: None if each.response == "a" else 1.0)
    model = wrap(fake).model
    assert isinstance(model, RewardModel)
    assert [each.value for each in model.score(INPUTS)] == [None, 1.0, 1.0]
    assert (fake.calls, fake.inputs) == (1, INPUTS)


@pytest.mark.parametrize(
    "spec,expected",
    [("fake:constant", [0, 0, 0]), ("fake:length", [1, 2, 3]), ("fake:keyword=bb", [0, 1, 0])],
)
def test_shipped_fakes(spec: str, expected: list[float]) -> None:
    loaded = load_reward_model(spec, ModelSettings())
    assert isinstance(loaded.model, RewardModel)
    assert [each.value for each in loaded.model.score(INPUTS)] == expected


@pytest.mark.parametrize("spec", ["fake:best", "fake:keyword=", "fake:length=3"])
def test_unknown_fake_is_refused(spec: str) -> None:
    with pytest.raises(UsageError, match="There is no fake model"):
        load_reward_model(spec, ModelSettings())
