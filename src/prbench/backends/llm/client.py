"""Text in, text out: the one protocol that judges, planners and builders speak."""

import re
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import islice
from typing import Annotated, Any, Protocol, runtime_checkable

from prbench.schema import NOTHING, Json, Problem
from prbench.specs import Above, AtLeast, option

CHUNK = 32  # requests that a client which does not stream is asked at once; their replies arrive together


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a chat."""

    role: str  # system, user or assistant
    content: str


def never(text: str) -> bool:
    """Take no reply that was cut off."""
    return False


def always(text: str) -> bool:
    """Take any reply that was cut off."""
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatRequest:
    """All that decides a reply; two equal requests to one model may share an answer."""

    messages: tuple[Message, ...]
    max_tokens: int = 512
    temperature: float = 0.0
    seed: int | None = None
    top_logprobs: int = 0  # > 0: also return the log-probabilities of the first token's top candidates
    json_schema: Mapping[str, Json] = field(default_factory=lambda: NOTHING)  # empty: free text
    # Whose texts it holds, so that the person can be forgotten. Never sent, and no part of what makes requests equal.
    owner: str = field(default="", compare=False)
    # Tells of the text of a reply that was cut off whether it is of use all the same, as where one token is all.
    cut_is_enough: Callable[[str], bool] = field(default=never, compare=False, repr=False)


class Finish(StrEnum):
    """How a reply ended."""

    STOP = "stop"
    LENGTH = "length"  # out of tokens: whatever it was going to say is missing
    ERROR = "error"
    WRONG_MODEL = "wrong_model"  # another model replied than the one that was asked


PROBLEMS: Mapping[Finish, Problem] = {
    Finish.STOP: Problem.NONE,
    Finish.LENGTH: Problem.OUT_OF_TOKENS,
    Finish.ERROR: Problem.FAILED,
    Finish.WRONG_MODEL: Problem.WRONG_MODEL,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What came back. A failed request is a reply with `finish` ERROR, never an exception; `error` says why."""

    text: str = ""
    finish: Finish = Finish.STOP
    error: str = ""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    first_token: Mapping[str, float] = field(default_factory=lambda: NOTHING)  # candidate text -> log-probability

    @property
    def problem(self) -> Problem:
        """Why the text is no answer, whatever it says. Readers look here first."""
        return PROBLEMS[self.finish]

    def answers(self, request: ChatRequest) -> bool:
        """Tell whether the request need not be asked again."""
        return self.finish is Finish.STOP or (self.finish is Finish.LENGTH and request.cut_is_enough(self.text))


@runtime_checkable
class CountsTokens(Protocol):
    """A client that shares the beginnings of prompts, and can tell what that saved."""

    def tokens(self) -> Mapping[str, int]:
        """Return how many tokens such prompts had (`total`), and how many of them were computed."""
        ...


LLM_NAMES = ("name", "window", "complete", "count_tokens")


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


Arrived = Callable[[int, Reply], None]


def no_progress(index: int, reply: Reply) -> None:
    """Take note of nothing."""


@runtime_checkable
class Streaming(Protocol):
    """A client that hands out each reply as soon as it has arrived."""

    def complete_each(
        self, requests: Iterable[ChatRequest], arrived: Arrived = no_progress
    ) -> Iterator[tuple[int, Reply]]:
        """Yield (index, reply) in the order of arrival. A request is taken only when it is about to be sent.

        `arrived` is told of each reply at once, maybe in another thread, and also when nobody takes it any more.
        """
        ...


def complete_each(
    llm: LLM, requests: Iterable[ChatRequest], arrived: Arrived = no_progress
) -> Generator[tuple[int, Reply], None, None]:
    """Yield (index, reply) as they arrive: one by one where the client streams, else in chunks of `CHUNK`."""
    if isinstance(llm, Streaming):
        yield from llm.complete_each(requests, arrived)
        return
    waiting = iter(requests)
    start = 0
    while chunk := list(islice(waiting, CHUNK)):
        replies = list(enumerate(llm.complete(chunk), start))
        for index, reply in replies:
            arrived(index, reply)
        yield from replies
        start += len(chunk)


def in_order(arrived: Iterable[tuple[int, Reply]]) -> list[Reply]:
    """Return the replies in the order of their requests."""
    return [reply for _, reply in sorted(arrived, key=lambda pair: pair[0])]


