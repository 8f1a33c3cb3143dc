"""Rows as a head reads them: places of texts in tables of embeddings, padded to rectangles."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from prbench.backends.encoders import Encoder
from prbench.data.texts import sentences_of
from prbench.schema import Example


@dataclass(frozen=True)
class RaggedIndex:
    """One group of texts per row; places of padding have weight 0."""

    places: Tensor  # (rows, most texts)
    mask: Tensor

    def take(self, rows: Tensor) -> "RaggedIndex":
        """Return some of the rows."""
        return RaggedIndex(self.places[rows], self.mask[rows])

    def to(self, device: str) -> "RaggedIndex":
        """Return the same on a device."""
        return RaggedIndex(self.places.to(device), self.mask.to(device))


@dataclass(frozen=True)
class HeadRows:
    """Pairs as places: posts in one table, questions, sentences and aspects in the other."""

    questions: Tensor  # (rows,)
    posts: RaggedIndex
    chosen: RaggedIndex
    rejected: RaggedIndex
    aspects: RaggedIndex  # those that occur with this question in any row
    wanted: Tensor  # 1 for aspects in the row's rubric

    def take(self, rows: Tensor) -> "HeadRows":
        """Return some of the rows."""
        return HeadRows(
            questions=self.questions[rows],
            posts=self.posts.take(rows),
            chosen=self.chosen.take(rows),
            rejected=self.rejected.take(rows),
            aspects=self.aspects.take(rows),
            wanted=self.wanted[rows],
        )

    @property
    def has_unwanted(self) -> bool:
        """Is any aspect not in a row's rubric? Where every question is asked once, rubrics tell nothing apart."""
        return bool(((1 - self.wanted) * self.aspects.mask).any())

    def to(self, device: str) -> "HeadRows":
        """Return the same on a device."""
        return HeadRows(*(getattr(self, name).to(device) for name in self.__dataclass_fields__))

    def __len__(self) -> int:
        return len(self.questions)


@dataclass(frozen=True)
class EmbeddingTables:
    """Embeddings of all texts of some rows."""

    posts: Tensor  # (texts, d)
    others: Tensor


@dataclass(frozen=True)
class Texts:
    """All texts of some rows, in the order of the places."""

    posts: tuple[str, ...]
    others: tuple[str, ...]


def index_rows(examples: Sequence[Example], *, posts: int) -> tuple[HeadRows, Texts]:
    """Return rows with at most so many posts each, the newest, and the texts that they point to."""
    of_question: dict[str, dict[str, None]] = {}
    for example in examples:
        of_question.setdefault(example.question, {}).update(dict.fromkeys(aspect_texts(example)))
    written: dict[str, int] = {}
    others: dict[str, int] = {}
    aspects = [list(of_question[example.question]) for example in examples]
    rows = HeadRows(
        questions=_bags([[example.question] for example in examples], others).places[:, 0],
        posts=_bags([_newest(example, posts) for example in examples], written),
        chosen=_bags([_parts(example.chosen) for example in examples], others),
        rejected=_bags([_parts(example.rejected) for example in examples], others),
        aspects=_bags(aspects, others),
        wanted=_wanted(examples, aspects),
    )
    return rows, Texts(tuple(written), tuple(others))


def head_rows(examples: Sequence[Example], encoder: Encoder, *, posts: int) -> tuple[HeadRows, EmbeddingTables]:
    """Return rows as `index_rows` does, and the tables of embeddings that they point into."""
    rows, texts = index_rows(examples, posts=posts)
    vectors = torch.from_numpy(encoder.encode([*texts.posts, *texts.others]))
    nothing = torch.zeros(1, vectors.shape[1])  # padding must point somewhere, even where nobody wrote anything
    count = len(texts.posts)
    return rows, EmbeddingTables(posts=vectors[:count] if count else nothing, others=vectors[count:])


def aspect_texts(example: Example) -> list[str]:
    """Return the aspects of a rubric as texts: what is wanted, and why."""
    return [f"{aspect.aspect}. {aspect.reason}".strip() for aspect in example.rubric]


def mean_of(values: Tensor, bags: RaggedIndex) -> Tensor:
    """Return the mean of each row's values: (texts, n) -> (rows, n)."""
    return sum_of(values, bags) / bags.mask.sum(1, keepdim=True).clamp(min=1)


def sum_of(values: Tensor, bags: RaggedIndex) -> Tensor:
    """Return the sum of each row's values, without a copy of the values per row."""
    return torch.nn.functional.embedding_bag(bags.places, values, mode="sum", per_sample_weights=bags.mask)


def _newest(example: Example, posts: int) -> list[str]:
    return [post.text for post in example.user.profile[max(0, len(example.user.profile) - posts) :]]


def _parts(response: str) -> Sequence[str]:
    return sentences_of(response) or (response,)


def _wanted(examples: Sequence[Example], aspects: Sequence[Sequence[str]]) -> Tensor:
    wanted = torch.zeros(len(examples), max((len(texts) for texts in aspects), default=0) or 1)
    for row, (example, texts) in enumerate(zip(examples, aspects, strict=True)):
        own = set(aspect_texts(example))
        for column, text in enumerate(texts):
            wanted[row, column] = float(text in own)
    return wanted


def _bags(groups: Sequence[Sequence[str]], place: dict[str, int]) -> RaggedIndex:
    """Return groups as places, entering new texts at the end of the table."""
    most = max((len(group) for group in groups), default=0) or 1
    places = torch.zeros(len(groups), most, dtype=torch.long)
    mask = torch.zeros(len(groups), most)
    for row, group in enumerate(groups):
        found = [place.setdefault(text, len(place)) for text in group]
        places[row, : len(found)] = torch.tensor(found, dtype=torch.long)
        mask[row, : len(found)] = 1.0
    return RaggedIndex(places, mask)
