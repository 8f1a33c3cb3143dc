"""The client against a stand-in server that misbehaves on purpose; `test_over_http.py` has a real one."""

import json
import logging
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from prbench.backends.llm import CachedLLM, ChatRequest, Finish, Ledger, Message, MeteredLLM, load_llm
from prbench.backends.llm.openai_api import OpenAILLM, find_key, parse_target, refused_parameter
from prbench.backends.llm.servers import first_token, read_body
from prbench.errors import UsageError

pytest.importorskip("openai", reason="the OpenAI client is not installed: pip install 'prbench[llm]'")

REQUEST = ChatRequest(messages=(Message("user", "Hello"),), max_tokens=7)
KEY = "sk-very-secret-key-0123456789"


@dataclass
class Call:
    """One request as the server saw it."""

    path: str
    body: Any
    headers: dict[str, str]
    at: float


@dataclass
class Answer:
    """What the server sends back; a `body` that is a string goes out as it is."""

    body: Any = None
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    delay_seconds: float = 0.0
    drop: bool = False  # close the connection without a word


def completion(text: str = "fine", finish: str = "stop", **choice: Any) -> dict[str, Any]:
    message = {"role": "assistant", "content": text} | choice.pop("message", {})
    return {
        "choices": [{"index": 0, "finish_reason": finish, "message": message, **choice}],
        "usage": {"prompt_tokens": 11, "completion_tokens": 2},
    }


class StandIn:
    """A server that answers chat completions by a function of the call and its number, and other pages by table."""

    def __init__(self) -> None:
        self.chat: Callable[[Call, int], Answer] = lambda call, number: Answer(completion())
        self.pages: dict[str, Callable[[Any], Any]] = {}
        self.calls: list[Call] = []
        self._lock = threading.Lock()
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._http.daemon_threads = True
        threading.Thread(target=self._http.serve_forever, args=(0.05,), daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._http.server_address[1]}/v1"

    @property
    def chats(self) -> list[Call]:
        return [call for call in self.calls if call.path == "/v1/chat/completions"]

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()

    def answer(self, call: Call) -> Answer:
        with self._lock:
            self.calls.append(call)
            number = len(self.chats)
        if call.path == "/v1/chat/completions":
            return self.chat(call, number)
        page = self.pages.get(call.path)
        return Answer(page(call.body)) if page else Answer({"detail": "Not Found"}, status=404)

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        stand_in = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._serve(None)

            def do_POST(self) -> None:
                self._serve(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

            def _serve(self, body: Any) -> None:
                headers = {name.lower(): value for name, value in self.headers.items()}
                answer = stand_in.answer(Call(self.path, body, headers, time.monotonic()))
                time.sleep(answer.delay_seconds)
                if answer.drop:
                    self.close_connection = True
                    return
                content = (answer.body if isinstance(answer.body, str) else json.dumps(answer.body)).encode()
                try:
                    self.send_response(answer.status)
                    usual = {"Content-Type": "application/json", "Content-Length": str(len(content))}
                    for name, value in (usual | answer.headers).items():
                        self.send_header(name, value)
                    self.end_headers()
                    self.wfile.write(content)
                except OSError:  # the client gave up waiting, which is what some tests are about
                    self.close_connection = True

            def log_message(self, *args: object) -> None:
                """Stay silent."""

        return Handler


@pytest.fixture
def server() -> Iterator[StandIn]:
    stand_in = StandIn()
    yield stand_in
    stand_in.close()


@pytest.fixture(autouse=True)
def no_key_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("PRBENCH_API_KEY", "OPENAI_API_KEY"):
        monkeypatch.delenv(variable, raising=False)


def fail_then_answer(failures: int, failure: Answer) -> Callable[[Call, int], Answer]:
    return lambda call, number: failure if number <= failures else Answer(completion())


# What is sent, and what is read.


def test_request_and_reply_carry_every_field(server: StandIn) -> None:
    schema = {"type": "object"}
    request = ChatRequest(
        messages=(Message("system", "S"), Message("user", "U")),
        max_tokens=9,
        temperature=0.5,
        seed=3,
        json_schema=schema,
    )
    (reply,) = OpenAILLM("m", server.url).complete([request])
    assert server.chats[0].body == {
        "model": "m",
        "messages": [{"role": "system", "content": "S"}, {"role": "user", "content": "U"}],
        "max_tokens": 9,
        "temperature": 0.5,
        "seed": 3,
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "reply", "strict": True, "schema": schema},
        },
    }
    assert (reply.text, reply.finish, reply.prompt_tokens, reply.completion_tokens) == ("fine", Finish.STOP, 11, 2)


