"""Requests of every kind, good and bad, against a real server whose right answers are known.

`benchmarks/serve.py --soak` runs it. Good requests must get the right numbers or, when the queue is full, 429; bad
ones their own status; clients that hang up must not matter; and the memory of the server must stay flat. The model is
a stand-in with checkable numbers, or, with `--soak-model classifier`, a tiny random classifier that packs its inputs
and keeps prompts, in less memory than all of them take; the right numbers are then those of its padded passes.

How soon a full queue sends clients away is timed while one process per core does nothing but sleep: where such a
process slept far too long, the machine stood still, and no server on it could have answered.
"""

import argparse
import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from zlib import crc32

import httpx

from prbench.reward_models import LoadedModel, ModelSettings, load_reward_model, require_scores, wrap
from prbench.schema import RewardInput, UserContext
from prbench.serve.server import RewardServer
from prbench.serve.settings import ServeSettings

MAX_BODY_BYTES = 64 * 1024
MAX_QUEUE = 24
MAX_INPUTS = 16
NO_SCORE = "no score"  # a response for which the model has none
KINDS = {"good": 60, "malformed": 12, "oversized": 8, "leave_early": 8, "leave_waiting": 8, "garbage": 4}
KNOCKING_SECONDS = 5.0
NAP_SECONDS = 0.002
STALL_SECONDS = 0.02  # a nap this much too long: the core was not there
GROWTH_LIMIT_BYTES = 16 << 20
KEPT_BYTES = 400_000  # about three of the eight prompts
TOLERANCE = 1e-4


class CheckableReward:
    """Gives each input a number that anybody can work out, and takes its time, so that the queue fills."""

    name = "checkable"

    def score(self, inputs: Sequence[RewardInput]) -> list[float | None]:
        """Return one value per input, in the same order."""
        time.sleep(0.05)
        return [right_answer(each.question, each.context, each.response) for each in inputs]


def right_answer(question: str, context: str, response: str) -> float | None:
    """Return the number that belongs to these texts and, as good as surely, to no others."""
    return None if response == NO_SCORE else float(crc32("\0".join((question, context, response)).encode()))


class Right:
    """Knows the right numbers."""

    def __init__(self, folder: str) -> None:
        settings = ModelSettings(share_prefixes=False)
        spec = f"classifier:{folder}"
        self._model = require_scores(load_reward_model(spec, settings), "the soak") if folder else None

    def tells(self, rows: list[dict[str, str]], given: list[float | None]) -> bool:
        """Are these the numbers of these rows?"""
        if self._model is None:
            return given == [right_answer(**row) for row in rows]
        expected = [score.value for score in self._model.score([as_input(**row) for row in rows])]
        return all(
            one is not None and other is not None and abs(one - other) < TOLERANCE
            for one, other in zip(given, expected, strict=True)
        )


def as_input(question: str, context: str, response: str) -> RewardInput:
    """Return what the server makes of a row with a plain text about the user."""
    return RewardInput(question=question, response=response, user=UserContext.from_text(context))


def serve_for_soak(folder: str = "") -> None:
    """Be the server: print the address, and serve until a signal comes."""
    settings = ServeSettings(
        port=0, max_queue=MAX_QUEUE, max_batch=12, max_inputs=MAX_INPUTS, max_body_bytes=MAX_BODY_BYTES
    )

    def load() -> LoadedModel:
        if not folder:
            return wrap(CheckableReward())
        return load_reward_model(f"classifier:{folder}", ModelSettings(keep_prefixes=KEPT_BYTES))

    server = RewardServer(load, settings)
    server.run(lambda sender: print(json.dumps({"url": server.url, **sender}), flush=True))


Span = tuple[float, float]  # begin and end on the machine's monotonic clock


