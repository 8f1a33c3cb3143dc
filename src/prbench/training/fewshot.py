"""Train a model that adapts to a user from a few labeled pairs (`prbench.reward_models.fewshot` has the formulas).

What users have in common is learned by empirical Bayes: the features, the mean and the spread of wants are those under
which the choices of the training users are most likely, with what each of them wants integrated out. The likelihood of
a user's pairs is the product of the chances of each, given those before it; so the pairs of a training user serve as
each other's labels, in a new order every epoch.

It stays as the only method that learns from what a user chose before, which on the lab is worth more than posts.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from prbench.backends.encoders import load_encoder
from prbench.context.aspect_planner import SHARPNESS
from prbench.context.labels import SHOTS
from prbench.data.texts import sentences_of
from prbench.errors import DataError
from prbench.metrics.calibration import calibrate_margins
from prbench.reward_models.fewshot import FewshotWeights, adapt
from prbench.runs import Keys
from prbench.schema import Example
from prbench.specs import Count, NotNegative, Positive, Share
from prbench.training.data import PROFILES, TrainingData, check_training_data
from prbench.training.folder import MethodConfig, ProgressCallback, Trained, checkpoint_in
from prbench.training.loop import RaggedIndex, RowTensors, TextTable, fit, newest_posts, one_thread, to_array

MOST_PAIRS = 16  # of a user in one sequence; who has more is taken for several users


@dataclass(frozen=True, kw_only=True)
class FewshotConfig(MethodConfig):
    """How to train. A model that reads posts predicts the mean of a user's wants from them; labels do the rest."""

    reads_posts: bool = False
    hide_posts: Share = 0.25  # share of users whose posts are hidden in an epoch, so that it can do without
    posts: Count = 30  # of each profile, the newest
    topics: Count = 24
    directions: Count = 16  # in which users differ
    epochs: Count = 40
    patience: Count = 12
    batch_size: Count = 64  # users
    learning_rate: Positive = 1e-2
    weight_decay: NotNegative = 1e-2
    dropout: Share = 0.5
    encoder: str = "minilm"
    seed: int = 0

    KEYS: ClassVar[Keys] = Keys(
        reads_posts=False,
        hide_posts=0.25,
        posts=30,
        topics=24,
        directions=16,
        epochs=40,
        patience=12,
        batch_size=64,
        learning_rate=1e-2,
        weight_decay=1e-2,
        dropout=0.5,
        encoder="minilm",
        seed=0,
    )


@dataclass(frozen=True)
class Sequences(RowTensors):
    """Each user's pairs as places in one table of embeddings."""

    good: RaggedIndex  # (users, most pairs, most sentences)
    bad: RaggedIndex
    counts: Tensor  # (users, most pairs): 1 for a pair
    posts: RaggedIndex  # (users, most posts)


