"""A policy behind any chat client: a server, llama.cpp in this process, or a script."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Annotated

from prbench.backends.llm.client import LLM, LLM_NAMES, ChatRequest, Reply, fingerprint_of
from prbench.backends.llm.options import LlmOptions
from prbench.backends.policy import MAX_TOKENS, TEMPERATURE, FailedSample, Prompt, Sample
from prbench.backends.policy_prompt import answer_template, messages_of
from prbench.registry import LLMS
from prbench.schema import BROKEN, Json
from prbench.specs import AtLeast, Spec, option

AT_ONCE = 8  # requests that a client sends together


@dataclass(frozen=True, kw_only=True)
class ChatPolicyOptions(LlmOptions):
    """How a chat model answers."""

    temperature: Annotated[float, AtLeast(0)] = option(TEMPERATURE, "of its samples")
    max_tokens: Annotated[int, AtLeast(1)] = option(MAX_TOKENS, "of an answer")


def load(spec: Spec, options: ChatPolicyOptions) -> "ChatPolicy":
    """Return any chat model as a policy."""
    llm = LLMS.find(spec.kind).make(spec, options, needs=LLM_NAMES)
    return ChatPolicy(llm, temperature=options.temperature, max_tokens=options.max_tokens)


class ChatPolicy:
    """Asks a chat model for every sample on its own, each with its own seed."""

    at_once = AT_ONCE

    def __init__(self, llm: LLM, *, temperature: float, max_tokens: int) -> None:
        self._llm = llm
        self._temperature = temperature
        self._max_tokens = max_tokens

    @property
    def name(self) -> str:
        """The spec that made it."""
        return self._llm.name

    @property
    def identity(self) -> Mapping[str, Json]:
        """The model, how it is asked, and how it samples."""
        return {
            "policy": self.name,
            "fingerprint": fingerprint_of(self._llm),
            "template": answer_template().hash,
            "temperature": self._temperature,
            "max_tokens": self._max_tokens,
        }

    def fits(self, prompt: Prompt) -> bool:
        """Tell whether the prompt leaves room for an answer."""
        window = self._llm.window
        return window is None or self._llm.count_tokens(messages_of(prompt)) + self._max_tokens <= window

    def sample(self, prompts: Sequence[Prompt], *, n: int, seed: int) -> list[list[Sample]]:
        """Return `n` samples for every prompt; a request that failed for good is a `FailedSample`."""
        requests = [self._request(prompt, number, seed) for prompt in prompts for number in range(n)]
        samples = [_as_sample(reply) for reply in self._llm.complete(requests)]
        return [samples[start : start + n] for start in range(0, len(samples), n)]

    def _request(self, prompt: Prompt, number: int, seed: int) -> ChatRequest:
        return ChatRequest(
            messages=messages_of(prompt),
            max_tokens=self._max_tokens,
            temperature=self._temperature,
            seed=sample_seed(seed, prompt, number),
        )


def sample_seed(seed: int, prompt: Prompt, number: int) -> int:
    """Return 31 bits for one sample: servers take no more."""
    return int.from_bytes(sha256(f"policy/{seed}/{prompt.id}/{number}".encode()).digest()[:4], "big") >> 1


def _as_sample(reply: Reply) -> Sample:
    if reply.problem in BROKEN:
        return FailedSample(error=reply.error or "the request failed")
    return Sample(text=reply.text.strip(), finish=reply.finish.value, tokens=reply.completion_tokens or None)
