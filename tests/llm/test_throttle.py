"""How many requests a server gets at once: by hand on a clock that is set, and at servers with one slot."""

import json
import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

pytest.importorskip("openai", reason="needs pip install 'prbench[llm]'")
pytest.importorskip("httpx", reason="needs pip install 'prbench[serve]'")

from prbench.backends.llm import ChatRequest, Message, load_llm
from prbench.backends.llm.throttle import PROBE_AFTER, Outcome, Throttle
from prbench.reward_models import ModelSettings, load_reward_model
from prbench.schema import RewardInput


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Simulated:
    """A server in the test's head: `slots` requests at a time, `seconds` each; it is always asked for more."""

    def __init__(self, *, most: int, timeout: float, slots: int, seconds: float) -> None:
        self.clock = Clock()
        self.throttle = Throttle("s", most, timeout, clock=self.clock)
        self.timeout, self.slots, self.seconds = timeout, slots, seconds
        self.timed_out = 0
        self.limits: list[int] = []

    def run(self, requests: int) -> "Simulated":
        waiting: list[tuple[float, int, float]] = []  # when it ends, its number, when it was sent
        free = [0.0] * self.slots
        sent = 0
        while sent < requests or waiting:
            while sent < requests and len(waiting) < self.throttle.limit:
                number = self.throttle.number()
                assert self.throttle.enter(number)
                free.sort()
                begins = max(free[0], self.clock.now)
                ends = min(begins + self.seconds, self.clock.now + self.timeout)
                free[0] = max(free[0], ends)  # a server drops what was given up
                waiting.append((ends, number, self.clock.now))
                sent += 1
            waiting.sort()
            ends, number, since = waiting.pop(0)
            self.clock.now = ends
            late = ends - since >= self.timeout
            self.timed_out += late
            self.throttle.leave(number, Outcome.TIMED_OUT if late else Outcome.ANSWERED)
            self.limits.append(self.throttle.limit)
        return self


def test_a_quick_server_soon_gets_all_that_it_may_get() -> None:
    server = Simulated(most=16, timeout=120, slots=64, seconds=1).run(40)
    assert server.throttle.limit == 16
    assert server.limits.index(16) < 20
    assert server.timed_out == 0


def test_a_server_whose_replies_take_long_but_side_by_side_gets_many_as_well() -> None:
    server = Simulated(most=8, timeout=120, slots=64, seconds=70).run(60)
    assert (server.throttle.limit, server.timed_out) == (8, 0)


@pytest.mark.parametrize("seconds", [5, 15, 30, 55])
def test_a_server_with_one_slot_never_gets_more_than_it_answers_in_time(seconds: float) -> None:
    server = Simulated(most=8, timeout=120, slots=1, seconds=seconds).run(100)
    assert server.timed_out == 0
    assert max(server.limits) * seconds < 120


def test_a_reply_that_takes_most_of_the_time_out_leaves_one_at_a_time() -> None:
    server = Simulated(most=8, timeout=120, slots=1, seconds=80).run(30)
    assert server.timed_out == 2  # the second of the first two, and the one that was sent when the first was answered
    assert server.throttle.limit == 1


