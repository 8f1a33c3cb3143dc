"""Fixtures of the tests of forgetting."""

from collections.abc import Callable
from typing import Any

import pytest


@pytest.fixture
def shell(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Call `prbench ARGS`; return the exit code and what was printed."""
    from prbench.cli import main

    def call(*args: str) -> tuple[int, str]:
        monkeypatch.setattr("sys.argv", ["prbench", *args])
        with pytest.raises(SystemExit) as ended:
            main()
        return int(ended.value.code or 0), capsys.readouterr().out

    return call
