import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, fields, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from prbench.backends.llm import CachedLLM, ChatRequest, FakeLLM, Finish, Message, Reply, ReplyFile
from prbench.backends.llm.cache import InFlightRequests, request_key
from prbench.backends.llm.client import CHUNK, Arrived, always, no_progress
from prbench.errors import UsageError
from prbench.schema import NOTHING

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
    reply = Reply(text="Result: A ☕", prompt_tokens=3, completion_tokens=4, first_token={"A": -0.25})
    first = CachedLLM(FakeLLM(reply), tmp_path / "replies.sqlite")
    assert first.complete([REQUEST]) == [reply]
    first.close()
    inner = FakeLLM("another answer")
    again = CachedLLM(inner, tmp_path / "replies.sqlite")
    assert again.complete([REQUEST]) == [reply]
    assert (inner.requests, again.hits, again.misses) == ([], 1, 0)


def test_every_field_of_a_request_that_changes_replies_makes_another_key() -> None:
    assert set(CHANGES) == {field.name for field in fields(ChatRequest)} - {"owner", "cut_is_enough"}
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


@pytest.mark.parametrize("finish", [Finish.LENGTH, Finish.WRONG_MODEL])
def test_reply_that_is_no_answer_is_asked_again(tmp_path: Path, finish: Finish) -> None:
    inner = FakeLLM([Reply(text="Result: A", finish=finish, completion_tokens=5), "Result: B"])
    cached = CachedLLM(inner, tmp_path / "replies.sqlite")
    assert cached.complete([REQUEST])[0].finish is finish
    assert cached.known([REQUEST]) == [False]
    assert cached.complete([REQUEST])[0].text == "Result: B"
    assert cached.complete([REQUEST])[0].text == "Result: B"
    assert len(inner.requests) == 2


def test_reply_that_may_be_cut_off_is_kept(tmp_path: Path) -> None:
    request = replace(REQUEST, max_tokens=1, top_logprobs=2, cut_is_enough=always)
    inner = FakeLLM(Reply(text="A", finish=Finish.LENGTH))
    cached = CachedLLM(inner, tmp_path / "replies.sqlite")
    assert cached.complete([request]) == cached.complete([request])
    assert (cached.known([request]), len(inner.requests)) == ([True], 1)


def test_cut_off_reply_in_a_file_of_an_earlier_version_gives_way_to_a_whole_one(tmp_path: Path) -> None:
    file = ReplyFile(tmp_path / "replies.sqlite")
    key = request_key("fake:script", "", REQUEST)
    file.keep(key, Reply(text="Result: A", finish=Finish.LENGTH))
    cached = CachedLLM(FakeLLM("Result: B"), file)
    assert cached.known([REQUEST]) == [False]
    assert cached.complete([REQUEST])[0].text == "Result: B"
    assert file.read([key])[key].text == "Result: B"
    file.keep(key, Reply(text="Result: C"))
    assert file.read([key])[key].text == "Result: B", "the first whole answer stays"


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
        "import sys; from pathlib import Path; from prbench.backends.llm import *\n"
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


# Replies are kept as they arrive.


def ask(text: str, owner: str = "") -> ChatRequest:
    return ChatRequest(messages=(Message("user", text),), owner=owner)


class Streamed(FakeLLM):
    """Hands out its replies last first; a gate opens before each further one."""

    def __init__(self, gate: threading.Semaphore) -> None:
        super().__init__(lambda request: request.messages[0].content)
        self._gate = gate

    def complete_each(
        self, requests: Iterable[ChatRequest], arrived: Arrived = no_progress
    ) -> Iterator[tuple[int, Reply]]:
        for index, reply in reversed(list(enumerate(self.complete(list(requests))))):
            assert self._gate.acquire(timeout=30)
            arrived(index, reply)
            yield index, reply


def count_kept(path: Path) -> int:
    with sqlite3.connect(path) as database:
        (count,) = database.execute("SELECT count(*) FROM replies").fetchone()
    database.close()
    return int(count)


