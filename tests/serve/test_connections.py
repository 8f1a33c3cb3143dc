"""Connections that ask nothing: they end in time, leave room for others, and fill no log."""

import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.serve.conftest import Start

from prbench.reward_models.fake import FakeReward
from prbench.serve.http import MOST_ADDRESSES, RefusedRequestError, WrongTokens

HALF = b"GET /health HTTP/1.1\r\nHost: localhost\r\nX-Slow: "
WHOLE = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"


def connect(url: str, *, source: str = "127.0.0.1") -> socket.socket:
    address = httpx.URL(url)
    return socket.create_connection((address.host, address.port or 0), timeout=10, source_address=(source, 0))


def reply(connection: socket.socket) -> bytes:
    """Return one whole reply: head and JSON body, which may come apart."""
    connection.settimeout(10)
    received = b""
    while not received.endswith(b"}"):
        block = connection.recv(4096)
        assert block, received
        received += block
    return received


def is_closed(connection: socket.socket, within: float = 5.0) -> bool:
    connection.settimeout(within)
    try:
        return connection.recv(1) == b""
    except ConnectionError:
        return True
    except TimeoutError:
        return False


def test_a_head_that_comes_letter_by_letter_ends_in_time(start: Start, lengths: FakeReward) -> None:
    server = start(lengths, header_seconds=0.5)
    with connect(server.url) as slow, connect(server.url) as silent:
        began = time.monotonic()
        with suppress(ConnectionError):
            for letter in HALF * 20:
                slow.send(bytes([letter]))
                time.sleep(0.05)
        assert is_closed(slow)
        assert 0.4 < time.monotonic() - began < 5
        assert is_closed(silent)
        assert server.score("abc").status_code == 200


def test_a_second_head_on_the_same_connection_must_come_in_time_too(start: Start, lengths: FakeReward) -> None:
    server = start(lengths, header_seconds=0.5)
    with connect(server.url) as connection:
        connection.sendall(WHOLE)
        assert b"200 OK" in reply(connection)
        time.sleep(1)  # between two requests a connection may rest
        connection.sendall(WHOLE)
        assert b"200 OK" in reply(connection)
        connection.sendall(HALF)
        assert is_closed(connection)


def test_a_request_that_is_being_answered_is_not_cut_off(start: Start, slow: Any) -> None:
    server = start(slow, header_seconds=0.3)
    row = b'{"inputs": [{"question": "Q?", "context": "", "response": "abc"}]}'
    head = b"POST /score HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(row)
    with connect(server.url) as connection:
        connection.sendall(head + row)
        assert slow.began.acquire(timeout=10)
        time.sleep(0.8)
        slow.go.set()
        assert b"200 OK" in reply(connection)


def test_a_new_connection_takes_the_place_of_the_oldest_that_asks_nothing(start: Start, lengths: FakeReward) -> None:
    server = start(lengths, max_connections=20)
    with ExitStack() as stack:
        idle = [stack.enter_context(connect(server.url, source="127.0.0.2")) for _ in range(14)]
        for connection in idle:
            connection.sendall(HALF)
        others = [stack.enter_context(connect(server.url, source="127.0.0.3")) for _ in range(4)]
        for connection in others:
            connection.sendall(HALF)
        time.sleep(0.5)
        more = [stack.enter_context(connect(server.url, source="127.0.0.4")) for _ in range(6)]
        for connection in more:
            connection.sendall(WHOLE)
            assert b"200 OK" in reply(connection)
        # 24 came, 20 fit: four of the address with the most went, the oldest of them.
        assert [is_closed(connection, 0.2) for connection in idle] == [True] * 4 + [False] * 10
        assert not any(is_closed(connection, 0.1) for connection in others)


