"""Limits on requests, tokens and dollars of `eval` and `bon`, across runs and kills; nothing is paid twice."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support.scripted_server import read_counts, scripted_server

pytest.importorskip("openai", reason="the OpenAI client is not installed: pip install 'prbench[llm]'")

Run = Callable[..., Any]
VERDICTS = 12 * 2 * 2  # pairs, probes, orders


def verdict(body: dict[str, Any]) -> str:
    """Judge, rate and grade by the length of what was asked."""
    return f"Result: {'AB'[len(str(body['messages'])) % 2]}"


def sample(body: dict[str, Any]) -> str:
    """Answer as a policy; as a judge of rubrics, find nothing."""
    text = body["messages"][-1]["content"]
    if "response_format" in body:
        schema = body["response_format"]["json_schema"]["schema"]["properties"]
        none = {"evidence": "", "reason": "no", "score": 0}
        if "verdicts" not in schema:
            return json.dumps(none)
        return json.dumps({"verdicts": [{"number": n + 1, **none} for n in range(schema["verdicts"]["minItems"])]})
    return f"Sample {body['seed'] % 97} of {len(text)}"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def eval_args(spec: str, pairs: Path, *more: str) -> tuple[str, ...]:
    return ("eval", "--model", f"judge:{spec}", "--data", str(pairs), "--probes", "own,none", *more)


def test_eval_stops_before_the_limit_and_goes_on_without_paying_twice(prbench: Run, pairs: Path) -> None:
    with scripted_server(verdict) as server:
        stopped = prbench(*eval_args(server.spec, pairs, "--max-requests", "20"))
        assert stopped.code == 1
        assert "The limit max_requests = 20 does not allow the next request" in stopped.err
        assert "Every reply that arrived is kept" in stopped.err
        assert f"It was: prbench eval --model judge:{server.spec}" in stopped.err
        assert sum(server.attempts.values()) == 20
        again = prbench(*eval_args(server.spec, pairs, "--max-requests", "20"))
        assert (again.code, sum(server.attempts.values())) == (1, 20)
        ended = prbench(*eval_args(server.spec, pairs, "--max-requests", str(VERDICTS), "--json"))
        assert (ended.code, ended.json["coverage"]["value"]) == (0, 1.0)
        assert f"spent under --out: {VERDICTS} requests" in ended.err
        assert sum(server.attempts.values()) == VERDICTS
        assert set(server.attempts.values()) == {1}


def test_dollars_need_a_price_and_stop_eval(prbench: Run, pairs: Path) -> None:
    with scripted_server(verdict) as server:
        nameless = prbench(*eval_args(server.spec, pairs, "--max-cost", "1"))
        assert nameless.code == 2
        assert "max_cost needs the price of the reward model" in nameless.err
        half = prbench(*eval_args(server.spec, pairs, "--max-cost", "1", "--price-input", "5"))
        assert "Give --price-input and --price-output together" in half.err
        prices = ("--price-input", "1000", "--price-output", "1000")
        stopped = prbench(*eval_args(server.spec, pairs, "--max-cost", "6", *prices))
        assert stopped.code == 1
        assert "The limit max_cost = 6" in stopped.err
        spent = (server.usage["prompt_tokens"] + server.usage["completion_tokens"]) / 1000
        assert 0 < spent <= 6


def test_tokens_stop_eval(prbench: Run, pairs: Path) -> None:
    with scripted_server(verdict) as server:
        stopped = prbench(*eval_args(server.spec, pairs, "--max-tokens", "9000"))
        assert stopped.code == 1
        assert "The limit max_tokens = 9,000" in stopped.err
        assert server.usage["prompt_tokens"] + server.usage["completion_tokens"] <= 9000


def test_a_limit_with_workers_is_refused(prbench: Run, pairs: Path) -> None:
    ended = prbench(
        "eval", "--model", "control:longest", "--data", str(pairs), "--engine", "ray", "--max-requests", "3"
    )
    assert ended.code == 2
    assert "need --engine local" in ended.err


def test_bon_counts_policy_and_judge_together_and_samples_nothing_twice(prbench: Run, pairs: Path) -> None:
    with scripted_server(sample) as server:
        args = (
            "bon",
            "--policy",
            server.spec,
            "--judge",
            server.spec,
            "--model",
            "control:longest",
            "--data",
            str(pairs),
        )
        args = (*args, "--limit", "3", "--n", "4")
        assert prbench(*args, "--max-requests", "10").code == 1
        assert sum(server.attempts.values()) == 10
        stopped = prbench(*args, "--max-requests", "14")
        assert "(judge" in stopped.err
        assert sum(server.attempts.values()) == 14
        ended = prbench(*args, "--max-requests", "500")
        assert ended.code == 0, ended.err
        assert set(server.attempts.values()) == {1}
        assert f"spent under --out: {sum(server.attempts.values())} requests" in ended.err


def test_a_killed_eval_keeps_its_count_and_pays_for_no_answer_twice(pairs: Path, tmp_path: Path) -> None:
    """What was in flight at the kill, at most the requests at once, may be asked again; nothing else is."""
    counts = tmp_path / "counts"
    with scripted_server(verdict, counts=counts, delay_seconds=0.02) as server:
        args = eval_args(server.spec, pairs, "--max-requests", "60")
        command = [sys.executable, "-m", "prbench", *args]
        environment = {**os.environ, "PRBENCH_API_KEY": "none"}
        with subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL) as process:
            while sum(server.answered.values()) < VERDICTS // 3 and process.poll() is None:
                time.sleep(0.01)
            process.send_signal(signal.SIGKILL)
        before = sum(server.attempts.values())
        assert before < VERDICTS
        ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
        assert ended.returncode == 0, ended.stderr
    attempts, answered, _ = read_counts(counts)
    assert len(answered) == VERDICTS
    assert sum(attempts.values()) <= VERDICTS + 8
    spent = int(ended.stderr.partition("spent under --out: ")[2].split()[0])
    assert sum(attempts.values()) <= spent <= sum(attempts.values()) + 8  # written down before it is sent
