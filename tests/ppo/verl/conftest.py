"""An export of a few rows, a real `prbench serve` to score them, and servers that misbehave as told."""

import importlib.util
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

pytest.importorskip("transformers", reason="needs pip install 'prbench[hf]'")
pytest.importorskip("fastapi", reason="needs pip install 'prbench[serve]'")
pytest.importorskip("httpx", reason="needs pip install 'prbench[serve]'")

from prbench.context import Labels
from prbench.data import open_examples
from prbench.downstream.ppo.settings import PpoSettings
from prbench.downstream.ppo.verl import export_verl
from prbench.schema import Example

MARKER = "ZQXJ-MARKER-77"  # in every text of a row that no policy and no reward model may see
MODEL = "control:overlap"
BUILT = PpoSettings(
    policy="smollm2", reward=MODEL, posts=3, rollout_batch=8, minibatches=2, steps=5, max_new_tokens=48, seed=7
)


def row(number: int) -> dict[str, Any]:
    """One official row; six users, and what is not for their eyes is marked."""
    user = number % 6
    aspect = {"aspect": f"low cost {MARKER}", "evidence": f"coins {MARKER}", "reason": f"money {MARKER}"}
    posts = [f"User {user} wrote post {i} about thrift and beans." for i in range(5)]
    return {
        "id": f"item-{number:03d}",
        "user_id": f"user-{user}",
        "question": f"What should I plant on balcony {number}?",
        "profile": [{"id": f"p{user}-{i}", "category": "garden", "text": text} for i, text in enumerate(posts)],
        "rubric_aspects": [aspect],
        "narrative": f"I have little money and much sun. {MARKER}",
        "category": "Society_and_Culture",
        "chosen": f"Sow cheap seeds of thrift, number {number}, and wrote down the beans. {MARKER}",
        "rejected": f"Buy the finest pots and an olive tree. {MARKER}",
    }


def make_examples(numbers: range, **changes: Any) -> list[Example]:
    """Examples as the border makes them."""
    with open_examples([row(number) | changes for number in numbers]) as store:
        return list(store)  # type: ignore[arg-type]


@pytest.fixture(scope="session")
def examples() -> Callable[..., list[Example]]:
    return make_examples


@pytest.fixture(scope="session")
def settings() -> PpoSettings:
    return BUILT


@contextmanager
def serving(*arguments: str, **variables: str) -> Iterator[str]:
    """Run `prbench serve` in a process of its own, and give its address."""
    import os

    command = [sys.executable, "-m", "prbench", "serve", "--port", "0", "--json", *arguments]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env={**os.environ, **variables}
    )
    try:
        assert process.stdout is not None
        yield json.loads(process.stdout.readline())["url"]
    finally:
        process.terminate()
        process.communicate(timeout=30)


@pytest.fixture(scope="session")
def serve() -> Callable[..., Any]:
    """`with serve("--model", …) as url`."""
    return serving


@pytest.fixture(scope="session")
def server() -> Iterator[str]:
    with serving("--model", MODEL) as url:
        yield url


Export = Callable[..., Path]


@pytest.fixture
def export(server: str, tmp_path: Path) -> Export:
    """`export(data=…, posts=5)`: an export with some things changed."""

    def make(
        folder: str = "export",
        data: list[Example] | None = None,
        validation: list[Example] | None = None,
        at: str = server,
        labels: Sequence[Labels | None] = (None, None),
        **changes: Any,
    ) -> Path:
        export_verl(
            tmp_path / folder,
            data=make_examples(range(20)) if data is None else data,
            validation=make_examples(range(20, 26)) if validation is None else validation,
            settings=replace(BUILT, **changes),
            server=at,
            labels=labels[0],
            validation_labels=labels[1],
        )
        return tmp_path / folder

    return make


