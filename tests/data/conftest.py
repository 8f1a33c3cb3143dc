"""Rows and files for the tests of the data border."""

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

Row = dict[str, Any]


def _make_row(number: int = 1, **changes: Any) -> Row:
    row = {
        "id": f"q{number}",
        "question": f"Where should I walk on day {number}?",
        "profile": [{"id": f"p{number}", "category": "Lifestyle", "text": f"I walked {number} miles by the sea."}],
        "rubric_aspects": [{"aspect": "coast", "evidence": "by the sea", "reason": "they love the sea"}],
        "narrative": "I like the coast.",
        "category": "Lifestyle",
        "chosen": f"Take the coast path, part {number}.",
        "rejected": f"Take the ring road, part {number}.",
    }
    return {**row, **changes}


@pytest.fixture
def make_row() -> Callable[..., Row]:
    """A sound row with the official columns; keyword arguments replace columns."""
    return _make_row


@pytest.fixture
def write_rows(tmp_path: Path) -> Callable[..., Path]:
    """Write rows to a JSONL file and return its path."""

    def write(rows: Iterable[Any], name: str = "data.jsonl") -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
        return path

    return write
