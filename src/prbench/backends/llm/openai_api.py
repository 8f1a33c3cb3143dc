"""Any OpenAI-compatible server: vLLM, SGLang, llama.cpp, Ollama, or a hosted one."""

import json
import logging
import os
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, NoReturn
from urllib.parse import quote, urlsplit

from prbench.backends.http_limits import ReplyTooLargeError, bounded
from prbench.backends.llm.client import (
    Arrived,
    ChatRequest,
    Finish,
    LlmOptions,
    Message,
    Reply,
    in_order,
    no_progress,
    without_control_tokens,
)
from prbench.backends.llm.servers import (
    Pace,
    ServerInfo,
    as_dicts,
    is_completion,
    is_loopback,
    is_same_model,
    is_worth_another_try,
    read_body,
    upper_estimate,
    wait_seconds,
)
from prbench.backends.llm.throttle import Outcome, Throttle
from prbench.errors import UsageError
from prbench.schema import NOTHING, Json
from prbench.specs import Spec

log = logging.getLogger(__name__)

SERVER_REQUESTS = 8  # at once at most, unless another number is given
KEY_VARIABLES = ("PRBENCH_API_KEY", "OPENAI_API_KEY")
NO_KEY = "none-needed"  # the client library insists on some text
PLACEHOLDER = 3  # characters: "x" or "EMP" is no secret, and masking it would riddle an error
SHORTEST_SECRET = 16  # likewise in a reply's own text, where words must stay
LONGEST_ID = 120  # characters of what a server calls itself
LONGEST_ERROR = 400  # characters: a proxy's HTML page must not fill the item file
LONGEST_REASON = 160  # characters of it in a log line
BUSY = frozenset({429, 503})
# Newer reasoning APIs refuse these by name; what to send in their place.
REPLACEMENTS: Mapping[str, str] = {"max_tokens": "max_completion_tokens", "temperature": ""}
# How JSON is asked for, strictest first, and how a server says that it does not take that.
JSON_MODES = ("json_schema", "json_object", "text")
REFUSALS = frozenset({400, 404, 422, 501})
STRUCTURE = re.compile(r"response_?format|json_?schema|json_?object|grammar", re.IGNORECASE)


TokenCounter = Callable[[Sequence[Message]], int | None]


@dataclass(frozen=True, slots=True)
class Failure:
    """Why one try gave no reply."""

    text: str
    is_temporary: bool
    status: int = 0
    headers: Mapping[str, str] = field(default_factory=lambda: NOTHING)
    body: object = None
    message: str = ""
    outcome: Outcome = Outcome.OTHER


def load(spec: Spec, options: LlmOptions) -> "OpenAILLM":
    """Return `openai:MODEL@URL`."""
    model, url = parse_target(spec.target)
    how: dict[str, Any] = {
        "window": options.window,
        "concurrency": options.concurrency or SERVER_REQUESTS,
        "timeout_seconds": options.timeout,
        "max_retries": options.retries,
        "seed": options.seed,
        "answers_as": options.answers_as,
    }
    if options.batch is not None:
        from prbench.backends.llm.batches import OpenAIBatchLLM

        return OpenAIBatchLLM(model, url, poll_seconds=options.batch, **how)
    return OpenAILLM(model, url, **how)


