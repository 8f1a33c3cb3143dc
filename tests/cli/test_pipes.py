"""What commands print where no terminal shows it: whole lines, and a line of progress now and then."""

import csv
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from prbench.cli import load_command, options
from prbench.registry import MODELS


def test_no_spec_is_cut_in_a_pipe(prbench: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    lines = prbench("models").out.splitlines()
    for row in MODELS.rows:
        for usage in row.usages:
            (line,) = [line for line in lines if line.startswith(f"{usage.example} ")]
            assert usage.summary in line
    assert "…" not in prbench("models", "--check").out


@pytest.mark.parametrize("command", ["eval", "serve", "ppo"])
def test_no_option_is_cut_in_help_that_goes_into_a_pipe(command: str) -> None:
    page = subprocess.run([sys.executable, "-m", "prbench", command, "-h"], capture_output=True, text=True, check=True)
    shown = page.stdout
    for option in load_command(command).params:
        assert all(name in shown for name in (*option.opts, *option.secondary_opts))


def test_a_line_of_progress_comes_every_half_minute(capsys: pytest.CaptureFixture[str]) -> None:
    clock = iter([0.0, 5.0, 20.0, 31.0, 45.0, 65.0])
    tell = options.progress_lines("eval", clock=lambda: next(clock))
    for done, said in ((100, ""), (110, ""), (152, ""), (180, ""), (220, "loss 0.5")):
        tell(done, 400, said)
    # The first hundred were there before: 52 in 26 s, then 120 in 60 s.
    assert capsys.readouterr().err.splitlines() == [
        "eval: 152/400, 2/s, 124 s left",
        "eval: 220/400, 2/s, 90 s left: loss 0.5",
    ]


def test_short_and_quiet_commands_say_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with options.progress_bar("eval", quiet=True) as none, options.progress_bar("eval") as tell:
        assert none is None
        assert tell is not None
        tell(1, 2)
    assert capsys.readouterr().err == ""


def test_the_board_is_written_as_csv(prbench: Callable[..., Any], pairs: Path) -> None:
    for model in ("control:longest", "control:shortest"):
        assert prbench("eval", "--model", model, "--data", str(pairs)).code == 0
    ended = prbench("report", "runs", "--csv", "made/board.csv")
    assert ended.code == 0, ended.err
    with Path("made/board.csv").open(encoding="utf-8", newline="") as file:
        lines = list(csv.DictReader(file))
    assert [(line["model"], line["context"], line["role"]) for line in lines] == [
        ("control:shortest", "profile", "floor"),
        ("control:longest", "profile", "floor"),
    ]
    assert [float(line["accuracy"]) for line in lines] == [1.0, 0.0]
    assert 0.6 < float(lines[0]["accuracy_low"]) < float(lines[0]["accuracy_high"]) == 1.0
    assert (lines[0]["items"], lines[0]["users"], lines[0]["alignment"]) == ("12", "3", "")


def test_a_dataset_is_converted(prbench: Callable[..., Any], pairs: Path) -> None:
    ended = prbench("data", "convert", "folder:made?format=parquet", "--data", str(pairs), "--limit", "5", "--json")
    assert ended.code == 0, ended.err
    assert ended.json["rows"] == 5
    again = prbench("data", "convert", "jsonl:back.jsonl", "--data", "made")
    assert "5 rows written to back.jsonl" in again.out
    assert "Unknown kind 'xml'" in prbench("data", "convert", "xml:x", "--data", str(pairs)).err


def test_the_help_of_train_shows_the_settings_of_a_method(prbench: Callable[..., Any]) -> None:
    assert "Settings of" not in prbench("train", "--help").out
    for typed in (("--method", "head"), ("--method=head",)):
        out = prbench("train", *typed, "--help").out
        assert "Settings of --method head, for --set NAME=VALUE" in out
        assert "knows_users" in out
    assert "Did you mean 'head'?" in prbench("train", "--method", "hed", "--help").err


def test_a_command_works_where_the_shell_closed_its_output(tmp_path: Path) -> None:
    line = f"{sys.executable} -m prbench eval --model control:longest --data lab --limit 4 --out {tmp_path} >&-"
    ended = subprocess.run(["bash", "-c", line], capture_output=True, text=True)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert list(tmp_path.glob("*/summary.json"))
