"""A small trained head on frozen sentence embeddings: what is this sentence about, and does this user want that?

Every post and every sentence of a response is softly assigned to a few learned topics. The posts of a user add up to
what the user wants; a response is worth the mean of what its sentences are about, weighed by those wants:

    topics(x) = softmax(s (W x + c))                     W, c: one pair for posts, one for sentences
    wants(u)  = average + mix' log(1 + 2 sum_p topics(p))
    score     = scale * mean_s topics(s) . wants(u)

Posts have one topic more, which is worth nothing: small talk goes there. Without posts, or without `mix` (a head that
knows no users), everybody gets the average user's wants.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from prbench.backends.encoders import Encoder, load_encoder
from prbench.backends.npz_weights import (
    arrays_hash,
    arrays_of,
    check_size,
    open_encoder,
    read_record,
    write_arrays,
)
from prbench.context.aspect_planner import Doubles, Floats, topics
from prbench.data.texts import sentences_of
from prbench.lab import SHIPPED_HEADS
from prbench.reward_models.base import EncoderOptions, LoadedModel, ModelSettings, as_loaded
from prbench.schema import Json, RewardInput, Score
from prbench.specs import Spec

WEIGHTS = "head.npz"

Indices = NDArray[np.int64]  # of texts in a table of vectors


@dataclass(frozen=True, kw_only=True)
class TopicWeights:
    """The arrays of one head, for embeddings of size d and k topics."""

    post_weight: Floats  # (d, k + 1)
    post_bias: Floats  # (k + 1,)
    sentence_weight: Floats  # (d, k)
    sentence_bias: Floats  # (k,)
    mix: Floats  # (k, k); zeros for a head that knows no users
    average: Floats  # (k,)
    scale: Floats  # (): divided by a temperature, so that a margin is a log-odds

    def values(self, vectors: Doubles, posts: Sequence[Indices], sentences: Sequence[Indices]) -> Doubles:
        """Return one score per response, in float64; `posts` and `sentences` are rows of `vectors`."""
        about_posts = topics(vectors, self.post_weight, self.post_bias)[:, :-1]
        about = topics(vectors, self.sentence_weight, self.sentence_bias)
        masses = [np.log1p(2 * about_posts[rows].sum(axis=0)) for rows in posts]
        wants = np.stack([self.average + mass @ self.mix for mass in masses])
        worth = np.stack([about[rows].mean(axis=0) for rows in sentences])
        values: Doubles = self.scale * (worth * wants).sum(axis=1)
        return values


def save_weights(weights: TopicWeights, folder: Path) -> None:
    """Write the file that `--model head:FOLDER` reads."""
    write_arrays(folder / WEIGHTS, arrays_of(weights))


def load_weights(folder: Path) -> TopicWeights:
    """Read the arrays of a trained head."""
    return read_record(folder / WEIGHTS, TopicWeights)


def scale_by_temperature(weights: TopicWeights, temperature: float) -> TopicWeights:
    """Return the same head with margins divided by a temperature."""
    return replace(weights, scale=(weights.scale / temperature).astype(np.float32))


def load(spec: Spec, options: EncoderOptions, settings: ModelSettings) -> LoadedModel:
    """Return `head:FOLDER`, or one of the shipped heads."""
    folder = SHIPPED_HEADS.get(spec.target, Path(spec.target))
    weights = load_weights(folder)
    model = HeadReward(weights, open_encoder(folder, load_encoder, options.encoder), name=spec.target)
    return as_loaded(spec, model, items_per_step=256)


class HeadReward:
    """Scores responses with a trained head; once texts are embedded, it costs next to nothing."""

    def __init__(self, weights: TopicWeights, encoder: Encoder, *, name: str = "head") -> None:
        self.name = name
        self._weights = weights
        self._encoder = encoder

    @property
    def identity(self) -> Mapping[str, Json]:
        """All that changes scores."""
        return {"head": arrays_hash(arrays_of(self._weights)), "encoder": dict(self._encoder.identity), "rule": 2}

    def score(self, inputs: Sequence[RewardInput]) -> list[Score]:
        """Return one score per input, in the same order."""
        if not inputs:
            return []
        index: dict[str, int] = {}  # text -> its row in `vectors`

        def rows_of(texts: Sequence[str]) -> Indices:
            return np.array([index.setdefault(text, len(index)) for text in texts], dtype=np.int64)

        # Users and responses that recur are taken apart once; a response without a single letter is one sentence.
        posts = {user: rows_of(user.segments) for user in dict.fromkeys(each.user for each in inputs)}
        responses = dict.fromkeys(each.response for each in inputs)
        sentences = {response: rows_of(sentences_of(response) or (response,)) for response in responses}
        vectors = self._encoder.encode(list(index)).astype(np.float64)
        check_size(vectors, len(self._weights.post_weight), model=self.name, encoder=self._encoder.name)
        values = self._weights.values(
            vectors, [posts[each.user] for each in inputs], [sentences[each.response] for each in inputs]
        )
        # Computed in float64 and rounded: the last bits of a matrix product depend on how many rows it has.
        return [Score(value=float(value)) for value in values.astype(np.float32)]
