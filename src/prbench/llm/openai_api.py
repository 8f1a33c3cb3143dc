"""Any OpenAI-compatible server: vLLM, SGLang, llama.cpp, Ollama, or a hosted one."""

import json
import logging
import math
import os
import re
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import numpy as np

from prbench.errors import UsageError
from prbench.llm.client import ChatRequest, Finish, Message, Reply
from prbench.llm.server_facts import Server, as_dicts, is_loopback, upper_estimate
from prbench.llm.turns import without_control_tokens
from prbench.schema import NOTHING, Json

if TYPE_CHECKING:
    import openai

log = logging.getLogger(__name__)

KEY_VARIABLES = ("PRBENCH_API_KEY", "OPENAI_API_KEY")
NO_KEY = "none-needed"  # the client library insists on some text
LONGEST_ERROR = 400  # characters: a proxy's HTML page must not fill the item file
# Newer reasoning APIs refuse these by name; what to send in their place.
REPLACEMENTS: Mapping[str, str] = {"max_tokens": "max_completion_tokens", "temperature": ""}


def parse_target(target: str) -> tuple[str, str]:
    """Split `<model>@<base url>`; the model's own name may contain an `@`."""
    found = re.fullmatch(r"(?P<model>.+?)@(?P<url>https?://.+)", target)
    if not found:
        raise UsageError(
            f"openai:{target}: no server address. Write openai:<model>@<base url>, "
            "e.g. openai:my-model@http://127.0.0.1:8000/v1."
        )
    url = urlsplit(found["url"])
    if url.username or url.password or url.query:
        raise UsageError(
            f"openai:{found['model']}@{url.scheme}://{url.hostname}: the address carries a user name, a password or a "
            "query, which would be written into results. Put the key into PRBENCH_API_KEY."
        )
    return found["model"], found["url"].rstrip("/")


def find_key(base_url: str) -> str:
    """Return the key from the environment; a server on this machine may do without one."""
    for variable in KEY_VARIABLES:
        if key := os.environ.get(variable, "").strip():
            return key
    if is_loopback(base_url):
        return NO_KEY
    raise UsageError(f"No key for {base_url}. Set PRBENCH_API_KEY or OPENAI_API_KEY (any text if it needs none).")


class OpenAILLM:
    """A model behind an OpenAI-compatible server, asked by several threads at once."""

    def __init__(
        self,
        model: str,
        base_url: str,
        *,
        window: int | None = None,
        concurrency: int = 8,
        timeout_seconds: float = 120.0,
        max_retries: int = 4,
        seed: int | None = None,
    ) -> None:
        """`seed` is sent with requests that carry none of their own."""
        self._model = model
        self._base_url = base_url.rstrip("/")
        self._key = find_key(self._base_url)
        self._concurrency = concurrency
        self._timeout_seconds = timeout_seconds
        self._seed = seed
        self._client = _make_client(self._base_url, self._key, timeout_seconds, max_retries)
        self._refused: set[str] = set()
        self._lock = threading.Lock()
        self._server = Server(root=self._base_url.removesuffix("/v1"), key=self._key)
        self._tokenizer: str | None = None  # not yet probed; then "vllm", "llama.cpp" or "estimate"
        self._window = window
        self._window_known = window is not None

    @property
    def name(self) -> str:
        """The spec that made it."""
        return f"openai:{self._model}@{self._base_url}"

    @property
    def fingerprint(self) -> str:
        """What, besides name and request, decides a reply."""
        return f"seed={self._seed}"

    @property
    def window(self) -> int | None:
        """The tokens that fit into one request, as given, else as llama.cpp or vLLM say it; asked once."""
        with self._lock:
            if not self._window_known:
                self._window, self._window_known = self._server.window(self._model), True
            return self._window

    def complete(self, requests: Sequence[ChatRequest]) -> list[Reply]:
        """Return one reply per request, in the same order; a failed request is a reply with its error."""
        if not requests:
            return []
        with ThreadPoolExecutor(min(self._concurrency, len(requests))) as pool:
            return list(pool.map(self._complete_one, requests))

    def count_tokens(self, messages: Sequence[Message]) -> int:
        """Return the exact length where the server has `/tokenize` (vLLM, llama.cpp), else an upper bound.

        The bound is the number of UTF-8 bytes and a few more per turn, about four times the truth for English.
        """
        turns = without_control_tokens(messages)
        with self._lock:
            if self._tokenizer is None:
                self._tokenizer = self._probe_tokenizer()
        count: int | None = None
        if self._tokenizer == "vllm":
            count = self._server.vllm_tokens(self._model, turns)
        elif self._tokenizer == "llama.cpp":
            count = self._server.llama_cpp_tokens(turns)
        return upper_estimate(turns) if count is None else count

    def _probe_tokenizer(self) -> str:
        probe = (Message("user", "Hello"),)
        if self._server.vllm_tokens(self._model, probe) is not None:
            return "vllm"
        return "llama.cpp" if self._server.llama_cpp_tokens(probe) is not None else "estimate"

    def _complete_one(self, request: ChatRequest) -> Reply:
        import openai

        while True:
            arguments = self._arguments(request)
            try:
                answer = self._client.chat.completions.with_raw_response.create(**arguments)
                reply = read_body(json.loads(answer.http_response.text), wants_logprobs=request.top_logprobs > 0)
                return self._failure(reply.error) if reply.error else reply
            except openai.BadRequestError as error:
                refused = refused_parameter(error.body, error.message, arguments)
                if not refused:
                    return self._failure(f"HTTP 400: {error.message}")
                self._remember_refused(refused)
            except openai.APIStatusError as error:
                return self._failure(f"HTTP {error.status_code}: {error.message}")
            except openai.APITimeoutError:
                return self._failure(f"no answer within {self._timeout_seconds:g} s")
            except openai.APIConnectionError as error:
                return self._failure(f"connection failed: {error.__cause__ or error}")
            except ValueError as error:  # JSON that is none, or text that UTF-8 cannot hold
                return self._failure(f"unusable answer or request: {error}")

    def _arguments(self, request: ChatRequest) -> dict[str, Any]:
        arguments: dict[str, Any] = {
            "model": self._model,
            "messages": as_dicts(without_control_tokens(request.messages)),
        }
        for parameter, value in (("max_tokens", request.max_tokens), ("temperature", request.temperature)):
            sent_as = REPLACEMENTS[parameter] if parameter in self._refused else parameter
            if sent_as:
                arguments[sent_as] = value
        seed = self._seed if request.seed is None else request.seed
        if seed is not None:
            arguments["seed"] = seed
        if request.top_logprobs:
            arguments |= {"logprobs": True, "top_logprobs": request.top_logprobs}
        if request.json_schema:
            schema = {"name": "reply", "strict": True, "schema": dict(request.json_schema)}
            arguments["response_format"] = {"type": "json_schema", "json_schema": schema}
        return arguments

    def _remember_refused(self, parameter: str) -> None:
        with self._lock:
            is_news = parameter not in self._refused
            self._refused.add(parameter)
        if is_news:
            instead = REPLACEMENTS[parameter]
            what = f"{instead} is sent instead" if instead else "the model's own default applies, replies may vary"
            log.warning("%s refuses %s: %s, from here on.", self.name, parameter, what)

    def _failure(self, text: str) -> Reply:
        line = " ".join(text.split())
        if len(self._key) > 3:  # a placeholder such as "x" is no secret, and would riddle the text
            line = line.replace(self._key, "[key]")
        return Reply(finish=Finish.ERROR, error=line[:LONGEST_ERROR])


