"""A running server: right answers, one line for what is wrong, and nothing lost when it ends."""

import json
import logging
import socket
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import MappingProxyType
from typing import Any

import pytest

from prbench.errors import UsageError
from prbench.reward_models import LoadedModel, ModelSettings, load_reward_model, wrap
from prbench.reward_models.fake import FakeReward
from prbench.schema import Comparison, Pick, Problem, RewardInput, Score
from prbench.serve.server import RewardServer
from prbench.serve.settings import ServeSettings

Start = Callable[..., Any]
ONE = {"question": "Q?", "context": "", "response": "four"}


def test_one_input_and_many_are_scored_in_order(start: Start, lengths: FakeReward) -> None:
    server = start(lengths)
    one = server.http.post("/score", json=ONE).json()
    assert one["scores"] == [{"value": 4.0, "problem": "", "detail": ""}]
    many = server.score("a", "bbb", "cc").json()
    assert [score["value"] for score in many["scores"]] == [1.0, 3.0, 2.0]


def test_every_reply_names_the_model_and_the_template(start: Start) -> None:
    class Templated:
        name = "mine"
        identity = MappingProxyType({"weights": "1"})
        template_hash = "abc"

        def score(self, inputs: Any) -> Any:
            return [1.0 for _ in inputs]

    server = start(Templated())
    ready = server.http.get("/ready").json()
    spec, _, digest = ready["model"].partition("#")
    assert (spec, len(digest), ready["template_hash"]) == ("mine", 12, "abc")
    for reply in (
        server.http.post("/score", json=ONE),
        server.http.post("/v1/score", json={"text_1": "q", "text_2": "r"}),
        server.http.post("/v1/rerank", json={"query": "q", "documents": ["r"]}),
        server.http.post("/fits", json={"inputs": [ONE]}),
    ):
        assert reply.status_code == 200
        assert (reply.json()["model"], reply.json()["template_hash"]) == (ready["model"], "abc")
    refused = server.http.post("/score", content=b"{")
    assert (refused.headers["x-prbench-model"], refused.headers["x-prbench-template-hash"]) == (ready["model"], "abc")


def test_other_weights_or_another_template_are_another_id(start: Start) -> None:
    def named(identity: str, template: str) -> str:
        model = FakeReward(lambda each: 0.0, name="same")
        model.identity = {"weights": identity}
        model.template_hash = template  # type: ignore[attr-defined]
        return str(start(model).http.get("/ready").json()["model"])

    assert named("1", "t") == named("1", "t")
    assert len({named("1", "t"), named("2", "t"), named("1", "u")}) == 3


def test_what_waits_while_a_batch_computes_is_one_batch_grouped_by_prefix(start: Start, slow: Any) -> None:
    server = start(slow)
    with ThreadPoolExecutor(8) as pool:
        first = pool.submit(server.score, "x")
        assert slow.began.acquire(timeout=30)
        later = []
        for number, context in enumerate(("me", "you", "me", "you", "me")):
            later.append(pool.submit(server.score, "y" * (number + 1), context=context))
            wait_until(server, "prbench_queue_inputs", number + 1)
        slow.go.set()
        values = [reply.result().json()["scores"][0]["value"] for reply in (first, *later)]
    assert values == [1.0, 1.0, 2.0, 3.0, 4.0, 5.0]
    assert [[each.context for each in batch] for batch in slow.batches] == [[""], ["me", "me", "me", "you", "you"]]


def wait_until(server: Any, metric: str, value: float) -> None:
    """Ask until the metric has the value; the test's own time limit ends it otherwise."""
    while server.metric(metric) != value:
        pass


def test_without_batching_every_input_is_a_call_of_its_own(start: Start, lengths: FakeReward) -> None:
    server = start(lengths, max_batch=1)
    assert [score["value"] for score in server.score("a", "bb", "ccc").json()["scores"]] == [1.0, 2.0, 3.0]
    assert lengths.calls == 3