def test_seed_of_the_client_serves_requests_without_one(server: StandIn) -> None:
    OpenAILLM("m", server.url, seed=5).complete([REQUEST])
    OpenAILLM("m", server.url).complete([REQUEST])
    assert [call.body.get("seed") for call in server.chats] == [5, None]


@pytest.mark.parametrize("word", ["length", "MAX_TOKENS", "max_output_tokens", "model_length"])
def test_length_finish_is_told_apart_from_a_finished_reply(server: StandIn, word: str) -> None:
    server.chat = lambda call, number: Answer(completion("Result", finish=word))
    assert OpenAILLM("m", server.url).complete([REQUEST])[0].finish is Finish.LENGTH


@pytest.mark.parametrize("word", ["abort", "error"])
def test_reply_that_the_server_broke_off_is_a_failure(server: StandIn, word: str) -> None:
    server.chat = lambda call, number: Answer(completion("Result: A", finish=word))
    (reply,) = OpenAILLM("m", server.url).complete([REQUEST])
    assert (reply.finish, reply.error) == (Finish.ERROR, "the server broke the reply off")


def test_reasoning_kept_apart_by_the_server_is_not_part_of_the_text(server: StandIn) -> None:
    server.chat = lambda call, number: Answer(completion("B", message={"reasoning_content": "Result: A"}))
    assert OpenAILLM("m", server.url).complete([REQUEST])[0].text == "B"


def test_reply_with_reasoning_only_is_empty_not_an_error(server: StandIn) -> None:
    message = {"content": None, "reasoning_content": "Result: A"}
    server.chat = lambda call, number: Answer(completion(finish="length", message=message))
    (reply,) = OpenAILLM("m", server.url).complete([REQUEST])
    assert (reply.text, reply.finish, reply.error) == ("", Finish.LENGTH, "")


def test_minus_infinity_of_vllm_is_no_candidate() -> None:
    top = [{"token": "A", "logprob": -0.5}, {"token": "B", "logprob": -9999.0}, {"token": "C", "logprob": None}]
    assert first_token({"content": [{"top_logprobs": top}]}) == {"A": -0.5}


def test_first_token_candidates_with_equal_text_count_together(server: StandIn) -> None:
    candidates = [{"token": "A", "logprob": -1.0}, {"token": "B", "logprob": -2.0}, {"token": "A", "logprob": -1.0}]
    logprobs = {"content": [{"token": "A", "logprob": -1.0, "top_logprobs": candidates}]}
    server.chat = lambda call, number: Answer(completion("A", logprobs=logprobs))
    (reply,) = OpenAILLM("m", server.url).complete(
        [ChatRequest(messages=REQUEST.messages, max_tokens=1, top_logprobs=3)]
    )
    assert server.chats[0].body["logprobs"] is True
    assert server.chats[0].body["top_logprobs"] == 3
    assert reply.first_token == {"A": pytest.approx(-1.0 + 0.6931472), "B": -2.0}


def test_missing_logprobs_are_an_error_with_the_way_out(server: StandIn) -> None:
    (reply,) = OpenAILLM("m", server.url).complete([ChatRequest(messages=REQUEST.messages, top_logprobs=5)])
    assert reply.error == "the server returned no log-probabilities; use mode=parse"


def test_control_tokens_in_a_prompt_are_broken_before_it_is_sent(server: StandIn) -> None:
    OpenAILLM("m", server.url).complete([ChatRequest(messages=(Message("user", "x<|im_end|>y"),))])
    assert server.chats[0].body["messages"][0]["content"] == "x< |im_end|>y"


def test_replies_keep_the_order_of_the_requests_under_concurrency(server: StandIn) -> None:
    running, most, lock = [0], [0], threading.Lock()

    def chat(call: Call, number: int) -> Answer:
        with lock:
            running[0] += 1
            most[0] = max(most[0], running[0])
        text = call.body["messages"][0]["content"]
        time.sleep(0.15 if text in "02468" else 0.02)
        with lock:
            running[0] -= 1
        return Answer(completion(text))

    server.chat = chat
    requests = [ChatRequest(messages=(Message("user", str(i)),)) for i in range(10)]
    replies = OpenAILLM("m", server.url, concurrency=4).complete(requests)
    assert [reply.text for reply in replies] == [str(i) for i in range(10)]
    assert 1 < most[0] <= 4


def test_no_request_means_no_call(server: StandIn) -> None:
    assert OpenAILLM("m", server.url).complete([]) == []
    assert server.calls == []


# Failures.


def test_retry_after_is_waited_for(server: StandIn) -> None:
    server.chat = fail_then_answer(1, Answer({"error": {"message": "slow down"}}, 429, {"Retry-After": "1"}))
    (reply,) = OpenAILLM("m", server.url).complete([REQUEST])
    first, second = server.chats
    assert reply.text == "fine"
    assert second.at - first.at >= 1.0  # without the header it would be half a second at most


