"""Rows behind recorded figures: the repository holds names and hashes, and what comes back is what was recorded."""

import hashlib
import json
import runpy
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
main: Callable[..., int] = runpy.run_path(str(ROOT / "experiments" / "rows.py"))["main"]
CONTENT = b"rows of a head"


def facts(content: bytes) -> dict[str, Any]:
    return {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A repository whose first commit has rows, and whose manifest names them."""

    def git(*words: str) -> str:
        me = ("-c", "user.name=a", "-c", "user.email=a@example.org")
        return subprocess.run(["git", *me, *words], cwd=tmp_path, check=True, capture_output=True, text=True).stdout

    results = tmp_path / "results"
    (results / "train").mkdir(parents=True)
    (results / "train" / "head.csv.gz").write_bytes(CONTENT)
    git("init", "-q")
    git("add", ".")
    git("commit", "-qm", "rows")
    known = {"commit": git("rev-parse", "HEAD").strip(), "files": {"train/head.csv.gz": facts(CONTENT)}}
    (results / "rows.json").write_text(json.dumps(known))
    (results / "train" / "head.csv.gz").unlink()
    return tmp_path


def test_rows_come_from_the_history(home: Path) -> None:
    assert main(["fetch"], root=home) == 0
    assert (home / "results/train/head.csv.gz").read_bytes() == CONTENT


def test_rows_come_from_an_archive(home: Path) -> None:
    assert main(["fetch"], root=home) == 0
    assert main(["pack", str(home / "rows.tar")], root=home) == 0
    (home / "results/train/head.csv.gz").unlink()
    assert main(["fetch", "train", "--archive", str(home / "rows.tar")], root=home) == 0
    assert (home / "results/train/head.csv.gz").read_bytes() == CONTENT


def test_what_is_not_as_recorded_is_not_written(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = home / "results" / "rows.json"
    known = json.loads(path.read_text())
    known["files"]["train/head.csv.gz"] = facts(b"other rows")
    path.write_text(json.dumps(known))
    assert main(["fetch"], root=home) == 1
    assert "1 of 1 files could not be had as recorded, e.g. train/head.csv.gz." in capsys.readouterr().err
    assert not (home / "results/train/head.csv.gz").exists()
    assert main(["pack", str(home / "rows.tar")], root=home) == 1


def test_an_unknown_folder_is_named(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fetch", "nowhere"], root=home) == 1
    assert "nowhere: no rows of such a folder are recorded" in capsys.readouterr().err


def test_rows_made_anew_are_recorded(home: Path) -> None:
    (home / "results/train/head.csv.gz").write_bytes(b"new")
    assert main(["record"], root=home) == 0
    known = json.loads((home / "results" / "rows.json").read_text())
    assert known["files"] == {"train/head.csv.gz": facts(b"new")}


def test_the_repository_holds_small_results_only() -> None:
    listed = subprocess.run(["git", "ls-files", "results"], cwd=ROOT, check=True, capture_output=True, text=True)
    files = [ROOT / name for name in listed.stdout.splitlines()]
    assert {path.suffix for path in files} <= {".json", ".csv", ".md", ".txt"}
    assert sum(path.stat().st_size for path in files) < 2_000_000
