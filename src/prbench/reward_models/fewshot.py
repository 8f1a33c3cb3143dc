"""A reward model that starts from the population and adapts to a user from a few labeled pairs.

Every sentence of a response is softly assigned to a few learned topics, and a response is worth what its sentences are
about, weighed by what this user wants. Wants are drawn from a population whose mean and spread were learned:

    phi(y)  = mean over the sentences s of y of softmax(8 (W s + c))
    w_u     = w_0 + spread z_u                    z_u ~ N(0, I), so the covariance of wants is spread spread'
    score   = w_u . phi(y) / temperature
    z_u     = argmin  |z|^2 / 2 - sum over the labeled pairs of log sigmoid(w . (phi(preferred) - phi(turned down)))

The last line is a convex problem (ridge logistic regression towards the population), solved by Newton's method.
Without labeled pairs it gives z = 0: the average user. A model that was trained to read posts moves the mean by what
they are about, and trusts it the more, the more they say:

    w_0(u)  = w_0 + mix' log(1 + 2 m)             m = sum over posts p of topics(p), small talk left out
    z_u     ~ N(0, I / (1 + certainty |m|))
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from prbench.backends.encoders import Doubles, Encoder
from prbench.backends.npz_weights import NpzRecord, open_encoder
from prbench.context.aspect_planner import Floats
from prbench.data.texts import sentences_of
from prbench.reward_models.base import EncoderOptions, LoadedModel, ModelSettings, as_loaded, rounded_scores
from prbench.reward_models.head import topics_of
from prbench.schema import Json, LabeledPair, RewardInput, Score, UserContext
from prbench.specs import Spec

MOST_STEPS = 100  # of Newton's method; from the population's mean it takes about five
FLAT = 1e-10  # the slope at which it ends
HALVINGS = 40


@dataclass(frozen=True, kw_only=True)
class FewshotWeights(NpzRecord):
    """The arrays of one model, for embeddings of size d, k topics and r directions in which users differ."""

    FILE = "fewshot.npz"

    sentence_weight: Floats  # (d, k)
    sentence_bias: Floats  # (k,)
    average: Floats  # (k,)
    spread: Floats  # (k, r)
    post_weight: Floats  # (d, k + 1); the last topic is small talk
    post_bias: Floats  # (k + 1,)
    mix: Floats  # (k, k); zeros for a model that reads no posts
    certainty: Floats  # (), likewise
    temperature: Floats  # (): makes a margin a log-odds; it has no part in adapting
    encoder: str = "minilm"  # the one that it was trained on


def load(spec: Spec, options: EncoderOptions, settings: ModelSettings) -> LoadedModel:
    """Return `fewshot:FOLDER`."""
    folder = Path(spec.target)
    weights = FewshotWeights.load(folder)
    encoder = open_encoder(folder, options.encoder, otherwise=weights.encoder)
    model = FewshotReward(weights, encoder, name=spec.target)
    return as_loaded(spec, model, items_per_step=256)


class FewshotReward:
    """Scores responses by what the user's labeled pairs, and posts if it reads them, say about the user."""

    def __init__(self, weights: FewshotWeights, encoder: Encoder, *, name: str = "fewshot") -> None:
        self.name = name
        self._weights = weights
        self._encoder = encoder
        self._reads_posts = bool(np.any(weights.mix))
        self.identity: Mapping[str, Json] = {"fewshot": weights.hash, "encoder": dict(encoder.identity), "rule": 1}

    def score(self, inputs: Sequence[RewardInput]) -> list[Score]:
        users = dict.fromkeys(one.user for one in inputs)
        weights = self._weights
        responses = dict.fromkeys(one.response for one in inputs)
        responses.update(dict.fromkeys(text for user in users for label in user.labels for text in _both(label)))
        parts = {text: sentences_of(text) for text in responses}
        sentences = dict.fromkeys(sentence for group in parts.values() for sentence in group)
        shares = topics_of(self._encoder, sentences, weights.sentence_weight, weights.sentence_bias, model=self.name)
        nothing = np.zeros(len(weights.average))  # a response without a sentence, "42" for one, is about nothing
        about = {  # phi of every response: the mean of its sentences' topics
            text: sum((shares[sentence] for sentence in group), start=nothing) / max(len(group), 1)
            for text, group in parts.items()
        }
        written = dict.fromkeys(post for user in users for post in user.segments) if self._reads_posts else {}
        said = topics_of(self._encoder, written, weights.post_weight, weights.post_bias, model=self.name)
        posts = {text: share[:-1] for text, share in said.items()}  # without small talk
        wants = {user: self._wants(user, about, posts) for user in users}
        values = np.array([float(about[one.response] @ wants[one.user]) for one in inputs])
        return rounded_scores(values / float(weights.temperature))

    def _wants(self, user: UserContext, about: Mapping[str, Doubles], posts: Mapping[str, Doubles]) -> Doubles:
        weights = self._weights
        wants = weights.average.astype(np.float64)
        spread = weights.spread.astype(np.float64)
        if self._reads_posts and user.segments:
            mass = np.sum([posts[post] for post in user.segments], axis=0)
            wants = wants + np.log1p(2 * mass) @ weights.mix
            spread = spread / np.sqrt(1 + float(weights.certainty) * mass.sum())
        if not user.labels:
            return wants
        apart = np.stack([about[good] - about[bad] for good, bad in map(_both, user.labels)])
        z = adapt((apart @ spread)[None], (apart @ wants)[None], np.ones((1, len(apart))))[0]
        adapted: Doubles = wants + spread @ z
        return adapted


def _both(label: LabeledPair) -> tuple[str, str]:
    return label.chosen, label.rejected


def adapt(differences: Doubles, margins: Doubles, counts: Doubles) -> Doubles:
    """Return where each user stands: (users, r), by a ridge logistic regression towards the population.

        z = argmin  |z|^2 / 2 - sum over the pairs of log sigmoid(margin + difference . z)

    It is convex, and solved by Newton's method; without pairs z is 0, which is the population's mean.

    `differences` (users, pairs, r) and `margins` (users, pairs) say how far the features of the two responses are
    apart, and what the population makes of that; `counts` is 1 for a pair and 0 for padding.
    """

    def loss(z: Doubles) -> Doubles:
        fitted = margins + np.einsum("upr,ur->up", differences, z)
        total: Doubles = (z**2).sum(axis=1) / 2 + (counts * np.logaddexp(0, -fitted)).sum(axis=1)
        return total

    z = np.zeros((len(differences), differences.shape[2]))
    for _ in range(MOST_STEPS):
        # (users, pairs), (users, r), (users, r, r)
        doubt = counts / (1 + np.exp(np.minimum(margins + np.einsum("upr,ur->up", differences, z), 500)))
        slope = z - np.einsum("up,upr->ur", doubt, differences)
        if np.abs(slope).max(initial=0) < FLAT:
            break
        curvature = np.einsum("up,upr,ups->urs", doubt * (1 - doubt), differences, differences) + np.eye(z.shape[1])
        step = np.linalg.solve(curvature, slope[..., None])[..., 0]
        # Newton's step, halved where it overshoots.
        before, length = loss(z), np.ones((len(z), 1))
        for _ in range(HALVINGS):
            worse = loss(z - length * step) > before + 1e-12 * (1 + before)
            if not worse.any():
                break
            length[worse] /= 2
        z = z - length * step
    return z