def test_a_missing_reward_is_an_error_entry_and_never_a_number(start: Start) -> None:
    scores = {
        "none": Score(value=None, problem=Problem.TOO_LONG, detail="900 tokens"),
        "nan": Score(value=float("nan")),
        "fine": Score(value=0.5),
    }

    class Model:
        def score(self, inputs: Any) -> Any:
            return [scores[each.response] for each in inputs]

    def load() -> LoadedModel:
        return LoadedModel(spec="odd", kind="custom", model=Model())

    server = start(load)
    own = server.score("none", "nan", "fine").json()["scores"]
    assert own == [
        {"value": None, "problem": "too_long", "detail": "900 tokens"},
        {"value": None, "problem": "failed", "detail": "not a finite number"},
        {"value": 0.5, "problem": "", "detail": ""},
    ]
    pairs = server.http.post("/v1/score", json={"text_1": "q", "text_2": ["none", "fine"]}).json()["data"]
    error = {"type": "too_long", "message": "900 tokens"}
    assert pairs == [
        {"index": 0, "object": "error", "score": None, "error": error},
        {"index": 1, "object": "score", "score": 0.5},
    ]
    ranked = server.http.post("/v1/rerank", json={"query": "q", "documents": ["none", "fine"]}).json()
    assert [row["index"] for row in ranked["results"]] == [1]
    assert ranked["errors"] == [{"index": 0, "error": error}]


def test_rerank_puts_the_best_first_and_keeps_the_order_of_equals(start: Start, lengths: FakeReward) -> None:
    server = start(lengths)
    documents = ["aa", {"text": "bbbb"}, "c", "dd"]
    full = server.http.post("/v1/rerank", json={"query": "q", "documents": documents}).json()
    assert [(row["index"], row["relevance_score"]) for row in full["results"]] == [(1, 4), (0, 2), (3, 2), (2, 1)]
    assert full["results"][0]["document"] == {"text": "bbbb"}
    short = {"query": "q", "documents": documents, "top_n": 2, "return_documents": False, "model": "lengths"}
    assert server.http.post("/v1/rerank", json=short).json()["results"] == [
        {"index": 1, "relevance_score": 4.0},
        {"index": 0, "relevance_score": 2.0},
    ]


def test_v1_score_pairs_one_question_with_many_or_each_with_its_own(start: Start, lengths: FakeReward) -> None:
    server = start(lengths)
    server.http.post("/v1/score", json={"text_1": "q", "text_2": ["a", "b"], "context": "likes tea"})
    server.http.post("/v1/score", json={"text_1": ["q", "r"], "text_2": ["a", "b"]})
    asked = [(each.question, each.context, each.response) for each in lengths.inputs]
    assert asked == [("q", "likes tea", "a"), ("q", "likes tea", "b"), ("q", "", "a"), ("r", "", "b")]
    wrong = server.http.post("/v1/score", json={"text_1": ["q", "r"], "text_2": ["a"]})
    assert (wrong.status_code, "text_1 has 2 texts" in wrong.text) == (422, True)
    other = server.http.post("/v1/score", json={"model": "gpt", "text_1": "q", "text_2": "a"})
    assert other.status_code == 404


@pytest.mark.parametrize(
    "body,status,fact",
    [
        (b"", 400, "cannot be read as JSON"),
        (b"{bad", 400, "cannot be read as JSON"),
        (b'{"question": "\xff"}', 400, "cannot be read as JSON"),
        (b"[" * 100_000, 400, "cannot be read as JSON"),
        (b"7", 422, "object"),
        (b"{}", 422, "question: Field required"),
        (b'{"inputs": []}', 422, "inputs: List should have at least 1 item"),
        (b'{"inputs": [{"question": "q", "context": "c", "response": 5}]}', 422, "inputs.0.response"),
        (b'{"question": "q", "response": "r"}', 422, "say what is known of the user"),
        (b'{"question": "q", "context": "", "response": "r", "rubric": "x"}', 422, "rubric: Extra inputs"),
    ],
)
def test_a_malformed_body_gets_one_line(
    start: Start, lengths: FakeReward, body: bytes, status: int, fact: str
) -> None:
    server = start(lengths)
    reply = server.http.post("/score", content=body)
    assert (reply.status_code, reply.json()["error"]["code"]) == (status, status)
    message = reply.json()["error"]["message"]
    assert fact in message
    assert "\n" not in message
    assert lengths.calls == 0
    assert server.score("ok").status_code == 200


