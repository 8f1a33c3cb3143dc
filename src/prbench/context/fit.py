"""The one place where what is known of a user is cut to a window."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from prbench.schema import Problem, UserContext


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
