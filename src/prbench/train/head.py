"""Train a head on frozen embeddings (`prbench.reward_models.head` has the model): config, losses and loop.

Two sources of truth in the training rows are used. The pair: this user prefers `chosen` (Bradley-Terry). The rubric:
of the aspects that occur with this question anywhere in the training rows, these are the ones that this user expects.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from prbench.encoders import Encoder
from prbench.errors import DataError
from prbench.reward_models.head import SHARPNESS, HeadWeights
from prbench.schema import Example
from prbench.sentences import sentences_of


@dataclass(frozen=True, kw_only=True)
class HeadConfig:
    """How to train a head. The defaults are the ones that the shipped heads were trained with."""

    knows_users: bool = True
    topics: int = 24
    rubric_weight: float = 1.0  # 0: from preferences alone
    epochs: int = 30
    batch_size: int = 256
    learning_rate: float = 1e-2
    weight_decay: float = 1e-2
    dropout: float = 0.2
    seed: int = 0


@dataclass(frozen=True)
class Batchable:
    """Rows as places in one table of embeddings; places of padding have weight 0."""

    posts: Tensor  # (rows, most posts)
    post_mask: Tensor
    chosen: Tensor  # (rows, most sentences)
    chosen_mask: Tensor
    rejected: Tensor
    rejected_mask: Tensor
    aspects: Tensor  # (rows, most aspects)
    wanted: Tensor  # 1 for aspects in the row's rubric
    aspect_mask: Tensor

    def take(self, rows: Tensor) -> "Batchable":
        """Return some of the rows."""
        return Batchable(*(getattr(self, name)[rows] for name in self.__dataclass_fields__))


class Head(nn.Module):
    """The head as a module; see `prbench.reward_models.head` for the formula."""

    def __init__(self, size: int, config: HeadConfig) -> None:
        super().__init__()
        self.posts = nn.Linear(size, config.topics + 1)
        self.sentences = nn.Linear(size, config.topics)
        with torch.no_grad():  # a post and a sentence about the same thing begin in the same topic
            self.sentences.weight.copy_(self.posts.weight[: config.topics])
        self.mix = nn.Parameter(2 * torch.eye(config.topics), requires_grad=config.knows_users)
        self.average = nn.Parameter(torch.zeros(config.topics))
        self.scale = nn.Parameter(torch.tensor(3.0))
        self.offset = nn.Parameter(torch.tensor(-1.0))  # of the rubric's odds only
        self.dropout = nn.Dropout(config.dropout)
        if not config.knows_users:
            nn.init.zeros_(self.mix)

    def read(self, table: Tensor) -> tuple[Tensor, Tensor]:
        """Return the topics of every text in the table, as a post and as a sentence."""
        about_posts = (SHARPNESS * self.posts(self.dropout(table))).softmax(-1)[:, :-1]
        return about_posts, (SHARPNESS * self.sentences(self.dropout(table))).softmax(-1)

    def wants(self, about_posts: Tensor, batch: Batchable) -> Tensor:
        """Return what each row's user wants: (rows, topics)."""
        mass = (about_posts[batch.posts] * batch.post_mask[..., None]).sum(1)
        return self.average + torch.log1p(2 * mass) @ self.mix

    def margin(self, about: tuple[Tensor, Tensor], batch: Batchable) -> Tensor:
        """Return score(chosen) - score(rejected)."""
        good, bad = (
            _mean(about[1], batch.chosen, batch.chosen_mask),
            _mean(about[1], batch.rejected, batch.rejected_mask),
        )
        margin: Tensor = self.scale * (self.wants(about[0], batch) * (good - bad)).sum(-1)
        return margin

    def rubric_logits(self, about: tuple[Tensor, Tensor], batch: Batchable) -> Tensor:
        """Return the log-odds that each aspect is one of the user's."""
        logits: Tensor = (
            self.scale * (self.wants(about[0], batch)[:, None] * about[1][batch.aspects]).sum(-1) + self.offset
        )
        return logits

    def weights(self) -> HeadWeights:
        """Return the arrays that scoring needs."""
        arrays = {
            "post_weight": self.posts.weight.T,
            "post_bias": self.posts.bias,
            "sentence_weight": self.sentences.weight.T,
            "sentence_bias": self.sentences.bias,
            "mix": self.mix,
            "average": self.average,
            "scale": self.scale,
        }
        return HeadWeights(
            **{name: value.detach().numpy().astype(np.float32).copy() for name, value in arrays.items()}
        )


def preference_loss(margin: Tensor) -> Tensor:
    """Return the Bradley-Terry loss, -log sigmoid(margin), averaged (Bradley and Terry 1952)."""
    return F.softplus(-margin).mean()


