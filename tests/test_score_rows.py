"""The one function that asks a model: for one response, two, four, or a pool of them."""

from collections.abc import Sequence
from typing import Any

import pytest
from tests.support.contexts import profile

from prbench.errors import UsageError
from prbench.evaluation.score import PreparedItem, score_rows
from prbench.reward_models import wrap
from prbench.reward_models.base import LoadedModel, too_long
from prbench.reward_models.fake import FakeReward
from prbench.schema import Comparison, Example, PairInput, Pick, Probe, Problem, RewardInput, Score, User, UserContext


def item(*responses: str, user: UserContext | None = None, question: str = "Which?") -> PreparedItem:
    example = Example(id=question, user=User(id="u"), question=question, chosen="a", rejected="b")
    return PreparedItem(example=example, probe=Probe.OWN, user=user or profile("short"), responses=responses)


def lengths() -> FakeReward:
    return FakeReward(lambda each: float(len(each.response)))


@pytest.mark.parametrize("count", [1, 2, 4, 9])
def test_every_response_gets_a_score_in_its_place(count: int) -> None:
    responses = [f"r{'x' * place}" for place in range(count)]
    (row,) = score_rows([item(*responses)], wrap(lengths()))
    assert [score.value for score in row.scores] == [float(len(response)) for response in responses]


def test_items_with_different_counts_of_responses_go_together_and_equal_inputs_once() -> None:
    model = lengths()
    rows = score_rows([item("a", "bb"), item("bb", "a", "bb", "cccc"), item("a", user=UserContext())], wrap(model))
    assert [[score.value for score in row.scores] for row in rows] == [[1, 2], [2, 1, 2, 4], [1]]
    assert model.calls == 1
    assert len(model.inputs) == 4  # `a` and `bb` recur; without the user, `a` is another input


def test_what_cannot_be_asked_is_not_and_says_why() -> None:
    model = lengths()
    failed = UserContext(problem=Problem.FAILED, detail="the planner was busy")
    rows = score_rows([item("a", "b", user=failed), item("a")], wrap(model))
    assert rows[0].scores == (Score(value=None, problem=Problem.FAILED, detail="the planner was busy"),) * 2
    assert len(model.inputs) == 1


def test_posts_give_way_where_a_score_says_that_all_of_them_are_too_long() -> None:
    """An answer of PPO is not measured beforehand: its score tells."""

    class Narrow:
        def __init__(self) -> None:
            self.calls: list[list[RewardInput]] = []

        def score(self, inputs: Sequence[RewardInput]) -> list[Score]:
            self.calls.append(list(inputs))
            return [Score(value=1.0) if len(each.user.segments) < 2 else too_long(2, 1) for each in inputs]

    model = Narrow()
    loaded = LoadedModel(spec="n", kind="custom", model=model, fits=lambda each: len(each.user.segments) < 2)
    rows = score_rows([item("a", user=profile("best", "next", "last")), item("b", user=profile("one"))], loaded)
    assert [row.scores[0].value for row in rows] == [1.0, 1.0]
    assert (rows[0].item.user, rows[0].item.user.dropped) == (profile("best"), 2)
    assert [len(call) for call in model.calls] == [2, 1]
    endless = LoadedModel(spec="n", kind="custom", model=Narrow(), fits=lambda each: False)
    (row,) = score_rows([item("a", user=profile("best", "next"))], endless)
    assert row.scores[0].problem is Problem.TOO_LONG


def test_a_model_that_compares_gets_pairs_only() -> None:
    class Judge:
        def prefer(self, pairs: Sequence[PairInput]) -> list[Comparison]:
            return [Comparison(pick=Pick.FIRST) for _ in pairs]

    (row,) = score_rows([item("a", "b")], wrap(Judge()))
    assert sorted(first for first, _ in row.comparisons) == [False, True]
    with pytest.raises(UsageError, match=r"only compares pairs, and Which\? has 4 responses"):
        score_rows([item("a", "b", "c", "d")], wrap(Judge()))


def test_a_model_that_loses_an_answer_is_refused() -> None:
    class Losing:
        def score(self, inputs: Sequence[RewardInput]) -> list[Any]:
            return []

    with pytest.raises(UsageError, match="0 answers to 2 inputs"):
        score_rows([item("a", "b")], LoadedModel(spec="x", kind="custom", model=Losing()))
