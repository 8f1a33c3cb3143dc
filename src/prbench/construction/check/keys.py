"""What the checks remember of each pair: hashes, whatever the size of its texts."""

from collections import Counter
from collections.abc import Iterator, Sequence
from hashlib import sha256
from typing import NamedTuple

from prbench.data import ExampleStore
from prbench.data.index import hash64
from prbench.data.texts import fold
from prbench.schema import Example


class PairKey(NamedTuple):
    """One pair by the fingerprints of its texts."""

    user: str
    question: int
    chosen: int
    rejected: int

    @property
    def responses(self) -> tuple[int, int]:
        """Both responses in an order that does not tell the label."""
        return min(self.chosen, self.rejected), max(self.chosen, self.rejected)


def fingerprint(text: str) -> int:
    """Return 64 bits that stand for the folded text: texts that fold alike count as the same."""
    return hash64(fold(text))


def iterate_pairs(store: ExampleStore) -> Iterator[Example]:
    """Yield the examples of a store of pairs."""
    return (pair_at(store, position) for position in range(len(store)))


def pair_at(store: ExampleStore, position: int) -> Example:
    """Return the pair at a position."""
    example = store[position]
    assert isinstance(example, Example), "only pairs have two responses"
    return example


def pair_keys(store: ExampleStore) -> list[PairKey]:
    """Return the key of every pair, in order."""
    return [
        PairKey(
            user=example.user.id,
            question=fingerprint(example.question),
            chosen=fingerprint(example.chosen),
            rejected=fingerprint(example.rejected),
        )
        for example in iterate_pairs(store)
    ]


def sample_positions(keys: Sequence[PairKey], most: int, *, seed: int) -> list[int]:
    """Return at most `most` positions, drawn by a seeded rule; rows with the same two responses stay together.

    Rows drawn one by one would tear mirrored pairs apart, and with them the balance of the set.
    """
    if len(keys) <= most:
        return list(range(len(keys)))
    sizes = Counter(key.responses for key in keys)
    order = sorted(sizes, key=lambda both: sha256(f"{seed}:{both[0]}:{both[1]}".encode()).digest())
    taken, rows = set(), 0
    for both in order:
        if rows + sizes[both] <= most:
            taken.add(both)
            rows += sizes[both]
    return [position for position, key in enumerate(keys) if key.responses in taken]
