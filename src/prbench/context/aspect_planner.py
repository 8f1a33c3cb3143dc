"""A trained planner: from posts and a question to the aspects that this user will look for, by embeddings alone.

It knows a bank of aspects, all that occurred in the rubrics it was trained on, and which of them occur with which
questions. A new question calls up the aspects of the questions nearest to it; how much each of them is wanted says

    topics(x) = softmax(s (W x + c))                     W, c: one pair for posts, one for aspects
    wants(u)  = average + mix' log(1 + 2 sum_p topics(p))
    log-odds  = offset + scale * topics(aspect) . wants(u) + prior * log-odds in the population with such questions

averaged over a few members that were trained side by side from different beginnings. Posts have one topic more, which
is worth nothing: small talk goes there. Without posts the population decides.

Aspects are essential, important or optional by thresholds that were chosen on held-out users; the weights of the three
are those of P-Check (arXiv 2601.02986).
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from prbench.backends.encoders import Doubles, Encoder
from prbench.backends.npz_weights import NpzRecord, embed, open_encoder
from prbench.errors import UsageError
from prbench.runs.files import write_json
from prbench.schema import Json

WEIGHTS, BANK = "planner.npz", "bank.json"
SHARPNESS = 8.0
RELEVANT = 0.5  # of the most relevant aspect's relevance: below, an aspect does not belong to the question
MOST_CANDIDATES = 12
TAGS: Mapping[str, float] = {"essential": 1.0, "important": 0.7, "optional": 0.3}

Floats = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class BankAspect:
    """An aspect that some user looked for."""

    aspect: str
    reason: str = ""

    @property
    def text(self) -> str:
        """The aspect as it is embedded, by planner and scorer alike."""
        return aspect_text(self.aspect, self.reason)


@dataclass(frozen=True, slots=True)
class PredictedAspect:
    """An aspect that belongs to the question, and how likely this user is to look for it."""

    aspect: BankAspect
    probability: float
    tag: str  # essential, important, optional; "" for what is better left out

    @property
    def weight(self) -> float:
        """How much the tag counts."""
        return TAGS.get(self.tag, 0.0)


@dataclass(frozen=True, kw_only=True)
class PlannerWeights(NpzRecord):
    """The arrays of one planner: m members, embeddings of size d, k topics, q questions and a aspects of the bank."""

    FILE = WEIGHTS

    post_weight: Floats  # (m, d, k + 1)
    post_bias: Floats  # (m, 1, k + 1)
    aspect_weight: Floats  # (m, d, k)
    aspect_bias: Floats  # (m, 1, k)
    mix: Floats  # (m, k, k)
    average: Floats  # (m, 1, k)
    scale: Floats  # (m,)
    offset: Floats  # (m,)
    prior: Floats  # (m,)
    questions: Floats  # (q, d): embeddings of the questions in the training rows
    shares: Floats  # (q, a): how many of those who asked this look for that aspect
    nearness: Floats  # (): how sharply the nearest questions count
    thresholds: Floats  # (3,): least probability of essential, important, optional


@dataclass(frozen=True, kw_only=True)
class PlannerFolder:
    """What a folder of a trained planner holds."""

    weights: PlannerWeights
    bank: tuple[BankAspect, ...]
    encoder: str

    def save(self, folder: Path) -> None:
        """Write what `--planner FOLDER` and `--model planner:FOLDER` read."""
        self.weights.save(folder)
        bank = [{"aspect": one.aspect, "reason": one.reason} for one in self.bank]
        write_json(folder / BANK, {"encoder": self.encoder, "aspects": bank})


def read_planner(folder: Path) -> PlannerFolder:
    """Read a folder that `prbench train --method planner` wrote."""
    weights = PlannerWeights.load(folder)
    try:
        content = json.loads((folder / BANK).read_text(encoding="utf-8"))
        bank = tuple(BankAspect(one["aspect"], one["reason"]) for one in content["aspects"])
        encoder = str(content["encoder"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{folder / BANK}: cannot be read as a bank of aspects. Train the planner again.") from error
    if weights.shares.shape != (len(weights.questions), len(bank)):
        raise UsageError(f"{folder}: {WEIGHTS} and {BANK} belong to different planners. Train the planner again.")
    return PlannerFolder(weights=weights, bank=bank, encoder=encoder)


def load_aspect_planner(folder: Path) -> "AspectPlanner":
    """Return the planner of a folder, with the encoder that it was trained on."""
    read = read_planner(folder)
    return AspectPlanner(read.weights, read.bank, open_encoder(folder, otherwise=read.encoder))


def aspect_text(aspect: str, reason: str = "") -> str:
    """Return an aspect as one text, the way planner and scorer were trained on it."""
    return f"{aspect}. {reason}" if reason else f"{aspect}."


def aspect_line(aspect: str, reason: str = "") -> str:
    """Return an aspect as contexts list it."""
    return f"{aspect}: {reason}" if reason else aspect


class AspectPlanner:
    """Predicts aspects; every text is embedded once."""

    def __init__(self, weights: PlannerWeights, bank: Sequence[BankAspect], encoder: Encoder) -> None:
        self._weights = weights
        self._bank = tuple(bank)
        self._encoder = encoder
        texts = [one.text for one in bank]
        vectors = embed(encoder, texts, weights.aspect_weight.shape[1], model="the planner")
        self._about = topics(vectors, weights.aspect_weight, weights.aspect_bias)
        digest = sha256("\n".join(texts).encode())
        for array in weights.arrays.values():
            digest.update(array.tobytes())
        self.identity: Mapping[str, Json] = {
            "planner": digest.hexdigest()[:12],
            "encoder": dict(encoder.identity),
            "planner_rule": 1,
        }

    def predict(self, posts: Sequence[Sequence[str]], questions: Sequence[str]) -> list[tuple[PredictedAspect, ...]]:
        """Return the aspects that belong to each question, the most likely first, with what the posts say of each."""
        place = {text: at for at, text in enumerate(dict.fromkeys([*questions, *(p for one in posts for p in one)]))}
        if not place:
            return []
        vectors = self._encoder.encode(list(place)).astype(np.float64)
        about = topics(vectors, self._weights.post_weight, self._weights.post_bias)[..., :-1]
        return [
            self._predict(about[:, [place[text] for text in written]], vectors[place[question]])
            for written, question in zip(posts, questions, strict=True)
        ]

    def _predict(self, about_posts: Doubles, question: Doubles) -> tuple[PredictedAspect, ...]:
        weights = self._weights
        places, prior = candidates(question, weights.questions, weights.shares, float(weights.nearness))
        mass = np.log1p(2 * about_posts.sum(axis=1, keepdims=True))  # (m, 1, k)
        wants = weights.average + mass @ weights.mix
        wanted = (self._about[:, places] * wants).sum(axis=-1)  # (m, candidates)
        odds = weights.offset[:, None] + weights.scale[:, None] * wanted + weights.prior[:, None] * prior
        probabilities = 1 / (1 + np.exp(-odds.mean(axis=0)))
        order = np.argsort(-probabilities, kind="stable")
        found = []
        for at in order:
            probability = float(probabilities[at])
            tags = [tag for tag, least in zip(TAGS, weights.thresholds, strict=True) if probability >= least]
            found.append(PredictedAspect(self._bank[places[at]], probability, tags[0] if tags else ""))
        return tuple(found)


def candidates(question: Doubles, known: Floats, shares: Floats, nearness: float) -> tuple[NDArray[np.intp], Doubles]:
    """Return the aspects that belong to a question, by the known questions near it, and their log-odds there."""
    near = softmax(nearness * (known.astype(np.float64) @ question))
    relevance = near @ (shares > 0)
    best = np.argsort(-relevance, kind="stable")[:MOST_CANDIDATES]
    places = best[relevance[best] >= RELEVANT * relevance[best[0]]]
    return places, log_odds((near @ shares)[places] / relevance[places])


def topics(vectors: Doubles, weight: Floats, bias: Floats) -> Doubles:
    """Return what each text is about: one share per topic, adding up to 1; (texts, topics), or by member (m, …)."""
    return softmax(SHARPNESS * (vectors @ weight + bias))


def log_odds(share: Doubles) -> Doubles:
    """Return the log-odds of shares, which are kept off 0 and 1."""
    kept = np.clip(share, 0.02, 0.98)
    odds: Doubles = np.log(kept / (1 - kept))
    return odds


def softmax(values: Doubles, axis: int = -1) -> Doubles:
    """Return shares that add up to 1 along an axis."""
    raised = np.exp(values - values.max(axis=axis, keepdims=True))
    shares: Doubles = raised / raised.sum(axis=axis, keepdims=True)
    return shares
