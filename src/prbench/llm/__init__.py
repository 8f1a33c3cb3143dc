"""Chat models behind one protocol, and the one place where their names are looked up."""

from difflib import get_close_matches

from prbench.errors import UsageError
from prbench.llm.cache import CachedLLM
from prbench.llm.client import LLM, ChatRequest, Finish, Message, Reply, Streaming, complete_each
from prbench.llm.fake import FakeLLM, fake_from_target
from prbench.llm.reply_file import ReplyFile
from prbench.llm.spending import Forecast, Ledger, Limits, MeteredLLM, Price, Spent, estimate

__all__ = [
    "LLM",
    "CachedLLM",
    "ChatRequest",
    "FakeLLM",
    "Finish",
    "Forecast",
    "Ledger",
    "Limits",
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

KINDS = ("openai", "local", "hf", "vllm", "fake")
SERVER_REQUESTS = 8  # at once


def load_llm(
    spec: str,
    *,
    window: int | None = None,
    concurrency: int | None = None,
    timeout_seconds: float = 120.0,
    seed: int | None = None,
    retries: int = 4,
    answers_as: str = "",
) -> LLM:
    """Build the chat model named by a spec, e.g. `openai:<model>@<base url>` or `local:smollm2`.

    `concurrency` is requests at once for a server (8 unless given) and the most rows in a batch for `hf` (else
    what suits the device); `local` asks one after the other, so that replies do not depend on each other.
    `timeout_seconds` and `retries` (further tries of a request that failed) are for servers. `seed` serves requests
    without one. `answers_as` is the id in a server's replies, where it is an alias of the model: others are refused.
    The spec may say it itself: `openai:<model>@<base url>?answers_as=<id>`.
    """
    if (concurrency is not None and concurrency < 1) or timeout_seconds <= 0 or (window is not None and window < 1):
        raise UsageError(f"{spec}: concurrency, time-out and window must be positive. Correct the options.")
    if retries < 0:
        raise UsageError(f"{spec}: {retries} retries cannot be. Give 0 or more.")
    kind, _, target = spec.partition(":")
    if answers_as and kind != "openai":
        raise UsageError(f"{spec}: answers_as is for servers (openai:), which say who answered. Leave it out.")
    if not target and kind in KINDS:
        raise UsageError(f"{spec!r} names no model. Write {kind}:<model>, e.g. {_example(kind)}.")
    match kind:
        case "openai":
            from prbench.llm.openai_api import OpenAILLM, parse_target, split_alias

            target, alias = split_alias(target)
            model, url = parse_target(target)
            return OpenAILLM(
                model,
                url,
                window=window,
                concurrency=concurrency or SERVER_REQUESTS,
                timeout_seconds=timeout_seconds,
                max_retries=retries,
                seed=seed,
                answers_as=answers_as or alias,
            )
        case "local":
            from prbench.llm.local import LlamaCppLLM

            return LlamaCppLLM(target, n_ctx=window, seed=seed)
        case "hf":
            from prbench.llm.hf import TransformersLLM

            return TransformersLLM(target, window=window, batch_size=concurrency, seed=seed)
        case "vllm":
            raise UsageError(
                f"{spec}: vLLM runs as a server. Start `vllm serve {target}` and use "
                f"openai:{target}@http://127.0.0.1:8000/v1."
            )
        case "fake":
            return fake_from_target(target, window=window)
        case _:
            near = get_close_matches(kind, KINDS, n=1)
            hint = f" Did you mean {near[0]}:?" if near else ""
            raise UsageError(
                f"Unknown kind {kind!r} of chat model in {spec!r}.{hint} Known kinds: {', '.join(KINDS)}."
            )


def _example(kind: str) -> str:
    examples = {
        "openai": "openai:my-model@http://127.0.0.1:8000/v1",
        "local": "local:smollm2",
        "hf": "hf:HuggingFaceTB/SmolLM2-135M-Instruct",
        "vllm": "vllm:org/model",
        "fake": "fake:A",
    }
    return examples[kind]
