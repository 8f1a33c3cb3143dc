"""How tables of README and docs are made: files of results are read, and cells are written."""

import json
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parents[1] / "results"
LEVELS = ("plain", "implied", "oblique")
POSTS = ("1", "3", "8", "16")
Estimate = Mapping[str, float]


@cache
def read(name: str) -> Any:
    """Return a file of results."""
    return json.loads((RESULTS / name).read_text(encoding="utf-8"))


def percent(found: float | Estimate, digits: int = 1, sign: str = "") -> str:
    """Return a share in percent, without its interval."""
    value = found["value"] if isinstance(found, Mapping) else found
    return f"{100 * value:{sign}.{digits}f}"


def percents(found: Estimate, sign: str = "") -> str:
    """Return a share in percent with its interval."""
    return f"{percent(found, 1, sign)} [{percent(found['low'], 1, sign)}, {percent(found['high'], 1, sign)}]"


def decimals(found: Estimate, sign: str = "", digits: int = 2) -> str:
    """Return a figure with its interval."""
    value, low, high = (f"{found[part]:{sign}.{digits}f}" for part in ("value", "low", "high"))
    return f"{value} [{low}, {high}]"


def grid(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table."""
    assert all(len(line) == len(head) for line in lines), head
    return "\n".join(f"| {' | '.join(line)} |" for line in (head, ["---"] * len(head), *lines))