def explain_vllm(spec: Spec, options: LlmOptions) -> NoReturn:
    """Say how to serve the model, and what it is called then."""
    raise UsageError(
        f"{spec.text}: vLLM runs as a server. Start `vllm serve {spec.target}` and use "
        f"openai:{spec.target}@http://127.0.0.1:8000/v1."
    )


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
    """Return the key from the environment, one for this host first; a server on this machine may do without one."""
    host = re.sub(r"[^A-Z0-9]+", "_", (urlsplit(base_url).hostname or "").upper())
    for variable in (f"{KEY_VARIABLES[0]}_{host}", *KEY_VARIABLES):
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
        concurrency: int = SERVER_REQUESTS,
        timeout_seconds: float = 120.0,
        max_retries: int = 4,
        seed: int | None = None,
        answers_as: str = "",
    ) -> None:
        """At most `concurrency` requests are under way, for all callers together, and fewer where the server is slow.

        `seed` is sent with requests that carry none of their own.

        `answers_as` is the id that replies carry, where the server answers as something else than `model`.
        """
        try:
            import openai
        except ImportError as error:
            raise UsageError(
                "openai: models need the OpenAI client. Install it with: pip install 'prbench[llm]'"
            ) from error
        self._model = model
        self._base_url = base_url.rstrip("/")
        self.name = f"openai:{self._model}@{self._base_url}"
        # What was accepted under another id is no reply of the model itself.
        self.fingerprint = f"seed={seed}" + (f" answers_as={answers_as}" if answers_as else "")
        self._key = find_key(self._base_url)
        self._concurrency = concurrency
        self._throttle = Throttle(self.name, concurrency, timeout_seconds)
        self._timeout_seconds = timeout_seconds
        self._max_retries = max_retries
        self._seed = seed
        self._answers_as = answers_as
        self._has_warned = False  # of replies by another model
        # A redirect could carry prompts to a host that nobody named; a proxy cannot reach this machine's loopback.
        self._http = partial(
            bounded(openai.DefaultHttpxClient), follow_redirects=False, trust_env=not is_loopback(self._base_url)
        )
        # The client's own retries are off, as `Retry-After: 0` and a shared pause are beyond them.
        self._client = openai.OpenAI(
            api_key=self._key,
            base_url=self._base_url,
            timeout=timeout_seconds,
            max_retries=0,
            http_client=self._http(total_seconds=timeout_seconds),
        )
        self._refused: set[str] = set()
        self._structure = JSON_MODES[0]
        self._lock = threading.Lock()
        self._pace = Pace()
        self._server = ServerInfo(root=self._base_url.removesuffix("/v1"), key=self._key)
        if window is not None:
            self.window = window

    @cached_property
    def window(self) -> int | None:
        """The tokens that fit into one request, as given, else as llama.cpp or vLLM say it; asked once."""
        return self._server.window(self._model)

    def complete(self, requests: Sequence[ChatRequest]) -> list[Reply]:
        return in_order(self.complete_each(requests))

    def complete_each(
        self, requests: Iterable[ChatRequest], arrived: Arrived = no_progress
    ) -> Iterator[tuple[int, Reply]]:
        """Yield (index, reply) as they arrive. A request is taken when a thread is free to send it, not before.

        When this ends early, by Ctrl-C or otherwise, nothing new is sent; replies in flight, which are paid for, are
        waited for and told to `arrived`.
        """
        waiting = enumerate(requests)
        running: set[Future[tuple[int, Reply]]] = set()
        has_more, stop = True, threading.Event()
        with ThreadPoolExecutor(self._concurrency) as pool:
            try:
                while has_more or running:
                    # Send what the server has room for, and at least one request if none is running.
                    while has_more and (number := self._throttle.take(blocking=not running)) is not None:
                        item = None
                        try:
                            item = next(waiting, None)
                        finally:
                            if item is None:  # no more of them, or the caller's iterator raised
                                self._throttle.settle()
                        if item is None:
                            has_more = False
                        else:
                            running.add(pool.submit(self._complete_in_slot, number, *item, arrived, stop))
                    done, running = wait(running, return_when=FIRST_COMPLETED)
                    yield from (future.result() for future in done)
            finally:
                stop.set()  # no further tries

    def _complete_in_slot(
        self, number: int, index: int, request: ChatRequest, arrived: Arrived, stop: threading.Event
    ) -> tuple[int, Reply]:
        try:
            reply = self._complete_one(number, request, stop)
            arrived(index, reply)  # before others are taken: no more than `concurrency` requests are ever unsettled
            return index, reply
        finally:
            self._throttle.settle()

    def count_tokens(self, messages: Sequence[Message]) -> int:
        """Return the exact length where the server has `/tokenize` (vLLM, llama.cpp), else an upper bound.

        The bound is the number of UTF-8 bytes and a few more per turn, about four times the truth for English.
        """
        turns = without_control_tokens(messages)
        count = self._count(turns)
        return upper_estimate(turns) if count is None else count

    @cached_property
    def _count(self) -> TokenCounter:
        """The first way that can count a probe; the last one always can."""
        vllm = partial(self._server.vllm_tokens, self._model)
        ways: list[TokenCounter] = [vllm, self._server.llama_cpp_tokens, upper_estimate]
        return next(way for way in ways if way((Message("user", "Hello"),)) is not None)

    def _complete_one(self, number: int, request: ChatRequest, stop: threading.Event) -> Reply:
        """Ask until there is an answer, an error that will not go away, or no retry left."""
        retries, seconds, failure = 0, 0.0, "stopped before it was sent"
        while self._pace.wait(seconds, stop) and self._throttle.enter(number, stop):
            if stop.is_set():
                self._throttle.leave(number, Outcome.OTHER)
                break
            arguments = self._arguments(request)
            how = Outcome.OTHER
            try:
                outcome = self._ask(arguments, wants_logprobs=request.top_logprobs > 0)
                how = Outcome.ANSWERED if isinstance(outcome, Reply) else outcome.outcome
            finally:
                self._throttle.leave(number, how)
            if isinstance(outcome, Reply):
                return self._without_key(outcome)
            failure, seconds = outcome.text, 0.0
            if self._adapt(outcome, arguments):
                continue
            retries += 1
            if not outcome.is_temporary or retries > self._max_retries:
                break
            seconds = wait_seconds(retries, outcome.headers)
            if outcome.status in BUSY and outcome.headers.get("retry-after"):
                self._pace.hold(seconds)
        return self._without_key(Reply(finish=Finish.ERROR, error=failure))

    def _ask(self, arguments: Mapping[str, Any], *, wants_logprobs: bool) -> "Reply | Failure":
        import openai

        try:
            answer = self._client.chat.completions.with_raw_response.create(**arguments)
            text = answer.http_response.text
        except openai.APIStatusError as error:
            headers = {name.lower(): value for name, value in error.response.headers.items()}
            is_temporary = is_worth_another_try(error.status_code, headers)
            # The client library knows only one form of what a server says of a failure.
            told = error.body.get("message") if isinstance(error.body, dict) else error.body
            said = " ".join((told if isinstance(told, str) else error.response.text or error.message).split())
            text = f"HTTP {error.status_code}: {said}"
            how = Outcome.BUSY if error.status_code in BUSY else Outcome.OTHER
            return Failure(text, is_temporary, error.status_code, headers, error.body, said, how)
        except openai.APITimeoutError:
            text = f"no answer within {self._timeout_seconds:g} s"
            return Failure(text, is_temporary=True, outcome=Outcome.TIMED_OUT)
        except openai.APIConnectionError as error:
            if isinstance(error.__cause__, ReplyTooLargeError):  # some versions of the library wrap it
                return Failure(str(error.__cause__), is_temporary=False)
            return Failure(f"connection failed: {error.__cause__ or error}", is_temporary=True)
        except ReplyTooLargeError as error:
            return Failure(str(error), is_temporary=False)
        except ValueError as error:  # text that UTF-8 cannot hold
            return Failure(f"unusable request: {error}", is_temporary=False)
        # Half a reply, a proxy's page and an error under status 200 are no answers, and the next one may be.
        try:
            body = json.loads(text)
        except (ValueError, RecursionError) as error:
            return Failure(f"unusable answer: {error}", is_temporary=True)
        reply = read_body(body, wants_logprobs=wants_logprobs)
        if reply.finish is Finish.ERROR and not is_completion(body):
            return Failure(reply.error, is_temporary=True)
        return self._if_ours(reply, body)

    def _if_ours(self, reply: Reply, body: Json) -> Reply:
        """Return the reply, marked where another model gave it: what that one says is no word of the model asked."""
        answered = body.get("model") if isinstance(body, dict) else None
        known = (self._model, self._answers_as) if self._answers_as else (self._model,)
        if reply.finish is Finish.ERROR or any(is_same_model(each, answered) for each in known):
            return reply
        name = " ".join(str(answered).split())[:LONGEST_ID]
        asked = " or ".join(map(repr, known))
        error = f"asked for {asked}, but {name!r} answered. If that is one model: ?answers_as={quote(name, safe='/:')}"
        marked = replace(reply, finish=Finish.WRONG_MODEL, error=error)
        with self._lock:
            is_news, self._has_warned = not self._has_warned, True
        if is_news:
            log.warning("%s: %s. Such replies count for nothing.", self.name, self._without_key(marked).error)
        return marked

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
        if request.json_schema and self._structure != "text":
            form: dict[str, Any] = {"type": self._structure}
            if self._structure == "json_schema":
                form["json_schema"] = {"name": "reply", "strict": True, "schema": dict(request.json_schema)}
            arguments["response_format"] = form
        return arguments

    def _adapt(self, failure: "Failure", sent: Mapping[str, Any]) -> bool:
        """Do without what the server refuses, from here on; tell whether the request is worth sending anew."""
        if failure.status == 400 and (refused := refused_parameter(failure.body, failure.message, sent)):
            with self._lock:
                is_news = refused not in self._refused
                self._refused.add(refused)
            if is_news:
                instead = REPLACEMENTS[refused]
                what = f"{instead} is sent instead" if instead else "the model's own default applies, replies may vary"
                log.warning("%s refuses %s: %s, from here on.", self.name, refused, what)
            return True
        if failure.status in REFUSALS and "response_format" in sent and STRUCTURE.search(failure.text[:LONGEST_ERROR]):
            refused = sent["response_format"]["type"]
            with self._lock:
                is_news = self._structure == refused  # else another thread has gone to the next looser form already
                if is_news:
                    self._structure = JSON_MODES[JSON_MODES.index(refused) + 1]
            if is_news:
                why = self._without_key(Reply(error=failure.text)).error[:LONGEST_REASON]
                log.warning(
                    "%s refuses %s: %s is asked for, from here on (%s)", self.name, refused, self._structure, why
                )
            return True
        return False

    def _without_key(self, reply: Reply) -> Reply:
        """Return the reply with the key masked, wherever the server repeated it."""
        error = " ".join(reply.error.split())
        if len(self._key) > PLACEHOLDER:
            error = error.replace(self._key, "[key]")
        text = reply.text.replace(self._key, "[key]") if len(self._key) >= SHORTEST_SECRET else reply.text
        return replace(reply, text=text, error=error[:LONGEST_ERROR])


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
