"""Rotary positions that depend on how long the longest text of a call is."""

from collections.abc import Iterator, Mapping
from typing import Any

CHANGING = ("dynamic", "longrope")  # as transformers names them


def rope_border(config: Any) -> int | None:
    """Return the length beyond which one text changes the positions of all texts in its call; `None`: none does."""
    borders = [
        rope.get("original_max_position_embeddings")
        or getattr(config, "original_max_position_embeddings", None)
        or config.max_position_embeddings
        for rope in _ropes(config)
        if rope.get("rope_type", rope.get("type")) in CHANGING
    ]
    return min(borders) if borders else None


def _ropes(config: Any) -> Iterator[Mapping[str, Any]]:
    """Yield the settings of all layers; some models have several kinds of layers, each with its own."""
    found = getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None) or {}
    nested = [each for each in found.values() if isinstance(each, Mapping)]
    yield from nested or [found]