class Fewshot(nn.Module):
    """The model as a module."""

    def __init__(self, size: int, config: FewshotConfig) -> None:
        super().__init__()
        self.reads_posts, self.hide_posts = config.reads_posts, config.hide_posts
        self.posts = nn.Linear(size, config.topics + 1)
        self.sentences = nn.Linear(size, config.topics)
        with torch.no_grad():  # a post and a sentence about the same thing begin in the same topic
            self.sentences.weight.copy_(self.posts.weight[: config.topics])
        self.average = nn.Parameter(torch.zeros(config.topics))
        self.spread = nn.Parameter(3 * torch.randn(config.topics, config.directions) / math.sqrt(config.directions))
        self.mix = nn.Parameter(2 * torch.eye(config.topics))
        self.certainty = nn.Parameter(torch.tensor(-2.0))  # before softplus
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, table: Tensor, batch: Sequences) -> tuple[Tensor, Tensor]:
        """Return how far the two responses of every pair are apart: for z, and for the mean of the user's wants."""
        shares = (SHARPNESS * self.sentences(self.dropout(table))).softmax(-1)
        good, bad = (
            (shares[each.places] * each.mask[..., None]).sum(-2) / each.mask.sum(-1, keepdim=True).clamp(min=1)
            for each in (batch.good, batch.bad)
        )
        apart = good - bad  # (users, pairs, topics)
        if not self.reads_posts:
            return apart @ self.spread, apart @ self.average
        about = (SHARPNESS * self.posts(self.dropout(table))).softmax(-1)[:, :-1]
        mass = (about[batch.posts.places] * batch.posts.mask[..., None]).sum(1)  # (users, topics): what posts say
        if self.training:
            mass = mass * (torch.rand(len(mass), 1) >= self.hide_posts)
        wants = self.average + torch.log1p(2 * mass) @ self.mix
        sure = torch.sqrt(1 + F.softplus(self.certainty) * mass.sum(-1))
        return (apart @ self.spread) / sure[:, None, None], (apart * wants[:, None]).sum(-1)

    def weights(self, encoder: str, temperature: float) -> FewshotWeights:
        """Return what scoring needs."""
        arrays = {
            "sentence_weight": self.sentences.weight.T,
            "sentence_bias": self.sentences.bias,
            "average": self.average,
            "spread": self.spread,
            "post_weight": self.posts.weight.T,
            "post_bias": self.posts.bias,
            "mix": self.mix * self.reads_posts,
            "certainty": F.softplus(self.certainty) * self.reads_posts,
            "temperature": torch.tensor(temperature),
        }
        return FewshotWeights(encoder=encoder, **{name: to_array(value) for name, value in arrays.items()})


def predict(differences: Tensor, margins: Tensor, seen: Tensor) -> tuple[Tensor, Tensor]:
    """Return the mean and the variance of every pair's margin, given those of the user's pairs that are `seen`.

    `differences` (users, pairs, r) and `margins` (users, pairs) are what the module returns; `seen` (users, pairs,
    pairs) is 1 where the pair of the last axis is a label for the one before it. By Laplace's approximation.
    """
    users, pairs, rank = differences.shape
    labels = differences[:, None].expand(-1, pairs, -1, -1).reshape(users * pairs, pairs, rank)
    offsets = margins[:, None].expand(-1, pairs, -1).reshape(users * pairs, pairs)
    mask = seen.reshape(users * pairs, pairs)
    asked = differences.reshape(users * pairs, rank)

    def doubt(z: Tensor) -> Tensor:
        return mask * torch.sigmoid(-(offsets + (labels * z[:, None]).sum(-1)))

    def curvature(z: Tensor) -> Tensor:
        weighted = (doubt(z) * (1 - doubt(z)))[..., None] * labels
        return torch.eye(rank, dtype=labels.dtype) + labels.transpose(1, 2) @ weighted

    z = torch.from_numpy(adapt(*(part.detach().double().numpy() for part in (labels, offsets, mask)))).to(labels)
    # z is the optimum: one more of Newton's steps leaves it there, and has the gradient of the optimum.
    slope = z - (doubt(z)[..., None] * labels).sum(1)
    z = z - torch.linalg.solve(curvature(z).detach(), slope)
    mean = margins.reshape(-1) + (asked * z).sum(-1)
    variance = (asked * torch.linalg.solve(curvature(z), asked)).sum(-1)
    return mean.reshape(users, pairs), variance.reshape(users, pairs)


def likelihood_loss(differences: Tensor, margins: Tensor, counts: Tensor) -> Tensor:
    """Return minus the log-likelihood of the users' choices per pair: each given those before it.

    The chance of a choice is a logistic averaged over a Gaussian, by MacKay's approximation (1992): the logistic of
    mean / sqrt(1 + pi variance / 8).
    """
    before = torch.ones(counts.shape[1], counts.shape[1]).tril(-1)
    mean, variance = predict(differences, margins, before * counts[:, None, :])
    odds = mean / torch.sqrt(1 + math.pi * variance / 8)
    return (F.softplus(-odds) * counts).sum() / counts.sum()


