"""A tiny random policy over colours, questions about colours, and a reward whose meaning is plain."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs pip install 'prbench[hf]'")
pytest.importorskip("transformers", reason="needs pip install 'prbench[hf]'")

import torch
from tests.support.tiny_llama import save_tiny_llama

from prbench.downstream.ppo.rollout import ModelReward, RewardCandidate
from prbench.downstream.ppo.settings import PpoSettings
from prbench.reward_models import View, wrap
from prbench.reward_models.view import disturbed
from prbench.schema import Example, Json, Post, RewardInput, Score, User

COLOURS = ("red", "green", "blue", "yellow", "black", "white", "grey", "brown", "pink", "violet")


class ShareOfRed:
    """Pays the share of an answer's words that are `red`."""

    identity: Mapping[str, Json] = {"spec": "share of red"}

    def score(self, candidates: Sequence[RewardCandidate]) -> list[Score]:
        words = [candidate.response.split() for candidate in candidates]
        return [Score(value=each.count("red") / len(each)) for each in words]


class RewardOfRed:
    """The same as a reward model."""

    name = "red"

    def score(self, inputs: Sequence[RewardInput]) -> list[float]:
        words = [each.response.split() for each in inputs]
        return [each.count("red") / len(each) for each in words]


def failing_red(share: float) -> ModelReward:
    """The same, of which a share fails."""
    return ModelReward(disturbed(wrap(RewardOfRed()), View(fail=share), seed=0))


@pytest.fixture(autouse=True)
def one_thread() -> None:
    """Small products gain nothing by more threads."""
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def tiny_policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random Llama of two layers that knows ten colours."""
    return save_tiny_llama(tmp_path_factory.mktemp("tiny") / "policy", COLOURS, max_position_embeddings=128)


@pytest.fixture
def questions() -> list[Example]:
    return [
        Example(
            id=f"item-{number}",
            user=User(id=f"user-{number % 4}", profile=(Post(id="p", text=f"I like {COLOURS[number % 10]}"),)),
            question=f"{COLOURS[number % 10]} {COLOURS[number % 7]}",
            chosen="red",
            rejected="blue",
        )
        for number in range(16)
    ]


@pytest.fixture
def settings(tiny_policy: Path) -> Callable[..., PpoSettings]:
    """Settings that learn within seconds, with changes."""

    def make(**changes: Any) -> PpoSettings:
        quick: dict[str, Any] = {
            "policy": str(tiny_policy),
            "reward": "share of red",
            "context": "none",
            "rollout_batch": 64,
            "max_new_tokens": 12,
            "steps": 8,
            "epochs": 2,
            "minibatches": 2,
            "microbatch": 64,
            "learning_rate": 1e-2,
            "value_learning_rate": 1e-2,
            "truncated": "score",
            "kl_coefficient": 0.01,
            "checkpoint_every": 100,
        }
        return PpoSettings(**{**quick, **changes})

    return make
