"""Annotation projects, and their servers on a free port of this machine, each in a thread of the test's process."""

import json
import re
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi", reason="needs pip install 'prbench[serve]'")
pytest.importorskip("uvicorn", reason="needs pip install 'prbench[serve]'")
pytest.importorskip("httpx", reason="needs pip install 'prbench[serve]'")

import httpx

from prbench.data import open_examples
from prbench.people.annotate.people import AnnotateSettings
from prbench.people.annotate.records import Mode
from prbench.people.annotate.server import AnnotateServer
from prbench.people.annotate.store import Links, Plan, Store, create

HOSTILE = "<script>document.title='stolen'</script><img src=x onerror=\"document.title='stolen'\">"
RATED = {
    f"{side}_{quality}": "4" for side in ("left", "right") for quality in ("correctness", "relevance", "helpfulness")
}


@dataclass(frozen=True)
class Made:
    """A project on disk with its secrets."""

    path: Path
    links: Links

    def open(self) -> Store:
        return Store(self.path)


@pytest.fixture
def make(tmp_path: Path, rows: Callable[[int], list[dict[str, Any]]]) -> Callable[..., Made]:
    """Return `make(pairs, **plan)`: a project of small pairs, or of the rows given."""

    def begin(pairs: int | list[dict[str, Any]] = 12, *, name: str = "study.db", **plan: Any) -> Made:
        data = rows(pairs) if isinstance(pairs, int) else pairs
        whole = Plan(**({"mode": Mode.VALIDATE, "annotators": ["ada", "ben"], "data": "pairs.jsonl"} | plan))
        path = tmp_path / name
        return Made(path, create(path, open_examples(data), whole))

    return begin


@dataclass(frozen=True)
class Running:
    """A server that listens, and clients for it."""

    server: AnnotateServer
    made: Made
    thread: threading.Thread
    clients: list[httpx.Client]

    @property
    def url(self) -> str:
        return self.server.url

    def client(self, **headers: str) -> httpx.Client:
        """A browser without a session."""
        client = httpx.Client(base_url=self.url, timeout=30, headers=headers, trust_env=False)
        self.clients.append(client)
        return client

    def enter(self, token: str) -> httpx.Client:
        """A browser that came in by a link."""
        client = self.client()
        reply = client.get(f"/in/{token}")
        assert reply.status_code == 303, reply.text
        return client

    def annotator(self, name: str = "ada") -> httpx.Client:
        return self.enter(self.made.links.annotators[name])

    def owner(self) -> httpx.Client:
        return self.enter(self.made.links.owner)


def count_events(store: Store) -> int:
    """How many times something was saved."""
    return int(store.database.rows("SELECT count(*) FROM events")[0][0])


def hidden(page: str, name: str) -> str:
    """The value of a hidden field of a page."""
    found = re.search(rf'name="{name}" value="([^"]*)"', page)
    assert found, f"no field {name}"
    return found[1]


def save(client: httpx.Client, position: int, action: str = "draft", **fields: str) -> httpx.Response:
    """Open an item and save it as the page's script does."""
    page = client.get(f"/items/{position}").text
    known = {name: hidden(page, name) for name in ("csrf", "tab", "seen")}
    body = known | {"do": action, "seconds": "5"} | fields
    return client.post(f"/items/{position}", data=body, headers={"Accept": "application/json"})


def export_rows(client: httpx.Client, form: str = "rows") -> list[dict[str, Any]]:
    return [json.loads(line) for line in client.get(f"/owner/export/{form}").text.splitlines()]


Start = Callable[..., Running]


@pytest.fixture
def start() -> Iterator[Start]:
    """Return `start(project, **settings)`."""
    running: list[Running] = []

    def begin(made: Made, **settings: Any) -> Running:
        server = AnnotateServer(made.path, AnnotateSettings(port=0, **settings))
        ready = threading.Event()
        thread = threading.Thread(target=server.run, args=(lambda url: ready.set(),))
        thread.start()
        running.append(Running(server, made, thread, []))
        assert ready.wait(30)
        return running[-1]

    yield begin
    for each in running:
        for client in each.clients:
            client.close()
        each.server.stop()
        each.thread.join(30)
        assert not each.thread.is_alive()
