"""What the command `rewardbench` leaves behind: figures of a model in one JSON file, and its scores in another.

Its accuracy counts a tie as wrong, and has no interval; it is computed from the rows in that way.
"""

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

from prbench.errors import UsageError
from prbench.pages.exports.job import ExportJob, model_id
from prbench.runs.files import write_json, write_lines
from prbench.schema import Json, Probe, Row, Verdict
from prbench.specs import Spec


def export(spec: Spec, options: None, job: ExportJob) -> Sequence[Path]:
    """Write `rewardbench`."""
    written = []
    for run in job.runs():
        rows = [row for row in run.rows if isinstance(row, Row) and row.probe is Probe.OWN]
        if not any(row.score_chosen is not None for row in rows):
            raise UsageError(f"{run.folder}: has no scores of two responses, which rewardbench's form is made of.")
        right: dict[str, list[bool]] = defaultdict(list)
        for row in rows:
            right[row.category].append(row.verdict is Verdict.CHOSEN)
        model = model_id(str(run.summary["model"]))
        record: dict[str, Json] = {
            "accuracy": fmean(each for some in right.values() for each in some),
            "num_prompts": len(rows),
            "model": model,
            "ref_model": None,
            "tokenizer": model,
            "chat_template": None,
            "extra_results": {category: fmean(some) for category, some in right.items()},
        }
        place = job.out / str(run.summary["run_id"])
        write_json(place / f"{model}.json", record)
        write_lines(
            place / f"{model}_all.jsonl",
            ({"chosen": row.score_chosen, "rejected": row.score_rejected} for row in rows),
        )
        written += [place / f"{model}.json", place / f"{model}_all.jsonl"]
    return written
