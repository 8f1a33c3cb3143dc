"""`prbench diagnose`: tables, JSON, a page, a file for annotators, a folder to train on; bad input is one line."""

import json
from pathlib import Path
from typing import Any

import pytest


def people(count: int = 90, split: str = "train") -> list[dict[str, Any]]:
    """Pairs of which the longer response is right, but for every third."""
    sides = ("A response of several words.", "Short.")
    return [
        {
            "id": f"i{n:03d}",
            "user_id": f"u{n:03d}",
            "question": "What now?",
            "profile": [{"id": "p", "text": f"I wrote this: {n}."}],
            "rubric_aspects": [{"aspect": "words", "evidence": "", "reason": ""}],
            "chosen": sides[n % 3 == 0],
            "rejected": sides[n % 3 != 0],
            "split": split,
            "meta": {"kind": "hard" if n % 3 == 0 else "easy"},
        }
        for n in range(count)
    ]


@pytest.fixture
def run(prbench, tmp_path: Path) -> str:
    """The folder of a finished run."""
    (tmp_path / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in people()))
    ended = prbench("eval", "--model", "control:longest", "--data", "pairs.jsonl", "--json")
    return f"runs/{ended.json['run_id']}"


def test_it_says_where_the_model_fails(prbench, run: str) -> None:
    ended = prbench("diagnose", run)
    assert ended.code == 0
    assert "kind=hard: 0.0 %, -100.0" in ended.out
    assert "30 errors more than elsewhere" in ended.out
    assert "Holm's correction" in ended.out


def test_json_has_every_figure(prbench, run: str) -> None:
    found = prbench("diagnose", run, "--by", "kind", "--label-next", "3", "--json").json
    assert [(each["field"], each["value"], each["n"]) for each in found["slices"]] == [
        ("kind", "easy", 60),
        ("kind", "hard", 30),
    ]
    cell = found["slices"][1]["runs"][0]
    assert (cell["finding"], cell["accuracy"]["value"], cell["against_rest"]["value"]) == ("weaker", 0.0, -1.0)
    assert len(found["label_next"]) == 3
    assert found["export"] is None


def test_items_to_label_make_an_annotation_project(prbench, run: str) -> None:
    ended = prbench("diagnose", run, "--label-next", "6", "--label-file", "next.jsonl")
    assert "to label: 6 items of 6 users in next.jsonl" in ended.err
    assert "test" not in ended.err
    made = prbench("annotate", "create", "study.db", "--data", "next.jsonl", "--seats", "2", "--json")
    assert (made.code, len(made.json["annotators"])) == (0, 2)


def test_the_hard_slice_becomes_a_dataset(prbench, run: str) -> None:
    ended = prbench("diagnose", run, "--export", "hard", "--json")
    assert ended.json["export"]["slices"] == ["kind=hard"]
    assert sum(ended.json["export"]["rows"].values()) == 30
    assert prbench("eval", "--model", "control:longest", "--data", "hard", "--split", "train", "--json").code == 0


def test_a_small_hard_slice_goes_on_to_training(prbench, tmp_path: Path) -> None:
    rows = [row | {"category": f"c{n}"} for n, row in enumerate(people(18))]
    (tmp_path / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    made = prbench("eval", "--model", "control:longest", "--data", "pairs.jsonl", "--json")
    written = prbench("diagnose", f"runs/{made.json['run_id']}", "--export", "hardx", "--slice", "kind=hard", "--json")
    assert sum(written.json["export"]["rows"].values()) == 6
    ended = prbench("train", "--method", "match", "--data", "hardx", "--out", "model")
    assert ended.code == 0, ended.err


def test_a_dataset_is_not_overwritten_by_items_to_label(prbench, run: str, tmp_path: Path) -> None:
    (tmp_path / "other.jsonl").write_text("".join(json.dumps(row) + "\n" for row in people(5)))
    for name, message in (("pairs.jsonl", "holds data of these runs"), ("other.jsonl", "did not write it")):
        before = (tmp_path / name).read_bytes()
        ended = prbench("diagnose", run, "--label-next", "3", "--label-file", name)
        assert (ended.code, ended.out, ended.err.count("\n")) == (2, "", 1)
        assert message in ended.err
        assert (tmp_path / name).read_bytes() == before
    for count in ("3", "2"):
        assert prbench("diagnose", run, "--label-next", count, "--label-file", "next.jsonl").code == 0


def test_the_page_is_written(prbench, run: str) -> None:
    ended = prbench("diagnose", run, "--html", "out/diagnosis.html")
    assert "page: out/diagnosis.html" in ended.err
    assert Path("out/diagnosis.html").read_text().startswith("<!doctype html>")


def test_two_runs_get_letters(prbench, run: str) -> None:
    other = prbench("eval", "--model", "control:shortest", "--data", "pairs.jsonl", "--json")
    ended = prbench("diagnose", run, f"runs/{other.json['run_id']}", "--by", "kind")
    assert "accuracy A" in ended.out
    assert "accuracy B" in ended.out
    assert "at odds 90" in ended.out


def test_test_items_come_with_a_warning_and_are_not_exported(prbench, tmp_path: Path) -> None:
    (tmp_path / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in people(split="test")))
    made = prbench("eval", "--model", "control:longest", "--data", "pairs.jsonl", "--json")
    folder = f"runs/{made.json['run_id']}"
    assert "these are test items" in prbench("diagnose", folder, "--label-next", "3").err
    ended = prbench("diagnose", folder, "--export", "hard")
    assert (ended.code, ended.err.count("\n")) == (2, 1)
    assert "--allow-test" in ended.err
    assert prbench("diagnose", folder, "--export", "hard", "--allow-test").code == 0


@pytest.mark.parametrize(
    "arguments,message",
    [
        (("--by", "nowhere"), "Known here: category, kind"),
        (("--slice", "kind=hard"), "Add --export DIR"),
        (("--slice", "kind=odd", "--export", "x"), "no such slice"),
        (("--unlabeled",), "--label-next N"),
        (("--unlabeled", "--label-next", "3", "--export", "x"), "needs labels"),
        (("--label-next", "0"), "--label-next"),
        (("--html", "."), "is a folder"),
        (("--label-next", "3", "--label-file", "."), "is not a file"),
        (("--data", "nowhere.jsonl"), "there is no such file"),
    ],
)
def test_bad_input_is_one_line(prbench, run: str, arguments: tuple[str, ...], message: str) -> None:
    ended = prbench("diagnose", run, *arguments)
    assert (ended.code, ended.out, ended.err.count("\n")) == (2, "", 1)
    assert message in ended.err