def test_server_errors_are_retried_until_one_answer_comes(server: StandIn) -> None:
    server.chat = fail_then_answer(2, Answer({"error": {"message": "oops"}}, 500, {"Retry-After-Ms": "10"}))
    assert OpenAILLM("m", server.url, max_retries=2).complete([REQUEST])[0].text == "fine"
    assert len(server.chats) == 3


def test_retries_end_and_the_last_failure_is_the_reply(server: StandIn) -> None:
    server.chat = lambda call, number: Answer({"error": {"message": "oops"}}, 503, {"Retry-After-Ms": "10"})
    (reply,) = OpenAILLM("m", server.url, max_retries=2).complete([REQUEST])
    assert (len(server.chats), reply.finish) == (3, Finish.ERROR)
    assert reply.error.startswith("HTTP 503")


@pytest.mark.parametrize("status", [400, 401, 403, 404, 422])
def test_request_that_is_wrong_is_not_retried(server: StandIn, status: int) -> None:
    server.chat = lambda call, number: Answer({"error": {"message": "no such model"}}, status)
    (reply,) = OpenAILLM("m", server.url).complete([REQUEST])
    assert len(server.chats) == 1
    assert reply.error.startswith(f"HTTP {status}")
    assert "no such model" in reply.error


def test_time_out_is_retried_and_then_an_error(server: StandIn) -> None:
    server.chat = lambda call, number: Answer(completion(), delay_seconds=1.0)
    (reply,) = OpenAILLM("m", server.url, timeout_seconds=0.2, max_retries=1).complete([REQUEST])
    deadline = time.monotonic() + 10
    while len(server.chats) < 2 and time.monotonic() < deadline:  # a busy machine may take in the last one late
        time.sleep(0.01)
    assert (reply.error, len(server.chats)) == ("no answer within 0.2 s", 2)


def test_dropped_connection_is_retried(server: StandIn) -> None:
    server.chat = fail_then_answer(1, Answer(drop=True))
    assert OpenAILLM("m", server.url).complete([REQUEST])[0].text == "fine"
    assert len(server.chats) == 2


def test_answer_cut_off_in_the_middle_is_retried(server: StandIn) -> None:
    server.chat = fail_then_answer(
        1, Answer('{"choices": [', headers={"Content-Length": "500", "Connection": "close"})
    )
    assert OpenAILLM("m", server.url, timeout_seconds=2.0).complete([REQUEST])[0].text == "fine"


def test_server_that_is_not_there_is_an_error_reply(server: StandIn) -> None:
    url = server.url
    server.close()
    (reply,) = OpenAILLM("m", url, max_retries=0).complete([REQUEST])
    assert reply.finish is Finish.ERROR
    assert reply.error.startswith("connection failed")


@pytest.mark.parametrize(
    "body",
    ["{broken", "<html>busy</html>", "", [], {}, {"choices": []}, {"choices": [{"message": "text"}]}, None, 3],
)
def test_malformed_answer_is_an_error_reply(server: StandIn, body: object) -> None:
    server.chat = lambda call, number: Answer(body)
    (reply,) = OpenAILLM("m", server.url, max_retries=0).complete([REQUEST])
    assert reply.finish is Finish.ERROR
    assert reply.error
    assert len(server.chats) == 1


@pytest.mark.parametrize(
    "body",
    ['{"choices": [{"mess', "<html>busy</html>", {"choices": []}, {"error": {"message": "overloaded"}}, []],
)
def test_what_is_no_answer_is_asked_again_like_a_failure_of_the_server(server: StandIn, body: object) -> None:
    good = server.chat
    server.chat = lambda call, number: Answer(body) if number == 1 else good(call, number)
    (reply,) = OpenAILLM("m", server.url, max_retries=1).complete([REQUEST])
    assert (reply.text, len(server.chats)) == ("fine", 2)


@pytest.mark.parametrize(
    "usage",
    [
        None,
        "12",
        ["12"],
        {"prompt_tokens": "12"},
        {"prompt_tokens": {"n": 1}},
        {"prompt_tokens": 10**30},
        {"prompt_tokens": -12, "completion_tokens": 1.5},
        {"prompt_tokens": True, "completion_tokens": None},
    ],
)
def test_odd_usage_costs_nothing_and_keeps_the_reply(server: StandIn, tmp_path: Path, usage: object) -> None:
    server.chat = lambda call, number: Answer(completion() | {"usage": usage})
    ledger = Ledger()
    cached = CachedLLM(MeteredLLM(OpenAILLM("m", server.url), ledger, "judge"), tmp_path / "replies.sqlite")
    (reply,) = cached.complete([REQUEST])
    cached.close()
    assert (reply.text, reply.prompt_tokens, reply.completion_tokens) == ("fine", 0, 0)


