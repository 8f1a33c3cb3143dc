"""Finished runs of a few pairs, made once; tests copy them before they change a byte."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.conftest import make_row
from tests.support.command_line import prbench

from prbench.evaluation import EvalSettings, evaluate

__all__ = ["prbench"]
MODELS = ("control:overlap", "control:longest", "judge:fake:Result: A")


def pairs() -> list[dict[str, object]]:
    """Pairs of which each third one has the sides that no control gets right."""
    rows = []
    for number in range(24):
        user = number % 6
        posts = [{"id": f"p{user}-{i}", "text": f"User {user} wrote post {i} about thrift."} for i in range(4)]
        rows.append(make_row(number, user_id=f"user-{user}", profile=posts, meta={"level": f"l{number % 2}"}))
    for row in rows[::3]:
        row["chosen"], row["rejected"] = row["rejected"], row["chosen"]
    return rows


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `pairs.jsonl` and, under `runs`, one run of each model."""
    folder = tmp_path_factory.mktemp("made")
    data = folder / "pairs.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in pairs()))
    for model in MODELS:
        evaluate(data, model, out=folder / "runs", settings=EvalSettings())
    return folder


@pytest.fixture
def run_of(made: Path, tmp_path: Path) -> Callable[[str], Path]:
    """Return a copy of the run of a model, to be changed at will."""

    def copy(model: str) -> Path:
        for manifest in (made / "runs").glob("*/manifest.json"):
            if json.loads(manifest.read_text())["config"]["model"] == model:
                target = tmp_path / "submissions" / manifest.parent.name
                shutil.copytree(manifest.parent, target)
                return target
        raise AssertionError(model)

    return copy


def read_rows(run: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (run / "items.jsonl").read_text().splitlines()]


def write_rows(run: Path, rows: list[dict[str, object]]) -> None:
    (run / "items.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
