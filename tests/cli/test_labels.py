"""`--labels` on the command line."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


def test_eval_takes_labels_and_says_so(prbench: Callable[..., Any], pairs: Path) -> None:
    done = prbench(
        "eval",
        *("--model", "fake:keyword=thrift", "--data", str(pairs), "--labels", str(pairs), "--shots", "2", "--json"),
    )
    assert done.code == 0, done.err
    assert done.json["context"] == "profile, 2 labels"
    (run,) = Path("runs").glob("*/items.jsonl")
    own = [row for row in map(json.loads, run.read_text().splitlines()) if row["probe"] == "own"]
    assert [row["posts_used"] for row in own] == [6] * 12  # two labels and four posts
    manifest = json.loads((run.parent / "manifest.json").read_text())
    assert manifest["config"]["context"]["labels"]["shots"] == 2


@pytest.mark.parametrize(
    ("extra", "reason"),
    [
        (("--shots", "3"), "--shots 3: there are no labeled pairs to show"),
        (("--labels", "none.jsonl"), "none.jsonl: there is no such file"),
        (("--labels", "lab"), "--labels lab are of the users of --data lab"),
        (("--labels", "strangers.jsonl"), "none of its 1 users is in the data"),
        (("--labels", "PAIRS", "--context", "oracle"), "--labels adds nothing to --context oracle"),
    ],
)
def test_labels_that_make_no_sense_are_refused(
    prbench: Callable[..., Any], pairs: Path, extra: tuple[str, ...], reason: str
) -> None:
    first = json.loads(pairs.read_text().splitlines()[0])
    Path("strangers.jsonl").write_text(json.dumps(first | {"user_id": "stranger"}) + "\n")
    options = [str(pairs) if part == "PAIRS" else part for part in extra]
    done = prbench("eval", "--model", "fake:length", "--data", str(pairs), *options)
    assert done.code == 2
    assert reason in done.err.replace("\n", " ")


@pytest.mark.slow
def test_a_lab_is_written_with_labels_that_eval_finds(prbench: Callable[..., Any]) -> None:
    done = prbench(
        "data", "lab", "--users", "96", "--pairs", "60", "--labels-per-user", "2", "--out", "small", "--json"
    )
    assert done.code == 0, done.err
    splits = done.json["splits"]
    assert splits["test_labels"] == {"users": splits["test_labels"]["users"], "pairs": 2 * 16}
    assert {"test_population_labels", "validation_labels"} <= splits.keys()
    done = prbench(
        "eval", "--model", "fake:length", "--data", "small", "--labels", "small", "--context", "none", "--json"
    )
    assert done.code == 0, done.err
    assert done.json["context"] == "none, 10 labels"
    (run,) = Path("runs").glob("*/items.jsonl")
    own = [row for row in map(json.loads, run.read_text().splitlines()) if row["probe"] == "own"]
    assert sum(row["posts_used"] for row in own) >= len(own)