def rubric_loss(logits: Tensor, wanted: Tensor, mask: Tensor) -> Tensor:
    """Return the mean binary cross-entropy over the aspects that count."""
    each = F.binary_cross_entropy_with_logits(logits, wanted, reduction="none")
    return (each * mask).sum() / mask.sum().clamp(min=1)


def train_head(
    train: Sequence[Example],
    validation: Sequence[Example],
    encoder: Encoder,
    config: HeadConfig,
    *,
    on_epoch: Callable[[int, float], None] = lambda epoch, accuracy: None,
) -> tuple[HeadWeights, dict[str, object]]:
    """Return the head of the best epoch by accuracy on held-out users, and a card that says how it was made."""
    shared = {example.user.id for example in train} & {example.user.id for example in validation}
    if shared:
        raise DataError(f"User {sorted(shared)[0]!r} is in both train and validation. Split the rows by user.")
    place: dict[str, int] = {}
    rows, held_out = _batchable(train, place), _batchable(validation, place)
    table = torch.from_numpy(encoder.encode(list(place)))
    torch.manual_seed(config.seed)
    head = Head(table.shape[1], config)
    optimiser = torch.optim.AdamW(head.parameters(), lr=config.learning_rate, weight_decay=config.weight_decay)
    best, best_accuracy, best_epoch = head.weights(), -1.0, -1
    for epoch in range(config.epochs):
        _run_epoch(head, table, rows, optimiser, config)
        accuracy = _accuracy(head, table, held_out)
        on_epoch(epoch, accuracy)
        if accuracy > best_accuracy:
            best, best_accuracy, best_epoch = head.weights(), accuracy, epoch
    card = {
        "config": asdict(config),
        "encoder": dict(encoder.identity),
        "train_pairs": len(train),
        "validation_pairs": len(validation),
        "validation_accuracy": round(best_accuracy, 4),
        "epoch": best_epoch,
    }
    return best, card


def _run_epoch(
    head: Head, table: Tensor, rows: Batchable, optimiser: torch.optim.Optimizer, config: HeadConfig
) -> None:
    head.train()
    order = torch.randperm(len(rows.posts))
    for start in range(0, len(order), config.batch_size):
        batch = rows.take(order[start : start + config.batch_size])
        about = head.read(table)
        loss = preference_loss(head.margin(about, batch))
        if config.rubric_weight and config.knows_users:
            logits = head.rubric_logits(about, batch)
            loss = loss + config.rubric_weight * rubric_loss(logits, batch.wanted, batch.aspect_mask)
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()


def _accuracy(head: Head, table: Tensor, rows: Batchable) -> float:
    head.eval()
    with torch.no_grad():
        margin = head.margin(head.read(table), rows)
    return float(((margin > 0).float() + 0.5 * (margin == 0).float()).mean())


def _mean(values: Tensor, places: Tensor, mask: Tensor) -> Tensor:
    return (values[places] * mask[..., None]).sum(1) / mask.sum(1, keepdim=True).clamp(min=1)


def _batchable(examples: Sequence[Example], place: dict[str, int]) -> Batchable:
    """Return rows as places in the table, entering new texts at its end."""
    of_question: dict[str, dict[str, None]] = {}
    for example in examples:
        of_question.setdefault(example.question, {}).update(dict.fromkeys(_aspect_texts(example)))
    posts = [[post.text for post in example.user.profile] for example in examples]
    aspects = [list(of_question[example.question]) for example in examples]
    wanted = [
        [float(text in _aspect_texts(example)) for text in texts]
        for example, texts in zip(examples, aspects, strict=True)
    ]
    most = max((len(texts) for texts in aspects), default=0)
    return Batchable(
        *_padded(posts, place),
        *_padded([sentences_of(example.chosen) for example in examples], place),
        *_padded([sentences_of(example.rejected) for example in examples], place),
        _padded(aspects, place)[0],
        torch.tensor([[*row, *[0.0] * (most - len(row))] for row in wanted]),
        _padded(aspects, place)[1],
    )


def _aspect_texts(example: Example) -> list[str]:
    return [f"{aspect.aspect}. {aspect.reason}".strip() for aspect in example.rubric]


def _padded(groups: Sequence[Sequence[str]], place: dict[str, int]) -> tuple[Tensor, Tensor]:
    most = max((len(group) for group in groups), default=0) or 1
    places = torch.zeros(len(groups), most, dtype=torch.long)
    mask = torch.zeros(len(groups), most)
    for row, group in enumerate(groups):
        for column, text in enumerate(group):
            places[row, column] = place.setdefault(text, len(place))
            mask[row, column] = 1.0
    return places, mask
