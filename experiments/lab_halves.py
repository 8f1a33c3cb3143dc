"""Test rows of the lab in two halves with people and questions of their own: one to predict from, one to predict."""

from collections.abc import Sequence
from hashlib import sha256

from prbench.lab import DEFAULT_SIZES, SEED, LabSize, make_split
from prbench.schema import Example

BENCHMARK, DOWNSTREAM = 1, 2


def rows_of_half(split: str, half: int) -> list[Example]:
    """Return rows about one half of the questions; each half has people of its own."""
    many = LabSize(users=4 * DEFAULT_SIZES[split].users, pairs=4 * DEFAULT_SIZES[split].pairs)
    rows = make_split(split, many, seed=SEED + 100 * half)
    return [row for row in rows if sha256(row.question.encode()).digest()[0] % 2 == half % 2]


def one_each(rows: Sequence[Example], most: int) -> list[Example]:
    """Return the first row of so many people."""
    first: dict[str, Example] = {}
    for row in rows:
        first.setdefault(row.user.id, row)
    return list(first.values())[:most]
