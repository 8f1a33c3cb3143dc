"""Thousands of good and bad requests against a real server process: no wrong answer, no crash, flat memory."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "serve.py"


@pytest.mark.slow
@pytest.mark.parametrize("model", ["checkable", "classifier"])
def test_two_thousand_requests_of_every_kind_get_what_they_deserve(model: str) -> None:
    command = [sys.executable, str(SCRIPT), "--soak", "--soak-model", model, "--requests", "2000", "--clients", "32"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=280)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    found = json.loads(ended.stdout)
    assert found["wrong"] == []
    assert found["checked_scores"] > 100  # how many find room depends on the machine
    assert model == "classifier" or found["replies"]["good 429"] > 0  # the other takes its time
    assert found["server"] == {"exit_code": 0, "errors": ""}
    assert found["memory_growth_mb"] < 16