def test_a_time_out_halves_the_number_once_however_many_were_waiting(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    throttle = Throttle("s", 8, 10, clock=clock)
    throttle.limit = 8
    numbers = [throttle.number() for _ in range(8)]
    assert all(throttle.enter(number) for number in numbers)
    clock.now = 10
    with caplog.at_level(logging.WARNING):
        for number in numbers:
            throttle.leave(number, Outcome.TIMED_OUT)
    assert throttle.limit == 4
    assert len(caplog.records) == 1
    assert "no answer within 10 s of sending a request. From here on 4 at a time" in caplog.text
    assert "?timeout=SECONDS" in caplog.text


def test_the_number_that_timed_out_is_tried_again_only_after_many_replies() -> None:
    clock = Clock()
    throttle = Throttle("s", 8, 100, clock=clock)
    for outcome in (Outcome.BUSY, *[Outcome.ANSWERED] * (PROBE_AFTER - 1)):
        number = throttle.number()
        throttle.enter(number)
        clock.now += 1
        throttle.leave(number, outcome)
        assert throttle.limit == 1
    number = throttle.number()
    throttle.enter(number)
    throttle.leave(number, Outcome.ANSWERED)
    assert throttle.limit == 2


def test_requests_are_let_in_by_their_numbers_and_earlier_ones_first() -> None:
    throttle = Throttle("s", 1, 100)
    first, second, third = (throttle.number() for _ in range(3))
    assert throttle.enter(first)
    let_in: list[int] = []

    def ask(number: int) -> None:
        assert throttle.enter(number)
        let_in.append(number)
        throttle.leave(number, Outcome.ANSWERED)

    threads = [threading.Thread(target=ask, args=(number,)) for number in (third, second)]
    for thread in threads:
        thread.start()
        time.sleep(0.05)
    throttle.leave(first, Outcome.OTHER)
    for thread in threads:
        thread.join(10)
    assert let_in == [second, third]


class OneSlot:
    """A server that answers one request at a time, in the order of arrival, and drops nobody's work."""

    def __init__(self, seconds: float) -> None:
        self.got, self.answered = 0, 0
        self.order: list[str] = []
        slot, lock, server = threading.Lock(), threading.Lock(), self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            wbufsize = 1 << 16

            def do_GET(self) -> None:
                listed = {"data": [{"id": "m", "owned_by": "vllm", "max_model_len": None}]}
                self.send(listed if self.path == "/v1/models" else None)

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                if self.path == "/tokenize":
                    self.send({"count": 1})
                    return
                with lock:
                    server.got += 1
                    server.order.append(body["messages"][0]["content"])
                with slot:
                    time.sleep(seconds)
                    message = {"role": "assistant", "content": "Result: A"}
                    said = {"choices": [{"finish_reason": "stop", "message": message}]}
                    self.send({"model": "m", "data": [{"probs": [1.0]}], **said})

            def send(self, content: Any) -> None:
                data = json.dumps(content).encode()
                try:
                    self.send_response(200 if content else 404)
                    self.send_header("Content-Length", str(len(data)))
                    self.end_headers()
                    self.wfile.write(data)
                    self.wfile.flush()
                    server.answered += self.command == "POST"
                except OSError:
                    self.close_connection = True  # the client gave up: this work is lost

            def log_message(self, *args: object) -> None:
                """Stay silent."""

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.http.server_port}"
        threading.Thread(target=self.http.serve_forever, args=(0.02,), daemon=True).start()

    def counts(self, expected: int) -> tuple[int, int]:
        """How many requests came and were answered; the last reply is counted just after it was sent."""
        give_up_at = time.monotonic() + 5
        while self.answered < expected and time.monotonic() < give_up_at:
            time.sleep(0.01)
        return self.got, self.answered


@contextmanager
def one_slot(seconds: float) -> Iterator[OneSlot]:
    server = OneSlot(seconds)
    try:
        yield server
    finally:
        server.http.shutdown()
        server.http.server_close()


def asks(count: int) -> list[ChatRequest]:
    return [ChatRequest(messages=(Message("user", f"{number:02d}"),)) for number in range(count)]


def test_a_chat_server_with_one_slot_gets_every_request_once_and_in_order() -> None:
    """Eight at once, the default, would wait 3.2 s for the last one: more than the time-out."""
    with one_slot(0.4) as server:
        replies = load_llm(f"openai:m@{server.url}/v1", timeout_seconds=3.0).complete(asks(9))
        assert [reply.text for reply in replies] == ["Result: A"] * 9
        assert server.counts(9) == (9, 9)
        # Those that are sent together may overtake each other on the way.
        assert all(abs(int(text) - place) <= 2 for place, text in enumerate(server.order))


def test_a_reward_server_with_one_slot_gets_every_request_once() -> None:
    inputs = [RewardInput(question="Q?", response=f"{number}") for number in range(9)]
    with one_slot(0.4) as server:
        model: Any = load_reward_model(f"server:{server.url}?api=classify&timeout=3", ModelSettings()).model
        assert [score.value for score in model.score(inputs)] == [1.0] * 9
        assert server.counts(9) == (9, 9)


def test_the_first_time_out_is_told_in_one_line(caplog: pytest.LogCaptureFixture) -> None:
    with one_slot(0.5) as server, caplog.at_level(logging.WARNING):
        replies = load_llm(f"openai:m@{server.url}/v1", timeout_seconds=0.3, retries=1).complete(asks(2))
    assert [reply.error for reply in replies] == ["no answer within 0.3 s"] * 2
    assert [line for line in caplog.messages if "no answer within" in line] == [
        f"openai:m@{server.url}/v1: no answer within 0.3 s of sending a request. From here on 1 at a time; it is sent "
        "again. If the server is slow, give it longer: ?timeout=SECONDS."
    ]
