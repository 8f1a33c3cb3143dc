"""Replies kept on disk as they arrive, so that no request is paid for twice."""

import hashlib
import json
import math
import secrets
import sqlite3
import threading
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import closing, contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Protocol, runtime_checkable

from prbench.backends.llm.client import (
    LLM,
    Arrived,
    ChatRequest,
    Finish,
    Reply,
    Wrapped,
    complete_each,
    in_order,
    no_progress,
)
from prbench.errors import RunError, UsageError
from prbench.runs.files import PRIVATE, disk_error
from prbench.schema import BROKEN

FORMAT = 1  # part of every key: a new way to write replies never reads old ones
WAIT_SECONDS = 60.0  # for another process that is writing
KEYS_PER_QUERY = 500
_PLAIN_KEYS = {"text": str, "error": str, "prompt_tokens": int, "completion_tokens": int, "first_token": dict}

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
OWN = "INSERT OR IGNORE INTO owners VALUES (?, ?)"


class RequestState(StrEnum):
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
class TokenUsage:
    """Requests and their tokens, added up."""

    requests: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0

    def __add__(self, other: "TokenUsage") -> "TokenUsage":
        return TokenUsage(
            self.requests + other.requests,
            self.prompt_tokens + other.prompt_tokens,
            self.completion_tokens + other.completion_tokens,
        )

    def __neg__(self) -> "TokenUsage":
        return TokenUsage(-self.requests, -self.prompt_tokens, -self.completion_tokens)


Account = tuple[str, Price | None, RequestState]  # role, price, state


