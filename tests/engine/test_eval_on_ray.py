"""`prbench eval --engine ray` leaves the same bytes as the single process."""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("ray", reason="needs pip install 'prbench[ray]'")
pytest.importorskip("psutil", reason="finds the process behind a connection")

import psutil

from prbench.errors import UsageError
from prbench.evaluation import Run, evaluate
from prbench.evaluation.on_ray import RayEngine

pytestmark = pytest.mark.slow
Rows = Callable[[int], list[dict[str, Any]]]
Input = tuple[str, str, str]


class RewardServer:
    """A reward server that keeps what it was asked, and can kill the process that asks about one question."""

    def __init__(self) -> None:
        self.asked: list[Input] = []
        self.deadly = ""
        self.held: set[str] = set()  # questions that wait for `release`
        self.release = threading.Event()
        self.killed: list[Input] = []
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.reply({"model": "hashes", "template_hash": "t"})

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                inputs = [(one["question"], json.dumps(one["user"]), one["response"]) for one in body["inputs"]]
                server.asked += inputs
                if any(one[0] in server.held for one in inputs):
                    server.release.wait()
                if not server.killed and any(one[0] == server.deadly for one in inputs):
                    server.killed = inputs
                    kill_who_asks_from(self.client_address[1])
                    return
                scores = [{"value": int(sha256("|".join(one).encode()).hexdigest()[:6], 16) / 7} for one in inputs]
                self.reply({"model": "hashes", "template_hash": "t", "scores": scores})

            def reply(self, content: Any) -> None:
                data = json.dumps(content).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.spec = f"server:http://127.0.0.1:{self.http.server_port}?batch_size=8"
        threading.Thread(target=self.http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()


def kill_who_asks_from(port: int) -> None:
    (process,) = {one.pid for one in psutil.net_connections("tcp") if one.laddr and one.laddr.port == port and one.pid}
    assert process != os.getpid(), "the test itself asked"
    os.kill(process, signal.SIGKILL)


@pytest.fixture
def server() -> Iterator[RewardServer]:
    running = RewardServer()
    yield running
    running.http.shutdown()
    running.http.server_close()


def contents(run: Run) -> tuple[bytes, bytes]:
    assert run.folder is not None
    return (run.folder / "items.jsonl").read_bytes(), (run.folder / "summary.json").read_bytes()


def test_a_worker_killed_in_the_middle_changes_no_byte_and_asks_nothing_else_again(
    cluster: str, server: RewardServer, rows: Rows, tmp_path: Path
) -> None:
    data = rows(130)  # five steps of at most 32 items
    here = evaluate(data, server.spec, out=tmp_path / "here")
    asked_here = Counter(server.asked)
    server.asked.clear()
    server.deadly = data[70]["question"]
    with RayEngine(address=cluster, workers=2) as engine:
        there = evaluate(data, server.spec, out=tmp_path / "there", engine=engine)
    assert contents(there) == contents(here)
    assert server.killed
    # Only the step of the dead worker, items 64 to 95, may be asked about again.
    again = Counter(server.asked) - asked_here
    assert set(Counter(server.asked)) == set(asked_here)
    assert {question for question, _, _ in again} <= {row["question"] for row in data[64:96]}


def test_a_run_that_lacks_some_rows_gets_those_and_no_others(
    cluster: str, server: RewardServer, rows: Rows, tmp_path: Path
) -> None:
    data = rows(100)
    here = evaluate(data, server.spec, out=tmp_path / "here")
    assert here.folder is not None
    begun = tmp_path / "there" / here.folder.name
    begun.parent.mkdir()
    shutil.copytree(here.folder, begun)
    (begun / "summary.json").unlink()
    lines = (begun / "items.jsonl").read_text().splitlines(keepends=True)
    kept = (
        lines[2 * 96 :] + lines[:96]
    )  # of four steps the first and the last two, as workers might have finished them
    (begun / "items.jsonl").write_text("".join(kept) + '{"id": "item-0')
    server.asked.clear()
    with RayEngine(address=cluster, workers=2) as engine:
        there = evaluate(data, server.spec, out=tmp_path / "there", engine=engine)
    assert contents(there) == contents(here)
    assert {question for question, _, _ in server.asked} == {row["question"] for row in data[32:64]}


def test_a_killed_command_continues_with_what_it_had_not_written(
    cluster: str, server: RewardServer, rows: Rows, tmp_path: Path
) -> None:
    data = rows(100)
    (tmp_path / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in data))
    here = evaluate(tmp_path / "pairs.jsonl", server.spec, out=tmp_path / "here")
    assert here.folder is not None
    server.held = {row["question"] for row in data[64:]}
    command = [sys.executable, "-m", "prbench", "eval", "--model", server.spec, "--data", "pairs.jsonl"]
    on_ray = ["--engine", "ray", "--ray-address", cluster, "--workers", "2", "--out", "there"]
    process = subprocess.Popen([*command, *on_ray], cwd=tmp_path)
    written = tmp_path / "there" / here.folder.name / "items.jsonl"
    while not written.exists() or written.read_bytes().count(b"\n") < 2 * 96:  # two steps, and the others are held
        assert process.poll() is None
        time.sleep(0.05)
    process.kill()
    process.wait()
    server.asked.clear()
    server.release.set()
    with RayEngine(address=cluster, workers=2) as engine:
        there = evaluate(tmp_path / "pairs.jsonl", server.spec, out=tmp_path / "there", engine=engine)
    assert contents(there) == contents(here)
    assert {question for question, _, _ in server.asked} == server.held


def test_the_command_prints_the_same_json_and_nothing_else(cluster: str, rows: Rows, tmp_path: Path) -> None:
    (tmp_path / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows(40)))  # one step
    command = [sys.executable, "-m", "prbench", "eval", "--model", "head:lab-user", "--data", "pairs.jsonl", "--json"]
    here = subprocess.run([*command, "--out", "here"], cwd=tmp_path, capture_output=True, text=True)
    on_ray = ["--engine", "ray", "--ray-address", cluster, "--workers", "2", "--out", "there"]
    there = subprocess.run([*command, *on_ray], cwd=tmp_path, capture_output=True, text=True)
    assert (there.returncode, there.stdout) == (here.returncode, here.stdout), there.stderr
    (run,) = (tmp_path / "here").glob("*/items.jsonl")
    assert (tmp_path / "there" / run.parent.name / "items.jsonl").read_bytes() == run.read_bytes()


def test_a_model_on_embeddings_gives_the_same_bytes_whoever_met_a_text_first(
    cluster: str, shared_texts: list[dict[str, Any]], tmp_path: Path
) -> None:
    here = evaluate(shared_texts, "head:lab-user", out=tmp_path / "here")
    with RayEngine(address=cluster, workers=2) as engine:
        there = evaluate(shared_texts, "head:lab-user", out=tmp_path / "there", engine=engine)
    assert contents(there) == contents(here)


def test_a_model_that_no_worker_can_load_is_the_same_line_as_without_ray(
    cluster: str, rows: Rows, tmp_path: Path
) -> None:
    with pytest.raises(UsageError) as here:
        evaluate(rows(3), "classifier:./nowhere")
    with RayEngine(address=cluster) as engine, pytest.raises(UsageError) as there:
        evaluate(rows(3), "classifier:./nowhere", engine=engine)
    assert str(there.value) == str(here.value)
