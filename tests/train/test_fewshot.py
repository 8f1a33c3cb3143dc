"""Training a model that adapts: likelihoods and gradients worked out by hand, and a world that labels alone reveal."""

import math
from collections.abc import Sequence
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from prbench.errors import DataError, UsageError
from prbench.evaluation import evaluate
from prbench.reward_models.fewshot import FewshotReward, FewshotWeights
from prbench.schema import Example, Post, User
from prbench.training import fewshot
from prbench.training.data import TrainingData, make_training_data
from prbench.training.fewshot import FewshotConfig, leave_one_out, likelihood_loss, predict, train_fewshot
from prbench.training.folder import no_progress

THINGS = ("cheap", "quick", "calm", "bright")
SMALL = FewshotConfig(topics=4, directions=3, epochs=12, patience=12, batch_size=16, dropout=0.0)
HALF = 0.4010581375415  # the z with z = 1 / (1 + exp(z))


class Words:
    """An encoder that counts the four words above."""

    name = "words"
    identity = {"name": "words"}  # noqa: RUF012

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        return np.array([[float(word in text) for word in THINGS] for text in texts], np.float32)


@pytest.fixture(autouse=True)
def words(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four words are enough here, and need no weights."""
    monkeypatch.setattr(fewshot, "load_encoder", lambda name: Words())


def person(number: int, split: str, pairs: int = 4) -> list[Example]:
    """Somebody who wants two of the four things; who they are shows in nothing but their choices."""
    wanted = [(0, 1), (2, 3), (0, 2), (1, 3)][number % 4]
    others = [thing for thing in range(4) if thing not in wanted]
    post = Post(id="p", text=f"I like {THINGS[wanted[0]]}, says {split} {number}.")
    user = User(id=f"{split}-{number}", profile=(post,))
    return [
        Example(
            id=f"{split}-{number}-{turn}",
            user=user,
            question=f"Which, {turn}?",
            chosen=f"Take the {THINGS[wanted[turn % 2]]} one.",
            rejected=f"Take the {THINGS[others[turn // 2 % 2]]} one.",
        )
        for turn in range(pairs)
    ]


def world(train: int = 64, validation: int = 32, pairs: int = 4) -> TrainingData:
    return make_training_data(
        [example for number in range(train) for example in person(number, "train", pairs)],
        [example for number in range(validation) for example in person(number, "validation", pairs)],
    )


def test_the_first_pair_is_predicted_by_the_population_alone() -> None:
    """Mean 0.5 and variance 2 * 2 = 4 along the one direction: log-odds 0.5 / sqrt(1 + 4 pi / 8)."""
    pair, margin = torch.tensor([[[2.0]]]), torch.tensor([[0.5]])
    mean, variance = predict(pair, margin, torch.zeros(1, 1, 1))
    assert (float(mean), float(variance)) == pytest.approx((0.5, 4.0))
    odds = 0.5 / math.sqrt(1 + math.pi / 2)
    assert float(likelihood_loss(pair, margin, torch.ones(1, 1))) == pytest.approx(math.log1p(math.exp(-odds)))


def test_the_second_pair_is_predicted_from_the_first() -> None:
    """With one label of difference 1, z is 0.401..., and the curvature there is 1 + z (1 - z)."""
    seen = torch.tensor([[[0.0, 0.0], [1.0, 0.0]]])
    mean, variance = predict(torch.tensor([[[1.0], [3.0]]]), torch.tensor([[0.0, 0.2]]), seen)
    assert mean.tolist()[0] == pytest.approx([0.0, 0.2 + 3 * HALF], rel=1e-6)
    assert variance.tolist()[0] == pytest.approx([1.0, 9 / (1 + HALF * (1 - HALF))], rel=1e-6)


def test_the_loss_is_the_mean_over_real_pairs_of_each_given_those_before() -> None:
    differences, margins = torch.tensor([[[1.0], [3.0], [7.0]]]), torch.tensor([[0.0, 0.2, 9.0]])
    loss = likelihood_loss(differences, margins, torch.tensor([[1.0, 1.0, 0.0]]))
    second = (0.2 + 3 * HALF) / math.sqrt(1 + math.pi * 9 / (1 + HALF * (1 - HALF)) / 8)
    assert float(loss) == pytest.approx((math.log(2) + math.log1p(math.exp(-second))) / 2, rel=1e-6)


def test_gradients_go_through_the_optimum() -> None:
    """Against finite differences of the whole computation, optimum included."""
    torch.manual_seed(0)
    differences, margins = torch.randn(2, 3, 2, dtype=torch.float64), torch.randn(2, 3, dtype=torch.float64)
    counts = torch.tensor([[1.0, 1.0, 1.0], [1.0, 1.0, 0.0]], dtype=torch.float64)

    def loss(differences: Tensor, margins: Tensor) -> Tensor:
        return likelihood_loss(differences, margins, counts)

    assert torch.autograd.gradcheck(loss, (differences.requires_grad_(), margins.requires_grad_()), atol=1e-6)


def test_leaving_one_out_uses_all_other_pairs_as_labels() -> None:
    """Two pairs: each has the other as its one label. A third, which is padding, is neither label nor asked."""
    differences, margins = torch.tensor([[[1.0], [1.0], [-5.0]]]), torch.tensor([[0.0, 0.0, 1.0]])
    counts = torch.tensor([[1.0, 1.0, 0.0]])
    assert leave_one_out(differences, margins, counts).tolist() == pytest.approx([HALF, HALF], rel=1e-6)
    opposed = torch.tensor([[[1.0], [-1.0], [-5.0]]])
    assert leave_one_out(opposed, margins, counts).tolist() == pytest.approx([-HALF, -HALF], rel=1e-6)


def test_labels_reveal_what_nothing_else_does(tmp_path: Path) -> None:
    data = world()
    trained = train_fewshot(data, SMALL, tmp_path, no_progress)
    assert (trained.spec, trained.context) == (f"fewshot:{tmp_path}", "none")
    assert trained.facts["validation_accuracy"] == 1.0
    model = FewshotReward(FewshotWeights.load(tmp_path), Words())
    alone = evaluate(data.validation, model, context="none").summary["accuracy"]["value"]
    shown = evaluate(data.validation, model, context="none", labels=data.validation).summary["accuracy"]["value"]
    assert alone <= 0.6  # half of the people want the opposite of the other half
    assert shown == 1.0


def test_a_model_that_reads_posts_needs_no_labels_here_and_can_do_without_posts(tmp_path: Path) -> None:
    data = world()
    trained = train_fewshot(data, FewshotConfig(**{**vars(SMALL), "reads_posts": True}), tmp_path, no_progress)
    assert trained.context == "profile"
    model = FewshotReward(FewshotWeights.load(tmp_path), Words())
    posts = evaluate(data.validation, model, context="profile").summary["accuracy"]["value"]
    labels = evaluate(data.validation, model, context="none", labels=data.validation).summary["accuracy"]["value"]
    assert posts >= 0.75  # a post names one of the two things that its writer wants
    assert labels >= 0.95


def digest(folder: Path) -> str:
    arrays = FewshotWeights.load(folder).arrays
    return sha256(b"".join(array.tobytes() for array in arrays.values())).hexdigest()


def test_killed_and_called_again_it_comes_to_the_same_weights(tmp_path: Path) -> None:
    data = world(train=32, validation=8)
    config = FewshotConfig(**{**vars(SMALL), "dropout": 0.3, "reads_posts": True, "epochs": 4})
    train_fewshot(data, config, tmp_path / "whole", no_progress)

    def interrupt(done: int, total: int, text: str) -> None:
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_fewshot(data, config, tmp_path / "parts", interrupt)
    assert not (tmp_path / "parts" / FewshotWeights.FILE).exists()
    train_fewshot(data, config, tmp_path / "parts", no_progress)
    assert digest(tmp_path / "parts") == digest(tmp_path / "whole")
    train_fewshot(data, FewshotConfig(**{**vars(config), "seed": 1}), tmp_path / "other", no_progress)
    assert digest(tmp_path / "other") != digest(tmp_path / "whole")


def test_users_with_many_pairs_are_taken_in_parts(tmp_path: Path) -> None:
    trained = train_fewshot(world(train=24, validation=8, pairs=20), SMALL, tmp_path, no_progress)
    assert trained.facts["validation_accuracy"] == 1.0


def test_users_with_one_pair_each_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no user of the train split has two pairs"):
        train_fewshot(world(pairs=1), SMALL, tmp_path, no_progress)


def test_one_question_with_several_rejected_responses_gives_no_label_of_itself(tmp_path: Path) -> None:
    alone = world(pairs=1)
    further = [replace(one, id=f"{one.id}#2", rejected="Something else. Quite.") for one in alone.train]
    with pytest.raises(DataError, match="no user of the train split has two pairs"):
        train_fewshot(make_training_data([*alone.train, *further], alone.validation), SMALL, tmp_path, no_progress)


@pytest.mark.parametrize("wrong", [{"directions": 0}, {"dropout": 1.0}, {"hide_posts": -0.1}, {"learning_rate": 0.0}])
def test_settings_that_train_nothing_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(UsageError, match=next(iter(wrong))):
        FewshotConfig(**wrong)  # type: ignore[arg-type]
