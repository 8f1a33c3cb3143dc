"""Train a head on frozen embeddings (`prbench.reward_models.head` has the models): config, losses and training.

Two sources of truth in the training rows are used. The pair: this user prefers `chosen` (Bradley-Terry). The rubric:
of the aspects that occur with this question anywhere in the training rows, these are the ones that this user expects.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from prbench.backends.encoders import Encoder, load_encoder
from prbench.errors import UsageError
from prbench.reward_models.head import TopicWeights, save_weights, scale_by_temperature
from prbench.runs import Checkpoint
from prbench.runs.manifest import Keys
from prbench.schema import Json
from prbench.training.calibrate import Calibrated, calibrate_margins
from prbench.training.data import PROFILES, TrainingData, check_training_data
from prbench.training.folder import Progress, Trained, checkpoint_in, silent
from prbench.training.head_modules import TopicHead
from prbench.training.loop import BestEpoch, LoopConfig, fit, one_thread, seeded
from prbench.training.rows import EmbeddingTables, HeadRows, head_rows


@dataclass(frozen=True, kw_only=True)
class HeadConfig:
    """How to train a head. The defaults were chosen on the validation split of the lab."""

    knows_users: bool = True
    encoder: str = "minilm"
    posts: int = 30  # of each profile, the newest
    topics: int = 24
    rubric_weight: float = 1.0  # 0: from preferences alone
    epochs: int = 30
    patience: int = 15  # few rows make few steps per epoch, and a slow start
    batch_size: int = 256
    learning_rate: float = 4e-3
    weight_decay: float = 1e-2
    dropout: float = 0.4
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

    def to_config(self) -> dict[str, Json]:
        """Return what takes part in the identity of a run."""
        return self.KEYS.write(self)

    def __post_init__(self) -> None:
        """Refuse what cannot be trained."""
        for name in ("posts", "topics", "epochs", "patience", "batch_size"):
            if getattr(self, name) < 1:
                raise UsageError(f"{name}={getattr(self, name)} trains nothing. Give a whole number above 0.")
        if not 0 <= self.dropout < 1:
            raise UsageError(f"dropout={self.dropout} is no share. Give a number from 0 to below 1.")
        if self.rubric_weight < 0 or self.weight_decay < 0 or self.learning_rate <= 0:
            raise UsageError("rubric_weight and weight_decay must be 0 or more, learning_rate above 0.")


def preference_loss(margin: Tensor) -> Tensor:
    """Return the Bradley-Terry loss, -log sigmoid(margin), averaged (Bradley and Terry 1952)."""
    return F.softplus(-margin).mean()


def rubric_loss(logits: Tensor, wanted: Tensor, mask: Tensor) -> Tensor:
    """Return the mean binary cross-entropy over the aspects that count."""
    each = F.binary_cross_entropy_with_logits(logits, wanted, reduction="none")
    return (each * mask).sum() / mask.sum().clamp(min=1)


def train_head(data: TrainingData, config: HeadConfig, folder: Path, say: Progress) -> Trained:
    """Train a head into a folder that `--model head:FOLDER` takes."""
    encoder = load_encoder(config.encoder)
    head = learn_head(data, config, encoder, checkpoint_in(folder, config, data), say)
    save_weights(head.weights, folder)
    spec = f"head:{folder}" + ("" if config.encoder == "minilm" else f"?encoder={config.encoder}")
    facts = {"encoder": dict(encoder.identity), "parameters": head.parameters, **head.facts}
    return Trained(spec=spec, context="profile" if config.knows_users else "none", facts=facts)


@dataclass(frozen=True, kw_only=True)
class LearnedHead:
    """A head of the best epoch by accuracy on held-out users, with calibrated margins."""

    weights: TopicWeights
    best: BestEpoch
    calibrated: Calibrated
    parameters: int

    @property
    def facts(self) -> dict[str, Json]:
        """What a card says of it."""
        return {**self.best.facts, **self.calibrated.facts}


def learn_head(
    data: TrainingData,
    config: HeadConfig,
    encoder: Encoder,
    checkpoint: Checkpoint | None = None,
    say: Progress = silent,
) -> LearnedHead:
    """Train a head; with a checkpoint, it can be killed and goes on."""
    check_training_data(data, needs=(PROFILES,) if config.knows_users else ())
    say(0, config.epochs, "embedding")
    rows, tables = head_rows(data.train, encoder, posts=config.posts)
    held_out, held_out_tables = head_rows(data.validation, encoder, posts=config.posts)
    seeded(config.seed)
    head = TopicHead(
        tables.others.shape[1], topics=config.topics, dropout=config.dropout, knows_users=config.knows_users
    )
    uses_rubrics = config.rubric_weight > 0 and config.knows_users and rows.has_unwanted

    def loss(numbers: Tensor) -> Tensor:
        batch, about = rows.take(numbers), head.read(tables)
        pairs = preference_loss(head.margin(about, batch))
        if not uses_rubrics:
            return pairs
        rubrics = rubric_loss(head.rubric_logits(about, batch), batch.wanted, batch.aspects.mask)
        return pairs + config.rubric_weight * rubrics

    def evaluate() -> float:
        margins = _margins(head, held_out, held_out_tables)
        return float(np.mean(np.sign(margins) + 1) / 2)

    with one_thread():
        best = fit(head, len(rows), loss, evaluate, _loop(config), checkpoint, say)
        margins = _margins(head, held_out, held_out_tables)
    calibrated = calibrate_margins(margins, [example.user.id for example in data.validation])
    return LearnedHead(
        weights=scale_by_temperature(head.weights(), calibrated.temperature),
        best=best,
        calibrated=calibrated,
        parameters=sum(weight.numel() for weight in head.parameters() if weight.requires_grad),
    )


def _loop(config: HeadConfig) -> LoopConfig:
    return LoopConfig(
        epochs=config.epochs,
        learning_rate=config.learning_rate,
        weight_decay=config.weight_decay,
        patience=config.patience,
        batch_size=config.batch_size,
        seed=config.seed,
    )


def _margins(head: TopicHead, rows: HeadRows, tables: EmbeddingTables) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    with torch.no_grad():
        margins: np.ndarray[tuple[int], np.dtype[np.float64]] = head.margin(head.read(tables), rows).double().numpy()
    return margins
