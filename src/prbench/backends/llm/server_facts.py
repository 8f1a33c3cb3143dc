"""What an OpenAI-compatible server tells about itself beyond that API: its window and its tokenizer.

llama.cpp and vLLM both offer this beside `/v1`; every call goes to the host that the user named, and to no other.
"""

import ipaddress
import json
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass, field
from http.client import HTTPException, HTTPMessage
from typing import IO
from urllib.parse import urlsplit

from prbench.backends.llm.client import Message
from prbench.schema import Json

PROBE_SECONDS = 10.0
MARKUP_BYTES = 32  # per turn: role names and turn marks of the usual chat templates


class NoRedirect(urllib.request.HTTPRedirectHandler):
    """Refuses to follow: a redirect could carry the key and the prompt to another host."""

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> None:
        """Return nothing, which makes the redirect an HTTP error."""


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
class Server:
    """One server, known by its root URL (without `/v1`)."""

    root: str
    key: str = field(repr=False)

    def ask(self, path: str, body: Json = None) -> Json:
        """Return the JSON that the server answers, or `None` when it has no such page or no usable answer."""
        headers = {"Authorization": f"Bearer {self.key}", "Content-Type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.root + path, data, headers)
        handlers: list[urllib.request.BaseHandler] = [NoRedirect()]
        if is_loopback(self.root):
            handlers.append(urllib.request.ProxyHandler({}))  # a proxy cannot reach this machine's loopback
        try:
            with urllib.request.build_opener(*handlers).open(request, timeout=PROBE_SECONDS) as answer:
                return json.load(answer)
        except (OSError, HTTPException, ValueError):
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
