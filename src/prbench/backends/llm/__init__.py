"""Chat models behind one protocol; `prbench.registry` lists them by name."""

from prbench.backends.llm.cache import CachedLLM, ReplyFile
from prbench.backends.llm.client import (
    LLM,
    LLM_NAMES,
    ChatRequest,
    Finish,
    LlmOptions,
    Message,
    Reply,
    Streaming,
    complete_each,
)
from prbench.backends.llm.fake import FakeLLM
from prbench.backends.llm.spending import Forecast, Ledger, Limits, MeteredLLM, Price, Spent, estimate
from prbench.errors import UsageError
from prbench.registry import LLMS
from prbench.specs import parse_spec

__all__ = [
    "LLM",
    "CachedLLM",
    "ChatRequest",
    "FakeLLM",
    "Finish",
    "Forecast",
    "Ledger",
    "Limits",
    "LlmOptions",
    "Message",
    "MeteredLLM",
    "Price",
    "Reply",
    "ReplyFile",
    "Spent",
    "Streaming",
    "complete_each",
    "estimate",
    "load_llm",
]


def load_llm(
    spec: str,
    *,
    window: int | None = None,
    concurrency: int | None = None,
    timeout_seconds: float = 120.0,
    seed: int | None = None,
    retries: int = 4,
    answers_as: str = "",
    batch: float | None = None,
) -> LLM:
    """Build the chat model named by a spec, e.g. `openai:<model>@<base url>` or `local:smollm2?window=4096`.

    `concurrency` is requests at once for a server (8 unless given) and the most rows in a batch for `hf` (else
    what suits the device); `local` asks one after the other, so that replies do not depend on each other.
    `timeout_seconds` and `retries` (further tries of a request that failed) are for servers. `seed` serves requests
    without one. `answers_as` is the id in a server's replies, where it is an alias of the model: others are refused.
    `batch` sends requests of a server to its `/v1/batches`, and is the seconds between two looks.
    An option in the spec (`?key=value`) overrides its argument.
    """
    if (concurrency is not None and concurrency < 1) or timeout_seconds <= 0 or (window is not None and window < 1):
        raise UsageError(f"{spec}: concurrency, time-out and window must be positive. Correct the options.")
    if retries < 0:
        raise UsageError(f"{spec}: {retries} retries cannot be. Give 0 or more.")
    parsed = parse_spec(spec, LLMS)
    kind = LLMS.find(parsed.kind)
    given = {
        "window": window,
        "concurrency": concurrency,
        "timeout": timeout_seconds,
        "seed": seed,
        "retries": retries,
        "answers_as": answers_as,
        "batch": batch,
    }
    options = kind.read_options(parsed, given)
    if getattr(options, "answers_as", "") and parsed.kind != "openai":
        raise UsageError(f"{spec}: answers_as is for servers (openai:), which say who answered. Leave it out.")
    if getattr(options, "batch", None) is not None and parsed.kind != "openai":
        raise UsageError(f"{spec}: batch is for servers (openai:) that have /v1/batches. Leave it out.")
    llm: LLM = kind.make(parsed, options, needs=LLM_NAMES)
    return llm
