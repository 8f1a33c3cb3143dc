"""The folder of a build. Its true state is `replies.sqlite`: every other file is made again from there, whole."""

import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType

from prbench.build.settings import Stage
from prbench.errors import RunError
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
_MADE = (BUILD, MANIFEST, TIMING, PAIRS, REJECTS, "audit.json", *STAGE_FILES.values())
_REPLY_FILES = (REPLIES, f"{REPLIES}-wal", f"{REPLIES}-shm")


class BuildFolder:
    """An open build folder, locked against a second writer."""

    def __init__(self, path: Path, *, fresh: bool = False) -> None:
        self.path = path
        path.mkdir(parents=True, exist_ok=True)
        self._lock = take_lock(path, "build")
        for scratch in path.glob("*.tmp"):  # of a process that was killed while it wrote
            scratch.unlink()
        if fresh:
            shutil.rmtree(path / DATASET, ignore_errors=True)
            for name in (*_MADE, *_REPLY_FILES):
                (path / name).unlink(missing_ok=True)

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
