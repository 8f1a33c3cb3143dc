"""Figures again from kept rows, where the script that made both would have to train or to ask a model.

    python experiments/rows.py fetch && python experiments/from_rows.py    # all; or: from_rows.py lab train
    python experiments/from_rows.py --folder FOLDER                        # text of others; see third_party.py

Run it when figures or intervals are computed otherwise; then `train_table.py --table`, `folds.py --table`,
`ppo_table.py` and `further_figures.py`, which need nothing but rows anyway, and `figures.py`. Written:
`results/lab/figures.json`, `results/train/ARM-SEED.json`, `results/diagnose/second_round.json`,
`results/lm_planner/full.json` and the accuracy in `lora-0.json`, gold in `results/ppo_probes`, and with `--folder`
`results/third_party/results.json`. Figures that summaries have gained since are left out. What needs more
than rows have stays as it was recorded: costs, settings, calibration (scores are kept to five digits), the precision
of the plans in `lora-0.json` (rows name aspects without their reasons).
"""

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import folds
import numpy as np
import second_round
from kept_rows import read_table
from lab_figures import DEALS, GROUPS, digest, response_classifiers
from score_plans import estimates
from third_party import PAIRS, agreement, markdown
from train_blend import as_row, facts, rows_by_question
from train_figures import WHOLE, slug
from train_table import make_lab, more

from prbench.downstream.ppo.evaluate import summarize as summarize_gold
from prbench.evaluation import EvalSettings, Run
from prbench.evaluation.summary import MAX_FAILED, summarize
from prbench.lab import DEFAULT_SIZES, SEED, make_split
from prbench.metrics.estimate import USERS, clustered_ratios
from prbench.schema import POINTS, Example, Probe, Row, Verdict
from prbench.training.folder import held_out_figures

RESULTS = Path(__file__).parents[1] / "results"
Rows = list[dict[str, str]]


def lab() -> None:
    """Renew every run on the lab, and the classifiers that see the responses alone."""
    by_run: dict[str, Rows] = {}
    for row in read_table(RESULTS / "lab" / "rows.csv.gz"):
        by_run.setdefault(row["run"], []).append(row)
    splits = ("test", "test_population")
    known = {
        (split, deal): {
            row.id: row for row in make_split(split, DEFAULT_SIZES[split], seed=SEED + deal, assignment=deal)
        }
        for split in splits
        for deal in (0, *DEALS)
    }
    runs = {}
    for name, rows in by_run.items():
        split = "test_population" if "test_population" in name else "test"
        deal = next((deal for deal in DEALS if f"(deal {deal})" in name), 0)
        runs[name] = digest(run_of(rows, known[split, deal], (*GROUPS,)))
    found = read("lab/figures.json")
    assert list(found["runs"]) == list(runs)
    write("lab/figures.json", found | {
        "runs": runs, "responses alone": {split: response_classifiers(split) for split in splits}
    })  # fmt: skip


def run_of(rows: Sequence[Mapping[str, str]], known: Mapping[str, Example], group_by: Sequence[str]) -> Run:
    """Return the run that left such rows."""
    made = [as_row(known[row["id"]], Probe(row["probe"]), Verdict(row["verdict"]), group_by=group_by) for row in rows]
    return Run(summary=summarize(made, facts("", 0, made, group_by)), items=made)


def train() -> None:
    """Renew what was measured of every trained model."""
    asked = make_lab(DEFAULT_SIZES, deal=0)
    known = rows_by_question(asked)
    for path in sorted((RESULTS / "train").glob("*-[0-9].json")):
        name = f"train/{path.name}"
        record = read(name)
        by_question: dict[str, list[Row]] = {}
        for row in read_table(RESULTS / "train" / f"{slug(record['arm'])}-{record['seed']}.csv.gz"):
            example = known.get(row["asked"], known[WHOLE])[row["id"]]
            scores = [float(row[side]) if row[side] else None for side in ("score_chosen", "score_rejected")]
            made = as_row(example, Probe(row["probe"]), Verdict(row["verdict"]), scores=scores)
            by_question.setdefault(row["asked"], []).append(made)
        for question, rows in by_question.items():
            run = Run(summary=summarize(rows, facts(record["arm"], record["seed"], rows)), items=rows)
            old, new = record["runs"][question], {**held_out_figures(run.summary), **more(run)}
            kept = {"calibration": old["calibration"]}
            if not told_apart(record["arm"]):
                kept["dose_response"] = old["dose_response"]
            record["runs"][question] = under_the_keys_of(old, new | kept)
        write(name, record)


def under_the_keys_of(old: Any, new: Any) -> Any:
    """Return new figures under the keys that were recorded: what summaries have gained since is not kept."""
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        return {key: under_the_keys_of(value, new[key]) for key, value in old.items()}
    if isinstance(old, list) and isinstance(new, list):
        return [under_the_keys_of(*pair) for pair in zip(old, new, strict=True)]
    return new


def told_apart(arm: str) -> bool:
    """Tell whether rows say how much such a model read: of labels, and of a model without posts, they do not."""
    return not (arm.startswith(("fewshot", "bt?")) or "knows_users=false" in arm)