class ReplyFile:
    """Replies on disk, shared by threads and processes; every method is one transaction.

    A kill leaves all that was committed. After a power cut the newest rows may be missing, never half of one.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.in_flight = InFlightRequests()
        self._session = secrets.token_hex(8)  # tells this process's requests from those of one that was killed
        self._lock = threading.Lock()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch(PRIVATE)  # a reply may quote people's posts
            self._database = sqlite3.connect(path, timeout=WAIT_SECONDS, check_same_thread=False)
            self._database.execute("PRAGMA journal_mode = WAL")  # readers do not wait for the writer
            self._database.execute("PRAGMA synchronous = NORMAL")
            self._database.executescript(TABLES)
        except (OSError, sqlite3.DatabaseError) as error:
            wrong = f"not usable as a reply cache ({error}). Name another file, or remove it."
            raise UsageError(f"{path}: {wrong}") from error

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """Do all of it or nothing; a full disk and a damaged file are errors that a user can fix."""
        with self._lock:
            try:
                with self._database:
                    yield self._database
            except sqlite3.OperationalError as error:
                raise disk_error(self.path, str(error)) from error
            except sqlite3.DatabaseError as error:
                raise self._damaged(str(error)) from error

    def _damaged(self, what: str) -> RunError:
        return RunError(f"{self.path}: damaged ({what}). Restore it, or remove it: what it held is then asked again.")

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._database.close()

    def read(self, keys: Collection[str]) -> dict[str, Reply]:
        """Return the replies that the file has, by key."""
        wanted = list(keys)
        found: dict[str, Reply] = {}
        with self._transaction() as database:
            for start in range(0, len(wanted), KEYS_PER_QUERY):
                some = wanted[start : start + KEYS_PER_QUERY]
                marks = ",".join("?" * len(some))
                for key, text in database.execute(f"SELECT key, reply FROM replies WHERE key IN ({marks})", some):
                    try:
                        found[key] = _read_reply(text)
                    except (KeyError, TypeError, ValueError, RecursionError):
                        raise self._damaged(f"the reply {key[:12]}… cannot be read") from None
        return found

    def keep(self, key: str, reply: Reply, owners: Iterable[str] = ()) -> None:
        """Write a reply, its owners and, where the request was metered, what it cost: all or nothing."""
        row = {  # these keys are literal, as those of `request_key` are
            "text": reply.text,
            "finish": reply.finish,
            "error": reply.error,
            "prompt_tokens": reply.prompt_tokens,
            "completion_tokens": reply.completion_tokens,
            "first_token": dict(reply.first_token),
        }
        with self._transaction() as database:
            database.execute(KEEP, (key, json.dumps(row)))
            database.executemany(OWN, [(key, owner) for owner in owners if owner])
            self._settle(key, reply)

    def own(self, owners: Iterable[tuple[str, str]]) -> None:
        """Write whose the replies are, as (key, owner) pairs; a reply that two people share has two owners."""
        pairs = [pair for pair in owners if pair[1]]
        if pairs:
            with self._transaction() as database:
                database.executemany(OWN, pairs)

    def intend(self, key: str, role: str, estimate: TokenUsage, price: Price | None) -> None:
        """Write that a request is about to be sent, so that it counts even if the process dies first."""
        prices = (price.input, price.output) if price else (None, None)
        tokens = (estimate.prompt_tokens, estimate.completion_tokens)
        with self._transaction() as database:
            database.execute(
                "INSERT INTO spending (session, key, role, state, prompt_tokens, completion_tokens, price_input,"
                " price_output) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (self._session, key, role, RequestState.SENT, *tokens, *prices),
            )

    def settle(self, key: str, reply: Reply) -> None:
        """Write what a request cost whose reply is not kept."""
        with self._transaction():
            self._settle(key, reply)

    def spending(self) -> dict[Account, TokenUsage]:
        """Return what was spent, by role, price and state."""
        with self._transaction() as database:
            rows = database.execute(
                "SELECT role, price_input, price_output, state, count(*), sum(prompt_tokens), sum(completion_tokens)"
                " FROM spending GROUP BY 1, 2, 3, 4"
            ).fetchall()
        return {
            (role, None if price_input is None else Price(price_input, price_output), RequestState(state)): TokenUsage(
                *counts
            )
            for role, price_input, price_output, state, *counts in rows
        }

    def _settle(self, key: str, reply: Reply) -> None:
        self._database.execute(
            "UPDATE spending SET state = ?1, prompt_tokens = iif(?2, ?3, prompt_tokens),"
            " completion_tokens = iif(?2, ?4, completion_tokens)"
            " WHERE id = (SELECT min(id) FROM spending WHERE session = ?5 AND key = ?6 AND state = 'sent')",
            (state_of(reply), tells_usage(reply), reply.prompt_tokens, reply.completion_tokens, self._session, key),
        )


def _read_reply(text: str) -> Reply:
    """Return a reply as it was kept; nothing in it is of another type than its field says."""
    row = json.loads(text)
    plain = {name: row[name] for name in _PLAIN_KEYS if name in row}
    if not all(type(plain.get(name, kind())) is kind for name, kind in _PLAIN_KEYS.items()):
        raise TypeError("not of the type of its field")
    return Reply(finish=Finish(row["finish"]), **plain)


def state_of(reply: Reply) -> RequestState:
    """Return what became of the request: a reply of another model is none, though it may cost as much."""
    return RequestState.FAILED if reply.problem in BROKEN else RequestState.ANSWERED


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


class InFlightRequests:
    """The requests in flight, by key; an outcome is cancelled where the thread that asks gave up."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requests: dict[str, tuple[int, Future[Reply]]] = {}  # with the thread that asks

    def claim(self, keys: Collection[str]) -> tuple[list[str], dict[str, Future[Reply]]]:
        """Claim what nobody else is asking; return that, and the outcomes to wait for of the rest.

        What this very thread is asking already counts as unclaimed: waiting for oneself would never end.
        """
        me = threading.get_ident()
        mine: list[str] = []
        others: dict[str, Future[Reply]] = {}
        with self._lock:
            for key in keys:
                thread, outcome = self._requests.setdefault(key, (me, Future()))
                if thread == me:
                    mine.append(key)
                else:
                    others[key] = outcome
        return mine, others

    def resolve(self, key: str, reply: Reply) -> None:
        """Hand the outcome to those who wait for it."""
        with self._lock:
            request = self._requests.pop(key, None)
        if request:
            request[1].set_result(reply)

    def release(self, keys: Iterable[str]) -> None:
        """Give up what was claimed and has no reply: whoever waits may ask for themselves."""
        with self._lock:
            given_up = [self._requests.pop(key, None) for key in keys]
        for request in filter(None, given_up):
            request[1].cancel()


@runtime_checkable
class Meters(Protocol):
    """A client that counts what it sends; inside a cache, the cache's file keeps the count."""

    def keep_in(self, file: ReplyFile) -> None:
        """Keep the count in this file, and go on from what it says was spent."""
        ...

    def count_cached(self, count: int) -> None:
        """Count requests that the cache answered."""
        ...


