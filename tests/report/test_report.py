"""Boards and pages: the figures come from the rows, and text from data stays text."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from prbench.errors import RunError
from prbench.evaluation import EvalSettings, evaluate
from prbench.report import write_report
from prbench.report.board import make_boards
from prbench.report.load import load_runs

Rows = Callable[[int], list[dict[str, Any]]]


@pytest.fixture
def runs(rows: Rows, tmp_path: Path) -> Path:
    """Three finished runs on a file of 40 pairs, one of them an oracle."""
    data = rows(40)
    for row in data[20:]:
        row["chosen"], row["rejected"] = row["rejected"], row["chosen"]
    data[0]["chosen"] = "<script>document.title = 'stolen'</script> & <b>bold</b> thrift"
    path = tmp_path / "pairs.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in data))
    for model, context in (
        ("control:longest", "profile"),
        ("control:overlap", "profile"),
        ("control:overlap", "oracle"),
    ):
        evaluate(path, model, settings=EvalSettings(context=context), out=tmp_path / "runs")
    return tmp_path / "runs"


def test_the_board_ranks_by_accuracy_and_keeps_ceilings_apart(runs: Path) -> None:
    (board,) = make_boards(load_runs([runs]))
    accuracies = [line.summary["accuracy"]["value"] for line in board.lines if line.role != "ceiling"]
    assert accuracies == sorted(accuracies, reverse=True)
    assert board.lines[-1].role == "ceiling"
    assert board.lines[-1].group is None
    assert "cannot be shown" in board.resolution


def test_every_figure_is_recomputed_from_the_rows(runs: Path) -> None:
    before = [run.summary for run in load_runs([runs])]
    for path in runs.glob("*/summary.json"):
        path.write_text("{}")
    assert [run.summary for run in load_runs([runs])] == before


def test_the_page_is_self_contained_and_escapes_what_comes_from_data(runs: Path, tmp_path: Path) -> None:
    page = tmp_path / "board.html"
    write_report(make_boards(load_runs([runs])), page)
    text = page.read_text()
    assert "<script>document.title" not in text
    assert "\\u003cscript\\u003edocument.title" in text
    assert "http://" not in text
    assert "https://" not in text


def test_the_same_runs_give_the_same_page(runs: Path, tmp_path: Path) -> None:
    for name in ("one.html", "two.html"):
        write_report(make_boards(load_runs([runs])), tmp_path / name)
    assert (tmp_path / "one.html").read_bytes() == (tmp_path / "two.html").read_bytes()


def test_a_page_without_its_data_says_so(runs: Path, tmp_path: Path) -> None:
    (tmp_path / "pairs.jsonl").unlink()
    write_report(make_boards(load_runs([runs])), tmp_path / "board.html")
    assert "single items cannot be shown" in (tmp_path / "board.html").read_text()


def test_a_folder_that_is_no_run_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="no such run"):
        load_runs([tmp_path / "nowhere"])
    with pytest.raises(RunError, match="holds no runs"):
        load_runs([tmp_path])
