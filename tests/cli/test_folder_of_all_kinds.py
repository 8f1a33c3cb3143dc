"""A folder that holds what every command leaves behind: each reader takes its own, and says what it left out."""

import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs pip install 'prbench[hf]'")

from tests.build.lab_script import answer
from tests.cli.test_train import make_rows
from tests.support.scripted_server import ScriptedServer, scripted_server
from tests.support.tiny_llama import save_tiny_llama

Command = Callable[..., Any]


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with scripted_server(answer) as running:
        yield running


@pytest.fixture
def runs(prbench: Command, pairs: Path, server: ScriptedServer, tmp_path: Path, capsys: Any) -> Path:
    """Two evaluations, an interrupted one, and one run of every other kind, made by the commands themselves."""
    folder = tmp_path / "runs"
    (tmp_path / "learn.jsonl").write_text("".join(json.dumps(row) + "\n" for row in make_rows()))
    policy = save_tiny_llama(tmp_path / "tiny", ["red green blue thrift seeds"], max_position_embeddings=256)
    capsys.readouterr()  # the writer's bar
    models = [part for role in ("generator", "judge", "quality-judge") for part in (f"--{role}", server.spec)]
    quick = (
        "--context",
        "none",
        "--steps",
        "1",
        "--rollout-batch",
        "8",
        "--max-new-tokens",
        "6",
        "--set",
        "minibatches=2",
    )
    asked = ("--data", str(pairs), "--out", "runs")
    for command in (
        ("eval", "--model", "control:longest", *asked),
        ("eval", "--model", "control:overlap", *asked),
        ("eval", "--model", "fake:length", *asked),
        ("bon", "--policy", "lab", "--users", "12", "--n", "4", "--model", "control:overlap", "--out", "runs/bon"),
        ("ppo", "--policy", str(policy), "--model", "fake:length", *quick, "--data", str(pairs), "--out", "runs/ppo"),
        ("train", "--method", "head", "--data", "learn.jsonl", "--set", "epochs=1", "--out", "runs/head"),
        ("build", *models, "--users", "3", "--words", "65", "--stage", "rubric", "--out", "runs/build"),
    ):
        ended = prbench(*command)
        assert ended.code == 0, ended.err
    killed = next(
        path.parent
        for path in folder.glob("*/manifest.json")
        if "fake:length" in path.read_text() and (path.parent / "items.jsonl").exists()
    )
    (killed / "summary.json").unlink()
    lines = (killed / "items.jsonl").read_text().splitlines(keepends=True)
    (killed / "items.jsonl").write_text("".join(lines[:7]) + lines[7][:20])
    return folder


def named(lines: Iterable[str]) -> list[str]:
    """Return the last part of every folder that a line says was left out."""
    return sorted(
        line.removeprefix("note: ").split(":")[0].rpartition("/")[2] for line in lines if "left out" in line.lower()
    )


def test_every_reader_takes_its_own_and_names_the_rest(prbench: Command, runs: Path, tmp_path: Path) -> None:
    finished = [path.parent.name for path in runs.glob("*/items.jsonl") if (path.parent / "summary.json").exists()]
    killed = next(path.parent.name for path in runs.glob("*/items.jsonl") if path.parent.name not in finished)
    others = sorted([killed, "bon", "build", "head", "ppo"])

    report = prbench("report", "runs", "--json", "--html", "board.html")
    assert report.code == 0, report.err
    assert sorted(summary["model"] for summary in report.json) == ["control:longest", "control:overlap"]
    assert named(report.err.splitlines()) == others

    diagnosed = prbench("diagnose", "runs", "--json")
    assert diagnosed.code == 0, diagnosed.err
    assert named(diagnosed.err.splitlines()) == others

    (bon,) = (runs / "bon").glob("*/summary.json")
    measured = prbench("meta", "--benchmark", "runs", "--downstream", str(bon.parent), "--json")
    assert measured.code == 0, measured.err
    assert named(measured.json["notes"]) == others
    both = prbench("meta", "--benchmark", "runs", "--downstream", "runs/bon", "--json")
    assert both.json["predictions"] == measured.json["predictions"]

    answers = tmp_path / "answers.csv"
    lines = [f"item-{number:03d},{who},chosen\n" for number in range(12) for who in "ab"]
    answers.write_text("".join(["item,annotator,label\n", *lines]))
    agreed = prbench("annotate", "agreement", "answers.csv", "--judge-run", "runs", "--json")
    assert agreed.code == 0, agreed.err
    assert agreed.json["judges"] == 2
    assert named(agreed.json["notes"]) == others

    gone = prbench("data", "forget", "user-1", "--in", "runs", "--in", str(tmp_path / "pairs.jsonl"), "--json")
    assert gone.code == 0, gone.err + gone.out
    assert named(gone.json["notes"]) == sorted([bon.parent.name, "head", "ppo"])
    after = prbench("report", "runs", "--json")
    assert after.code == 0, after.err
    assert [summary["n_items"] for summary in after.json] == [8, 8]


def test_a_run_of_another_kind_alone_is_one_line(prbench: Command, runs: Path) -> None:
    refused = prbench("report", "runs/ppo")
    assert (refused.code, refused.err.count("\n")) == (2, 1)
    assert "made by `prbench ppo`" in refused.err
