"""What small methods on embeddings share: rows as tensors, epochs with exact resume and early stopping, a pair's loss.

Texts are places in a table of embeddings, so that a batch is a gather of numbers.
"""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from numpy.typing import NDArray
from torch import Tensor, nn

from prbench.backends.encoders import Encoder
from prbench.backends.trackers import active_trackers
from prbench.data.texts import sentences_of
from prbench.errors import RunError
from prbench.metrics.calibration import accuracy_of
from prbench.runs import Checkpoint
from prbench.schema import Example, Json
from prbench.training.folder import Config, ProgressCallback


class RowTensors:
    """Base of dataclasses whose fields have one entry per row: tensors, or records of the same kind."""

    def take(self, rows: Tensor) -> Self:
        """Return some of the rows."""
        fields = vars(self).values()
        return type(self)(*(each.take(rows) if isinstance(each, RowTensors) else each[rows] for each in fields))

    def to(self, device: str) -> Self:
        """Return the same on a device."""
        return type(self)(*(each.to(device) for each in vars(self).values()))


@dataclass(frozen=True)
class RaggedIndex(RowTensors):
    """One group of texts per row; places of padding have weight 0."""

    places: Tensor  # (rows, most texts)
    mask: Tensor


class TextTable:
    """Collects texts while rows are read; `vectors` embeds each of them once."""

    def __init__(self) -> None:
        self._place: dict[str, int] = {}

    @property
    def texts(self) -> list[str]:
        """All texts, in the order of their places."""
        return list(self._place)

    def index(self, groups: Sequence[Sequence[str]]) -> RaggedIndex:
        """Return where the texts of each group stand; new ones are entered at the end."""
        most = max(map(len, groups), default=0) or 1
        places = torch.zeros(len(groups), most, dtype=torch.long)
        mask = torch.zeros(len(groups), most)
        for row, group in enumerate(groups):
            found = [self._place.setdefault(text, len(self._place)) for text in group]
            places[row, : len(found)] = torch.tensor(found, dtype=torch.long)
            mask[row, : len(found)] = 1.0
        return RaggedIndex(places, mask)

    def vectors(self, encoder: Encoder) -> Tensor:
        """Return the embedding of every text, in the order of the places; without texts one that padding points to."""
        return torch.from_numpy(encoder.encode(self.texts or [""]))


def mean_of(values: Tensor, index: RaggedIndex) -> Tensor:
    """Return the mean of each row's values: (texts, n) -> (rows, n)."""
    return sum_of(values, index) / index.mask.sum(1, keepdim=True).clamp(min=1)


def sum_of(values: Tensor, index: RaggedIndex) -> Tensor:
    """Return the sum of each row's values, without a copy of the values per row."""
    return F.embedding_bag(index.places, values, mode="sum", per_sample_weights=index.mask)


def newest_posts(example: Example, posts: int) -> list[str]:
    """Return at most so many posts of the row's user, the newest last."""
    return [post.text for post in example.user.profile[max(0, len(example.user.profile) - posts) :]]


def aspect_texts(example: Example) -> list[str]:
    """Return the aspects of a rubric as texts: what is wanted, and why."""
    return [f"{aspect.aspect}. {aspect.reason}".strip() for aspect in example.rubric]


def aspects_by_question(
    examples: Sequence[Example], aspects_of: Callable[[Example], Sequence[str]] = aspect_texts
) -> dict[str, list[str]]:
    """Return the aspects that anybody looks for with each question."""
    found: dict[str, dict[str, None]] = {}
    for example in examples:
        found.setdefault(example.question, {}).update(dict.fromkeys(aspects_of(example)))
    return {question: list(texts) for question, texts in found.items()}


def is_wanted(
    examples: Sequence[Example],
    aspects: Sequence[Sequence[str]],
    aspects_of: Callable[[Example], Sequence[str]] = aspect_texts,
) -> Tensor:
    """Return 1 for each of a row's aspects that is in its own rubric: (rows, most aspects)."""
    wanted = torch.zeros(len(examples), max(map(len, aspects), default=0) or 1)
    for row, (example, texts) in enumerate(zip(examples, aspects, strict=True)):
        own = set(aspects_of(example))
        wanted[row, : len(texts)] = torch.tensor([float(text in own) for text in texts])
    return wanted


@dataclass(frozen=True)
class HeadRows(RowTensors):
    """Pairs as a head reads them: posts in one table, questions, sentences and aspects in the other."""

    posts: RaggedIndex
    chosen: RaggedIndex
    rejected: RaggedIndex
    aspects: RaggedIndex  # those that occur with this question in any row
    wanted: Tensor  # 1 for aspects in the row's rubric

    @property
    def has_unwanted(self) -> bool:
        """Is any aspect not in a row's rubric? Where every question is asked once, rubrics tell nothing apart."""
        return bool(((1 - self.wanted) * self.aspects.mask).any())