def test_what_is_too_large_is_refused_with_413(start: Start, lengths: FakeReward) -> None:
    server = start(lengths, max_inputs=2, max_characters=10, max_body_bytes=1000)
    assert server.score("a", "b").status_code == 200
    for reply, fact in (
        (server.score("a", "b", "c"), "3 inputs, and this server takes 2"),
        (server.score("a" * 11), "text of 11 characters"),
        (server.score("a" * 2000), "more than 1000 bytes"),
        (server.http.post("/score", content=iter([b" " * 600, b" " * 600])), "more than 1000 bytes"),
    ):
        assert reply.status_code == 413
        assert fact in reply.json()["error"]["message"]
    assert server.score("a").status_code == 200


def test_unknown_places_and_methods_get_the_same_form_of_error(start: Start, lengths: FakeReward) -> None:
    server = start(lengths)
    assert server.http.get("/nothing").json()["error"]["code"] == 404
    assert server.http.get("/score").json()["error"]["code"] == 405
    assert server.http.get("/docs").status_code == 404


def test_a_full_queue_answers_429_at_once_and_later_takes_more(start: Start, slow: Any) -> None:
    server = start(slow, max_queue=2)
    with ThreadPoolExecutor(4) as pool:
        computing = pool.submit(server.score, "a")
        assert slow.began.acquire(timeout=30)
        waiting = pool.submit(server.score, "b", "c")
        wait_until(server, "prbench_queue_inputs", 2)
        refused = server.score("d")  # answered while the model is still busy
        assert refused.status_code == 429
        assert int(refused.headers["Retry-After"]) >= 1
        slow.go.set()
        assert [reply.result().status_code for reply in (computing, waiting)] == [200, 200]
    assert server.score("d").json()["scores"][0]["value"] == 1.0
    assert server.metric('prbench_responses_total{code="429",endpoint="/score"}') == 1


def test_bodies_in_memory_are_bounded_as_well(start: Start, slow: Any) -> None:
    server = start(slow, max_body_bytes=1000)  # 32,000 bytes in all
    with ThreadPoolExecutor(40) as pool:
        replies = [pool.submit(server.score, "a" * 850) for _ in range(40)]
        while sum(reply.done() for reply in replies) < 4:  # sent away; the others wait for the model
            pass
        slow.go.set()
        codes = sorted(reply.result().status_code for reply in replies)
    assert set(codes) == {200, 429}
    assert codes.count(200) <= 36  # 32,000 bytes hold 35 bodies of about 910, and one more is on its way


