"""SQLite files: cached replies and annotation projects. What is deleted is overwritten, and files are compacted."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from prbench.errors import RunError
from prbench.people.annotate import store as annotations
from prbench.people.annotate.database import APPLICATION_ID
from prbench.people.forget.person import Person

WAIT_SECONDS = 30.0


def forget_in_database(path: Path, person: Person, *, dry_run: bool) -> int | None:
    """Remove a person from a database of ours and return how many rows went; None for a database of somebody else."""
    with _database(path) as database:
        tables = {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        is_project = database.execute("PRAGMA application_id").fetchone()[0] == APPLICATION_ID
        if not is_project and not _has_our_replies(database):
            return None
        if not is_project:
            return _forget_replies(database, person, has_owners="owners" in tables, dry_run=dry_run)
        found = _count_in_project(database, person)
    if not dry_run:
        for one in sorted(person.ids):
            annotations.forget(path, one)
    return found


def _has_our_replies(database: sqlite3.Connection) -> bool:
    """True for a cache of ours: any program may have a table of that name."""
    columns = {row[1] for row in database.execute("PRAGMA table_info(replies)")}
    return {"key", "reply"} <= columns


def _forget_replies(database: sqlite3.Connection, person: Person, *, has_owners: bool, dry_run: bool) -> int:
    """Remove the replies that were made from the person's texts, by their owner; and any that quotes or names them."""
    ids = sorted(person.ids)
    keys: set[str] = set()
    if has_owners:
        marks = ",".join("?" * len(ids))
        keys = {key for (key,) in database.execute(f"SELECT key FROM owners WHERE user IN ({marks})", ids)}
    for key, reply in database.execute("SELECT key, reply FROM replies"):
        if key not in keys and (person.named_in(reply) or person.quoted_in(reply)):
            keys.add(key)
    present = sum(_has_reply(database, key) for key in keys)
    if dry_run:
        return present
    for key in keys:
        database.execute("DELETE FROM replies WHERE key = ?", (key,))
        if has_owners:
            database.execute("DELETE FROM owners WHERE key = ?", (key,))
    database.commit()
    # Also after a run that was killed: deleted rows may lie in the log, or in free pages.
    database.execute("VACUUM")
    database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return present


def _has_reply(database: sqlite3.Connection, key: str) -> bool:
    return database.execute("SELECT 1 FROM replies WHERE key = ?", (key,)).fetchone() is not None


def _count_in_project(database: sqlite3.Connection, person: Person) -> int:
    ids = sorted(person.ids)
    marks = ",".join("?" * len(ids))
    items = database.execute(f"SELECT count(*) FROM items WHERE user_id IN ({marks})", ids).fetchone()[0]
    people = database.execute(f"SELECT count(*) FROM annotators WHERE name IN ({marks})", ids).fetchone()[0]
    return int(items + people)


@contextmanager
def _database(path: Path) -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(path, timeout=WAIT_SECONDS)
    try:
        connection.execute("PRAGMA secure_delete = ON")
        yield connection
    except sqlite3.OperationalError as error:
        if "lock" not in str(error) and "busy" not in str(error):
            raise
        raise RunError(
            f"{path}: cannot be changed now ({error}). End what uses it, and run the command again."
        ) from None
    finally:
        connection.close()
