"""Reward servers on a free port of this machine, each in a thread of the test's own process."""

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

pytest.importorskip("fastapi", reason="needs pip install 'prbench[serve]'")
pytest.importorskip("uvicorn", reason="needs pip install 'prbench[serve]'")
pytest.importorskip("httpx", reason="needs pip install 'prbench[serve]'")

import httpx

from prbench.reward_models import LoadedModel, wrap
from prbench.reward_models.fake import FakeReward
from prbench.schema import RewardInput
from prbench.serve.server import RewardServer
from prbench.serve.settings import ServeSettings


class SlowReward(FakeReward):
    """Scores by the length of the response, but only when it is let: `go` opens the door for all calls."""

    def __init__(self) -> None:
        super().__init__(lambda each: float(len(each.response)), name="slow")
        self.go = threading.Event()
        self.began = threading.Semaphore(0)  # counts the calls that have begun
        self.batches: list[list[RewardInput]] = []

    def score(self, inputs: Any) -> Any:
        self.batches.append(list(inputs))
        self.began.release()
        assert self.go.wait(30), "the test never opened the door"
        return super().score(inputs)


@dataclass(frozen=True)
class Running:
    """A server that listens, and a client for it."""

    server: RewardServer
    http: Any
    thread: threading.Thread

    @property
    def url(self) -> str:
        return self.server.url

    def score(self, *responses: str, context: str = "", question: str = "Q?") -> Any:
        rows = [{"question": question, "context": context, "response": each} for each in responses]
        return self.http.post("/score", json={"inputs": rows})

    def metric(self, line: str) -> float:
        """Return the value of the line of `/metrics` that begins so; 0 where there is none."""
        lines = self.http.get("/metrics").text.splitlines()
        return float(next((each.rpartition(" ")[2] for each in lines if each.startswith(line + " ")), "0"))


Start = Callable[..., Running]


@pytest.fixture
def start() -> Iterator[Start]:
    """Return `start(model, **settings)`: any object with `score`, or a function that loads one."""
    running: list[tuple[Running, Any]] = []

    def begin(
        model: Any, *, at: int = 0, wait: bool = True, headers: dict[str, str] | None = None, **settings: Any
    ) -> Running:
        def load() -> LoadedModel:
            return wrap(model) if hasattr(model, "score") else model()

        server = RewardServer(load, ServeSettings(port=at, **settings))
        ready = threading.Event()
        thread = threading.Thread(target=server.run, args=(lambda sender: ready.set(),))
        thread.start()
        client = httpx.Client(base_url=server.url, timeout=30, headers=headers, trust_env=False)
        running.append((Running(server, client, thread), model))
        if wait:
            assert ready.wait(30)
        return running[-1][0]

    yield begin
    for each, model in running:
        if isinstance(model, SlowReward):
            model.go.set()
        each.http.close()
        each.server.stop()
        each.thread.join(30)
        assert not each.thread.is_alive()


@pytest.fixture
def lengths() -> FakeReward:
    """Scores by the number of characters."""
    return FakeReward(lambda each: float(len(each.response)), name="lengths")


@pytest.fixture
def slow() -> SlowReward:
    return SlowReward()
