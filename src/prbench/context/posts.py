"""Which of a user's posts are shown: ranked by date or by the question, then as many as a window holds."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from prbench.backends.bm25 import load_bm25s
from prbench.backends.encoders import Encoder
from prbench.errors import UsageError
from prbench.prompts import HASH_LENGTH
from prbench.schema import ContextKind, LabeledPair, Post, Problem, User, UserContext

RANKS = ("recent", "bm25", "dense")

_OTHER_WORD = " "  # no token holds a blank, so it cannot be taken for a real one


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """A user with a question. It has no field for a rubric or a narrative, so none can reach a context."""

    user: User
    question: str
    excluded_keys: frozenset[str] = frozenset()  # digests by which labeled pairs know the item and keep away from it
    owner: str = ""  # the id of the user whose item it is, if that is somebody else


Ranker = Callable[[Sequence[Ask]], list[tuple[Post, ...]]]  # of each profile all posts, or the top ones, best first


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
    distinct = dict.fromkeys([ask.question for ask in asks] + [post.text for ask in asks for post in ask.user.profile])
    # Lower-case words, without English stop words.
    tokens = load_bm25s().tokenize(list(distinct), stopwords="en", return_ids=False, show_progress=False)
    words = dict(zip(distinct, tokens, strict=True))
    ranked = []
    for ask in asks:
        query, posts = words[ask.question], [words[post.text] for post in ask.user.profile]
        wanted = set(query) & {word for post in posts for word in post}
        scores: NDArray[np.float32] = np.zeros(len(posts), dtype=np.float32)
        if wanted:
            # Words outside the question only count towards a post's length. Taken as one word, they leave all scores
            # as they are, and the index of a profile is built several times faster.
            reduced = [[word if word in wanted else _OTHER_WORD for word in post] for post in posts]
            index = load_bm25s().BM25()  # Lucene's variant
            index.index(reduced, show_progress=False)
            scores = index.get_scores([word for word in query if word in wanted])
        ranked.append(_in_order(ask.user.profile, scores))
    return ranked


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


def _in_order(profile: Sequence[Post], scores: NDArray[np.floating]) -> tuple[Post, ...]:
    """Best score first; among equals the newest, which is the last of the profile. Posts move whole, id and all."""
    order = sorted(range(len(profile)), key=lambda index: (-scores[index], -index))
    return tuple(profile[index] for index in order)


class HasWindow(Protocol):
    """Whatever reads contexts and can hold only so much: a reward model, or a prompt of a language model."""

    def holds(self, user: UserContext, *, question: str, responses: Sequence[str], reserve_tokens: int) -> bool:
        """Tell whether that much of the user fits, beside the question and every one of the responses."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptWindow:
    """A prompt of a language model, which words the question by itself; the reply takes the reserved tokens."""

    count_tokens: Callable[[UserContext], int]  # of the prompt that shows so much
    limit: int | None

    def holds(self, user: UserContext, *, question: str, responses: Sequence[str], reserve_tokens: int) -> bool:
        """Tell whether prompt and reply fit together."""
        return self.limit is None or self.count_tokens(user) + reserve_tokens <= self.limit


def fit_for(
    model: HasWindow,
    user: UserContext,
    *,
    question: str,
    responses: Sequence[str] = (),
    reserve_tokens: int = 0,
) -> UserContext:
    """Return as much of `user` as `model` holds, dropping from the end of the ranking; labels stand first.

    All responses get the same context. Where they do not even fit without one, its problem says so.
    """
    if user.problem:
        return user
    count = user.used
    # The longest is the first to run out of room, so that too much is found out soon.
    longest_first = sorted(responses, key=len, reverse=True) if len(responses) > 2 else responses
    parts: dict[int, UserContext] = {}

    def fits(used: int) -> bool:
        part = parts[used] = user if used == count > 0 else _first(user, used)
        return model.holds(part, question=question, responses=longest_first, reserve_tokens=reserve_tokens)

    used = longest(count, fits)
    if used is None:
        too_long = "question and response alone exceed the model's window"
        return replace(_first(user, 0), problem=Problem.TOO_LONG, detail=too_long)
    return parts[used]


def longest(count: int, fits: Callable[[int], bool]) -> int | None:
    """The largest number from 0 to `count` that fits, where all below one that fits do; `None` if not even 0."""
    if fits(count):  # by far the most frequent case
        return count
    if count == 0 or not fits(0):
        return None
    low, high = 0, count  # low fits, high does not
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def _first(user: UserContext, used: int) -> UserContext:
    """The first of the labels and segments; with none of them, the impersonal baseline."""
    labels, segments = user.labels[:used], user.segments[: max(0, used - len(user.labels))]
    dropped = user.dropped + user.used - used
    if not used:
        return UserContext(dropped=dropped, truncated_posts=user.truncated_posts)
    return replace(user, labels=labels, segments=segments, dropped=dropped)


_SAMPLE = ("first line\n\nsecond line", "another piece")
_PAIR = LabeledPair(question="first line\nsecond line", chosen="one", rejected="two")


def rendering_hash(kind: ContextKind, *, has_labels: bool = False) -> str:
    """Return a digest of the heading and of the way of listing."""
    segments = () if kind is ContextKind.NONE else _SAMPLE
    sample = UserContext(kind=kind, segments=segments, labels=(_PAIR,) if has_labels else ())
    return sha256(sample.text.encode()).hexdigest()[:HASH_LENGTH]
