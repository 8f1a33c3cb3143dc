"""The SQLite file behind the cache: replies, whose they are, and what was spent on them."""

import hashlib
import json
import math
import secrets
import sqlite3
import threading
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from prbench.backends.llm.claims import Claims
from prbench.backends.llm.client import ChatRequest, Finish, Reply
from prbench.errors import UsageError
from prbench.schema import BROKEN, NOTHING

FORMAT = 1  # part of every key: a new way to write replies never reads old ones
WAIT_SECONDS = 60.0  # for another process that is writing
KEYS_PER_QUERY = 500

# Spending has one row per request that was sent. Its tokens are the estimate until the true ones are known.
TABLES = """
CREATE TABLE IF NOT EXISTS replies (key TEXT PRIMARY KEY, reply TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS owners (key TEXT NOT NULL, user TEXT NOT NULL, PRIMARY KEY (key, user)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS spending (
    id INTEGER PRIMARY KEY, session TEXT NOT NULL, key TEXT NOT NULL, role TEXT NOT NULL, state TEXT NOT NULL,
    prompt_tokens INTEGER NOT NULL, completion_tokens INTEGER NOT NULL, price_input REAL, price_output REAL);
CREATE INDEX IF NOT EXISTS spending_open ON spending (session, key) WHERE state = 'sent';
"""
# Another process may have asked the same in the meantime: the first answer stays, unless only this one has its end.
KEEP = """
INSERT INTO replies VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET reply = excluded.reply
WHERE json_extract(replies.reply, '$.finish') = 'length' AND json_extract(excluded.reply, '$.finish') = 'stop'
"""


class State(StrEnum):
    """What became of a request that was sent."""

    SENT = "sent"  # in flight, or lost with the process that sent it
    ANSWERED = "answered"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Price:
    """US dollars per million tokens."""

    input: float
    output: float

    def __post_init__(self) -> None:
        for value in (self.input, self.output):
            if not 0 <= value < math.inf:
                raise UsageError(f"A price of {value} is none. Give US dollars per million tokens, 0 or more.")

    def of(self, prompt_tokens: int, completion_tokens: int) -> float:
        """Return what that many tokens cost."""
        return (prompt_tokens * self.input + completion_tokens * self.output) / 1_000_000


@dataclass(frozen=True, slots=True)
class Usage:
    """Requests and their tokens, added up."""

    requests: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            self.requests + other.requests,
            self.prompt_tokens + other.prompt_tokens,
            self.completion_tokens + other.completion_tokens,
        )

    def __neg__(self) -> "Usage":
        return Usage(-self.requests, -self.prompt_tokens, -self.completion_tokens)


Account = tuple[str, Price | None, State]  # role, price, state


