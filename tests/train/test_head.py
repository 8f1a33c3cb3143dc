"""Training a head: losses worked out by hand, scores that equal the module's, and a tiny population to learn."""

import hashlib
import math
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.support.contexts import profile

from prbench.backends.encoders import load_encoder
from prbench.errors import DataError, UsageError
from prbench.lab import SHIPPED_HEADS
from prbench.metrics.calibration import calibrate_margins
from prbench.reward_models.head import HeadReward, TopicWeights
from prbench.schema import Aspect, Example, Post, RewardInput, User
from prbench.training.data import TrainingData, make_training_data
from prbench.training.folder import read_trained
from prbench.training.head import HeadConfig, TopicHead, learn_head
from prbench.training.loop import head_rows, rubric_loss
from prbench.training.methods import load_method, run_method

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
        user=User(
            id=f"{split}-{number}",
            profile=(Post(id=f"{split}-{number}", text=post), Post(id="n", text="A walk by the sea.")),
        ),
        question="What now?",
        chosen=f"Take the {wanted} tea. Read a book.",
        rejected=f"Take the {other} tea. Read a book.",
        rubric=(Aspect(aspect=wanted),),
    )


def population(count: int, split: str) -> list[Example]:
    return [example(number, thrifty=number % 2 == 0, split=split) for number in range(count)]


def people(train: int = 64, validation: int = 32) -> TrainingData:
    return make_training_data(population(train, "train"), population(validation, "validation"))


SMALL = {"topics": 4, "batch_size": 16, "dropout": 0.0, "learning_rate": 0.01, "patience": 40}


def test_the_rubric_loss_counts_real_aspects_only() -> None:
    logits, wanted = torch.tensor([[0.0, 2.0, 9.0]]), torch.tensor([[1.0, 0.0, 1.0]])
    expected = (math.log(2) + math.log(1 + math.exp(2))) / 2
    assert float(rubric_loss(logits, wanted, torch.tensor([[1.0, 1.0, 0.0]]))) == pytest.approx(expected)


def floats(*values: object) -> list[np.ndarray]:
    return [np.array(value, dtype=np.float32) for value in values]


def test_topics_by_hand() -> None:
    """One topic and small talk; weights of 0 share every post equally, so that two posts make a mass of 1."""
    post, post_bias, sentence, sentence_bias, mix, average, scale = floats(
        [[0, 0]], [0, 0], [[0]], [0], [[3]], [0.5], 2
    )
    weights = TopicWeights(
        post_weight=post,
        post_bias=post_bias,
        sentence_weight=sentence,
        sentence_bias=sentence_bias,
        mix=mix,
        average=average,
        scale=scale,
    )
    table = np.ones((3, 1))
    expected = 2 * (0.5 + 3 * math.log(1 + 2 * 1))
    posts, nobody, sentences = np.array([0, 1]), np.array([], dtype=np.int64), np.array([2])
    assert weights.values(table, [posts], [sentences])[0] == pytest.approx(expected)
    assert weights.values(table, [nobody], [sentences])[0] == pytest.approx(2 * 0.5)


@pytest.mark.parametrize("knows_users", [True, False])
def test_scores_are_those_of_the_module(knows_users: bool) -> None:
    """Training and scoring are written twice, in torch and in numpy: their margins are equal."""
    encoder, data = BagOfWords(), people(12, 4)
    torch.manual_seed(5)
    module = TopicHead(len(WORDS), topics=4, dropout=0.0, knows_users=knows_users).eval()
    rows, tables = head_rows(data.train, encoder, posts=30)
    expected = module.margin(module.read(tables), rows).tolist()
    margins = margins_of(HeadReward(module.weights(), encoder), data.train)
    assert margins == pytest.approx(expected, abs=1e-5)
    thrifty, hasty = margins[:2]
    assert (thrifty == pytest.approx(-hasty, abs=1e-5)) is not knows_users  # nobody is known: the same for both sides


