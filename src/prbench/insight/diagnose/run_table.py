"""What a diagnosis reads: some runs on the same items, and the items themselves where their data can be opened."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from prbench.data import DataSettings, is_named, open_data, split_names
from prbench.errors import PrbenchError, UsageError
from prbench.evaluation.summary import FinishedRun, load_runs
from prbench.schema import Example, Probe, Row

MOST_RUNS = 26  # each has a letter
NO_DATA = "The data of these runs cannot be opened ({reason}), so slices come from the rows alone."


@dataclass(frozen=True, kw_only=True)
class RunTable:
    """Runs side by side: `rows[run][item]` is the same item for every run; `examples` is empty without the data."""

    runs: tuple[FinishedRun, ...]
    rows: tuple[tuple[Row, ...], ...]  # under the own profile, by id
    alone: tuple[Mapping[str, Row], ...]  # under no profile, by id; empty where that was not asked
    examples: Mapping[str, Example]
    sources: tuple[str, ...]  # what the data of the runs is called; empty for rows given in Python
    splits: tuple[str, ...]  # that the items come from, as far as anything tells
    notes: tuple[str, ...]

    @property
    def items(self) -> tuple[Row, ...]:
        """One row per item, for what does not depend on the run."""
        return self.rows[0]

    def need_examples(self, option: str) -> Mapping[str, Example]:
        """Return the items' texts, or refuse."""
        if not self.examples:
            raise UsageError(f"{option} needs the texts of the items. {self.notes[-1]} Name the data with --data.")
        return self.examples


def load_run_table(paths: Sequence[Path], data: str | None = None) -> RunTable:
    """Read the runs, keep the items that all of them have, and open their data if it is still the same."""
    loaded = load_runs(paths, all_facts=True)
    runs = loaded.runs
    if len(runs) > MOST_RUNS:
        raise UsageError(f"{len(runs)} runs are too many to stand side by side. Name at most {MOST_RUNS}.")
    for run in runs:
        if run.summary["ratings"] is not None:
            raise UsageError(f"{run.folder}: a run on ratings. A diagnosis needs pairs: name runs on pairs.")
        if run.summary["data"]["hash"] != runs[0].summary["data"]["hash"]:
            raise UsageError(
                f"{runs[0].folder} and {run.folder} are about different data, so they cannot stand side by side. "
                "Diagnose them one at a time."
            )
    own = [_under(run, Probe.OWN) for run in runs]
    shared = sorted(set.intersection(*(set(rows) for rows in own)))
    examples, which, notes = _open(runs[0], data)
    named = [which.source, *(DataSettings.from_config(run.manifest["data"]).source for run in runs)]
    return RunTable(
        runs=tuple(runs),
        rows=tuple(tuple(rows[item] for item in shared) for rows in own),
        alone=tuple(_under(run, Probe.NONE) for run in runs),
        examples={item: examples[item] for item in shared} if examples else {},
        sources=tuple(source for source in dict.fromkeys(named) if source and not is_named(source)),
        splits=_splits(which, shared, examples),
        notes=(*loaded.left_out, *notes),
    )


def _under(run: FinishedRun, probe: Probe) -> dict[str, Row]:
    return {row.id: row for row in run.rows if isinstance(row, Row) and row.probe is probe}


def _open(run: FinishedRun, data: str | None) -> tuple[dict[str, Example], DataSettings, list[str]]:
    """Return the examples by id, where they come from, and a note if they cannot be had; a wrong `data` is refused."""
    which = DataSettings.from_config(run.manifest["data"])
    if data is not None:
        which = replace(which, source=data)
    if not which.source:
        return {}, which, [NO_DATA.format(reason="rows were given in Python")]
    try:
        with open_data(which) as store:
            is_same = store.content_hash == run.manifest["config"]["data_hash"]
            examples = {one.id: one for one in store if isinstance(one, Example)} if is_same else {}
    except PrbenchError as error:
        if data is not None:
            raise
        return {}, which, [NO_DATA.format(reason=str(error).rstrip("."))]
    if data is not None and not is_same:
        raise UsageError(f"--data {data}: these are not the rows that {run.folder} is about. Name the same data.")
    changed = f"{which.source} has changed since"
    return examples, which, [] if is_same else [NO_DATA.format(reason=changed)]


def _splits(which: DataSettings, shared: Sequence[str], examples: Mapping[str, Example]) -> tuple[str, ...]:
    """Return the splits of the items: by the rows, else by what was asked for, else by the names of files."""
    found = {examples[item].split for item in shared} - {""} if examples else set()
    if found:
        return tuple(sorted(found))
    if which.split:
        return (which.split,)
    if not which.source:
        return ()
    if is_named(which.source) or Path(which.source).is_dir():
        named = split_names(which.source)
        return ("test",) if "test" in named else named
    return ("test",) if Path(which.source).name.lower().startswith("test") else ()
