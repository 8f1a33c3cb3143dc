"""The gold instrument: which aspects of its subject a text serves.

A sentence of the lab is known by identity. Any other is compared with the known points of the subject that was asked
about, by meaning (sentence embeddings) and by words (TF-IDF) alike: it tells those points whose vectors together
explain its own. One point explains an edited or shortened sentence; two or three explain a merged one; where nothing
explains it well enough, the instrument abstains, and so it does where a sentence has a point's words in disorder. It
cannot tell a point from its opposite. `experiments/gold.py` measures how often it is right.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import cache, cached_property
from hashlib import sha256
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prbench.backends.encoders import Encoder, load_encoder
from prbench.data.texts import sentences_of
from prbench.errors import UsageError
from prbench.lab.pairs import POINTS
from prbench.lab.population import Trait, load_library
from prbench.schema import Json

# Chosen on the probes of every second subject; experiments/gold.py measures on the others.
WORDS_SHARE = 0.5  # of the squared length of a vector: the rest is meaning
ONE_POINT = 0.44  # least cosine of a sentence with the point that it is taken for
MORE_POINTS = 0.55  # least cosine with the span of several points
LEAST_WEIGHT = 0.25  # of each of several points
MOST_POINTS = 3  # in one sentence
SALAD_WORDS, SALAD_PAIRS = 0.8, 0.2  # so many of its words are a point's, and so few of its neighboring words

_WORD = re.compile(r"[\w']+")

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
                points = self._explain(vector, subject)
                self._known[text, subject] = points if _is_in_order(text, points) else ()
        return [self._known[text, subject] for text in sentences]

    def value(self, text: str, subject: str, wanted: AbstractSet[str]) -> float:
        """Return what a text is worth to a user, from -1 to 1: wanted points minus unwanted ones, per sentence.

        A point told twice counts once, and talk about another subject counts nothing. A text counts as no shorter
        than the responses of the lab, nor than the points it tells, so that neither brevity nor long sentences pay.
        """
        sentences = sentences_of(text)
        made = {point for points in self.read(sentences, subject) for point in points}
        return sum(1 if point.trait in wanted else -1 for point in made) / max(POINTS, len(sentences), len(made))

    def _explain(self, vector: Floats, subject: str) -> tuple[Point, ...]:
        """Add the point nearest to what is unexplained so far, as long as every point pulls its weight."""
        if subject not in self._vectors:
            self._vectors[subject] = self._vectors_of([point.text for point in self._points[subject]])
        # Orthogonal matching pursuit (Pati, Rezaiifar and Krishnaprasad, 1993), over a few points.
        known = self._vectors[subject]  # (points, numbers)
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


def _is_in_order(text: str, points: Sequence[Point]) -> bool:
    """False for the words of known points in disorder."""
    said = _words_of(text)
    known = [_words_of(point.text) for point in points]
    every = {word for words in known for word in words}
    pairs = {pair for words in known for pair in pairwise(words)}
    shared = sum(word in every for word in said) / max(1, len(said))
    in_order = sum(pair in pairs for pair in pairwise(said)) / max(1, len(said) - 1)
    return shared < SALAD_WORDS or in_order >= SALAD_PAIRS


def _words_of(text: str) -> list[str]:
    return _WORD.findall(text.lower().replace("’", "'"))


def _folded(text: str) -> str:
    return " ".join(text.split()).casefold()
