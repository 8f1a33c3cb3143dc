"""`prbench serve` as a process: one line when it is ready, exit code 0 after a signal, one line for what is wrong."""

import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pytest

pytest.importorskip("fastapi", reason="needs pip install 'prbench[serve]'")
pytest.importorskip("uvicorn", reason="needs pip install 'prbench[serve]'")

Serve = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Start `prbench serve ARGS`; what still runs after the test is killed."""
    started: list[subprocess.Popen[str]] = []

    def begin(*args: str, **environment: str) -> "subprocess.Popen[str]":
        command = [sys.executable, "-m", "prbench", "serve", "--port", "0", *args]
        inherited = {name: value for name, value in os.environ.items() if name != "PRBENCH_SERVER_TOKEN"}
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=inherited | environment
        )
        started.append(process)
        return process

    yield begin
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()


def ready(process: "subprocess.Popen[str]") -> Any:
    assert process.stdout is not None
    return json.loads(process.stdout.readline())


def ask(url: str, body: Any, **headers: str) -> Any:
    request = urllib.request.Request(url + "/score", json.dumps(body).encode(), headers)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=30) as answer:
        return json.load(answer)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_serves_until_a_signal_and_ends_with_0(serve: Serve, number: signal.Signals) -> None:
    process = serve("--model", "fake:length", "--json")
    said = ready(process)
    reply = ask(said["url"], {"question": "q", "context": "", "response": "abc"})
    assert reply["scores"][0]["value"] == 3.0
    assert reply["model"] == said["model"]
    process.send_signal(number)
    out, err = process.communicate(timeout=30)
    assert (process.returncode, out, err) == (0, "", "")


def test_the_ready_line_names_model_and_address(serve: Serve) -> None:
    process = serve("--model", "fake:constant")
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line.startswith("ready: fake:constant#")
    assert "on http://127.0.0.1:" in line


def test_the_token_of_the_environment_is_asked_for_and_not_shown(serve: Serve) -> None:
    process = serve("--model", "fake:length", "--json", "--token-env", "MY_TOKEN", MY_TOKEN="s3cret-token-tests")
    said = ready(process)
    body = {"question": "q", "context": "", "response": "abc"}
    with pytest.raises(urllib.error.HTTPError, match="401"):
        ask(said["url"], body)
    assert ask(said["url"], body, Authorization="Bearer s3cret-token-tests")["scores"][0]["value"] == 3.0
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=30)
    assert "s3cret" not in json.dumps(said) + err


@pytest.mark.parametrize(
    "args,fact",
    [
        (("--model", "fake:length", "--host", "0.0.0.0"), "a token is needed"),
        (("--model", "fake:length", "--token-env", "NOT_SET_ANYWHERE"), "NOT_SET_ANYWHERE"),
        (("--model", "nonsense:x"), "Unknown kind"),
        (("--model", "judge:fake:always=A"), "only compares"),
        (("--model", "control:gold"), "reads the rubric, and a request passes none"),
        (("--model", "fake:length", "--max-queue", "4", "--max-inputs", "5"), "never fits"),
        (("--model", "fake:length", "--host", "198.51.100.7", "--token-env", "TOKEN"), "Cannot listen"),
        (("--model", "fake:length", "--dtype", "int8"), "--dtype int8: unknown"),
    ],
)
def test_what_is_wrong_gets_one_line_and_exit_code_2(
    prbench, monkeypatch: pytest.MonkeyPatch, args: tuple[str, ...], fact: str
) -> None:
    monkeypatch.delenv("PRBENCH_SERVER_TOKEN", raising=False)
    monkeypatch.setenv("TOKEN", "s3cret-of-the-tests")
    ended = prbench("serve", "--port", "0", *args)
    assert (ended.code, ended.out) == (2, "")
    assert fact in ended.err
    assert len(ended.err.splitlines()) == 1