def leave_one_out(differences: Tensor, margins: Tensor, counts: Tensor) -> Tensor:
    """Return the margin of every pair, in order, with all other pairs of its user as labels."""
    others = 1 - torch.eye(counts.shape[1])
    mean, _ = predict(differences, margins, others * counts[:, None, :])
    return mean[counts > 0]


def train_fewshot(data: TrainingData, config: FewshotConfig, folder: Path, progress: ProgressCallback) -> Trained:
    """Train into a folder that `--model fewshot:FOLDER` takes."""
    check_training_data(data, needs=(PROFILES,) if config.reads_posts else ())
    groups, held_out_groups = _by_user(data.train), _by_user(data.validation)
    if max(map(len, groups)) < 2:
        raise DataError(
            f"{data.name}: no user of the train split has two pairs, so none can serve as a label for another. "
            "Add pairs of the same users, or correct user_id."
        )
    progress(0, config.epochs, "embedding")
    texts, encoder = TextTable(), load_encoder(config.encoder)
    train, held_out = (_sequences(some, texts, config) for some in (groups, held_out_groups))
    table = texts.vectors(encoder)
    torch.manual_seed(config.seed)
    module = Fewshot(table.shape[1], config)

    def loss(users: Tensor) -> Tensor:
        batch = train.take(users)
        differences, margins = module(table, batch)
        order = torch.rand(batch.counts.shape).argsort(dim=1)  # every user's pairs in a new one
        rank = order[..., None].expand(differences.shape)
        return likelihood_loss(differences.gather(1, rank), margins.gather(1, order), batch.counts.gather(1, order))

    @torch.no_grad()
    def held_out_margins() -> Tensor:
        differences, margins = module(table, held_out)
        return leave_one_out(differences, margins, held_out.counts)

    with one_thread():
        best = fit(module, len(groups), loss, held_out_margins, config, checkpoint_in(folder, config, data), progress)
        users = [pair.user.id for group in held_out_groups for pair in group]
        calibrated = calibrate_margins(held_out_margins(), users)
    module.weights(config.encoder, calibrated.temperature).save(folder)
    facts = {
        "encoder": dict(encoder.identity),
        "parameters": sum(weight.numel() for weight in module.parameters()),
        "labels": "a user's other pairs",  # behind the two figures on held-out users that follow
        **best.facts,
        **calibrated.facts,
    }
    context = "profile" if config.reads_posts else "none"
    return Trained(spec=f"fewshot:{folder}", context=context, shots=SHOTS, facts=facts)


def _by_user(examples: Sequence[Example]) -> list[list[Example]]:
    """Return every user's pairs, at most so many together.

    Of several pairs with one question and a response in common only the first counts: one would tell of the other what
    no label tells in use.
    """
    of_user: dict[str, list[Example]] = {}
    seen: set[tuple[str, str, str]] = set()
    for example in examples:
        answered = {(example.user.id, example.question, each) for each in (example.chosen, example.rejected)}
        if not answered & seen:
            of_user.setdefault(example.user.id, []).append(example)
        seen |= answered
    return [
        pairs[start : start + MOST_PAIRS] for pairs in of_user.values() for start in range(0, len(pairs), MOST_PAIRS)
    ]


def _sequences(groups: Sequence[Sequence[Example]], texts: TextTable, config: FewshotConfig) -> Sequences:
    """Return the users as places in the table, entering new texts at its end."""
    most = max(map(len, groups))

    def sentences(text: Callable[[Example], str]) -> RaggedIndex:
        parts = [
            sentences_of(text(group[turn])) if turn < len(group) else [] for group in groups for turn in range(most)
        ]
        found = texts.index(parts)
        return RaggedIndex(found.places.view(len(groups), most, -1), found.mask.view(len(groups), most, -1))

    return Sequences(
        good=sentences(lambda pair: pair.chosen),
        bad=sentences(lambda pair: pair.rejected),
        counts=torch.tensor([[float(turn < len(group)) for turn in range(most)] for group in groups]),
        posts=texts.index([newest_posts(group[0], config.posts) if config.reads_posts else [] for group in groups]),
    )