def wait_until(count: int, path: Path) -> None:
    deadline = time.monotonic() + 30
    while count_kept(path) < count and time.monotonic() < deadline:
        time.sleep(0.005)


def test_each_reply_is_on_disk_before_the_next_arrives(tmp_path: Path) -> None:
    path, gate = tmp_path / "r.sqlite", threading.Semaphore(0)
    cached = CachedLLM(Streamed(gate), path)
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(cached.complete, [ask(text) for text in "abc"])
        for count in (1, 2, 3):
            gate.release()
            wait_until(count, path)
            assert count_kept(path) == count
        assert [reply.text for reply in future.result(timeout=30)] == ["a", "b", "c"]


def test_replies_are_handed_on_as_they_arrive_kept_ones_first(tmp_path: Path) -> None:
    cached = CachedLLM(Streamed(threading.Semaphore(10)), tmp_path / "r.sqlite")
    cached.complete([ask("b")])
    arrived = [(index, reply.text) for index, reply in cached.complete_each(map(ask, "abcb"))]
    assert arrived == [(1, "b"), (3, "b"), (2, "c"), (0, "a")]


def test_client_that_does_not_stream_loses_one_chunk_at_most(tmp_path: Path) -> None:
    script = [f"reply {i}" for i in range(2 * CHUNK + 1)]  # and then it breaks down
    cached = CachedLLM(FakeLLM(script), tmp_path / "r.sqlite")
    with pytest.raises(UsageError):
        cached.complete([ask(str(i)) for i in range(3 * CHUNK)])
    assert count_kept(tmp_path / "r.sqlite") == 2 * CHUNK


def test_equal_requests_of_many_threads_are_asked_once(tmp_path: Path) -> None:
    threads = 8
    all_have_asked = threading.Barrier(threads + 1)

    def answer(request: ChatRequest) -> str:
        all_have_asked.wait(timeout=30)
        return "same"

    inner = FakeLLM(answer)
    file = ReplyFile(tmp_path / "r.sqlite")
    clients = [CachedLLM(inner, file) for _ in range(2)]  # two clients on one file count as well

    def run(number: int) -> str:
        stream = clients[number % 2].complete_each([REQUEST])
        pool.submit(all_have_asked.wait, 30)
        return next(stream)[1].text

    with ThreadPoolExecutor(2 * threads) as pool:
        assert list(pool.map(run, range(threads))) == ["same"] * threads
    assert len(inner.requests) == 1
    assert sum(client.hits for client in clients) == threads - 1


def test_thread_that_waited_asks_itself_when_the_other_gave_up(tmp_path: Path) -> None:
    in_flight = InFlightRequests()
    assert in_flight.claim(["a", "b"]) == (["a", "b"], {})
    with ThreadPoolExecutor(1) as pool:
        mine, others = pool.submit(in_flight.claim, ["a", "b", "c"]).result()
        assert (mine, set(others)) == (["c"], {"a", "b"})
        in_flight.resolve("a", Reply(text="fine"))
        in_flight.release(["b"])
        assert others["a"].result() == Reply(text="fine")
        assert others["b"].cancelled()
        assert pool.submit(in_flight.claim, ["a", "b"]).result() == (["a", "b"], {})


def test_two_streams_of_one_thread_do_not_wait_for_each_other(tmp_path: Path) -> None:
    """The second asks anew what the first has in flight: it cannot wait for its own thread."""
    inner = Streamed(threading.Semaphore(10))
    cached = CachedLLM(inner, tmp_path / "r.sqlite")
    first, second = cached.complete_each(map(ask, "ab")), cached.complete_each(map(ask, "ab"))
    assert [reply.text for pair in zip(first, second, strict=True) for _, reply in pair] == ["b", "b", "a", "a"]


def test_stream_that_is_dropped_leaves_its_requests_to_others(tmp_path: Path) -> None:
    cached = CachedLLM(Streamed(threading.Semaphore(10)), tmp_path / "r.sqlite")
    stream = cached.complete_each(map(ask, "ab"))
    next(stream)
    stream.close()
    with ThreadPoolExecutor(1) as pool:
        assert [reply.text for reply in pool.submit(cached.complete, [ask("a")]).result(timeout=30)] == ["a"]


