"""Signals to a server process whose model is busy: the first one waits for it, the second one does not."""

import contextlib
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

SERVER = """
import sys, time
from pathlib import Path
from prbench.reward_models import wrap
from prbench.serve.server import RewardServer
from prbench.serve.settings import ServeSettings

class Busy:
    def score(self, inputs):
        while not Path(sys.argv[1]).exists():
            time.sleep(0.01)
        return [float(len(each.response)) for each in inputs]

server = RewardServer(lambda: wrap(Busy()), ServeSettings(port=0))
sys.exit(0 if server.run(lambda sender: print(server.url, flush=True)) else 1)
"""
BODY = {"question": "q", "context": "", "response": "abc"}


@pytest.fixture
def busy(tmp_path: Path) -> Iterator["subprocess.Popen[str]"]:
    """A server whose model answers once the file `go` exists."""
    command = [sys.executable, "-c", SERVER, str(tmp_path / "go")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    yield process
    if process.poll() is None:
        process.kill()
    process.communicate()


def wait_for(url: str, path: str, text: str) -> None:
    while text not in httpx.get(url + path, trust_env=False).text:
        pass


def begin(process: "subprocess.Popen[str]", pool: ThreadPoolExecutor):  # type: ignore[no-untyped-def]
    """Send a request that keeps the model busy, and then the first signal."""
    assert process.stdout is not None
    url = process.stdout.readline().strip()
    reply = pool.submit(httpx.post, url + "/score", json=BODY, timeout=60, trust_env=False)
    wait_for(url, "/metrics", "prbench_accepted_requests 1")
    process.send_signal(signal.SIGTERM)
    wait_for(url, "/ready", "shutting down")
    return reply


def test_after_one_signal_the_accepted_request_is_answered(busy: "subprocess.Popen[str]", tmp_path: Path) -> None:
    with ThreadPoolExecutor(1) as pool:
        reply = begin(busy, pool)
        (tmp_path / "go").touch()
        assert json.loads(reply.result().text)["scores"][0]["value"] == 3.0
    assert busy.wait(60) == 0


def test_a_second_signal_ends_the_server_at_once(busy: "subprocess.Popen[str]") -> None:
    with ThreadPoolExecutor(1) as pool:
        reply = begin(busy, pool)
        busy.send_signal(signal.SIGTERM)
        assert busy.wait(60) == 1
        with contextlib.suppress(httpx.TransportError):  # hung up on is as good as an error: it is no number
            assert reply.result().status_code >= 500
