"""Whether a benchmark predicts: figures and words for boards in files, and for what our own commands leave."""

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.golden import extract_pipelines as ask
from tests.golden.conftest import Golden

MODELS = "ABCDEFGHIJ"
MANY = "ABCDEFGHIJKLMN"


def board(place: Path, name: str, columns: str, rows: Sequence[Sequence[object]]) -> str:
    """Write a CSV file, and return its name."""
    with (place / name).open("w", newline="") as file:
        csv.writer(file).writerows([columns.split(","), *rows])
    return name


def six(place: Path) -> dict[str, list[str]]:
    """Six models, of which two change places."""
    places = (1, 5, 3, 4, 6, 2)
    benchmark = [(model, 6 - number) for number, model in enumerate(MODELS[:6])]
    downstream = [(model, 7 - where) for model, where in zip(MODELS, places, strict=False)]
    return {
        "benchmark": [board(place, "bench.csv", "model,score", benchmark)],
        "downstream": [board(place, "down.csv", "model,score", downstream)],
    }


def ten(place: Path) -> dict[str, list[str]]:
    """Two benchmarks of ten models, one with rows per item; ties, and a model that only one has."""
    generator = np.random.default_rng(0)
    worth = generator.normal(size=10)
    items = [
        (MODELS[model], f"i{item}", f"u{item // 3}", round(worth[model] + generator.normal(), 3))
        for model in range(10)
        for item in range(24)
    ]
    coarse = [(MODELS[model], round(2 * (worth[model] + generator.normal())) / 2) for model in range(10)]
    down = [(MODELS[model], round(worth[model] + 0.3 * generator.normal(), 3)) for model in range(9)]
    return {
        "benchmark": [
            board(place, "fine.csv", "model,item,user,score", items),
            board(place, "coarse.csv", "model,score", coarse),
        ],
        "downstream": [board(place, "down.csv", "model,score", [*down, ("Z", 0.5)])],
    }


def test_six_models_cannot_tell(golden: Golden, tmp_path: Path) -> None:
    golden("meta_six", ask.meta(tmp_path, **six(tmp_path)))


def test_other_choices(golden: Golden, tmp_path: Path) -> None:
    choices = {"ndcg_gain": "linear", "rbo_p": 0.8, "top_k": 2, "min_correlation": 0.6, "seed": 4}
    golden("meta_choices", ask.meta(tmp_path, **six(tmp_path), **choices))


def test_ten_models_with_items_and_two_benchmarks(golden: Golden, tmp_path: Path) -> None:
    golden("meta_ten", ask.meta(tmp_path, **ten(tmp_path)))


def test_predictors_that_are_worth_more_together(golden: Golden, tmp_path: Path) -> None:
    generator = np.random.default_rng(2)
    parts = generator.normal(size=(3, len(MANY)))
    downstream = parts[0] + 0.8 * parts[1] - 0.6 * parts[2] + 0.2 * generator.normal(size=len(MANY))
    names = ("one", "two", "three")
    columns = {name: [round(float(value), 3) for value in part] for name, part in zip(names, parts, strict=True)}
    boards = [
        board(tmp_path, f"{name}.csv", "model,score", list(zip(MANY, column, strict=True)))
        for name, column in columns.items()
    ]
    down = board(tmp_path, "down.csv", "model,score", list(zip(MANY, np.round(downstream, 3).tolist(), strict=True)))
    golden("meta_predictors", ask.meta(tmp_path, benchmark=boards, downstream=[down]))


@pytest.mark.slow
def test_how_many_items_a_benchmark_needs(golden: Golden, tmp_path: Path) -> None:
    boards = ten(tmp_path)
    golden("meta_resolution", ask.meta(tmp_path, benchmark=boards["benchmark"][:1], resolution=True))


def test_runs_of_our_own(golden: Golden, tmp_path: Path, world: Path) -> None:
    models = ("control:overlap", "control:longest", "control:shortest", "fake:length", "control:longest?context=none")
    data = str(world / "lab")
    ask.bon(tmp_path, models=models, data=data, split="test", limit=12, n=4)
    for model in models[:4]:
        ask.evaluate(tmp_path, model, data, split="test", limit=24, probes="own,swap")
    ask.evaluate(tmp_path, "control:longest", data, split="test", limit=24, context="none")
    order = ("fake:length", "control:overlap", "control:longest?context=none", "control:longest", "control:shortest")
    runs = ask.runs_of(tmp_path, order)
    found: dict[str, Any] = ask.meta(tmp_path, benchmark=runs, downstream=[ask.folder_of_bon(tmp_path)])
    golden("meta_runs", found)
