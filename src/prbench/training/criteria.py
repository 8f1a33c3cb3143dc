"""Train what tells whether a sentence serves a criterion (`prbench.reward_models.planner` has the formula).

The pairs teach it: against its own rubric `chosen` must score higher than `rejected` (Bradley-Terry). Aspects that
only other users look for with the same question compete for the sentences at weight 0. A share of the loss is without
them, because a list of criteria at hand does not always come with its rivals.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from prbench.backends.encoders import Encoder
from prbench.context.aspect_planner import aspect_text
from prbench.data.texts import sentences_of
from prbench.errors import DataError
from prbench.reward_models.planner import CriteriaWeights
from prbench.runs import Checkpoint
from prbench.schema import Example
from prbench.training.data import TrainingData
from prbench.training.folder import ProgressCallback, no_progress
from prbench.training.loop import (
    BestEpoch,
    RaggedIndex,
    RowTensors,
    TextTable,
    aspects_by_question,
    fit,
    is_wanted,
    one_thread,
    preference_loss,
    to_array,
)

FAR = -1e9  # nearness of what is not there


@dataclass(frozen=True, kw_only=True)
class CriteriaConfig:
    """How to train the scorer of criteria. The defaults were chosen on the lab's validation split."""

    rank: int = 32
    without_rivals: float = 0.5  # share of the loss in which aspects of other users do not compete
    epochs: int = 8
    batch_size: int = 256
    learning_rate: float = 5e-3
    weight_decay: float = 0.1
    dropout: float = 0.3
    patience: int = 4
    seed: int = 0


@dataclass(frozen=True)
class CriteriaRows(RowTensors):
    """Pairs with the criteria that anybody has for their questions."""

    criteria: RaggedIndex
    wanted: Tensor  # 1 for the aspects of the row's own rubric
    chosen: RaggedIndex  # sentences
    rejected: RaggedIndex


class Criteria(nn.Module):
    """The scorer as a module."""

    sharpness: Tensor

    def __init__(self, size: int, rank: int, dropout: float) -> None:
        super().__init__()
        self.criterion = nn.Parameter(0.05 * torch.randn(size, rank))
        self.sentence = nn.Parameter(0.05 * torch.randn(size, rank))
        self.cosine = nn.Parameter(torch.tensor(4.0))
        self.none = nn.Parameter(torch.tensor(0.0))
        # 0: a criterion is covered as far as sentences serve it on average; large: as the best one does.
        self.register_buffer("sharpness", torch.tensor(0.0))
        self.scale = nn.Parameter(torch.tensor(5.0))
        self.dropout = nn.Dropout(dropout)

    def covered(self, criteria: Tensor, there: Tensor, sentences: Tensor, mask: Tensor) -> Tensor:
        """Return how much of each criterion is covered: (rows, criteria), from embeddings and masks."""
        near = self.cosine * torch.einsum("rcd,rsd->rsc", criteria, sentences)  # (rows, sentences, criteria)
        ours, theirs = self.dropout(criteria) @ self.criterion, self.dropout(sentences) @ self.sentence
        near = (near + torch.einsum("rck,rsk->rsc", ours, theirs)).masked_fill(there[:, None] == 0, FAR)
        serves = torch.cat([near, self.none.expand(*near.shape[:2], 1)], dim=-1).softmax(-1)[..., :-1]
        # Over the sentences: how much of the coverage each of them stands for.
        pool = (self.sharpness * serves).masked_fill(mask[..., None] == 0, FAR).softmax(1)
        return (pool * serves * mask[..., None]).sum(1)

    def margin(self, table: Tensor, batch: CriteriaRows, there: Tensor) -> Tensor:
        """Return score(chosen) - score(rejected) against each row's own rubric."""
        criteria = table[batch.criteria.places]
        good = self.covered(criteria, there, table[batch.chosen.places], batch.chosen.mask)
        bad = self.covered(criteria, there, table[batch.rejected.places], batch.rejected.mask)
        margin: Tensor = self.scale * ((good - bad) * batch.wanted).sum(-1)
        return margin

    def weights(self) -> CriteriaWeights:
        """Return the arrays that scoring needs."""
        return CriteriaWeights(
            **{name: to_array(getattr(self, name)) for name in CriteriaWeights.__dataclass_fields__}
        )


def _aspects(example: Example) -> list[str]:
    return [aspect_text(aspect.aspect, aspect.reason) for aspect in example.rubric]


def train_criteria(
    data: TrainingData,
    encoder: Encoder,
    config: CriteriaConfig,
    checkpoint: Checkpoint,
    progress: ProgressCallback = no_progress,
) -> tuple[CriteriaWeights, BestEpoch]:
    """Return the scorer of the best epoch, by how often `chosen` wins against the gold rubric of held-out users."""
    table = TextTable()

    def to_rows(split: Sequence[Example]) -> CriteriaRows:
        examples = [example for example in split if example.rubric]
        if not examples:
            raise DataError(f"{data.name}: a split has no row with a rubric. Choose splits with `rubric_aspects`.")
        known = aspects_by_question(examples, _aspects)
        criteria = [known[example.question] for example in examples]
        return CriteriaRows(
            criteria=table.index(criteria),
            wanted=is_wanted(examples, criteria, _aspects),
            chosen=table.index([sentences_of(example.chosen) for example in examples]),
            rejected=table.index([sentences_of(example.rejected) for example in examples]),
        )

    rows, held_out = to_rows(data.train), to_rows(data.validation)
    vectors = table.vectors(encoder)
    torch.manual_seed(config.seed)
    module = Criteria(vectors.shape[1], config.rank, config.dropout)

    def loss(places: Tensor) -> Tensor:
        batch = rows.take(places)
        total = torch.tensor(0.0)
        for share, there in (
            (1 - config.without_rivals, batch.criteria.mask),
            (config.without_rivals, batch.wanted * batch.criteria.mask),
        ):
            if share:
                total = total + share * preference_loss(module.margin(vectors, batch, there))
        return total

    def margins() -> Tensor:
        return module.margin(vectors, held_out, held_out.criteria.mask)

    with one_thread():
        best = fit(module, len(rows.wanted), loss, margins, config, checkpoint, progress)
    return module.weights(), best
