"""The figures and tables of docs/research/train.md, from the files that `train_table.py` wrote."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from kept_rows import read_table

from prbench.metrics.estimate import clustered_ratios
from prbench.schema import POINTS

WHOLE = "test"  # the name of the question that most figures are from


def slug(arm: str) -> str:
    """Return the arm as a file name."""
    return re.sub(r"[^a-z0-9=.-]+", "_", arm.lower())


def write_tables(out: Path) -> None:
    """Compute all figures again from the files that are there."""
    records = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(out.glob("*-[0-9]*.json"))]
    by_arm: dict[str, list[dict[str, Any]]] = {}
    for record in records:
        by_arm.setdefault(record["arm"], []).append(record)
    figures = {arm: arm_figures(arm, some, out) for arm, some in by_arm.items()}
    (out / "figures.json").write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    text = "\n".join([quality_table(figures), cost_table(figures), asked_table(figures)])
    (out / "tables.md").write_text(text, encoding="utf-8")
    print(text)


def arm_figures(arm: str, records: Sequence[Mapping[str, Any]], out: Path) -> dict[str, Any]:
    """Return the figures of one arm: means over seeds, and intervals over users of the mean over seeds."""
    points = [read_points(out / f"{slug(arm)}-{record['seed']}.csv.gz") for record in records]
    accuracy = {label: estimate(points, label, "own") for label in records[0]["runs"]}
    tests = [record["runs"][WHOLE] for record in records]
    return {
        "seeds": len(records),
        "device": sorted({record["device"] for record in records}),
        "accuracy": accuracy,
        "swap_gap": estimate(points, WHOLE, "own", less="swap"),
        "without_posts": {
            label: estimate(points, label, "none") for label in (WHOLE, "test_population") if label in accuracy
        },
        "by_seed": [test["accuracy"]["value"] for test in tests],
        **{name: mean_of(tests, name, "value") for name in ("macro_user_accuracy", "worst_decile_accuracy")},
        "minority_accuracy": mean_of(tests, "minority_accuracy", "value"),
        "ece": mean_of(tests, "calibration", "ece_as_scored"),
        "levels": {
            level: float(np.mean([test["groups"]["level"]["groups"][level]["value"] for test in tests]))
            for level in tests[0]["groups"]["level"]["groups"]
        },
        "train_seconds": float(np.mean([record["facts"]["seconds"] for record in records if record["is_first"]])),
        "peak_memory_mib": max(record["facts"]["peak_memory_mib"] for record in records if record["is_first"]),
        "responses_per_second": float(np.mean([record["responses_per_second"] for record in records])),
    }


def mean_of(tests: Sequence[Mapping[str, Any]], name: str, part: str) -> float | None:
    """Return the mean over seeds, or nothing where it does not apply."""
    values = [test[name][part] for test in tests if test[name]]
    return float(np.mean(values)) if values else None


Points = dict[tuple[str, str], dict[tuple[str, str], float]]


def read_points(path: Path) -> Points:
    """Return the points of every pair and user, by what was asked and the probe."""
    points_of = {str(verdict): points for verdict, points in POINTS.items()}
    found: Points = {}
    for row in read_table(path):
        found.setdefault((row["asked"], row["probe"]), {})[row["id"], row["user_id"]] = points_of[row["verdict"]]
    return found


def estimate(seeds: Sequence[Points], label: str, probe: str, less: str | None = None) -> dict[str, float] | None:
    """Return the mean over seeds with an interval over users, of one probe or of a difference of two."""
    if any((label, each) not in points for points in seeds for each in (probe, less or probe)):
        return None
    items = sorted(seeds[0][label, probe])
    columns = [[np.mean([points[label, each][item] for points in seeds]) for item in items]
               for each in (probe, less or probe)]  # fmt: skip
    values = np.array(columns).T
    draws = clustered_ratios(values, np.ones_like(values), [user for _, user in items])
    found = asdict(draws.estimate(0, minus=1) if less else draws.estimate(0))
    return {name: found[name] for name in ("value", "low", "high")}


def quality_table(figures: Mapping[str, Any]) -> str:
    """Return how good the arms are on `test`."""
    numbers = {
        "user mean": "macro_user_accuracy",
        "worst tenth": "worst_decile_accuracy",
        "minority": "minority_accuracy",
    }
    levels = ("plain", "implied", "oblique")
    head = ["method", "accuracy", "seeds", *numbers, "swap gap", "ECE", *levels]
    lines = []
    for arm, each in sorted(figures.items(), key=lambda pair: -pair[1]["accuracy"][WHOLE]["value"]):
        seeds = ", ".join(f"{100 * value:.1f}" for value in each["by_seed"])
        shown = [percent(each[name]) for name in numbers.values()]
        ece = "–" if each["ece"] is None else f"{each['ece']:.3f}"
        by_level = [percent(each["levels"].get(level)) for level in levels]
        parts = [interval(each["accuracy"][WHOLE]), seeds, *shown, interval(each["swap_gap"]), ece, *by_level]
        lines.append([f"`{arm}`", *parts])
    return table("Lab, `test`", head, lines)


def cost_table(figures: Mapping[str, Any]) -> str:
    """Return what the arms cost."""
    head = ["method", "trained on", "seconds", "peak MiB", "responses per second"]
    lines = []
    for arm, each in figures.items():
        costs = (each["train_seconds"], each["peak_memory_mib"], each["responses_per_second"])
        lines.append([f"`{arm}`", ", ".join(each["device"]), *(f"{cost:.0f}" for cost in costs)])
    return table("Cost", head, lines)


def asked_table(figures: Mapping[str, Any]) -> str:
    """Return the accuracies on all that was asked, and those without posts."""
    labels = list(dict.fromkeys(label for each in figures.values() for label in each["accuracy"]))
    lines = []
    for arm, each in figures.items():
        alone = [interval(each["without_posts"].get(label)) for label in (WHOLE, "test_population")]
        lines.append([f"`{arm}`", *(interval(each["accuracy"].get(label)) for label in labels), *alone])
    return table("All that was asked", ["method", *labels, "test, no posts", "test_population, no posts"], lines)


def table(title: str, head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table."""
    rows = [f"| {' | '.join(line)} |" for line in lines]
    return "\n".join([f"### {title}", "", f"| {' | '.join(head)} |", "| --- " * len(head) + "|", *rows, ""])


def percent(value: float | None) -> str:
    """Return a share in percent."""
    return "–" if value is None else f"{100 * value:.1f}"


def interval(found: Mapping[str, float] | None) -> str:
    """Return an estimate with its interval, in percent."""
    if found is None:
        return "–"
    return f"{percent(found['value'])} [{percent(found['low'])}, {percent(found['high'])}]"
