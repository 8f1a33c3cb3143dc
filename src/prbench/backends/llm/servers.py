"""What asking any server takes: when to try again, how replies are read, and whether the right model answered.

Servers rarely repeat an id to the letter: `gpt-4o` answers as `gpt-4o-2024-08-06`, `llama3` as `llama3:latest`,
`vendor/name` as `name`, a file by its path. `docs/reference/llm.md` has a table of what counts as the same, which the
tests hold the rule to. Another word, size or vendor is another model.

llama.cpp and vLLM tell their window and tokenizer beside `/v1`; every call goes to the host that the user named.
"""

import ipaddress
import json
import math
import random
import re
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from email.utils import parsedate_to_datetime
from urllib.parse import urlsplit

import numpy as np

from prbench.backends.http_limits import ReplyTooLargeError, bounded
from prbench.backends.llm.client import Finish, Message, Reply
from prbench.schema import NOTHING, Json

AGAIN = frozenset({408, 409, 425, 429})  # and every 5xx but 501
NOT_IMPLEMENTED = 501
FIRST_SECONDS = 0.5  # doubles with every further try, up to
MOST_SECONDS = 8.0
LONGEST_SECONDS = 120.0  # a server that asks for more is not waited for


def is_worth_another_try(status: int, headers: Mapping[str, str]) -> bool:
    """Tell whether the same request may succeed later; a server that says so itself is believed."""
    if (asked := asked_seconds(headers)) is not None and asked > LONGEST_SECONDS:
        return False
    if (said := headers.get("x-should-retry")) in ("true", "false"):
        return said == "true"
    return status in AGAIN or (status >= 500 and status != NOT_IMPLEMENTED)


def wait_seconds(retry: int, headers: Mapping[str, str], *, first: float = FIRST_SECONDS) -> float:
    """Return the wait before a retry, counted from 1: what the server asks for, else a doubling time with jitter."""
    if (asked := asked_seconds(headers)) is not None:
        return asked
    # Up to a quarter less, so that requests which failed together do not come back together.
    return float(min(first * 2 ** min(retry - 1, 10), MOST_SECONDS) * (1 - 0.25 * random.random()))


def asked_seconds(headers: Mapping[str, str]) -> float | None:
    """Return the seconds that `Retry-After` asks for, as a number or a date; `None` where it says nothing usable."""
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        try:
            seconds = float(headers.get(name, "")) * unit
        except ValueError:
            continue
        if 0 <= seconds < float("inf"):
            return seconds
    try:
        moment = parsedate_to_datetime(headers.get("retry-after", ""))
    except ValueError:
        return None
    return max(0.0, moment.timestamp() - time.time())


