"""Training a planner for sampling: the loss by hand, and a tiny population."""

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.support.contexts import profile

from prbench.errors import DataError, UsageError
from prbench.reward_models.rubric_chain import load_sampled_rubrics
from prbench.schema import Aspect, Example, Post, RewardInput, User
from prbench.training.data import make_training_data
from prbench.training.folder import no_progress
from prbench.training.rubric_chain import RubricChainConfig, sampled_loss, train_rubric_chain

WORDS = ("cheap", "quick", "money", "hurry", "walk", "tea", "sea", "book")


class BagOfWords:
    """An encoder that counts eight words, so that a test knows every vector."""

    name = "words"
    identity = {"name": "words"}  # noqa: RUF012

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        counts = np.array([[text.lower().count(word) for word in WORDS] for text in texts], dtype=np.float32)
        counts = counts.reshape(len(texts), len(WORDS))
        return counts / np.maximum(np.linalg.norm(counts, axis=1, keepdims=True), 1)


@pytest.fixture(autouse=True)
def _words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("prbench.backends.encoders._load_once", lambda name: BagOfWords())


def example(number: int, split: str) -> Example:
    wanted, other, post = (
        ("cheap", "quick", "I count my money.") if number % 2 == 0 else ("quick", "cheap", "I am in a hurry.")
    )
    return Example(
        id=f"{split}-{number}",
        user=User(
            id=f"{split}-{number}", profile=(Post(id="p", text=post), Post(id="n", text=f"Sea {split} {number}."))
        ),
        question="What now?",
        chosen=f"Take the {wanted} tea. Read a book.",
        rejected=f"Take the {other} tea. Read a book.",
        rubric=(Aspect(aspect=wanted),),
    )


DATA = make_training_data([example(n, "train") for n in range(48)], [example(n, "validation") for n in range(16)])


def test_the_loss_is_minus_log_of_the_mean_likelihood_over_rubrics() -> None:
    """Coins of 0.9 and 0.1 at log-odds 0, towards temperature 0: the aspect is in the first rubric alone."""
    uniforms = torch.tensor([[[0.9]], [[0.1]]])
    loss = sampled_loss(torch.tensor([[0.0]]), torch.tensor([[2.0]]), uniforms, temperature=1e-3)
    expected = -math.log((1 / (1 + math.exp(-2)) + 0.5) / 2)
    assert float(loss) == pytest.approx(expected)


def test_a_relaxed_coin_lets_gradients_pass() -> None:
    """At temperature 1 and log-odds 0 a coin of 0.5 gives half an aspect: margin 1, slope sigmoid(-1) * 2 / 4."""
    odds = torch.zeros(1, 1, requires_grad=True)
    loss = sampled_loss(odds, torch.tensor([[2.0]]), torch.full((1, 1, 1), 0.5), temperature=1.0)
    loss.backward()  # type: ignore[no-untyped-call]
    assert float(loss.detach()) == pytest.approx(math.log(1 + math.exp(-1)))
    assert odds.grad is not None
    assert float(odds.grad) == pytest.approx(-0.5 / (1 + math.e))


def test_it_learns_and_says_what_averaging_gives(tmp_path: Path) -> None:
    trained = train_rubric_chain(
        DATA,
        RubricChainConfig(epochs=12, patience=12, batch_size=16, learning_rate=2e-2, dropout=0.0),
        tmp_path,
        no_progress,
    )
    assert trained.spec == f"rubric-chain:{tmp_path}"
    assert trained.facts["validation_by_samples"].keys() == {"1", "4", "16", "64", "all rubrics"}
    assert trained.facts["validation_by_samples"]["all rubrics"] == 1.0
    model = load_sampled_rubrics(tmp_path, samples=20_000, seed=0)  # so many that chance plays no part
    user = profile("I count my money.")
    inputs = [RewardInput(question="What now?", user=user, response=f"{kind} tea") for kind in WORDS[:2]]
    cheap, quick = (score.value or 0.0 for score in model.score(inputs))
    assert cheap > quick
    assert [model.score([one])[0].value for one in inputs] == [cheap, quick]


def test_rows_without_rubrics_are_refused(tmp_path: Path) -> None:
    bare = [Example(id=e.id, user=e.user, question="?", chosen="a", rejected="b") for e in DATA.train]
    with pytest.raises(DataError, match="has a rubric"):
        train_rubric_chain(make_training_data(bare, DATA.validation), RubricChainConfig(), tmp_path, no_progress)


@pytest.mark.parametrize("wrong", [{"loss_samples": 0}, {"temperature": 0.0}, {"dropout": 1.0}])
def test_settings_that_train_nothing_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(UsageError):
        RubricChainConfig(**wrong)  # type: ignore[arg-type]
