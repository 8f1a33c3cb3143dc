"""`prbench data check`: one line per check, JSON for machines, a page, and exit code 1 for what is bad."""

import json
from pathlib import Path
from typing import Any

import pytest


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def balanced(count: int) -> list[dict[str, Any]]:
    """Pairs that no rule solves: each mirrored for another user, on 2 × count users."""
    rows = []
    for n in range(count):
        sides = f"Take alpha{n} and beta{n} together.", f"Take gamma{n} and zeta{n} together."
        for which in (0, 1):
            rows.append(
                {
                    "id": f"{n}-{which}",
                    "user_id": f"u{n}-{which}",
                    "question": f"What about question{n}?",
                    "profile": [{"id": "p", "text": f"I wrote post{n}x{which}."}],
                    "chosen": sides[which],
                    "rejected": sides[1 - which],
                }
            )
    return rows


@pytest.fixture
def good(tmp_path: Path) -> Path:
    return write(tmp_path / "good.jsonl", balanced(150))


def test_a_sound_set_passes(prbench, good: Path) -> None:
    ended = prbench("data", "check", "--data", str(good), "--audit-encoder", "none")
    assert ended.code == 0
    assert "balanced by mirroring" in ended.out
    assert "bad " not in ended.out.replace("0 bad", "")


def test_a_shortcut_ends_with_exit_code_one_and_a_remedy(prbench, pairs: Path) -> None:
    ended = prbench("data", "check", "--data", str(pairs), "--audit-encoder", "none")
    assert ended.code == 1
    assert "floor: the longer" in ended.out
    assert "Match the" in ended.out


def test_json_holds_every_finding_with_its_numbers(prbench, good: Path) -> None:
    ended = prbench("data", "check", "--data", str(good), "--audit-encoder", "none", "--json")
    assert ended.err == ""
    findings = {finding["check"]: finding for finding in ended.json}
    assert len(findings) == 17
    assert set(findings["rows"]) == {"check", "verdict", "figure", "remedy", "why", "values", "samples"}
    assert findings["duplicates"]["values"]["mirrored_share"] == 1.0
    assert findings["floor: responses alone, by words"]["values"]["accuracy"]["value"] == 0.5
    assert findings["floor: meaning of the profile"]["verdict"] == "skipped"
    assert "pip install" in findings["floor: meaning of the profile"]["remedy"]


def test_the_page_is_written_and_named(prbench, good: Path) -> None:
    ended = prbench("data", "check", "--data", str(good), "--audit-encoder", "none", "--html", "out/check.html")
    assert ended.code == 0
    assert "page: out/check.html" in ended.err
    assert Path("out/check.html").read_text().startswith("<!doctype html>")


def test_leaks_in_a_folder_are_bad(prbench, tmp_path: Path) -> None:
    rows, folder = balanced(20), tmp_path / "folder"
    folder.mkdir()
    write(folder / "train.jsonl", rows[:20])
    write(folder / "test.jsonl", rows[18:])
    ended = prbench("data", "check", "--data", str(folder), "--audit-encoder", "none", "--json")
    (splits,) = [finding for finding in ended.json if finding["check"] == "splits"]
    assert (ended.code, splits["verdict"]) == (1, "bad")
    assert splits["figure"].endswith("(checked: test)")
    assert splits["values"]["shared"][0]["users"] == 2


def test_bad_rows_are_named_and_counted(prbench, tmp_path: Path) -> None:
    rows = balanced(3)
    path = write(tmp_path / "a.jsonl", [rows[0], rows[1] | {"question": ""}, *rows[2:]])
    ended = prbench("data", "check", "--data", str(path), "--audit-encoder", "none")
    assert (ended.code, ended.err.count("\n")) == (2, 1)
    assert "question: is empty" in ended.err
    ended = prbench("data", "check", "--data", str(path), "--audit-encoder", "none", "--skip-bad-rows", "1")
    assert "skipped: " in ended.err
    assert "5 good rows, 1 bad" in ended.out


@pytest.mark.parametrize(
    "arguments,message",
    [
        (("--data", "nowhere.jsonl"), "there is no such file"),
        (("--data", "lab", "--split", "nowhere"), "the lab has no such split"),
        (("--audit-encoder", "nowhere/at/all"), "The encoder 'nowhere/at/all' cannot be loaded"),
        (("--html", "."), "is a folder"),
        (("--limit", "0"), "--limit"),
    ],
)
def test_bad_input_is_one_line(prbench, good: Path, arguments: tuple[str, ...], message: str) -> None:
    given = arguments if "--data" in arguments else ("--data", str(good), *arguments)
    ended = prbench("data", "check", *given)
    assert (ended.code, ended.out, ended.err.count("\n")) == (2, "", 1)
    assert message in ended.err
