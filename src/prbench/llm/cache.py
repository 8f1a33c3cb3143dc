"""Replies kept on disk, so that no request is paid for twice."""

import hashlib
import json
import sqlite3
import threading
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Protocol, runtime_checkable

from prbench.errors import UsageError
from prbench.llm.client import LLM, ChatRequest, Finish, Message, Reply

FORMAT = 1  # part of every key: a new way to write replies never reads old ones
WAIT_SECONDS = 60.0  # for another process that is writing


@runtime_checkable
class Fingerprinted(Protocol):
    """A client that knows what, besides its name and the request, decides a reply (a default seed, a file)."""

    @property
    def fingerprint(self) -> str:
        """Equal fingerprints mean interchangeable replies."""
        ...


class CachedLLM:
    """A client that asks `inner` only what it has not asked before.

    The file holds a hash of each request and the reply, never the request itself: people's posts are not copied into
    it. (A reply may quote them; treat the file as you treat the data.) Failed requests are not kept. Equal requests
    share one reply, also at a temperature above 0: give them different seeds to get different samples.
    """

    def __init__(self, inner: LLM, path: Path) -> None:
        self._inner = inner
        self._path = path
        self._lock = threading.Lock()
        self._database = _open(path)
        self.hits = 0
        self.misses = 0

    @property
    def name(self) -> str:
        """The name of the model inside."""
        return self._inner.name

    @property
    def window(self) -> int | None:
        """The window of the model inside."""
        return self._inner.window

    @property
    def fingerprint(self) -> str:
        """The fingerprint of the model inside, or "" where it has none."""
        return self._inner.fingerprint if isinstance(self._inner, Fingerprinted) else ""

    def count_tokens(self, messages: Sequence[Message]) -> int:
        """Return what the model inside counts."""
        return self._inner.count_tokens(messages)

    def complete(self, requests: Sequence[ChatRequest]) -> list[Reply]:
        """Return one reply per request, in the same order, from the file where it has them."""
        keys = [request_key(self.name, self.fingerprint, request) for request in requests]
        known = self._read(keys)
        missing = {key: request for key, request in zip(keys, requests, strict=True) if key not in known}
        fresh = dict(zip(missing, self._inner.complete(list(missing.values())), strict=True)) if missing else {}
        self._write(fresh)
        with self._lock:
            self.hits += len(requests) - len(missing)
            self.misses += len(missing)
        return [known[key] if key in known else fresh[key] for key in keys]

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._database.close()

    def _read(self, keys: Sequence[str]) -> dict[str, Reply]:
        found: dict[str, Reply] = {}
        with self._lock:
            for key in keys:
                row = self._database.execute("SELECT reply FROM replies WHERE key = ?", (key,)).fetchone()
                if row:
                    found[key] = _from_json(row[0])
        return found

    def _write(self, replies: Mapping[str, Reply]) -> None:
        rows = [
            (key, json.dumps(_to_dict(reply))) for key, reply in replies.items() if reply.finish is not Finish.ERROR
        ]
        if not rows:
            return
        with self._lock, self._database:
            # Another process may have asked the same in the meantime: the first answer stays.
            self._database.executemany("INSERT OR IGNORE INTO replies (key, reply) VALUES (?, ?)", rows)


def request_key(name: str, fingerprint: str, request: ChatRequest) -> str:
    """Hash all that decides a reply: the model, and every field of the request, also those added later."""
    content = {field.name: getattr(request, field.name) for field in fields(request)}
    content["messages"] = [[message.role, message.content] for message in request.messages]
    content["json_schema"] = dict(request.json_schema)  # its key order shapes the reply, so it is not sorted
    text = json.dumps([FORMAT, name, fingerprint, content])
    return hashlib.sha256(text.encode()).hexdigest()


def _to_dict(reply: Reply) -> dict[str, object]:
    content = {field.name: getattr(reply, field.name) for field in fields(reply)}
    return content | {"first_token": dict(reply.first_token)}


def _from_json(text: str) -> Reply:
    fields_of_reply = json.loads(text)
    return Reply(**fields_of_reply | {"finish": Finish(fields_of_reply["finish"])})


def _open(path: Path) -> sqlite3.Connection:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        database = sqlite3.connect(path, timeout=WAIT_SECONDS, check_same_thread=False)
        database.execute("PRAGMA journal_mode = WAL")  # readers do not wait for the writer
        database.execute("PRAGMA synchronous = NORMAL")
        database.execute(
            "CREATE TABLE IF NOT EXISTS replies (key TEXT PRIMARY KEY, reply TEXT NOT NULL) WITHOUT ROWID"
        )
    except (OSError, sqlite3.DatabaseError) as error:
        raise UsageError(f"{path}: not usable as a reply cache ({error}). Name another file, or remove it.") from error
    return database