def margins_of(model: HeadReward, examples: Sequence[Example]) -> list[float]:
    scores = [
        model.score(
            [
                RewardInput(
                    question=one.question, user=profile(*(post.text for post in one.user.profile)), response=text
                )
            ]
        )[0].value
        for one in examples
        for text in (one.chosen, one.rejected)
    ]
    return [(good or 0.0) - (bad or 0.0) for good, bad in zip(scores[::2], scores[1::2], strict=True)]


def test_a_head_learns_who_wants_what_and_one_without_users_cannot() -> None:
    encoder, data = BagOfWords(), people()
    head = learn_head(data, HeadConfig(epochs=40, **SMALL), encoder)
    assert head.facts["validation_accuracy"] == 1.0
    blind = learn_head(data, HeadConfig(epochs=5, knows_users=False, **SMALL), encoder)
    assert blind.facts["validation_accuracy"] == 0.5
    model = HeadReward(head.weights, encoder)
    user = profile("I count my money.", "A walk by the sea.")
    inputs = [RewardInput(question="?", user=user, response=f"Take the {word} tea.") for word in ("cheap", "quick")]
    cheap, quick = (score.value for score in model.score(inputs))
    assert cheap is not None
    assert quick is not None
    assert cheap > quick


def test_weights_come_back_from_their_folder_as_they_were(tmp_path: Path) -> None:
    weights = learn_head(people(16, 8), HeadConfig(epochs=1, **SMALL), BagOfWords()).weights
    weights.save(tmp_path)
    again = TopicWeights.load(tmp_path)
    assert HeadReward(again, BagOfWords()).identity == HeadReward(weights, BagOfWords()).identity


def test_the_same_seed_gives_the_same_weights() -> None:
    config = HeadConfig(epochs=3, **{**SMALL, "dropout": 0.2})
    first, second = (learn_head(people(32, 8), config, BagOfWords()).weights for _ in range(2))
    assert HeadReward(first, BagOfWords()).identity == HeadReward(second, BagOfWords()).identity


def test_scores_do_not_depend_on_batch_or_order() -> None:
    weights = learn_head(people(16, 8), HeadConfig(epochs=2, **SMALL), BagOfWords()).weights
    model = HeadReward(weights, BagOfWords())
    inputs = [
        RewardInput(
            question=f"{word}?",
            user=profile(*(["money", "hurry"] if number % 2 else [])),
            response=f"{word} tea. Sea!",
        )
        for number, word in enumerate(WORDS)
    ]
    together = [score.value for score in model.score(inputs)]
    assert together == [model.score([one])[0].value for one in inputs[::-1]][::-1]


def test_a_response_without_letters_still_gets_a_number() -> None:
    weights = learn_head(people(16, 8), HeadConfig(epochs=1, **SMALL), BagOfWords()).weights
    (score,) = HeadReward(weights, BagOfWords()).score([RewardInput(question="1 + 1?", response="2")])
    assert score.value is not None
    assert math.isfinite(score.value)


@pytest.mark.parametrize("name, value", [("topics", 0), ("dropout", 1.0), ("learning_rate", 0.0)])
def test_settings_that_train_nothing_are_refused(name: str, value: object) -> None:
    with pytest.raises(UsageError, match=name):
        HeadConfig(**{name: value})  # type: ignore[arg-type]


def test_users_in_both_splits_and_empty_profiles_are_refused() -> None:
    data = make_training_data(population(4, "train"), population(4, "train"))
    with pytest.raises(DataError, match="is in both train and validation"):
        learn_head(data, HeadConfig(), BagOfWords())
    bare = [
        Example(id=e.id, user=User(id=e.user.id), question=e.question, chosen=e.chosen, rejected=e.rejected)
        for e in population(4, "train")
    ]
    data = make_training_data(bare, population(4, "validation"))
    with pytest.raises(DataError, match="no row of the train split has a post"):
        learn_head(data, HeadConfig(), BagOfWords())
    learn_head(data, HeadConfig(knows_users=False, epochs=1), BagOfWords())


def test_the_temperature_is_the_one_of_a_coin_with_known_odds() -> None:
    """Margins of 1, right in three of four pairs: sigmoid(1 / T) = 3/4, so T = 1 / log 3."""
    margins = np.array([1.0, 1.0, 1.0, -1.0] * 50)
    found = calibrate_margins(margins, [f"user-{number // 4}" for number in range(200)])
    assert found.temperature == pytest.approx(1 / math.log(3))
    assert found.ece_before == pytest.approx(0.75 - 1 / (1 + math.exp(-1)))
    assert found.ece_after == pytest.approx(0.0, abs=1e-9)


