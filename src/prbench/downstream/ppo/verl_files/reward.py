"""The reward of this export: `compute_score` asks `prbench serve` what an answer is worth to the user who asked.

It needs the standard library and httpx, which transformers brings along. verl loads this file into every reward
worker and passes what stands under `reward.custom_reward_function.reward_kwargs` in `config.yaml`.

A failure is never a number. When there is no score, `compute_score` raises: verl's `naive` reward manager lets the
error through, its agent loop leaves the answer out of the batch, and a gap is filled with a row whose loss mask is 0.
So no answer is ever paid for a request that failed. `sampler.py` counts the gaps over all workers and ends the run
when their share passes the limit; a worker that fails too often, or meets another model, never gives a score again.
"""

import asyncio
import json
import logging
import math
import os
import random
import time
import weakref
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import httpx

TOKEN_VARIABLE = "PRBENCH_SERVER_TOKEN"
TRY_AGAIN = frozenset({429, 502, 503, 504})
FIRST_WAIT_SECONDS = 0.5
LONGEST_WAIT_SECONDS = 10.0  # between two tries, unless the server asks for more
LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})
WINDOW = 100  # answers over which a worker counts its failures

log = logging.getLogger("prbench.reward")


class NoScoreError(Exception):
    """Why an answer has no score. It never leaves this file: other processes could not unpickle it."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class WrongServerError(NoScoreError):
    """Another reward model answers than the run learns from: no later answer of this server could count."""


@dataclass(frozen=True)
class RewardEndpoint:
    """Whom to ask, what must answer, and how patiently to wait for it."""

    url: str
    model: str  # as the server names itself: the spec, `#`, and a hash of all that changes its scores
    template_hash: str
    timeout_seconds: float
    patience_seconds: float
    concurrency: int


class WorkerCounts:
    """What this worker has met: counts by kind, and whether too many of the latest answers had no score."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.stopped = ""  # why this worker gives no scores any more
        self._latest: deque[bool] = deque(maxlen=WINDOW)

    def note(self, kind: str, max_failed: float) -> None:
        """Count one answer: "scored", or the kind of its failure."""
        self.counts[kind] += 1
        self._latest.append(kind != "scored")
        failed = sum(self._latest)
        if failed > max_failed * WINDOW and not self.stopped:
            self.stopped = f"{failed} of the latest {len(self._latest)} answers got no score ({dict(self.counts)})"


worker = WorkerCounts()
_clients: "weakref.WeakKeyDictionary[Any, tuple[httpx.AsyncClient, asyncio.Semaphore]]" = weakref.WeakKeyDictionary()


async def compute_score(
    data_source: str,
    solution_str: str,
    ground_truth: str,
    extra_info: Mapping[str, Any],
    *,
    server: str,
    model: str,
    template_hash: str,
    max_failed: float,
    center: float = 0.0,
    spread: float = 1.0,
    timeout_seconds: float = 60.0,
    patience_seconds: float = 300.0,
    concurrency: int = 64,
    **others: Any,
) -> dict[str, float]:
    """Return the score that PPO maximizes, (raw - center) / spread, and the raw one. Raise where there is none.

    It is a dictionary on purpose: for a bare number verl adds a metric `acc`, in which validation counts answers
    without a score as 0.
    """
    if worker.stopped:
        raise RuntimeError(f"This reward worker has stopped: {worker.stopped}.")
    asked = RewardEndpoint(server.rstrip("/"), model, template_hash, timeout_seconds, patience_seconds, concurrency)
    try:
        raw = await _ask(asked, _body(solution_str, extra_info))
    except NoScoreError as error:
        worker.note(error.kind, max_failed)
        if isinstance(error, WrongServerError):
            worker.stopped = str(error)
        log.error("No score for %s: %s", ground_truth, error)
        raise RuntimeError(f"No score for {ground_truth}: {error}") from None
    worker.note("scored", max_failed)
    return {"score": (raw - center) / spread, "raw_score": raw}


def _body(response: str, extra_info: Mapping[str, Any]) -> bytes:
    """Return all that the reward model may see. Escaped, so that half a surrogate pair can be sent too."""
    user = json.loads(extra_info["user"])  # as records, so that the model reads them as it does in process
    given = {"question": extra_info["question"], "user": user, "response": response.strip()}
    return json.dumps(given).encode()


async def _ask(server: RewardEndpoint, body: bytes) -> float:
    client, gate = _client(server)
    give_up_at = time.monotonic() + server.patience_seconds
    attempt = 0
    while True:
        kind, least_wait = "unreachable", 0.0
        try:
            async with gate:
                reply = await asyncio.wait_for(client.post("/score", content=body), server.timeout_seconds)
        except (httpx.TransportError, asyncio.TimeoutError) as error:  # noqa: UP041 - two classes before Python 3.11
            problem = f"{type(error).__name__}: {error}"
        else:
            if reply.status_code == 200:
                return _read(reply, server)
            kind, problem = "refused", f"HTTP {reply.status_code}: {' '.join(reply.text.split())[:200]}"
            if reply.status_code not in TRY_AGAIN:
                raise NoScoreError(kind, problem)
            asked = reply.headers.get("Retry-After", "")
            least_wait = float(asked) if asked.strip().isdecimal() else 0.0
        wait = _wait_seconds(attempt, least_wait)
        if time.monotonic() + wait > give_up_at:
            raise NoScoreError(kind, f"given up after {server.patience_seconds:g} seconds: {problem}")
        attempt += 1
        await asyncio.sleep(wait)


def _read(reply: httpx.Response, server: RewardEndpoint) -> float:
    """Return the score of a reply, which must be the expected model's."""
    try:
        content = reply.json()
        sender = {"model": content["model"], "template_hash": content["template_hash"]}
        (row,) = content["scores"]
        value, problem, detail = row["value"], row.get("problem"), row.get("detail")
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise NoScoreError("unreadable", f"the reply cannot be read: {error!r}") from None
    expected = {"model": server.model, "template_hash": server.template_hash}
    if sender != expected:
        raise WrongServerError("wrong_model", f"{server.url} answers as {sender}, and this run learns from {expected}")
    if value is None:
        raise NoScoreError(str(problem or "failed"), f"the model gave no score: {problem} {detail}")
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise NoScoreError("unreadable", f"{value!r} is no score")
    return float(value)


def _client(server: RewardEndpoint) -> "tuple[httpx.AsyncClient, asyncio.Semaphore]":
    """Return the connections of this event loop, and the gate that bounds how many requests are under way."""
    loop = asyncio.get_running_loop()
    if loop not in _clients:
        headers = {"Content-Type": "application/json"}
        if token := os.environ.get(TOKEN_VARIABLE):
            headers["Authorization"] = f"Bearer {token}"
        client = httpx.AsyncClient(
            base_url=server.url,
            headers=headers,
            timeout=server.timeout_seconds,
            limits=httpx.Limits(max_connections=server.concurrency),
            # A proxy of the environment cannot reach this machine's loopback.
            trust_env=httpx.URL(server.url).host not in LOOPBACK,
        )
        _clients[loop] = client, asyncio.Semaphore(server.concurrency)
    return _clients[loop]


def _wait_seconds(attempt: int, least: float) -> float:
    """Return twice as long as before, and no less than the server asks for; with jitter, so that not all come back."""
    longer = min(FIRST_WAIT_SECONDS * 2.0 ** min(attempt, 10), LONGEST_WAIT_SECONDS)
    return max(longer * random.uniform(0.5, 1.0), min(least, 60.0) * random.uniform(1.0, 1.25))
