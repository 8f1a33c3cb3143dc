"""What a policy promises (prompts in, samples out, in order, the same for the same seed), and how it is asked."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol, runtime_checkable

from prbench.backends.llm.asking import filled
from prbench.backends.llm.client import Message
from prbench.errors import UsageError
from prbench.prompts import Template, load_template
from prbench.schema import Json

FAILED = "error"  # as `finish`
# How a policy samples, unless it is asked to do otherwise.
TEMPERATURE = 1.0
MAX_TOKENS = 256
TOP_P = 1.0  # of all tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """What a policy is asked: a question, and the text about the user that it may see."""

    id: str  # of the question and user; a sample's randomness depends on it, not on what else is asked
    question: str
    context: str  # as `prbench.context` renders it; "" where the policy knows nothing of the user


@cache
def answer_template() -> Template:
    """Return the template of sampling, fine-tuning, PPO and exports; its hash is part of their identity."""
    return load_template("answer").require("question", "context", answer="text")


def messages_of(prompt: Prompt) -> tuple[Message, ...]:
    """Return the chat messages of a prompt."""
    return filled(answer_template(), question=prompt.question, context=prompt.context)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One answer."""

    text: str
    finish: str = "stop"  # stop, or length where the answer was truncated
    tokens: int | None = None  # of the answer, where the policy counts them


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedSample(Sample):
    """A sample that never came: `error` says why. A model that had nothing to say gives an empty `Sample` instead."""

    text: str = ""
    finish: str = FAILED
    error: str


@runtime_checkable
class Releasable(Protocol):
    """A policy that keeps memory between calls, and gives it back."""

    def release(self) -> None:
        """Free what only sampling needs; the next call takes it again."""
        ...


@runtime_checkable
class Policy(Protocol):
    """Writes answers."""

    @property
    def name(self) -> str:
        """The spec that made it."""
        ...

    @property
    def identity(self) -> Mapping[str, Json]:
        """All that changes samples, the seed aside; goes into the id of a pool."""
        ...

    def sample(self, prompts: Sequence[Prompt], *, n: int, seed: int) -> list[list[Sample]]:
        """Return `n` samples for every prompt. A prompt's samples depend on its own id, `n` and the seed alone."""
        ...


def samples_of(name: str, drawn: Any, *, prompts: int, n: int | None) -> list[list[Sample]]:
    """Return what a policy drew, plain texts as samples; too few, too many or anything else is refused.

    It is asked before anything is kept: a pool is read for ever after. Of answers that were sampled before there may
    be any number (`n` is `None`).
    """

    def listed(found: Any) -> list[Any]:
        if isinstance(found, Sequence) and not isinstance(found, str | bytes):
            return list(found)
        raise UsageError(f"{name}: sample returned a {type(found).__name__} where a list of lists of samples belongs.")

    rows = [listed(some) for some in listed(drawn)]
    if len(rows) != prompts:
        raise UsageError(
            f"{name}: sample returned {len(rows)} lists for {prompts} prompts. Return one each, in order."
        )
    for some in rows:
        if n is not None and len(some) != n:
            raise UsageError(f"{name}: sample returned {len(some)} samples for a prompt, and {n} were asked for.")
    return [[_sample_of(name, each) for each in some] for some in rows]


def _sample_of(name: str, each: Any) -> Sample:
    sample = Sample(text=each) if isinstance(each, str) else each
    if not isinstance(sample, Sample):
        raise UsageError(f"{name}: sample returned a {type(each).__name__} where a text or a Sample belongs.")
    texts = {"text": sample.text, "finish": sample.finish, "error": getattr(sample, "error", "")}
    for field, value in texts.items():
        if not isinstance(value, str):
            raise UsageError(f"{name}: the {field} of a sample is a {type(value).__name__}. Make it a text.")
        if not value.isascii() and any("\ud800" <= letter <= "\udfff" for letter in value):  # no file can hold it
            raise UsageError(f"{name}: the {field} of a sample holds half of a surrogate pair. Remove it.")
    if sample.tokens is not None and type(sample.tokens) is not int:
        raise UsageError(f"{name}: the tokens of a sample are a {type(sample.tokens).__name__}. Give an int, or None.")
    return sample
