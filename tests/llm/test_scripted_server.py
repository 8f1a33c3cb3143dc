"""The server that other tests rely on: its faults, its counts, and the whole stack of clients against it."""

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.support.scripted_server import Faults, body_hash, read_counts, scripted_server, share

from prbench.backends.llm import CachedLLM, ChatRequest, Finish, Ledger, Message, MeteredLLM, load_llm
from prbench.prompts.replies import read_json

pytest.importorskip("openai", reason="the OpenAI client is not installed: pip install 'prbench[llm]'")

ROOT = Path(__file__).parents[2]
SHAPE = {"type": "object", "properties": {"number": {"type": "integer"}}, "required": ["number"]}


def number_of(body: dict[str, Any]) -> str:
    return json.dumps({"number": int(body["messages"][-1]["content"].split()[-1])})


def many(count: int) -> list[ChatRequest]:
    return [ChatRequest(messages=(Message("user", f"number {i}"),), max_tokens=20) for i in range(count)]


def test_answers_follow_the_script_and_are_counted() -> None:
    with scripted_server(number_of) as server:
        llm = load_llm(server.spec)
        replies = llm.complete(many(3))
        assert [read_json(reply.text, SHAPE) for reply in replies] == [{"number": i} for i in range(3)]
        assert (llm.window, sum(server.attempts.values()), sum(server.answered.values())) == (None, 3, 3)
        assert server.usage == {"prompt_tokens": 6, "completion_tokens": 6}  # two words each way
        assert {body_hash(body) for body in server.bodies.values()} == set(server.answered)


def test_reply_longer_than_max_tokens_is_cut() -> None:
    with scripted_server(lambda body: "one two three") as server:
        (reply,) = load_llm(server.spec).complete([ChatRequest(messages=(Message("user", "hi"),), max_tokens=2)])
    assert (reply.text, reply.finish, reply.completion_tokens) == ("one two", Finish.LENGTH, 2)


def test_broken_replies_depend_on_the_request_alone_and_hold_no_object() -> None:
    def broken_ones(concurrency: int) -> set[int]:
        with scripted_server(number_of, Faults(broken=0.3, seed=1)) as server:
            replies = load_llm(server.spec, concurrency=concurrency).complete(many(60))
            assert all(reply.finish is Finish.STOP for reply in replies)
        return {i for i, reply in enumerate(replies) if read_json(reply.text, SHAPE) is None}

    first = broken_ones(1)
    assert 8 <= len(first) <= 28  # 18 expected, standard deviation 3.5
    assert broken_ones(8) == first


def test_every_fault_passes_by_the_third_try(tmp_path: Path) -> None:
    faults = Faults(slow=0.05, hold_seconds=60.0, burst_every=4, errors=0.2, dropped=0.1, seed=3)
    with scripted_server(number_of, faults) as server:
        ledger = Ledger()
        llm = load_llm(server.spec, retries=2, timeout_seconds=1.0, concurrency=16)
        replies = CachedLLM(MeteredLLM(llm, ledger, "judge"), tmp_path / "r.sqlite").complete(many(60))
        assert [read_json(reply.text, SHAPE) for reply in replies] == [{"number": i} for i in range(60)]
        tries = Counter(server.attempts.values())
        assert set(tries) == {1, 2, 3}
        assert tries[3] >= 6  # one body in four meets a burst on its first two tries
        assert set(server.answered.values()) == {1}
        spent = ledger.total()
        assert (spent.requests, spent.failed, spent.unanswered) == (60, 0, 0)
        assert (spent.prompt_tokens, spent.completion_tokens) == tuple(server.usage.values()) == (120, 120)


def test_faults_do_not_depend_on_the_order_of_requests() -> None:
    def attempts(requests: list[ChatRequest], concurrency: int) -> Counter[str]:
        with scripted_server(number_of, Faults(errors=0.4, burst_every=5)) as server:
            load_llm(server.spec, concurrency=concurrency).complete(requests)
            return server.attempts

    assert attempts(many(20), 1) == attempts(many(20)[::-1], 16)


def test_shares_are_even_and_fixed() -> None:
    values = [share(0, i) for i in range(2000)]
    assert sum(values) / 2000 == pytest.approx(0.5, abs=0.03)  # standard error 0.0065
    assert share(0, "a", 1) == share(0, "a", 1) != share(1, "a", 1)


def test_as_its_own_process_it_keeps_its_counts(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.support.scripted_server", "--counts", str(tmp_path / "counts")]
    command += ["--answers", "tests.support.scripted_server:echo", "--delay", "0.001", "--errors", "0.3"]
    for _ in range(2):  # the second one goes on from the counts of the first
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
            assert process.stdout is not None
            url = process.stdout.readline().strip()
            replies = load_llm(f"openai:scripted@{url}").complete(many(5))
            assert [reply.text for reply in replies] == [f"number {i}" for i in range(5)]
            process.communicate(timeout=30)  # closes its input
    attempts, answered, usage = read_counts(tmp_path / "counts")
    assert (len(answered), set(answered.values())) == (5, {2})
    assert sum(attempts.values()) >= 10
    assert usage == {"prompt_tokens": 20, "completion_tokens": 20}
