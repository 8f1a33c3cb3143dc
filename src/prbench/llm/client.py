"""Text in, text out: the one protocol that judges, planners and builders speak."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from prbench.schema import NOTHING, Json


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a chat."""

    role: str  # system, user or assistant
    content: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatRequest:
    """All that decides a reply; two equal requests to one model may share an answer."""

    messages: tuple[Message, ...]
    max_tokens: int = 512
    temperature: float = 0.0
    seed: int | None = None
    top_logprobs: int = 0  # > 0: also return the log-probabilities of the first token's top candidates
    json_schema: Mapping[str, Json] = field(default_factory=lambda: NOTHING)  # empty: free text


class Finish(StrEnum):
    """How a reply ended."""

    STOP = "stop"
    LENGTH = "length"  # out of tokens: whatever it was going to say is missing
    ERROR = "error"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What came back. A failed request is a reply with `finish` ERROR, never an exception."""

    text: str = ""
    finish: Finish = Finish.STOP
    error: str = ""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    first_token: Mapping[str, float] = field(default_factory=lambda: NOTHING)  # candidate text -> log-probability


class LLM(Protocol):
    """A chat model. It batches or runs threads inside; callers need no async version."""

    @property
    def name(self) -> str:
        """The spec that made it, e.g. `openai:gpt-x@http://127.0.0.1:8000/v1`; never a key."""
        ...

    @property
    def window(self) -> int | None:
        """Prompt and reply tokens that fit together; `None` where it is not known."""
        ...

    def complete(self, requests: Sequence[ChatRequest]) -> list[Reply]:
        """Return one reply per request, in the same order."""
        ...

    def count_tokens(self, messages: Sequence[Message]) -> int:
        """Return the prompt's length in tokens, or a stated upper estimate where the server cannot tell."""
        ...
