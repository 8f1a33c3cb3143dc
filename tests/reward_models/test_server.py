import json
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

pytest.importorskip("httpx", reason="needs pip install 'prbench[serve]'")

from prbench.errors import UsageError
from prbench.reward_models import ModelSettings, load_reward_model
from prbench.reward_models.dialects import DialectReward
from prbench.reward_models.requests import Requests
from prbench.reward_models.server import PrbenchServerReward
from prbench.schema import Problem, RewardInput, Score

Answer = tuple[int, Any]


class StandIn:
    """A server that answers by a function and keeps what it was asked."""

    def __init__(self, answer: Callable[[str, Any], Answer | None]) -> None:
        self.asked: list[tuple[str, Any]] = []
        self.tokens: set[str | None] = set()
        stand_in = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.reply(None)

            def do_POST(self) -> None:
                self.reply(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

            def reply(self, body: Any) -> None:
                stand_in.asked.append((self.path, body))
                stand_in.tokens.add(self.headers["Authorization"])
                answered = answer(self.path, body)
                if answered is None:
                    self.close_connection = True  # hang up without a word
                    return
                status, content = answered
                data = content.encode() if isinstance(content, str) else json.dumps(content).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    def count(self, path: str) -> int:
        return sum(asked == path for asked, _ in self.asked)


@pytest.fixture
def start() -> Iterator[Callable[[Callable[[str, Any], Answer | None]], StandIn]]:
    started: list[StandIn] = []

    def begin(answer: Callable[[str, Any], Answer | None]) -> StandIn:
        started.append(StandIn(answer))
        return started[-1]

    yield begin
    for each in started:
        each.server.shutdown()
        each.server.server_close()


Start = Callable[[Callable[[str, Any], Answer | None]], StandIn]
SENDER = {"model": "classifier:org/tiny", "template_hash": "abc123"}
INPUTS = [RewardInput(question="Q?", response="x" * length) for length in range(1, 8)]


def serve(path: str, body: Any) -> Answer:
    """Answer as a reward server does, with the length of the response as score."""
    if path == "/ready":
        return 200, SENDER
    rows = [{"value": float(len(each["response"])), "problem": "", "detail": ""} for each in body["inputs"]]
    return 200, {**SENDER, "scores": rows}


def client(url: str, *, batch_size: int = 3, tries: int = 3) -> PrbenchServerReward:
    requests = Requests(url, timeout_seconds=5, tries=tries, first_wait_seconds=0.01)
    return PrbenchServerReward(requests, ModelSettings(batch_size=batch_size))


def test_scores_come_back_in_order_and_in_batches(start: Start) -> None:
    server = start(serve)
    model = client(server.url)
    assert [score.value for score in model.score(INPUTS)] == [1, 2, 3, 4, 5, 6, 7]
    assert server.count("/score") == 3
    assert model.identity == {"api": "prbench", **SENDER}
    _, body = next(asked for asked in server.asked if asked[0] == "/score")
    assert set(body["inputs"][0]) == {"question", "user", "response"}


@pytest.mark.parametrize("changed", [{"model": "classifier:other"}, {"template_hash": "fff"}])
def test_reply_of_another_model_or_template_is_refused(start: Start, changed: dict[str, str]) -> None:
    def other(path: str, body: Any) -> Answer:
        status, content = serve(path, body)
        return status, content if path == "/ready" else {**content, **changed}

    model = client(start(other).url)
    with pytest.raises(UsageError, match="but the run began with"):
        model.score(INPUTS[:1])


@pytest.mark.parametrize("trouble", [(429, "busy"), (503, "starting"), None])
def test_busy_server_and_dropped_connection_are_tried_again(start: Start, trouble: Answer | None) -> None:
    failures = [trouble, trouble]

    def flaky(path: str, body: Any) -> Answer | None:
        if path == "/score" and failures:
            return failures.pop()
        return serve(path, body)

    server = start(flaky)
    assert client(server.url).score(INPUTS[:1]) == [Score(value=1.0)]
    assert server.count("/score") == 3


def test_request_that_keeps_failing_is_a_failed_score_for_each_of_its_inputs_and_for_no_other(start: Start) -> None:
    def half(path: str, body: Any) -> Answer:
        if path == "/score" and len(body["inputs"][0]["response"]) == 1:
            return 503, "no room"
        return serve(path, body)

    server = start(half)
    scores = client(server.url, batch_size=4).score(INPUTS)
    assert [score.problem for score in scores] == [Problem.FAILED] * 4 + [Problem.NONE] * 3
    assert scores[0].detail == "HTTP 503: no room"
    assert server.count("/score") == 3 + 1


@pytest.mark.parametrize(
    "answer",
    [
        (400, "bad request"),
        (200, {**SENDER, "scores": []}),
        (200, {**SENDER, "scores": [{"value": "high"}]}),
        (200, {**SENDER, "scores": [{}]}),
        (200, {**SENDER, "scores": [{"value": None, "problem": "no such problem"}]}),
    ],
)
def test_unusable_reply_is_a_failed_score_and_is_not_asked_again(start: Start, answer: Answer) -> None:
    server = start(lambda path, body: (200, SENDER) if path == "/ready" else answer)
    (score,) = client(server.url).score(INPUTS[:1])
    assert (score.value, score.problem) == (None, Problem.FAILED)
    assert score.detail
    assert server.count("/score") == 1


def test_a_reply_that_is_no_json_is_asked_for_again(start: Start) -> None:
    broken = iter([(200, "<html>busy</html>"), (200, "not json")])

    def answer(path: str, body: Any) -> Answer:
        return serve(path, body) if path == "/ready" else next(broken, None) or serve(path, body)

    server = start(answer)
    (score,) = client(server.url).score(INPUTS[:1])
    assert (score.problem, server.count("/score")) == (Problem.NONE, 3)


def test_problems_of_the_server_are_passed_on(start: Start) -> None:
    rows = [
        {"value": None, "problem": "too_long", "detail": "900 tokens"},
        {"value": None, "problem": "", "detail": ""},
        {"value": float("nan"), "problem": "", "detail": ""},
    ]
    server = start(lambda path, body: (200, SENDER if path == "/ready" else {**SENDER, "scores": rows}))
    first, second, third = client(server.url).score(INPUTS[:3])
    assert (first.problem, first.detail) == (Problem.TOO_LONG, "900 tokens")
    assert second.problem is Problem.FAILED
    assert (third.problem, third.detail) == (Problem.FAILED, "not a finite number")


def test_server_that_can_tell_what_fits_is_asked(start: Start) -> None:
    def fitting(path: str, body: Any) -> Answer:
        if path == "/ready":
            return 200, {**SENDER, "fits": True}
        if path == "/fits":
            return 200, {**SENDER, "fits": [len(each["response"]) < 4 for each in body["inputs"]]}
        return serve(path, body)

    fits = client(start(fitting).url).fits
    assert fits is not None
    assert (fits(INPUTS[0]), fits(INPUTS[6])) == (True, False)
    assert client(start(serve).url).fits is None


def test_token_is_sent_and_never_shown(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRBENCH_SERVER_TOKEN", "s3cret")
    server = start(lambda path, body: (401, "who are you?"))
    with pytest.raises(UsageError, match="Set PRBENCH_SERVER_TOKEN") as caught:
        client(server.url)
    assert server.tokens == {"Bearer s3cret"}
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    "spec,fact",
    [
        ("server:127.0.0.1:8000", "is not an address"),
        ("server:http://127.0.0.1:9?api=rank", "Give one of: prbench, classify, pooling, score, rerank"),
        ("server:http://127.0.0.1:9?api=classify&logit=one", "Give a whole number of at least 0"),
    ],
)
def test_wrong_server_spec_is_refused(spec: str, fact: str) -> None:
    with pytest.raises(UsageError, match=fact):
        load_reward_model(spec, ModelSettings())


def test_server_that_is_not_there_or_is_something_else_is_refused_at_the_start(start: Start) -> None:
    with pytest.raises(UsageError, match=r"is not ready: .*Start it"):
        client("http://127.0.0.1:9", tries=1)
    with pytest.raises(UsageError, match="api=classify"):
        client(start(lambda path, body: (200, {"status": "fine"})).url)


def test_an_address_that_answers_with_a_page_is_given_up_soon(start: Start) -> None:
    """With the waits of a real run, which has two minutes of patience for a server that stumbles."""
    server = start(lambda path, body: (200, "<html>Welcome</html>"))
    began = time.monotonic()
    with pytest.raises(UsageError, match=r"is not ready: GET /ready: the reply is not JSON.*correct the address"):
        load_reward_model(f"server:{server.url}", ModelSettings())
    assert time.monotonic() - began < 8
    assert server.count("/ready") == 3


def test_option_of_other_servers_is_refused_by_ours(start: Start) -> None:
    with pytest.raises(UsageError, match="logit is for servers of others"):
        load_reward_model(f"server:{start(serve).url}?logit=1", ModelSettings())


class Vllm:
    """Answers as a vLLM server: one logit, the length of the response less 3; at most 40 characters in all."""

    def __init__(self, shape: str, models: tuple[str, ...] = ("org/rm",)) -> None:
        self.shape = shape
        self.models = models

    def __call__(self, path: str, body: Any) -> Answer:
        if path == "/v1/models":
            return 200, {"data": [{"id": name, "max_model_len": 40} for name in self.models]}
        size = sum(len(message["content"]) for message in body["messages"])
        if path == "/tokenize":
            return 200, {"count": size, "max_model_len": 40}
        if size > 40:
            return 400, {"error": {"message": "This model's maximum context length is 40 tokens."}}
        logit = float(len(body["messages"][-1]["content"]) - 3)
        match self.shape:
            case "classify":
                row: Any = {"index": 0, "label": "LABEL_0", "probs": [logit], "num_classes": 1}
            case "pooling":
                row = {"index": 0, "object": "pooling", "data": [logit]}
            case "tokens":
                row = {"index": 0, "object": "pooling", "data": [[9.0], [logit]]}
            case _:
                row = {"index": 0, "probs": [0.5, logit]}
        return 200, {"model": body["model"], "data": [row]}


@pytest.mark.parametrize("shape,api", [("classify", "classify"), ("pooling", "pooling"), ("tokens", "pooling")])
def test_vllm_gives_the_raw_logit_of_the_conversation(start: Start, shape: str, api: str) -> None:
    server = start(Vllm(shape))
    loaded = load_reward_model(f"server:{server.url}?api={api}", ModelSettings())
    assert isinstance(loaded.model, DialectReward)
    assert [score.value for score in loaded.model.score(INPUTS)] == [-2, -1, 0, 1, 2, 3, 4]
    bodies = [body for path, body in server.asked if path == f"/{api}"]
    assert len(bodies) == len(INPUTS)
    assert all(body["use_activation"] is False for body in bodies)
    assert [message["role"] for message in bodies[0]["messages"]] == ["user", "assistant"]
    assert loaded.identity["model"] == "org/rm"


def test_vllm_input_over_the_window_is_too_long_and_is_known_before(start: Start) -> None:
    loaded = load_reward_model(f"server:{start(Vllm('classify')).url}?api=classify", ModelSettings())
    long = RewardInput(question="Q?", response="x" * 50)
    assert isinstance(loaded.model, DialectReward)
    (score,) = loaded.model.score([long])
    assert score.problem is Problem.TOO_LONG
    assert loaded.fits is not None
    assert (loaded.fits(INPUTS[0]), loaded.fits(long)) == (True, False)


def test_vllm_with_several_logits_needs_an_index(start: Start) -> None:
    url = start(Vllm("two logits")).url
    loaded = load_reward_model(f"server:{url}?api=classify&logit=1", ModelSettings())
    assert isinstance(loaded.model, DialectReward)
    assert loaded.model.score(INPUTS[:1])[0].value == -2.0
    for option, fact in (("", "2 logits. Say which"), ("&logit=2", "no logit=2")):
        unclear = load_reward_model(f"server:{url}?api=classify{option}", ModelSettings())
        assert isinstance(unclear.model, DialectReward)
        with pytest.raises(UsageError, match=fact):
            unclear.model.score(INPUTS[:1])


def test_vllm_with_several_models_needs_a_name(start: Start) -> None:
    url = start(Vllm("classify", models=("org/a", "org/b"))).url
    with pytest.raises(UsageError, match=r"serves org/a, org/b.*model=NAME"):
        load_reward_model(f"server:{url}?api=classify", ModelSettings())
    loaded = load_reward_model(f"server:{url}?api=classify&model=org/b", ModelSettings())
    assert loaded.identity["model"] == "org/b"