def _make_client(base_url: str, key: str, timeout_seconds: float, max_retries: int) -> "openai.OpenAI":
    """Make the official client, which retries 408, 409, 429, 5xx, time-outs and lost connections.

    It waits as `Retry-After` says, else 0.5 s doubling to 8 s, less up to a quarter at random.
    """
    try:
        import openai
    except ImportError as error:
        raise UsageError(
            "openai: models need the OpenAI client. Install it with: pip install 'prbench[llm]'"
        ) from error
    # A redirect could carry prompts to a host that nobody named; a proxy cannot reach this machine's loopback.
    http_client = openai.DefaultHttpxClient(follow_redirects=False, trust_env=not is_loopback(base_url))
    return openai.OpenAI(
        api_key=key, base_url=base_url, timeout=timeout_seconds, max_retries=max_retries, http_client=http_client
    )


def refused_parameter(body: object, message: str, sent: Mapping[str, object]) -> str:
    """Return the parameter that the server does not support, or "" when the complaint is about something else.

    "max_tokens is too large" names the parameter as well, but another name would not help.
    """
    param = body.get("param") if isinstance(body, dict) else None
    text = message.lower()
    if "support" not in text and "unrecognized" not in text:
        return ""
    for parameter in REPLACEMENTS:
        if parameter in sent and (param == parameter or (param is None and parameter in text)):
            return parameter
    return ""


def read_body(body: Json, *, wants_logprobs: bool) -> Reply:
    """Turn the server's JSON into a reply; `reasoning_content` is thinking, not answer, and is left out."""
    if isinstance(body, dict) and body.get("error"):  # some proxies report failures with status 200
        return Reply(finish=Finish.ERROR, error=str(body["error"]))
    try:
        choice = body["choices"][0]
        message = choice["message"]
        usage = body.get("usage") or {}
        if wants_logprobs and not choice.get("logprobs"):
            return Reply(finish=Finish.ERROR, error="the server returned no log-probabilities; use mode=parse")
        return Reply(
            # Half a surrogate pair cannot be written anywhere; the mark shows that something was there.
            text=(message.get("content") or message.get("refusal") or "").encode("utf-8", "replace").decode(),
            finish=Finish.LENGTH if choice.get("finish_reason") == "length" else Finish.STOP,
            prompt_tokens=usage.get("prompt_tokens") or 0,
            completion_tokens=usage.get("completion_tokens") or 0,
            first_token=first_token(choice["logprobs"]) if wants_logprobs else NOTHING,
        )
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        return Reply(finish=Finish.ERROR, error=f"the server's JSON is no chat completion ({error!r})")


def first_token(logprobs: Json) -> dict[str, float]:
    """Return the first token's candidates; two candidates with the same text count together."""
    content = logprobs.get("content") or []
    candidates: dict[str, float] = {}
    for candidate in content[0]["top_logprobs"] if content else []:
        text, value = candidate["token"], candidate["logprob"]
        if value is None:  # minus infinity, which JSON cannot say
            continue
        candidates[text] = float(np.logaddexp(candidates.get(text, -math.inf), value))
    return candidates
