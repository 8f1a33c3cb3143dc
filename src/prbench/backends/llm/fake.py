"""A chat model that follows a script: for tests, examples and dry runs."""

import math
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from prbench.backends.llm.client import ChatRequest, Finish, LlmOptions, Message, Reply
from prbench.errors import UsageError
from prbench.specs import Spec

Answer = str | Reply
Script = Answer | Sequence[Answer] | Callable[[ChatRequest], Answer]


class FakeLLM:
    """Answers by script, and keeps every request for inspection.

    The script is one answer for all requests, a list of answers in the order of the requests, or a function. An answer
    is a text, or a whole `Reply` where the ending, an error or log-probabilities matter.
    """

    def __init__(self, script: Script, *, name: str = "fake:script", window: int | None = None) -> None:
        self._script = script
        self.name = name
        self.window = window  # in words
        self._lock = threading.Lock()
        self.requests: list[ChatRequest] = []

    def complete(self, requests: Sequence[ChatRequest]) -> list[Reply]:
        return [self._complete_one(request) for request in requests]

    def count_tokens(self, messages: Sequence[Message]) -> int:
        """Return the number of words: here, one word is one token."""
        return sum(len(message.content.split()) for message in messages)

    def _complete_one(self, request: ChatRequest) -> Reply:
        with self._lock:
            position = len(self.requests)
            self.requests.append(request)
        if isinstance(self._script, str | Reply):
            answer = self._script
        elif callable(self._script):
            answer = self._script(request)
        elif position < len(self._script):
            answer = self._script[position]
        else:
            raise UsageError(f"{self.name} has {len(self._script)} scripted replies; request {position + 1} has none.")
        reply = Reply(text=answer) if isinstance(answer, str) else answer
        if reply.finish is Finish.ERROR:
            return reply
        if request.top_logprobs and not reply.first_token and reply.text.split():
            reply = replace(reply, first_token={reply.text.split()[0]: math.log(0.9)})
        return replace(
            reply,
            prompt_tokens=reply.prompt_tokens or self.count_tokens(request.messages),
            completion_tokens=reply.completion_tokens or len(reply.text.split()),
        )


SCRIPTS: Mapping[str, Script] = {
    "prose": "Response A is warmer, while Response B is shorter. "
    "Both have merits, and I would not choose between A and B.",
    "echo": lambda request: request.messages[-1].content,
    "thinking": Reply(
        text="<think>\nThe first one says Result: A, but wait, the second one might suit them better, because",
        finish=Finish.LENGTH,
    ),
    "error": Reply(finish=Finish.ERROR, error="fake:error always fails"),
}


def load(spec: Spec, options: LlmOptions) -> FakeLLM:
    """Return `fake:TEXT`."""
    return fake_from_target(spec.target, window=options.window)


def fake_from_target(target: str, *, window: int | None = None) -> FakeLLM:
    """Build `fake:<target>`: a name of `SCRIPTS`, or any other text, which is then the answer to all."""
    if not target:
        raise UsageError("fake: needs a text, e.g. fake:A, or one of prose, echo, thinking, error.")
    return FakeLLM(SCRIPTS.get(target, target), name=f"fake:{target}", window=window)
