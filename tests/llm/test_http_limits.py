"""Limits of HTTP clients against real sockets that misbehave."""

import gzip
import json
import socket
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

pytest.importorskip("httpx", reason="needs pip install 'prbench[llm]'")
pytest.importorskip("openai", reason="needs pip install 'prbench[llm]'")

import httpx
import openai

from prbench.backends.http_limits import MOST_ERROR_BYTES, ReplyTooLargeError, bounded
from prbench.backends.llm import ChatRequest, Finish, Message, load_llm
from prbench.reward_models.requests import Requests

Answer = Callable[[socket.socket], None]
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"


@pytest.fixture
def serve() -> Iterator[Callable[[Answer], str]]:
    """Return `serve(answer)`: a server that reads a request and lets `answer` write to its connection."""
    listening: list[socket.socket] = []

    def begin(answer: Answer) -> str:
        server = socket.create_server(("127.0.0.1", 0))
        listening.append(server)

        def run() -> None:
            with suppress(OSError):
                while True:
                    connection, _ = server.accept()
                    threading.Thread(target=talk, args=(connection,), daemon=True).start()

        def talk(connection: socket.socket) -> None:
            with connection, suppress(OSError):
                connection.recv(65536)
                answer(connection)

        threading.Thread(target=run, daemon=True).start()
        return f"http://127.0.0.1:{server.getsockname()[1]}"

    yield begin
    for server in listening:
        server.close()


CLIENTS = {"httpx": (httpx.Client, httpx.TimeoutException), "openai": (openai.DefaultHttpxClient, Exception)}


def drip(content: bytes) -> Answer:
    def answer(connection: socket.socket) -> None:
        for _ in range(200):
            for byte in content:
                connection.sendall(bytes([byte]))
                time.sleep(0.05)

    return answer


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("where", ["head", "body"])
def test_a_byte_now_and_then_buys_no_time(client: str, where: str, serve: Any) -> None:
    kind, error = CLIENTS[client]
    if where == "head":
        url = serve(drip(b"HTTP/1.1 200 OK\r\nX-Slow: " + b"a" * 5000))
    else:
        url = serve(lambda connection: (connection.sendall(HEAD + b"\r\n"), drip(b"{ ")(connection)))
    with bounded(kind)(total_seconds=0.6, timeout=0.5, trust_env=False) as http:
        began = time.monotonic()
        with pytest.raises(error) as raised:
            http.get(url)
    assert time.monotonic() - began < 3
    assert "Timeout" in type(raised.value).__name__


def whole(head: bytes, body: bytes) -> Answer:
    return lambda connection: connection.sendall(head + b"Content-Length: %d\r\n\r\n" % len(body) + body)


@pytest.mark.parametrize("pack", ["", "gzip", "deflate"])
def test_what_fits_is_read_whole(pack: str, serve: Any) -> None:
    body = b'{"text": "' + b"a" * 5000 + b'"}'
    packed = {"": body, "gzip": gzip.compress(body), "deflate": zlib.compress(body)}[pack]
    url = serve(whole(HEAD + (b"Content-Encoding: %s\r\n" % pack.encode() if pack else b""), packed))
    with bounded(httpx.Client)(total_seconds=5, most_bytes=6000, trust_env=False) as http:
        reply = http.get(url)
    assert (reply.status_code, reply.json()) == (200, {"text": "a" * 5000})


@pytest.mark.parametrize("pack", ["gzip", "deflate"])
def test_members_are_read_on_and_a_cut_off_one_is_a_lost_connection(pack: str, serve: Any) -> None:
    head = HEAD + b"Content-Encoding: %s\r\n" % pack.encode()
    press = {"gzip": gzip.compress, "deflate": zlib.compress}[pack]
    first, second = press(b'{"text": "' + b"a" * 5000), press(b'"}')
    with bounded(httpx.Client)(total_seconds=5, trust_env=False) as http:
        assert http.get(serve(whole(head, first + second))).json() == {"text": "a" * 5000}
        assert http.get(serve(whole(head, b""))).content == b""
        for cut in (first[:-1], first[:12], first + second[:-3]):
            with pytest.raises(httpx.RemoteProtocolError, match="cut off"):
                http.get(serve(whole(head, cut)))


def test_a_cut_off_packed_reply_is_asked_for_again(serve: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("prbench.backends.llm.openai_api.wait_seconds", lambda *_: 0.0)
    message = {"role": "assistant", "content": "yes"}
    full = gzip.compress(
        json.dumps({"model": "m", "choices": [{"finish_reason": "stop", "message": message}]}).encode()
    )
    bodies = [full, full[:-9], full[:-9]]

    def next_one(connection: socket.socket) -> None:
        whole(HEAD + b"Content-Encoding: gzip\r\n", bodies.pop())(connection)

    url = serve(next_one)
    model = load_llm(f"openai:m@{url}/v1")
    (reply,) = model.complete([ChatRequest(messages=(Message("user", "Is it?"),))])
    assert (reply.text, reply.error, bodies) == ("yes", "", [])
    bodies += [gzip.compress(b'{"ok": 1}'), gzip.compress(b'{"ok": 1}')[:-9]]
    assert Requests(url, timeout_seconds=5, first_wait_seconds=0.01).post("/score", {}) == {"ok": 1}


def test_a_reply_of_a_model_that_is_too_large_is_one_failed_reply(serve: Any) -> None:
    (reply,) = load_llm(f"openai:m@{serve(endless)}/v1").complete([ChatRequest(messages=(Message("user", "Q?"),))])
    assert (reply.finish, reply.error) == (Finish.ERROR, "the reply has more than 8,388,608 bytes")


def endless(connection: socket.socket) -> None:
    connection.sendall(HEAD + b"\r\n")
    while True:
        connection.sendall(b" " * 65536)


BOMB = gzip.compress(b"\0" * (200 << 20), compresslevel=1)


@pytest.mark.parametrize(
    "answer",
    [endless, whole(HEAD + b"Content-Encoding: gzip\r\n", BOMB), whole(HEAD + b"Content-Encoding: br\r\n", b"x")],
    ids=["endless", "bomb", "another packing"],
)
def test_what_does_not_fit_is_refused_before_it_fills_memory(answer: Answer, serve: Any) -> None:
    import tracemalloc

    url = serve(answer)
    tracemalloc.start()
    try:
        http = bounded(httpx.Client)(total_seconds=10, most_bytes=1 << 20, trust_env=False)
        with http, pytest.raises(ReplyTooLargeError):
            http.get(url)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 20 << 20


def test_of_an_error_the_beginning_is_enough(serve: Any) -> None:
    url = serve(whole(b"HTTP/1.1 500 No\r\n", b"sorry " * 1_000_000))
    with bounded(httpx.Client)(total_seconds=10, trust_env=False) as http:
        reply = http.get(url)
    assert (reply.status_code, len(reply.content)) == (500, MOST_ERROR_BYTES)
    assert reply.text.startswith("sorry ")


def test_connections_are_used_again(serve: Any) -> None:
    seen: list[int] = []

    def answer(connection: socket.socket) -> None:
        for _ in range(3):
            seen.append(id(connection))
            whole(HEAD, b"{}")(connection)
            connection.recv(65536)

    url = serve(answer)
    with bounded(httpx.Client)(total_seconds=5, trust_env=False) as http:
        assert [http.get(url).json() for _ in range(3)] == [{}, {}, {}]
    assert len(set(seen)) == 1
