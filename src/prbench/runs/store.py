"""The one store: a folder that one process writes, that says what it is of, and that survives a kill at any moment.

Every run has a `manifest.json` (what was asked, and what computed it) and, once it is finished, a `summary.json` (what
came out, the same bytes whether it was interrupted or not). Between the two lie rows, checkpoints and other files.
"""

import json
import shutil
import struct
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from pickle import UnpicklingError
from types import TracebackType
from typing import Any, Self

from prbench.errors import RunError
from prbench.runs.files import (
    FRESH,
    LOCK,
    MANIFEST,
    SUMMARY,
    json_line,
    lock_folder,
    not_a_row,
    open_rows,
    read_json,
    read_lines,
    remove_scratch,
    replacing,
    truncate_partial_line,
    write_json,
    write_lines,
    writing,
)
from prbench.runs.manifest import differences, environment, read_manifest, require_facts, run_id
from prbench.runs.rows import NO_ROW
from prbench.schema import NOTHING, Json

RowKey = tuple[Json, ...]
# What shows, beside the files of its kind, that a folder with a damaged manifest is a run of ours.
_OURS = (SUMMARY, "checkpoint*.pt*", FRESH, LOCK)
# What torch makes of a file that is no checkpoint: unpickling junk can raise nearly anything.
_UNLOADABLE = (
    OSError,
    RuntimeError,
    ValueError,
    EOFError,
    KeyError,
    IndexError,
    TypeError,
    AttributeError,
    AssertionError,
    ImportError,
    MemoryError,
    UnpicklingError,
    struct.error,
)
_NO_CHECKPOINT = "is damaged, or no checkpoint of ours. Remove it to start over."


@dataclass(frozen=True, kw_only=True)
class Layout:
    """The files of one kind of run, beside its manifest."""

    kind: str
    # Names or patterns of what a run writes: `--fresh` removes them, and they show that it has begun.
    made: tuple[str, ...]
    early: tuple[str, ...] = ()  # likewise, but they may be there before the manifest is
    is_alone: bool = False  # nothing of others may lie in the folder
    swaps: bool = False  # `--fresh` makes a new run beside a finished one, which it replaces at the end
    what: str = "run"  # what messages call it


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """What a manifest says."""

    config: Mapping[str, Json]  # all that can change a result: its hash names the run
    facts: Mapping[str, Json] = field(default_factory=lambda: NOTHING)  # what summaries begin with, or readers need
    data: Mapping[str, Json] = field(default_factory=lambda: NOTHING)  # where the rows came from
    command: str = ""
    environment: Mapping[str, Json] = field(default_factory=lambda: NOTHING)  # of the environment: see `environment`

    @property
    def id(self) -> str:
        """The name of the run."""
        return run_id(self.plain)

    @property
    def plain(self) -> dict[str, Json]:
        """The configuration as it reads when it comes back from the manifest."""
        plain: dict[str, Json] = json.loads(json.dumps(self.config))
        return plain

    def manifest(self, kind: str) -> dict[str, Json]:
        """Return the one shape that all manifests have."""
        return {
            "kind": kind,
            "run_id": self.id,
            "config": self.plain,
            "facts": dict(self.facts),
            "data": dict(self.data),
            "command": self.command,
            "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "environment": environment(**self.environment),
        }


