"""Train a head on frozen embeddings (`prbench.reward_models.head` has the models): config, losses and training.

Two sources of truth in the training rows are used. The pair: this user prefers `chosen` (Bradley-Terry). The rubric:
of the aspects that occur with this question anywhere in the training rows, these are the ones that this user expects.

It stays as the cheapest method that reads posts, a minute on a CPU; the heads that ship with the package are its.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import torch
from torch import Tensor, nn

from prbench.backends.encoders import Encoder, load_encoder
from prbench.context.aspect_planner import SHARPNESS
from prbench.metrics.calibration import calibrate_margins
from prbench.reward_models.head import TopicWeights
from prbench.runs import Checkpoint, Keys
from prbench.schema import Json
from prbench.specs import Count, NotNegative, Positive, Share
from prbench.training.data import PROFILES, TrainingData, check_training_data
from prbench.training.folder import (
    MethodConfig,
    ProgressCallback,
    Trained,
    checkpoint_in,
    no_progress,
    spec_with_encoder,
)
from prbench.training.loop import (
    EmbeddingTables,
    HeadRows,
    RaggedIndex,
    fit,
    head_rows,
    mean_of,
    one_thread,
    preference_loss,
    rubric_loss,
    sum_of,
    to_array,
)

Topics = tuple[Tensor, Tensor]  # of every post, and of every sentence


@dataclass(frozen=True, kw_only=True)
class HeadConfig(MethodConfig):
    """How to train a head. The defaults were chosen on the validation split of the lab."""

    knows_users: bool = True
    encoder: str = "minilm"
    posts: Count = 30  # of each profile, the newest
    topics: Count = 24
    rubric_weight: NotNegative = 1.0  # 0: from preferences alone
    epochs: Count = 30
    patience: Count = 15  # few rows make few steps per epoch, and a slow start
    batch_size: Count = 256
    learning_rate: Positive = 4e-3
    weight_decay: NotNegative = 1e-2
    dropout: Share = 0.4
    seed: int = 0

    KEYS: ClassVar[Keys] = Keys(
        knows_users=True,
        encoder="minilm",
        posts=30,
        topics=24,
        rubric_weight=1.0,
        epochs=30,
        patience=15,
        batch_size=256,
        learning_rate=4e-3,
        weight_decay=1e-2,
        dropout=0.4,
        seed=0,
    )


class TopicHead(nn.Module):
    """Topics of posts and sentences, with the weights between them; `read` is asked once per batch."""

    def __init__(self, size: int, *, topics: int, dropout: float, knows_users: bool) -> None:
        super().__init__()
        self.posts = nn.Linear(size, topics + 1)
        self.sentences = nn.Linear(size, topics)
        with torch.no_grad():  # a post and a sentence about the same thing begin in the same topic
            self.sentences.weight.copy_(self.posts.weight[:topics])
        self.mix = nn.Parameter(2 * torch.eye(topics), requires_grad=knows_users)
        self.average = nn.Parameter(torch.zeros(topics))
        self.scale = nn.Parameter(torch.tensor(3.0))
        self.offset = nn.Parameter(torch.tensor(-1.0))  # of the rubric's odds only
        self.dropout = nn.Dropout(dropout)
        if not knows_users:
            nn.init.zeros_(self.mix)

    def read(self, tables: EmbeddingTables) -> Topics:
        """Return the topics of every post and of every sentence."""
        about_posts = (SHARPNESS * self.posts(self.dropout(tables.posts))).softmax(-1)[:, :-1]
        return about_posts, (SHARPNESS * self.sentences(self.dropout(tables.others))).softmax(-1)

    def wants(self, about_posts: Tensor, posts: RaggedIndex) -> Tensor:
        """Return what each row's user wants: (rows, topics)."""
        return self.average + torch.log1p(2 * sum_of(about_posts.contiguous(), posts)) @ self.mix

    def margin(self, about: Topics, rows: HeadRows) -> Tensor:
        """Return score(chosen) - score(rejected)."""
        difference = mean_of(about[1], rows.chosen) - mean_of(about[1], rows.rejected)  # (rows, topics)
        margin: Tensor = self.scale * (self.wants(about[0], rows.posts) * difference).sum(-1)
        return margin

    def loss(self, about: Topics, rows: HeadRows, rubric_weight: float) -> Tensor:
        """Return the loss of the pairs, and of the rubrics unless they weigh nothing."""
        pairs = preference_loss(self.margin(about, rows))
        if not rubric_weight:
            return pairs
        wants = self.wants(about[0], rows.posts)[:, None]
        # (rows, aspects): the log-odds that each aspect is one of the user's
        logits = self.scale * (wants * about[1][rows.aspects.places]).sum(-1) + self.offset
        return pairs + rubric_weight * rubric_loss(logits, rows.wanted, rows.aspects.mask)

    def weights(self) -> TopicWeights:
        """Return the arrays that scoring needs."""
        return TopicWeights(
            post_weight=to_array(self.posts.weight.T),
            post_bias=to_array(self.posts.bias),
            sentence_weight=to_array(self.sentences.weight.T),
            sentence_bias=to_array(self.sentences.bias),
            mix=to_array(self.mix),
            average=to_array(self.average),
            scale=to_array(self.scale),
        )


def train_head(data: TrainingData, config: HeadConfig, folder: Path, progress: ProgressCallback) -> Trained:
    """Train a head into a folder that `--model head:FOLDER` takes."""
    encoder = load_encoder(config.encoder)
    head = learn_head(data, config, encoder, checkpoint_in(folder, config, data), progress)
    head.weights.save(folder)
    spec = spec_with_encoder("head", folder, config.encoder)
    facts = {"encoder": dict(encoder.identity), "parameters": head.parameters, **head.facts}
    return Trained(spec=spec, context="profile" if config.knows_users else "none", facts=facts)


@dataclass(frozen=True, kw_only=True)
class LearnedHead:
    """A head of the best epoch by accuracy on held-out users, with calibrated margins."""

    weights: TopicWeights
    parameters: int
    facts: dict[str, Json]  # of the best epoch and of the calibration, for the card


def learn_head(
    data: TrainingData,
    config: HeadConfig,
    encoder: Encoder,
    checkpoint: Checkpoint | None = None,
    progress: ProgressCallback = no_progress,
) -> LearnedHead:
    """Train a head; with a checkpoint, it can be killed and goes on."""
    check_training_data(data, needs=(PROFILES,) if config.knows_users else ())
    progress(0, config.epochs, "embedding")
    rows, tables = head_rows(data.train, encoder, posts=config.posts)
    held_out, held_out_tables = head_rows(data.validation, encoder, posts=config.posts)
    torch.manual_seed(config.seed)
    head = TopicHead(
        tables.others.shape[1], topics=config.topics, dropout=config.dropout, knows_users=config.knows_users
    )
    rubric_weight = config.rubric_weight if config.knows_users and rows.has_unwanted else 0.0

    def loss(numbers: Tensor) -> Tensor:
        return head.loss(head.read(tables), rows.take(numbers), rubric_weight)

    @torch.no_grad()
    def margins() -> Tensor:
        return head.margin(head.read(held_out_tables), held_out)

    with one_thread():
        best = fit(head, len(rows.wanted), loss, margins, config, checkpoint, progress)
        calibrated = calibrate_margins(margins(), [example.user.id for example in data.validation])
    return LearnedHead(
        weights=head.weights().scaled(calibrated.temperature),
        parameters=sum(weight.numel() for weight in head.parameters() if weight.requires_grad),
        facts={**best.facts, **calibrated.facts},
    )
