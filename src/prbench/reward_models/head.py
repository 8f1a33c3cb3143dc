"""A small trained head on frozen sentence embeddings: what is this sentence about, and does this user want that?

There are three kinds; `head.npz` says which one it holds (one that says nothing holds topics).

`topics` (below): every post and every sentence of a response is softly assigned to a few learned topics. The posts of
a user add up to what the user wants; a response is worth the mean of what its sentences are about, weighed by those
wants:

    topics(x) = softmax(s (W x + c))                     W, c: one pair for posts, one for sentences
    wants(u)  = average + mix' log(1 + 2 sum_p topics(p))
    score     = scale * mean_s topics(s) . wants(u)

Posts have one topic more, which is worth nothing: small talk goes there. Without posts, or without `mix` (a head that
knows no users), everybody gets the average user's wants.

`attention` (`attention_head`): every sentence looks for posts that speak for it. `lowrank` (`lowrank_head`): a user is
a vector of weights on a few features of responses, predicted from the posts.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from prbench.backends.encoders import Encoder, load_encoder
from prbench.backends.npz_weights import arrays_of, check_size, open_encoder, pick_fields, read_arrays, write_arrays
from prbench.data.sentences import sentences_of
from prbench.errors import UsageError
from prbench.lab import SHIPPED_HEADS
from prbench.reward_models.base import Loaded
from prbench.reward_models.settings import EncoderOptions, ModelSettings
from prbench.schema import Json, RewardInput, Score, UserContext
from prbench.specs import Spec

WEIGHTS = "head.npz"
SHARPNESS = 8.0

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]
Places = NDArray[np.int64]  # of texts in a table of vectors


@dataclass(frozen=True, slots=True)
class Asked:
    """One response to one user: where its texts stand in the table."""

    question: int  # -1 where the head does not read questions
    posts: Places  # may be empty
    sentences: Places  # never empty
    labels: tuple[
        tuple[Places, Places], ...
    ] = ()  # sentences of what the user preferred, and of what they turned down


class HeadWeights(Protocol):
    """The arrays of one head, and the formula that they are for."""

    kind: ClassVar[str]
    reads_questions: ClassVar[bool]
    reads_labels: ClassVar[bool]
    scale: Floats  # (): divided by a temperature, so that a margin is a log-odds

    def values(self, vectors: Doubles, asked: Sequence[Asked]) -> Doubles:
        """Return one score per response, in float64."""
        ...


@dataclass(frozen=True, kw_only=True)
class TopicWeights:
    """The arrays of kind `topics`, for embeddings of size d and k topics."""

    kind: ClassVar[str] = "topics"
    reads_questions: ClassVar[bool] = False
    reads_labels: ClassVar[bool] = False

    post_weight: Floats  # (d, k + 1)
    post_bias: Floats  # (k + 1,)
    sentence_weight: Floats  # (d, k)
    sentence_bias: Floats  # (k,)
    mix: Floats  # (k, k); zeros for a head that knows no users
    average: Floats  # (k,)
    scale: Floats  # ()

    def values(self, vectors: Doubles, asked: Sequence[Asked]) -> Doubles:
        """Return the mean of what the sentences are about, weighed by what the user wants."""
        about_posts = topics(vectors, self.post_weight, self.post_bias)[:, :-1]
        about = topics(vectors, self.sentence_weight, self.sentence_bias)
        wants = np.stack([self._wants(about_posts[one.posts]) for one in asked])
        worth = np.stack([about[one.sentences].mean(axis=0) for one in asked])
        values: Doubles = self.scale * (worth * wants).sum(axis=1)
        return values

    def _wants(self, about: Doubles) -> Doubles:
        mass = np.log1p(2 * about.sum(axis=0))
        wants: Doubles = self.average + mass @ self.mix
        return wants


def topics(vectors: Doubles, weight: Floats, bias: Floats) -> Doubles:
    """Return what each text is about: one share per topic, adding up to 1."""
    raw = SHARPNESS * (vectors @ weight + bias)
    raised = np.exp(raw - raw.max(axis=1, keepdims=True))
    shares: Doubles = raised / raised.sum(axis=1, keepdims=True)
    return shares


def save_weights(weights: HeadWeights, folder: Path) -> None:
    """Write the file that `--model head:FOLDER` reads."""
    write_arrays(folder / WEIGHTS, {"kind": np.array(weights.kind), **arrays_of(weights)})


def load_weights(folder: Path) -> HeadWeights:
    """Read the arrays of a trained head."""
    path = folder / WEIGHTS
    arrays, known = read_arrays(path), _kinds()
    kind = str(arrays["kind"]) if "kind" in arrays else TopicWeights.kind
    if kind not in known:
        raise UsageError(f"{path}: is of kind {kind!r}, which this version does not know. Train it again.")
    weights: HeadWeights = known[kind](**pick_fields(arrays, known[kind], path))
    return weights


def scale_by_temperature(weights: Any, temperature: float) -> Any:
    """Return the same head with margins divided by a temperature."""
    return replace(weights, scale=(weights.scale / temperature).astype(np.float32))


def _kinds() -> Mapping[str, Any]:
    from prbench.reward_models.attention_head import AttentionWeights
    from prbench.reward_models.lowrank_head import LowRankWeights

    return {one.kind: one for one in (TopicWeights, AttentionWeights, LowRankWeights)}


def load(spec: Spec, options: EncoderOptions, settings: ModelSettings) -> Loaded:
    """Return `head:FOLDER`, or one of the shipped heads."""
    folder = SHIPPED_HEADS.get(spec.target, Path(spec.target))
    weights = load_weights(folder)
    model = HeadReward(weights, open_encoder(folder, load_encoder, options.encoder), name=spec.target)
    return Loaded(spec=spec.text, kind="head", model=model, identity=model.identity, items_per_step=256)


class HeadReward:
    """Scores responses with a trained head; once texts are embedded, it costs next to nothing."""

    def __init__(self, weights: HeadWeights, encoder: Encoder, *, name: str = "head") -> None:
        self.name = name
        self._weights = weights
        self._encoder = encoder

    @property
    def identity(self) -> Mapping[str, Json]:
        """All that changes scores."""
        arrays = [array.tobytes() for array in arrays_of(self._weights).values()]
        digest = sha256(b"".join(arrays)).hexdigest()[:12]
        kind = {} if self._weights.kind == TopicWeights.kind else {"kind": self._weights.kind}
        kind |= {"reads": "labels"} if self._weights.reads_labels else {}
        return {"head": digest, **kind, "encoder": dict(self._encoder.identity), "rule": 2}

    def score(self, inputs: Sequence[RewardInput]) -> list[Score]:
        """Return one score per input, in the same order."""
        if not inputs:
            return []
        table = _Table(self._weights)
        asked = [table.enter(one) for one in inputs]
        vectors = self._encoder.encode(list(table.places)).astype(np.float64)
        first = next(iter(arrays_of(self._weights).values()))  # of every kind: (d, …)
        check_size(vectors, len(first), model=self.name, encoder=self._encoder.name)
        # Computed in float64 and rounded: the last bits of a matrix product depend on how many rows it has.
        return [Score(value=float(value)) for value in self._weights.values(vectors, asked).astype(np.float32)]


class _Table:
    """The distinct texts of some inputs, each with its place; users and responses that recur are taken apart once."""

    def __init__(self, reader: HeadWeights) -> None:
        self._reader = reader
        self.places: dict[str, int] = {}
        self._posts: dict[UserContext, Places] = {}
        self._labels: dict[UserContext, tuple[tuple[Places, Places], ...]] = {}
        self._sentences: dict[str, Places] = {}

    def enter(self, one: RewardInput) -> Asked:
        """Return where the texts of one input stand."""
        user = one.user
        if user not in self._posts:
            self._posts[user] = self._add(user.segments)
            labels = user.labels if self._reader.reads_labels else ()
            self._labels[user] = tuple((self._parts(label.chosen), self._parts(label.rejected)) for label in labels)
        return Asked(
            question=int(self._add((one.question,))[0]) if self._reader.reads_questions else -1,
            posts=self._posts[user],
            sentences=self._parts(one.response),
            labels=self._labels[user],
        )

    def _parts(self, response: str) -> Places:
        if response not in self._sentences:
            # A response without a single letter is one sentence.
            self._sentences[response] = self._add(sentences_of(response) or (response,))
        return self._sentences[response]

    def _add(self, texts: Sequence[str]) -> Places:
        return np.array([self.places.setdefault(text, len(self.places)) for text in texts], dtype=np.int64)
