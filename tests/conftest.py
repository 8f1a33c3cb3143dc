"""Small rows that most tests start from."""

import os
import shutil
from collections.abc import Callable, Iterator
from typing import Any

import pytest

# The workers share the cores already: with more threads than cores, they would mostly wait for each other.
os.environ.setdefault("OMP_NUM_THREADS", "1")

Rows = list[dict[str, Any]]


def make_row(number: int, **changes: Any) -> dict[str, Any]:
    """One official row; users come in threes, categories in twos."""
    row: dict[str, Any] = {
        "id": f"item-{number:03d}",
        "user_id": f"user-{number % 3}",
        "question": f"What should I plant on balcony {number}?",
        "profile": [
            {
                "id": f"p{number % 3}-{i}",
                "category": "garden",
                "text": f"User {number % 3} wrote post {i} about thrift.",
            }
            for i in range(4)
        ],
        "rubric_aspects": [{"aspect": "low cost", "evidence": "I count my coins.", "reason": "Money is short."}],
        "narrative": "I have little money and much sun.",
        "category": ("Art_and_Entertainment", "Society_and_Culture")[number % 2],
        "chosen": f"Sow cheap seeds of thrift number {number}.",
        "rejected": f"Buy the finest pots and an olive tree, number {number}.",
    }
    return row | changes


@pytest.fixture
def rows() -> Callable[[int], Rows]:
    """Make that many different rows."""
    return lambda count: [make_row(number) for number in range(count)]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A real browser; tests that take it are marked `browser`."""
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("chromium was not found: `make browser` installs Debian's")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        opened = play.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield opened
        opened.close()
