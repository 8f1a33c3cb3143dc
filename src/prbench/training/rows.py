"""Training rows as tensors: texts as places in a table of embeddings, so that a batch is a gather of numbers."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from prbench.backends.encoders import Encoder
from prbench.data.texts import sentences_of
from prbench.schema import Example


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
    return torch.nn.functional.embedding_bag(index.places, values, mode="sum", per_sample_weights=index.mask)


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

    def __len__(self) -> int:
        return len(self.wanted)


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
