"""One way to read what commands left behind: the runs in some folders, and a line about all that was left out."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from prbench.errors import RunError
from prbench.runs.files import read_json
from prbench.runs.manifest import read_manifest, read_summary, require_facts
from prbench.runs.names import EVAL, MANIFEST, RUN_KINDS, SUMMARY
from prbench.runs.rows import read_rows
from prbench.schema import Json, Probe, RatedRow, Row


@dataclass(frozen=True, kw_only=True)
class StoredRun:
    """A run that is finished, as it stands on disk."""

    folder: Path
    kind: str
    manifest: Mapping[str, Json]
    rows: Sequence[Row | RatedRow] = ()  # of an evaluation

    def summary(self) -> dict[str, Json]:
        """Return what came out."""
        return read_summary(self.folder, self.kind)


@dataclass(frozen=True, kw_only=True)
class FoundRuns:
    """Finished runs, and a line about each folder that was left out."""

    runs: tuple[StoredRun, ...]
    left_out: tuple[str, ...]


def find_runs(
    paths: Sequence[Path],
    *,
    kinds: Collection[str] = RUN_KINDS,
    groups: Sequence[str] | None = (),
    replies: bool = False,
) -> FoundRuns:
    """Return the finished runs of some kinds in these folders; a folder of runs means all that lie directly in it.

    It is an error if there are none. An interrupted run has figures of its first items only, so it cannot stand beside
    the others; nor can a damaged one. Rows keep the facts named in `groups` and those that the run was grouped by, or
    with `None` all of them; see `read_rows`.
    """
    runs: list[StoredRun] = []
    left_out: list[str] = []
    for folder in dict.fromkeys(place for path in paths for place in _places(path)):
        found = _read(folder, kinds, groups, replies)
        if isinstance(found, str):
            left_out.append(found)
        elif found is not None:
            runs.append(found)
    if not runs:
        hint = "`prbench eval` or `prbench demo` makes some."
        raise RunError(left_out[0] if left_out else f"{paths[0]}: holds no runs. {hint}")
    return FoundRuns(runs=tuple(runs), left_out=tuple(left_out))


def is_run(folder: Path) -> bool:
    """True for a folder that says which run it is."""
    return (folder / MANIFEST).exists()


def _places(path: Path) -> list[Path]:
    if is_run(path):
        return [path]
    if not path.is_dir():
        raise RunError(f"{path}: no such run. Give a run folder, or a folder of runs such as `runs`.")
    return sorted(child for child in path.iterdir() if child.is_dir())


def _read(folder: Path, kinds: Collection[str], groups: Sequence[str] | None, replies: bool) -> StoredRun | str | None:
    """Return the run in a folder, why it is left out, or nothing where there is nothing to say.

    All that readers need is read and checked here, once: one damaged run must not stop the others later.
    """
    try:
        if not is_run(folder):
            return _further(folder)
        kind = read_json(folder / MANIFEST).get("kind")
        if not kind or not isinstance(kind, str):
            return f"{folder}: its {MANIFEST} was not written by prbench; left out."
        if kind not in kinds:
            return f"{folder}: made by `prbench {kind}`, which is not read here; left out."
        manifest = read_manifest(folder)
        require_facts(folder, manifest)
        rows = _rows_of(folder, manifest, groups, replies) if kind == EVAL else []
        if why := _unfinished(folder, manifest, rows):
            again = f" Run its command again: {manifest['command']}" if manifest["command"] else ""
            return f"{folder}: {why}; left out.{again}"
        return StoredRun(folder=folder, kind=kind, manifest=manifest, rows=rows)
    except RunError as error:
        return f"{error} Left out."
    except OSError as error:
        return f"{folder}: cannot be read ({(error.strerror or type(error).__name__).lower()}); left out."


def _rows_of(
    folder: Path, manifest: Mapping[str, Json], groups: Sequence[str] | None, replies: bool
) -> list[Row | RatedRow]:
    kept = None if groups is None else tuple(dict.fromkeys((*groups, *manifest["facts"]["group_by"])))
    return read_rows(folder, groups=kept, replies=replies)


def _further(folder: Path) -> str | None:
    """Say which runs lie deeper; they count where their folder is named."""
    counts = Counter(kind for child in _children(folder) if (kind := _kind_at(child)) in RUN_KINDS)
    if not counts:
        return None
    listed = ", ".join(f"{count} of `prbench {kind}`" for kind, count in sorted(counts.items()))
    return f"{folder}: a folder of further runs ({listed}); left out. Name it to read them."


def _children(folder: Path) -> Iterator[Path]:
    return (child for child in folder.iterdir() if child.is_dir())


def _kind_at(folder: Path) -> str:
    try:
        return str(read_json(folder / MANIFEST).get("kind", "")) if is_run(folder) else ""
    except RunError:
        return ""


def _unfinished(folder: Path, manifest: Mapping[str, Json], rows: Sequence[Row | RatedRow]) -> str:
    """Return why a run has not come to its end."""
    if manifest["kind"] == EVAL:
        done = sum(row.probe is Probe.OWN for row in rows)
        wanted = manifest["facts"]["data"]["rows"]
        if done < wanted:
            return f"unfinished, {done} of {wanted} items"
    return "" if (folder / SUMMARY).exists() else "unfinished"
