"""Boards and pages: the figures come from the rows, and text from data stays text."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from prbench.errors import RunError
from prbench.evaluation import EvalSettings, evaluate
from prbench.evaluation.summary import load_runs
from prbench.pages import write_report
from prbench.pages.board import make_boards

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
    (board,) = make_boards(load_runs([runs]).runs)
    accuracies = [line.summary["accuracy"]["value"] for line in board.lines if line.role != "ceiling"]
    assert accuracies == sorted(accuracies, reverse=True)
    assert board.lines[-1].role == "ceiling"
    assert board.lines[-1].letters == ""
    assert all(line.letters for line in board.lines[:-1])
    assert "cannot show any difference" in board.resolution  # the signs of so few users reject nothing


def test_every_figure_is_recomputed_from_the_rows(runs: Path) -> None:
    before = [run.summary for run in load_runs([runs]).runs]
    for path in runs.glob("*/summary.json"):
        path.write_text("{}")
    assert [run.summary for run in load_runs([runs]).runs] == before


def test_the_page_is_self_contained_and_escapes_what_comes_from_data(runs: Path, tmp_path: Path) -> None:
    page = tmp_path / "board.html"
    write_report(make_boards(load_runs([runs]).runs), page)
    text = page.read_text()
    assert "<script>document.title" not in text
    assert "\\u003cscript\\u003edocument.title" in text
    assert "http://" not in text
    assert "https://" not in text


def test_the_same_runs_give_the_same_page(runs: Path, tmp_path: Path) -> None:
    for name in ("one.html", "two.html"):
        write_report(make_boards(load_runs([runs]).runs), tmp_path / name)
    assert (tmp_path / "one.html").read_bytes() == (tmp_path / "two.html").read_bytes()


def test_a_page_without_its_data_says_so(runs: Path, tmp_path: Path) -> None:
    (tmp_path / "pairs.jsonl").unlink()
    write_report(make_boards(load_runs([runs]).runs), tmp_path / "board.html")
    assert "single items cannot be shown" in (tmp_path / "board.html").read_text()


def test_a_folder_that_is_no_run_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="no such run"):
        load_runs([tmp_path / "nowhere"])
    with pytest.raises(RunError, match="holds no runs"):
        load_runs([tmp_path])


def test_an_unfinished_run_is_left_out_with_a_line_and_changes_no_other_figure(runs: Path) -> None:
    before = make_boards(load_runs([runs]).runs)[0]
    victim = before.lines[0].run.folder
    rows = (victim / "items.jsonl").read_text().splitlines(keepends=True)
    (victim / "items.jsonl").write_text("".join(rows[:30]))
    loaded = load_runs([runs])
    assert len(loaded.left_out) == 1
    assert "unfinished, 10 of 40 items" in loaded.left_out[0]
    assert make_boards(loaded.runs)[0].n == 40
    (victim / "items.jsonl").write_text("")
    assert "unfinished, 0 of 40 items" in load_runs([runs]).left_out[0]


def test_runs_that_differ_in_a_setting_are_told_apart(rows: Rows, tmp_path: Path) -> None:
    for posts in (1, 3):
        evaluate(rows(10), "control:overlap", settings=EvalSettings(posts=posts), out=tmp_path)
    assert sorted(run.model for run in load_runs([tmp_path]).runs) == [
        "control:overlap posts=1",
        "control:overlap posts=3",
    ]


def test_rated_runs_have_a_board_of_their_own(tmp_path: Path) -> None:
    data = [
        {
            "id": f"r{u}-{i}",
            "user_id": f"u{u}",
            "question": "q?",
            "profile": [],
            "response": "w " * (i + 1),
            "rating": i / 4,
        }
        for u in range(6)
        for i in range(5)
    ]
    evaluate(data, "control:longest", out=tmp_path)
    (board,) = make_boards(load_runs([tmp_path]).runs)
    assert (board.kind, board.n, board.users) == ("ratings", 30, 6)
    write_report([board], tmp_path / "board.html")
    assert "alignment" in (tmp_path / "board.html").read_text()


def test_two_rows_of_one_user_keep_their_own_posts_on_the_page(rows: Rows, tmp_path: Path) -> None:
    data = [row | {"user_id": "same"} for row in rows(2)]
    data[1]["user_id"] = "same"
    data.append(rows(3)[2])
    path = tmp_path / "pairs.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in data))
    evaluate(path, "control:longest", out=tmp_path / "runs")
    write_report(make_boards(load_runs([tmp_path / "runs"]).runs), tmp_path / "board.html")
    text = (tmp_path / "board.html").read_text()
    page = json.loads(text.partition('id="data">')[2].partition("</script>")[0])
    shown = {item["id"]: page["users"][0][item["profile"]]["posts"][0] for item in page["items"]}
    assert "User 0" in shown["item-000"]
    assert "User 1" in shown["item-001"]


@pytest.mark.parametrize("damage", ["3\n", '{"id": "a"}\n', "\xff\xfe\n", "[1]\n"])
def test_a_damaged_row_names_file_and_line(runs: Path, damage: str) -> None:
    path = next(runs.glob("*/items.jsonl"))
    path.write_bytes(damage.encode("latin-1") + path.read_bytes())
    with pytest.raises(RunError, match=r"items\.jsonl:1: not a row of ours"):
        load_runs([path.parent])
    loaded = load_runs([runs])
    assert len(loaded.runs) == 2
    assert "items.jsonl:1: not a row of ours" in loaded.left_out[0]


@pytest.mark.parametrize("content, told", [("{}", "was not written by prbench"), ("{", "not valid JSON")])
def test_a_foreign_or_damaged_manifest_is_one_line(runs: Path, content: str, told: str) -> None:
    next(runs.glob("*/manifest.json")).write_text(content)
    loaded = load_runs([runs])
    assert len(loaded.runs) == 2
    assert told in loaded.left_out[0]
