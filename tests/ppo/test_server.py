"""PPO against `prbench serve`: the same policy as with the model in this process, and no other model unnoticed."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytest.importorskip("fastapi", reason="needs pip install 'prbench[serve]'")
pytest.importorskip("uvicorn", reason="needs pip install 'prbench[serve]'")
pytest.importorskip("httpx", reason="needs pip install 'prbench[serve]'")

from prbench.downstream.ppo.rollout import ModelReward
from prbench.downstream.ppo.settings import PpoSettings
from prbench.downstream.ppo.training import train_policy
from prbench.errors import RunError
from prbench.reward_models import wrap
from prbench.reward_models.fake import FakeReward
from prbench.schema import Example
from prbench.serve.server import RewardServer
from prbench.serve.settings import ServeSettings

Start = Callable[..., RewardServer]


def reds(name: str = "reds") -> FakeReward:
    return FakeReward(lambda each: float(each.response.split().count("red")), name=name)


@pytest.fixture
def start() -> Iterator[Start]:
    """Return `start(model)`, which serves a model on a free port, or on that of the server before it."""
    running: list[tuple[RewardServer, threading.Thread]] = []

    def end() -> None:
        for server, thread in running:
            server.stop()
            thread.join(30)
        running.clear()

    def begin(model: FakeReward, *, port: int = 0) -> RewardServer:
        end()
        server = RewardServer(lambda: wrap(model), ServeSettings(port=port))
        ready = threading.Event()
        thread = threading.Thread(target=server.run, args=(lambda sender: ready.set(),))
        thread.start()
        running.append((server, thread))
        assert ready.wait(30)
        return server

    yield begin
    end()


def test_a_served_model_trains_the_same_policy(
    questions: list[Example], settings: Callable[..., PpoSettings], start: Start, tmp_path: Path
) -> None:
    url = start(reds()).url
    wanted = settings(steps=2, reward=f"server:{url}")
    served = train_policy(questions, wanted, tmp_path / "served")
    here = train_policy(questions, wanted, tmp_path / "here", reward=ModelReward(wrap(reds())))
    assert served["weights"] == here["weights"]
    assert served["last"] == here["last"]
    assert served["run_id"] != here["run_id"]  # another reward model, as far as anybody can tell


def test_another_model_at_the_same_address_does_not_continue_the_run(
    questions: list[Example], settings: Callable[..., PpoSettings], start: Start, tmp_path: Path
) -> None:
    url = start(reds()).url
    wanted = settings(steps=1, reward=f"server:{url}")
    train_policy(questions, wanted, tmp_path / "run")
    assert start(reds("others"), port=int(url.rpartition(":")[2])).url == url
    with pytest.raises(RunError, match="another reward"):
        train_policy(questions, wanted, tmp_path / "run")
