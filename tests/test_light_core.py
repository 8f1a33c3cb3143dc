"""The core does without what the extras bring: each need is one line, and nothing is passed over in silence."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import make_row

from prbench.data import open_examples
from prbench.data.export import write_parquet
from prbench.errors import UsageError
from prbench.people.forget import forget

# As on Windows and macOS, and where nothing but the core is installed.
MISSING = ("fcntl", "resource", "pyarrow", "pandas", "torch", "transformers", "datasets", "openai", "httpx", "fastapi")
WITHOUT = f"import sys; sys.modules.update(dict.fromkeys({MISSING!r})); from prbench.cli import main; main()"


def prbench(*arguments: str, where: Path) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-c", WITHOUT, *arguments]
    return subprocess.run(command, cwd=where, capture_output=True, text=True, check=False)


@pytest.fixture
def pairs(tmp_path: Path) -> Path:
    path = tmp_path / "pairs.jsonl"
    path.write_text("".join(json.dumps(make_row(number)) + "\n" for number in range(6)), encoding="utf-8")
    return path


def test_the_core_evaluates_and_reports_without_any_extra(pairs: Path) -> None:
    for command in (
        ("eval", "--model", "control:overlap", "--data", "pairs.jsonl", "--out", "runs"),
        ("eval", "--model", "control:longest", "--limit", "12", "--out", "runs"),
        ("report", "runs", "--html", "board.html"),
    ):
        ended = prbench(*command, where=pairs.parent)
        assert ended.returncode == 0, ended.stderr
    assert (pairs.parent / "board.html").stat().st_size > 10_000


def test_parquet_without_pyarrow_is_one_line(pairs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pa = pytest.importorskip("pyarrow")
    parquet = pairs.with_suffix(".parquet")
    rows = [json.loads(line) for line in pairs.read_text(encoding="utf-8").splitlines()]
    pytest.importorskip("pyarrow.parquet").write_table(pa.Table.from_pylist(rows), parquet)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(UsageError, match=r"Parquet needs pyarrow\. Install it with: pip install 'prbench\[parquet\]'"):
        open_examples(parquet)
    with pytest.raises(UsageError, match="Parquet needs pyarrow"), open_examples(pairs) as store:
        write_parquet(store, pairs.with_name("again.parquet"))
    report: Any = forget("user-1", [pairs.parent])
    assert str(parquet) in report.unread, "a file that could not be searched is named"
    assert not report.is_gone
