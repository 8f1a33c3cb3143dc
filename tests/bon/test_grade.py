"""Grades: the lab's instrument by hand, kept once, and what could not be graded stays out."""

from pathlib import Path

import pytest
from tests.bon.conftest import ByWords, Counting

from prbench.backends.llm import FakeLLM
from prbench.context import make_context
from prbench.data.texts import sentences_of
from prbench.downstream.best_of_n.pool import Pool, PoolQuestion, make_pool
from prbench.downstream.best_of_n.scores import GRADES, grade_pool
from prbench.errors import DataError, UsageError
from prbench.judging import LabJudge, RubricJudge
from prbench.lab import default_dataset
from prbench.lab.population import load_library
from prbench.schema import Example


@pytest.fixture
def pool(questions: list[PoolQuestion], tmp_path: Path) -> Pool:
    return make_pool(questions, Counting(), make_context("none"), tmp_path, n=4, seed=0, data_hash="d")


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
