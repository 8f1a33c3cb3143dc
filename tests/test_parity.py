"""Two backends side by side: figures worked out by hand."""

import pytest

from prbench.data import open_examples
from prbench.errors import UsageError
from prbench.evaluation import EvalSettings
from prbench.evaluation.parity import ScoredTwice, compare, summarize
from prbench.reward_models import LoadedModel, wrap
from prbench.reward_models.fake import FakeReward
from prbench.schema import Comparison, PairInput, Pick, Problem, RewardInput, Score

NONE = Score(value=None, problem=Problem.FAILED)


def row(number: int, side: str, first: float | None, second: float | None) -> ScoredTwice:
    scores = [NONE if value is None else Score(value=value) for value in (first, second)]
    return ScoredTwice(id=f"item-{number}", side=side, first=scores[0], second=scores[1])


def test_the_figures_of_two_pairs() -> None:
    rows = [
        row(1, "chosen", 1.0, 1.5),
        row(1, "rejected", 0.0, 0.0),
        row(2, "chosen", 3.0, 2.0),
        row(2, "rejected", 2.0, 2.25),
    ]
    found = summarize(rows, "a", "b", worst=2)
    assert (found.n, found.compared, found.only_one) == (4, 4, 0)
    assert found.max_abs == 1.0
    assert found.mean_abs == (0.5 + 0 + 1 + 0.25) / 4
    assert found.verdicts_agree == 0.5  # the second model prefers the other response of item 2
    # Ranks 2 1 4 3 and 2 1 3 4: rho = 1 - 6 (0 + 0 + 1 + 1) / (4 * 15) = 0.8.
    assert found.spearman == pytest.approx(0.8)
    assert [(each["id"], each["side"], each["abs_difference"]) for each in found.worst] == [
        ("item-2", "chosen", 1.0),
        ("item-1", "chosen", 0.5),
    ]
    assert (found.exceeds(1.0), found.exceeds(0.99)) == (False, True)


def test_a_score_that_only_one_has_is_counted_apart_and_breaks_any_tolerance() -> None:
    rows = [row(1, "chosen", 1.0, None), row(1, "rejected", 0.0, 0.0), row(2, "response", None, None)]
    found = summarize(rows, "a", "b")
    assert (found.n, found.compared, found.only_one, found.max_abs) == (3, 1, 1, 0.0)
    assert found.exceeds(100.0)


def test_without_any_common_score_there_is_no_figure() -> None:
    found = summarize([row(1, "response", None, None)], "a", "b")
    assert (found.max_abs, found.mean_abs, found.spearman, found.verdicts_agree) == (None, None, None, None)
    assert found.exceeds(0.0)


def windowed(name: str, limit: int) -> LoadedModel:
    class Model(FakeReward):
        def fits(self, each: RewardInput) -> bool:
            return len(each.context) <= limit

    return wrap(Model(lambda each: float(len(each.context)), name=name))


def test_both_models_read_the_same_context_cut_to_the_smaller_window(rows) -> None:
    with open_examples(rows(3)) as store:
        found = compare(store, windowed("wide", 100_000), windowed("narrow", 60), EvalSettings())
    assert (found.n, found.max_abs) == (6, 0.0)


def test_scores_are_compared_row_by_row(rows) -> None:
    lengths = wrap(FakeReward(lambda each: float(len(each.response)), name="lengths"))
    shifted = wrap(FakeReward(lambda each: len(each.response) + 0.25 * ("olive" in each.response), name="shifted"))
    with open_examples(rows(4)) as store:
        found = compare(store, lengths, shifted, EvalSettings(context="none"), worst=10)
    assert (found.n, found.max_abs, found.mean_abs, found.verdicts_agree) == (8, 0.25, 0.125, 1.0)
    assert [each["side"] for each in found.worst[:4]] == ["rejected"] * 4


def test_a_judge_has_no_scores_to_compare(rows) -> None:
    class Judge:
        def prefer(self, pairs: list[PairInput]) -> list[Comparison]:
            return [Comparison(pick=Pick.FIRST) for _ in pairs]

    lengths = wrap(FakeReward(lambda each: 0.0))
    with open_examples(rows(2)) as store, pytest.raises(UsageError, match="only compares"):
        compare(store, lengths, wrap(Judge()), EvalSettings())
