"""`prbench train`: one command from pairs to a folder that `--model` takes."""

import json
from pathlib import Path
from typing import Any

import pytest

# What two kinds of people write, and what they like to read.
SAVERS, HURRIED = ("I count every penny.", "Cheap is good."), ("I am always in a rush.", "No time for that.")
FRUGAL, FAST = "Buy it second-hand and pay less.", "Take the quickest way and be done in minutes."


def make_rows() -> list[dict[str, Any]]:
    return [row(number, split) for split, count in (("train", 24), ("validation", 12)) for number in range(count)]


def row(number: int, split: str) -> dict[str, Any]:
    saves = number % 2 == 0
    user = f"{split}-{number}"
    return {
        "id": user,
        "user_id": user,
        "split": split,
        "question": "How do I get there?",
        "profile": [
            {"id": f"{user}-{i}", "category": "", "text": text} for i, text in enumerate(SAVERS if saves else HURRIED)
        ],
        "rubric_aspects": [{"aspect": "low cost" if saves else "speed", "evidence": "", "reason": ""}],
        "narrative": "",
        "category": "",
        "chosen": FRUGAL if saves else FAST,
        "rejected": FAST if saves else FRUGAL,
    }


@pytest.fixture
def data(tmp_path: Path) -> str:
    return write(tmp_path / "rows.jsonl", make_rows())


def write(path: Path, rows: list[dict[str, Any]]) -> str:
    path.write_text("".join(json.dumps(one) + "\n" for one in rows))
    return str(path)


def test_a_head_is_trained_measured_and_taken_by_eval(prbench, data: str) -> None:
    asked = ("train", "--method", "head", "--data", data, "--out", "m", "--set", "learning_rate=0.02")
    ended = prbench(*asked, "--set", "epochs=40", "--json")
    assert ended.code == 0, ended.err
    told = ended.json
    assert (told["spec"], told["method"], told["out"], told["context"]) == ("head:m", "head", "m", "profile")
    assert told["validation"]["pairs"] == 12
    assert told["validation"]["users"] == 12
    assert told["validation"]["accuracy"]["value"] == 1.0  # two kinds of people, and posts that tell them apart
    assert told["validation"]["swap"]["gap"]["value"] > 0
    assert {"macro_user_accuracy", "worst_decile_accuracy", "minority_accuracy", "calibration"} <= told[
        "validation"
    ].keys()
    assert {"seconds", "peak_memory_mib", "parameters", "epoch", "temperature"} <= told.keys()
    card = json.loads(Path("m/card.json").read_text())
    assert card["config"]["epochs"] == 40
    assert card["validation"] == told["validation"]
    assert "| accuracy | 100.0" in Path("m/README.md").read_text()
    again = prbench(
        "eval", "--model", told["spec"], "--data", data, "--split", "validation", "--posts", "30", "--json"
    )
    assert again.json["accuracy"] == told["validation"]["accuracy"]
    # The same command is only read back; another one is refused.
    assert prbench(*asked, "--set", "epochs=40").code == 0
    refused = prbench(*asked, "--set", "epochs=41")
    assert (refused.code, refused.err.count("\n")) == (2, 1)
    assert (
        "m: holds a model with another settings.epochs (40). Use another --out, or --fresh to start over."
        in refused.err
    )


def test_the_spec_and_the_figures_are_printed(prbench, data: str) -> None:
    ended = prbench("train", "--method", "head", "--data", data, "--out", "m", "--set", "epochs=1", "--seed", "7")
    lines = ended.out.splitlines()
    assert lines[0] == "--model head:m --context profile --posts 30"
    assert lines[1] == "12 pairs of 12 held-out users:"
    assert [line.split()[0] for line in lines[2:5]] == ["accuracy", "by", "worst"]
    assert lines[-1].startswith("trained in ")
    assert json.loads(Path("m/card.json").read_text())["config"]["seed"] == 7


def test_a_head_without_users_is_measured_without_them(prbench, data: str) -> None:
    blind = ("--set", "knows_users=false", "--set", "epochs=1", "--limit", "6")
    ended = prbench("train", "--method", "head", "--data", data, "--out", "m", *blind, "--json")
    assert ended.code == 0, ended.err
    assert (ended.json["context"], ended.json["train_pairs"]) == ("none", 6)
    assert ended.json["validation"]["accuracy"]["value"] == 0.5  # six want the one response, six the other


SETTINGS = "Known options: knows_users=True, encoder=minilm, posts=30, topics=24, "


@pytest.mark.parametrize(
    "arguments, told",
    [
        (("--method", "heed"), "--method heed: unknown. Known methods: bt, bt-profile, "),
        (("--set", "epoch=3"), f"--set: unknown option 'epoch'. {SETTINGS}"),
        (("--set", "epoch=3"), "Did you mean 'epochs'?"),
        (("--set", "epochs"), "--set epochs: write name=value."),
        (("--set", "epochs=many"), "--set: epochs=many cannot be used. Give a whole number."),
        (("--set", "dropout=much"), "--set: dropout=much cannot be used. Give a number."),
        (("--set", "knows_users=perhaps"), "--set: knows_users=perhaps cannot be used. Give true or false."),
        (("--set", "epochs=3", "--set", "epochs=4"), "--set epochs=4: epochs is given twice."),
        (
            ("--backbone", "smollm2"),
            "--backbone smollm2: method head has no backbone. Its settings: knows_users",
        ),
        (("--validation-split", "dev"), "no row has the wanted split. It has: train (24 rows), validation (12 rows)."),
        (("--train-split", "validation"), "both splits are 'validation', so nobody is held out."),
    ],
)
def test_what_cannot_be_trained_gets_one_line(prbench, data: str, arguments: tuple[str, ...], told: str) -> None:
    method = () if "--method" in arguments else ("--method", "head")
    ended = prbench("train", *method, "--data", data, "--out", "m", *arguments)
    assert (ended.code, ended.err.count("\n")) == (2, 1)
    assert told in ended.err
    assert not Path("m").exists()


@pytest.mark.parametrize(
    "changes, told",
    [
        ({"user_id": "ann"}, "all 24 rows of the train split come from one user, 'ann'"),
        ({"profile": []}, "no row of the train split has a post, and this method learns from them."),
        ({"chosen": None}, "rows.jsonl:1: chosen: "),
    ],
)
def test_rows_that_cannot_teach_get_one_line(prbench, tmp_path: Path, changes: dict[str, Any], told: str) -> None:
    data = write(tmp_path / "rows.jsonl", [one | changes for one in make_rows()])
    ended = prbench("train", "--method", "head", "--data", data, "--out", "m")
    assert (ended.code, ended.err.count("\n")) == (2, 1)
    assert told in ended.err


def test_users_that_leak_between_splits_get_one_line(prbench, tmp_path: Path) -> None:
    data = write(tmp_path / "rows.jsonl", [one | {"user_id": f"user-{n % 20}"} for n, one in enumerate(make_rows())])
    ended = prbench("train", "--method", "head", "--data", data, "--out", "m")
    assert (ended.code, ended.err.count("\n")) == (2, 1)
    # 24 rows of train are users 0 to 19; rows 24 to 35 are users 4 to 15.
    assert "user 'user-10' is in both train and validation, as are 11 others. Split the rows by user." in ended.err