def third_party(folder: Path) -> None:
    """Renew the controls and the agreement on text of others, which lies in `folder`."""
    name = "third_party/results.json"
    results = read(name)
    for label, (file, _) in PAIRS.items():
        known = {example.id: example for example in folds.read(folder / file)}
        by_run: dict[tuple[str, str], list[Row]] = {}
        for row in read_table(RESULTS / "third_party" / f"{label.lower()}_rows.csv.gz"):
            scores = [float(row[side]) if row[side] else None for side in ("score_chosen", "score_rejected")]
            posts = 0 if row["context"] == "none" or row["probe"] == "none" else EvalSettings().posts
            made = as_row(
                known[row["id"]], Probe(row["probe"]), Verdict(row["verdict"]), scores, group_by=(), posts=posts
            )
            by_run.setdefault((row["model"], row["context"]), []).append(made)
        for place, old in enumerate(results[label]):
            rows = by_run[old["model"], old["context"]]
            new = summarize(rows, {**old, "group_by": [], "resample": USERS, "max_failed": MAX_FAILED})
            kept = {"calibration": old["calibration"], "data": old["data"]}
            found = under_the_keys_of(old, {**new, **kept})
            if old["context"] != "none":
                found["impersonal_errors"] = new["impersonal_errors"]
            results[label][place] = found
    results["PandaLM"] = agreement(folder / "pandalm_3annotators.jsonl.gz")
    write(name, results)
    (RESULTS / "third_party" / "tables.md").write_text(markdown(results), encoding="utf-8")


def diagnose() -> None:
    """Renew the second round of labels."""
    test = list(make_split("test", DEFAULT_SIZES["test"]))
    by_id: dict[int, dict[str, dict[str, float]]] = {}
    parts = 2 * second_round.HEADS  # points are means over heads, in halves
    for row in read_table(RESULTS / "diagnose" / "second_round_rows.csv.gz"):
        mean = round(float(row["points"]) * parts) / parts
        by_id.setdefault(int(row["seed"]), {}).setdefault(row["arm"], {})[row["id"]] = mean
    points = {
        seed: {arm: np.array([each[row.id] for row in test]) for arm, each in arms.items()}
        for seed, arms in by_id.items()
    }
    name = "diagnose/second_round.json"
    write(name, read(name) | second_round.figures_of(second_round.Lab([], [], test), points))


def lm_planner() -> None:
    """Renew precision and accuracy of the plans of language models."""
    test = {row.id: row for row in make_split("test", DEFAULT_SIZES["test"])}
    figures = read("lm_planner/full.json")
    plans = {seed: plans_of(RESULTS / "lm_planner" / f"full-{seed}.csv.gz", test) for seed in figures["seeds"]}
    shared = sorted(set.intersection(*(set(each) for each in plans.values())))
    assert len(shared) == figures["shared"]
    for seed, each in plans.items():
        figures["seeds"][seed] |= {
            "all": estimates([list(each.values())]), "shared": estimates([[each[item] for item in shared]])
        }  # fmt: skip
    figures["all_seeds_shared"] = estimates([[each[item] for item in shared] for each in plans.values()])
    write("lm_planner/full.json", figures)
    lora = read("lm_planner/lora-0.json")
    rows = read_table(RESULTS / "lm_planner" / "lora-0.csv.gz")
    won = np.array([POINTS[Verdict(row["verdict"])] for row in rows])
    users = [row["user_id"] for row in rows]
    lora["test"]["accuracy"] = asdict(clustered_ratios(won, np.ones_like(won), users).estimate(0))
    write("lm_planner/lora-0.json", lora)


def plans_of(path: Path, test: Mapping[str, Example]) -> dict[str, dict[str, Any]]:
    """Return the plans of one seed as `score_plans.py` had them."""
    return {
        row["id"]: {
            "row": test[row["id"]],
            "planned": [each for each in row["planned"].split("; ") if each],
            "wanted": row["wanted"].split("; "),
            "scores": (float(row["score_chosen"]), float(row["score_rejected"])),
        }
        for row in read_table(path)
    }


def probes() -> None:
    """Renew the held-out gold of policies that were tried before PPO."""
    for path in sorted((RESULTS / "ppo_probes").glob("*-held-out.csv.gz")):
        rows = [
            {"step": int(row["step"]), "majority": row["majority"] == "True", "user_id": row["user_id"]}
            | {name: float(row[name]) for name in ("gold", "kl", "length", "truncated")}
            for row in read_table(path)
        ]
        name = f"ppo_probes/{path.name.removesuffix('-held-out.csv.gz')}.json"
        record = read(name)
        record["evaluation"] = [
            old | {side: new[side] for side in ("gold", "gold_majority", "gold_minority")}
            for old, new in zip(record["evaluation"], summarize_gold(rows), strict=True)
        ]
        write(name, record)


PARTS: dict[str, Callable[[], None]] = {
    "lab": lab, "train": train, "diagnose": diagnose, "lm_planner": lm_planner, "probes": probes,
}  # fmt: skip


def read(name: str) -> Any:
    """Read a file of results."""
    return json.loads((RESULTS / name).read_text(encoding="utf-8"))


def write(name: str, found: Mapping[str, Any]) -> None:
    """Write a file of results."""
    (RESULTS / name).write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print(name, flush=True)


def main() -> None:
    """Write what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", choices=[[], *PARTS], metavar="PART", help=f"of: {', '.join(PARTS)}")
    parser.add_argument("--folder", type=Path, help="of the pairs that `third_party.py` asks about; only with it")
    asked = parser.parse_args()
    for part in asked.parts or ([] if asked.folder else PARTS):
        PARTS[part]()
    if asked.folder:
        third_party(asked.folder)


if __name__ == "__main__":
    main()
