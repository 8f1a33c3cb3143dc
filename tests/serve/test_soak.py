"""Many good and bad requests against a real server process: no wrong answer, no crash, flat memory."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "serve.py"


@pytest.mark.slow
@pytest.mark.parametrize("model,requests", [("checkable", 1500), ("classifier", 300)])
def test_many_requests_of_every_kind_get_what_they_deserve(model: str, requests: int) -> None:
    options = ["--soak-model", model, "--requests", str(requests), "--clients", "32"]
    command = [sys.executable, str(SCRIPT), "--soak", *options]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=280)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    found = json.loads(ended.stdout)
    assert found["wrong"] == []
    assert found["checked_scores"] > 100  # how many find room depends on the machine
    assert model == "classifier" or found["replies"]["good 429"] > 0  # the other takes its time
    assert found["server"] == {"exit_code": 0, "errors": ""}
    assert found["memory_growth_mb"] < 16
