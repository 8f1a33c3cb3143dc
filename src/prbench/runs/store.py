"""The store of one run: an append-only file of rows that survives being killed at any moment.

`runs/<id>/` holds `manifest.json` (what was asked), `items.jsonl` (one row per item and probe), `summary.json`
(what came out, the same bytes whenever the same rows are summed up) and `timing.json` (what varies).
"""

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from types import TracebackType
from typing import IO

from prbench.errors import RunError
from prbench.folders import read_json, take_lock, write_json
from prbench.runs.names import ITEMS, MANIFEST, SUMMARY, TIMING
from prbench.runs.rows import read_rows, to_record
from prbench.schema import RETRIED, Json, RatedRow, Row


def run_id(config: Mapping[str, Json]) -> str:
    """Return the name of the run: a hash of everything that can change its results."""
    return sha256(json.dumps(config, sort_keys=True, ensure_ascii=False).encode()).hexdigest()[:12]


class RunStore:
    """An open run folder, locked against a second writer."""

    def __init__(self, folder: Path, manifest: Mapping[str, Json], *, fresh: bool = False) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._lock = take_lock(folder)
        if fresh:
            for name in (MANIFEST, ITEMS, SUMMARY, TIMING):
                (folder / name).unlink(missing_ok=True)
        self.manifest = _same_or_new_manifest(folder, manifest)
        _cut_torn_tail(folder / ITEMS)
        self._items = _open_to_append(folder / ITEMS)

    def finished(self) -> set[tuple[str, str]]:
        """Return the (id, probe) of every row that need not be computed again: all but those of `RETRIED`."""
        done: set[tuple[str, str]] = set()
        for row in read_rows(self.folder, groups=()):
            if row.problem not in RETRIED:
                done.add((row.id, row.probe))
        return done

    def append(self, rows: Iterable[Row | RatedRow]) -> None:
        """Write finished rows; when this returns, killing the process cannot lose them."""
        self._items.write("".join(json.dumps(to_record(row), ensure_ascii=False) + "\n" for row in rows))
        self._items.flush()

    def put_in_order(self, place: Callable[[str, str], tuple[int, int]]) -> None:
        """Sort the rows by `place(id, probe)`; of several rows of one item and probe, the latest stays last.

        Workers finish in any order, and rows are written as they come. The sorted file takes the other's place whole.
        """
        path = self.folder / ITEMS
        with path.open("rb") as file:
            lines = [(place(record["id"], record["probe"]), start, length) for start, length, record in _spans(file)]
            in_order = sorted(lines, key=lambda line: line[0])
            if in_order == lines:
                return
            scratch = path.with_name(f"{path.name}.{os.getpid()}.tmp")
            with scratch.open("wb") as copy:
                for _, start, length in in_order:
                    file.seek(start)
                    copy.write(file.read(length))
        self._items.close()
        scratch.replace(path)
        self._items = _open_to_append(path)

    def write_json(self, name: str, content: Mapping[str, Json]) -> None:
        """Write one of the run's JSON files, whole or not at all."""
        write_json(self.folder / name, content)

    def close(self) -> None:
        """Release the folder."""
        self._items.close()
        self._lock.close()

    def __enter__(self) -> "RunStore":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _open_to_append(path: Path) -> IO[str]:
    # Half a surrogate pair in a model's reply is no UTF-8; escaped, it is still the same JSON.
    return path.open("a", encoding="utf-8", errors="backslashreplace")


def _spans(file: IO[bytes]) -> Iterator[tuple[int, int, dict[str, Json]]]:
    """Yield where each line starts, how long it is, and what it says."""
    start = 0
    for line in file:
        yield start, len(line), json.loads(line)
        start += len(line)


def _same_or_new_manifest(folder: Path, manifest: Mapping[str, Json]) -> Mapping[str, Json]:
    path = folder / MANIFEST
    if not path.exists():
        write_json(path, manifest)
        return manifest
    old = read_json(path)
    if old.get("config") != manifest["config"]:
        raise RunError(f"{path}: this folder holds a run of another configuration. Use another --out, or --fresh.")
    return old


def _cut_torn_tail(path: Path) -> None:
    """Drop an unfinished last line, which is all that a kill in the middle of a write can leave behind."""
    if not path.exists():
        return
    with path.open("rb+") as file:
        size = file.seek(0, os.SEEK_END)
        tail = b""
        while size - len(tail) > 0 and b"\n" not in tail:
            start = max(0, size - len(tail) - 65536)
            file.seek(start)
            tail = file.read(size - len(tail) - start) + tail
        keep = size - len(tail) + tail.rfind(b"\n") + 1
        if keep < size:
            file.truncate(keep)
