"""Kind `attention` of a trained head: every sentence of a response looks for posts that speak for it.

With r numbers for each text (k, v: posts; q, g: sentences; x: the question), a sentence s gets

    e_sp    = q_s . k_p - threshold                       how much post p speaks for it
    a_sp    = exp(e_sp) / (1 + sum_p exp(e_sp))           attention; the 1 is an empty place, for posts that do not
    u_s     = sum_p a_sp v_p                              the user, as seen from this sentence
    amount  = log(1 + sum_p exp(e_sp))                    attention forgets how many posts there were; this does not
    worth_s = o . tanh(H [u_s, g_s, u_s * g_s, x, amount] + b)
    score   = scale * mean_s worth_s

Without posts u and the amount are 0; so they are for a head that knows no users, whose threshold is infinite.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from prbench.reward_models.head import Asked, Doubles, Floats


@dataclass(frozen=True, kw_only=True)
class AttentionWeights:
    """The arrays of kind `attention`, for embeddings of size d, rank r and h hidden units."""

    kind: ClassVar[str] = "attention"
    reads_questions: ClassVar[bool] = True
    reads_labels: ClassVar[bool] = False

    key: Floats  # (d, r), as all down to `question`
    value: Floats
    query: Floats
    gist: Floats
    question: Floats
    threshold: Floats  # ()
    hidden: Floats  # (4 r + 1, h)
    hidden_bias: Floats  # (h,)
    output: Floats  # (h,)
    scale: Floats  # ()

    def values(self, vectors: Doubles, asked: Sequence[Asked]) -> Doubles:
        """Return the mean worth of the sentences."""
        keys, values = vectors @ self.key, vectors @ self.value
        queries, gists, questions = vectors @ self.query, vectors @ self.gist, vectors @ self.question
        seen = np.concatenate([self._see(keys[one.posts], values[one.posts], queries[one.sentences]) for one in asked])
        own = np.concatenate([gists[one.sentences] for one in asked])
        counts = [len(one.sentences) for one in asked]
        topic = questions[np.repeat([one.question for one in asked], counts)]
        user, amount = seen[:, :-1], seen[:, -1:]
        inputs = np.concatenate([user, own, user * own, topic, amount], axis=1)
        worth = np.tanh(inputs @ self.hidden + self.hidden_bias) @ self.output
        starts = np.concatenate([[0], np.cumsum(counts)[:-1]])
        result: Doubles = self.scale * np.add.reduceat(worth, starts) / counts
        return result

    def _see(self, keys: Doubles, values: Doubles, queries: Doubles) -> Doubles:
        """Return the user as seen from each sentence, and the amount: (sentences, r + 1)."""
        evidence = queries @ keys.T - self.threshold  # (sentences, posts)
        top = evidence.max(axis=1, keepdims=True, initial=0.0)
        raised = np.exp(evidence - top)
        total = np.exp(-top) + raised.sum(axis=1, keepdims=True)
        return np.concatenate([(raised / total) @ values, top + np.log(total)], axis=1)
