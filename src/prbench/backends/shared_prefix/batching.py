"""Token sequences in batches of like length, each distinct sequence computed once."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Tokens:
    """One input as a model reads it."""

    ids: tuple[int, ...]
    types: tuple[int, ...] = ()  # segment ids, for encoders that tell question and response apart
    prompt: int = 0  # how many leading tokens are not of the response


def common_prefix(one: Sequence[int], other: Sequence[int]) -> int:
    """Return how many leading tokens two sequences share."""
    shorter = min(len(one), len(other))
    if one[:shorter] == other[:shorter]:
        return shorter
    low, high = 0, shorter  # equal up to low, different before high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if one[:middle] == other[:middle] else (low, middle)
    return low


@dataclass(slots=True)
class TokenCount:
    """How many tokens were asked for, and how many a model really read; padding is not counted."""

    total: int = 0
    computed: int = 0

    def as_mapping(self) -> dict[str, int]:
        """Return both counts, for the record of a run's time."""
        return {"total": self.total, "computed": self.computed}


Forward = Callable[[Sequence[Tokens]], Sequence[float]]


def compute_each_once(
    sequences: Sequence[Tokens], batch_size: int, forward: Forward, count: TokenCount
) -> list[float | MemoryError]:
    """Return `forward`'s number for every sequence, in order.

    Where the memory does not hold a batch, it is halved until it does; a single sequence that is still too large comes
    back as its error, and the others keep their numbers.
    """
    found: dict[Tokens, float | MemoryError] = {}
    for batch in by_length(sequences, batch_size):
        found.update(zip(batch, _forward(batch, forward), strict=True))
        count.computed += sum(len(each.ids) for each in batch)
    count.total += sum(len(each.ids) for each in sequences)
    return [found[each] for each in sequences]


def by_length(sequences: Sequence[Tokens], batch_size: int) -> Iterator[list[Tokens]]:
    """Give each distinct sequence once, longest first, so that padding is small and a lack of memory shows at once."""
    # The ids break ties: the batches are the same whatever the order of the inputs.
    distinct = sorted(set(sequences), key=lambda each: (-len(each.ids), each.ids, each.types, each.prompt))
    for start in range(0, len(distinct), batch_size):
        yield distinct[start : start + batch_size]


def _forward(batch: list[Tokens], forward: Forward) -> list[float | MemoryError]:
    try:
        return list(forward(batch))
    except MemoryError as error:
        if len(batch) == 1:
            return [error]
    half = len(batch) // 2
    return _forward(batch[:half], forward) + _forward(batch[half:], forward)


ON_CPU = "DefaultCPUAllocator: "  # how PyTorch's message begins; the type of the error is no help there


@contextmanager
def memory_errors() -> Iterator[None]:
    """Turn PyTorch's errors about memory into `MemoryError`."""
    import torch

    try:
        yield
    except torch.OutOfMemoryError as error:
        raise MemoryError(f"out of memory: {error}") from error
    except RuntimeError as error:
        if ON_CPU not in str(error):
            raise
        raise MemoryError(f"out of memory: {error}") from error


CHANGING = ("dynamic", "longrope")  # as transformers names them


def rope_border(config: Any) -> int | None:
    """Return the length beyond which one text changes the positions of all texts in its call; `None`: none does."""
    found = getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None) or {}
    # Some models have several kinds of layers, each with settings of its own.
    ropes = [each for each in found.values() if isinstance(each, Mapping)] or [found]
    borders = [
        rope.get("original_max_position_embeddings")
        or getattr(config, "original_max_position_embeddings", None)
        or config.max_position_embeddings
        for rope in ropes
        if rope.get("rope_type", rope.get("type")) in CHANGING
    ]
    return min(borders, default=None)
