"""What the files of a run are called, and how they are written: whole or not at all, by one writer at a time."""

import errno
import json
import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from filelock import FileLock, Timeout

from prbench.errors import RunError
from prbench.schema import Json

MANIFEST, ITEMS, SUMMARY, TIMING = "manifest.json", "items.jsonl", "summary.json", "timing.json"
EVALUATION, EVALUATION_ROWS = "evaluation.json", "evaluation.jsonl"  # of the policies of a PPO run
FRESH = ".fresh"  # a run that is to take the place of a finished one; hidden, so that no fingerprint counts it
EVAL, BON, PPO, TRAIN, BUILD, PLANNER = "eval", "bon", "ppo", "train", "build", "planner"
POOL, GRADES, SCORES = "pool", "grades", "scores"  # what a Best-of-N is made of, each in a folder of its own
RUN_KINDS = (EVAL, BON, PPO, TRAIN, BUILD, PLANNER)  # what a command calls a run
KINDS = (*RUN_KINDS, POOL, GRADES, SCORES)  # all that a store writes
LOCK = "lock"
PRIVATE = 0o600  # of what holds people's words: rows, replies, databases
# What a disk says that takes nothing more; other errors name a file that is somebody else's, or a bug.
_DISK_FAULTS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.EFBIG})
_SCRATCH = re.compile(r"(?P<name>.+)\.[0-9]+(\.old)?\.tmp")


@contextmanager
def lock_folder(folder: Path, what: str = "run") -> Iterator[None]:
    """Make this process the only writer of a folder; a second one is refused at once."""
    lock = FileLock(folder / LOCK, blocking=False, thread_local=False)
    try:
        lock.acquire()
    except Timeout:
        message = f"{folder}: another process is writing this {what}. Wait for it, or use another --out."
        raise RunError(message) from None
    except OSError as error:
        raise _cannot(folder / LOCK, "locked", error) from None
    try:
        yield
    finally:
        lock.release()


def disk_error(path: Path, reason: str) -> RunError:
    """Return the error of a file that cannot be written, in one line with what to do."""
    remedy = "Make room or mend that, and run the same command again: what was written is kept."
    return RunError(f"{path}: cannot be written ({reason.lower()}). {remedy}")


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Say which file could not be written where a disk is full, over its quota, read-only or broken."""
    try:
        yield
    except OSError as error:
        if error.errno not in _DISK_FAULTS:
            raise
        raise disk_error(path, error.strerror or type(error).__name__) from error


def open_rows(path: Path, mode: str = "a") -> IO[str]:
    """Open a file of rows to write, which nobody but its owner reads."""
    # Half a surrogate pair in a model's reply is no UTF-8; escaped, it is still the same JSON.
    return open(path, mode, encoding="utf-8", errors="backslashreplace", opener=_private)


def _private(name: str, flags: int) -> int:
    return os.open(name, flags, PRIVATE)


@contextmanager
def replacing(path: Path, *, mark: str = "", is_same_file: bool = False) -> Iterator[Path]:
    """Give a path to write a file or a folder to; at the end it takes the place of `path`, or goes if writing failed.

    A folder takes two steps: killed between them, there is none, and writing it again puts it there. What a kill
    leaves has `mark` in its name, for `remove_scratch`. With `is_same_file` a file that is there is changed: the new
    one gets its mode, and is on the disk before it takes its place, so that a power cut loses neither.
    """
    scratch = path.with_name(f"{path.name}{mark}.{os.getpid()}.tmp")
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        _remove(scratch)
        try:
            yield scratch
            if is_same_file:
                with scratch.open("rb+") as file:
                    os.fsync(file.fileno())
                scratch.chmod(path.stat().st_mode & 0o7777)
            if path.is_dir():
                old = path.with_name(f"{path.name}.{os.getpid()}.old.tmp")
                path.replace(old)
                scratch.replace(path)
                _remove(old)
            else:
                scratch.replace(path)
        finally:
            _remove(scratch)


def remove_scratch(folder: Path, names: Iterable[str]) -> None:
    """Remove what processes left that were killed while they wrote these files. Only who holds the lock may do so."""
    patterns = tuple(names)
    for path in folder.glob("*.tmp"):
        found = _SCRATCH.fullmatch(path.name)
        if found and any(Path(found["name"]).match(pattern) for pattern in patterns):
            _remove(path)


def write_text(path: Path, text: str) -> None:
    """Write a text file by rename, so that a reader never sees half of it."""
    _write_whole(path, [text])


def write_json(path: Path, content: Mapping[str, Json]) -> None:
    """Write a JSON file, likewise."""
    _write_whole(path, [json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n"])


def write_lines(path: Path, rows: Iterable[Mapping[str, Json]]) -> None:
    """Write one row per line, likewise."""
    _write_whole(path, map(json_line, rows), is_private=True)


def json_line(row: Mapping[str, Json]) -> str:
    """Return a row as a line of a file of rows."""
    return json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n"


def read_json(path: Path, what: str = "run") -> dict[str, Json]:
    """Return the object that a JSON file of such a folder holds."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        message = f"{path}: no such file. Is {path.parent} a {what} folder, and has the {what} finished?"
        raise RunError(message) from None
    except OSError as error:
        raise _cannot(path, "read", error) from None
    except (ValueError, RecursionError):
        raise RunError(f"{path}: not valid JSON. Run the command again with --fresh.") from None
    if not isinstance(content, dict):
        raise RunError(f"{path}: not a JSON object. Run the command again with --fresh.")
    return content


