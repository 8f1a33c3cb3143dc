"""Addresses, links and sessions: who may come in. Only hashes of tokens are stored: the file gives nobody a way in."""

import secrets
import sqlite3
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from urllib.parse import urlsplit

from prbench.errors import UsageError
from prbench.people.annotate.database import Database
from prbench.people.annotate.records import Annotator
from prbench.serve.settings import HttpSettings

TOKEN_BYTES = 24  # 192 bits
SESSION_DAYS = 30
LONGEST_NAME = 80
OWNER_HASH = "owner_hash"


@dataclass(frozen=True, kw_only=True)
class AnnotateSettings(HttpSettings):
    """Every page needs a token, so any address may be listened on; TLS is a proxy's work."""

    port: int = 8100
    public_url: str = ""  # what people type, where a proxy stands before the server; "": the server's own address
    wrong_tokens: int = 10  # per address and window; further wrong ones are told to wait
    window_seconds: float = 60.0

    def __post_init__(self) -> None:
        """Refuse an address that no link could lead to."""
        super().__post_init__()
        if self.public_url:
            check_url(self.public_url)


def check_url(url: str) -> str:
    """Return the address without a slash at its end, or refuse what no browser opens."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.path not in ("", "/"):
        raise UsageError(f"--url {url}: give a scheme and a host, such as https://annotate.example.org.")
    return url.rstrip("/")


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """One browser that came in by a link; without an annotator it is the owner's."""

    secret: str = field(repr=False)
    link_hash: str = field(repr=False)  # the same for all sessions of one person, until their link is renewed
    annotator: Annotator | None = None


def make_token() -> str:
    return secrets.token_urlsafe(TOKEN_BYTES)


def hash_token(token: str) -> str:
    """Return what is stored of a token. It is random and long, so it needs neither salt nor a slow hash."""
    return sha256(token.encode()).hexdigest()


def link_to(base: str, token: str) -> str:
    """Return the link that lets the holder of a token in."""
    return f"{base}/in/{token}"


def now() -> str:
    return stored_time(datetime.now(UTC))


def stored_time(moment: datetime) -> str:
    """Return a time as it is stored: UTC, with milliseconds, so that the later text is the later time."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def check_name(name: str) -> str:
    name = " ".join(name.split())
    if not name or not name.isprintable() or len(name) > LONGEST_NAME:
        raise UsageError(f"An annotator's name has 1 to {LONGEST_NAME} printable characters. Choose another.")
    return name


class People:
    """The annotators of a project, their links and their sessions."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def all(self) -> list[Annotator]:
        """Return the annotators in the order they were invited."""
        return [_annotator(row) for row in self._database.rows("SELECT * FROM annotators ORDER BY id")]

    def named(self, name: str) -> Annotator:
        rows = self._database.rows("SELECT * FROM annotators WHERE name = ?", check_name(name))
        if not rows:
            known = ", ".join(each.name for each in self.all())
            raise UsageError(f"There is no annotator {name!r}. Known: {known or 'nobody'}.")
        return _annotator(rows[0])

    def renew(self, annotator_id: int | None) -> str:
        """Return a new token for an annotator, or for the owner; the old link and its sessions end."""
        token = make_token()
        with self._database.transaction() as connection:
            connection.execute("DELETE FROM sessions WHERE annotator IS ?", (annotator_id,))
            if annotator_id is None:
                connection.execute("REPLACE INTO project VALUES (?, ?)", (OWNER_HASH, hash_token(token)))
            else:
                change = "UPDATE annotators SET token_hash = ? WHERE id = ?"
                connection.execute(change, (hash_token(token), annotator_id))
        return token

    def holder(self, token: str) -> tuple[bool, Annotator | None]:
        """Tell whether a token is the owner's, and whose of the annotators it is."""
        hashed = hash_token(token)
        owner = self._database.rows("SELECT 1 FROM project WHERE key = ? AND value = ?", OWNER_HASH, hashed)
        rows = self._database.rows("SELECT * FROM annotators WHERE token_hash = ?", hashed)
        return bool(owner), _annotator(rows[0]) if rows else None

    def enter(self, token: str) -> Session | None:
        """Begin a session for the holder of a token; `None` when nobody has it."""
        owner, annotator = self.holder(token)
        if not owner and annotator is None:
            return None
        secret = make_token()
        expires = (datetime.now(UTC) + timedelta(days=SESSION_DAYS)).isoformat()
        with self._database.transaction() as connection:
            connection.execute("DELETE FROM sessions WHERE expires_at < ?", (datetime.now(UTC).isoformat(),))
            connection.execute(
                "INSERT INTO sessions VALUES (?, ?, ?)",
                (hash_token(secret), None if annotator is None else annotator.id, expires),
            )
        return Session(secret=secret, link_hash=hash_token(token), annotator=annotator)

    def session(self, secret: str, *, is_owner: bool) -> Session | None:
        """Return the session of a cookie, if it is one of that kind and has not ended."""
        rows = self._database.rows(
            "SELECT annotators.*, sessions.annotator AS holder, coalesce(token_hash, value) AS link_hash "
            "FROM sessions JOIN project ON key = ? LEFT JOIN annotators ON annotators.id = sessions.annotator "
            "WHERE hash = ? AND expires_at > ?",
            OWNER_HASH,
            hash_token(secret),
            datetime.now(UTC).isoformat(),
        )
        if not rows or (rows[0]["holder"] is None) != is_owner:
            return None
        annotator = None if is_owner else _annotator(rows[0])
        return Session(secret=secret, link_hash=rows[0]["link_hash"], annotator=annotator)

    def leave(self, session: Session) -> None:
        with self._database.transaction() as connection:
            connection.execute("DELETE FROM sessions WHERE hash = ?", (hash_token(session.secret),))


def insert_annotator(connection: sqlite3.Connection, name: str, token: str) -> int:
    """Add a person; a name that is taken is refused."""
    name = check_name(name)
    if connection.execute("SELECT 1 FROM annotators WHERE name = ?", (name,)).fetchone():
        raise UsageError(f"There is already an annotator {name!r}. Choose another name, or renew that link.")
    added = connection.execute(
        "INSERT INTO annotators (name, token_hash, created_at) VALUES (?, ?, ?)", (name, hash_token(token), now())
    )
    assert added.lastrowid is not None
    return added.lastrowid


def _annotator(row: sqlite3.Row) -> Annotator:
    return Annotator(id=row["id"], name=row["name"], is_paused=bool(row["is_paused"]))
