"""A classifier that sees the two responses and nothing else: what it gets right, the user was not needed for."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from prbench.construction.check.keys import PairKey
from prbench.data.texts import words
from prbench.metrics.estimate import FOLDS

FloatArray = npt.NDArray[np.float64]
Groups = npt.NDArray[np.int64]

LARGEST_GROUP = 0.3  # of the rows; if joining equal users makes a larger one, only equal pairs are joined
STRENGTH = 10.0  # inverse of the penalty (sklearn's C): features have length 1 at most, so weights must be large
TELLING = 5


@dataclass(frozen=True, kw_only=True)
class Differences:
    """The features of chosen minus those of rejected, one row per pair, and what the columns are called."""

    matrix: Any  # dense or sparse, (pairs, features)
    names: Sequence[str] = ()


def tfidf_differences(chosen: Sequence[str], rejected: Sequence[str]) -> Differences | None:
    """Return TF-IDF of words and of two words in a row; `None` if no word is in more than one response."""
    from sklearn.feature_extraction.text import CountVectorizer, TfidfTransformer

    # What only one response has cannot help with another. Labels are not looked at, so all rows may be counted.
    counter = CountVectorizer(tokenizer=words, token_pattern=None, lowercase=False, ngram_range=(1, 2), min_df=2)
    try:
        counts = counter.fit_transform([*chosen, *rejected])
    except ValueError:  # "empty vocabulary", or nothing left of it
        return None
    weights = TfidfTransformer(sublinear_tf=True).fit_transform(counts.astype(np.float32))
    return Differences(
        matrix=weights[: len(chosen)] - weights[len(chosen) :], names=counter.get_feature_names_out().tolist()
    )


def row_groups(keys: Sequence[PairKey]) -> tuple[Groups, str]:
    """Return a group per row, and what is kept together: equal pairs of responses, and equal users if possible."""
    pairs = [f"{key.responses}" for key in keys]
    both = _components(pairs, [key.user for key in keys])
    if max(Counter(both.tolist()).values()) < LARGEST_GROUP * len(keys):
        return both, "pairs and users"
    return _components(pairs), "pairs"


def _components(*labels: Sequence[str]) -> Groups:
    """Return the connected components of rows that share a label of any kind."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    rows = len(labels[0])
    edges, nodes = [], rows
    for kind in labels:
        names, codes = np.unique(kind, return_inverse=True)
        edges.append(codes + nodes)
        nodes += len(names)
    start = np.tile(np.arange(rows), len(labels))
    graph = coo_array((np.ones(len(start)), (start, np.concatenate(edges))), shape=(nodes, nodes))
    components: Groups = connected_components(graph, directed=False)[1][:rows].astype(np.int64)
    return components


@dataclass(frozen=True, kw_only=True)
class OutOfFold:
    """Scores of a classifier on rows that it was not fitted on; above 0, it takes the chosen response."""

    scores: FloatArray
    weights: FloatArray  # mean over the folds

    @property
    def points(self) -> FloatArray:
        """1 for a right answer, half for a tie."""
        return (np.sign(self.scores) + 1) / 2

    def telling(self, names: Sequence[str]) -> Mapping[str, list[str]]:
        """Return the features that speak most for chosen and for rejected."""
        order = np.argsort(self.weights, kind="stable")
        return {
            "chosen": [names[at] for at in order[::-1][:TELLING] if self.weights[at] > 0],
            "rejected": [names[at] for at in order[:TELLING] if self.weights[at] < 0],
        }


def classify(differences: Any, groups: Groups) -> OutOfFold | None:
    """Fit logistic regressions on differences in up to five folds of whole groups; `None` for a single group.

    Without an intercept the score of a difference is minus that of its reverse: the order of a pair says nothing.
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import GroupKFold

    folds = min(FOLDS, len(np.unique(groups)))
    if folds < 2:
        return None
    scores, weights = np.zeros(len(groups)), np.zeros(differences.shape[1])
    for train, test in GroupKFold(folds).split(differences, groups=groups):
        model = LogisticRegression(C=STRENGTH, fit_intercept=False, max_iter=1000)
        model.fit(*_both_ways(differences[train]))
        weights += model.coef_[0] / folds
        scores[test] = differences[test] @ model.coef_[0]
    return OutOfFold(scores=scores, weights=weights)


def _both_ways(differences: Any) -> tuple[Any, npt.NDArray[np.int64]]:
    """Return every difference as it is, labelled 1, and turned round, labelled 0."""
    from scipy.sparse import issparse, vstack

    stack = vstack if issparse(differences) else np.vstack
    rows = differences.shape[0]
    return stack([differences, -differences]), np.repeat([1, 0], rows)
