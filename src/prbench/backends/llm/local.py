"""A GGUF model in this process, run by llama.cpp through xllamacpp: no server to start, no key, no network."""

import mmap
import os
import secrets
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prbench.backends.llm.client import (
    Arrived,
    ChatRequest,
    Finish,
    LlmOptions,
    Message,
    Reply,
    in_order,
    no_progress,
    system_in_first_user_turn,
    without_control_tokens,
)
from prbench.backends.llm.servers import ServerInfo, as_dicts, read_body
from prbench.backends.packaged_weights import smollm2_gguf
from prbench.errors import UsageError
from prbench.specs import Spec

if TYPE_CHECKING:
    import xllamacpp

DEFAULT_WINDOW = 8192  # memory grows with it; a model trained on less is capped there by llama.cpp
METADATA_BYTES = 64 * 1024 * 1024  # a GGUF's metadata comes first; the largest vocabularies stay far below this


def load(spec: Spec, options: LlmOptions) -> "LlamaCppLLM":
    """Return `local:smollm2`, or `local:FILE.gguf`."""
    return LlamaCppLLM(spec.target, n_ctx=options.window, seed=options.seed)


def check_gguf(path: Path) -> None:
    """Refuse what is no GGUF, and a GGUF without a chat template: llama.cpp would silently use another model's."""
    with path.open("rb") as file:
        if file.read(4) != b"GGUF":
            raise UsageError(f"{path}: not a GGUF file. Give a model in llama.cpp's format.")
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            if content.find(b"tokenizer.chat_template", 0, METADATA_BYTES) < 0:
                raise UsageError(f"{path}: the model has no chat template. Use an instruction-tuned GGUF.")


class LlamaCppLLM:
    """A GGUF model whose temperature-0 replies depend on the request alone.

    That takes one slot and no prompt cache: with either, llama.cpp adds the same numbers in another order, and the
    reply to one prompt came to depend on the requests around it (`docs/reference/llm.md` has the measurements).
    """

    def __init__(
        self,
        target: str,
        *,
        n_ctx: int | None = None,
        threads: int | None = None,
        seed: int | None = None,
        verbose: bool = False,
    ) -> None:
        """`n_ctx` is the window, `threads` how many compute: as many as there are cores, unless a number is given."""
        path = smollm2_gguf() if target == "smollm2" else Path(target).expanduser()
        if not path.is_file():
            raise UsageError(f"local:{target}: no such file. Give the path of a .gguf file, or local:smollm2.")
        check_gguf(path)
        status = path.stat()  # before it is loaded: a file that takes its place meanwhile is another one
        self.name = f"local:{target}"
        self._seed = seed
        key = secrets.token_hex(16)  # the library always listens on loopback; nobody else is to use it
        window = DEFAULT_WINDOW if n_ctx is None else n_ctx
        # The cores that this process may use can be fewer than the machine has.
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        self._server = _start(path, key, window, threads or cores, verbose)
        self._facts = ServerInfo(root=self._server.listening_address, key=key)
        props = self._facts.ask("/props") or {}
        self.window = int(props["default_generation_settings"]["n_ctx"])  # of one slot: prompt and reply together
        file = f"{status.st_size}:{status.st_mtime_ns}"
        self.fingerprint = f"seed={seed} file={file} n_ctx={self.window} n_parallel=1"
        self._has_system_role = bool(props["chat_template_caps"]["supports_system_role"])
        # llama.cpp says that it is ready before its loop runs, and a server that is dropped in between waits for ever.
        # A reply comes out of the loop.
        self._complete_one(ChatRequest(messages=(Message("user", "."),), max_tokens=1, temperature=0.0))
        if n_ctx is not None and n_ctx > self.window:
            raise UsageError(f"{self.name}: the model's window is {self.window} tokens. Ask for no more than that.")

    def complete(self, requests: Sequence[ChatRequest]) -> list[Reply]:
        """Return one reply per request, in the same order; a prompt beyond the window is an error, never cut."""
        return in_order(self.complete_each(requests))

    def complete_each(
        self, requests: Iterable[ChatRequest], arrived: Arrived = no_progress
    ) -> Iterator[tuple[int, Reply]]:
        """Yield (index, reply) as they are ready, one after the other."""
        for index, request in enumerate(requests):
            reply = self._complete_one(request)
            arrived(index, reply)
            yield index, reply

    def count_tokens(self, messages: Sequence[Message]) -> int:
        """Return the prompt's exact length by the model's own template and tokenizer."""
        count = self._facts.llama_cpp_tokens(self._turns(messages))
        if count is None:
            raise RuntimeError(f"{self.name} could not count the tokens of a prompt")
        return count

    def _turns(self, messages: Sequence[Message]) -> tuple[Message, ...]:
        turns = without_control_tokens(messages)
        return turns if self._has_system_role else system_in_first_user_turn(turns)

    def _complete_one(self, request: ChatRequest) -> Reply:
        body: dict[str, Any] = {
            "messages": as_dicts(self._turns(request.messages)),
            "max_tokens": request.max_tokens,
            "temperature": request.temperature,
            # The stated temperature, and no further rule that reshapes the distribution.
            "top_k": 0,
            "top_p": 1.0,
            "min_p": 0.0,
            "cache_prompt": False,
        }
        seed = self._seed if request.seed is None else request.seed
        if seed is not None:
            body["seed"] = seed
        if request.top_logprobs:
            body |= {"logprobs": True, "top_logprobs": request.top_logprobs}
        if request.json_schema:
            schema = {"name": "reply", "schema": dict(request.json_schema)}
            body["response_format"] = {"type": "json_schema", "json_schema": schema}
        try:
            answer = self._server.handle_chat_completions(body)
        except (RuntimeError, ValueError) as error:
            return Reply(finish=Finish.ERROR, error=f"llama.cpp: {error}")
        if "error" in answer:
            return Reply(finish=Finish.ERROR, error=f"llama.cpp: {answer['error'].get('message', answer['error'])}")
        return read_body(answer, wants_logprobs=request.top_logprobs > 0)


def _start(path: Path, key: str, window: int, threads: int, verbose: bool) -> "xllamacpp.Server":
    """Load the model, silently unless `verbose`."""
    try:
        import xllamacpp
    except ImportError as error:
        raise UsageError("local: models need xllamacpp. Install it with: pip install 'prbench[llm]'") from error
    params = xllamacpp.CommonParams()
    params.model.path = str(path)
    params.n_ctx = window
    params.n_parallel = 1
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
    params.fit_params = False  # it would shrink the window to what memory allows, without a word
    params.ctx_shift = False  # it would drop the middle of what no longer fits
    params.cache_prompt = False
    params.cache_ram_mib = 0
    params.cache_idle_slots = False
    params.warmup = False
    params.hostnames, params.port, params.api_keys = ["127.0.0.1"], 0, [key]
    params.ui = params.endpoint_slots = False
    params.verbosity = 3 if verbose else 0
    try:
        return xllamacpp.Server(params)
    except RuntimeError as error:
        raise UsageError(
            f"{path}: llama.cpp cannot load this model. Check the file; LlamaCppLLM(..., verbose=True) prints why."
        ) from error