@dataclass
class Findings:
    """What came of the requests."""

    right: Right
    replies: Counter[str] = field(default_factory=Counter)  # kind and status
    checked_scores: int = 0
    wrong: list[str] = field(default_factory=list)
    full: list[Span] = field(default_factory=list)  # from a request to its 429, as its client saw it
    stalls: list[Span] = field(default_factory=list)  # when a core stood still meanwhile
    memory_bytes: list[int] = field(default_factory=list)

    def note(self, kind: str, status: int, allowed: set[int], text: str = "") -> None:
        """Count a reply; a status that the kind must not get is a wrong answer."""
        self.replies[f"{kind} {status}"] += 1
        if status not in allowed:
            self.wrong.append(f"{kind}: HTTP {status} {text[:200]}")


def add_soak_options(parser: argparse.ArgumentParser) -> None:
    """Add the flags of this part."""
    parser.add_argument("--soak", action="store_true", help="send good and bad requests instead of measuring")
    parser.add_argument("--soak-model", choices=["checkable", "classifier"], default="checkable")
    parser.add_argument("--seed", type=int, default=0)


def run_soak(arguments: argparse.Namespace, script: Path, folder: str) -> dict[str, Any]:
    """Start a server, send everything, end the server, and return what was found."""
    environment = {name: value for name, value in os.environ.items() if name != "PRBENCH_SERVER_TOKEN"}
    command = [sys.executable, str(script), "--soak-server", folder]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    assert process.stdout is not None
    url = json.loads(process.stdout.readline())["url"]
    began = time.monotonic()
    findings = Findings(right=Right(folder))
    asyncio.run(send_everything(url, script, arguments, findings))
    seconds = time.monotonic() - began
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=60)
    return {"model": arguments.soak_model, **report(findings, process.returncode, errors, seconds, arguments.requests)}


