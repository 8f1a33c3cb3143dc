"""Kind `lowrank` of a trained head: a user is a vector of weights on a few features of responses.

    phi(y) = mean_s tanh(F x_s + f)                       r features of a response
    w_u    = average + basis' (sum_p c_p tanh(V x_p + b) / (1 + sum_p c_p)),   c_p = softplus(gate . x_p + g)
    score  = scale * w_u . phi(y)

The weights are predicted from the posts; c_p is how much a post says, and the 1 is what speaks for the average user.
Once a user has labelled pairs, `w_u` is where a convex regression on `phi` starts, and `covariance` (of the weights
over training users) says how far it may go: see `features` and `user_weights`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from prbench.reward_models.head import Asked, Doubles, Floats


@dataclass(frozen=True, kw_only=True)
class LowRankWeights:
    """The arrays of kind `lowrank`, for embeddings of size d and r features."""

    kind: ClassVar[str] = "lowrank"
    reads_questions: ClassVar[bool] = False

    feature: Floats  # (d, r)
    feature_bias: Floats  # (r,)
    post: Floats  # (d, k)
    post_bias: Floats  # (k,)
    gate: Floats  # (d,)
    gate_bias: Floats  # ()
    basis: Floats  # (k, r); zeros for a head that knows no users
    average: Floats  # (r,)
    covariance: Floats  # (r, r): not needed to score
    scale: Floats  # ()

    def values(self, vectors: Doubles, asked: Sequence[Asked]) -> Doubles:
        """Return the features of each response, weighed by the user."""
        users = self.user_weights(vectors, asked)
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
