"""The tables of one project, and transactions on them. Events are only ever added; triggers see to it."""

import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from prbench.errors import RunError, UsageError
from prbench.runs.files import PRIVATE, disk_error

FORMAT = 1
APPLICATION_ID = 0x50524241  # "PRBA", in the header of the file
BUSY_SECONDS = 30.0

SCHEMA = """
CREATE TABLE project (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE items (id TEXT PRIMARY KEY, number INTEGER NOT NULL UNIQUE, user_id TEXT NOT NULL, content TEXT NOT NULL);
CREATE TABLE annotators (
  id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL UNIQUE, token_hash TEXT NOT NULL UNIQUE,
  is_paused INTEGER NOT NULL DEFAULT 0, created_at TEXT NOT NULL
);
CREATE TABLE sessions (
  hash TEXT PRIMARY KEY, annotator INTEGER REFERENCES annotators ON DELETE CASCADE, expires_at TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE assignments (
  annotator INTEGER NOT NULL REFERENCES annotators ON DELETE CASCADE,
  item TEXT NOT NULL REFERENCES items ON DELETE CASCADE,
  position INTEGER NOT NULL, side TEXT NOT NULL, is_opened INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY (annotator, item), UNIQUE (annotator, position)
) WITHOUT ROWID;
CREATE TABLE events (
  id INTEGER PRIMARY KEY AUTOINCREMENT, annotator INTEGER NOT NULL, item TEXT NOT NULL, side TEXT NOT NULL,
  status TEXT NOT NULL, answer TEXT NOT NULL, seconds REAL NOT NULL, saved_at TEXT NOT NULL, tab TEXT NOT NULL
);
CREATE INDEX events_of ON events (annotator, item, id);
CREATE VIEW answers AS SELECT * FROM events WHERE NOT EXISTS (
  SELECT 1 FROM events AS later
  WHERE later.annotator = events.annotator AND later.item = events.item AND later.id > events.id
);
"""
GUARDS = {
    "events_stay": "CREATE TRIGGER events_stay BEFORE DELETE ON events BEGIN SELECT raise(ABORT, 'append-only'); END",
    "events_keep": "CREATE TRIGGER events_keep BEFORE UPDATE ON events BEGIN SELECT raise(ABORT, 'append-only'); END",
}


class WriteError(RunError):
    """The project cannot be written, or read, now; nothing of what was asked for was done."""


class Database:
    """One connection, which the threads of a server take in turns; other processes may have theirs."""

    def __init__(self, path: Path) -> None:
        if not path.is_file():
            raise UsageError(f"{path}: there is no such project. Make one with: prbench annotate create {path}")
        self.path = path
        self._lock = threading.RLock()
        connection = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
        connection.row_factory = sqlite3.Row
        try:
            application = connection.execute("PRAGMA application_id").fetchone()[0]
            version = connection.execute("PRAGMA user_version").fetchone()[0]
        except sqlite3.DatabaseError as error:
            connection.close()
            raise UsageError(f"{path}: is not a project of prbench annotate ({error}). Check the path.") from None
        if (application, version) != (APPLICATION_ID, FORMAT):
            connection.close()
            raise UsageError(f"{path}: is not a project of this version of prbench annotate. Check the path.")
        # FULL: a commit that was acknowledged outlives the machine, not only the process.
        connection.executescript("PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON; PRAGMA secure_delete = ON;")
        self._connection = connection

    @classmethod
    def make(cls, path: Path) -> "Database":
        """Make the file with its tables, readable by its owner alone."""
        if path.exists():
            raise UsageError(f"{path}: exists already. Choose another name, or invite people to it.")
        path.parent.mkdir(parents=True, exist_ok=True)
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, PRIVATE))
        connection = sqlite3.connect(path)
        try:
            connection.executescript(
                "PRAGMA journal_mode = WAL; BEGIN;"
                + SCHEMA
                + ";".join(GUARDS.values())
                + f"; PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {FORMAT}; COMMIT;"
            )
        except sqlite3.OperationalError as error:
            connection.close()
            path.unlink()  # a project without its tables is none
            raise disk_error(path, str(error)) from error
        connection.close()
        return cls(path)

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Do all of it or nothing; when it ends without an error, it is on the disk."""
        with self._lock:
            try:
                self._connection.execute("BEGIN IMMEDIATE")
                yield self._connection
                self._connection.execute("COMMIT")
            except BaseException as error:
                if self._connection.in_transaction:  # a full disk may have ended it already
                    self._connection.execute("ROLLBACK")
                if isinstance(error, sqlite3.OperationalError):
                    raise WriteError(
                        f"{self.path}: cannot be written ({error}). Nothing was saved; try again."
                    ) from error
                raise

    def rows(self, query: str, *values: Any) -> list[sqlite3.Row]:
        with self._lock:
            try:
                return self._connection.execute(query, values).fetchall()
            except sqlite3.OperationalError as error:
                raise WriteError(f"{self.path}: cannot be read ({error}). Try again.") from error

    def compact(self) -> None:
        """Leave nothing of what was deleted, neither in the file nor in its log."""
        with self._lock:
            self._connection.execute("VACUUM")
            self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def close(self) -> None:
        with self._lock:
            self._connection.close()
