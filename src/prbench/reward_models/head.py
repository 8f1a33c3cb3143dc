"""A small trained head on frozen sentence embeddings: what is this sentence about, and does this user want that?

Every post and every sentence of a response is softly assigned to a few learned topics. The posts of a user add up to
what the user wants; a response is worth the mean of what its sentences are about, weighed by those wants:

    topics(x) = softmax(s (W x + c))                     W, c: one pair for posts, one for sentences
    wants(u)  = average + mix' log(1 + 2 sum_p topics(p))
    score     = scale * mean_s topics(s) . wants(u)

Posts have one topic more, which is worth nothing: small talk goes there. Without posts, or without `mix` (a head that
knows no users), everybody gets the average user's wants.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from prbench.backends.encoders import Doubles, Encoder
from prbench.backends.npz_weights import NpzRecord, embed, open_encoder
from prbench.context.aspect_planner import Floats, topics
from prbench.data.texts import sentences_of
from prbench.lab import SHIPPED_HEADS
from prbench.reward_models.base import EncoderOptions, LoadedModel, ModelSettings, as_loaded, rounded_scores
from prbench.schema import Json, RewardInput, Score
from prbench.specs import Spec

Indices = NDArray[np.int64]  # of texts in a table of vectors


@dataclass(frozen=True, kw_only=True)
class TopicWeights(NpzRecord):
    """The arrays of one head, for embeddings of size d and k topics."""

    FILE = "head.npz"

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

    def scaled(self, temperature: float) -> "TopicWeights":
        """Return the same head with margins divided by a temperature."""
        return replace(self, scale=(self.scale / temperature).astype(np.float32))


def topics_of(
    encoder: Encoder, texts: Collection[str], weight: Floats, bias: Floats, *, model: str
) -> dict[str, Doubles]:
    """Return what each text is about; all are embedded together."""
    if not texts:
        return {}
    vectors = embed(encoder, list(texts), len(weight), model=model)
    return dict(zip(texts, topics(vectors, weight, bias), strict=True))


def load(spec: Spec, options: EncoderOptions, settings: ModelSettings) -> LoadedModel:
    """Return `head:FOLDER`, or one of the shipped heads."""
    folder = SHIPPED_HEADS.get(spec.target, Path(spec.target))
    model = HeadReward(TopicWeights.load(folder), open_encoder(folder, options.encoder), name=spec.target)
    return as_loaded(spec, model, items_per_step=256)


class HeadReward:
    """Scores responses with a trained head; once texts are embedded, it costs next to nothing."""

    def __init__(self, weights: TopicWeights, encoder: Encoder, *, name: str = "head") -> None:
        self.name = name
        self._weights = weights
        self._encoder = encoder
        self.identity: Mapping[str, Json] = {"head": weights.hash, "encoder": dict(encoder.identity), "rule": 2}

    def score(self, inputs: Sequence[RewardInput]) -> list[Score]:
        if not inputs:
            return []
        index: dict[str, int] = {}  # text -> its row in `vectors`

        def rows_of(texts: Sequence[str]) -> Indices:
            return np.array([index.setdefault(text, len(index)) for text in texts], dtype=np.int64)

        # Users and responses that recur are taken apart once; a response without a single letter is one sentence.
        posts = {user: rows_of(user.segments) for user in dict.fromkeys(each.user for each in inputs)}
        responses = dict.fromkeys(each.response for each in inputs)
        sentences = {response: rows_of(sentences_of(response) or (response,)) for response in responses}
        vectors = embed(self._encoder, list(index), len(self._weights.post_weight), model=self.name)
        values = self._weights.values(
            vectors, [posts[each.user] for each in inputs], [sentences[each.response] for each in inputs]
        )
        return rounded_scores(values)