class RunStore:
    """An open run, locked against a second writer."""

    def __init__(self, home: Path, layout: Layout) -> None:
        """Lock a folder; `begin` says what for."""
        self.home = home
        self.folder = home  # where to write: a fresh run of a kind that swaps lies in a hidden folder within
        self.manifest: Mapping[str, Json] = NOTHING
        self._layout = layout
        _check_free(home, layout)
        home.mkdir(parents=True, exist_ok=True)
        self._open = ExitStack()
        self._open.enter_context(lock_folder(home, layout.what))
        remove_scratch(home, (MANIFEST, *layout.made, *layout.early))

    @classmethod
    def open(cls, folder: Path, layout: Layout, config: RunConfig, *, fresh: bool = False) -> Self:
        """Begin a run in a folder, or go on with it; a folder that holds another one is refused."""
        run = cls(folder, layout)
        try:
            return run.begin(config, fresh=fresh)
        except BaseException:
            run.close()
            raise

    def begin(self, config: RunConfig, *, fresh: bool = False) -> Self:
        """Write what the run is, or refuse a folder that holds another one, and name the keys that differ."""
        if (self.home / FRESH / SUMMARY).exists():  # it was killed while it took the place of the former one
            self._take_place()
        self.folder = self._place(config.plain, fresh=fresh)
        path = self.folder / MANIFEST
        known = _manifest_of(self.folder, self._layout) if path.exists() else None
        if known is not None and known["config"] == config.plain:
            if config.facts:
                require_facts(self.folder, known)
            # The rows may have moved since, and figures may be asked for in another way: by groups, say. What decides
            # the rows is in the configuration.
            self.manifest = known | {"data": dict(config.data), "facts": dict(config.facts)}
            if self.manifest != known:
                write_json(path, self.manifest)
            return self
        # There is more than a manifest, all that a run leaves which stops before its first row.
        made = _matching(self.folder, (*self._layout.made, *self._layout.early))
        if known is not None and any(path.is_dir() or path.stat().st_size for path in made):
            named = ", ".join(differences(known["config"], config.plain))
            what = self._layout.what
            raise RunError(
                f"{self.folder}: holds a {what} with another {named}. Use another --out, or --fresh to start over."
            )
        self.manifest = config.manifest(self._layout.kind)
        write_json(path, self.manifest)
        return self

    @property
    def run_id(self) -> str:
        """The name of the run."""
        return str(self.manifest["run_id"])

    @property
    def summary(self) -> dict[str, Json] | None:
        """What came out; nothing as long as the run has not ended."""
        return read_json(self.folder / SUMMARY) if (self.folder / SUMMARY).exists() else None

    def rows(self, name: str, key: Sequence[str] = ("id",)) -> "RowLog":
        """Open a file of rows, to be continued."""
        return self._open.enter_context(RowLog(self.folder / name, key))

    def checkpoint(self, name: str = "checkpoint.pt") -> "Checkpoint":
        """Return where a state is kept to go on from."""
        return Checkpoint(path=self.folder / name, key=self.run_id)

    def write_json(self, name: str, content: Mapping[str, Json]) -> None:
        """Write one of the run's JSON files, whole or not at all."""
        write_json(self.folder / name, content)

    def write_lines(self, name: str, rows: Iterable[Mapping[str, Json]]) -> None:
        """Write a file of rows, whole or not at all."""
        write_lines(self.folder / name, rows)

    def wipe(self) -> None:
        """Remove what an earlier run made here. The manifest goes last: it says that the others are ours."""
        if (self.home / MANIFEST).exists():
            _remove(self.home, _written(self.home, self._layout))
            shutil.rmtree(self.home / FRESH, ignore_errors=True)
            (self.home / MANIFEST).unlink()

    def discard(self) -> None:
        """Forget a fresh run beside a finished one, if it has left nothing to go on from."""
        if self.folder != self.home and not _matching(self.folder, ("checkpoint*.pt", SUMMARY)):
            shutil.rmtree(self.folder, ignore_errors=True)

    def finish(self, summary: Mapping[str, Json]) -> None:
        """Write what came out, and drop what was only needed to go on."""
        write_json(self.folder / SUMMARY, summary)
        for path in self.folder.glob("checkpoint*.pt*"):
            path.unlink()
        if self.folder != self.home:
            self._take_place()

    def close(self) -> None:
        """Release the folder."""
        self._open.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _place(self, config: Mapping[str, Json], *, fresh: bool) -> Path:
        """Return where to write, with what must not be gone on with out of the way."""
        new = self.home / FRESH
        if not (self.home / MANIFEST).exists():
            return self.home
        if not fresh:
            is_asked = (new / MANIFEST).exists() and _manifest_of(new, self._layout)["config"] == config
            return new if is_asked else self.home
        if self._layout.swaps and (self.home / SUMMARY).exists():
            shutil.rmtree(new, ignore_errors=True)
            new.mkdir()
            return new
        self.wipe()
        return self.home

    def _take_place(self) -> None:
        """Put a finished run in the place of the former one; killed half-way and called again, it goes on."""
        new = self.home / FRESH
        files = _listed(new)
        # What stays or comes is in the new summary, which moves last: until then this can be done again.
        _remove(self.home, _written(self.home, self._layout) - {*files, MANIFEST, SUMMARY})
        for name in (*files, MANIFEST, SUMMARY):
            if (new / name).exists():
                (self.home / name).parent.mkdir(parents=True, exist_ok=True)
                (new / name).replace(self.home / name)
        shutil.rmtree(new)
        self.folder = self.home


