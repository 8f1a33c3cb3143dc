"""The board of several runs: figures recomputed from rows, groups of runs that cannot be told apart, and order."""

from pathlib import Path

import pytest
from tests.golden.conftest import Golden
from tests.golden.extract import board_cli, eval_cli, report_cli
from tests.golden.people import population, rated, write

MODELS = ("random", "longest", "shortest", "overlap", "question")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("board")
    pairs = write(folder / "pairs.jsonl", population(24))
    for name in MODELS:
        eval_cli(folder / "runs", f"control:{name}", "--data", pairs)
    eval_cli(folder / "runs", "control:overlap", "--data", pairs, "--context", "oracle")
    eval_cli(folder / "runs", "control:overlap", "--data", pairs, "--posts", "2")
    eval_cli(folder / "rated", "control:overlap", "--data", write(folder / "rated.jsonl", rated(6)))
    return folder


def test_the_figures_of_a_board(golden: Golden, runs: Path) -> None:
    golden("report_figures", report_cli(runs / "runs"))


def test_groups_asked_for_afterwards(golden: Golden, runs: Path) -> None:
    found = report_cli(runs / "runs", group_by=["level", "majority"])
    golden("report_groups", [[one["model"], one["context"], one["groups"]] for one in found])


def test_letters_and_order(golden: Golden, runs: Path) -> None:
    golden("report_board", board_cli(runs / "runs", models=[f"control:{name}" for name in MODELS]))


def test_boards_of_pairs_and_of_ratings(golden: Golden, runs: Path) -> None:
    golden("report_two_boards", [[one["model"], one.get("ratings")] for one in report_cli(*_folders(runs))])


def _folders(runs: Path) -> list[Path]:
    return [runs / "rated", *sorted(path for path in (runs / "runs").iterdir() if path.name != "cache")]
