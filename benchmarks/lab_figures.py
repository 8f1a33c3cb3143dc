"""Measure the lab: floors, the ceiling, the average user, and heads that know users.

    python benchmarks/lab_figures.py --out results/lab

Measured on the default lab with the shipped heads, and again on three repetitions in which everything is drawn anew:
which texts belong to train and test, the people, and the training seed. Written: `figures.json`, and every verdict as
`rows.csv.gz`. About five minutes on 2 cores.
"""

import argparse
import csv
import gzip
import io
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from prbench.encoders import load_encoder
from prbench.evaluation import Run, evaluate
from prbench.lab import DEFAULT_SIZES, SEED, make_split
from prbench.reward_models.head import HeadReward
from prbench.schema import Example, Row
from prbench.train.head import HeadConfig, train_head
from prbench.walk import EvalSettings

DEALS = (1, 2, 3)
FLOORS = ("longest", "shortest", "question", "overlap", "embed")
POSTS = 30  # whole profiles
GROUPS = ("level", "informative_posts", "majority")
HEADS = {"lab-user": True, "lab-average": False}


def main() -> None:
    """Measure everything and write it down."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("results/lab"))
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    runs = dict(default_runs())
    for deal in DEALS:
        runs |= dict(repetition(deal))
    figures = {
        "command": "python benchmarks/lab_figures.py",
        "runs": {name: digest(run) for name, run in runs.items()},
    }
    (arguments.out / "figures.json").write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    write_rows(arguments.out / "rows.csv.gz", runs)
    for name, run in runs.items():
        print(f"{name:<48} {100 * run.summary['accuracy']['value']:5.1f}")


def default_runs() -> Iterator[tuple[str, Run]]:
    """Yield the runs on the default lab, named `model split`."""
    test = list(make_split("test", DEFAULT_SIZES["test"]))
    for name in FLOORS:
        yield f"control:{name} test", ask(test, f"control:{name}")
    yield "control:gold (oracle) test", ask(test, "control:gold", context="oracle")
    population = list(make_split("test_population", DEFAULT_SIZES["test_population"]))
    for name in HEADS:
        yield f"head:{name} test", ask(test, f"head:{name}")
        yield f"head:{name} test_population", ask(population, f"head:{name}")


def repetition(deal: int) -> Iterator[tuple[str, Run]]:
    """Deal texts anew, draw people anew, train with another seed, and measure."""
    rows = {
        split: list(make_split(split, DEFAULT_SIZES[split], seed=SEED + deal, deal=deal))
        for split in ("train", "validation", "test", "test_population")
    }
    for name, knows_users in HEADS.items():
        config = HeadConfig(knows_users=knows_users, seed=deal)
        weights, _ = train_head(rows["train"], rows["validation"], load_encoder(), config)
        for split in ("test", "test_population"):
            yield f"{name} {split} (deal {deal})", ask(rows[split], HeadReward(weights, load_encoder()))


def ask(rows: Sequence[Example], model: Any, *, context: str = "profile") -> Run:
    """Evaluate one model on whole profiles."""
    return evaluate(rows, model, settings=EvalSettings(context=context, posts=POSTS), group_by=GROUPS)


def digest(run: Run) -> dict[str, Any]:
    """Return the figures that docs/lab.md shows."""
    summary = run.summary
    return {
        "accuracy": summary["accuracy"],
        "swap_gap": (summary["swap"] or {}).get("gap"),
        "groups": {name: summary["groups"][name]["groups"] for name in GROUPS},
    }


def write_rows(path: Path, runs: dict[str, Run]) -> None:
    """Write every verdict, one line each, the same bytes for the same verdicts."""
    text = io.StringIO()
    lines = csv.writer(text, lineterminator="\n")
    lines.writerow(["run", "id", "user_id", "probe", "verdict"])
    for name, run in runs.items():
        for row in run.rows:
            assert isinstance(row, Row), "the lab has pairs only"
            lines.writerow([name, row.id, row.user_id, row.probe.value, row.verdict.value])
    with path.open("wb") as raw, gzip.GzipFile("", "wb", fileobj=raw, mtime=0) as file:
        file.write(text.getvalue().encode())


if __name__ == "__main__":
    main()
