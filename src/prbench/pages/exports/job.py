"""Write finished evaluations in the form that another tool or site reads, by the name of that form."""

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from prbench.errors import UsageError
from prbench.evaluation.summary import FinishedRun, load_runs
from prbench.registry import EXPORTERS, MODELS, RUN_EXPORTERS, TRAINERS
from prbench.specs import kind_of, parse_spec

HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")


def no_notes(line: str) -> None:
    """Tell nobody."""


@dataclass(frozen=True, kw_only=True)
class ExportJob:
    """What to export, where to, and what the person who asked has agreed to."""

    folders: tuple[Path, ...]  # as they were given: runs, or folders of runs; a hub takes models and datasets, too
    out: Path = Path("exports")
    is_confirmed: bool = False  # without it, nothing is sent anywhere
    with_data: bool = False  # texts of people may leave the machine
    note: Callable[[str], None] = no_notes  # hears what there is to say

    def runs(self) -> list[FinishedRun]:
        """Return the evaluations in the folders, every figure computed anew from the rows."""
        loaded = load_runs(self.folders, all_facts=True)
        for line in loaded.left_out:
            self.note(line)
        return loaded.runs


def export_runs(target: str, job: ExportJob) -> list[Path]:
    """Export as a spec says, e.g. `every-eval-ever` or `hub:org/name`; return the files that were written."""
    name = kind_of(target)
    if name not in RUN_EXPORTERS.names:
        if name in EXPORTERS.names:
            how = f"prbench data convert {EXPORTERS.find(name).example} --data …"
            raise UsageError(f"--to {target}: is a form of datasets, not of runs. Write: {how}")
        if name in TRAINERS.names:
            how = f"prbench ppo export {name} DIR --policy … --model server:URL --data …"
            raise UsageError(f"--to {target}: is a trainer, which learns from a dataset, not from runs. Write: {how}")
    spec = parse_spec(target, RUN_EXPORTERS)
    kind = RUN_EXPORTERS.find(spec.kind, target)
    written: Sequence[Path] = kind.make(spec, kind.read_options(spec), job, needs=Sequence)
    return list(written)


def is_hub_id(text: str) -> bool:
    """Tell an id of the hub, as org/name, from a path that is there."""
    return bool(HUB_ID.fullmatch(text)) and not os.path.exists(text)


def model_id(model: str) -> str:
    """Return the id of a model: its hub id, or `local/` and its spec as a name."""
    target = parse_spec(model, MODELS).target if kind_of(model) in MODELS.names else model
    return target if is_hub_id(target) else f"local/{file_name(model)}"


def file_name(text: str) -> str:
    """Return a text as the name of a file or folder that every system takes."""
    kept = "".join(each if each.isalnum() or each in "._-" else "-" for each in text)
    return kept.strip(".-")[:100] or "unnamed"