def test_margins_that_are_never_wrong_are_left_as_they_are() -> None:
    assert calibrate_margins(np.array([1.0, 2.0, 3.0]), ["a", "b", "c"]).temperature == 1.0


def test_the_temperature_goes_into_the_scale() -> None:
    """A quarter of the held-out pairs are turned round, so no margin can be sure; the saved ones need no change."""
    held_out = [turned(one) if number < 8 else one for number, one in enumerate(population(32, "validation"))]
    data = make_training_data(population(64, "train"), held_out)
    head = learn_head(data, HeadConfig(epochs=40, **SMALL), BagOfWords())
    assert head.facts["validation_accuracy"] == 0.75
    assert head.facts["temperature"] != pytest.approx(1.0, abs=0.1)
    model = HeadReward(head.weights, BagOfWords())
    again = calibrate_margins(np.array(margins_of(model, held_out)), [one.user.id for one in held_out])
    assert again.temperature == pytest.approx(1.0, abs=1e-4)


def turned(one: Example) -> Example:
    return Example(id=one.id, user=one.user, question=one.question, chosen=one.rejected, rejected=one.chosen)


def test_the_shipped_heads_score_as_they_always_did() -> None:
    """The values are of the formula in the module's docstring, written a second time."""
    user = profile("I count every coin twice.", "Rain again today.")
    inputs = [
        RewardInput(question="?", user=user, response="Buy second-hand, it costs next to nothing."),
        RewardInput(question="?", response="Ask a friend along. Take the scenic road."),
    ]
    scores = {
        name: [score.value for score in HeadReward(TopicWeights.load(folder), load_encoder()).score(inputs)]
        for name, folder in SHIPPED_HEADS.items()
    }
    assert scores == {
        "lab-user": [0.8353946208953857, 0.9303830862045288],
        "lab-average": [0.6968759298324585, -0.24863409996032715],
    }


def test_a_folder_without_a_head_says_so(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"there is no head.npz in that folder"):
        TopicWeights.load(tmp_path)
    np.savez(tmp_path / "head.npz", scale=np.array(1.0))
    with pytest.raises(UsageError, match="has no 'average', so it is no model of ours"):
        TopicWeights.load(tmp_path)


def train_words(folder: Path, *, kill_after: int = -1) -> None:
    """Train a head on the tiny population; with `kill_after`, this very process is killed after that epoch."""

    def say(done: int, of: int, text: str) -> None:
        if done == kill_after:
            os.kill(os.getpid(), signal.SIGKILL)

    config = HeadConfig(epochs=12, **{**SMALL, "dropout": 0.2})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("prbench.training.head.load_encoder", lambda name: BagOfWords())
        run_method(load_method("head"), people(), config, folder, say)


def digest_of(folder: Path) -> str:
    with np.load(folder / "head.npz") as arrays:
        return hashlib.sha256(b"".join(arrays[name].tobytes() for name in sorted(arrays.files))).hexdigest()


@pytest.mark.slow
def test_killed_and_run_again_it_has_the_same_weights(tmp_path: Path) -> None:
    """A real SIGKILL in the middle of training."""
    code = "import sys; from pathlib import Path; from test_head import train_words as train; "
    code += "train(Path(sys.argv[1]), kill_after=5)"
    path = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    here = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": str(torch.get_num_threads())}
    killed, whole = tmp_path / "killed", tmp_path / "whole"
    ended = subprocess.run([sys.executable, "-c", code, str(killed)], check=False, env=here)
    assert ended.returncode == -signal.SIGKILL
    assert (killed / "checkpoint.pt").exists()
    assert not (killed / "head.npz").exists()
    train_words(killed)
    train_words(whole)
    assert digest_of(killed) == digest_of(whole)
    assert read_trained(killed).facts["epochs_run"] == 12
    assert not (killed / "checkpoint.pt").exists()