class RowLog:
    """Rows in the order in which they were finished. Of several with one key the latest counts.

    A row that was written is safe from a kill; one that was being written is cut off when the file is opened again.
    """

    def __init__(self, path: Path, key: Sequence[str] = ("id",)) -> None:
        self._path, self._key = path, tuple(key)
        truncate_partial_line(path)
        self._file = open_rows(path)

    def append(self, rows: Iterable[Mapping[str, Json]]) -> None:
        """Write finished rows; when this returns, killing the process cannot lose them."""
        with writing(self._path):
            self._file.write("".join(map(json_line, rows)))
            self._file.flush()

    def read(self) -> dict[RowKey, dict[str, Json]]:
        """Return the latest row of every key, in the order in which the keys first appeared."""
        return read_latest(self._path, self._key)

    def completed(self, retry: Callable[[Mapping[str, Json]], bool] = lambda row: False) -> set[RowKey]:
        """Return the keys that need not be computed again: those with a row that is not to be tried once more.

        What `retry` cannot read is no row of ours.
        """
        done: set[RowKey] = set()
        for number, (_, _, row) in enumerate(read_lines(self._path), start=1):
            key = key_of(row, self._key, self._path, number)
            try:
                (done.discard if retry(row) else done.add)(key)
            except NO_ROW:
                raise not_a_row(self._path, number) from None
        return done

    def compact(self, place: Callable[[RowKey], Json]) -> None:
        """Sort the rows whose key has a place, one row per key; the file is replaced whole, or not at all.

        Rows without a place (`None`) stay where they are: who asks for less does not move what others asked for.
        """
        spans: dict[RowKey, tuple[int, int]] = {}
        lines = 0
        for number, (start, length, row) in enumerate(read_lines(self._path), start=1):
            spans[key_of(row, self._key, self._path, number)] = (start, length)
            lines += 1
        places = {key: place(key) for key in spans}
        in_order = iter(sorted((key for key in spans if places[key] is not None), key=lambda key: (places[key], key)))
        order = [key if places[key] is None else next(in_order) for key in spans]
        if order == list(spans) and lines == len(spans):
            return
        with (
            self._path.open("rb") as file,
            replacing(self._path, is_same_file=True) as scratch,
            scratch.open("wb") as copy,
        ):
            for start, length in map(spans.__getitem__, order):
                file.seek(start)
                copy.write(file.read(length))
        self._file.close()
        self._file = open_rows(self._path)

    def fill(self, columns: Mapping[RowKey, Mapping[str, Json]]) -> None:
        """Give rows the columns that are known only when all rows are; the file is replaced whole, or not at all."""

        def filled() -> Iterator[tuple[dict[str, Json], dict[str, Json]]]:
            for number, (_, _, row) in enumerate(read_lines(self._path), start=1):
                yield row, {**row, **columns.get(key_of(row, self._key, self._path, number), NOTHING)}

        if any(row != new for row, new in filled()):
            with replacing(self._path, is_same_file=True) as scratch, open_rows(scratch, "w") as copy:
                copy.writelines(json_line(new) for _, new in filled())
            self._file.close()
            self._file = open_rows(self._path)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with writing(self._path):  # what could not be written is tried once more
            self._file.close()


def read_latest(path: Path, key: Sequence[str] = ("id",)) -> dict[RowKey, dict[str, Json]]:
    """Return the latest row of every key of a file, also of one that is still being written."""
    return {key_of(row, tuple(key), path, number): row for number, (_, _, row) in enumerate(read_lines(path), start=1)}


