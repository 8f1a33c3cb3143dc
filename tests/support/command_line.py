"""Run the command line inside this process, as a shell would see it. A `conftest.py` imports `prbench` to have it."""

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from prbench.cli import main


@dataclass(frozen=True)
class Ended:
    """What a command left behind."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@pytest.fixture
def prbench(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Callable[..., Ended]:
    """Call `prbench ARGS` in an empty folder."""
    monkeypatch.chdir(tmp_path)

    def call(*args: str) -> Ended:
        monkeypatch.setattr(sys, "argv", ["prbench", *args])
        with pytest.raises(SystemExit) as ended:
            main()
        captured = capsys.readouterr()
        assert "Traceback" not in captured.err
        return Ended(code=int(ended.value.code or 0), out=captured.out, err=captured.err)

    return call
