"""Killed in any stage, a build resumes to the same bytes, and pays for no answer twice."""

import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.build.test_build import files_of, lines
from tests.support.scripted_server import read_counts

ROOT = Path(__file__).parents[2]
USERS, CONCURRENCY = 6, 2
# Each stage with the file that is written just before it, and the one that ends its first round.
STAGES = (
    ("manifest.json", "0_draw.jsonl"),
    ("1_rank.jsonl", "2_rubric.jsonl"),
    ("2_rubric.jsonl", "3_generate.jsonl"),
    ("3_generate.jsonl", "4_verify.jsonl"),
    ("4_verify.jsonl", "5_parity.jsonl"),
)


@contextmanager
def server(counts: Path) -> Iterator[str]:
    """The scripted models in a process of their own, so that they outlive every client."""
    command = [sys.executable, "-m", "tests.support.scripted_server", "--counts", str(counts), "--delay", "0.05"]
    command += ["--answers", "tests.build.lab_script:erring"]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        yield process.stdout.readline().strip()
        process.stdin.close()


def start(data: Path, out: Path, url: str) -> subprocess.Popen[bytes]:
    spec = f"openai:scripted@{url}"
    command = [sys.executable, "-m", "prbench", "build", "--data", str(data), "--out", str(out), "--private"]
    command += ["--generator", spec, "--judge", spec, "--quality-judge", spec, "--words", "65", "--aspects", "2"]
    command += ["--concurrency", str(CONCURRENCY), "--audit-encoder", "none", "--json"]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL)


def events(counts: Path) -> int:
    """Answers that the server has sent whole."""
    return sum(read_counts(counts)[1].values()) if counts.exists() else 0


def replies_in(out: Path) -> int:
    with sqlite3.connect(out / "replies.sqlite") as database:
        return int(database.execute("SELECT count(*) FROM replies").fetchone()[0])


def wait_until(condition: Callable[[], bool], process: subprocess.Popen[bytes]) -> None:
    while not condition():
        assert process.poll() is None, "the build ended before it could be killed"
        time.sleep(0.005)


def wait_for_the_server(counts: Path) -> int:
    """Let the server send what it had in hand, and return how many answers it has sent."""
    seen, quiet_since = events(counts), time.monotonic()
    while time.monotonic() - quiet_since < 0.3:
        time.sleep(0.02)
        if events(counts) != seen:
            seen, quiet_since = events(counts), time.monotonic()
    return seen


@pytest.mark.slow
def test_kill_nine_in_every_stage_changes_nothing(tmp_path: Path, posts_file: Callable[[int], Path]) -> None:
    data, counts = posts_file(USERS), tmp_path / "counts"
    dice = random.Random(20260407)
    with server(counts) as url:
        calm, out = tmp_path / "calm" / "set", tmp_path / "killed" / "set"
        assert start(data, calm, url).wait() == 0
        before = wait_for_the_server(counts)
        assert before == replies_in(calm)
        lost = in_time = 0
        for begins, ends in STAGES:
            process = start(data, out, url)
            wait_until((out / begins).exists, process)
            target = events(counts) + dice.randrange(4)
            wait_until(lambda target=target: events(counts) >= target, process)  # type: ignore[misc]
            kill(process)
            in_time += not (out / ends).exists()
            sent = wait_for_the_server(counts) - before
            newly_lost = sent - lost - replies_in(out)
            assert 0 <= newly_lost <= CONCURRENCY  # sent by the server, but the client did not live to keep it
            lost += newly_lost
        assert in_time >= 3  # all five, unless the machine is so busy that a stage ends before the signal arrives
        process = start(data, out, url)
        wait_until((out / "summary.json").exists, process)  # in the audit, or in publishing
        kill(process)
        assert start(data, out, url).wait() == 0
        total = wait_for_the_server(counts) - before
    assert total == replies_in(out) + lost  # each answer that was kept was sent once
    assert replies_in(out) == before
    assert files_of(out) == files_of(calm)
    assert lines(out / "pairs.jsonl")
    assert (out / "dataset" / "README.md").exists()
    assert not list(out.glob("*.tmp"))


def kill(process: subprocess.Popen[bytes]) -> None:
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
