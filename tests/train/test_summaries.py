"""Training a summarizer: losses by hand, best-of-n by hand, a tiny population, kill and resume, edited summaries."""

import json
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.support.contexts import profile

import prbench.training.summary as training
from prbench.backends.llm import FakeLLM
from prbench.errors import DataError, UsageError
from prbench.reward_models.summaries import (
    SUMMARIES,
    BankSummarizer,
    SummaryReward,
    SummaryWeights,
    load_summary_reward,
)
from prbench.schema import Aspect, Example, Post, RewardInput, User
from prbench.training.data import make_training_data
from prbench.training.folder import ProgressCallback, no_progress
from prbench.training.summary import SummaryConfig, best_of, holds_loss, shorten, train_summary

WORDS = ("cheap", "quick", "money", "hurry", "walk", "tea", "sea", "book")
SMALL = SummaryConfig(epochs=15, patience=15, batch_size=16, dropout=0.0, rounds=1, samples=8)


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


def train(folder: Path, config: SummaryConfig = SMALL, say: ProgressCallback = no_progress) -> dict[str, object]:
    folder.mkdir(exist_ok=True)
    return dict(train_summary(DATA, config, folder, say).facts)


def load(folder: Path, cache: Path | None = None) -> SummaryReward:
    return load_summary_reward(folder, cache=str(cache) if cache else None, ask=lambda spec: FakeLLM("none"))


def ask(response: str, *posts: str) -> RewardInput:
    return RewardInput(question="?", user=profile(*posts), response=response)


def gap(model: SummaryReward, *posts: str) -> float:
    """How much more the cheap tea is worth than the quick one."""
    cheap, quick = (score.value for score in model.score([ask(f"Take the {kind} tea.", *posts) for kind in WORDS[:2]]))
    assert cheap is not None
    assert quick is not None
    return cheap - quick


def test_the_loss_of_statements_weighs_labels_by_how_sure_they_are() -> None:
    odds, labels, sure = torch.tensor([[0.0, 2.0]]), torch.tensor([[1.0, 0.0]]), torch.tensor([[1.0, 0.5]])
    expected = (math.log(2) + 0.5 * math.log(1 + math.exp(2))) / 1.5
    assert float(holds_loss(odds, labels, sure)) == pytest.approx(expected)


def test_training_and_scoring_keep_the_same_statements_at_the_border() -> None:
    holds = np.array([0.9, 0.1002, 0.0996, 0.0949])
    weights = SummaryWeights(
        **dict.fromkeys(("post_weight", "sentence_weight", "statement_weight"), np.zeros((len(WORDS), 5), np.float32)),
        **dict.fromkeys(("post_bias", "sentence_bias", "statement_bias"), np.zeros(5, np.float32)),
        mix=np.zeros((4, 4), np.float32),
        average=np.log(holds / (1 - holds)).astype(np.float32),
        scale=np.array(1.0, np.float32),
        least=np.array(0.1, np.float32),
        most=np.array(6, np.float32),
    )
    (summary,) = BankSummarizer(weights, ["a", "b", "c", "d"], BagOfWords()).summarize([()])
    assert [(one.text, one.weight) for one in summary.statements] == [("a", 0.9), ("b", 0.1), ("c", 0.1)]
    assert shorten(torch.tensor(holds)[None], 6, 0.1).tolist()[0] == pytest.approx([0.9, 0.1, 0.1, 0.0])


def test_a_summary_keeps_the_surest_and_at_least_one() -> None:
    holds = torch.tensor([[0.901, 0.3, 0.5, 0.05], [0.01, 0.02, 0.03, 0.04]])
    assert shorten(holds, 2, 0.1).tolist() == pytest.approx(
        [pytest.approx([0.9, 0.0, 0.5, 0.0]), pytest.approx([0.0, 0.0, 0.0, 0.04])]
    )


def test_the_best_sample_makes_the_pairs_of_its_user_most_likely() -> None:
    """User 0 has two pairs that want the first statement, user 1 one pair that wants the second."""
    differs = torch.tensor([[1.0, -1.0], [1.0, 0.0], [-1.0, 1.0]])
    users = torch.tensor([0, 0, 1])
    samples = torch.tensor([[[0.0, 1.0], [1.0, 0.0]], [[1.0, 0.0], [0.0, 1.0]], [[1.0, 1.0], [1.0, 1.0]]])
    assert best_of(samples, differs, users, torch.tensor(2.0)).tolist() == [[1.0, 0.0], [0.0, 1.0]]


