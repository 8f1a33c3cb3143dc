"""What a policy promises: prompts in, samples out, in order, the same for the same seed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from prbench.schema import Json

FAILED = "error"  # as `finish`
# How a policy samples, unless it is asked to do otherwise.
TEMPERATURE = 1.0
MAX_TOKENS = 256
TOP_P = 1.0  # of all tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """What a policy is asked: a question, and the text about the user that it may see."""

    id: str  # of the question and user; a sample's randomness hangs on it, not on what else is asked
    question: str
    context: str  # as `prbench.context` renders it; "" where the policy is told nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One answer."""

    text: str
    finish: str = "stop"  # stop, or length where the answer was cut off
    tokens: int | None = None  # of the answer, where the policy counts them


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedSample(Sample):
    """A sample that never came: `error` says why. A model that had nothing to say gives an empty `Sample` instead."""

    text: str = ""
    finish: str = FAILED
    error: str


@runtime_checkable
class Holding(Protocol):
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
