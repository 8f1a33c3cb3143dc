"""The folder of a build. Its true state is `replies.sqlite`: every other file is made again from there, whole."""

import re
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType

from prbench.build.settings import Stage
from prbench.errors import RunError, UsageError
from prbench.folders import read_json, take_lock, write_json, write_lines
from prbench.schema import Json

BUILD, MANIFEST, TIMING, REPLIES = "build.json", "manifest.json", "timing.json", "replies.sqlite"
PAIRS, REJECTS, DATASET = "pairs.jsonl", "rejects.jsonl", "dataset"
STAGE_FILES: Mapping[Stage, str] = {
    Stage.DRAW: "0_draw.jsonl",
    Stage.RANK: "1_rank.jsonl",
    Stage.RUBRIC: "2_rubric.jsonl",
    Stage.GENERATE: "3_generate.jsonl",
    Stage.VERIFY: "4_verify.jsonl",
    Stage.PARITY: "5_parity.jsonl",
}
# Not the key of the pseudonyms: a fresh build of the same people keeps their names.
_RESULTS = (MANIFEST, PAIRS, REJECTS, "audit.json", *STAGE_FILES.values())
_MADE = (BUILD, TIMING, *_RESULTS)
_REQUIRED = frozenset({"format", "settings", "data"})  # in build.json
_REPLY_FILES = (REPLIES, f"{REPLIES}-wal", f"{REPLIES}-shm")


_SCRATCH = re.compile(rf"(?:{'|'.join(map(re.escape, _MADE))})\.[0-9]+\.tmp")


class BuildFolder:
    """An open build folder, locked against a second writer."""

    def __init__(self, path: Path) -> None:
        self.path = path
        _refuse_foreign(path)
        path.mkdir(parents=True, exist_ok=True)
        self._lock = take_lock(path, "build")
        for scratch in path.glob("*.tmp"):  # of a process that was killed while it wrote
            if _SCRATCH.fullmatch(scratch.name):
                scratch.unlink()

    def wipe(self) -> None:
        """Remove what an earlier build made here, replies and all; a folder without a build is left as it is."""
        if not (self.path / BUILD).exists():
            return
        shutil.rmtree(self.path / DATASET, ignore_errors=True)
        for name in (*_RESULTS, TIMING, *_REPLY_FILES, BUILD):  # the last one says that the others are ours
            (self.path / name).unlink(missing_ok=True)

    def claim(self, config: Mapping[str, Json]) -> None:
        """Write what this build is, or refuse a folder that holds another one. Data may move: its hash names it."""
        path = self.path / BUILD
        old = read_json(path, "build") if path.exists() else config
        changed = sorted(_differences(old, config) - {"settings.data"})
        if changed:
            named = ", ".join(name.removeprefix("settings.") for name in changed)
            raise RunError(f"{path}: this folder holds a build with another {named}. Use another --out, or --fresh.")
        write_json(path, config)

    def write_stage(self, stage: Stage, rows: Iterable[Mapping[str, Json]]) -> None:
        """Write the file of a stage, whole."""
        write_lines(self.path / STAGE_FILES[stage], rows)

    def write_lines(self, name: str, rows: Iterable[Mapping[str, Json]]) -> None:
        """Write another file of rows, whole."""
        write_lines(self.path / name, rows)

    def write_json(self, name: str, content: Mapping[str, Json]) -> None:
        """Write a JSON file, whole."""
        write_json(self.path / name, content)

    def close(self) -> None:
        """Release the folder."""
        self._lock.close()

    def __enter__(self) -> "BuildFolder":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def refuse_own_output(data: str, out: Path) -> None:
    """Refuse to read what the build itself writes: the rows would be overwritten, or change with every run."""
    source, folder = Path(data).resolve(), out.resolve()
    made = [folder / name for name in (*_MADE, *_REPLY_FILES, DATASET)]
    if source == folder or any(source == path or path in source.parents for path in made):
        raise UsageError(f"--data {data}: that is where this build writes. Use another --out, or copy the data away.")


def _refuse_foreign(path: Path) -> None:
    """Refuse a folder with files of our names that no build made: they would be overwritten."""
    if (path / BUILD).exists():
        if not (path / REPLIES).exists() and not read_json(path / BUILD, "build").keys() >= _REQUIRED:
            raise RunError(f"{path / BUILD}: was not written by prbench build. Use another --out.")
        return
    found = [name for name in (*_RESULTS, DATASET) if (path / name).exists()]
    if found:
        raise RunError(f"{path}: holds {found[0]}, but no build made it. Use another --out, or move it away.")


def _differences(old: Mapping[str, Json], new: Mapping[str, Json], prefix: str = "") -> set[str]:
    """Name the entries in which two configurations differ, e.g. `settings.seed`."""
    names: set[str] = set()
    for key in old.keys() | new.keys():
        one, other = old.get(key), new.get(key)
        if isinstance(one, Mapping) and isinstance(other, Mapping):
            names |= _differences(one, other, f"{prefix}{key}.")
        elif one != other:
            names.add(f"{prefix}{key}")
    return names