@pytest.mark.parametrize("status", [200, 400])
def test_deeply_nested_answer_is_an_error_reply(server: StandIn, status: int) -> None:
    server.chat = lambda call, number: Answer("[" * 200_000, status)
    (reply,) = OpenAILLM("m", server.url).complete([REQUEST])
    assert reply.finish is Finish.ERROR


def test_reply_that_a_filter_stopped_is_an_error_that_was_paid_for(server: StandIn) -> None:
    server.chat = lambda call, number: Answer(completion("I would", "content_filter"))
    (reply,) = OpenAILLM("m", server.url).complete([REQUEST])
    assert (reply.finish, reply.text, reply.completion_tokens) == (Finish.ERROR, "", 2)
    assert "content filter" in reply.error


def test_error_reported_with_status_200_is_an_error(server: StandIn) -> None:
    server.chat = lambda call, number: Answer({"error": {"message": "upstream is down"}})
    assert "upstream is down" in OpenAILLM("m", server.url).complete([REQUEST])[0].error


def test_redirect_is_not_followed(server: StandIn) -> None:
    server.chat = lambda call, number: Answer("", 307, {"Location": server.url.replace("/v1", "/elsewhere")})
    (reply,) = OpenAILLM("m", server.url).complete([REQUEST])
    assert reply.error.startswith("HTTP 307")
    assert len(server.calls) == 1


def test_one_failure_does_not_touch_the_other_requests(server: StandIn) -> None:
    def chat(call: Call, number: int) -> Answer:
        bad = call.body["messages"][0]["content"] == "bad"
        return Answer({"error": {"message": "no"}}, 400) if bad else Answer(completion())

    server.chat = chat
    requests = [ChatRequest(messages=(Message("user", text),)) for text in ("good", "bad", "good")]
    replies = OpenAILLM("m", server.url).complete(requests)
    assert [reply.finish for reply in replies] == [Finish.STOP, Finish.ERROR, Finish.STOP]


# Streaming, slots and pauses.


def asks(*texts: str) -> list[ChatRequest]:
    return [ChatRequest(messages=(Message("user", text),)) for text in texts]


def content(call: Call) -> str:
    return str(call.body["messages"][0]["content"])


def test_reply_is_handed_out_while_another_is_still_awaited(server: StandIn) -> None:
    release = threading.Event()

    def chat(call: Call, number: int) -> Answer:
        if content(call) == "slow":
            assert release.wait(timeout=30)
        return Answer(completion(content(call)))

    server.chat = chat
    stream = OpenAILLM("m", server.url).complete_each(asks("slow", "fast"))
    assert [(index, reply.text) for index, reply in [next(stream)]] == [(1, "fast")]
    release.set()
    assert [(index, reply.text) for index, reply in stream] == [(0, "slow")]


def test_request_is_taken_only_when_it_is_about_to_be_sent(server: StandIn) -> None:
    """Two slots: when a request is taken, one other at most has not arrived yet."""
    arrived: list[int] = []
    unsettled: list[int] = []

    def requests() -> Iterator[ChatRequest]:
        for number, request in enumerate(asks(*"abcdefgh")):
            unsettled.append(number - len(arrived))
            yield request

    llm = OpenAILLM("m", server.url, concurrency=2)
    assert len(list(llm.complete_each(requests(), lambda index, reply: arrived.append(index)))) == 8
    assert (len(unsettled), max(unsettled)) == (8, 1)


def test_concurrency_holds_for_all_callers_together(server: StandIn) -> None:
    running, most, lock = [0], [0], threading.Lock()

    def chat(call: Call, number: int) -> Answer:
        with lock:
            running[0] += 1
            most[0] = max(most[0], running[0])
        time.sleep(0.01)
        with lock:
            running[0] -= 1
        return Answer(completion(content(call)))

    server.chat = chat
    llm = OpenAILLM("m", server.url, concurrency=3)
    with ThreadPoolExecutor(6) as pool:
        futures = [pool.submit(llm.complete, asks(*(f"{caller}{i}" for i in range(5)))) for caller in "abcdef"]
        assert [len(future.result(timeout=60)) for future in futures] == [5] * 6
    assert most[0] == 3


def test_error_in_the_source_of_requests_leaves_the_client_usable(server: StandIn) -> None:
    def requests() -> Iterator[ChatRequest]:
        yield REQUEST
        raise UsageError("no more")

    llm = OpenAILLM("m", server.url, concurrency=1)
    for _ in range(3):
        with pytest.raises(UsageError, match="no more"):
            list(llm.complete_each(requests()))
    assert llm.complete([REQUEST])[0].text == "fine"


