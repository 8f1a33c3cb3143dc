"""From criteria to a score: does a sentence of the response serve this criterion, and how much does that count?

A learned form says how near a criterion and a sentence are; the criteria of one question compete for every sentence,
and so does "none of them". A criterion of weight 0 earns nothing and only competes: it keeps a sentence that serves
something else from being taken for the nearest thing that is wanted.

    near(c, s)  = cosine * c.s + (U c).(V s)
    serves(s,c) = softmax over c and "none" of near(c, s)
    covered(c)  = sum_s softmax_s(sharpness * serves(s,c)) serves(s,c)     sharpness 0: the mean; large: the best
    score       = scale * sum_c weight(c) covered(c)

The arrays are trained in `prbench.training.criteria`, on pairs whose rubric is known.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from prbench.backends.encoders import Encoder
from prbench.backends.npz_weights import arrays_of, check_size, pick_fields, read_arrays, write_arrays
from prbench.context.aspect_planner import aspect_text
from prbench.data.sentences import sentences_of
from prbench.schema import Json

WEIGHTS = "criteria.npz"

__all__ = ["CriteriaScorer", "CriteriaWeights", "Criterion", "aspect_text", "load_criteria"]

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Criterion:
    """Something to look for in a response, and how much it counts."""

    text: str  # an aspect as `aspect_text` writes it
    weight: float


@dataclass(frozen=True, kw_only=True)
class CriteriaWeights:
    """The arrays of one scorer, for embeddings of size d and rank r."""

    criterion: Floats  # (d, r): U
    sentence: Floats  # (d, r): V
    cosine: Floats  # ()
    none: Floats  # (): nearness of "none of them" to any sentence
    sharpness: Floats  # ()
    scale: Floats  # ()

    def save(self, folder: Path) -> None:
        """Write the arrays into the folder of a model."""
        write_arrays(folder / WEIGHTS, arrays_of(self))

    @property
    def hash(self) -> str:
        """Twelve digits that change with any number of the arrays."""
        return sha256(b"".join(array.tobytes() for array in arrays_of(self).values())).hexdigest()[:12]


def load_criteria(folder: Path) -> CriteriaWeights:
    """Read the arrays of a trained scorer."""
    path = folder / WEIGHTS
    return CriteriaWeights(**pick_fields(read_arrays(path), CriteriaWeights, path))


class CriteriaScorer:
    """Scores responses against criteria with trained arrays; every text is embedded once."""

    def __init__(self, weights: CriteriaWeights, encoder: Encoder) -> None:
        self._weights = weights
        self._encoder = encoder
        self.identity: Mapping[str, Json] = {
            "criteria": weights.hash,
            "encoder": dict(encoder.identity),
            "criteria_rule": 1,
        }

    @property
    def scale(self) -> float:
        """What a covered criterion of weight 1 adds to a score."""
        return float(self._weights.scale)

    def score(self, criteria: Sequence[Sequence[Criterion]], responses: Sequence[str]) -> list[float]:
        """Return one score per list of criteria and response; 0 where there is nothing to look for, or in."""
        covered = self.covered([[one.text for one in group] for group in criteria], responses)
        scores = [
            self._weights.scale * sum(one.weight * share for one, share in zip(group, shares, strict=True))
            for group, shares in zip(criteria, covered, strict=True)
        ]
        # Computed in float64 and rounded: the last bits of a matrix product depend on how many rows it has.
        return [float(np.float32(score)) for score in scores]

    def covered(self, criteria: Sequence[Sequence[str]], responses: Sequence[str]) -> list[Doubles]:
        """Return how much of each criterion each response covers, between 0 and 1."""
        parts = [sentences_of(response) for response in responses]
        place, vectors = self._embed(text for group in (*criteria, *parts) for text in group)
        as_criterion, as_sentence = vectors @ self._weights.criterion, vectors @ self._weights.sentence
        found = []
        for group, sentences in zip(criteria, parts, strict=True):
            ours, theirs = [place[text] for text in group], [place[text] for text in sentences]
            near = self._weights.cosine * (vectors[theirs] @ vectors[ours].T)
            near = near + as_sentence[theirs] @ as_criterion[ours].T
            found.append(covered(near, float(self._weights.none), float(self._weights.sharpness)))
        return found

    def _embed(self, texts: Iterable[str]) -> tuple[dict[str, int], Doubles]:
        place = {text: index for index, text in enumerate(dict.fromkeys(texts))}
        if not place:
            return place, np.zeros((0, len(self._weights.criterion)))
        vectors = self._encoder.encode(list(place)).astype(np.float64)
        size = len(self._weights.criterion)
        check_size(vectors, size, model="the scorer of criteria", encoder=self._encoder.name)
        return place, vectors


def covered(near: Doubles, none: float, sharpness: float) -> Doubles:
    """Return how much of each criterion is covered, from the nearness of (sentences, criteria)."""
    if not near.size:
        return np.zeros(near.shape[1])
    serves = _softmax(np.column_stack([near, np.full(len(near), none)]), axis=1)[:, :-1]
    shares: Doubles = (_softmax(sharpness * serves, axis=0) * serves).sum(axis=0)
    return shares


def _softmax(values: Doubles, axis: int) -> Doubles:
    raised = np.exp(values - values.max(axis=axis, keepdims=True))
    shares: Doubles = raised / raised.sum(axis=axis, keepdims=True)
    return shares
