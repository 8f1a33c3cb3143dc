"""Texts as rows of one table of embeddings, so that a batch is a gather of numbers."""

from collections.abc import Sequence

import torch
from torch import Tensor

from prbench.backends.encoders import Encoder


class TextTable:
    """Collects texts while rows are read; `vectors` embeds each of them once."""

    def __init__(self) -> None:
        self._place: dict[str, int] = {}

    def places(self, groups: Sequence[Sequence[str]]) -> tuple[Tensor, Tensor]:
        """Return where the texts of each group stand, and a mask that is 0 for padding: both (groups, most texts)."""
        most = max(map(len, groups), default=0) or 1
        places = torch.zeros(len(groups), most, dtype=torch.long)
        mask = torch.zeros(len(groups), most)
        for row, group in enumerate(groups):
            for column, text in enumerate(group):
                places[row, column] = self._place.setdefault(text, len(self._place))
                mask[row, column] = 1.0
        return places, mask

    def vectors(self, encoder: Encoder) -> Tensor:
        """Return the embedding of every text, in the order of the places; without texts one that padding points to."""
        return torch.from_numpy(encoder.encode(list(self._place) or [""]))
