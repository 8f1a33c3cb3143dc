"""A small trained head on frozen sentence embeddings: what is this sentence about, and does this user want that?

Every post and every sentence of a response is softly assigned to a few learned topics. The posts of a user add up to
what the user wants; a response is worth the mean of what its sentences are about, weighed by those wants:

    topics(x) = softmax(s (W x + c))                     W, c: one pair for posts, one for sentences
    wants(u)  = average + mix' log(1 + 2 sum_p topics(p))
    score     = scale * mean_s topics(s) . wants(u)

Posts have one topic more, which is worth nothing: small talk goes there. Without posts, or without `mix` (a head that
knows no users), everybody gets the average user's wants.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from hashlib import sha256
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from prbench.context import pieces_of
from prbench.encoders import Encoder
from prbench.errors import UsageError
from prbench.schema import Json, RewardInput, Score
from prbench.sentences import sentences_of

WEIGHTS, CARD = "head.npz", "card.json"
SHARPNESS = 8.0

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class HeadWeights:
    """The arrays of one head, for embeddings of size d and k topics."""

    post_weight: Floats  # (d, k + 1)
    post_bias: Floats  # (k + 1,)
    sentence_weight: Floats  # (d, k)
    sentence_bias: Floats  # (k,)
    mix: Floats  # (k, k); zeros for a head that knows no users
    average: Floats  # (k,)
    scale: Floats  # ()

    def save(self, folder: Path, card: Mapping[str, Json]) -> None:
        """Write a folder that `--model head:FOLDER` takes."""
        folder.mkdir(parents=True, exist_ok=True)
        np.savez(folder / WEIGHTS, **{field.name: getattr(self, field.name) for field in fields(self)})
        (folder / CARD).write_text(json.dumps(card, indent=1) + "\n", encoding="utf-8")


def load_weights(folder: Path) -> HeadWeights:
    """Read the arrays of a trained head."""
    path = folder / WEIGHTS
    if not path.is_file():
        raise UsageError(f"head:{folder}: there is no {WEIGHTS} in that folder. Is it the folder of a trained head?")
    with np.load(path, allow_pickle=False) as arrays:
        missing = {field.name for field in fields(HeadWeights)} - set(arrays.files)
        if missing:
            raise UsageError(f"{path}: has no {sorted(missing)[0]!r}, so it is no head of ours. Train it again.")
        return HeadWeights(**{field.name: arrays[field.name] for field in fields(HeadWeights)})


class HeadReward:
    """Scores responses with a trained head; once texts are embedded, it costs next to nothing."""

    def __init__(self, weights: HeadWeights, encoder: Encoder, *, name: str = "head") -> None:
        self.name = name
        self._weights = weights
        self._encoder = encoder

    @property
    def identity(self) -> Mapping[str, Json]:
        """All that changes scores."""
        arrays = [getattr(self._weights, field.name).tobytes() for field in fields(self._weights)]
        return {"head": sha256(b"".join(arrays)).hexdigest()[:12], "encoder": dict(self._encoder.identity), "rule": 2}

    def score(self, inputs: Sequence[RewardInput]) -> list[Score]:
        """Return one score per input, in the same order."""
        posts = [pieces_of(one.context) for one in inputs]
        parts = [sentences_of(one.response) for one in inputs]
        texts = list(dict.fromkeys(text for group in (*posts, *parts) for text in group))
        if not texts:
            return []
        place = {text: index for index, text in enumerate(texts)}
        vectors = self._encoder.encode(texts).astype(np.float64)
        about_posts = topics(vectors, self._weights.post_weight, self._weights.post_bias)[:, :-1]
        about = topics(vectors, self._weights.sentence_weight, self._weights.sentence_bias)
        wants = np.stack([self._wants(about_posts[[place[text] for text in group]]) for group in posts])
        worth = np.stack([about[[place[text] for text in group]].mean(axis=0) for group in parts])
        values = self._weights.scale * (worth * wants).sum(axis=1)
        # Computed in float64 and rounded: the last bits of a matrix product depend on how many rows it has.
        return [Score(value=float(value)) for value in values.astype(np.float32)]

    def _wants(self, about: Doubles) -> Doubles:
        mass = np.log1p(2 * about.sum(axis=0))
        wants: Doubles = self._weights.average + mass @ self._weights.mix
        return wants


def topics(vectors: Doubles, weight: Floats, bias: Floats) -> Doubles:
    """Return what each text is about: one share per topic, adding up to 1."""
    raw = SHARPNESS * (vectors @ weight + bias)
    raised = np.exp(raw - raw.max(axis=1, keepdims=True))
    shares: Doubles = raised / raised.sum(axis=1, keepdims=True)
    return shares