def test_one_address_leaves_room_for_others(start: Start, slow: Any) -> None:
    server = start(slow, max_connections=20)
    row = b'{"inputs": [{"question": "Q?", "context": "", "response": "abc"}]}'
    head = b"POST /score HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(row)
    with ExitStack() as stack:
        busy = [stack.enter_context(connect(server.url, source="127.0.0.2")) for _ in range(18)]
        for connection in busy:
            with suppress(ConnectionError):
                connection.sendall(head + row)
        time.sleep(0.5)
        refused = [is_closed(connection, 0.2) for connection in busy]
        assert refused.count(True) == 3  # 15 of 20 are one address's share
        other = stack.enter_context(connect(server.url, source="127.0.0.3"))
        other.sendall(WHOLE)
        assert b"200 OK" in reply(other)
        slow.go.set()
        for connection, is_refused in zip(busy, refused, strict=True):
            if not is_refused:
                assert b"200 OK" in reply(connection)


Served = Callable[..., tuple[subprocess.Popen[str], str, Path]]
FEW_FILES = "import resource, sys; resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256)); "


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    """Return `served(args)`: `prbench ARGS` with 256 file descriptors, its address and the file of its errors."""
    processes = []

    def begin(*args: str) -> tuple[subprocess.Popen[str], str, Path]:
        log = tmp_path / "errors.log"
        code = FEW_FILES + "from prbench.cli import main; main()"
        with log.open("w") as errors:
            process = subprocess.Popen(
                [sys.executable, "-c", code, *args], stdout=subprocess.PIPE, stderr=errors, text=True, env=os.environ
            )
        processes.append(process)
        assert process.stdout is not None
        found = None
        while found is None and (line := process.stdout.readline()):
            found = re.search(r"http://[^\s\"]+", line)
        assert found, log.read_text()
        return process, found[0].rstrip("/"), log

    yield begin
    for process in processes:
        process.kill()
        process.wait(10)


def flood(url: str, count: int) -> list[socket.socket]:
    """Open connections that send half a head; some may be refused."""
    made = []
    for _ in range(count):
        with suppress(OSError):
            connection = connect(url)
            made.append(connection)
            connection.sendall(HALF)
    return made


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["serve", "annotate"])
def test_400_half_open_connections_silence_nobody_and_fill_no_log(kind: str, served: Served, tmp_path: Path) -> None:
    if kind == "annotate":
        from prbench.data import open_examples
        from prbench.people.annotate.records import Mode
        from prbench.people.annotate.store import Plan, create

        with open_examples("lab") as rows:
            examples = [rows[number] for number in range(3)]
        create(tmp_path / "study.db", examples, Plan(mode=Mode.VALIDATE, annotators=["ann"], overlap=1))
        args = ("annotate", "serve", str(tmp_path / "study.db"), "--port", "0")
    else:
        args = ("serve", "--model", "fake:length", "--port", "0")
    _, url, log = served(*args)
    held = flood(url, 400)
    try:
        for _ in range(10):
            began = time.monotonic()
            assert httpx.get(f"{url}/health", timeout=10, trust_env=False).status_code == 200
            assert time.monotonic() - began < 2
            held += flood(url, 20)
        assert log.stat().st_size < 10_000, log.read_text()[:2000]
    finally:
        for connection in held:
            connection.close()


def test_the_limit_of_guesses_forgets_after_its_window_and_keeps_addresses_apart() -> None:
    now = [0.0]
    wrong = WrongTokens(2, 60.0, clock=lambda: now[0])
    error = RefusedRequestError(404, "No.")

    def status(address: str) -> int:
        return wrong.refusal(address, error).status

    assert [status("a"), status("a"), status("a"), status("b")] == [404, 404, 429, 404]
    now[0] = 50.0
    assert wrong.refusal("a", error).headers == {"Retry-After": "10"}
    now[0] = 60.0
    assert status("a") == 404
    for number in range(MOST_ADDRESSES + 5):
        status(f"address-{number}")
    assert status("a") == 404  # long forgotten, and no memory is held for it
