"""Read finished runs back, and the texts they were about."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from prbench.errors import RunError
from prbench.runs import ITEMS, MANIFEST, read_manifest, read_rows
from prbench.schema import Json, RatedRow, Row
from prbench.summary import summarise


@dataclass(frozen=True, kw_only=True)
class FinishedRun:
    """A run as it stands on disk."""

    folder: Path
    manifest: Mapping[str, Json]
    summary: Mapping[str, Json]
    rows: Sequence[Row | RatedRow]

    @property
    def name(self) -> str:
        """The model, and the context that tells two runs of it apart."""
        return f"{self.summary['model']} · {self.summary['context']}"


def load_runs(paths: Sequence[Path]) -> list[FinishedRun]:
    """Return the runs in these folders, every figure computed anew; a folder of runs means all of them."""
    folders: list[Path] = []
    for path in paths:
        if (path / MANIFEST).exists():
            folders.append(path)
        elif path.is_dir():
            folders.extend(sorted(child.parent for child in path.glob(f"*/{MANIFEST}")))
        else:
            raise RunError(f"{path}: no such run. Give a run folder, or a folder of runs such as `runs`.")
    if not folders:
        raise RunError(f"{paths[0]}: holds no runs. `prbench eval` or `prbench demo` makes some.")
    return [_load(folder) for folder in dict.fromkeys(folders)]


def _load(folder: Path) -> FinishedRun:
    if not (folder / ITEMS).exists():
        raise RunError(f"{folder}: has no {ITEMS}, so there is nothing to report. Run its command again.")
    manifest, rows = read_manifest(folder), read_rows(folder)
    return FinishedRun(folder=folder, manifest=manifest, summary=summarise(rows, manifest["facts"]), rows=rows)
