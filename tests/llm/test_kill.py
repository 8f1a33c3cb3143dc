"""Killed at any moment, a client never pays again for an answer that had arrived, and knows what it spent."""

import random
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.scripted_server import body_hash, read_counts

from prbench.backends.llm import Ledger, Message, ReplyFile, Spent
from prbench.backends.llm.cache import request_key
from prbench.backends.llm.client import ChatRequest

pytest.importorskip("openai", reason="the OpenAI client is not installed: pip install 'prbench[llm]'")

ROOT = Path(__file__).parents[2]
COUNT, CONCURRENCY, KILLS = 250, 6, 4
CLIENT = f"""
import sys
from pathlib import Path
from prbench.backends.llm import *

llm = load_llm(sys.argv[1], concurrency={CONCURRENCY})
cached = CachedLLM(MeteredLLM(llm, Ledger(), "judge"), Path(sys.argv[2]))
requests = [ChatRequest(messages=(Message("user", f"number {{i}}"),), max_tokens=20) for i in range({COUNT})]
assert [reply.text for reply in cached.complete(requests)] == [f"number {{i}}" for i in range({COUNT})]
"""


@pytest.fixture
def counts(tmp_path: Path) -> Path:
    return tmp_path / "counts"


@pytest.fixture
def spec(counts: Path) -> Iterator[str]:
    command = [sys.executable, "-m", "tests.support.scripted_server", "--counts", str(counts), "--delay", "0.01"]
    command += ["--answers", "tests.support.scripted_server:echo"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdout is not None
        yield f"openai:scripted@{process.stdout.readline().strip()}"
        process.communicate(timeout=30)  # closes its input


def committed(path: Path, spec: str) -> set[str]:
    """The bodies whose answers are on disk, by the server's names for them."""
    names = {}
    for i in range(COUNT):
        request = ChatRequest(messages=(Message("user", f"number {i}"),), max_tokens=20)
        body = {"model": "scripted", "messages": [{"role": "user", "content": f"number {i}"}]}
        names[request_key(spec, "seed=None", request)] = body_hash(body | {"max_tokens": 20, "temperature": 0.0})
    with sqlite3.connect(path) as database:
        keys = [key for (key,) in database.execute("SELECT key FROM replies")]
    database.close()
    return {names[key] for key in keys}


def wait_for_answers(counts: Path, wanted: int, process: subprocess.Popen[bytes]) -> None:
    while process.poll() is None and sum(read_counts(counts)[1].values()) < wanted:
        time.sleep(0.005)
    assert process.poll() is None, "the client ended before it could be killed: give it more to do"


@pytest.mark.slow
def test_kill_nine_pays_for_no_answer_twice(tmp_path: Path, counts: Path, spec: str) -> None:
    dice = random.Random(20260407)
    path = tmp_path / "replies.sqlite"
    command = [sys.executable, "-c", CLIENT, spec, str(path)]
    attempts_when_committed: dict[str, int] = {}
    for _ in range(KILLS):
        answered = sum(read_counts(counts)[1].values()) if counts.exists() else 0
        process = subprocess.Popen(command)
        wait_for_answers(counts, answered + dice.randint(1, 40), process)
        process.kill()
        process.wait()
        attempts = read_counts(counts)[0]
        for body in committed(path, spec):
            attempts_when_committed.setdefault(body, attempts[body])
    assert len(attempts_when_committed) > KILLS
    assert subprocess.run(command).returncode == 0

    attempts, answered_by_body, usage = read_counts(counts)
    assert len(answered_by_body) == COUNT
    assert {body: attempts[body] for body in attempts_when_committed} == attempts_when_committed

    ledger = Ledger()
    ledger.load(ReplyFile(path))
    spent = ledger.total()
    lost = spent.unanswered
    assert spent == Spent(
        requests=COUNT + lost, unanswered=lost, prompt_tokens=2 * COUNT, completion_tokens=2 * COUNT, cost=None
    )
    # Each kill loses what was in flight, at most: written down as sent, perhaps seen or answered by the server.
    assert lost <= KILLS * CONCURRENCY
    assert COUNT <= sum(answered_by_body.values()) <= sum(attempts.values()) <= spent.requests
    assert usage["prompt_tokens"] - spent.prompt_tokens == 2 * (sum(answered_by_body.values()) - COUNT)
    assert max(Counter(attempts).values()) <= KILLS + 1
