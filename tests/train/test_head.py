"""Training a head: losses worked out by hand, and a tiny population that can be learned."""

import math
from collections.abc import Sequence

import numpy as np
import pytest
import torch

from prbench.errors import DataError
from prbench.reward_models.head import HeadReward
from prbench.schema import Aspect, Example, Post, RewardInput, User
from prbench.train.head import HeadConfig, preference_loss, rubric_loss, train_head

WORDS = ("cheap", "quick", "money", "hurry", "walk", "tea", "sea", "book")


class BagOfWords:
    """An encoder that counts eight words, so that a test knows every vector."""

    name = "words"
    identity = {"name": "words"}  # noqa: RUF012

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        counts = np.array([[text.lower().count(word) for word in WORDS] for text in texts], dtype=np.float32)
        return counts / np.maximum(np.linalg.norm(counts, axis=1, keepdims=True), 1)


def example(number: int, *, thrifty: bool, split: str) -> Example:
    wanted, other = ("cheap", "quick") if thrifty else ("quick", "cheap")
    post = "I count my money." if thrifty else "I am in a hurry."
    return Example(
        id=f"{split}-{number}",
        user=User(id=f"{split}-{number}", profile=(Post(id="p", text=post), Post(id="n", text="A walk by the sea."))),
        question="What now?",
        chosen=f"Take the {wanted} tea. Read a book.",
        rejected=f"Take the {other} tea. Read a book.",
        rubric=(Aspect(aspect=wanted),),
    )


def population(count: int, split: str) -> list[Example]:
    return [example(number, thrifty=number % 2 == 0, split=split) for number in range(count)]


def test_the_preference_loss_is_minus_log_sigmoid() -> None:
    expected = (math.log(1 + math.exp(-2)) + math.log(1 + math.exp(1))) / 2
    assert float(preference_loss(torch.tensor([2.0, -1.0]))) == pytest.approx(expected)


def test_the_rubric_loss_counts_real_aspects_only() -> None:
    logits, wanted = torch.tensor([[0.0, 2.0, 9.0]]), torch.tensor([[1.0, 0.0, 1.0]])
    expected = (math.log(2) + math.log(1 + math.exp(2))) / 2
    assert float(rubric_loss(logits, wanted, torch.tensor([[1.0, 1.0, 0.0]]))) == pytest.approx(expected)


def test_a_head_learns_who_wants_what_and_one_without_users_cannot() -> None:
    encoder = BagOfWords()
    train, validation = population(64, "train"), population(32, "validation")
    small = HeadConfig(topics=4, epochs=40, batch_size=16, dropout=0.0)
    weights, card = train_head(train, validation, encoder, small)
    assert card["validation_accuracy"] == 1.0
    _, blind = train_head(train, validation, encoder, HeadConfig(topics=4, epochs=5, batch_size=16, knows_users=False))
    assert blind["validation_accuracy"] == 0.5
    model = HeadReward(weights, encoder)
    context = "Posts that this person wrote before:\n\n- I count my money.\n- A walk by the sea."
    asked = [
        RewardInput(question="?", context=context, response=f"Take the {kind} tea.") for kind in ("cheap", "quick")
    ]
    cheap, quick = (score.value for score in model.score(asked))
    assert cheap is not None
    assert quick is not None
    assert cheap > quick


def test_the_same_seed_gives_the_same_weights() -> None:
    encoder, small = BagOfWords(), HeadConfig(topics=4, epochs=3, batch_size=16)
    first, second = (train_head(population(32, "train"), population(8, "v"), encoder, small)[0] for _ in range(2))
    assert np.array_equal(first.sentence_weight, second.sentence_weight)


def test_users_in_both_splits_are_refused() -> None:
    with pytest.raises(DataError, match="is in both train and validation"):
        train_head(population(4, "train"), population(4, "train"), BagOfWords(), HeadConfig())


def test_scores_do_not_depend_on_batch_or_order() -> None:
    weights, _ = train_head(population(16, "t"), population(8, "v"), BagOfWords(), HeadConfig(topics=3, epochs=2))
    model = HeadReward(weights, BagOfWords())
    inputs = [RewardInput(question="?", context="- money", response=f"{word} tea. Sea!") for word in WORDS]
    together = [score.value for score in model.score(inputs)]
    alone = [model.score([one])[0].value for one in inputs[::-1]][::-1]
    assert together == pytest.approx(alone, abs=1e-5)
