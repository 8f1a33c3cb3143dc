"""Which of a user's posts come first: the newest, those that share words with the question, or its meaning."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from prbench.backends.bm25 import load_bm25s
from prbench.backends.encoders import Encoder
from prbench.errors import UsageError
from prbench.schema import Post, User

RANKS = ("recent", "bm25", "dense")

_OTHER_WORD = " "  # no token holds a blank, so it cannot be taken for a real one


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """A user with a question. It has no field for a rubric or a narrative, so none can reach a context."""

    user: User
    question: str
    under_test: frozenset[str] = frozenset()  # digests by which labelled pairs know the item and keep away from it
    owner: str = ""  # the id of the user whose item it is, if that is somebody else


Ranker = Callable[[Sequence[Ask]], list[tuple[Post, ...]]]  # all posts of each profile, best first


def make_ranker(rank: str, encoder: Encoder | None = None) -> Ranker:
    """The ranking named on the command line; `dense` needs an encoder."""
    match rank:
        case "recent":
            return rank_recent
        case "bm25":
            return rank_by_words
        case "dense":
            if encoder is None:
                raise UsageError("--rank dense needs an encoder. Name one, e.g. minilm.")
            return lambda asks: rank_by_meaning(asks, encoder)
        case _:
            raise UsageError(f"--rank {rank!r} is not known. Use one of: {', '.join(RANKS)}.")


def rank_recent(asks: Sequence[Ask]) -> list[tuple[Post, ...]]:
    """Newest first: the profile is in the order of writing."""
    return [tuple(reversed(ask.user.profile)) for ask in asks]


def rank_by_words(asks: Sequence[Ask]) -> list[tuple[Post, ...]]:
    """By BM25 of post against question, within the user's own profile; equal scores newest first."""
    words = _tokenize([ask.question for ask in asks] + [post.text for ask in asks for post in ask.user.profile])
    return [
        _in_order(ask.user.profile, _bm25(words[ask.question], [words[post.text] for post in ask.user.profile]))
        for ask in asks
    ]


def rank_by_meaning(asks: Sequence[Ask], encoder: Encoder) -> list[tuple[Post, ...]]:
    """By the cosine of post and question; equal to five decimals counts as equal, newest first."""
    texts = list(dict.fromkeys([ask.question for ask in asks] + [post.text for a in asks for post in a.user.profile]))
    vectors = dict(zip(texts, encoder.encode(texts), strict=True))
    ranked = []
    for ask in asks:
        question = vectors[ask.question]
        cosines = [float(vectors[post.text] @ question) for post in ask.user.profile]
        # Rounded, because the last digits depend on which texts shared a batch.
        ranked.append(_in_order(ask.user.profile, np.round(cosines, 5)))
    return ranked


def _tokenize(texts: Sequence[str]) -> dict[str, list[str]]:
    """Lower-case words of each distinct text, without English stop words."""
    distinct = list(dict.fromkeys(texts))
    tokens = load_bm25s().tokenize(distinct, stopwords="en", return_ids=False, show_progress=False)
    return dict(zip(distinct, tokens, strict=True))


def _bm25(query: Sequence[str], posts: Sequence[Sequence[str]]) -> NDArray[np.float32]:
    """Scores of one profile's posts (Lucene's variant, the default of bm25s)."""
    wanted = set(query) & {word for post in posts for word in post}
    if not wanted:
        return np.zeros(len(posts), dtype=np.float32)
    # Words outside the question only count towards a post's length. Taken as one word, they leave all scores as they
    # are, and the index of a profile is built several times faster.
    reduced = [[word if word in wanted else _OTHER_WORD for word in post] for post in posts]
    index = load_bm25s().BM25()
    index.index(reduced, show_progress=False)
    scores: NDArray[np.float32] = index.get_scores([word for word in query if word in wanted])
    return scores


def _in_order(profile: Sequence[Post], scores: NDArray[np.floating]) -> tuple[Post, ...]:
    """Best score first; among equals the newest, which is the last of the profile. Posts move whole, id and all."""
    order = sorted(range(len(profile)), key=lambda index: (-scores[index], -index))
    return tuple(profile[index] for index in order)