class Pace:
    """When a server may be asked next. One refusal with a waiting time holds back every thread, not only its own."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._not_before = 0.0

    def hold(self, seconds: float) -> None:
        """Let nobody ask for so long."""
        with self._lock:
            self._not_before = max(self._not_before, time.monotonic() + seconds)

    def wait(self, seconds: float, stop: threading.Event) -> bool:
        """Wait so long, and until the server may be asked; tell whether that came before the stop."""
        moment = time.monotonic() + seconds
        while True:
            with self._lock:
                left = max(moment, self._not_before) - time.monotonic()
            if left <= 0:
                return True
            if stop.wait(left):
                return False


PROBE_SECONDS = 10.0
MARKUP_BYTES = 32  # per turn: role names and turn marks of the usual chat templates


def is_loopback(url: str) -> bool:
    """Tell whether the URL points at this machine."""
    host = urlsplit(url).hostname or ""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def as_dicts(messages: Sequence[Message]) -> list[dict[str, str]]:
    """Return the turns as the OpenAI API writes them."""
    return [{"role": message.role, "content": message.content} for message in messages]


def upper_estimate(messages: Sequence[Message]) -> int:
    """Return an upper bound on the prompt's tokens: its UTF-8 bytes, and a few per turn for the chat template.

    Every token of the tokenizers in use covers at least one byte, so the text can never have more tokens than bytes.
    English has about four bytes per token: the bound is safe, not sharp.
    """
    return sum(len(message.content.encode(errors="replace")) + MARKUP_BYTES for message in messages)


@dataclass(frozen=True, slots=True)
class ServerInfo:
    """One server, known by its root URL (without `/v1`)."""

    root: str
    key: str = field(repr=False)

    def ask(self, path: str, body: Json = None) -> Json:
        """Return the JSON that the server answers, or `None` when it has no such page or no usable answer."""
        import httpx

        headers = {"Authorization": f"Bearer {self.key}", "Content-Type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        # A redirect could carry the key and the prompt to another host; a proxy cannot reach this machine's loopback.
        client = bounded(httpx.Client)(
            total_seconds=PROBE_SECONDS, timeout=PROBE_SECONDS, trust_env=not is_loopback(self.root)
        )
        try:
            with client:
                answer = client.request(
                    "GET" if data is None else "POST", self.root + path, content=data, headers=headers
                )
            return answer.json() if answer.is_success else None
        except (httpx.HTTPError, httpx.InvalidURL, ReplyTooLargeError, ValueError, RecursionError):
            return None

    def llama_cpp_tokens(self, messages: Sequence[Message]) -> int | None:
        """Return the prompt's exact length by llama.cpp's own template and tokenizer; `None` where it is another."""
        rendered = self.ask("/apply-template", {"messages": as_dicts(messages)})
        if not isinstance(rendered, dict) or "prompt" not in rendered:
            return None
        body = {"content": rendered["prompt"], "add_special": True, "parse_special": True}
        answer = self.ask("/tokenize", body)
        return len(answer["tokens"]) if isinstance(answer, dict) and "tokens" in answer else None

    def vllm_tokens(self, model: str, messages: Sequence[Message]) -> int | None:
        """Return the prompt's exact length by vLLM's own template and tokenizer; `None` where it is another."""
        answer = self.ask("/tokenize", {"model": model, "messages": as_dicts(messages)})
        count = answer.get("count") if isinstance(answer, dict) else None
        return count if isinstance(count, int) else None

    def window(self, model: str) -> int | None:
        """Return the tokens that fit into one request, from llama.cpp's `/props` or vLLM's `/v1/models`."""
        props = self.ask("/props")
        settings = props.get("default_generation_settings") if isinstance(props, dict) else None
        if isinstance(settings, dict) and isinstance(settings.get("n_ctx"), int):
            return int(settings["n_ctx"])
        models = self.ask("/v1/models")
        entries = models.get("data") if isinstance(models, dict) else None
        for entry in entries if isinstance(entries, list) else []:
            if isinstance(entry, dict) and entry.get("id") == model and isinstance(entry.get("max_model_len"), int):
                return int(entry["max_model_len"])
        return None


NO_CHANCE = -9999.0  # what vLLM writes for minus infinity
MOST_TOKENS = 2**31  # of one reply: more is a slip of the server
# How servers say that a reply met its limit or the end of the window (Mistral, Gemini and proxies have own words).
CUT_OFF = frozenset({"length", "max_tokens", "max_output_tokens", "model_length"})
BROKEN_OFF: Mapping[str, str] = {
    "content_filter": "the server's content filter stopped the reply",
    "abort": "the server broke the reply off",
    "error": "the server broke the reply off",
}


def read_body(body: Json, *, wants_logprobs: bool) -> Reply:
    """Turn the server's JSON into a reply; `reasoning_content` is thinking, not answer, and is left out."""
    if isinstance(body, dict) and body.get("error"):  # some proxies report failures with status 200
        return Reply(finish=Finish.ERROR, error=str(body["error"]))
    try:
        choice = body["choices"][0]
        message = choice["message"]
        usage = body.get("usage")
        spent = Reply(
            prompt_tokens=_count_in(usage, "prompt_tokens"), completion_tokens=_count_in(usage, "completion_tokens")
        )
        end = str(choice.get("finish_reason")).lower()
        if end in BROKEN_OFF:
            return replace(spent, finish=Finish.ERROR, error=BROKEN_OFF[end])
        if wants_logprobs and not choice.get("logprobs"):
            error = "the server returned no log-probabilities; use mode=parse"
            return replace(spent, finish=Finish.ERROR, error=error)
        return replace(
            spent,
            # Half a surrogate pair cannot be written anywhere; the mark shows that something was there.
            text=(message.get("content") or message.get("refusal") or "").encode("utf-8", "replace").decode(),
            finish=Finish.LENGTH if end in CUT_OFF else Finish.STOP,
            first_token=first_token(choice["logprobs"]) if wants_logprobs else NOTHING,
        )
    except (KeyError, IndexError, TypeError, AttributeError) as wrong:
        return Reply(finish=Finish.ERROR, error=f"the server's JSON is no chat completion ({wrong!r})")


def is_completion(body: Json) -> bool:
    """Tell whether a server's JSON has the form of a chat completion, be it one that broke off."""
    if not isinstance(body, dict) or body.get("error"):
        return False
    choices = body.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices else None
    return isinstance(choice, dict) and isinstance(choice.get("message"), dict)


def _count_in(usage: Json, name: str) -> int:
    """Return a number of tokens; 0 where the server says none, or something that cannot be one."""
    value = usage.get(name) if isinstance(usage, dict) else None
    if not isinstance(value, int) or isinstance(value, bool):
        return 0
    return value if 0 <= value < MOST_TOKENS else 0


def first_token(logprobs: Json) -> dict[str, float]:
    """Return the first token's candidates; two candidates with the same text count together."""
    content = logprobs.get("content") or []
    candidates: dict[str, float] = {}
    for candidate in content[0]["top_logprobs"] if content else []:
        text, value = candidate["token"], candidate["logprob"]
        if value is None or value <= NO_CHANCE:  # minus infinity, which JSON cannot say
            continue
        candidates[text] = float(np.logaddexp(candidates.get(text, -math.inf), value))
    return candidates


_DATE = r"(?:\d{4}-\d{2}-\d{2}|\d{2}-\d{4}|\d{2}-\d{2}|\d{3,8})"
_LATER = re.compile(rf"(?:[-@]{_DATE}|:[^/:]+)?")  # what the id that answered may have after the one asked for
_LATEST = re.compile(r"[-:]latest\Z")


def is_same_model(asked: str, answered: object) -> bool:
    """Tell whether the id in a reply names the model that was asked. No id, or one that is no text, says nothing."""
    if not isinstance(answered, str) or not (theirs := _plain(answered)):
        return True
    ours = _plain(asked)
    our_file, their_file = ours.rpartition("/")[2], theirs.rpartition("/")[2]
    # Only one of the two is cut to its last part: `org/name` and `other/name` are two models.
    for one, other in ((ours, theirs), (our_file, theirs), (ours, their_file)):
        known = _LATEST.sub("", one)
        if other == one or (other.startswith(known) and _LATER.fullmatch(other, len(known))):
            return True
    # llama.cpp answers with the path of the one file that it serves, whose name may go on with size and precision.
    is_file = answered.strip().casefold().endswith(".gguf")
    return is_file and their_file.startswith(tuple(f"{our_file}{mark}" for mark in "-._"))


def _plain(name: str) -> str:
    return name.strip().replace("\\", "/").rstrip("/").casefold().removesuffix(".gguf")