def key_of(row: Mapping[str, Json], key: Sequence[str], path: Path, number: int) -> RowKey:
    """Return what tells a row from others."""
    try:
        found = tuple(row[name] for name in key)
        hash(found)
    except (KeyError, TypeError):
        raise not_a_row(path, number) from None
    return found


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """One file that holds all that training needs to go on exactly; `key` ties it to settings and rows."""

    path: Path
    key: str

    def load(self) -> dict[str, Any] | None:
        """Return the last state, or nothing where there is none; one of other settings or rows is refused."""
        import torch

        if not self.path.exists():
            return None
        try:
            state = torch.load(self.path, weights_only=True)
        except _UNLOADABLE as error:
            raise RunError(f"{self.path}: {_NO_CHECKPOINT}") from error
        if not isinstance(state, dict) or "key" not in state:
            raise RunError(f"{self.path}: {_NO_CHECKPOINT}")
        if state["key"] != self.key:
            raise RunError(f"{self.path}: is of other settings or rows. Use another --out, or --fresh.")
        return state

    def save(self, state: Mapping[str, Any]) -> None:
        """Write a state, whole or not at all."""
        import torch

        try:
            with replacing(self.path) as scratch:
                torch.save({**state, "key": self.key}, scratch)
        except RuntimeError as error:  # what torch makes of a write that fails
            message = (
                f"{self.path}: cannot be written. Is the disk full? The same command goes on from the last epoch."
            )
            raise RunError(message) from error


def _check_free(folder: Path, layout: Layout) -> None:
    """Refuse to write over, or among, files that no run of ours left: a mistyped name must not cost anybody's work."""
    if (folder / MANIFEST).is_dir():
        raise RunError(f"{folder / MANIFEST}: is a folder. Use another --out, or move it away.")
    if (folder / MANIFEST).exists():
        try:
            kind = read_json(folder / MANIFEST).get("kind")
        except RunError:
            if _matching(folder, (*layout.made, *layout.early, *_OURS)):
                return  # ours, and damaged: `begin` says what can be done
            kind = None
        if kind != layout.kind:
            whose = f"made by `prbench {kind}`" if kind else "not written by prbench"
            raise RunError(f"{folder / MANIFEST}: was {whose}. Use another --out.")
        return
    if layout.is_alone:
        ours = {LOCK, "cache"}  # a planner keeps its replies in the cache
        there = folder.iterdir() if folder.is_dir() else iter(())
        found = sorted(each.name for each in there if each.name not in ours and not each.name.endswith(".tmp"))
    else:
        found = [path.name for path in _matching(folder, layout.made)]
    if found:
        raise RunError(
            f"{folder}: holds {found[0]}, but no {layout.what} of ours made it. Use another --out, or move it away."
        )


def _manifest_of(folder: Path, layout: Layout) -> dict[str, Json]:
    manifest = read_manifest(folder, layout.what)
    if manifest["kind"] != layout.kind:
        raise RunError(f"{folder / MANIFEST}: is not of this kind of {layout.what}. Use another --out.")
    return manifest


def _matching(folder: Path, patterns: Iterable[str]) -> list[Path]:
    return [path for pattern in patterns for path in sorted(folder.glob(pattern))]


def _written(folder: Path, layout: Layout) -> set[str]:
    """Return what a run wrote into a folder; other files are not ours to remove."""
    try:
        listed = set(_listed(folder))
    except RunError:  # unfinished, or damaged
        listed = set()
    return listed | {path.name for path in _matching(folder, (*layout.made, *layout.early))}


def _listed(folder: Path) -> list[str]:
    """Return the files that a summary names; none outside its folder, and none by anything but a name."""
    path = folder / SUMMARY
    files = read_json(path).get("files")
    if not isinstance(files, list) or not all(
        isinstance(name, str) and (not Path(name).is_absolute() and ".." not in Path(name).parts) for name in files
    ):
        raise RunError(f"{path}: does not say which files were made. Remove the folder {folder} to make it again.")
    return files


def _remove(folder: Path, names: Iterable[str]) -> None:
    """Remove files and folders, and the folders that are left empty."""
    for name in names:
        if (folder / name).is_dir():
            shutil.rmtree(folder / name)
        else:
            (folder / name).unlink(missing_ok=True)
        for parent in (folder / name).relative_to(folder).parents[:-1]:
            if (folder / parent).is_dir() and not any((folder / parent).iterdir()):
                (folder / parent).rmdir()