# Whose replies they are.


def owners(path: Path) -> set[tuple[str, str]]:
    with sqlite3.connect(path) as database:
        rows = database.execute("SELECT replies.reply, user FROM owners JOIN replies USING (key)").fetchall()
    database.close()
    return {(text.split('"text": "')[1].split('"')[0], user) for text, user in rows}


def test_owner_is_written_with_the_reply_and_added_on_a_hit(tmp_path: Path) -> None:
    cached = CachedLLM(FakeLLM(lambda request: request.messages[0].content), tmp_path / "r.sqlite")
    cached.complete([ask("a", "ann"), ask("a", "bob"), ask("b", "bob"), ask("c")])
    assert owners(tmp_path / "r.sqlite") == {("a", "ann"), ("a", "bob"), ("b", "bob")}
    cached.complete([ask("b", "ann"), ask("c", "cid")])
    assert owners(tmp_path / "r.sqlite") == {("a", "ann"), ("a", "bob"), ("b", "bob"), ("b", "ann"), ("c", "cid")}
    assert (cached.misses, cached.hits) == (3, 3)


def test_owner_makes_no_other_request() -> None:
    assert ask("a", "ann") == ask("a", "bob")
    assert request_key("m", "", ask("a", "ann")) == request_key("m", "", ask("a"))


def test_file_of_an_earlier_version_is_read(tmp_path: Path) -> None:
    key = request_key("fake:script", "", REQUEST)
    with sqlite3.connect(tmp_path / "r.sqlite") as database:
        database.execute("CREATE TABLE replies (key TEXT PRIMARY KEY, reply TEXT NOT NULL) WITHOUT ROWID")
        database.execute("INSERT INTO replies VALUES (?, ?)", (key, '{"text": "old", "finish": "stop"}'))
    database.close()
    assert CachedLLM(FakeLLM("new"), tmp_path / "r.sqlite").complete([REQUEST]) == [Reply(text="old")]


def test_key_of_a_request_stays_what_it_was() -> None:
    """Else every cache would be paid for again. The text is written out here, field by field."""
    text = (
        '[1, "m", "seed=1", {"messages": [["user", "Hello"]], "max_tokens": 512, "temperature": 0.0, "seed": null, '
        '"top_logprobs": 0, "json_schema": {}}]'
    )
    assert request_key("m", "seed=1", REQUEST) == sha256(text.encode()).hexdigest()


@dataclass(frozen=True, kw_only=True)
class Renamed:
    """A request whose fields go by other names than those that the code reads."""

    turns: tuple[Message, ...]
    most_tokens: int = 512
    heat: float = 0.0

    messages = property(lambda self: self.turns)
    max_tokens = property(lambda self: self.most_tokens)
    temperature = property(lambda self: self.heat)
    seed, top_logprobs, json_schema = None, 0, NOTHING


def test_a_renamed_field_changes_no_key() -> None:
    renamed: Any = Renamed(turns=REQUEST.messages)
    assert request_key("m", "seed=1", renamed) == request_key("m", "seed=1", REQUEST)


def test_replies_are_kept_under_literal_keys_and_come_back_whole(tmp_path: Path) -> None:
    """Every field of a reply has a value of its own here, so that none can be forgotten."""
    reply = Reply(
        text="t", finish=Finish.LENGTH, error="e", prompt_tokens=3, completion_tokens=4, first_token={"A": -0.5}
    )
    default = Reply()
    assert not [each.name for each in fields(Reply) if getattr(reply, each.name) == getattr(default, each.name)]
    kept = ReplyFile(tmp_path / "r.sqlite")
    kept.keep("key", reply)
    assert kept.read(["key"]) == {"key": reply}
    kept.close()
    with closing(sqlite3.connect(tmp_path / "r.sqlite")) as database:
        ((text,),) = database.execute("SELECT reply FROM replies")
    assert text == (
        '{"text": "t", "finish": "length", "error": "e", "prompt_tokens": 3, "completion_tokens": 4, '
        '"first_token": {"A": -0.5}}'
    )