@dataclass(frozen=True)
class EmbeddingTables:
    """Embeddings of all texts of some rows."""

    posts: Tensor  # (texts, d)
    others: Tensor


def index_rows(examples: Sequence[Example], *, posts: int) -> tuple[HeadRows, TextTable, TextTable]:
    """Return rows with at most so many posts each, the newest, and both tables: of posts, and of other texts."""
    of_question = aspects_by_question(examples)
    aspects = [of_question[example.question] for example in examples]
    written, others = TextTable(), TextTable()
    # No head reads questions. They stay in the table because `encoder` draws dropout for all of its texts at once.
    others.index([[example.question] for example in examples])
    rows = HeadRows(
        posts=written.index([newest_posts(example, posts) for example in examples]),
        chosen=others.index([sentences_of(example.chosen) or (example.chosen,) for example in examples]),
        rejected=others.index([sentences_of(example.rejected) or (example.rejected,) for example in examples]),
        aspects=others.index(aspects),
        wanted=is_wanted(examples, aspects),
    )
    return rows, written, others


def head_rows(examples: Sequence[Example], encoder: Encoder, *, posts: int) -> tuple[HeadRows, EmbeddingTables]:
    """Return rows as `index_rows` does, and the tables of embeddings that they point into."""
    rows, written, others = index_rows(examples, posts=posts)
    vectors = torch.from_numpy(encoder.encode([*written.texts, *others.texts]))
    nothing = torch.zeros(1, vectors.shape[1])  # padding must point somewhere, even where nobody wrote anything
    count = len(written.texts)
    return rows, EmbeddingTables(posts=vectors[:count] if count else nothing, others=vectors[count:])


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """How the learning rate changes over the steps."""

    warm_up: int = 0  # steps until the full learning rate
    cosine: bool = False  # it falls to 0 over the epochs
    clip: float = 0.0  # the longest gradient that is followed in full; 0: any


@dataclass(frozen=True, kw_only=True)
class BestEpoch:
    """Which epoch's weights the module has now."""

    epoch: int  # counted from 0
    accuracy: float  # on held-out users
    seconds: float  # in all, over every start of the command
    history: tuple[float, ...]  # accuracy after each epoch

    @property
    def facts(self) -> dict[str, Json]:
        """What a card says of it."""
        return {
            "epoch": self.epoch,
            "epochs_run": len(self.history),
            "validation_accuracy": round(self.accuracy, 4),
            "training_seconds": round(self.seconds, 2),
        }


def fit(
    module: nn.Module,
    rows: int,
    loss: Callable[[Tensor], Tensor],
    margins: Callable[[], Tensor],
    config: Config,
    checkpoint: Checkpoint | None,
    progress: ProgressCallback,
    *,
    schedule: Schedule | None = None,
    speed: Callable[[str], float] = lambda name: 1.0,
) -> BestEpoch:
    """Train `module` by AdamW and leave it with the weights of its best epoch, by accuracy on held-out users.

    `loss` gets a batch of row numbers, in training mode; `margins` returns score(chosen) - score(rejected) of the
    held-out pairs, in evaluation mode and without gradients. Killed at any point and called again, it comes to the
    same weights; without a checkpoint it starts over. `speed` says how much of the learning rate a parameter gets, by
    its name. Of the config it reads epochs, patience, batch_size, learning_rate, weight_decay and seed.
    """
    # Gradients of gathered rows are summed in a fixed order: by default, threads add them as they come. A GPU has no
    # such order for some products, so there it is asked for where it can be had.
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True, warn_only=next(module.parameters()).device.type != "cpu")
    try:
        state = _TrainerState(module, config, schedule or Schedule(), speed)
        kept = checkpoint.load() if checkpoint else None
        if kept is not None:
            state.restore(kept)
        while len(state.history) < config.epochs and len(state.history) - 1 - state.best_epoch < config.patience:
            started = time.monotonic()
            state.run_epoch(rows, loss)
            module.eval()
            with torch.no_grad():
                accuracy = accuracy_of(margins())
            if state.best_epoch < 0 or accuracy > state.history[state.best_epoch]:
                state.best_epoch, state.best = len(state.history), copy_state(module)
            state.history.append(accuracy)
            state.seconds += time.monotonic() - started
            if checkpoint:
                checkpoint.save(state.snapshot())
            active_trackers().log({"train/validation_accuracy": accuracy}, step=len(state.history))
            progress(len(state.history), config.epochs, f"validation {100 * accuracy:.1f} %")
    finally:
        torch.use_deterministic_algorithms(before)
    module.load_state_dict(state.best)
    module.eval()
    return BestEpoch(
        epoch=state.best_epoch,
        accuracy=state.history[state.best_epoch] if state.history else 0.0,
        seconds=state.seconds,
        history=tuple(state.history),
    )


