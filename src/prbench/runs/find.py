"""One way to read what commands left behind: the runs in some folders, and the values behind their figures.

A line is given about every folder that was left out.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import NoneType
from typing import NamedTuple

from prbench.errors import RunError
from prbench.runs.files import (
    BON,
    EVAL,
    EVALUATION_ROWS,
    ITEMS,
    MANIFEST,
    PPO,
    RUN_KINDS,
    SUMMARY,
    not_a_row,
    read_json,
    read_lines,
)
from prbench.runs.manifest import read_manifest, read_summary, require_facts
from prbench.runs.rows import read_rows
from prbench.schema import POINTS, Json, Probe, Problem, RatedRow, Row


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
    places: list[Path] = []
    for path in paths:
        if is_run(path):
            places.append(path)
        elif path.is_dir():
            places += sorted(child for child in path.iterdir() if child.is_dir())
        else:
            raise RunError(f"{path}: no such run. Give a run folder, or a folder of runs such as `runs`.")
    runs: list[StoredRun] = []
    left_out: list[str] = []
    for folder in dict.fromkeys(places):
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
        rows: Sequence[Row | RatedRow] = ()
        if kind == EVAL:
            kept = None if groups is None else tuple(dict.fromkeys((*groups, *manifest["facts"]["group_by"])))
            rows = read_rows(folder, groups=kept, replies=replies)
        done = sum(row.probe is Probe.OWN for row in rows)
        if kind == EVAL and done < (wanted := manifest["facts"]["data"]["rows"]):
            why = f"unfinished, {done} of {wanted} items"
        else:
            why = "" if (folder / SUMMARY).exists() else "unfinished"
        if why:
            again = f" Run its command again: {manifest['command']}" if manifest["command"] else ""
            return f"{folder}: {why}; left out.{again}"
        return StoredRun(folder=folder, kind=kind, manifest=manifest, rows=rows)
    except RunError as error:
        return f"{error} Left out."
    except OSError as error:
        return f"{folder}: cannot be read ({(error.strerror or type(error).__name__).lower()}); left out."


def _further(folder: Path) -> str | None:
    """Say which runs lie deeper; they count where their folder is named."""
    kinds: list[Json] = []
    for child in filter(is_run, folder.iterdir()):
        with suppress(RunError):  # a damaged one counts for nothing
            kinds.append(read_json(child / MANIFEST).get("kind"))
    counts = Counter(kind for kind in kinds if kind in RUN_KINDS)
    if not counts:
        return None
    listed = ", ".join(f"{count} of `prbench {kind}`" for kind, count in sorted(counts.items()))
    return f"{folder}: a folder of further runs ({listed}); left out. Name it to read them."


_SIDES: Mapping[str, tuple[bool | None, ...]] = {
    "gold": (True, False, None),
    "gold_majority": (True,),
    "gold_minority": (False,),
}

_BON_ROW = {"id": str, "user_id": str, "model": str, "values": dict}
_POLICY_ROW: Mapping[str, type | tuple[type, ...]] = {
    "id": str,
    "user_id": str,
    "step": int,
    "gold": (int, float),
    "majority": (bool, NoneType),
}


class ItemValue(NamedTuple):
    """What one item contributes to a mean, and whose item it is."""

    item: str
    user: str
    value: float


def item_values(run: StoredRun, figure: str, of: str | int = "") -> list[ItemValue]:
    """Return the values whose mean a figure is; none where it is no mean of items. A damaged row is an error.

    `of` says which part of the run: the model of a Best-of-N, or how many updates were behind a policy of PPO.
    """
    if run.kind == EVAL:
        return _points_of([row for row in run.rows if isinstance(row, Row)], figure)
    if run.kind == BON and figure.startswith("value_at."):
        n, found = figure.removeprefix("value_at."), []
        for row in _lines(run, ITEMS, _BON_ROW):
            if row["model"] == str(of) and n in row["values"]:
                value = row["values"][n]
                if not isinstance(value, int | float):
                    raise RunError(f"{run.folder / ITEMS}: the value of {row['id']} is no number. Restore the file.")
                found.append(ItemValue(row["id"], row["user_id"], value))
        return found
    if run.kind == PPO and figure in _SIDES:
        return [
            ItemValue(row["id"], row["user_id"], float(row["gold"]))
            for row in _lines(run, EVALUATION_ROWS, _POLICY_ROW)
            if row["step"] == of and row.get("majority") in _SIDES[figure]
        ]
    return []


def _points_of(rows: Sequence[Row], figure: str) -> list[ItemValue]:
    """Return what each pair of an evaluation adds to an accuracy, or to the gap between own and swapped contexts."""
    own = [row for row in rows if row.probe is Probe.OWN]
    if figure in ("majority_accuracy", "minority_accuracy"):
        own = [row for row in own if row.groups.get("majority") is (figure == "majority_accuracy")]
    elif figure not in ("accuracy", "swap.gap"):
        return []
    if figure == "swap.gap":  # of which nothing was recorded, nobody knows what the model would have said
        rows = [row for row in rows if row.problem is not Problem.NOT_RECORDED]
        own = [row for row in rows if row.probe is Probe.OWN]
    points = [ItemValue(row.id, row.user_id, POINTS[row.verdict]) for row in own]
    if figure != "swap.gap":
        return points
    swapped = {row.id: POINTS[row.verdict] for row in rows if row.probe is Probe.SWAP}
    return [ItemValue(item, user, value - swapped[item]) for item, user, value in points if item in swapped]


def _lines(run: StoredRun, name: str, types: Mapping[str, type | tuple[type, ...]]) -> Iterator[dict[str, Json]]:
    """Yield the rows of a file; a row without one of these types is damaged."""
    for number, (_, _, row) in enumerate(read_lines(run.folder / name), start=1):
        if not all(isinstance(row.get(key), wanted) for key, wanted in types.items()):
            raise not_a_row(run.folder / name, number)
        yield row
