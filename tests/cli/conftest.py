"""Run the command line inside this process, as a shell would see it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support.command_line import prbench

__all__ = ["prbench"]  # a fixture, for the tests beside this file


@pytest.fixture
def pairs(tmp_path: Path, rows: Callable[[int], list[dict[str, Any]]]) -> Path:
    """A file of twelve good pairs."""
    path = tmp_path / "pairs.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows(12)))
    return path