class ReplyFile:
    """Replies on disk, shared by threads and processes; every method is one transaction.

    A kill leaves all that was committed. After a power cut the newest rows may be missing, never half of one.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.claims = Claims()
        self._session = secrets.token_hex(8)  # tells this process's requests from those of one that was killed
        self._lock = threading.Lock()
        self._database = _open(path)

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._database.close()

    def read(self, keys: Collection[str]) -> dict[str, Reply]:
        """Return the replies that the file has, by key."""
        wanted = list(keys)
        found: dict[str, Reply] = {}
        with self._lock:
            for start in range(0, len(wanted), KEYS_PER_QUERY):
                some = wanted[start : start + KEYS_PER_QUERY]
                marks = ",".join("?" * len(some))
                rows = self._database.execute(f"SELECT key, reply FROM replies WHERE key IN ({marks})", some)
                found |= {key: _from_json(reply) for key, reply in rows}
        return found

    def keep(self, key: str, reply: Reply, owners: Iterable[str] = ()) -> None:
        """Write a reply, its owners and, where the request was metered, what it cost: all or nothing."""
        with self._lock, self._database:
            self._database.execute(KEEP, (key, json.dumps(_to_dict(reply))))
            self._write_owners((key, owner) for owner in owners)
            self._settle(key, reply)

    def own(self, owners: Iterable[tuple[str, str]]) -> None:
        """Write whose the replies are, as (key, owner) pairs; a reply that two people share has two owners."""
        pairs = list(owners)
        if pairs:
            with self._lock, self._database:
                self._write_owners(pairs)

    def intend(self, key: str, role: str, estimate: Usage, price: Price | None) -> None:
        """Write that a request is about to be sent, so that it counts even if nobody lives to see its reply."""
        prices = (price.input, price.output) if price else (None, None)
        row = (self._session, key, role, State.SENT, estimate.prompt_tokens, estimate.completion_tokens, *prices)
        with self._lock, self._database:
            self._database.execute(
                "INSERT INTO spending (session, key, role, state, prompt_tokens, completion_tokens, price_input,"
                " price_output) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                row,
            )

    def settle(self, key: str, reply: Reply) -> None:
        """Write what a request cost whose reply is not kept."""
        with self._lock, self._database:
            self._settle(key, reply)

    def spending(self) -> dict[Account, Usage]:
        """Return what was spent, by role, price and state."""
        with self._lock:
            rows = self._database.execute(
                "SELECT role, price_input, price_output, state, count(*), sum(prompt_tokens), sum(completion_tokens)"
                " FROM spending GROUP BY 1, 2, 3, 4"
            ).fetchall()
        return {
            (role, None if price_input is None else Price(price_input, price_output), State(state)): Usage(*counts)
            for role, price_input, price_output, state, *counts in rows
        }

    def _write_owners(self, pairs: Iterable[tuple[str, str]]) -> None:
        self._database.executemany("INSERT OR IGNORE INTO owners VALUES (?, ?)", (pair for pair in pairs if pair[1]))

    def _settle(self, key: str, reply: Reply) -> None:
        self._database.execute(
            "UPDATE spending SET state = ?1, prompt_tokens = iif(?2, ?3, prompt_tokens),"
            " completion_tokens = iif(?2, ?4, completion_tokens)"
            " WHERE id = (SELECT min(id) FROM spending WHERE session = ?5 AND key = ?6 AND state = 'sent')",
            (state_of(reply), tells_usage(reply), reply.prompt_tokens, reply.completion_tokens, self._session, key),
        )


def state_of(reply: Reply) -> State:
    """Return what became of the request: a reply of another model is none, though it may cost as much."""
    return State.FAILED if reply.problem in BROKEN else State.ANSWERED


def tells_usage(reply: Reply) -> bool:
    """Tell whether the reply says what it cost. A failure that does not is taken to have cost nothing."""
    return reply.finish is Finish.ERROR or reply.prompt_tokens + reply.completion_tokens > 0


def request_key(name: str, fingerprint: str, request: ChatRequest) -> str:
    """Hash all that decides a reply: the model, and every field that makes requests equal.

    The keys are literal and stay, so that a renamed field asks for nothing twice. A new field is written where it has
    another value than the one that all requests had before.
    """
    content = {
        "messages": [[message.role, message.content] for message in request.messages],
        "max_tokens": request.max_tokens,
        "temperature": request.temperature,
        "seed": request.seed,
        "top_logprobs": request.top_logprobs,
        "json_schema": dict(request.json_schema),  # its key order shapes the reply, so it is not sorted
    }
    text = json.dumps([FORMAT, name, fingerprint, content])
    return hashlib.sha256(text.encode()).hexdigest()


def _to_dict(reply: Reply) -> Mapping[str, object]:
    """Return a reply as it stands in the file; these keys are literal as well."""
    return {
        "text": reply.text,
        "finish": reply.finish,
        "error": reply.error,
        "prompt_tokens": reply.prompt_tokens,
        "completion_tokens": reply.completion_tokens,
        "first_token": dict(reply.first_token),
    }


def _from_json(text: str) -> Reply:
    """Return the reply of a row; what an earlier version did not write is as it was then."""
    kept = json.loads(text)
    return Reply(
        text=kept["text"],
        finish=Finish(kept["finish"]),
        error=kept.get("error", ""),
        prompt_tokens=kept.get("prompt_tokens", 0),
        completion_tokens=kept.get("completion_tokens", 0),
        first_token=kept.get("first_token", NOTHING),
    )


def _open(path: Path) -> sqlite3.Connection:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        database = sqlite3.connect(path, timeout=WAIT_SECONDS, check_same_thread=False)
        database.execute("PRAGMA journal_mode = WAL")  # readers do not wait for the writer
        database.execute("PRAGMA synchronous = NORMAL")
        database.executescript(TABLES)
    except (OSError, sqlite3.DatabaseError) as error:
        raise UsageError(f"{path}: not usable as a reply cache ({error}). Name another file, or remove it.") from error
    return database