@pytest.fixture(scope="session")
def exported(server: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One export that tests read and do not change."""
    folder = tmp_path_factory.mktemp("verl") / "export"
    export_verl(
        folder,
        data=make_examples(range(20)),
        validation=make_examples(range(20, 26)),
        settings=BUILT,
        server=server,
    )
    return folder


def load_reward(folder: Path) -> ModuleType:
    """Load `reward.py` as verl does: from its path, under no name, with counts of its own."""
    spec = importlib.util.spec_from_file_location("some_reward", folder / "reward.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "dont_write_bytecode", True)  # other tests count the files of the export
        spec.loader.exec_module(module)
    return module


@pytest.fixture
def reward(exported: Path) -> ModuleType:
    """A fresh worker that does not wait long between its tries."""
    module = load_reward(exported)
    module.FIRST_WAIT_SECONDS = 0.01
    return module


@dataclass(frozen=True)
class Reply:
    """What a scripted server says."""

    body: Any = None  # bytes go as they are, anything else as JSON
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    after_seconds: float = 0.0


def good_reply(value: Any = 1.5, **changes: Any) -> Reply:
    """Return the reply of the model that these tests expect."""
    content = {"model": "m#1", "template_hash": "t", "scores": [{"value": value, "problem": "", "detail": ""}]}
    return Reply(content | changes)


class Scripted:
    """A server that answers by script, and keeps what it was asked."""

    def __init__(self, answer: Callable[[int, str, Any], Reply]) -> None:
        self.bodies: list[Any] = []
        self.headers: list[dict[str, str]] = []
        self.most_at_once = 0
        self._under_way = 0
        self._lock = threading.Lock()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                self._answer(None)

            def do_POST(self) -> None:
                self._answer(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

            def _answer(self, body: Any) -> None:
                reply = outer._begin(self.path, body, dict(self.headers), answer)
                try:
                    self._send(reply)
                except ConnectionError:
                    self.close_connection = True  # the client had enough
                finally:
                    outer._end()

            def _send(self, reply: Reply) -> None:
                time.sleep(reply.after_seconds)
                content = reply.body if isinstance(reply.body, bytes) else json.dumps(reply.body).encode()
                self.send_response(reply.status)
                for name, value in reply.headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: Any) -> None:
                pass

        class Listener(ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 128  # clients come in crowds

        self._http = Listener(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._http.server_port}"
        threading.Thread(target=self._http.serve_forever, args=(0.01,), daemon=True).start()

    def _begin(self, path: str, body: Any, headers: dict[str, str], answer: Any) -> Reply:
        with self._lock:
            self.bodies.append(body)
            self.headers.append(headers)
            self._under_way += 1
            self.most_at_once = max(self.most_at_once, self._under_way)
            number = len(self.bodies) - 1
        reply: Reply = answer(number, path, body)
        return reply

    def _end(self) -> None:
        with self._lock:
            self._under_way -= 1

    def stop(self) -> None:
        self._http.shutdown()
        self._http.server_close()


@pytest.fixture
def scripted() -> Iterator[Callable[..., Scripted]]:
    """`scripted(answer)`, where `answer(number, path, body)` gives a reply; or replies, of which the last stays."""
    running: list[Scripted] = []

    def start(*replies: Any) -> Scripted:
        if len(replies) == 1 and callable(replies[0]):
            running.append(Scripted(replies[0]))
        else:
            running.append(Scripted(lambda number, path, body: replies[min(number, len(replies) - 1)]))
        return running[-1]

    yield start
    for each in running:
        each.stop()


@pytest.fixture(scope="session")
def scripting() -> Callable[..., Any]:
    """`with scripting(answer) as url`, where `answer(number, path, body)` gives a status and a body."""

    @contextmanager
    def serve_script(answer: Callable[[int, str, Any], tuple[int, Any]]) -> Iterator[str]:
        def as_reply(number: int, path: str, body: Any) -> Reply:
            status, content = answer(number, path, body)
            return Reply(content, status=status)

        server = Scripted(as_reply)
        try:
            yield server.url
        finally:
            server.stop()

    return serve_script


@pytest.fixture
def good() -> Callable[..., Reply]:
    return good_reply


@pytest.fixture
def reply() -> type[Reply]:
    return Reply
