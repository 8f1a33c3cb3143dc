"""Put the runs of `ppo_lab.py` into one table: what `meta_report.py` reads.

    python experiments/ppo_rows.py runs/meta_ppo --name sentences --out results/meta

Written to `--out`: `ppo_NAME.csv.gz`, one line per reward model, seed, kept policy and held-out question;
`ppo_NAME_steps.csv.gz`, one line per reward model, seed and step of training; `ppo_NAME.json`, the settings that all
runs share, and for each run its reward, command, costs and what its policies came to. Runs with other settings than
the first are refused.
"""

import argparse
import json
from pathlib import Path
from typing import Any

from kept_rows import read_table, write_table

OWN = ("reward", "reward_context", "seed")  # settings in which runs differ
HELD_OUT = ("step", "id", "user_id", "majority", "gold", "kl", "length", "truncated")
STEPS = (
    "step",
    "reward",
    "reward_deviation",
    "gold",
    "kl",
    "entropy",
    "length",
    "truncated",
    "failed",
    "seconds",
)


def main() -> None:
    """Read all runs of a folder, and write the three files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path)
    parser.add_argument("--name", required=True, help="of the policy that learned")
    parser.add_argument("--out", type=Path, default=Path("results/meta"))
    asked = parser.parse_args()
    records = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(asked.runs.glob("*.json"))]
    if not records:
        raise SystemExit(f"{asked.runs}: holds no runs of ppo_lab.py.")
    asked.out.mkdir(parents=True, exist_ok=True)
    for suffix, kind, columns in (("", "held-out", HELD_OUT), ("_steps", "steps", STEPS)):
        rows = [
            [*seed_and_model(record), *(row[column] for column in columns)]
            for record in records
            for row in read_table(asked.runs / f"{record['name']}-{kind}.csv.gz")
        ]
        write_table(asked.out / f"ppo_{asked.name}{suffix}.csv.gz", ("seed", "model", *columns), rows)
    facts = {"settings": shared_settings(records), "runs": {record["name"]: facts_of(record) for record in records}}
    (asked.out / f"ppo_{asked.name}.json").write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
    print(f"{len(records)} runs")


def seed_and_model(record: Any) -> tuple[int, str]:
    """Return which run this is."""
    seed = record["settings"]["seed"]
    return seed, record["name"].removesuffix(f"-{seed}")


def shared_settings(records: list[Any]) -> dict[str, Any]:
    """Return the settings of all runs, but for those that tell them apart."""
    found = [{name: value for name, value in each["settings"].items() if name not in OWN} for each in records]
    for record, settings in zip(records, found, strict=True):
        if settings != found[0]:
            raise SystemExit(f"{record['name']}: has other settings than {records[0]['name']}. Keep them apart.")
    return found[0]


def facts_of(record: Any) -> dict[str, Any]:
    """Return what is special about one run."""
    own = {name: record["settings"][name] for name in OWN}
    policies = [
        {"step": each["step"], "kl": each["kl"], "gold": round(each["gold"]["value"], 6)}
        for each in record["evaluation"]
    ]
    kept = {name: record[name] for name in ("command", "split", "device", "seconds", "rollout_tokens_per_second")}
    kept["labels"] = record["summary"].get("labels", 0)  # of a user, shown to the reward model
    return {**own, **kept, "weights": record["summary"]["weights"], "policies": policies}


if __name__ == "__main__":
    main()
