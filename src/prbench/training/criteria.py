"""Train what tells whether a sentence serves a criterion (`prbench.reward_models.planner` has the formula).

The pairs teach it: against its own rubric `chosen` must score higher than `rejected` (Bradley-Terry). Aspects that
only other users look for with the same question compete for the sentences at weight 0. A share of the loss is without
them, because a list of criteria at hand does not always come with its rivals.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from prbench.backends.encoders import Encoder
from prbench.context.aspect_planner import aspect_text
from prbench.data.texts import sentences_of
from prbench.errors import DataError
from prbench.reward_models.planner import CriteriaWeights
from prbench.runs import Checkpoint
from prbench.schema import Example
from prbench.training.data import TrainingData
from prbench.training.folder import Progress, silent
from prbench.training.loop import BestEpoch, LoopConfig, fit, one_thread, seeded
from prbench.training.table import TextTable

FAR = -1e9  # nearness of what is not there


@dataclass(frozen=True, kw_only=True)
class CriteriaConfig:
    """How to train the scorer of criteria. The defaults were chosen on the lab's validation split."""

    rank: int = 32
    sharpness: float = (
        0.0  # 0: a criterion is covered as far as the sentences serve it on average; large: the best one
    )
    without_rivals: float = 0.5  # share of the loss in which aspects of other users do not compete
    epochs: int = 8
    batch_size: int = 256
    learning_rate: float = 5e-3
    weight_decay: float = 0.1
    dropout: float = 0.3
    patience: int = 4
    seed: int = 0


@dataclass(frozen=True)
class _Rows:
    """Rows as places in a table of embeddings."""

    criteria: Tensor  # (rows, most criteria)
    criteria_mask: Tensor
    wanted: Tensor  # 1 for the aspects of the row's own rubric
    chosen: Tensor  # (rows, most sentences)
    chosen_mask: Tensor
    rejected: Tensor
    rejected_mask: Tensor

    def take(self, rows: Tensor) -> "_Rows":
        return _Rows(*(getattr(self, name)[rows] for name in self.__dataclass_fields__))


class Criteria(nn.Module):
    """The scorer as a module."""

    sharpness: Tensor

    def __init__(self, size: int, rank: int, dropout: float, sharpness: float = 0.0) -> None:
        super().__init__()
        self.criterion = nn.Parameter(0.05 * torch.randn(size, rank))
        self.sentence = nn.Parameter(0.05 * torch.randn(size, rank))
        self.cosine = nn.Parameter(torch.tensor(4.0))
        self.none = nn.Parameter(torch.tensor(0.0))
        self.register_buffer("sharpness", torch.tensor(sharpness))
        self.scale = nn.Parameter(torch.tensor(5.0))
        self.dropout = nn.Dropout(dropout)

    def covered(self, criteria: Tensor, there: Tensor, sentences: Tensor, mask: Tensor) -> Tensor:
        """Return how much of each criterion is covered: (rows, criteria), from embeddings and masks."""
        near = self.cosine * torch.einsum("rcd,rsd->rsc", criteria, sentences)
        ours, theirs = self.dropout(criteria) @ self.criterion, self.dropout(sentences) @ self.sentence
        near = (near + torch.einsum("rck,rsk->rsc", ours, theirs)).masked_fill(there[:, None] == 0, FAR)
        serves = torch.cat([near, self.none.expand(*near.shape[:2], 1)], dim=-1).softmax(-1)[..., :-1]
        pool = (self.sharpness * serves).masked_fill(mask[..., None] == 0, FAR).softmax(1)
        return (pool * serves * mask[..., None]).sum(1)

    def margin(self, table: Tensor, batch: _Rows, there: Tensor) -> Tensor:
        """Return score(chosen) - score(rejected) against each row's own rubric."""
        criteria = table[batch.criteria]
        good = self.covered(criteria, there, table[batch.chosen], batch.chosen_mask)
        bad = self.covered(criteria, there, table[batch.rejected], batch.rejected_mask)
        margin: Tensor = self.scale * ((good - bad) * batch.wanted).sum(-1)
        return margin

    def weights(self) -> CriteriaWeights:
        """Return the arrays that scoring needs."""
        names = CriteriaWeights.__dataclass_fields__
        return CriteriaWeights(
            **{name: getattr(self, name).detach().numpy().astype(np.float32).copy() for name in names}
        )


def preference_loss(margin: Tensor) -> Tensor:
    """Return the Bradley-Terry loss, -log sigmoid(margin), averaged (Bradley and Terry 1952)."""
    return F.softplus(-margin).mean()


def train_criteria(
    data: TrainingData, encoder: Encoder, config: CriteriaConfig, checkpoint: Checkpoint, say: Progress = silent
) -> tuple[CriteriaWeights, BestEpoch]:
    """Return the scorer of the best epoch, by how often `chosen` wins against the gold rubric of held-out users."""
    table = TextTable()
    rows, held_out = (_to_rows(_with_rubric(split, data), table) for split in (data.train, data.validation))
    vectors = table.vectors(encoder)
    seeded(config.seed)
    module = Criteria(vectors.shape[1], config.rank, config.dropout, config.sharpness)

    def loss(places: Tensor) -> Tensor:
        batch = rows.take(places)
        total = torch.tensor(0.0)
        for share, there in (
            (1 - config.without_rivals, batch.criteria_mask),
            (config.without_rivals, batch.wanted * batch.criteria_mask),
        ):
            if share:
                total = total + share * preference_loss(module.margin(vectors, batch, there))
        return total

    def evaluate() -> float:
        margin = module.margin(vectors, held_out, held_out.criteria_mask)
        return float(((margin > 0).float() + 0.5 * (margin == 0).float()).mean())

    settings = LoopConfig(
        epochs=config.epochs,
        learning_rate=config.learning_rate,
        weight_decay=config.weight_decay,
        patience=config.patience,
        batch_size=config.batch_size,
        seed=config.seed,
    )
    with one_thread():
        best = fit(module, len(rows.wanted), loss, evaluate, settings, checkpoint, say)
    return module.weights(), best


def aspects_of(example: Example) -> list[str]:
    """Return the texts of an example's rubric."""
    return list(dict.fromkeys(aspect_text(aspect.aspect, aspect.reason) for aspect in example.rubric))


def aspects_by_question(examples: Sequence[Example]) -> dict[str, list[str]]:
    """Return the aspects that anybody looks for with each question."""
    found: dict[str, dict[str, None]] = {}
    for example in examples:
        found.setdefault(example.question, {}).update(dict.fromkeys(aspects_of(example)))
    return {question: list(texts) for question, texts in found.items()}


def _with_rubric(examples: Sequence[Example], data: TrainingData) -> list[Example]:
    found = [example for example in examples if example.rubric]
    if not found:
        raise DataError(f"{data.name}: a split has no row with a rubric. Choose splits with `rubric_aspects`.")
    return found


def _to_rows(examples: Sequence[Example], table: TextTable) -> _Rows:
    known = aspects_by_question(examples)
    criteria = [known[example.question] for example in examples]
    places, mask = table.places(criteria)
    wanted = torch.zeros_like(mask)
    for row, (example, texts) in enumerate(zip(examples, criteria, strict=True)):
        own = set(aspects_of(example))
        wanted[row, : len(texts)] = torch.tensor([float(text in own) for text in texts])
    return _Rows(
        places,
        mask,
        wanted,
        *table.places([sentences_of(example.chosen) for example in examples]),
        *table.places([sentences_of(example.rejected) for example in examples]),
    )
