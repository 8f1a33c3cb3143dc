"""Panels of made-up annotators, as `prbench annotate export` would write them down."""

import json
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

QUALITIES = ("correctness", "relevance", "helpfulness")
Rows = list[dict[str, Any]]


def line(item: str, annotator: str, choice: str | None = "chosen", **changes: Any) -> dict[str, Any]:
    """One export row: both responses rated 4 throughout, the chosen one on the left."""
    row: dict[str, Any] = {
        "item": item,
        "annotator": annotator,
        "question": "What should I plant?",
        "choice": choice,
        "side_chosen": "left",
        "ratings": {side: dict.fromkeys(QUALITIES, 4) for side in ("chosen", "rejected")},
        "note": "",
        "seconds": 30.0,
        "saved_at": "2026-05-01T10:00:00+00:00",
        "mode": "validate",
    }
    return row | changes


def panel(
    items: int,
    people: Sequence[str] = ("ann", "ben", "cleo"),
    *,
    per_item: int = 3,
    errors: float = 0.1,
    ahead: float = 0.0,
    noise: float = 0.6,
    seed: int = 1,
) -> Rows:
    """Annotators who miss the label with chance `errors` and rate the chosen response `ahead` points higher."""
    draw = random.Random(seed)
    rows = []
    for number in range(items):
        base = draw.choice([3, 3, 4])
        for turn in range(per_item):

            def rate(extra: float, base: int = base) -> dict[str, int]:
                return {name: max(1, min(5, round(base + extra + draw.gauss(0, noise)))) for name in QUALITIES}

            rows.append(
                line(
                    f"item-{number:03}",
                    people[(number + turn) % len(people)],
                    "rejected" if draw.random() < errors else "chosen",
                    side_chosen=draw.choice(["left", "right"]),
                    ratings={"chosen": rate(ahead), "rejected": rate(0.0)},
                    seconds=round(draw.uniform(20, 60), 1),
                )
            )
    return rows


@pytest.fixture
def save(tmp_path: Path) -> Callable[..., Path]:
    """Write rows as JSONL, or text as it is, and return the path."""

    def write(content: Rows | str, name: str = "rows.jsonl") -> Path:
        path = tmp_path / name
        text = content if isinstance(content, str) else "".join(json.dumps(row) + "\n" for row in content)
        path.write_text(text, encoding="utf-8")
        return path

    return write


@pytest.fixture
def make_panel() -> Callable[..., Rows]:
    return panel


@pytest.fixture
def make_line() -> Callable[..., dict[str, Any]]:
    return line