def test_a_client_that_leaves_takes_its_inputs_with_it(start: Start, slow: Any) -> None:
    server = start(slow)
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(server.score, "a")
        assert slow.began.acquire(timeout=30)
        body = json.dumps({"inputs": [ONE, ONE]}).encode()
        with socket.create_connection(("127.0.0.1", int(server.url.rpartition(":")[2]))) as leaving:
            leaving.sendall(b"POST /score HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
            wait_until(server, "prbench_queue_inputs", 2)
        wait_until(server, "prbench_dropped_inputs_total", 2)
        assert server.metric("prbench_queue_inputs") == 0
        slow.go.set()
        assert first.result().status_code == 200
    assert [[each.response for each in batch] for batch in slow.batches] == [["a"]]


def test_an_error_of_the_model_fails_its_batch_and_the_server_lives_on(
    start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    def fragile(each: RewardInput) -> float:
        if each.response == "bad":
            raise RuntimeError("no kernel\nfor this shape")
        return 1.0

    server = start(FakeReward(fragile))
    with caplog.at_level(logging.CRITICAL):
        reply = server.score("good", "bad")
    assert reply.status_code == 500
    assert reply.json()["error"]["message"].endswith("RuntimeError: no kernel for this shape")
    assert server.score("good").json()["scores"][0]["value"] == 1.0
    assert server.metric("prbench_model_errors_total") == 1


def test_a_model_that_loses_a_score_fails_rather_than_shifting_the_rest(start: Start) -> None:
    class Short:
        def score(self, inputs: Any) -> Any:
            return [Score(value=1.0)]

    server = start(lambda: LoadedModel(spec="short", kind="custom", model=Short()))
    reply = server.score("a", "b")
    assert (reply.status_code, "1 scores for 2 inputs" in reply.text) == (500, True)


def test_the_token_is_asked_for_everywhere_but_at_health(start: Start, lengths: FakeReward) -> None:
    token = {"Authorization": "Bearer s3cret-of-the-tests"}
    server = start(lengths, token="s3cret-of-the-tests", headers=token, wrong_tokens=100)
    assert server.score("abc").status_code == 200
    for wrong in ("", "Bearer", "Bearer s3cre", "Bearer s3crets", "Basic s3cret", "Bearer \xff"):
        headers = {"Authorization": wrong.encode("latin-1")}
        for path in ("/ready", "/metrics", "/v1/models", "/nothing"):
            assert server.http.get(path, headers=headers).status_code == 401
        refused = server.http.post("/score", json=ONE, headers=headers)
        assert refused.status_code == 401
        assert "x-prbench-model" not in refused.headers
        assert "s3cret-of-the-tests" not in refused.text
        assert server.http.get("/health", headers=headers).status_code == 200
    assert "s3cret-of-the-tests" not in server.http.get("/metrics").text
    assert "s3cret-of-the-tests" not in repr(ServeSettings(token="s3cret-of-the-tests"))


def test_guesses_are_limited_and_the_right_token_is_never_refused(start: Start, lengths: FakeReward) -> None:
    token = {"Authorization": "Bearer s3cret-of-the-tests"}
    server = start(lengths, token="s3cret-of-the-tests", headers=token, wrong_tokens=3)
    wrong = {"Authorization": "Bearer s3cret-of-the-test"}
    assert [server.http.get("/ready", headers=wrong).status_code for _ in range(5)] == [401, 401, 401, 429, 429]
    assert server.score("abc").status_code == 200
    assert server.http.get("/ready", headers={"Authorization": ""}).status_code == 401  # no guess


@pytest.mark.parametrize("token", ["a", "fifteen-letters", "aaaaaaaaaaaaaaaaaaaaaaaa", "abababababababababababab"])
def test_a_token_that_can_be_guessed_is_refused(token: str) -> None:
    with pytest.raises(UsageError, match="can be guessed"):
        ServeSettings(host="0.0.0.0", token=token)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "example.org"])
def test_another_host_than_this_machine_needs_a_token(host: str) -> None:
    with pytest.raises(UsageError, match="a token is needed"):
        ServeSettings(host=host)
    assert ServeSettings(host=host, token="long-enough-a-token").host == host


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1", "127.0.0.5"])
def test_this_machine_needs_none(host: str) -> None:
    assert not ServeSettings(host=host).token


@pytest.mark.parametrize("host", ["::1", "[::1]"])
def test_an_address_of_ipv6_is_served_with_and_without_brackets(host: str, start: Start, lengths: FakeReward) -> None:
    server = start(lengths, host=host)
    assert server.url.startswith("http://[::1]:")
    assert server.score("abc").json()["scores"][0]["value"] == 3.0


def test_settings_that_cannot_work_are_refused() -> None:
    with pytest.raises(UsageError, match="never fits a queue of 4"):
        ServeSettings(max_queue=4, max_inputs=5)
    with pytest.raises(UsageError, match="Make another"):
        ServeSettings(token="two words")
    assert ServeSettings(max_queue=4).inputs_per_request == 4


def test_until_the_model_is_loaded_the_server_lives_but_is_not_ready(start: Start, lengths: FakeReward) -> None:
    loading = threading.Event()

    def load() -> LoadedModel:
        assert loading.wait(30)
        return wrap(lengths)

    server = start(load, wait=False)
    assert server.http.get("/health").json() == {"status": "alive"}
    for early in (server.http.get("/ready"), server.score("a")):
        assert (early.status_code, early.headers["Retry-After"]) == (503, "2")
    assert server.metric("prbench_ready") == 0
    loading.set()
    while server.http.get("/ready").status_code != 200:
        pass
    assert server.metric("prbench_ready") == 1
    assert server.score("a").status_code == 200


