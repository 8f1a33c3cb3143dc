"""The gold instrument: which aspects of its subject a text serves.

A sentence of the lab is known by identity. Any other is compared with the known points of the subject that was asked
about, by meaning (sentence embeddings) and by words (TF-IDF) alike: it tells those points whose vectors together
explain its own. One point explains an edited or shortened sentence; two or three explain a merged one; where nothing
explains it well enough, the instrument abstains. `benchmarks/gold.py` measures how often it is right.
"""

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import cache, cached_property
from hashlib import sha256
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prbench.encoders import Encoder, load_encoder
from prbench.errors import UsageError
from prbench.lab.library import Trait, load_library
from prbench.schema import Json
from prbench.sentences import sentences_of

# Chosen on the probes of every second subject; benchmarks/gold.py measures on the others.
WORDS_SHARE = 0.5  # of the squared length of a vector: the rest is meaning
ONE_POINT = 0.44  # least cosine of a sentence with the point that it is taken for
MORE_POINTS = 0.55  # least cosine with the span of several points
LEAST_WEIGHT = 0.25  # of each of several points
MOST_POINTS = 3  # in one sentence

Floats = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Point:
    """One known sentence of an answer, and the aspect that it serves."""

    subject: str
    trait: Trait
    text: str


class GoldInstrument:
    """Reads texts. The encoder is loaded when the first sentence comes that is not the lab's own."""

    def __init__(self, encoder: Callable[[], Encoder] = load_encoder) -> None:
        self._load_encoder = encoder
        self._points = {
            subject.subject: tuple(
                Point(subject.subject, aspect.trait, text) for aspect in subject.aspects for text in aspect.points
            )
            for subject in load_library().subjects
        }
        self._by_text = {_folded(point.text): point for points in self._points.values() for point in points}
        self._vectors: dict[str, Floats] = {}  # of a subject's points
        self._known: dict[tuple[str, str], tuple[Point, ...]] = {}

    @property
    def identity(self) -> Mapping[str, Json]:
        """All that changes readings of texts made of the lab's own sentences."""
        texts = "\n".join(f"{point.subject}/{point.trait}/{point.text}" for point in self._by_text.values())
        return {"rule": 1, "points": sha256(texts.encode()).hexdigest()[:12]}

    def read(self, sentences: Sequence[str], subject: str) -> list[tuple[Point, ...]]:
        """Return the points on this subject that each sentence tells; none where the instrument abstains."""
        if subject not in self._points:
            raise UsageError(f"{subject!r} is no subject of the lab. They are: {', '.join(self._points)}.")
        new = [text for text in dict.fromkeys(sentences) if (text, subject) not in self._known]
        foreign = []
        for text in new:
            if point := self._by_text.get(_folded(text)):
                self._known[text, subject] = (point,) if point.subject == subject else ()
            else:
                foreign.append(text)
        if foreign:
            for text, vector in zip(foreign, self._vectors_of(foreign), strict=True):
                self._known[text, subject] = self._explain(vector, subject)
        return [self._known[text, subject] for text in sentences]

    def value(self, text: str, subject: str, wanted: AbstractSet[str]) -> float:
        """Return what a text is worth to a user: points for wanted aspects minus those for unwanted, per sentence.

        A point told twice counts once, and talk about another subject counts nothing, so that neither pays.
        """
        sentences = sentences_of(text)
        told = {point for points in self.read(sentences, subject) for point in points}
        return sum(1 if point.trait in wanted else -1 for point in told) / max(1, len(sentences))

    def _explain(self, vector: Floats, subject: str) -> tuple[Point, ...]:
        """Add the point nearest to what is unexplained so far, as long as every point pulls its weight."""
        known = self._vectors_of_points(subject)
        chosen: list[int] = []
        rest = vector
        found: tuple[Point, ...] = ()
        for least_fit in (ONE_POINT, *[MORE_POINTS] * (MOST_POINTS - 1)):
            nearness = known @ rest
            nearness[chosen] = -1
            chosen.append(int(nearness.argmax()))
            span = known[chosen].T
            weights = np.linalg.lstsq(span, vector, rcond=None)[0]
            explained = span @ weights
            if weights.min() >= LEAST_WEIGHT and np.linalg.norm(explained) >= least_fit:
                found = tuple(self._points[subject][index] for index in chosen)
            elif len(chosen) > 1:
                break
            rest = vector - explained
        return found

    def _vectors_of_points(self, subject: str) -> Floats:
        if subject not in self._vectors:
            self._vectors[subject] = self._vectors_of([point.text for point in self._points[subject]])
        return self._vectors[subject]

    def _vectors_of(self, texts: Sequence[str]) -> Floats:
        """Return unit vectors of which one part is meaning and the other is words."""
        meaning = self._load_encoder().encode(texts)
        words = self._words.transform(texts).toarray().astype(np.float32)
        return np.hstack([np.sqrt(1 - WORDS_SHARE) * meaning, np.sqrt(WORDS_SHARE) * words]).astype(np.float32)

    @cached_property
    def _words(self) -> Any:
        from sklearn.feature_extraction.text import TfidfVectorizer

        vectorizer = TfidfVectorizer(sublinear_tf=True, stop_words="english")
        return vectorizer.fit([point.text for point in self._by_text.values()])


@cache
def aspect_traits() -> Mapping[str, tuple[str, Trait]]:
    """Return subject and trait of every aspect by its name, which no other aspect has."""
    return {
        aspect.name: (subject.subject, aspect.trait)
        for subject in load_library().subjects
        for aspect in subject.aspects
    }


def _folded(text: str) -> str:
    return " ".join(text.split()).casefold()