class CachedLLM(Wrapped):
    """A client that asks `inner` only what it has not asked before, and commits each reply as soon as it is there.

    The file holds a hash of each request and the reply, never the request itself: people's posts are not copied into
    it. (A reply may quote them; treat the file as you treat the data.) What does not answer its request is not kept: a
    failure, a reply of another model, one that was cut off. Equal requests share one reply, also at a temperature
    above 0: give them different seeds to get different samples.
    """

    def __init__(self, inner: LLM, path: Path | ReplyFile) -> None:
        """Clients that share one `ReplyFile` also share what is in flight.

        Where `inner` meters (`MeteredLLM`), the file also keeps what was spent, and its ledger starts from there.
        """
        super().__init__(inner)
        self._file = path if isinstance(path, ReplyFile) else ReplyFile(path)
        self._lock = threading.Lock()
        self.hits = 0
        self.misses = 0
        if isinstance(inner, Meters):
            inner.keep_in(self._file)

    def known(self, requests: Sequence[ChatRequest]) -> list[bool]:
        """Tell for each request whether its reply is kept, or will be by an equal request before it."""
        keys = self._keys(requests)
        seen = set(self._kept({key: [request] for key, request in zip(keys, requests, strict=True)}))
        known = []
        for key in keys:
            known.append(key in seen)
            seen.add(key)
        return known

    def complete(self, requests: Sequence[ChatRequest]) -> list[Reply]:
        return in_order(self.complete_each(requests))

    def complete_each(
        self, requests: Iterable[ChatRequest], arrived: Arrived = no_progress
    ) -> Iterator[tuple[int, Reply]]:
        """Yield (index, reply): first what the file has, then what arrives, when it is on disk."""
        asked = list(requests)
        places: dict[str, list[int]] = {}
        for index, key in enumerate(self._keys(asked)):
            places.setdefault(key, []).append(index)
        for key, reply in self._replies({key: [asked[index] for index in some] for key, some in places.items()}):
            for index in places[key]:
                arrived(index, reply)
                yield index, reply

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _keys(self, requests: Sequence[ChatRequest]) -> list[str]:
        name, fingerprint = self.name, self.fingerprint
        return [request_key(name, fingerprint, request) for request in requests]

    def _replies(self, groups: Mapping[str, Sequence[ChatRequest]]) -> Iterator[tuple[str, Reply]]:
        """Yield one reply per group of equal requests: kept, fresh, or of another thread that asks the same."""
        missing = dict(groups)
        while missing:
            mine, others = self._file.in_flight.claim(missing)
            to_ask = {key: missing[key] for key in mine}
            try:
                # Read after the claim: what another thread had claimed before is on disk by now.
                kept = self._kept(missing)
                self._own({key: missing[key] for key in kept})
                for key, reply in kept.items():
                    if to_ask.pop(key, None):
                        self._file.in_flight.resolve(key, reply)
                    self._count(hits=len(missing.pop(key)), misses=0)
                    yield key, reply
                for key, reply in self._ask(to_ask):
                    del missing[key]
                    yield key, reply
            finally:
                self._file.in_flight.release(key for key in mine if key in missing)
            for key in [key for key in others if key in missing]:
                try:
                    shared = others[key].result()
                except CancelledError:
                    continue  # that thread gave up: this one asks in the next round
                if _answers(shared, missing[key]):
                    self._own({key: missing[key]})
                self._count(hits=len(missing.pop(key)), misses=0)
                yield key, shared

    def _ask(self, groups: Mapping[str, Sequence[ChatRequest]]) -> Iterator[tuple[str, Reply]]:
        keys = list(groups)

        def keep(index: int, reply: Reply) -> None:
            group = groups[keys[index]]
            if _answers(reply, group):
                self._file.keep(keys[index], reply, {request.owner for request in group})
            elif reply.finish is not Finish.ERROR:  # of no use, but paid for
                self._file.settle(keys[index], reply)
            self._file.in_flight.resolve(keys[index], reply)
            self._count(hits=len(group) - 1, misses=1)

        requests = (groups[key][0] for key in keys)
        with closing(complete_each(self._inner, requests, keep)) as replies:
            for index, reply in replies:
                yield keys[index], reply

    def _kept(self, groups: Mapping[str, Sequence[ChatRequest]]) -> dict[str, Reply]:
        """Return what the file has. It may hold a reply that was cut off, and was enough for another request."""
        kept = self._file.read(groups)
        return {key: reply for key, reply in kept.items() if _answers(reply, groups[key])}

    def _own(self, groups: Mapping[str, Sequence[ChatRequest]]) -> None:
        self._file.own(sorted({(key, request.owner) for key, group in groups.items() for request in group}))

    def _count(self, hits: int, misses: int) -> None:
        with self._lock:
            self.hits += hits
            self.misses += misses
        if isinstance(self._inner, Meters):
            self._inner.count_cached(hits)


def _answers(reply: Reply, group: Sequence[ChatRequest]) -> bool:
    """Tell whether the reply answers a group of equal requests, or one of them at least."""
    return any(reply.answers(request) for request in group)
