"""Wants out of rubrics: correlations by hand, groups of a population that wants two things."""

from collections.abc import Sequence

import numpy as np
import pytest

from prbench.schema import Aspect, Example, User
from prbench.training.summary import StatementBank, correlation, make_statements


class Letters:
    """An encoder by four words: two subjects and two wants."""

    name = "letters"
    identity = {"name": "letters"}  # noqa: RUF012

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        words = ("tea", "walk", "cheap", "quick", "other")
        counts = np.array([[word in text.lower() for word in words] for text in texts], dtype=np.float32)
        return counts / np.maximum(np.linalg.norm(counts, axis=1, keepdims=True), 1)


def asks(user: str, question: str, *aspects: str) -> Example:
    rubric = tuple(Aspect(aspect=aspect) for aspect in aspects)
    return Example(id=user + question, user=User(id=user), question=question, chosen="a", rejected="b", rubric=rubric)


POPULATION = [
    asks("thrifty", "Tea?", "cheap tea"),
    asks("thrifty", "Walk?", "cheap walk"),
    asks("hasty", "Tea?", "quick tea"),
    asks("hasty", "Walk?", "quick walk"),
    asks("both", "Tea?", "cheap tea", "quick tea"),
    asks("both", "Walk?", "cheap walk", "quick walk"),
]


def test_aspects_that_the_same_users_want_correlate_fully() -> None:
    """Columns 0 and 1 agree for all users, column 2 is their opposite; without a prior the texts do not matter."""
    wanted = np.array([[1, 1, -1], [-1, -1, 1], [1, 1, -1], [-1, -1, 1]], dtype=float)
    found = correlation(wanted, np.zeros((3, 3)), assumed=0.0)
    assert found == pytest.approx(np.array([[1, 1, -1], [1, 1, -1], [-1, -1, 1]], dtype=float))


def test_few_users_are_drawn_towards_the_nearness_of_the_texts() -> None:
    """Two users say 1, two assumed ones say 0.5: (2 * 1 + 2 * 0.5) / 4."""
    wanted = np.array([[1, 1], [-1, -1]], dtype=float)
    assert correlation(wanted, np.full((2, 2), 0.5), assumed=2.0) == pytest.approx(np.full((2, 2), 0.75))


def test_an_aspect_that_everybody_wants_tells_nothing_and_divides_by_nothing() -> None:
    found = correlation(np.ones((3, 2)), np.zeros((2, 2)), assumed=1.0)
    assert found == pytest.approx(np.zeros((2, 2)))


def test_wants_go_across_questions_and_are_stated_in_the_words_of_a_row() -> None:
    bank = make_statements(POPULATION, Letters())
    assert len(bank.statements) == 2
    assert bank.group_of["cheap tea."] == bank.group_of["cheap walk."] != bank.group_of["quick tea."]
    assert set(bank.statements) <= set(bank.group_of)


def test_labels_are_of_the_user_and_say_what_nobody_asked() -> None:
    bank = StatementBank(("cheap", "quick", "quiet"), {"cheap tea.": 0, "quick tea.": 1, "quiet walk.": 2})
    rows = [asks("thrifty", "Tea?", "cheap tea"), asks("hasty", "Tea?", "quick tea"), asks("silent", "Walk?")]
    labels, sure = bank.labels(rows)
    assert labels.tolist() == [[1, 0, 0], [0, 1, 0], [0, 0, 0]]
    assert sure.tolist() == [[1, 1, 0.2], [1, 1, 0.2], [0, 0, 0]]


def test_as_many_groups_as_asked_for_and_no_more_than_there_are_aspects() -> None:
    assert len(make_statements(POPULATION, Letters(), 3).statements) == 3
    assert len(make_statements(POPULATION, Letters(), 9).statements) == 4
