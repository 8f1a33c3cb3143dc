"""Pairs in which everything is different, so that a test plants exactly one defect."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from prbench.data import ExampleStore, open_examples

Row = dict[str, Any]


def make_pair(number: int, **changes: Any) -> Row:
    """One pair of its own user; no two rows share a word that matters."""
    row: Row = {
        "id": f"item-{number}",
        "user_id": f"user-{number}",
        "question": f"What about question{number}?",
        "profile": [{"id": f"post-{number}", "text": f"I wrote post{number}."}],
        "chosen": f"Take alpha{number} and beta{number} together.",
        "rejected": f"Take gamma{number} and zeta{number} together.",
    }
    return row | changes


@pytest.fixture
def pair() -> Callable[..., Row]:
    """Make a pair of that number, with changes."""
    return make_pair


@pytest.fixture
def open_rows() -> Iterator[Callable[[Iterable[Row]], ExampleStore]]:
    """Open rows as a store that is closed after the test."""
    with ExitStack() as stack:
        yield lambda rows: stack.enter_context(open_examples(rows))
