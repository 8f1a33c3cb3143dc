"""Scoring and grading a pool: what is seen, what it costs, what becomes of scores and grades that cannot be had."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.bon.conftest import ByWords, Counting, worth

from prbench.backends.llm import FakeLLM
from prbench.context import make_context
from prbench.data.texts import sentences_of
from prbench.downstream.best_of_n.pool import (
    GRADES,
    Pool,
    PoolQuestion,
    RewardModelEntry,
    Scores,
    grade_pool,
    make_pool,
    score_pool,
)
from prbench.errors import DataError, UsageError
from prbench.judging import LabJudge, RubricJudge
from prbench.lab import default_dataset
from prbench.lab.population import load_library
from prbench.reward_models import ModelSettings, load_reward_model, read_ref, wrap
from prbench.reward_models.base import LoadedModel
from prbench.reward_models.fake import FakeReward
from prbench.schema import RETRIED, Example, Probe, Problem, RewardInput, Score


@pytest.fixture
def pool(questions: list[PoolQuestion], tmp_path: Path) -> Pool:
    return make_pool(questions, Counting(), make_context("none"), tmp_path, n=4, seed=0, data_hash="d")


def scored(
    pool: Pool, questions: list[PoolQuestion], model: Any, *, context: str = "profile", **loaded: Any
) -> Scores:
    made = wrap(model)
    settings = {"spec": "m", "kind": "custom", "model": made.model, "identity": {"m": 1}, **loaded}
    entry = RewardModelEntry(name="m", loaded=LoadedModel(**settings), maker=make_context(context, posts=2))
    return score_pool(pool, questions, entry, seed=0)


def test_every_answer_gets_its_score_under_both_profiles(pool: Pool, questions: list[PoolQuestion]) -> None:
    model = FakeReward(lambda each: worth(each.response))
    scores = scored(pool, questions, model)
    assert scores.values[Probe.OWN]["item-004"] == (0.0, 1.0, 2.0, 3.0)
    assert scores.values[Probe.SWAP]["item-004"] == (0.0, 1.0, 2.0, 3.0)
    first = questions[0]
    seen = [each.context for each in model.inputs if each.response.endswith("item-000")]
    assert len(seen) == 8
    assert first.donor is not None
    assert sum("User 0 wrote" in context for context in seen) == 4
    assert sum(f"User {first.donor.id[-1]} wrote" in context for context in seen) == 4


def test_all_answers_to_a_question_go_into_one_call(pool: Pool, questions: list[PoolQuestion]) -> None:
    calls: list[int] = []

    class Watching:
        def score(self, inputs: Sequence[RewardInput]) -> list[Score]:
            calls.append(len(inputs))
            return [Score(value=0.0) for _ in inputs]

    scored(pool, questions, Watching(), items_per_step=1)
    assert calls == [8] * 12  # four answers under two profiles


def test_without_a_user_nothing_is_swapped(pool: Pool, questions: list[PoolQuestion]) -> None:
    model = FakeReward(lambda each: worth(each.response))
    scores = scored(pool, questions, model, context="none")
    assert set(scores.values) == {Probe.OWN}
    assert {each.context for each in model.inputs} == {""}
    assert len(model.inputs) == 48


def test_finished_scores_are_never_computed_again(pool: Pool, questions: list[PoolQuestion]) -> None:
    model = FakeReward(lambda each: worth(each.response))
    first = scored(pool, questions[:6], model)
    before = len(model.inputs)
    assert scored(pool, questions[:6], model) == first
    assert len(model.inputs) == before
    scored(pool, questions, model)
    assert len(model.inputs) == 2 * before


def test_a_failed_score_is_no_number_and_is_tried_again(pool: Pool, questions: list[PoolQuestion]) -> None:
    class Breaking:
        def __init__(self, problem: Problem) -> None:
            self.problem, self.inputs = problem, 0

        def score(self, inputs: Sequence[RewardInput]) -> list[Score]:
            self.inputs += len(inputs)
            bad = Score(value=None, problem=self.problem, detail="time-out")
            return [bad if each.response == "worth 2 of item-005" else Score(value=1.0) for each in inputs]

    scores = scored(pool, questions, Breaking(Problem.FAILED))
    assert scores.missing[Probe.OWN] == {"item-005": "failed"}
    assert "item-005" not in scores.values[Probe.OWN]
    assert len(scores.values[Probe.OWN]) == 11
    mended = FakeReward(lambda each: 1.0)
    assert not scored(pool, questions, mended).missing[Probe.OWN]
    assert {each.response[-8:] for each in mended.inputs} == {"item-005"}
    final = Breaking(Problem.NO_VERDICT)
    scored(pool, questions, final, identity={"m": 2})
    asked = final.inputs
    assert scored(pool, questions, final, identity={"m": 2}).missing[Probe.OWN] == {"item-005": "no_verdict"}
    assert final.inputs == asked


@pytest.mark.parametrize("problem", sorted(RETRIED))
def test_what_is_worth_another_try_is_asked_again(pool: Pool, questions: list[PoolQuestion], problem: Problem) -> None:
    class Bad:
        def score(self, inputs: Sequence[RewardInput]) -> list[Score]:
            return [Score(value=None, problem=problem) for _ in inputs]

    assert len(scored(pool, questions, Bad()).missing[Probe.OWN]) == 12
    assert not scored(pool, questions, FakeReward(lambda each: 1.0)).missing[Probe.OWN]


@pytest.mark.parametrize("problem", sorted(RETRIED))
@pytest.mark.parametrize("place", [0, 3])
def test_an_unreadable_answer_does_not_hide_one_that_is_asked_again(
    pool: Pool, questions: list[PoolQuestion], problem: Problem, place: int
) -> None:
    class Bad:
        def score(self, inputs: Sequence[RewardInput]) -> list[Score]:
            found = [Score(value=None, problem=Problem.NO_VERDICT) for _ in inputs]
            for start in range(0, len(inputs), 4):  # the answers to one question
                found[start + place] = Score(value=None, problem=problem, detail="why")
            return found

    assert set(scored(pool, questions, Bad()).missing[Probe.OWN].values()) == {problem.value}
    assert not scored(pool, questions, FakeReward(lambda each: 1.0)).missing[Probe.OWN]


def test_models_do_not_overwrite_each_other(pool: Pool, questions: list[PoolQuestion]) -> None:
    one = scored(pool, questions, FakeReward(lambda each: 1.0), identity={"m": 1})
    two = scored(pool, questions, FakeReward(lambda each: 2.0), identity={"m": 2})
    assert one.id != two.id
    assert scored(pool, questions, FakeReward(lambda each: 3.0), identity={"m": 1}) == one


def test_posts_give_way_to_answers_and_never_the_reverse(pool: Pool, questions: list[PoolQuestion]) -> None:
    model = FakeReward(lambda each: 0.0)

    def fits(each: Any) -> bool:
        return len(each.context) < 100

    scored(pool, questions, model, fits=fits)
    assert all("wrote post 3" in each.context and "wrote post 2" not in each.context for each in model.inputs)
    assert {each.response for each in model.inputs} == {text for texts in pool.answers.values() for text in texts}


def test_a_question_that_fits_no_window_is_left_out(pool: Pool, questions: list[PoolQuestion]) -> None:
    scores = scored(pool, questions, FakeReward(lambda each: 0.0), fits=lambda each: "item-001" not in each.response)
    assert scores.missing[Probe.OWN] == {"item-001": "too_long"}


def test_no_rubric_reaches_a_model(pool: Pool, questions: list[PoolQuestion]) -> None:
    model = FakeReward(lambda each: 0.0)
    scored(pool, questions, model)
    assert not any("low cost" in f"{each.question}{each.context}" for each in model.inputs)


def test_a_rating_model_is_shown_user_and_answer_and_read_on_its_scale(
    pool: Pool, questions: list[PoolQuestion]
) -> None:
    # A public tool scored with the judge's template: no profile, an unfilled slot, and a list read as one number.
    loaded = load_reward_model("rating:fake:Score: 7", ModelSettings())
    entry = RewardModelEntry(name="r", loaded=loaded, maker=make_context("profile", posts=2))
    scores = score_pool(pool, questions, entry, seed=0)
    assert scores.values[Probe.OWN]["item-000"] == (7.0,) * 4
    bad = load_reward_model("rating:fake:[2, 2, 2]", ModelSettings())
    missing = score_pool(
        pool, questions, RewardModelEntry(name="b", loaded=bad, maker=make_context("none")), seed=0
    ).missing
    assert set(missing[Probe.OWN].values()) == {"no_verdict"}


def test_a_model_that_only_compares_is_refused(pool: Pool, questions: list[PoolQuestion]) -> None:
    loaded = load_reward_model("judge:fake:Result: A", ModelSettings())
    entry = RewardModelEntry(name="j", loaded=loaded, maker=make_context("none"))
    with pytest.raises(UsageError, match="only compares"):
        score_pool(pool, questions, entry, seed=0)


@pytest.mark.parametrize(
    "spec,expected",
    [
        ("head:lab-user", ("head:lab-user", "profile")),
        ("head:lab-user?context=none", ("head:lab-user", "none")),
        ("head:DIR?encoder=minilm&context=none", ("head:DIR?encoder=minilm", "none")),
        ("head:DIR?context=oracle&encoder=minilm", ("head:DIR?encoder=minilm", "oracle")),
        ("rating:openai:m@http://h/v1?x=1", ("rating:openai:m@http://h/v1?x=1", "profile")),
    ],
)
def test_a_spec_may_name_its_own_context(spec: str, expected: tuple[str, str]) -> None:
    ref = read_ref(spec)
    assert (ref.spec.text, ref.context("profile")) == expected


@pytest.mark.parametrize(
    "spec,part",
    [
        ("head:x?context=all", "Give one of: none, profile, plan, oracle"),
        ("head:x?context=none&context=plan", "given twice"),
        ("head:x?context=", "has no value"),
    ],
)
def test_a_context_that_is_none_is_refused(spec: str, part: str) -> None:
    with pytest.raises(UsageError, match=part):
        read_ref(spec)


@pytest.fixture(scope="module")
def example() -> Example:
    """A pair of the lab whose responses differ in all three sentences."""
    return next(each for each in default_dataset("test") if each.meta["aspects_differ"] == 3)


def test_the_lab_grades_wanted_minus_unwanted_and_guards_quality(example: Example) -> None:
    subject = example.meta["subject"]
    other = next(each for each in load_library().subjects if each.subject != subject)
    one_good = sentences_of(example.chosen)[0]
    answers = [
        example.chosen,
        example.rejected,
        " ".join([one_good] * 3),  # says one thing three times
        f"{one_good} {other.aspects[0].points[0]} {other.aspects[1].points[0]}",  # two thirds beside the subject
        "",
    ]
    grades = LabJudge().grade(example, answers)
    assert [grade.value for grade in grades] == pytest.approx([1, -1, 1 / 3, 1 / 3, 0])
    assert [grade.quality for grade in grades] == pytest.approx([1, 1, 1 / 3, 1 / 3, 0])


def test_a_pool_is_graded_once(pool: Pool, questions: list[PoolQuestion]) -> None:
    judge = ByWords()
    grades = grade_pool(pool, questions, judge)
    assert grades.values["item-003"] == (0, 1, 2, 3)
    assert grades.quality is None
    assert grade_pool(pool, questions, judge) == grades
    assert len(judge.graded) == 12
    (path,) = pool.folder.rglob(GRADES)
    assert path.read_text().count("\n") == 12


def test_what_cannot_be_graded_is_counted_and_tried_again(pool: Pool, questions: list[PoolQuestion]) -> None:
    grades = grade_pool(pool, questions, ByWords(unreadable=["item-007"]))
    assert grades.missing == {"item-007": "unreadable"}
    assert len(grades.values) == 11
    again = ByWords()
    assert not grade_pool(pool, questions, again).missing
    assert again.graded == ["item-007"]


def test_the_truth_is_known_of_the_lab_only(questions: list[PoolQuestion], example: Example) -> None:
    LabJudge().check([example])
    with pytest.raises(DataError, match="item-000: has no 'subject'"):
        LabJudge().check([question.example for question in questions])


def test_without_a_rubric_a_judge_has_nothing_to_grade_by(questions: list[PoolQuestion], example: Example) -> None:
    judge, examples = RubricJudge(FakeLLM("")), [question.example for question in questions]
    judge.check(examples)
    bare = Example(id="bare", user=example.user, question="What?", chosen="a", rejected="b")
    with pytest.raises(UsageError, match="bare: has no rubric aspects"):
        judge.check([*examples, bare])
