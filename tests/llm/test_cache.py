import sqlite3
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields, replace
from pathlib import Path

import pytest

from prbench.errors import UsageError
from prbench.llm import CachedLLM, ChatRequest, FakeLLM, Finish, Message, Reply
from prbench.llm.cache import request_key

REQUEST = ChatRequest(messages=(Message("user", "Hello"),))
CHANGES: dict[str, ChatRequest] = {
    "messages": replace(REQUEST, messages=(Message("system", "Hello"),)),
    "max_tokens": replace(REQUEST, max_tokens=513),
    "temperature": replace(REQUEST, temperature=0.5),
    "seed": replace(REQUEST, seed=0),
    "top_logprobs": replace(REQUEST, top_logprobs=5),
    "json_schema": replace(REQUEST, json_schema={"type": "object"}),
}


def test_second_request_is_answered_from_the_file(tmp_path: Path) -> None:
    reply = Reply(
        text="Result: A ☕", finish=Finish.LENGTH, prompt_tokens=3, completion_tokens=4, first_token={"A": -0.25}
    )
    first = CachedLLM(FakeLLM(reply), tmp_path / "replies.sqlite")
    assert first.complete([REQUEST]) == [reply]
    first.close()
    inner = FakeLLM("another answer")
    again = CachedLLM(inner, tmp_path / "replies.sqlite")
    assert again.complete([REQUEST]) == [reply]
    assert (inner.requests, again.hits, again.misses) == ([], 1, 0)


def test_every_field_of_a_request_makes_another_key() -> None:
    assert set(CHANGES) == {field.name for field in fields(ChatRequest)}
    keys = {request_key("m", "", request) for request in (REQUEST, *CHANGES.values())}
    assert len(keys) == 1 + len(CHANGES)


def test_model_name_and_fingerprint_are_part_of_the_key() -> None:
    keys = {request_key("m", "", REQUEST), request_key("n", "", REQUEST), request_key("m", "seed=1", REQUEST)}
    assert len(keys) == 3


def test_turns_cannot_be_confused_with_each_other() -> None:
    """`a` then `b` is another request than `ab`, and than the same text in another role."""
    requests = [
        ChatRequest(messages=(Message("user", "a"), Message("user", "b"))),
        ChatRequest(messages=(Message("user", "ab"),)),
        ChatRequest(messages=(Message("assistant", "ab"),)),
    ]
    assert len({request_key("m", "", request) for request in requests}) == 3


def test_failed_request_is_asked_again(tmp_path: Path) -> None:
    inner = FakeLLM([Reply(finish=Finish.ERROR, error="down"), "up"])
    cached = CachedLLM(inner, tmp_path / "replies.sqlite")
    assert cached.complete([REQUEST])[0].error == "down"
    assert cached.complete([REQUEST])[0].text == "up"
    assert cached.complete([REQUEST])[0].text == "up"
    assert len(inner.requests) == 2


def test_order_is_kept_when_some_replies_are_known(tmp_path: Path) -> None:
    cached = CachedLLM(FakeLLM(lambda request: request.messages[0].content), tmp_path / "replies.sqlite")
    requests = [ChatRequest(messages=(Message("user", text),)) for text in "abcd"]
    cached.complete(requests[1:3])
    assert [reply.text for reply in cached.complete(requests)] == ["a", "b", "c", "d"]
    assert cached.hits == 2


def test_equal_requests_of_one_batch_are_asked_once(tmp_path: Path) -> None:
    inner = FakeLLM("same")
    assert len(CachedLLM(inner, tmp_path / "replies.sqlite").complete([REQUEST, REQUEST, REQUEST])) == 3
    assert len(inner.requests) == 1


def test_request_text_is_not_written_to_disk(tmp_path: Path) -> None:
    cached = CachedLLM(FakeLLM("fine"), tmp_path / "replies.sqlite")
    cached.complete([ChatRequest(messages=(Message("user", "MARKER-of-a-private-post"),))])
    cached.close()
    assert all(b"MARKER" not in path.read_bytes() for path in tmp_path.iterdir())


def test_name_window_and_token_count_are_those_of_the_model_inside(tmp_path: Path) -> None:
    cached = CachedLLM(FakeLLM("x", name="fake:x", window=9), tmp_path / "replies.sqlite")
    assert (cached.name, cached.window, cached.count_tokens([Message("user", "a b")])) == ("fake:x", 9, 2)


def test_threads_share_one_cache(tmp_path: Path) -> None:
    cached = CachedLLM(FakeLLM(lambda request: request.messages[0].content), tmp_path / "replies.sqlite")
    batches = [[ChatRequest(messages=(Message("user", str((i + j) % 10)),)) for j in range(10)] for i in range(40)]

    def run(batch: Sequence[ChatRequest]) -> bool:
        return [reply.text for reply in cached.complete(batch)] == [request.messages[0].content for request in batch]

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(run, batches))


def test_two_processes_write_to_one_file(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from prbench.llm import *\n"
        "cached = CachedLLM(FakeLLM(lambda r: r.messages[0].content, name='m'), Path(sys.argv[1]))\n"
        "for i in range(int(sys.argv[2]), int(sys.argv[2]) + 150):\n"
        "    assert cached.complete([ChatRequest(messages=(Message('user', str(i)),))])[0].text == str(i)\n"
    )
    path = tmp_path / "replies.sqlite"
    runs = [subprocess.Popen([sys.executable, "-c", code, str(path), start]) for start in ("0", "75")]
    assert [run.wait(timeout=60) for run in runs] == [0, 0]
    with sqlite3.connect(path) as database:
        assert database.execute("SELECT count(*) FROM replies").fetchone() == (225,)
    database.close()


def test_file_that_is_no_database_is_named(tmp_path: Path) -> None:
    path = tmp_path / "replies.sqlite"
    path.write_text("this is a text file, and long enough to be taken for a page of a database, or so one hopes")
    with pytest.raises(UsageError, match=r"replies\.sqlite: not usable as a reply cache"):
        CachedLLM(FakeLLM("x"), path)
