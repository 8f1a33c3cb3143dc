"""Of several problems, the one that stands for all."""

from itertools import permutations

import pytest

from prbench.schema import Problem, Score, gravest


@pytest.mark.parametrize(
    "problems,worst",
    [
        ((Problem.NO_VERDICT, Problem.OUT_OF_TOKENS, Problem.FAILED), Problem.FAILED),
        ((Problem.TOO_LONG, Problem.WRONG_MODEL, Problem.OUT_OF_TOKENS), Problem.WRONG_MODEL),
        ((Problem.NO_VERDICT, Problem.TOO_LONG, Problem.OUT_OF_TOKENS), Problem.OUT_OF_TOKENS),
    ],
)
def test_a_broken_request_counts_most_and_then_one_that_is_asked_again(
    problems: tuple[Problem, ...], worst: Problem
) -> None:
    for order in permutations(problems):
        found = gravest(Score(value=None, problem=problem) for problem in order)
        assert found is not None
        assert found.problem is worst


def test_of_equal_weight_the_first_counts() -> None:
    scores = [Score(value=None, problem=problem) for problem in (Problem.TOO_LONG, Problem.NO_VERDICT)]
    assert gravest(scores) is scores[0]
    assert gravest(reversed(scores)) is scores[1]


def test_without_a_problem_there_is_none() -> None:
    assert gravest([]) is None