def report(findings: Findings, code: int, errors: str, seconds: float, requests: int) -> dict[str, Any]:
    """Return the figures, and whether they are good enough."""
    quarter = max(1, len(findings.memory_bytes) // 4)
    growth = max(findings.memory_bytes[-quarter:]) - max(findings.memory_bytes[quarter : 2 * quarter])
    full = lengths(findings.full)
    passed = not findings.wrong and code == 0 and not errors and growth < GROWTH_LIMIT_BYTES and bool(full)
    return {
        "passed": passed,
        "requests": requests,
        "seconds": round(seconds, 1),
        "replies": dict(sorted(findings.replies.items())),
        "checked_scores": findings.checked_scores,
        "wrong": findings.wrong[:10],
        "full_ms": {
            "n": len(full),
            "median": round(1000 * full[len(full) // 2], 1),
            "p99": round(1000 * full[int(0.99 * (len(full) - 1))], 1),
            "max": round(1000 * full[-1], 1),
            "max_while_cores_ran": round(1000 * max(lengths(undisturbed(findings.full, findings.stalls))), 1),
            "stalls_of_cores": [round(1000 * each, 1) for each in lengths(findings.stalls)],
        }
        if full
        else None,
        "memory_mb": [round(each / 2**20, 1) for each in findings.memory_bytes],
        "memory_growth_mb": round(growth / 2**20, 2),
        "server": {"exit_code": code, "errors": errors[-2000:]},
    }


def lengths(spans: list[Span]) -> list[float]:
    """Return how long each took, the shortest first."""
    return sorted(end - begin for begin, end in spans)


def undisturbed(spans: list[Span], stalls: list[Span]) -> list[Span]:
    """Return the spans that no stall touches."""
    return [
        (begin, end)
        for begin, end in spans
        if not any(begin < stall_end and stall_begin < end for stall_begin, stall_end in stalls)
    ]


async def send_everything(url: str, script: Path, arguments: argparse.Namespace, findings: Findings) -> None:
    """Let the clients share the requests; look at the server's memory forty times on the way."""
    requests = arguments.requests
    dice = random.Random(arguments.seed)
    kinds = iter(dice.choices(list(KINDS), list(KINDS.values()), k=requests))

    async def client(number: int) -> None:
        own = random.Random(f"{arguments.seed}:{number}")
        async with connect(url) as http:
            for kind in kinds:
                await SENDERS[kind](http, own, findings)
                if findings.replies.total() % max(1, requests // 40) == 0:
                    findings.memory_bytes.append(await memory(http))

    await asyncio.gather(*(client(number) for number in range(arguments.clients)))
    await fill_and_knock(url, script, findings)


def connect(url: str) -> httpx.AsyncClient:
    """Return a client with a connection of its own: the pool of a shared one takes longer than the server."""
    return httpx.AsyncClient(base_url=url, timeout=60, verify=False, trust_env=False)


async def fill_and_knock(url: str, script: Path, findings: Findings) -> None:
    """Keep the queue full, and let a client in a process of its own knock: how soon is it sent away?"""
    command = (sys.executable, str(script), "--soak-knock", url)
    napping = [
        subprocess.Popen([sys.executable, str(script), "--soak-nap", str(core)], stdout=subprocess.PIPE, text=True)
        for core in sorted(os.sched_getaffinity(0))
    ]
    knocking = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)

    async def fill(number: int) -> None:
        own = random.Random(number)
        async with connect(url) as http:
            while knocking.returncode is None:
                if (await http.post("/score", json={"inputs": good_rows(own)})).status_code == 429:
                    await asyncio.sleep(0.05)

    filling = [asyncio.create_task(fill(number)) for number in range(12)]
    out, _ = await knocking.communicate()
    await asyncio.gather(*filling)
    findings.full += [tuple(span) for span in json.loads(out)]
    for process in napping:
        process.send_signal(signal.SIGTERM)
        findings.stalls += [tuple(span) for span in json.loads(process.communicate()[0])]


def knock(url: str) -> None:
    """Ask again and again for as much as the server takes at once, and print when each 429 was asked for and came."""
    body = {"inputs": good_rows(random.Random(0))[:1] * MAX_INPUTS}
    spans: list[Span] = []
    ends_at = time.monotonic() + KNOCKING_SECONDS
    with httpx.Client(base_url=url, timeout=60, verify=False, trust_env=False) as http:
        while time.monotonic() < ends_at:
            began = time.monotonic()
            if http.post("/score", json=body).status_code == 429:
                spans.append((began, time.monotonic()))
            time.sleep(0.005)
    print(json.dumps(spans))


def nap(core: int) -> None:
    """Sleep on one core until a signal comes, and print every time that it took far too long to wake."""
    os.sched_setaffinity(0, {core})
    is_over = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: is_over.set())
    stalls: list[Span] = []
    while not is_over.is_set():
        began = time.monotonic()
        time.sleep(NAP_SECONDS)
        if (ended := time.monotonic()) - began > NAP_SECONDS + STALL_SECONDS:
            stalls.append((began, ended))
    print(json.dumps(stalls))


async def memory(http: httpx.AsyncClient) -> int:
    """Return the memory of the server process, as it says itself."""
    page = (await http.get("/metrics")).text
    name = "process_resident_memory_bytes "
    return int(float(next(line for line in page.splitlines() if line.startswith(name)).removeprefix(name)))


def good_rows(dice: random.Random) -> list[dict[str, str]]:
    """Return some inputs of one of eight prompts."""
    prompt = dice.randrange(8)
    rows = []
    for _ in range(dice.randint(1, 8)):
        # Some come again, as they do from clients that lost a reply.
        response = f"answer {dice.randrange(10 if dice.random() < 0.2 else 10**9)} " + "ä" * dice.randrange(200)
        response = NO_SCORE if dice.random() < 0.05 else response
        rows.append({"question": f"question {prompt}?", "context": f"profile {prompt} " * 50, "response": response})
    return rows


async def send_good(http: httpx.AsyncClient, dice: random.Random, findings: Findings) -> None:
    """Send good inputs; every number that comes back must be the right one, and every gap a gap."""
    rows = good_rows(dice)
    reply = await http.post("/score", json={"inputs": rows})
    findings.note("good", reply.status_code, {200, 429}, reply.text)
    if reply.status_code == 429:
        if int(reply.headers["Retry-After"]) < 1:
            findings.wrong.append("429 without a wait")
        await asyncio.sleep(dice.uniform(0, 0.02))
    elif reply.status_code == 200:
        given = [row["value"] for row in reply.json()["scores"]]
        findings.checked_scores += len(rows)
        if not findings.right.tells(rows, given):
            findings.wrong.append(f"{given} for {rows}"[:500])


async def send_malformed(http: httpx.AsyncClient, dice: random.Random, findings: Findings) -> None:
    """Send a body that is cut off, of other types, or no JSON at all."""
    whole = json.dumps({"inputs": good_rows(dice)}).encode()
    body = dice.choice(
        [
            whole[: dice.randrange(len(whole))],
            b"[" * dice.randrange(1, 50_000),
            dice.randbytes(dice.randrange(1, 2000)),
            json.dumps({"inputs": [{"question": 1, "context": None, "response": []}]}).encode(),
            json.dumps({"inputs": good_rows(dice) * 40}).encode()[:MAX_BODY_BYTES],
            json.dumps({**good_rows(dice)[0], "rubric": "leak"}).encode(),
            b"",
        ]
    )
    reply = await http.post(dice.choice(["/score", "/v1/score", "/v1/rerank", "/fits"]), content=body)
    findings.note("malformed", reply.status_code, {400, 413, 422, 429}, reply.text)


async def send_oversized(http: httpx.AsyncClient, dice: random.Random, findings: Findings) -> None:
    """Send more bytes than the server takes, declared or in pieces."""
    size = MAX_BODY_BYTES + dice.randrange(1, 20 * MAX_BODY_BYTES)

    async def pieces() -> Any:
        for _ in range(0, size, 8192):
            yield b" " * 8192

    try:
        reply = await http.post("/score", content=b" " * size if dice.random() < 0.5 else pieces())
    except httpx.TransportError:
        findings.note("oversized", 0, {0})  # the server may close the connection on what it does not want
    else:
        findings.note("oversized", reply.status_code, {413, 429}, reply.text)


async def leave(http: httpx.AsyncClient, data: bytes, wait_seconds: float) -> None:
    """Send some bytes over a connection of their own and hang up."""
    _, writer = await asyncio.open_connection(http.base_url.host, http.base_url.port)
    writer.write(data)
    await writer.drain()
    await asyncio.sleep(wait_seconds)
    writer.close()


def raw_request(dice: random.Random) -> bytes:
    """Return a good request as it goes over the wire."""
    body = json.dumps({"inputs": good_rows(dice)}).encode()
    return b"POST /score HTTP/1.1\r\nHost: soak\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)


async def send_leave_early(http: httpx.AsyncClient, dice: random.Random, findings: Findings) -> None:
    """Hang up in the middle of the request."""
    whole = raw_request(dice)
    await leave(http, whole[: dice.randrange(1, len(whole))], dice.uniform(0, 0.02))
    findings.note("left", 0, {0})


async def send_leave_waiting(http: httpx.AsyncClient, dice: random.Random, findings: Findings) -> None:
    """Hang up while the inputs wait or compute."""
    await leave(http, raw_request(dice), dice.uniform(0, 0.05))
    findings.note("left", 0, {0})


async def send_garbage(http: httpx.AsyncClient, dice: random.Random, findings: Findings) -> None:
    """Send bytes that are not HTTP."""
    await leave(http, dice.randbytes(dice.randrange(1, 500)) + b"\r\n\r\n", 0.0)
    findings.note("left", 0, {0})


SENDERS = {
    "good": send_good,
    "malformed": send_malformed,
    "oversized": send_oversized,
    "leave_early": send_leave_early,
    "leave_waiting": send_leave_waiting,
    "garbage": send_garbage,
}
