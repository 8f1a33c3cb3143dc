"""Read finished runs back, and the texts they were about."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import NoneType

from prbench.errors import RunError
from prbench.evaluation.settings import EvalSettings
from prbench.evaluation.summary import FACTS, summarize
from prbench.runs import SUMMARY, StoredRun, find_runs
from prbench.runs.files import EVAL, read_json
from prbench.runs.manifest import require
from prbench.schema import Json, RatedRow, Row

PLANNER = "planner"  # the folder of a planner's figures within that of a run
_FIGURE = (dict, NoneType)


@dataclass(frozen=True, kw_only=True)
class FinishedRun:
    """A run as it stands on disk."""

    folder: Path
    manifest: Mapping[str, Json]
    summary: Mapping[str, Json]
    rows: Sequence[Row | RatedRow]
    note: str = ""  # settings that tell it from other runs of the same model and context
    planner: Mapping[str, Json] | None = None  # the figures of `prbench planner`, where it was given this folder

    @property
    def model(self) -> str:
        """The model, with whatever tells this run from others of it."""
        return f"{self.summary['model']} {self.note}".strip()

    @property
    def name(self) -> str:
        """The model and the context."""
        return f"{self.model} · {self.summary['context']}"


@dataclass(frozen=True, kw_only=True)
class LoadedRuns:
    """The finished runs of some folders, and a line about each one that was left out."""

    runs: list[FinishedRun]
    left_out: list[str]


def load_runs(paths: Sequence[Path], *, group_by: Sequence[str] = (), all_facts: bool = False) -> LoadedRuns:
    """Return the runs in these folders, every figure computed anew; a folder of runs means all of them.

    A run that was interrupted has figures of its first items only, so it cannot stand beside the others. Rows keep the
    facts that figures need, or all of them.
    """
    found = find_runs(paths, kinds=(EVAL,), groups=None if all_facts else (*group_by, *FACTS))
    left_out = list(found.left_out)
    runs = [_load(run, group_by, left_out) for run in found.runs]
    return LoadedRuns(runs=_told_apart(runs), left_out=left_out)


def _load(run: StoredRun, group_by: Sequence[str], left_out: list[str]) -> FinishedRun:
    facts = {**run.manifest["facts"], "group_by": list(group_by) or run.manifest["facts"]["group_by"]}
    try:
        planner = _planner_of(run.folder)
    except RunError as error:
        planner = None
        left_out.append(f"{error} The figures of its planner are left out.")
    return FinishedRun(
        folder=run.folder, manifest=run.manifest, summary=summarize(run.rows, facts), rows=run.rows, planner=planner
    )


def _planner_of(folder: Path) -> dict[str, Json] | None:
    """Return the figures of `prbench planner`, as far as it was given this run's folder."""
    path = folder / PLANNER / SUMMARY
    if not path.exists():
        return None
    figures = read_json(path)
    require(path, figures, {"settings": {"planner": str}, "planned": _FIGURE, "judge": _FIGURE, "lab": _FIGURE})
    for means in ("judge", "lab"):
        if figures[means] is not None:
            require(path, figures[means], {"precision": _FIGURE, "recall": _FIGURE}, f"{means}.")
    return figures


def _told_apart(runs: Sequence[FinishedRun]) -> list[FinishedRun]:
    """Name each run by model and context, and by whatever else differs between runs that share both."""
    named = []
    for run in runs:
        twins = [other for other in runs if _head(other) == _head(run)]
        settings = _settings(run)
        differ = [
            f"{key}={settings[key]}"
            for key in sorted(settings)
            if any(_settings(other)[key] != settings[key] for other in twins)
        ]
        named.append(replace(run, note=" ".join(differ)))
    return named


def _settings(run: FinishedRun) -> dict[str, Json]:
    return EvalSettings.KEYS.values(EvalSettings.from_config(run.manifest["config"]["settings"]))


def _head(run: FinishedRun) -> tuple[str, str, str]:
    return run.summary["model"], run.summary["context"], run.summary["data"]["hash"]
