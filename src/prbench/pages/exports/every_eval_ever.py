"""Every Eval Ever 0.3: one JSON file a run with every figure and its interval, and one line a pair beside it.

Files lie where their datastore wants them, `data/prbench/DEVELOPER/MODEL/UUID.json`, so that a folder of exports can
be added to it as it is. The texts of questions, answers and posts are not in a run, so none are written.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Literal
from uuid import UUID

from prbench.evaluation.summary import FinishedRun
from prbench.metrics.number_format import PERCENT, POINTS
from prbench.pages.board import METRICS, PAIRS, RATINGS, Metric
from prbench.pages.exports.job import ExportJob, file_name, is_hub_id, model_id
from prbench.runs.files import write_json, write_lines
from prbench.schema import POINTS as POINTS_OF
from prbench.schema import Json, Probe, Row, Verdict
from prbench.specs import Spec, option

VERSION = "0.3.0"  # of their schema
COLLECTION = "prbench"
CONFIDENCE = 0.95
LOWER_IS_BETTER = frozenset({"calibration error", "ties"})
_BEHIND_AN_ADDRESS = frozenset({"server", "judge", "rating"})  # who runs the model is not known to us


@dataclass(frozen=True, kw_only=True)
class EveryEvalOptions:
    """What a run does not say of itself."""

    model: str | None = option(None, "the model's id, as org/name; default: its hub id, or local/ and its spec")
    organization: str = option("unknown", "who evaluated")
    relationship: Literal["first_party", "third_party", "collaborative", "other"] = option(
        "other", "of the evaluator to the model's makers"
    )


def export(spec: Spec, options: EveryEvalOptions, job: ExportJob) -> Sequence[Path]:
    """Write `every-eval-ever`."""
    written: list[Path] = []
    for run in job.runs():
        model = options.model or model_id(str(run.summary["model"]))
        developer, _, name = model.partition("/")
        folder = Path("data", COLLECTION, file_name(developer), file_name(name.replace("/", "_") or developer))
        seed = f"{run.summary['run_id']} {model}"
        uuid = UUID(bytes=sha256(seed.encode()).digest()[:16], version=4)
        record, samples = _record(run, model, options), folder / f"{uuid}_samples.jsonl"
        lines = list(_samples(run, record))
        if lines:
            record["detailed_evaluation_results"] = {
                "format": "jsonl",
                "file_path": samples.as_posix(),
                "total_rows": len(lines),
            }
            write_lines(job.out / samples, lines)
            written.append(job.out / samples)
        write_json(job.out / folder / f"{uuid}.json", record)
        written.append(job.out / folder / f"{uuid}.json")
    return written


def _record(run: FinishedRun, model: str, options: EveryEvalOptions) -> dict[str, Json]:
    summary, manifest = run.summary, run.manifest
    environment = manifest.get("environment", {})
    now = str(int(time.time()))
    kind = str(summary["kind"])
    details = {
        "deployment_type": "unknown" if kind in _BEHIND_AN_ADDRESS else "self_deployed",
        "model_availability": "unknown",
        "spec": str(summary["model"]),
        "kind": kind,
        "context": str(summary["context"]),
        "template_hash": str(manifest["config"].get("template_hash", "")),
    }
    return {
        "schema_version": VERSION,
        "evaluation_id": f"{COLLECTION}/{model}/{now}",
        "evaluation_timestamp": str(manifest.get("started", "")),
        "retrieved_timestamp": now,
        "source_metadata": {
            "source_name": "prbench",
            "source_type": "evaluation_run",
            "source_organization_name": options.organization,
            "evaluator_relationship": options.relationship,
            "additional_details": {"run_id": str(summary["run_id"])},
        },
        "eval_library": {
            "name": "prbench",
            "version": str(environment.get("prbench", "unknown")),
            "additional_details": {name: str(value) for name, value in environment.items() if name != "prbench"},
        },
        "model_info": {"name": str(summary["model"]), "id": model, "additional_details": details},
        "evaluation_results": list(_results(run)),
    }


def _results(run: FinishedRun) -> Iterator[dict[str, Json]]:
    """Yield every figure that applies, each with its interval."""
    summary = run.summary
    for metric in METRICS[PAIRS if summary["ratings"] is None else RATINGS]:
        figure = metric.read(summary)
        value = figure.get("value") if isinstance(figure, Mapping) else figure
        if value is None or metric.printed == "bounds":  # the interval of another figure
            continue
        score: dict[str, Json] = {"score": value}
        if isinstance(figure, Mapping) and figure.get("low") is not None:
            score["uncertainty"] = {
                "confidence_interval": {
                    "lower": figure["low"],
                    "upper": figure["high"],
                    "confidence_level": CONFIDENCE,
                    "method": "clustered by users, see docs/reference/metrics.md of prbench",
                },
                "num_samples": int(figure["n"]),
            }
        low, high = _bounds(metric)
        yield {
            "evaluation_result_id": _result_id(summary["run_id"], metric.name),
            "evaluation_name": str(summary["data"]["name"]),
            "source_data": _source(run),
            "metric_config": {
                "evaluation_description": f"{metric.help}. Context: {summary['context']}.",
                "metric_id": f"prbench.{metric.name.replace(' ', '_').lower()}",
                "metric_name": metric.name,
                "metric_unit": "proportion" if metric.form in (PERCENT, POINTS) else "coefficient",
                "lower_is_better": metric.name in LOWER_IS_BETTER,
                "score_type": "continuous",
                "min_score": low,
                "max_score": high,
            },
            "score_details": score,
        }


def _bounds(metric: Metric) -> tuple[float, float]:
    return (0.0, 1.0) if metric.form is PERCENT else (-1.0, 1.0)


def _result_id(run_id: Json, metric: str) -> str:
    return f"{run_id}/{metric.replace(' ', '_').lower()}"


def _source(run: FinishedRun) -> dict[str, Json]:
    data, name = run.manifest["data"], str(run.summary["data"]["name"])
    details = {"content_hash": str(run.summary["data"]["hash"]), "rows": str(run.summary["n_items"])}
    details |= {key: str(data[key]) for key in ("subset", "revision", "limit") if data.get(key)}
    if is_hub_id(name):
        split = {"hf_split": str(data["split"])} if data.get("split") else {}
        count = {"samples_number": run.summary["n_items"]}
        hub = {"dataset_name": name, "source_type": "hf_dataset", "hf_repo": name}
        return {**hub, **split, **count, "additional_details": details}
    return {"dataset_name": name, "source_type": "other", "additional_details": details}


def _samples(run: FinishedRun, record: Mapping[str, Json]) -> Iterator[dict[str, Json]]:
    """Yield one line a pair with the own context: what was scored, and whether the verdict is right."""
    for row in run.rows:
        if not isinstance(row, Row) or row.probe is not Probe.OWN:
            continue
        verdict = row.verdict.value
        metadata = {"user_id": row.user_id, "category": row.category, "question_hash": row.question_hash}
        yield {
            "schema_version": VERSION,
            "evaluation_id": record["evaluation_id"],
            "model_id": record["model_info"]["id"],
            "evaluation_name": str(run.summary["data"]["name"]),
            "evaluation_result_id": _result_id(run.summary["run_id"], "accuracy"),
            "sample_id": row.id,
            "interaction_type": "single_turn",
            "input": {"raw": f"question {row.question_hash}; its text is in the dataset", "reference": ["chosen"]},
            "output": {"raw": [f"score_chosen={row.score_chosen} score_rejected={row.score_rejected}"]},
            "answer_attribution": [
                {
                    "turn_idx": 0,
                    "source": "output.raw",
                    "extracted_value": verdict,
                    "extraction_method": "comparison of the two scores, or of a judge's picks in both orders",
                    "is_terminal": True,
                }
            ],
            "evaluation": {"score": POINTS_OF[row.verdict], "is_correct": row.verdict is Verdict.CHOSEN},
            "error": row.problem.value or None,
            "metadata": metadata,
        }
