"""A real HTTP server on loopback that speaks the chat API by script, and misbehaves as told.

    with scripted_server(answer, Faults(broken=0.1, slow=0.05, hold_seconds=2.0)) as server:
        llm = load_llm(server.spec, timeout_seconds=0.5)

As its own process, for tests that kill the client (run it in the repository root; it ends when its input is closed):

    python -m tests.support.scripted_server --port 0 --counts FILE --answers module:function [--delay 0.01] ...

It prints its base URL as one line. Every fault is decided by a hash of (seed, request body, which try of that body),
so threads cannot change what happens; from the third try on, only `broken` is left.
"""

import argparse
import hashlib
import importlib
import json
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """A reply of which more than the text is scripted."""

    text: str
    finish: str = "stop"
    model: Any = ""  # who says to have replied; "" is the model of the server


Answer = Callable[[dict[str, Any]], str | Said]  # the request body to the reply

CHAT = "/v1/chat/completions"
LAST_FAULTY_TRY = 2
NOW = {"Retry-After": "0"}  # tests have no time to wait
BREAKS: tuple[Callable[[str], str], ...] = (  # how a reply gets broken: none of them leaves a readable JSON object
    lambda text: text[: text.find("{") + 1 + max(0, len(text) - text.find("{")) // 3].rstrip("}"),
    lambda text: "I am sorry, but I cannot help with that.",
    lambda text: "",
    lambda text: text.replace("}", "").replace("{", "{ not json: "),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    """Shares of requests that go wrong, each between 0 and 1; the rest is answered."""

    broken: float = 0.0  # a reply without a readable JSON object; depends on the body alone, so trying again is vain
    slow: float = 0.0  # held for `hold_seconds`, then the connection is dropped: choose more than the client waits
    hold_seconds: float = 30.0
    burst_every: int = 0  # one body in that many meets a burst of 429 with `Retry-After: 0` on its first two tries
    errors: float = 0.0  # status 500
    dropped: float = 0.0  # the connection is closed without a word
    seed: int = 0


class ScriptedServer:
    """The server, and what it counted. Use `scripted_server`, which also ends it."""

    def __init__(
        self,
        answer: Answer,
        faults: Faults | None = None,
        *,
        port: int = 0,
        counts: Path | None = None,
        delay_seconds: float = 0.0,
        model: str = "scripted",
    ) -> None:
        """`counts` is a file that gets one line per event; what it already has is counted as well."""
        self.answer = answer  # another one may take its place while the server runs
        self._faults = faults or Faults()
        self._delay_seconds = delay_seconds
        self.model = model
        self.attempts: Counter[str] = Counter()  # by body hash: how often a body came in
        self.answered: Counter[str] = Counter()  # by body hash: how often a full answer was sent
        self.bodies: dict[str, dict[str, Any]] = {}  # by body hash
        self.usage: Counter[str] = Counter()  # prompt_tokens and completion_tokens of the answers sent
        self.most_at_once = 0
        self._running = 0
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._read_counts(counts)
        self._counts = counts.open("a", buffering=1, encoding="utf-8") if counts else None
        self._http = _Http(("127.0.0.1", port), _handler(self))
        threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True).start()

    @property
    def base_url(self) -> str:
        """The address that an OpenAI client takes."""
        return f"http://127.0.0.1:{self._http.server_address[1]}/v1"

    @property
    def spec(self) -> str:
        """The same as `load_llm` takes it."""
        return f"openai:{self.model}@{self.base_url}"

    def close(self) -> None:
        """Let go of held requests and stop."""
        self._closing.set()
        self._http.shutdown()
        self._http.server_close()
        if self._counts:
            self._counts.close()

    def respond(self, body: dict[str, Any]) -> tuple[int, dict[str, str], bytes, str] | None:
        """Return status, headers, content and body hash; `None` drops the connection."""
        key = body_hash(body)
        with self._lock:
            self.attempts[key] += 1
            attempt = self.attempts[key]
            self.bodies[key] = body
            self._running += 1
            self.most_at_once = max(self.most_at_once, self._running)
            self._note("attempt", key)
        try:
            return self._respond(body, key, attempt)
        finally:
            with self._lock:
                self._running -= 1

    def count_answer(self, key: str, content: bytes) -> None:
        """Count an answer that was sent whole."""
        usage = json.loads(content)["usage"]
        with self._lock:
            self.answered[key] += 1
            self.usage.update(usage)
            self._note("answered", key, usage["prompt_tokens"], usage["completion_tokens"])

    def _respond(self, body: dict[str, Any], key: str, attempt: int) -> tuple[int, dict[str, str], bytes, str] | None:
        faults = self._faults
        if attempt <= LAST_FAULTY_TRY:
            dice = share(faults.seed, key, attempt)
            if faults.burst_every and int(share(faults.seed, key, "burst") * faults.burst_every) == 0:
                return 429, NOW, _json({"error": {"message": "too many requests"}}), ""
            if dice < faults.slow:
                self._closing.wait(faults.hold_seconds)
                return None
            if dice < faults.slow + faults.errors:
                return 500, NOW, _json({"error": {"message": "the scripted server fails on purpose"}}), ""
            if dice < faults.slow + faults.errors + faults.dropped:
                return None
        self._closing.wait(self._delay_seconds)
        answer = self.answer(body)
        said = Said(text=answer) if isinstance(answer, str) else answer
        if share(faults.seed, key, "broken") < faults.broken:
            said = replace(said, text=BREAKS[int(share(faults.seed, key, "how") * len(BREAKS))](said.text))
        return 200, {}, _json(_completion(self.model, body, said)), key

    def _note(self, *words: object) -> None:
        if self._counts and not self._counts.closed:
            self._counts.write(" ".join(map(str, words)) + "\n")

    def _read_counts(self, counts: Path | None) -> None:
        if counts and counts.exists():
            self.attempts, self.answered, self.usage = read_counts(counts)


@contextmanager
def scripted_server(answer: Answer, faults: Faults | None = None, **options: Any) -> Iterator[ScriptedServer]:
    """Run the server for the length of a `with`; options as `ScriptedServer` has them."""
    server = ScriptedServer(answer, faults, **options)
    try:
        yield server
    finally:
        server.close()


def body_hash(body: dict[str, Any]) -> str:
    """Return the name under which a request body is counted."""
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()[:16]


def read_counts(path: Path) -> tuple[Counter[str], Counter[str], Counter[str]]:
    """Return attempts and answers by body hash, and the tokens of the answers, from a counts file."""
    attempts: Counter[str] = Counter()
    answered: Counter[str] = Counter()
    usage: Counter[str] = Counter()
    for line in path.read_text(encoding="utf-8").splitlines():
        event, key, *numbers = line.split()
        if event == "attempt":
            attempts[key] += 1
        else:
            answered[key] += 1
            usage.update(dict(zip(("prompt_tokens", "completion_tokens"), map(int, numbers), strict=True)))
    return attempts, answered, usage


def share(*parts: object) -> float:
    """Return a number between 0 and 1 that depends on the parts alone."""
    digest = hashlib.sha256(":".join(map(str, parts)).encode()).digest()
    return int.from_bytes(digest[:8], "big") / 2**64


def _completion(model: str, body: dict[str, Any], said: Said) -> dict[str, Any]:
    words = sum(len(message["content"].split()) for message in body["messages"])
    room = body.get("max_tokens") or body.get("max_completion_tokens") or 1_000_000
    cut = said.text.split()
    return {
        "object": "chat.completion",
        "model": said.model or model,
        "choices": [
            {
                "index": 0,
                "finish_reason": "length" if len(cut) > room else said.finish,
                "message": {"role": "assistant", "content": " ".join(cut[:room]) if len(cut) > room else said.text},
            }
        ],
        "usage": {"prompt_tokens": words, "completion_tokens": min(len(cut), room)},  # one word is one token
    }


def _json(content: Any) -> bytes:
    return json.dumps(content).encode()


class _Http(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of clients that went away in the middle, which is what some tests are about; else as usual."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


def _handler(server: ScriptedServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = 1 << 16  # head and body leave together: sent apart, the second waits 40 ms for an acknowledgement

        def do_GET(self) -> None:
            if self.path == "/v1/models":
                self._send(200, {}, _json({"object": "list", "data": [{"id": server.model, "object": "model"}]}))
            else:
                self._send(404, {}, _json({"error": {"message": "no such page"}}))

        def do_POST(self) -> None:
            length = int(self.headers["Content-Length"])
            content = self.rfile.read(length)
            if len(content) < length:  # the client was killed while it wrote
                self.close_connection = True
                return
            if self.path != CHAT:
                self._send(404, {}, _json({"error": {"message": "no such page"}}))
                return
            response = server.respond(json.loads(content))
            if response is None:
                self.close_connection = True
                return
            status, headers, answer, key = response
            if self._send(status, headers, answer) and key:
                server.count_answer(key, answer)

        def _send(self, status: int, headers: dict[str, str], content: bytes) -> bool:
            try:
                self.send_response(status)
                usual = {"Content-Type": "application/json", "Content-Length": str(len(content))}
                for name, value in (usual | headers).items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(content)
                self.wfile.flush()
            except OSError:  # the client gave up waiting, or was killed
                self.close_connection = True
                return False
            return True

        def log_message(self, *args: object) -> None:
            """Stay silent."""

    return Handler


def main() -> None:
    """Serve until standard input is closed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--counts", type=Path)
    parser.add_argument("--answers", required=True, help="module:function, from a request body to a text")
    parser.add_argument("--delay", type=float, default=0.0, help="seconds before each answer")
    parser.add_argument("--broken", type=float, default=0.0)
    parser.add_argument("--slow", type=float, default=0.0)
    parser.add_argument("--hold", type=float, default=30.0)
    parser.add_argument("--burst-every", type=int, default=0)
    parser.add_argument("--errors", type=float, default=0.0)
    parser.add_argument("--dropped", type=float, default=0.0)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    module, _, name = options.answers.partition(":")
    faults = Faults(
        broken=options.broken,
        slow=options.slow,
        hold_seconds=options.hold,
        burst_every=options.burst_every,
        errors=options.errors,
        dropped=options.dropped,
        seed=options.seed,
    )
    answer = getattr(importlib.import_module(module), name)
    with scripted_server(
        answer, faults, port=options.port, counts=options.counts, delay_seconds=options.delay
    ) as server:
        print(server.base_url, flush=True)
        sys.stdin.read()


def echo(body: dict[str, Any]) -> str:
    """Answer with the last message: the simplest script."""
    return str(body["messages"][-1]["content"])


if __name__ == "__main__":
    main()