def read_lines(path: Path) -> Iterator[tuple[int, int, dict[str, Json]]]:
    """Yield each row of a file with where its line starts and how long it is; none where there is no file.

    A last line without its end is still being written by somebody else, or a kill has torn it: it does not count.
    """
    if not path.exists():
        return
    try:
        file = path.open("rb")
    except OSError as error:
        raise _cannot(path, "read", error) from None
    with file:
        start = 0
        for number, line in enumerate(file, start=1):
            if not line.endswith(b"\n"):
                return
            try:
                row = json.loads(line)
            except (ValueError, RecursionError):
                row = None
            if not isinstance(row, dict):
                raise not_a_row(path, number)
            yield start, len(line), row
            start += len(line)


def _cannot(path: Path, what: str, error: OSError) -> RunError:
    """Return the error of a folder where a file should be, or of a file that is somebody else's."""
    reason = (error.strerror or type(error).__name__).lower()
    return RunError(f"{path}: cannot be {what} ({reason}). Move it away, or use another --out.")


def not_a_row(path: Path, number: int) -> RunError:
    """Return the error that a damaged line is."""
    return RunError(f"{path}:{number}: not a row of ours. Restore the file, or use --fresh.")


def truncate_partial_line(path: Path) -> None:
    """Drop an unfinished last line, which is all that a kill in the middle of a write can leave behind."""
    if not path.exists():
        return
    try:
        file = path.open("rb+")
    except OSError as error:
        raise _cannot(path, "written", error) from None
    with file:
        size = file.seek(0, os.SEEK_END)
        tail = b""  # read backwards until a line ends in it: files are large, and lines are not
        while size - len(tail) > 0 and b"\n" not in tail:
            start = max(0, size - len(tail) - 65536)
            file.seek(start)
            tail = file.read(size - len(tail) - start) + tail
        keep = size - len(tail) + tail.rfind(b"\n") + 1
        if keep < size:
            file.truncate(keep)


def _write_whole(path: Path, parts: Iterable[str], *, is_private: bool = False) -> None:
    with replacing(path) as scratch:
        file = (
            open_rows(scratch, "w") if is_private else scratch.open("w", encoding="utf-8", errors="backslashreplace")
        )
        with file:
            file.writelines(parts)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
