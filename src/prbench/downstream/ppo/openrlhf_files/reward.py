"""The reward of this export: `reward_func` asks `prbench serve` what an answer is worth to the user who asked.

It needs the standard library alone; OpenRLHF loads it by `--reward.remote_url reward.py`. `export.json`, beside it,
says which server to ask, which model and template must answer, and how rewards are scaled.

A failure is never a number. OpenRLHF has no place for an answer without a reward: it logs what is raised here, and its
run ends when the batch is put together. So busy and unreachable servers are asked again for some minutes first.
Run as a script, this file checks that the right server answers.
"""

import json
import math
import os
import random
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

EXPORT = json.loads((Path(__file__).resolve().parent / "export.json").read_text(encoding="utf-8"))
SERVER = (os.environ.get("PRBENCH_SERVER_URL") or EXPORT["server"]).rstrip("/")
TRY_AGAIN = frozenset({429, 502, 503, 504})
TIMEOUT_SECONDS = 60.0
FIRST_WAIT_SECONDS = 0.5
LONGEST_WAIT_SECONDS = 10.0
LOOPBACK = ("http://127.0.0.1", "http://localhost", "http://[::1]")


def reward_func(queries: list[str], prompts: list[str], labels: list[str], **others: Any) -> dict[str, Any]:
    """Return the rewards that OpenRLHF maximizes, (raw - center) / spread, and the raw ones for its log."""
    reply = _ask("/get_reward", {"query": list(queries), "prompts": list(prompts), "labels": list(labels)})
    raw = reply["rewards"]
    if len(raw) != len(queries) or not all(_is_number(value) for value in raw):
        raise RuntimeError(f"{SERVER} answered {raw!r} to {len(queries)} answers.")
    rewards = [(value - EXPORT["center"]) / EXPORT["spread"] for value in raw]
    return {"rewards": rewards, "scores": rewards, "extra_logs": {"raw_score": raw}}


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _ask(path: str, body: dict[str, Any] | None) -> dict[str, Any]:
    """Return the reply, which must be the expected model's."""
    headers = {"Content-Type": "application/json"}
    if token := os.environ.get("PRBENCH_SERVER_TOKEN"):
        headers["Authorization"] = f"Bearer {token}"
    content = None if body is None else json.dumps(body).encode()  # escaped, so that half a surrogate pair goes too
    request = urllib.request.Request(SERVER + path, data=content, headers=headers)
    # A proxy of the environment cannot reach this machine's loopback.
    proxies: dict[str, str] | None = {} if SERVER.startswith(LOOPBACK) else None
    opener = urllib.request.build_opener(urllib.request.ProxyHandler(proxies))
    give_up_at = time.monotonic() + EXPORT["patience_seconds"]
    wait = FIRST_WAIT_SECONDS
    while True:
        least = 0.0
        try:
            with opener.open(request, timeout=TIMEOUT_SECONDS) as answer:
                return _checked(json.load(answer))
        except urllib.error.HTTPError as error:
            problem = f"HTTP {error.code}: {' '.join(error.read().decode(errors='replace').split())[:200]}"
            if error.code not in TRY_AGAIN:
                raise RuntimeError(f"{SERVER}: {problem}") from None
            asked = error.headers.get("Retry-After", "")
            least = float(asked) if asked.isdecimal() else 0.0
        except ValueError as error:
            raise RuntimeError(f"{SERVER}: the reply is not JSON: {error}") from None
        except OSError as error:  # refused, lost, timed out
            problem = f"{type(error).__name__}: {error}"
        pause = max(wait * random.uniform(0.5, 1.0), min(least, 60.0))
        if time.monotonic() + pause > give_up_at:
            raise RuntimeError(f"{SERVER}: given up after {EXPORT['patience_seconds']:g} seconds: {problem}")
        time.sleep(pause)
        wait = min(2 * wait, LONGEST_WAIT_SECONDS)


def _checked(reply: dict[str, Any]) -> dict[str, Any]:
    sender = (reply.get("model"), reply.get("template_hash"))
    if sender != (EXPORT["model"], EXPORT["template_hash"]):
        raise RuntimeError(
            f"{SERVER} answers as {sender}, and this run learns from {(EXPORT['model'], EXPORT['template_hash'])}."
        )
    return reply


if __name__ == "__main__":
    EXPORT["patience_seconds"] = 10.0
    try:
        _ask("/ready", None)
    except RuntimeError as error:
        sys.exit(f"reward: {error}")
