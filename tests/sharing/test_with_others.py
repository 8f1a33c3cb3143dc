"""Exports and logs, read by the programs of those who take them.

They run in an environment of their own (`make sharing-env`): `PRBENCH_SHARING_ENV`, or the folder `.venv-sharing`.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
ENV = Path(os.environ.get("PRBENCH_SHARING_ENV") or HERE.parents[1] / ".venv-sharing").absolute()
SCORED, JUDGED = "control:overlap", "judge:fake:Result: A"

pytestmark = [
    pytest.mark.sharing,
    pytest.mark.skipif(
        not (ENV / ".done").exists(), reason="needs others' programs: `make sharing-env`, or PRBENCH_SHARING_ENV"
    ),
]


def theirs(*args: str, expect: int = 0, **environment: str) -> str:
    """Run Python of their environment, which knows nothing of ours."""
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [str(ENV / "bin" / "python"), *args], capture_output=True, text=True, env={**clean, **environment}
    )
    assert done.returncode == expect, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout


def logged(*args: str, cwd: Path, **environment: str) -> "subprocess.CompletedProcess[str]":
    """Run our command line with their trackers, and no way to any server."""
    nowhere = {"HTTPS_PROXY": "http://127.0.0.1:9", "HTTP_PROXY": "http://127.0.0.1:9", "NO_PROXY": ""}
    done = subprocess.run(
        [sys.executable, str(HERE / "with_trackers.py"), str(ENV), *args],
        cwd=cwd,
        capture_output=True,
        text=True,
        env={**os.environ, **nowhere, "TRACKIO_DIR": str(cwd / "trackio"), "WANDB_DIR": str(cwd), **environment},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done


def test_every_eval_ever_takes_what_is_exported(prbench: Callable[..., Any], made: Path) -> None:
    assert prbench("export", str(made / "runs"), "--to", "every-eval-ever").code == 0
    files = sorted(str(path) for path in Path("exports").absolute().glob("data/*/*/*/*.json*"))
    assert len(files) == 6
    reports = json.loads(theirs("-m", "every_eval_ever", "validate", "--format", "json", *files))
    assert [(each["valid"], each["errors"], each["warnings"]) for each in reports] == [(True, [], [])] * 6
    assert sum(each["line_count"] for each in reports if each["file_type"] == "instance") == 72
    record = json.loads(Path(files[0]).read_text())
    record["evaluation_results"][0]["score_details"]["score"] = 7.0
    Path(files[0]).write_text(json.dumps(record))
    assert "is outside" in theirs("-m", "every_eval_ever", "validate", files[0], expect=1), "it does look at figures"


def test_mteb_and_inspect_take_our_files(
    prbench: Callable[..., Any], run_of: Callable[[str], Path], made: Path
) -> None:
    run = run_of(SCORED)
    (path,) = prbench("export", str(run), "--to", "hf-eval-results?dataset=org/pairs", "--json").json["files"]
    by_category = json.loads((run / "summary.json").read_text())["accuracy_by_category"]
    # Their model wants a revision to be there, if only as nothing.
    text = Path(path).read_text().replace("    id: org/pairs\n", "    id: org/pairs\n    revision: null\n")
    Path("results.yaml").write_text(text)
    values = json.loads(theirs(str(HERE / "read_tasks.py"), "results", "results.yaml"))
    assert values == [round(100 * figure["value"], 2) for figure in by_category.values()]
    assert prbench("data", "convert", "folder:ours", "--data", str(made / "pairs.jsonl")).code == 0
    tasks = json.loads(theirs(str(HERE / "read_tasks.py"), "eval", "ours"))
    assert tasks == ["Art_and_Entertainment", "Society_and_Culture"]


def test_an_evaluation_is_logged_to_all_trackers_on_this_machine(tmp_path: Path, made: Path) -> None:
    to = [part for name in ("tensorboard:logs", "wandb:proj", "trackio:proj") for part in ("--log-to", name)]
    data = ("--data", str(made / "pairs.jsonl"), "--out", "runs", "--json")
    # What somebody else set up is no request of ours to send anything there.
    done = logged("eval", "--model", SCORED, *data, *to, cwd=tmp_path, TRACKIO_SPACE_ID="org/space")
    summary = json.loads(done.stdout)
    accuracy, gap = summary["accuracy"]["value"], summary["swap"]["gap"]["value"]
    read = str(HERE / "read_logs.py")
    (values,) = json.loads(theirs(read, "tensorboard", str(tmp_path / "logs"))).values()
    assert (values["accuracy"], values["swap/gap"]) == pytest.approx((accuracy, gap))
    found = json.loads(theirs(read, "wandb", str(tmp_path)))
    assert found["project"] == "proj"
    assert (found["summary"]["accuracy"], found["summary"]["swap/gap"]) == (accuracy, gap)
    (steps,) = json.loads(theirs(read, "trackio", "proj", TRACKIO_DIR=str(tmp_path / "trackio"))).values()
    assert (steps[-1]["accuracy"], steps[-1]["swap/gap"]) == (accuracy, gap)


def test_the_trainer_of_a_backbone_reports_to_the_same_runs(tmp_path: Path, made: Path) -> None:
    from tests.golden.tiny_models import language_model

    language_model(tmp_path / "tiny_lm", seed=2)
    to = [part for name in ("tensorboard:logs", "wandb:proj", "trackio:proj") for part in ("--log-to", name)]
    rows = ("--data", str(made / "pairs.jsonl"), "--hold-out", "0.5", "--set", "epochs=2")
    done = logged(
        "train", "--method", "bt", "--backbone", "tiny_lm", *rows, "--out", "bt", "--json", *to, cwd=tmp_path
    )
    accuracy = json.loads(done.stdout[done.stdout.index("{") :])["validation"]["accuracy"]["value"]
    read = str(HERE / "read_logs.py")
    (values,) = json.loads(theirs(read, "tensorboard", str(tmp_path / "logs"))).values()
    assert values["held_out/accuracy"] == pytest.approx(accuracy), "ours"
    assert values["train/train_loss"] > 0, "the trainer's own, by report_to"
    found = json.loads(theirs(read, "wandb", str(tmp_path)))
    assert found["summary"]["held_out/accuracy"] == accuracy
    names = {name for step in (*found["history"], found["summary"]) for name in step}
    assert names & {"train_loss", "train/train_loss"}, sorted(names)
    runs = json.loads(theirs(read, "trackio", "proj", TRACKIO_DIR=str(tmp_path / "trackio")))
    (steps,) = runs.values()
    assert any(step.get("held_out/accuracy") == accuracy for step in steps), "ours"
    assert any("train/epoch" in step for step in steps), "the trainer's own"