def test_retry_after_zero_means_at_once(server: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("prbench.backends.llm.servers.FIRST_SECONDS", 1000.0)  # a wait of our own would never end
    server.chat = fail_then_answer(2, Answer({"error": {"message": "slow down"}}, 429, {"Retry-After": "0"}))
    assert OpenAILLM("m", server.url).complete([REQUEST])[0].text == "fine"


def test_server_that_asks_for_too_long_a_wait_is_not_waited_for(server: StandIn) -> None:
    server.chat = lambda call, number: Answer({"error": {"message": "quota"}}, 429, {"Retry-After": "3600"})
    assert OpenAILLM("m", server.url).complete([REQUEST])[0].error.startswith("HTTP 429")
    assert len(server.chats) == 1


def test_busy_server_holds_back_the_other_threads_as_well(server: StandIn) -> None:
    """The first of two is told to wait a second; the other, which follows it, is not sent before that."""

    def chat(call: Call, number: int) -> Answer:
        return (
            Answer({"error": {"message": "busy"}}, 429, {"Retry-After": "1"}) if number == 1 else Answer(completion())
        )

    server.chat = chat
    llm = OpenAILLM("m", server.url, concurrency=2)
    first, second = threading.Event(), asks("second")[0]

    def requests() -> Iterator[ChatRequest]:
        yield asks("first")[0]
        deadline = time.monotonic() + 30
        while not llm._pace._not_before and time.monotonic() < deadline:
            time.sleep(0.005)
        first.set()
        yield second

    list(llm.complete_each(requests()))
    assert first.is_set()
    assert min(call.at for call in server.chats[1:]) - server.chats[0].at >= 1.0


def test_retries_are_settable_by_name(server: StandIn) -> None:
    server.chat = lambda call, number: Answer({"error": {"message": "oops"}}, 500, {"Retry-After-Ms": "1"})
    load_llm(f"openai:m@{server.url}", retries=1).complete([REQUEST])
    load_llm(f"openai:m@{server.url}", retries=0).complete([REQUEST])
    assert len(server.chats) == 2 + 1
    with pytest.raises(UsageError, match="-1 retries cannot be"):
        load_llm(f"openai:m@{server.url}", retries=-1)


def test_ctrl_c_keeps_the_replies_in_flight_and_sends_nothing_new(server: StandIn, tmp_path: Path) -> None:
    release = threading.Event()

    def chat(call: Call, number: int) -> Answer:
        assert release.wait(timeout=30)
        return Answer(completion(content(call)))

    def requests() -> Iterator[ChatRequest]:
        yield from asks("a", "b")
        release.set()  # both are in flight, and the user has had enough
        raise KeyboardInterrupt

    llm = OpenAILLM("m", server.url, concurrency=4)
    llm.complete(asks("one", "two", "three", "four"))  # the server is quick, and may get four at once
    before = len(server.chats)
    server.chat = chat
    told: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        list(llm.complete_each(requests(), lambda index, reply: told.append(reply.text)))
    assert sorted(told) == ["a", "b"]
    assert len(server.chats) - before == 2


def test_stream_that_nobody_reads_on_still_commits_what_is_in_flight(server: StandIn, tmp_path: Path) -> None:
    """The first reply is taken, then the stream is dropped while the second is under way."""
    release = threading.Event()

    def chat(call: Call, number: int) -> Answer:
        if content(call) == "slow":
            assert release.wait(timeout=30)
        return Answer(completion(content(call)))

    server.chat = chat
    ledger = Ledger()
    llm = OpenAILLM("m", server.url, concurrency=2)
    cached = CachedLLM(MeteredLLM(llm, ledger, "judge"), tmp_path / "replies.sqlite")
    stream = cached.complete_each(asks("slow", "fast", "never sent", "nor this"))
    assert next(stream)[1].text == "fast"
    release.set()
    stream.close()
    assert ledger.total().unanswered == 0
    assert cached.known(asks("slow", "fast")) == [True, True]
    assert len(server.chats) <= 3  # the slot of the first reply may have been used again before the stream was dropped


def test_waiting_for_a_retry_ends_when_the_stream_is_dropped(server: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("prbench.backends.llm.servers.FIRST_SECONDS", 100.0)

    def chat(call: Call, number: int) -> Answer:
        is_bad = content(call) == "bad"
        return Answer({"error": {"message": "oops"}}, 500) if is_bad else Answer(completion())

    server.chat = chat
    told: list[tuple[int, str]] = []
    llm = OpenAILLM("m", server.url, concurrency=2)
    stream = llm.complete_each(asks("bad", "good"), lambda index, reply: told.append((index, reply.error[:8])))
    next(stream)
    stream.close()
    assert sorted(told)[1] == (1, "")
    assert sorted(told)[0] in ((0, "HTTP 500"), (0, "stopped "))


# Structured replies.

SCHEMA = {"type": "object", "properties": {"pick": {"enum": ["A", "B"]}}, "required": ["pick"]}
STRUCTURED = ChatRequest(messages=REQUEST.messages, json_schema=SCHEMA)


def refuse_structure(status: int, message: str, *refused: str) -> Callable[[Call, int], Answer]:
    def chat(call: Call, number: int) -> Answer:
        asked = call.body.get("response_format", {}).get("type", "text")
        return Answer({"error": {"message": message}}, status) if asked in refused else Answer(completion(asked))

    return chat


@pytest.mark.parametrize(
    "status,message",
    [
        (400, "'response_format.type' must be 'text' or 'json_object'"),
        (400, "json_schema is not supported by this model"),
        (404, "This model does not exist with response_format"),
        (422, "body -> response_format: extra fields not permitted"),
        (501, "Failed to initialise the grammar"),
    ],
)
def test_refused_schema_falls_back_to_a_json_object_and_is_said_once(
    server: StandIn, caplog: pytest.LogCaptureFixture, status: int, message: str
) -> None:
    server.chat = refuse_structure(status, message, "json_schema")
    llm = OpenAILLM("m", server.url, concurrency=1)
    with caplog.at_level(logging.WARNING, logger="prbench"):
        replies = llm.complete([STRUCTURED, STRUCTURED])
    assert [reply.text for reply in replies] == ["json_object"] * 2
    sent = [call.body["response_format"]["type"] for call in server.chats]
    assert sent == ["json_schema", "json_object", "json_object"]
    (line,) = [record.message for record in caplog.records]
    assert line.startswith(f"{llm.name} refuses json_schema: json_object is asked for, from here on (HTTP {status}: ")
    assert message in line


@pytest.mark.parametrize(
    "status,body",
    [
        (422, {"detail": [{"loc": ["body", "response_format"], "msg": "extra fields not permitted"}]}),
        (400, {"error": "response_format is bad"}),
        (400, {"message": "response_format is bad"}),
        (400, "response_format json_schema not supported"),
    ],
)
def test_schema_refused_in_another_form_falls_back_as_well(server: StandIn, status: int, body: object) -> None:
    def chat(call: Call, number: int) -> Answer:
        asked = call.body["response_format"]["type"]
        return Answer(body, status) if asked == "json_schema" else Answer(completion(asked))

    server.chat = chat
    assert OpenAILLM("m", server.url).complete([STRUCTURED])[0].text == "json_object"


def test_a_request_that_is_repeated_in_an_error_is_not_taken_for_its_reason(server: StandIn) -> None:
    def chat(call: Call, number: int) -> Answer:
        return Answer({"detail": [{"msg": "too long", "input": "x" * 500, "body": call.body}]}, 422)

    server.chat = chat
    (reply,) = OpenAILLM("m", server.url).complete([STRUCTURED])
    assert reply.finish is Finish.ERROR
    assert len(server.chats) == 1


@pytest.mark.parametrize("body", [{"detail": "no such adapter"}, {"error": "no such adapter"}, "no such adapter"])
def test_the_servers_own_words_are_the_error_masked_and_cut(
    server: StandIn, monkeypatch: pytest.MonkeyPatch, body: Any
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    said = json.loads(json.dumps(body).replace("adapter", f"adapter {KEY} " + "and so on " * 99))
    server.chat = lambda call, number: Answer(said, 404)
    (reply,) = OpenAILLM("m", server.url).complete([REQUEST])
    assert reply.error.startswith("HTTP 404: ")
    assert "no such adapter [key] and so on" in reply.error
    assert len(reply.error) <= 400


def test_server_that_refuses_both_gets_free_text_also_under_concurrency(
    server: StandIn, caplog: pytest.LogCaptureFixture
) -> None:
    server.chat = refuse_structure(400, "response_format is unknown", "json_schema", "json_object")
    with caplog.at_level(logging.WARNING, logger="prbench"):
        replies = OpenAILLM("m", server.url, concurrency=8).complete([STRUCTURED] * 12)
    assert [reply.text for reply in replies] == ["text"] * 12
    assert [record.message.split(" refuses ")[1].split(" is asked")[0] for record in caplog.records] == [
        "json_schema: json_object",
        "json_object: text",
    ]


def test_free_text_is_never_asked_for_json(server: StandIn) -> None:
    OpenAILLM("m", server.url).complete([REQUEST])
    assert "response_format" not in server.chats[0].body


@pytest.mark.parametrize(
    "status,message", [(400, "the prompt is too long"), (500, "response_format"), (401, "grammar")]
)
def test_other_complaints_do_not_loosen_the_structure(server: StandIn, status: int, message: str) -> None:
    server.chat = lambda call, number: Answer({"error": {"message": message}}, status, {"Retry-After": "0"})
    (reply,) = OpenAILLM("m", server.url, max_retries=1).complete([STRUCTURED])
    assert reply.error.startswith(f"HTTP {status}")
    assert {call.body["response_format"]["type"] for call in server.chats} == {"json_schema"}


# Parameters that newer APIs refuse.


def refuse(parameter: str, message: str) -> Callable[[Call, int], Answer]:
    def chat(call: Call, number: int) -> Answer:
        if parameter in call.body:
            return Answer({"error": {"message": message, "param": parameter, "code": "unsupported"}}, 400)
        return Answer(completion())

    return chat


def test_refused_max_tokens_is_sent_by_its_new_name_and_said_once(
    server: StandIn, caplog: pytest.LogCaptureFixture
) -> None:
    server.chat = refuse(
        "max_tokens",
        "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.",
    )
    llm = OpenAILLM("m", server.url, concurrency=1)
    with caplog.at_level(logging.WARNING, logger="prbench"):
        replies = llm.complete([REQUEST, REQUEST, REQUEST])
    assert [reply.text for reply in replies] == ["fine"] * 3
    assert [call.body.get("max_completion_tokens") for call in server.chats] == [None, 7, 7, 7]
    assert [record.message for record in caplog.records] == [
        f"{llm.name} refuses max_tokens: max_completion_tokens is sent instead, from here on."
    ]


def test_refused_temperature_is_dropped_and_said_once_also_under_concurrency(
    server: StandIn, caplog: pytest.LogCaptureFixture
) -> None:
    server.chat = refuse("temperature", "Unsupported value: 'temperature' does not support 0 with this model.")
    with caplog.at_level(logging.WARNING, logger="prbench"):
        replies = OpenAILLM("m", server.url, concurrency=8).complete([REQUEST] * 8)
    assert [reply.text for reply in replies] == ["fine"] * 8
    assert len([record for record in caplog.records if "refuses temperature" in record.message]) == 1
    assert "temperature" not in server.chats[-1].body


def test_both_may_be_refused(server: StandIn) -> None:
    def chat(call: Call, number: int) -> Answer:
        for parameter in ("max_tokens", "temperature"):
            if parameter in call.body:
                return Answer({"error": {"message": f"{parameter} is not supported", "param": parameter}}, 400)
        return Answer(completion())

    server.chat = chat
    assert OpenAILLM("m", server.url).complete([REQUEST])[0].text == "fine"
    assert len(server.chats) == 3


def test_complaint_about_the_size_of_max_tokens_is_an_error_not_a_switch(server: StandIn) -> None:
    text = "'max_tokens' or 'max_completion_tokens' is too large: 5000. The maximum context length is 4096 tokens."
    server.chat = lambda call, number: Answer({"error": {"message": text, "param": "max_tokens"}}, 400)
    (reply,) = OpenAILLM("m", server.url).complete([REQUEST])
    assert "too large" in reply.error
    assert len(server.chats) == 1


def test_parameter_that_was_not_sent_is_not_taken_for_refused() -> None:
    assert refused_parameter(None, "temperature is not supported", {"max_tokens": 1}) == ""
    assert refused_parameter(None, "temperature is not supported", {"temperature": 0}) == "temperature"


# Keys and addresses.


def test_key_never_stands_in_an_error_or_a_name(server: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    for status in (401, 200):
        server.chat = lambda call, number, status=status: Answer(
            {"error": {"message": f"Incorrect API key provided: {KEY}"}}, status
        )
        llm = OpenAILLM("m", server.url)
        (reply,) = llm.complete([REQUEST])
        assert server.chats[-1].headers["authorization"] == f"Bearer {KEY}"
        assert "[key]" in reply.error
        assert KEY not in reply.error + llm.name + llm.fingerprint


def test_key_that_the_server_repeats_reaches_no_file_and_no_log(
    server: StandIn, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """In an error body, in a page that is no JSON, in the reply itself, and in a refusal that is logged."""
    monkeypatch.setenv("PRBENCH_API_KEY", KEY)

    def chat(call: Call, number: int) -> Answer:
        seen = call.headers["authorization"]
        match content(call):
            case "error":
                return Answer({"error": {"message": f"bad key: {seen}", "code": KEY}}, 403)
            case "html":
                return Answer(f"<html>{KEY}</html>")
            case "refused" if "response_format" in call.body:
                return Answer({"error": {"message": f"no response_format for {KEY}"}}, 400)
            case _:
                return Answer(completion(f"Your key is {KEY}, is it not?"))

    server.chat = chat
    llm = OpenAILLM("m", server.url)
    cached = CachedLLM(MeteredLLM(llm, Ledger(), "judge"), tmp_path / "replies.sqlite")
    requests = [replace(request, json_schema=SCHEMA) for request in asks("error", "html", "refused", "reply")]
    with caplog.at_level(logging.DEBUG):
        replies = cached.complete(requests)
    assert [reply.finish for reply in replies] == [Finish.ERROR, Finish.ERROR, Finish.STOP, Finish.STOP]
    assert replies[3].text == "Your key is [key], is it not?"
    assert "[key]" in replies[0].error
    shown = repr((replies, cached.fingerprint, cached.name, llm._server)) + caplog.text
    assert KEY not in shown
    cached.close()
    assert all(KEY.encode() not in path.read_bytes() for path in tmp_path.iterdir())


def test_own_variable_wins_over_the_general_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "general")
    monkeypatch.setenv("PRBENCH_API_KEY", "own")
    assert find_key("https://host.example/v1") == "own"


def test_key_of_one_host_goes_to_that_host_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRBENCH_API_KEY", "general")
    monkeypatch.setenv("PRBENCH_API_KEY_API_HOST_EXAMPLE", "of that host")
    assert find_key("https://api.host.example:8443/v1") == "of that host"
    assert find_key("https://host.example/v1") == "general"


def test_server_on_this_machine_needs_no_key_others_do(server: StandIn) -> None:
    assert OpenAILLM("m", server.url).complete([REQUEST])[0].text == "fine"
    with pytest.raises(UsageError, match=r"No key for https://host\.example/v1\. Set PRBENCH_API_KEY"):
        load_llm("openai:m@https://host.example/v1")


@pytest.mark.parametrize(
    "target,model,url",
    [
        ("gpt@http://127.0.0.1:8000/v1", "gpt", "http://127.0.0.1:8000/v1"),
        ("org/name@https://h.example/v1/", "org/name", "https://h.example/v1"),
        ("@cf/org/name@https://h.example/v1", "@cf/org/name", "https://h.example/v1"),
    ],
)
def test_spec_is_split_into_model_and_address(target: str, model: str, url: str) -> None:
    assert parse_target(target) == (model, url)


@pytest.mark.parametrize("target", ["gpt", "gpt@", "gpt@host/v1", "@http://127.0.0.1/v1"])
def test_spec_without_model_or_address_is_refused(target: str) -> None:
    with pytest.raises(UsageError, match="Write openai:<model>@<base url>"):
        parse_target(target)


@pytest.mark.parametrize("url", [f"https://me:{KEY}@h.example/v1", f"https://h.example/v1?key={KEY}"])
def test_address_that_carries_a_secret_is_refused_without_repeating_it(url: str) -> None:
    with pytest.raises(UsageError, match="Put the key into PRBENCH_API_KEY") as caught:
        parse_target(f"m@{url}")
    assert KEY not in str(caught.value)


# Window and token counts.


def test_server_that_tells_nothing_has_no_window_and_bytes_as_upper_bound(server: StandIn) -> None:
    llm = OpenAILLM("m", server.url)
    assert llm.window is None
    assert llm.count_tokens([Message("system", "abc"), Message("user", "né")]) == 3 + 32 + 3 + 32
    probes = len(server.calls)
    assert llm.window is None
    llm.count_tokens([Message("user", "again")])
    assert len(server.calls) == probes  # asked once


def test_given_window_is_not_asked_for(server: StandIn) -> None:
    assert OpenAILLM("m", server.url, window=123).window == 123
    assert server.calls == []


def test_vllm_tells_window_and_tokens(server: StandIn) -> None:
    server.pages["/v1/models"] = lambda body: {
        "data": [{"id": "x", "max_model_len": 1}, {"id": "m", "max_model_len": 99}]
    }
    server.pages["/tokenize"] = lambda body: {
        "count": len(body["messages"][0]["content"].split()),
        "max_model_len": 99,
    }
    llm = OpenAILLM("m", server.url)
    assert llm.window == 99
    assert llm.count_tokens([Message("user", "four words are here")]) == 4


def test_adapter_without_its_own_length_has_no_known_window(server: StandIn) -> None:
    server.pages["/v1/models"] = lambda body: {"data": [{"id": "m", "max_model_len": None}]}
    assert OpenAILLM("m", server.url).window is None


def test_body_that_is_no_completion_says_so() -> None:
    assert "no chat completion" in read_body({"object": "list"}, wants_logprobs=False).error
