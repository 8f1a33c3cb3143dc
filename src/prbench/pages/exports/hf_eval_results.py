"""The hub's own form of evaluation results: a YAML file for the folder `.eval_results` of a model's repository.

The hub shows an entry on the model's page, and on the leaderboard of the dataset where that has an `eval.yaml` with
the same task (`prbench data convert folder:DIR` and `prbench data lab` write one). An entry holds one number, so what
stands beside it goes into its notes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from prbench.data.export import task_id
from prbench.errors import UsageError
from prbench.evaluation.summary import FinishedRun
from prbench.metrics.number_format import PERCENT, POINTS
from prbench.pages.exports.job import ExportJob, file_name, is_hub_id
from prbench.runs.files import write_text
from prbench.schema import Json
from prbench.specs import Spec, option

FOLDER = ".eval_results"


@dataclass(frozen=True, kw_only=True)
class EvalResultsOptions:
    """What a run does not say of itself."""

    dataset: str | None = option(None, "the dataset's hub id; default: the --data of the run, if it was one")
    task: str | None = option(None, "the task of all pairs; default: one task a category, as in our eval.yaml")
    source: str | None = option(None, "an address where the rows can be seen")
    revision: str | None = option(None, "of the dataset; default: that of the run")


def export(spec: Spec, options: EvalResultsOptions, job: ExportJob) -> Sequence[Path]:
    """Write `hf-eval-results`."""
    written = []
    for run in job.runs():
        entries = _entries(run, options)
        name = f"prbench-{file_name(str(entries[0]['dataset']['id']))}.yaml"
        path = job.out / str(run.summary["run_id"]) / FOLDER / name
        write_text(path, yaml.safe_dump(entries, sort_keys=False, allow_unicode=True))
        written.append(path)
    return written


def _entries(run: FinishedRun, options: EvalResultsOptions) -> list[dict[str, Json]]:
    summary, data = run.summary, run.manifest["data"]
    dataset = options.dataset or str(data.get("source") or "")
    if not is_hub_id(dataset):
        raise UsageError(
            f"{run.folder}: its data, {dataset or 'rows given in Python'}, is on no hub. Name the dataset's id: "
            "--to 'hf-eval-results?dataset=org/name'."
        )
    if summary["ratings"] is not None or not summary["accuracy"]:
        raise UsageError(f"{run.folder}: has no accuracy, and an entry is one number. Export it by csv.")
    figures = {options.task: summary["accuracy"]} if options.task else summary["accuracy_by_category"]
    date = str(run.manifest.get("started", ""))[:10]
    revision = options.revision or data.get("revision")
    source = {"source": {"url": options.source, "name": "prbench"}} if options.source else {}
    return [
        {
            "dataset": {
                "id": dataset,
                "task_id": task if options.task else task_id(task),
                **({"revision": str(revision)} if revision else {}),
            },
            "value": round(100 * figure["value"], 2),
            **({"date": date} if date else {}),
            **source,
            "notes": _notes(run, figure),
        }
        for task, figure in figures.items()
    ]


def _notes(run: FinishedRun, figure: Json) -> str:
    summary = run.summary
    parts = [
        f"prbench {run.manifest.get('environment', {}).get('prbench', '')}".strip(),
        f"context {summary['context']}",
        f"accuracy in percent {PERCENT.estimate(figure)}, n {figure['n']}",
    ]
    if summary["personalization_gain"]:
        parts.append(f"all categories: gain {POINTS.estimate(summary['personalization_gain'])}")
    if summary["swap"]:
        parts.append(f"swap gap {POINTS.estimate(summary['swap']['gap'])}")
    return "; ".join([*parts, f"run {summary['run_id']}"])
