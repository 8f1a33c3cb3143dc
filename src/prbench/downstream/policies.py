"""What `--policy` takes besides the lab's sampler: any chat model, transformers in this process, a class of one's own.

`prbench.registry` lists them, and `prbench.backends.policy` says what each of them promises.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from prbench.backends.llm.client import LLM, LLM_NAMES, ChatRequest, LlmOptions, always, fingerprint_of
from prbench.backends.llm.hf import TransformersLLM
from prbench.backends.llm.spending import keep
from prbench.backends.own_code import asking, identity_of, load_python
from prbench.backends.policy import (
    MAX_TOKENS,
    TEMPERATURE,
    TOP_P,
    FailedSample,
    Policy,
    Prompt,
    Sample,
    answer_template,
    messages_of,
    samples_of,
)
from prbench.errors import UsageError
from prbench.registry import LLMS, POLICIES
from prbench.schema import BROKEN, Json
from prbench.specs import Above, AtLeast, AtMost, Spec, option, parse_spec

if TYPE_CHECKING:
    from prbench.backends.generation import Sampler

AT_ONCE = 8  # requests that a client sends together
BATCH_SIZE = 64  # samples that transformers draws together


def load_policy(
    spec: str,
    *,
    temperature: float = TEMPERATURE,
    max_tokens: int = MAX_TOKENS,
    top_p: float = TOP_P,
    batch_size: int | None = None,
    dtype: str = "auto",
) -> Policy:
    """Build the policy named on the command line: `lab`, `hf:FOLDER_OR_ID`, or any chat model, e.g. `fake:yes`.

    An option in the spec overrides its argument: `hf:FOLDER?temperature=0.7`. `top_p`, `batch_size` and `dtype` are
    for `hf:`, which runs in this process; `None` is a batch size that suits it.
    """
    if not 0 <= temperature < math.inf:
        raise UsageError(f"--temperature {temperature}: give a number that is not negative.")
    if max_tokens < 1:
        raise UsageError(f"--max-new-tokens {max_tokens}: an answer has at least one. Give 1 or more.")
    if not 0 < top_p <= 1:
        raise UsageError(f"--top-p {top_p}: give a share above 0, at most 1.")
    parsed = parse_spec(spec, POLICIES)
    if top_p != TOP_P and "top_p" not in (POLICIES.option_names(parsed.kind) or ()):
        raise UsageError(f"--top-p {top_p}: only hf: policies are sampled so. Leave it out for {spec}.")
    kind = POLICIES.find(parsed.kind)
    given = {
        "temperature": temperature,
        "max_tokens": max_tokens,
        "top_p": top_p,
        "batch_size": batch_size,
        "dtype": dtype,
    }
    policy: Policy = kind.make(parsed, kind.read_options(parsed, given), needs=("name", "identity", "sample"))
    return policy


def _sample_seed(seed: int, prompt: Prompt, number: int) -> int:
    """Return 31 bits for one sample: servers take no more."""
    return int.from_bytes(sha256(f"policy/{seed}/{prompt.id}/{number}".encode()).digest()[:4], "big") >> 1


@dataclass(frozen=True, kw_only=True)
class ChatPolicyOptions(LlmOptions):
    """How a chat model answers."""

    temperature: Annotated[float, AtLeast(0)] = option(TEMPERATURE, "of its samples")
    max_tokens: Annotated[int, AtLeast(1)] = option(MAX_TOKENS, "of an answer")


def load_chat(spec: Spec, options: ChatPolicyOptions) -> "ChatPolicy":
    """Return any chat model as a policy: a server, llama.cpp in this process, or a script."""
    llm = LLMS.find(spec.kind).make(spec, options, needs=LLM_NAMES)
    return ChatPolicy(llm, temperature=options.temperature, max_tokens=options.max_tokens)


class ChatPolicy:
    """Asks a chat model for every sample on its own, each with its own seed."""

    at_once = AT_ONCE

    def __init__(self, llm: LLM, *, temperature: float, max_tokens: int) -> None:
        self.name = llm.name
        self._llm = llm
        self._temperature = temperature
        self._max_tokens = max_tokens

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
        requests = [
            ChatRequest(
                messages=messages_of(prompt),
                max_tokens=self._max_tokens,
                temperature=self._temperature,
                seed=_sample_seed(seed, prompt, number),
                cut_is_enough=always,  # a sample that ran out of tokens is one all the same
            )
            for prompt in prompts
            for number in range(n)
        ]
        samples = [
            FailedSample(error=reply.error or "the request failed")
            if reply.problem in BROKEN
            else Sample(text=reply.text.strip(), finish=reply.finish.value, tokens=reply.completion_tokens or None)
            for reply in self._llm.complete(requests)
        ]
        return [samples[start : start + n] for start in range(0, len(samples), n)]

    def kept_in(self, cache: Path) -> "ChatPolicy":
        """Return the same policy with its samples kept as they come, and counted where that is limited."""
        llm = keep(self._llm, cache, "policy")
        return ChatPolicy(llm, temperature=self._temperature, max_tokens=self._max_tokens)


@dataclass(frozen=True, kw_only=True)
class HfPolicyOptions:
    """How a language model in this process is sampled."""

    temperature: Annotated[float, AtLeast(0)] = option(TEMPERATURE, "of its samples")
    max_tokens: Annotated[int, AtLeast(1)] = option(MAX_TOKENS, "of an answer")
    top_p: Annotated[float, Above(0), AtMost(1)] = option(TOP_P, "sample from this share of likely tokens")
    batch_size: Annotated[int, AtLeast(1)] | None = option(None, "samples in a batch; default: 64")
    dtype: str = option("auto", "auto, float32, bfloat16 or float16")


def load_hf(spec: Spec, options: HfPolicyOptions) -> "HFPolicy":
    """Return `hf:ID_OR_FOLDER`."""
    return HFPolicy(spec.target, options)


class HFPolicy(TransformersLLM):
    """A folder or hub id with a chat template; on a CPU every sample depends on its own prompt and seed alone."""

    def __init__(self, target: str, options: HfPolicyOptions) -> None:
        self.at_once = options.batch_size or BATCH_SIZE
        super().__init__(target, batch_size=self.at_once, dtype=options.dtype)
        self._options = options

    @cached_property
    def _sampler(self) -> "Sampler":
        from prbench.backends.generation import Sampler

        on_gpu = self._model.device.type == "cuda"
        return Sampler(self._model, eos_ids=self._ends, pad_id=self._pad, captured=on_gpu)

    def release(self) -> None:
        """Free the buffers of sampling, before judges and reward models are loaded."""
        self._sampler.release()

    @property
    def identity(self) -> Mapping[str, Json]:
        """The weights, how they are asked and sampled; not the batch size, which on a CPU changes nothing."""
        return {
            "policy": self.name,
            "weights": self._weights,
            "dtype": str(self._model.dtype),
            "template": answer_template().hash,
            "temperature": self._options.temperature,
            "top_p": self._options.top_p,
            "max_tokens": self._options.max_tokens,
        }

    def fits(self, prompt: Prompt) -> bool:
        """Tell whether the prompt leaves room for an answer."""
        if self.window is None:
            return True
        return len(self._prompt(messages_of(prompt))) + self._options.max_tokens <= self.window

    def sample(self, prompts: Sequence[Prompt], *, n: int, seed: int) -> list[list[Sample]]:
        """Return `n` samples for every prompt."""
        from prbench.backends.generation import Sampling

        how = self._options
        fitting = [prompt for prompt in prompts if self.fits(prompt)]
        drawn = self._sampler.generate(
            [ids for prompt in fitting for ids in [self._prompt(messages_of(prompt))] * n],
            Sampling(max_new_tokens=how.max_tokens, temperature=how.temperature, top_p=how.top_p),
            seeds=[_sample_seed(seed, prompt, number) for prompt in fitting for number in range(n)],
            batch_size=self.at_once,
        )
        texts = (self._tokenizer.decode(each.ids, skip_special_tokens=True).strip() for each in drawn)
        samples = iter(
            [
                Sample(text=text, finish=each.finish, tokens=len(each.ids))
                for text, each in zip(texts, drawn, strict=True)
            ]
        )
        too_long = f"the prompt and {how.max_tokens} tokens of an answer exceed the window of {self.window}"
        return [
            [next(samples) if prompt in fitting else FailedSample(error=too_long) for _ in range(n)]
            for prompt in prompts
        ]


def load_own(spec: Spec, options: None) -> Policy:
    """Return `python:package.module:Factory`: what the factory makes, if it samples."""
    made = load_python(spec)
    with asking(spec, f"the {type(made).__name__} that it made"):
        if not callable(getattr(made, "sample", None)):
            raise UsageError(
                f"{spec.text}: a {type(made).__name__} has no sample(prompts, n=, seed=), so it is no policy."
            )
        return OwnPolicy(spec, made)


class OwnPolicy:
    """An object that samples, with the name and identity that it lacks; it may give plain texts.

    `fits(prompt)`, `release()` and `at_once` are used where it has them.
    """

    def __init__(self, spec: Spec, inner: Any) -> None:
        self.name = spec.text
        self.identity = {"policy": f"{spec.kind}:{spec.target}", **identity_of(spec, getattr(inner, "identity", {}))}
        self._spec, self._inner = spec, inner
        # Set on the object, so that only a policy that has them promises them: see `Windowed` and `HasBatchSize`.
        if callable(getattr(inner, "fits", None)):
            self.fits = self._fits
        if callable(getattr(inner, "release", None)):
            self.release = self._release
        if (at_once := getattr(inner, "at_once", None)) is not None:
            if type(at_once) is not int or at_once < 1:
                raise UsageError(f"{spec.text}: at_once is {at_once!r}. Make it a whole number above 0.")
            self.at_once = at_once

    def sample(self, prompts: Sequence[Prompt], *, n: int, seed: int) -> list[list[Sample]]:
        """Return `n` samples for every prompt."""
        with asking(self._spec, "sample"):
            drawn = self._inner.sample(prompts, n=n, seed=seed)
            return samples_of(self.name, drawn, prompts=len(prompts), n=n)

    def _fits(self, prompt: Prompt) -> bool:
        with asking(self._spec, "fits"):
            return bool(self._inner.fits(prompt))

    def _release(self) -> None:
        with asking(self._spec, "release"):
            self._inner.release()
