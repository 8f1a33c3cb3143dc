"""Kind `lowrank` of a trained head: a user is a vector of weights on a few features of responses.

    phi(y) = mean_s tanh(F x_s + f)                       r features of a response
    w_u    = average + basis' (sum_p c_p tanh(V x_p + b) / (1 + sum_p c_p)),   c_p = softplus(gate . x_p + g)
    score  = scale * w_u . phi(y)

The weights are predicted from the posts; c_p is how much a post says, and the 1 is what speaks for the average user.
Labelled pairs in the context refine them, by a convex regression that starts there; the covariance of the weights over
training users, C = R R', says how far it may go:

    w      = w_u + R z
    z      = argmin |z|^2 / 2 - sum over the pairs of log sigmoid(scale w . (phi(preferred) - phi(turned down)))
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from prbench.reward_models.adapt import adapt
from prbench.reward_models.head import Asked, Doubles, Floats


@dataclass(frozen=True, kw_only=True)
class LowRankWeights:
    """The arrays of kind `lowrank`, for embeddings of size d and r features."""

    kind: ClassVar[str] = "lowrank"
    reads_questions: ClassVar[bool] = False
    reads_labels: ClassVar[bool] = True

    feature: Floats  # (d, r)
    feature_bias: Floats  # (r,)
    post: Floats  # (d, k)
    post_bias: Floats  # (k,)
    gate: Floats  # (d,)
    gate_bias: Floats  # ()
    basis: Floats  # (k, r); zeros for a head that knows no users
    average: Floats  # (r,)
    covariance: Floats  # (r, r): of the weights over training users
    scale: Floats  # ()

    def values(self, vectors: Doubles, asked: Sequence[Asked]) -> Doubles:
        """Return the features of each response, weighed by the user."""
        users = self._refined(self.user_weights(vectors, asked), vectors, asked)
        result: Doubles = self.scale * (users * self.features(vectors, asked)).sum(axis=1)
        return result

    def features(self, vectors: Doubles, asked: Sequence[Asked]) -> Doubles:
        """Return phi of each response: (responses, r)."""
        each = np.tanh(vectors @ self.feature + self.feature_bias)
        return np.stack([each[one.sentences].mean(axis=0) for one in asked])

    def user_weights(self, vectors: Doubles, asked: Sequence[Asked]) -> Doubles:
        """Return w of each response's user, as predicted from posts: (responses, r)."""
        says = np.tanh(vectors @ self.post + self.post_bias)
        counts = np.logaddexp(0, vectors @ self.gate + self.gate_bias)
        seen = [counts[one.posts] @ says[one.posts] / (1 + counts[one.posts].sum()) for one in asked]
        weights: Doubles = self.average + np.stack(seen) @ self.basis
        return weights

    def _refined(self, users: Doubles, vectors: Doubles, asked: Sequence[Asked]) -> Doubles:
        """Return w of each response's user, refined by labelled pairs where there are some."""
        if not any(one.labels for one in asked):
            return users
        each = np.tanh(vectors @ self.feature + self.feature_bias)
        spread, scale = _root(self.covariance.astype(np.float64)), float(self.scale)
        found: dict[tuple[bytes, ...], Doubles] = {}  # all responses to one user share this
        for number, one in enumerate(asked):
            key = tuple(part.tobytes() for part in (one.posts, *(side for label in one.labels for side in label)))
            if one.labels and key not in found:
                apart = np.stack([each[good].mean(axis=0) - each[bad].mean(axis=0) for good, bad in one.labels])
                margins, differences = scale * apart @ users[number], scale * apart @ spread
                found[key] = spread @ adapt(differences[None], margins[None], np.ones((1, len(apart))))[0]
            users[number] += found.get(key, 0.0)
        return users


def _root(covariance: Doubles) -> Doubles:
    """Return R with R R' = covariance, whatever its rank."""
    values, directions = np.linalg.eigh(covariance)
    root: Doubles = directions * np.sqrt(np.maximum(values, 0))
    return root
