"""Measure prbench on text that it did not write. The data is not part of the project; see docs/research/results.md.

    python experiments/third_party.py FOLDER --out results/third_party

FOLDER holds `personamem_pairs.jsonl.gz`, `prefeval_pairs.jsonl.gz`, `llmbar_pairs.jsonl`,
`pandalm_3annotators.jsonl.gz` and `tables/`. Written: one compact file of rows per dataset (ids, scores and verdicts,
no text), all summaries, agreement and correlations, and a Markdown page of tables.
"""

import argparse
import csv
import gzip
import io
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from prbench.data import DataSettings, open_data
from prbench.evaluation import EvalSettings, Run, as_loaded, evaluate_store
from prbench.metrics.agreement import (
    fleiss_kappa,
    krippendorff_alpha,
    label_table,
    pairwise_cohen_kappa,
    raw_agreement,
)
from prbench.metrics.correlation import coefficient, paired_columns
from prbench.metrics.number_format import PERCENT, POINTS
from prbench.reward_models import ModelSettings
from prbench.schema import Row

CONTROLS = ("random", "longest", "shortest", "question", "overlap", "embed")
PAIRS = {
    "PersonaMem": ("personamem_pairs.jsonl.gz", ("none", "profile")),
    "PrefEval": ("prefeval_pairs.jsonl.gz", ("none", "profile")),
    "LLMBar": ("llmbar_pairs.jsonl", ("none",)),
}
TABLE = "alpacaeval_benchmarks_vs_arena"


def main() -> None:
    """Measure everything and write it down."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path, default=Path("results/third_party"))
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    results: dict[str, Any] = {"command": "python experiments/third_party.py FOLDER", "seed": 0}
    for name, (file, contexts) in PAIRS.items():
        runs = list(evaluate_controls(arguments.folder / file, contexts))
        write_rows(arguments.out / f"{name.lower()}_rows.csv.gz", runs)
        results[name] = [dict(run.summary) for run in runs]
    results["PandaLM"] = agreement(arguments.folder / "pandalm_3annotators.jsonl.gz")
    results["tables"] = correlations(arguments.folder / "tables")
    (arguments.out / "results.json").write_text(json.dumps(results, indent=1) + "\n")
    (arguments.out / "tables.md").write_text(markdown(results))
    print((arguments.out / "tables.md").read_text())


def evaluate_controls(path: Path, contexts: Sequence[str]) -> Iterator[Run]:
    """Yield one run per control and context, all probes."""
    which = DataSettings(source=str(path))
    with open_data(which) as store:
        for context in contexts:
            for control in CONTROLS:
                loaded = as_loaded(f"control:{control}", ModelSettings())
                named = DataSettings(source=path.name)
                yield evaluate_store(store, loaded, EvalSettings(context=context), named)


def write_rows(path: Path, runs: Sequence[Run]) -> None:
    """Write ids, scores and verdicts of all runs; no text of anybody."""
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(["model", "context", "id", "probe", "user_id", "verdict", "score_chosen", "score_rejected"])
    for run in runs:
        head = [run.summary["model"], run.summary["context"]]
        for row in run.items:
            assert isinstance(row, Row)
            scores = [f"{score:.6g}" if score is not None else "" for score in (row.score_chosen, row.score_rejected)]
            writer.writerow([*head, row.id, row.probe.value, row.user_id, row.verdict.value, *scores])
    path.write_bytes(gzip.compress(text.getvalue().encode(), mtime=0))


def agreement(path: Path) -> dict[str, Any]:
    """Return how far the three annotators agree."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    table = label_table((name, row["id"], label) for row in rows for name, label in row["labels"].items())
    return {
        "items": len(table.items),
        "raw": as_json(raw_agreement(table)),
        "krippendorff_alpha_nominal": as_json(krippendorff_alpha(table, level="nominal")),
        "fleiss_kappa": as_json(fleiss_kappa(table)),
        "cohen_kappa": {" ~ ".join(pair): as_json(value) for pair, value in pairwise_cohen_kappa(table).items()},
    }


def as_json(estimate: Any) -> dict[str, float] | None:
    """Return an estimate as an object, rounded."""
    return None if estimate is None else {k: round(getattr(estimate, k), 6) for k in ("value", "low", "high", "n")}


def correlations(folder: Path) -> dict[str, Any]:
    """Return our correlations beside the expected ones, and the largest difference."""
    expected = json.loads((folder / "EXPECTED_correlations.json").read_text())[TABLE]
    with (folder / f"{TABLE}.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))

    def column(name: str) -> list[float | None]:
        return [float(row[name]) if row[name] else None for row in rows]

    found = {}
    worst = 0.0
    for pair, figures in expected.items():
        x, y = (column(name) for name in pair.split(" ~ "))
        ours: dict[str, Any] = {"n": len(paired_columns(x, y)[0])}
        ours |= {
            "pearson": coefficient(x, y, "pearson"),
            "spearman": coefficient(x, y, "spearman"),
            "kendall_tau_b": coefficient(x, y, "kendall"),
        }
        worst = max(worst, *(abs(ours[name] - figures[name]) for name in figures))
        found[pair] = {name: round(value, 6) for name, value in ours.items()}
    return {"pairs": found, "largest_difference_from_expected": worst}


def markdown(results: dict[str, Any]) -> str:
    """Return the tables of docs/research/results.md."""
    parts = []
    for name in PAIRS:
        parts.append(
            f"\n### {name}\n\n| model | context | accuracy | gain | swap gap | ties |\n"
            "| --- | --- | --- | --- | --- | --- |\n"
        )
        for summary in results[name]:
            swap = summary["swap"] or {}
            cells = [
                f"`{summary['model']}`",
                summary["context"],
                PERCENT.estimate(summary["accuracy"]),
                POINTS.estimate(summary["personalization_gain"]),
                POINTS.estimate(swap.get("gap")),
                PERCENT.value(summary["tie_rate"]),
            ]
            parts.append("| " + " | ".join(cells) + " |\n")
    return "".join(parts)


if __name__ == "__main__":
    main()