class _TrainerState:
    """All that the next epoch depends on."""

    def __init__(self, module: nn.Module, config: Config, schedule: Schedule, speed: Callable[[str], float]) -> None:
        self.module, self.config, self.schedule = module, config, schedule
        groups: dict[float, list[nn.Parameter]] = {}
        for name, weight in module.named_parameters():
            if weight.requires_grad:
                groups.setdefault(speed(name), []).append(weight)
        self.rates = [share * config.learning_rate for share in groups]
        self.optimizer = torch.optim.AdamW(
            [{"params": weights, "lr": rate} for weights, rate in zip(groups.values(), self.rates, strict=True)],
            weight_decay=config.weight_decay,
        )
        self.generator = torch.Generator().manual_seed(config.seed)  # of the order of the rows
        torch.manual_seed(config.seed)  # of dropout
        self.history: list[float] = []  # accuracy after each epoch
        self.best_epoch = -1
        self.best = copy_state(module)
        self.seconds = 0.0

    def run_epoch(self, rows: int, loss: Callable[[Tensor], Tensor]) -> None:
        self.module.train()
        batches = torch.split(torch.randperm(rows, generator=self.generator), self.config.batch_size)
        total = torch.zeros((), device=next(self.module.parameters()).device)
        for done, batch in enumerate(batches, len(self.history) * len(batches)):
            share = min(1.0, (done + 1) / self.schedule.warm_up) if self.schedule.warm_up else 1.0
            if self.schedule.cosine:
                share *= 0.5 * (1 + math.cos(math.pi * done / (self.config.epochs * len(batches))))
            for group, rate in zip(self.optimizer.param_groups, self.rates, strict=True):
                group["lr"] = share * rate
            self.optimizer.zero_grad()
            value = loss(batch)
            value.backward()  # type: ignore[no-untyped-call]
            total += value.detach()
            if self.schedule.clip:
                nn.utils.clip_grad_norm_(self.module.parameters(), self.schedule.clip)
            self.optimizer.step()
        if not torch.isfinite(total):
            rate = self.config.learning_rate
            raise RunError(f"The loss of epoch {len(self.history) + 1} is no number. Lower learning_rate, now {rate}.")

    def snapshot(self) -> dict[str, Any]:
        return {
            "module": self.module.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "generator": self.generator.get_state(),
            "dropout": torch.get_rng_state(),
            "gpu_dropout": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
            "history": list(self.history),
            "best_epoch": self.best_epoch,
            "best": self.best,
            "seconds": self.seconds,
        }

    def restore(self, kept: dict[str, Any]) -> None:
        self.module.load_state_dict(kept["module"])
        self.optimizer.load_state_dict(kept["optimizer"])
        self.generator.set_state(kept["generator"])
        torch.set_rng_state(kept["dropout"])
        if kept["gpu_dropout"] and torch.cuda.is_available():
            torch.cuda.set_rng_state_all(kept["gpu_dropout"])
        self.history, self.best_epoch = list(kept["history"]), kept["best_epoch"]
        self.best, self.seconds = dict(kept["best"]), kept["seconds"]


def copy_state(module: nn.Module) -> dict[str, Tensor]:
    """Return a module's weights as they are now."""
    return {name: value.detach().clone() for name, value in module.state_dict().items()}


@contextmanager
def one_thread() -> Iterator[None]:
    """Compute with one thread: small products gain nothing by more, and so the number of cores changes no bit."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def preference_loss(margin: Tensor) -> Tensor:
    """Return the Bradley-Terry loss, -log sigmoid(margin), averaged (Bradley and Terry 1952)."""
    return F.softplus(-margin).mean()


def rubric_loss(logits: Tensor, wanted: Tensor, mask: Tensor) -> Tensor:
    """Return the mean binary cross-entropy over the aspects that count, and over members where logits have some."""
    each = F.binary_cross_entropy_with_logits(logits, wanted.expand_as(logits), reduction="none")
    members = logits.numel() // mask.numel()
    return (each * mask).sum() / (mask.sum().clamp(min=1) * members)


def to_array(value: Tensor) -> NDArray[np.float32]:
    """Return a learned tensor as it is written to a file."""
    return value.detach().numpy().astype(np.float32).copy()
