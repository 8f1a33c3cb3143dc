"""`?batch=`: requests in one file to a stand-in for `/v1/batches`, which works through them between two looks."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("openai", reason="the OpenAI client is not installed: pip install 'prbench[llm]'")

from prbench.backends.llm import CachedLLM, ChatRequest, Finish, Message, load_llm
from prbench.errors import UsageError

Body = dict[str, Any]
LOOKS = 2  # at a batch, before it is done


class BatchServer:
    """Files and batches as OpenAI keeps them; it counts the lines that it was paid for."""

    def __init__(self, answer: Callable[[Body], tuple[int, Body]]) -> None:
        self.files: dict[str, bytes] = {}
        self.batches: list[Body] = []  # the newest last
        self.looks: dict[str, int] = {}
        self.paid: list[str] = []  # ids of the lines that were answered
        self.holds = False  # no batch gets done
        self.broken = 0  # replies 500 to come
        self.slow = 0.0  # seconds before a file is sent
        server, lock = self, threading.Lock()

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            wbufsize = 1 << 16

            def do_GET(self) -> None:
                with lock:
                    self.get(self.path.partition("?")[0].removeprefix("/v1"))

            def do_POST(self) -> None:
                content = self.rfile.read(int(self.headers["Content-Length"]))
                with lock:
                    self.post(self.path.removeprefix("/v1"), content)

            def get(self, path: str) -> None:
                if server.broken:
                    server.broken -= 1
                    self.send(500, {"error": {"message": "a moment"}})
                elif path == "/batches":
                    self.send(200, {"object": "list", "data": server.batches[::-1], "has_more": False})
                elif path.startswith("/batches/"):
                    self.send(200, server.look_at(path.removeprefix("/batches/")))
                elif path.startswith("/files/"):
                    time.sleep(server.slow)
                    self.send(200, server.files[path.split("/")[2]])
                else:
                    self.send(404, {"error": {"message": "no such page"}})

            def post(self, path: str, content: bytes) -> None:
                if path == "/files":
                    assert b'name="purpose"\r\n\r\nbatch' in content
                    (lines,) = re.findall(rb'filename="prbench.jsonl".*?\r\n\r\n(.*?)\r\n--', content, re.DOTALL)
                    self.send(200, {"id": server.keep(lines), "object": "file", "purpose": "batch"})
                else:
                    self.send(200, server.open(json.loads(content)))

            def send(self, status: int, content: Any) -> None:
                data = content if isinstance(content, bytes) else json.dumps(content).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Retry-After", "0")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *args: object) -> None:
                """Stay silent."""

        self.answer = answer
        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.http.server_port}/v1"
        threading.Thread(target=self.http.serve_forever, args=(0.02,), daemon=True).start()

    def keep(self, content: bytes) -> str:
        self.files[f"file-{len(self.files)}"] = content
        return f"file-{len(self.files) - 1}"

    def open(self, asked: Body) -> Body:
        assert (asked["endpoint"], asked["completion_window"]) == ("/v1/chat/completions", "24h")
        batch = {
            **asked,
            "id": f"batch-{len(self.batches)}",
            "object": "batch",
            "status": "in_progress",
            "created_at": 1,
        }
        self.batches.append(batch)
        return batch

    def look_at(self, name: str) -> Body:
        batch = next(each for each in self.batches if each["id"] == name)
        self.looks[name] = self.looks.get(name, 0) + 1
        if batch["status"] == "in_progress" and self.looks[name] > LOOKS and not self.holds:
            self.finish(batch)
        return batch

    def finish(self, batch: Body, status: str = "completed", most: int = 1000) -> None:
        good, bad = [], []
        for line in map(json.loads, self.files[batch["input_file_id"]].splitlines()[:most]):
            assert (line["method"], line["url"]) == ("POST", "/v1/chat/completions")
            code, body = self.answer(line["body"])
            row = {"custom_id": line["custom_id"], "response": {"status_code": code, "body": body}, "error": None}
            (good if code == 200 else bad).append(json.dumps(row).encode())
            self.paid.append(line["custom_id"])
        batch["status"] = status
        batch["output_file_id"] = self.keep(b"\n".join(good)) if good else None
        batch["error_file_id"] = self.keep(b"\n".join(bad)) if bad else None


def echo(body: Body) -> tuple[int, Body]:
    said = {"role": "assistant", "content": body["messages"][-1]["content"]}
    usage = {"prompt_tokens": 3, "completion_tokens": 1}
    return 200, {"model": body["model"], "choices": [{"finish_reason": "stop", "message": said}], "usage": usage}


@pytest.fixture
def server() -> Iterator[BatchServer]:
    made = BatchServer(echo)
    yield made
    made.http.shutdown()
    made.http.server_close()


def asks(*texts: str) -> list[ChatRequest]:
    return [ChatRequest(messages=(Message("user", text),)) for text in texts]


def llm_of(server: BatchServer, **options: Any) -> Any:
    return load_llm(f"openai:m@{server.url}?batch=0.01", **options)


def test_all_requests_of_a_call_go_out_in_one_batch_and_come_back_in_order(server: BatchServer) -> None:
    replies = llm_of(server).complete(asks("a", "b", "a", "c"))
    assert [reply.text for reply in replies] == ["a", "b", "a", "c"]
    assert [reply.prompt_tokens for reply in replies] == [3] * 4
    assert len(server.batches) == 1
    assert len(server.paid) == 3  # equal requests share a line


def test_a_later_command_takes_the_replies_of_a_batch_and_pays_for_the_rest_alone(server: BatchServer) -> None:
    llm_of(server).complete(asks("a", "b"))
    assert [reply.text for reply in llm_of(server).complete(asks("b", "c"))] == ["b", "c"]
    assert (len(server.batches), len(server.paid)) == (2, 3)
    load_llm(f"openai:other@{server.url}?batch=0.01").complete(asks("a"))  # another model's are left alone
    assert len(server.paid) == 4


def test_what_an_expired_batch_left_open_is_sent_again(server: BatchServer) -> None:
    server.holds = True
    stopped = threading.Event()

    def give_up() -> None:
        while not server.batches:
            time.sleep(0.01)
        server.finish(server.batches[0], "expired", most=1)
        stopped.set()

    threading.Thread(target=give_up, daemon=True).start()
    first, second = llm_of(server).complete(asks("a", "b"))
    assert stopped.wait(10)
    assert [first.finish, second.finish].count(Finish.ERROR) == 1
    assert "batch-0 is expired" in (first.error or second.error)
    server.holds = False
    assert [reply.text for reply in llm_of(server).complete(asks("a", "b"))] == ["a", "b"]
    assert len(server.paid) == 2


def test_a_line_that_is_refused_is_one_failed_reply(server: BatchServer) -> None:
    def answer(body: Body) -> tuple[int, Body]:
        is_bad = body["messages"][-1]["content"] == "bad"
        return (400, {"error": {"message": "content policy"}}) if is_bad else echo(body)

    server.answer = answer
    good, bad = llm_of(server).complete(asks("good", "bad"))
    assert (good.text, bad.finish, bad.error) == ("good", Finish.ERROR, "HTTP 400: content policy")


def test_a_refused_parameter_is_left_out_of_a_second_batch(server: BatchServer) -> None:
    def answer(body: Body) -> tuple[int, Body]:
        if "max_tokens" in body:
            said = "max_tokens is not supported with this model"
            return 400, {"error": {"message": said, "param": "max_tokens"}}
        return echo(body)

    server.answer = answer
    assert [reply.text for reply in llm_of(server).complete(asks("a", "b"))] == ["a", "b"]
    assert len(server.batches) == 2


def test_a_server_that_stumbles_is_asked_again_and_one_without_batches_is_named(
    server: BatchServer, tmp_path: Path
) -> None:
    server.broken = 2
    cached = CachedLLM(llm_of(server), tmp_path / "replies.sqlite")
    assert cached.complete(asks("a"))[0].text == "a"
    server.broken = 9
    with pytest.raises(UsageError, match=r"batches cannot be used: HTTP 500.*Leave out \?batch="):
        llm_of(server, retries=1).complete(asks("b"))
    with pytest.raises(UsageError, match="batch is for servers"):
        load_llm("fake:yes?batch=5")


def test_a_file_of_a_batch_may_be_larger_and_later_than_a_reply(server: BatchServer) -> None:
    """The limits of one reply are no limits of a file of thousands: it is paid for, and must be readable."""
    long = "a" * 3_000_000

    def answer(body: Body) -> tuple[int, Body]:
        status, said = echo(body)
        said["choices"][0]["message"]["content"] += long
        return status, said

    server.answer = answer
    for _ in range(2):  # anew, and of the batch that is there already
        replies = llm_of(server).complete(asks("b", "c", "d"))
        assert [reply.text for reply in replies] == ["b" + long, "c" + long, "d" + long]
    assert len(server.batches) == 1
    server.slow = 1.5
    hasty = load_llm(f"openai:m@{server.url}?batch=0.01&timeout=1", retries=0)
    assert hasty.complete(asks("b"))[0].text == "b" + long


def test_a_file_that_is_too_large_is_named_at_once(server: BatchServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("prbench.backends.llm.batches.MOST_FILE_BYTES", 10)
    with pytest.raises(UsageError, match=r"batches cannot be used: .*more than 10 bytes"):
        llm_of(server).complete(asks("b"))


def test_only_a_line_feed_ends_a_line_of_a_file(server: BatchServer) -> None:
    text = "one\u2028two\u2029three\x85four"
    assert llm_of(server).complete(asks(text))[0].text == text
    lines = [json.loads(line) for line in server.files["file-1"].splitlines()]
    server.files["file-1"] = b"".join(json.dumps(line, ensure_ascii=False).encode() + b"\n" for line in lines)
    assert llm_of(server).complete(asks(text))[0].text == text
    assert len(server.batches) == 1


def test_a_killed_eval_picks_its_batch_up_and_pays_for_no_line_twice(
    server: BatchServer, tmp_path: Path, rows: Callable[[int], list[Body]]
) -> None:
    def answer(body: Body) -> tuple[int, Body]:
        status, said = echo(body)
        said["choices"][0]["message"]["content"] = f"Result: {'AB'[len(str(body['messages'])) % 2]}"
        return status, said

    server.answer = answer
    server.holds = True
    pairs = tmp_path / "pairs.jsonl"
    pairs.write_text("".join(json.dumps(row) + "\n" for row in rows(12)))
    model = f"judge:openai:m@{server.url}?batch=0.05"
    command = [sys.executable, "-m", "prbench", "eval", "--model", model, "--data", str(pairs), "--json"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        assert b"72 requests are on their way as batch-0" in process.stderr.readline()
        process.send_signal(signal.SIGKILL)
    server.holds = False
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 0, ended.stderr
    assert "72 replies are taken from batch-0" in ended.stderr
    assert json.loads(ended.stdout)["coverage"]["value"] == 1.0
    assert len(server.batches) == 1
    assert len(server.paid) == len(set(server.paid)) == 72
    assert os.listdir(tmp_path / "runs")
