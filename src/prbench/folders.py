"""Folders that one process writes at a time, and files in them that are there whole or not at all."""

import fcntl
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from prbench.errors import RunError
from prbench.schema import Json

LOCK = "lock"


def take_lock(folder: Path, what: str = "run") -> IO[str]:
    """Make this process the only writer of a folder for as long as the file stays open."""
    lock = (folder / LOCK).open("w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        message = f"{folder}: another process is writing this {what}. Wait for it, or use another --out."
        raise RunError(message) from None
    return lock


def write_json(path: Path, content: Mapping[str, Json]) -> None:
    """Write a JSON file by rename, so that a reader never sees half of it."""
    _write_whole(path, [json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n"])


def write_lines(path: Path, rows: Iterable[Mapping[str, Json]]) -> None:
    """Write one row per line, likewise."""
    _write_whole(path, (json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n" for row in rows))


def read_json(path: Path, what: str = "run") -> dict[str, Json]:
    """Return the object that a JSON file of such a folder holds."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        message = f"{path}: no such file. Is {path.parent} a {what} folder, and has the {what} finished?"
        raise RunError(message) from None
    except ValueError:
        raise RunError(f"{path}: not valid JSON. Run the command again with --fresh.") from None
    if not isinstance(content, dict):
        raise RunError(f"{path}: not a JSON object. Run the command again with --fresh.")
    return content


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Give a path to write to, which takes the place of `path` at the end, or is removed where writing failed."""
    scratch = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        yield scratch
        scratch.replace(path)
    finally:
        scratch.unlink(missing_ok=True)


def _write_whole(path: Path, parts: Iterable[str]) -> None:
    # Half a surrogate pair in a model's reply is no UTF-8; escaped, it is still the same JSON.
    with (
        replacing(path) as scratch,
        scratch.open("w", encoding="utf-8", errors="backslashreplace") as file,
    ):
        file.writelines(parts)
