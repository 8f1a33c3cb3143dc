"""Measure the lab: floors, the ceiling, the average user, and heads that know users.

    python experiments/lab_figures.py --out results/lab

Measured on the default lab with the shipped heads, and again on three repetitions in which everything is drawn anew:
which texts belong to train and test, the people, and the training seed. Besides: a head that never saw a rubric, the
same people with their informative posts cut to 1, 3, 8 and 16, and classifiers that see the responses alone. Written:
`figures.json`, and every verdict as `rows.csv.gz`. About seven minutes on 2 cores.
"""

import argparse
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from kept_rows import write_table
from train_lab_heads import SHIPPED

from prbench.backends.encoders import load_encoder
from prbench.construction.check import check_dataset
from prbench.data import DataSettings
from prbench.evaluation import EvalSettings, Run, evaluate
from prbench.lab import DEFAULT_SIZES, SEED, make_split
from prbench.lab.population import load_library
from prbench.reward_models.head import HeadReward
from prbench.schema import Example, Row
from prbench.training.data import make_training_data
from prbench.training.head import learn_head

DEALS = (1, 2, 3)
FLOORS = ("longest", "shortest", "question", "overlap", "embed")
POSTS = 30  # whole profiles
GROUPS = ("level", "informative_posts", "majority")
DOSES = (1, 3, 8, 16)
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
        "command": "python experiments/lab_figures.py",
        "runs": {name: digest(run) for name, run in runs.items()},
        "responses alone": {split: response_classifiers(split) for split in ("test", "test_population")},
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
    for dose in DOSES:
        yield f"head:lab-user test ({dose} informative posts)", ask(list(cut_profiles(test, dose)), "head:lab-user")
    train, validation = (list(make_split(split, DEFAULT_SIZES[split])) for split in ("train", "validation"))
    head = learn_head(make_training_data(train, validation), replace(SHIPPED, rubric_weight=0.0), load_encoder())
    yield "head without rubrics test", ask(test, HeadReward(head.weights, load_encoder()))


def cut_profiles(rows: Sequence[Example], dose: int) -> Iterator[Example]:
    """Yield the pairs of those who have 16 informative posts, with only the first so many of them left."""
    neutral = set(load_library().neutral)
    for row in rows:
        if row.meta["informative_posts"] != max(DOSES):
            continue
        telling = [post for post in row.user.profile if post.text not in neutral][:dose]
        kept = tuple(post for post in row.user.profile if post.text in neutral or post in telling)
        yield replace(row, user=replace(row.user, profile=kept))


def response_classifiers(split: str) -> dict[str, Any]:
    """Return what `prbench data check` finds for classifiers that see the responses alone."""
    audit = check_dataset("lab", which=DataSettings(split=split))
    return {found.check: found.as_json() for found in audit.findings if "responses alone" in found.check}


def repetition(deal: int) -> Iterator[tuple[str, Run]]:
    """Deal texts anew, draw people anew, train with another seed, and measure."""
    rows = {
        split: list(make_split(split, DEFAULT_SIZES[split], seed=SEED + deal, assignment=deal))
        for split in ("train", "validation", "test", "test_population")
    }
    for name, knows_users in HEADS.items():
        config = replace(SHIPPED, knows_users=knows_users, seed=deal)
        head = learn_head(make_training_data(rows["train"], rows["validation"]), config, load_encoder())
        for split in ("test", "test_population"):
            yield f"{name} {split} (deal {deal})", ask(rows[split], HeadReward(head.weights, load_encoder()))


def ask(rows: Sequence[Example], model: Any, *, context: str = "profile") -> Run:
    """Evaluate one model on whole profiles."""
    return evaluate(rows, model, settings=EvalSettings(context=context, posts=POSTS), group_by=GROUPS)


def digest(run: Run) -> dict[str, Any]:
    """Return the figures that docs/research/lab.md shows."""
    summary = run.summary
    return {
        "accuracy": summary["accuracy"],
        "swap_gap": (summary["swap"] or {}).get("gap"),
        "groups": {name: summary["groups"][name]["groups"] for name in GROUPS},
    }


def write_rows(path: Path, runs: dict[str, Run]) -> None:
    """Write every verdict, one line each, the same bytes for the same verdicts."""
    write_table(path, ["run", "id", "user_id", "probe", "verdict", *GROUPS], lines_of(runs))


def lines_of(runs: dict[str, Run]) -> Iterator[list[Any]]:
    """Yield one line per verdict."""
    for name, run in runs.items():
        for row in run.items:
            assert isinstance(row, Row), "the lab has pairs only"
            groups = [row.groups.get(group, "") for group in GROUPS]
            yield [name, row.id, row.user_id, row.probe.value, row.verdict.value, *groups]


if __name__ == "__main__":
    main()