def test_it_learns_who_wants_what_and_writes_it_down_in_words(tmp_path: Path) -> None:
    facts = train(tmp_path)
    assert facts["validation_accuracy"] == 1.0
    assert facts["statements"] == 2
    model = load(tmp_path)
    assert gap(model, "I count my money.") > 0 > gap(model, "I am in a hurry.")
    lines = [json.loads(line) for line in (tmp_path / SUMMARIES).read_text().splitlines()]
    assert len(lines) == 64
    assert {one["text"] for line in lines for one in line["statements"]} <= {"cheap.", "quick."}


def test_refinement_says_what_each_round_gave(tmp_path: Path) -> None:
    (first,) = train(tmp_path)["refinement"]  # type: ignore[misc]
    assert first["round"] == 1
    assert first["log_likelihood_gain_of_winners"] >= 0
    assert first["kept"] is (first["validation_after"] > first["validation_before"])


def test_a_scored_summary_is_the_trained_one(tmp_path: Path) -> None:
    """What numpy scores is what torch was measured by."""
    facts = train(tmp_path, SummaryConfig(epochs=2, batch_size=16, rounds=0))
    model = load(tmp_path)
    inputs = [
        ask(text, *(post.text for post in one.user.profile[::-1]))
        for one in DATA.validation
        for text in (one.chosen, one.rejected)
    ]
    scores = [score.value or 0.0 for score in model.score(inputs)]
    right = np.mean([(np.sign(a - b) + 1) / 2 for a, b in zip(scores[::2], scores[1::2], strict=True)])
    assert facts["validation_accuracy"] == pytest.approx(right)


class KilledError(Exception):
    """Stands in for a kill."""


def test_killed_anywhere_it_comes_to_the_same_weights(tmp_path: Path) -> None:
    config = SummaryConfig(epochs=4, patience=4, batch_size=16, rounds=1, samples=4)
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    train(whole, config)
    calls = 0

    def die(done: int, total: int, text: str) -> None:
        nonlocal calls
        calls += 1
        if calls in (3, 8):
            raise KilledError

    for _ in range(2):
        with pytest.raises(KilledError):
            train(parts, config, die)
    train(parts, config, die)
    assert load(parts).identity == load(whole).identity
    assert (parts / SUMMARIES).read_bytes() == (whole / SUMMARIES).read_bytes()


def test_rows_without_rubrics_are_refused(tmp_path: Path) -> None:
    bare = [Example(id=e.id, user=e.user, question="?", chosen="a", rejected="b") for e in DATA.train]
    with pytest.raises(DataError, match="has a rubric"):
        train_summary(make_training_data(bare, DATA.validation), SMALL, tmp_path, no_progress)


@pytest.mark.parametrize("wrong", [{"most": 0}, {"least": 1.0}, {"rounds": -1}])
def test_settings_that_train_nothing_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(UsageError):
        SummaryConfig(**wrong)  # type: ignore[arg-type]


def test_a_chat_model_may_write_the_summaries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeLLM(
        lambda request: (
            "- They want cheap things." if "money" in request.messages[-1].content else "- They want quick."
        )
    )
    monkeypatch.setattr(training, "load_llm", lambda spec, seed: fake)
    facts = train(tmp_path, SummaryConfig(summarizer="fake:x", epochs=8, batch_size=16))
    assert facts["validation_accuracy"] == 1.0
    assert facts["refinement"] == []
    model = load_summary_reward(tmp_path, ask=lambda spec: fake)
    asked = len(fake.requests)
    assert gap(model, "Sea train 0.", "I count my money.") > 0
    assert len(fake.requests) == asked  # the summary of a training user is in the folder
    assert gap(model, "Money, money!") > 0
    assert len(fake.requests) == asked + 1


def test_a_kill_among_the_summaries_of_a_chat_model_costs_no_second_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = FakeLLM("- They want cheap.")
    monkeypatch.setattr(training, "load_llm", lambda spec, seed: fake)

    def die(done: int, total: int, text: str) -> None:
        if text == "summing users up":
            raise KilledError

    config = SummaryConfig(summarizer="fake:x", epochs=1, batch_size=16)
    with pytest.raises(KilledError):
        train(tmp_path, config, die)
    assert len(fake.requests) == 32
    train(tmp_path, config)
    assert len(fake.requests) == 64


def test_a_chat_model_that_states_nothing_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "load_llm", lambda spec, seed: FakeLLM("I cannot say."))
    with pytest.raises(UsageError, match="no reply holds a statement"):
        train(tmp_path, SummaryConfig(summarizer="fake:x"))
