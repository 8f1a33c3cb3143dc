"""Small boards, and the command line inside this process."""

import csv
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.command_line import prbench

from prbench.insight.meta.board import BoardPair, ItemTable, ModelBoard, board_of_items, board_of_scores

__all__ = ["prbench"]  # a fixture, for the tests beside this file


def save_csv(path: Path, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> Path:
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([columns, *rows])
    return path


@pytest.fixture
def table(tmp_path: Path) -> Callable[..., Path]:
    """Write a CSV file: a name, the columns, the rows."""
    return lambda name, columns, *rows: save_csv(tmp_path / name, columns.split(","), rows)


@pytest.fixture
def scores() -> Callable[..., ModelBoard]:
    """Make a board of models a, b, c, … with these scores."""

    def make(*values: float, name: str = "board") -> ModelBoard:
        return board_of_scores(name, {chr(97 + place): float(value) for place, value in enumerate(values)})

    return make


@pytest.fixture
def pair(scores: Callable[..., ModelBoard]) -> Callable[..., BoardPair]:
    """Make a pair of boards."""

    def make(benchmark: Sequence[float], downstream: Sequence[float]) -> BoardPair:
        return BoardPair(benchmark=scores(*benchmark, name="bench"), downstream=scores(*downstream, name="down"))

    return make


def make_item_board(
    worth: Sequence[float], *, users: int = 40, each: int = 3, noise: float = 0.3, seed: int = 0, name: str = "items"
) -> ModelBoard:
    generator = np.random.default_rng(seed)
    count = users * each
    owners = tuple(f"user-{number // each}" for number in range(count))
    hardness = generator.normal(size=(count, 1))
    values = np.array(worth) + hardness + noise * generator.normal(size=(count, len(worth)))
    items = ItemTable(ids=tuple(f"item-{number}" for number in range(count)), users=owners, values=values)
    return board_of_items(name, [f"m{place}" for place in range(len(worth))], items)


@pytest.fixture
def item_board() -> Callable[..., ModelBoard]:
    """Make a board of users who each bring some items; every model has its worth, plus noise."""
    return make_item_board


@pytest.fixture
def save_json(tmp_path: Path) -> Callable[[str, Any], Path]:
    """Write a JSON file."""

    def save(name: str, content: Mapping[str, Any] | list[Any]) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(content))
        return path

    return save