def test_a_model_that_cannot_be_served_ends_the_server_with_its_error() -> None:
    class Judge:
        def prefer(self, pairs: Any) -> Any:
            return [Comparison(pick=Pick.FIRST) for _ in pairs]

    with pytest.raises(UsageError, match="only compares"):
        RewardServer(lambda: wrap(Judge()), ServeSettings(port=0)).run()

    def missing() -> LoadedModel:
        raise UsageError("there is no such folder")

    with pytest.raises(UsageError, match="no such folder"):
        RewardServer(missing, ServeSettings(port=0)).run()


def test_a_taken_port_is_refused_before_the_model_is_loaded(start: Start, lengths: FakeReward) -> None:
    port = int(start(lengths).url.rpartition(":")[2])
    with pytest.raises(UsageError, match=f"Cannot listen on 127.0.0.1:{port}"):
        RewardServer(lambda: wrap(lengths), ServeSettings(port=port))


def test_an_ending_server_answers_what_it_accepted_and_nothing_more(start: Start, slow: Any) -> None:
    server = start(slow)
    with ThreadPoolExecutor(2) as pool:
        computing = pool.submit(server.score, "a")
        assert slow.began.acquire(timeout=30)
        waiting = pool.submit(server.score, "bb")
        wait_until(server, "prbench_queue_inputs", 1)
        server.server.stop()
        while server.http.get("/ready").status_code != 503:
            pass
        late = server.score("ccc")
        assert (late.status_code, late.headers["Retry-After"]) == (503, "5")
        assert server.http.get("/health").status_code == 200
        slow.go.set()
        assert [reply.result().json()["scores"][0]["value"] for reply in (computing, waiting)] == [1.0, 2.0]
    server.thread.join(30)
    assert not server.thread.is_alive()


def test_what_fits_is_asked_of_the_model(start: Start) -> None:
    class Windowed:
        name = "windowed"
        identity = MappingProxyType({"weights": "1"})

        def score(self, inputs: Any) -> Any:
            return [0.0 for _ in inputs]

        def fits(self, each: RewardInput) -> bool:
            return len(each.response) < 4

    server = start(Windowed())
    rows = [{**ONE, "response": response} for response in ("abc", "abcd")]
    assert server.http.post("/fits", json={"inputs": rows}).json()["fits"] == [True, False]
    loaded = load_reward_model(f"server:{server.url}", ModelSettings())
    assert loaded.fits is not None
    assert not loaded.fits(RewardInput(question="q", response="abcd"))


def test_the_metrics_page_is_read_by_prometheus_rules(start: Start, lengths: FakeReward) -> None:
    server = start(lengths)
    server.score("a", "b", "c")
    server.score("d")
    page = server.http.get("/metrics")
    assert page.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    lines = page.text.splitlines()
    assert 'prbench_requests_total{endpoint="/score"} 2' in lines
    assert 'prbench_responses_total{code="200",endpoint="/score"} 2' in lines
    assert 'prbench_scores_total{problem=""} 4' in lines
    # Batches of 3 and 1: buckets are cumulative.
    for bound, count in (("1.0", 1), ("2.0", 1), ("4.0", 2), ("+Inf", 2)):
        assert f'prbench_batch_inputs_bucket{{le="{bound}"}} {count}' in lines
    assert "prbench_batch_inputs_sum 4.0" in lines
    assert "prbench_queue_seconds_count 4" in lines
    assert "prbench_compute_seconds_count 2" in lines
    typed = {line.split()[2] for line in lines if line.startswith("# TYPE")}
    samples = [line for line in lines if not line.startswith("#")]
    for sample in samples:
        name = sample.partition("{")[0].partition(" ")[0]
        assert name in typed or name.removesuffix("_bucket").removesuffix("_sum").removesuffix("_count") in typed
        float(sample.rpartition(" ")[2])


def test_tokens_are_shown_where_the_model_counts_them(start: Start) -> None:
    def load() -> LoadedModel:
        model = FakeReward(lambda each: 0.0)
        return LoadedModel(spec="counted", kind="custom", model=model, tokens=lambda: {"total": 90, "computed": 30})

    server = start(load)
    assert server.metric('prbench_tokens_total{kind="total"}') == 90
    assert server.metric('prbench_tokens_total{kind="computed"}') == 30