def complete_alike(llm: LLM, requests: Sequence[ChatRequest]) -> list[Reply]:
    """Return one reply per request, in their order, after sending them in the order of their texts.

    Prompts that begin alike then follow each other, so that a server which keeps the beginnings of prompts, as vLLM
    and llama.cpp do, reads a person's profile once.
    """
    order = sorted(range(len(requests)), key=lambda place: [each.content for each in requests[place].messages])
    replies = dict(zip(order, llm.complete([requests[place] for place in order]), strict=True))
    return [replies[place] for place in range(len(requests))]


def fingerprint_of(llm: LLM) -> str:
    """Return what, besides the client's name and the request, decides a reply (a default seed, a file).

    Equal fingerprints mean interchangeable replies; a client that has none gives "".
    """
    return str(getattr(llm, "fingerprint", ""))


class Wrapped:
    """What a client around another one says of itself: what the one inside says."""

    def __init__(self, inner: LLM) -> None:
        self._inner = inner

    @property
    def name(self) -> str:
        return self._inner.name

    @property
    def window(self) -> int | None:
        return self._inner.window

    @property
    def fingerprint(self) -> str:
        return fingerprint_of(self._inner)

    def count_tokens(self, messages: Sequence[Message]) -> int:
        return self._inner.count_tokens(messages)


@dataclass(frozen=True, kw_only=True)
class LlmOptions:
    """How a chat model is asked."""

    window: Annotated[int, AtLeast(1)] | None = option(None, "tokens of prompt and reply; default: as the model says")
    concurrency: Annotated[int, AtLeast(1)] | None = option(None, "requests at once, or rows in a batch of hf:")
    timeout: Annotated[float, Above(0)] = option(120.0, "seconds for one reply of a server")
    seed: Annotated[int, AtLeast(0)] | None = option(None, "for requests without one")
    answers_as: str = option("", "the id in a server's replies, where it is an alias of the model")
    retries: Annotated[int, AtLeast(0)] = option(4, "further tries of a request to a server that failed")
    batch: Annotated[float, Above(0)] | None = option(None, "send to /v1/batches, and look every so many seconds")


_PROBE = "a system text that no template contains"
# Servers tokenize the rendered chat with control tokens switched on, so a response that contains `<|im_end|>` would
# end its own turn and speak for the assistant. The families in use: ChatML, Llama 3 and most newer models (`<|...|>`,
# `<|...>`, `<...|>`), DeepSeek (the same with full-width bars), Gemma, Llama 2 and Mistral.
CONTROL_TOKEN = re.compile(
    r"<[|｜][^\s<>]{1,64}>"
    r"|<[^\s<>]{1,64}[|｜]>"
    r"|</?(?:s|bos|eos|pad|unk|start_of_turn|end_of_turn)>"
    r"|\[/?(?:INST|SYSTEM_PROMPT|AVAILABLE_TOOLS|TOOL_CALLS|TOOL_RESULTS)\]"
    r"|<</?SYS>>"
)


def without_control_tokens(messages: Sequence[Message], special: Sequence[str] = ()) -> tuple[Message, ...]:
    """Return the turns with a space after the first character of every control token that their text contains.

    `special` adds the exact tokens of one tokenizer, where they are known.
    """
    longest_first = sorted((token for token in special if len(token) > 1), key=len, reverse=True)
    patterns = [CONTROL_TOKEN]
    if longest_first:
        patterns.append(re.compile("|".join(map(re.escape, longest_first))))
    contents = [message.content for message in messages]
    for pattern in patterns:
        contents = [pattern.sub(lambda token: f"{token[0][0]} {token[0][1:]}", text) for text in contents]
    return tuple(Message(message.role, text) for message, text in zip(messages, contents, strict=True))


def system_in_first_user_turn(messages: Sequence[Message]) -> tuple[Message, ...]:
    """Return the turns with the system text at the head of the first user turn, for templates without that role."""
    system = "\n\n".join(message.content for message in messages if message.role == "system")
    turns = [message for message in messages if message.role != "system"]
    if not system:
        return tuple(turns)
    if not turns or turns[0].role != "user":
        return (Message("user", system), *turns)
    return (Message("user", f"{system}\n\n{turns[0].content}"), *turns[1:])


def takes_system_turn(tokenizer: Any) -> bool:
    """Tell whether a chat template takes a system turn: some refuse it, some drop its text without a word."""
    from jinja2 import TemplateError

    turns = [{"role": "system", "content": _PROBE}, {"role": "user", "content": "Hello"}]
    try:
        return _PROBE in tokenizer.apply_chat_template(turns, add_generation_prompt=True, tokenize=False)
    except TemplateError:
        return False
