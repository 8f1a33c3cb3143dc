"""Killed at any moment, a run resumes to the same bytes, computes nothing twice and misses nothing."""

import json
import random
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

# A slow model that writes down every item it is asked about, and dies a little after its n-th call. It counts by
# itself, for a watcher that the machine holds up would find the run finished.
SCRIPT = """
import os, signal, sys, threading, time
from pathlib import Path
from prbench.evaluation import evaluate
from prbench.reward_models.base import LoadedModel
from prbench.schema import Score

log = open(sys.argv[2], "a", buffering=1)
calls_to_live, last_breath = int(sys.argv[4]), float(sys.argv[5])
calls = 0

class Slow:
    def score(self, inputs):
        global calls
        calls += 1
        if calls == calls_to_live:
            threading.Timer(last_breath, os.kill, (os.getpid(), signal.SIGKILL)).start()
        for one in inputs:
            log.write(one.question + "|" + one.response[:4] + "|" + str(hash_of(one.context)) + "\\n")
        time.sleep(0.01)
        return [Score(value=float(hash_of(one.response + one.context) % 1000) / 7) for one in inputs]

def hash_of(text):
    from hashlib import sha256
    return int.from_bytes(sha256(text.encode()).digest()[:4], "big")

model = LoadedModel(spec="slow", kind="custom", model=Slow(), identity={"v": 1}, items_per_step=2)
evaluate(sys.argv[1], model, out=sys.argv[3])
"""


def run(data: Path, log: Path, out: Path, calls: int = 0, last_breath: float = 0.0) -> int:
    """Evaluate, killed `last_breath` seconds after call `calls` (0: never), and return the exit status."""
    arguments = [str(data), str(log), str(out), str(calls), str(last_breath)]
    return subprocess.run([sys.executable, "-c", SCRIPT, *arguments], check=False).returncode


@pytest.mark.slow
def test_kill_nine_at_random_moments_changes_nothing(tmp_path: Path, rows) -> None:  # type: ignore[no-untyped-def]
    data = tmp_path / "pairs.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows(120)))
    assert run(data, tmp_path / "calm.log", tmp_path / "calm") == 0
    calm = next((tmp_path / "calm").glob("*/summary.json")).read_bytes()

    dice = random.Random(20260407)
    out, log = tmp_path / "killed", tmp_path / "killed.log"
    finished_at_kill: list[set[str]] = []
    for _ in range(10):
        assert run(data, log, out, calls=dice.randint(1, 4), last_breath=dice.uniform(0.0, 0.01)) == -signal.SIGKILL
        finished_at_kill.append({line for file in out.glob("*/items.jsonl") for line in whole_lines(file)})
        log.write_text(log.read_text() + "KILLED\n")
    assert run(data, log, out) == 0

    folders = [path.parent for path in out.glob("*/summary.json")]
    assert len(folders) == 1
    assert (folders[0] / "summary.json").read_bytes() == calm
    keys = [(row["id"], row["probe"]) for row in map(json.loads, whole_lines(folders[0] / "items.jsonl"))]
    assert len(keys) == len(set(keys)) == 360
    assert_nothing_finished_is_asked_again(log, finished_at_kill)


def whole_lines(path: Path) -> list[str]:
    return [line for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")]


def assert_nothing_finished_is_asked_again(log: Path, finished_at_kill: list[set[str]]) -> None:
    parts = log.read_text().split("KILLED\n")
    questions_done: set[str] = set()
    for finished, asked_after in zip(finished_at_kill, parts[1:], strict=True):
        per_item = Counter(json.loads(line)["id"] for line in finished)
        questions_done |= {f"balcony {int(item[-3:])}?" for item, count in per_item.items() if count == 3}
        asked = {line.split("|")[0].partition("on ")[2] for line in asked_after.splitlines() if "|" in line}
        assert not asked & questions_done
