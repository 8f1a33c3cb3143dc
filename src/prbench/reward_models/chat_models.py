"""Chat models inside reward models: their options, and what goes into a run's id."""

from dataclasses import dataclass
from typing import Annotated

from prbench.backends.llm import LLM, CachedLLM, load_llm
from prbench.backends.llm.client import fingerprint_of
from prbench.backends.llm.options import LlmOptions
from prbench.reward_models.settings import ModelSettings
from prbench.schema import Json
from prbench.specs import AtLeast, option


@dataclass(frozen=True, kw_only=True)
class ChatOptions(LlmOptions):
    """Options of a reward model that asks a chat model."""

    max_tokens: Annotated[int, AtLeast(1)] = option(512, "of a reply")
    template: str | None = option(None, "prompt template in place of the kind's own")


def open_llm(target: str, options: LlmOptions, settings: ModelSettings) -> tuple[LLM, dict[str, Json]]:
    """Return the chat model of that spec, and all of it that changes replies."""
    llm = load_llm(
        target,
        window=options.window,
        concurrency=options.concurrency,
        timeout_seconds=options.timeout,
        seed=settings.seed,
        retries=options.retries,
        answers_as=options.answers_as,
    )
    return llm, {
        "llm": llm.name,
        "window": options.window,  # only a given one: what a server says of itself may come late or not at all
        "seed": settings.seed,
        "fingerprint": fingerprint_of(llm),
    }


def cached(llm: LLM, settings: ModelSettings) -> LLM:
    """Return the chat model with its replies kept, where the settings name a place for them."""
    return CachedLLM(llm, settings.cache) if settings.cache else llm
