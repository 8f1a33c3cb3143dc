"""Small questions, a policy that counts, and a grader whose truth is written into the answers."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from prbench.backends.policy import FailedSample, Prompt, Sample
from prbench.data import open_examples
from prbench.downstream.best_of_n.pool import PoolQuestion, select_questions
from prbench.judging import Grade
from prbench.schema import Example


class Counting:
    """Answers `worth V` with V from 0 to n-1, and counts what it was asked. `failing` ids lose their last sample."""

    name = "counting"

    def __init__(self, failing: Sequence[str] = ()) -> None:
        self.identity: Mapping[str, Any] = {"policy": self.name}
        self.failing = set(failing)
        self.asked: list[str] = []
        self.prompts: list[Prompt] = []

    def sample(self, prompts: Sequence[Prompt], *, n: int, seed: int) -> list[list[Sample]]:
        self.asked += [prompt.id for prompt in prompts]
        self.prompts += prompts
        drawn = [
            [Sample(text=f"worth {(number + seed) % n} of {prompt.id}") for number in range(n)] for prompt in prompts
        ]
        return [
            [*some[:-1], FailedSample(error="HTTP 500")] if prompt.id in self.failing else some
            for prompt, some in zip(prompts, drawn, strict=True)
        ]


class ByWords:
    """Reads the worth of an answer from its second word; `odd` ids cannot be graded."""

    span = (0.0, 8.0)

    def __init__(self, unreadable: Sequence[str] = ()) -> None:
        self.identity: Mapping[str, Any] = {"judge": "words"}
        self.unreadable = set(unreadable)
        self.graded: list[str] = []

    def check(self, examples: Sequence[Example]) -> None:
        pass  # grades all

    def grade(self, example: Example, answers: Sequence[str]) -> list[Grade]:
        self.graded.append(example.id)
        if example.id in self.unreadable:
            return [Grade(value=None, problem="unreadable") for _ in answers]
        return [Grade(value=worth(answer)) for answer in answers]


def worth(answer: str) -> float:
    return float(answer.split()[1])


@pytest.fixture
def questions(rows: Callable[[int], list[dict[str, Any]]]) -> list[PoolQuestion]:
    """Twelve questions of three users, in two categories."""
    with open_examples(rows(12)) as store:
        return select_questions(store)
