"""From the aspects of training rubrics to a few general wants, each stated in the words of one of the aspects.

Two aspects belong together if the same users look for both: the correlation over users, drawn towards the nearness of
their texts where few users tell. What texts owe to their question is taken out first; else all aspects of cooking
would be one want. Groups come from average linkage, in the number that makes them most distinct (silhouette).
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from prbench.backends.encoders import Encoder
from prbench.schema import Example
from prbench.training.rows import aspect_texts

MOST_GROUPS = 16
MOST_ASPECTS = 2000  # that are grouped by comparing all with all; the others join the nearest
ASSUMED_USERS = 20.0  # users that the nearness of two texts counts for
UNSEEN = 0.2  # how much it tells that nobody ever asked a user about a want

Doubles = NDArray[np.float64]


@dataclass(frozen=True)
class StatementBank:
    """The wants, and which of them each aspect of the training rubrics is about."""

    statements: tuple[str, ...]
    group_of: dict[str, int]  # by the text of an aspect

    def labels(self, examples: Sequence[Example]) -> tuple[Doubles, Doubles]:
        """Return for each row what its user wants, over all of the user's rows, and how sure each label is.

        A want that belongs to one of the user's questions, and is not in the rubric, is sure not to be there.
        """
        known = aspects_by_question(examples)
        wanted: dict[str, set[int]] = {}
        asked: dict[str, set[int]] = {}
        for example in examples:
            wanted.setdefault(example.user.id, set()).update(self._groups(aspect_texts(example)))
            asked.setdefault(example.user.id, set()).update(
                self._groups(known[example.question]) if example.rubric else ()
            )
        size = range(len(self.statements))
        users = [example.user.id for example in examples]
        labels = np.array([[float(group in wanted[user]) for group in size] for user in users])
        unseen = {user: UNSEEN if wanted[user] else 0.0 for user in wanted}  # without a rubric nothing is known
        sure = np.array([[1.0 if group in asked[user] else unseen[user] for group in size] for user in users])
        return labels, sure

    def _groups(self, aspects: Sequence[str]) -> set[int]:
        return {self.group_of[text] for text in aspects if text in self.group_of}


def aspects_by_question(examples: Sequence[Example]) -> dict[str, list[str]]:
    """Return the aspects that anybody looks for with each question."""
    found: dict[str, dict[str, None]] = {}
    for example in examples:
        found.setdefault(example.question, {}).update(dict.fromkeys(aspect_texts(example)))
    return {question: list(texts) for question, texts in found.items()}


def make_statements(examples: Sequence[Example], encoder: Encoder, groups: int = 0) -> StatementBank:
    """Group the aspects into that many wants, or into as many as are most distinct."""
    counts = Counter(text for example in examples for text in aspect_texts(example))
    known = aspects_by_question(examples)
    every = [text for text, _ in sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))]
    texts, others = every[:MOST_ASPECTS], every[MOST_ASPECTS:]
    vectors = _without_question(every, known, encoder)
    nearness = vectors[: len(texts)] @ vectors[: len(texts)].T
    together = _together(examples, texts, known, nearness)
    label = _group(1 - together, groups)
    medoids = [_medoid(np.flatnonzero(label == group), nearness) for group in range(label.max() + 1)]
    group_of = {text: int(group) for text, group in zip(texts, label, strict=True)}
    for text, vector in zip(others, vectors[len(texts) :], strict=True):
        group_of[text] = int(np.argmax(vectors[medoids] @ vector))
    return StatementBank(tuple(texts[place] for place in medoids), group_of)


def correlation(wanted: Doubles, nearness: Doubles, assumed: float = ASSUMED_USERS) -> Doubles:
    """Return how far aspects are wanted together, from (users, aspects) of 1, -1 and 0 for never asked."""
    asked = (wanted != 0).astype(np.float64)
    count = np.maximum(asked.sum(axis=0), 1)
    centred = (wanted - wanted.sum(axis=0) / count) * asked
    spread = np.sqrt((centred**2).sum(axis=0) / count)
    scaled = centred / np.where(spread > 0, spread, 1)
    together: Doubles = (scaled.T @ scaled + assumed * nearness) / (asked.T @ asked + assumed)
    return together


def _together(
    examples: Sequence[Example], texts: Sequence[str], known: dict[str, list[str]], nearness: Doubles
) -> Doubles:
    column = {text: index for index, text in enumerate(texts)}
    row = {user: index for index, user in enumerate(dict.fromkeys(example.user.id for example in examples))}
    wanted = np.zeros((len(row), len(texts)))
    for example in examples:
        own = set(aspect_texts(example))
        for text in known[example.question]:
            if text in column:
                wanted[row[example.user.id], column[text]] += 1 if text in own else -1
    return correlation(np.sign(wanted), nearness)


def _without_question(texts: Sequence[str], known: dict[str, list[str]], encoder: Encoder) -> Doubles:
    """Return unit vectors of the texts, each less the mean of the aspects that occur with the same questions."""
    raw = encoder.encode(texts).astype(np.float64)
    place = {text: index for index, text in enumerate(texts)}
    rest = np.zeros_like(raw)
    for aspects in known.values():
        here = [place[text] for text in aspects]
        if len(here) > 1:
            rest[here] += raw[here] - raw[here].mean(axis=0)
    length = np.linalg.norm(rest, axis=1, keepdims=True)
    vectors: Doubles = np.where(length > 1e-9, rest / np.maximum(length, 1e-9), raw)
    return vectors


def _group(distance: Doubles, groups: int) -> NDArray[np.int64]:
    """Return the group of each aspect."""
    from sklearn.cluster import AgglomerativeClustering
    from sklearn.metrics import silhouette_score

    count = len(distance)
    distance = np.clip((distance + distance.T) / 2, 0, None)
    np.fill_diagonal(distance, 0)
    if count <= max(groups, 2):
        return np.arange(count)

    def cut(into: int) -> NDArray[np.int64]:
        linkage = AgglomerativeClustering(into, metric="precomputed", linkage="average")
        found: NDArray[np.int64] = linkage.fit_predict(distance).astype(np.int64)
        return found

    if groups:
        return cut(groups)
    tries = [cut(into) for into in range(2, min(MOST_GROUPS, count - 1) + 1)]
    return max(tries, key=lambda labels: float(silhouette_score(distance, labels, metric="precomputed")))


def _medoid(members: NDArray[np.int64], nearness: Doubles) -> int:
    """Return the aspect that is nearest to all of its group."""
    return int(members[np.argmax(nearness[np.ix_(members, members)].sum(axis=1))])
