"""Keys and values of prefixes that were computed before, for candidates of one prompt that come one by one."""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from prbench.packing.prefixes import Group, Pack, as_bytes, common_tokens

FEWEST = 32  # tokens that are worth keeping


@dataclass(frozen=True, slots=True)
class Kept:
    """The first tokens of a sequence as a decoder remembers them."""

    tokens: int
    layers: Sequence[tuple[Tensor, Tensor]]  # keys and values: (heads, at least `tokens`, size)

    def layer(self, number: int) -> tuple[Tensor, Tensor]:
        """Return one layer's keys and values."""
        keys, values = self.layers[number]
        return keys[:, : self.tokens], values[:, : self.tokens]


class KeptPrefixes:
    """The prefixes that were used last, as many as the bytes allow."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._entries: OrderedDict[bytes, Kept] = OrderedDict()  # by token ids; the one used last comes last
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._entries)

    def use(self, group: Group) -> Group:
        """Return the group behind a kept prefix, if that saves tokens."""
        keys = [as_bytes(each.ids) for each in group.members]
        # The prompt's last token is computed in any case: a head reads it where the response is padding alone.
        most = min((each.prompt or len(each.ids)) - 1 for each in group.members)
        best, found = 0, b""
        for entry in self._entries:
            shared = min(most, *(common_tokens(entry, key) for key in keys))
            if shared > best:
                best, found = shared, entry
        if best < FEWEST or sum(len(each.ids) - best for each in group.members) >= group.tokens:
            return group
        self._entries.move_to_end(found)
        return Group(best, group.members, Kept(best, self._entries[found].layers))

    def wanted(self, pack: Pack) -> dict[int, int]:
        """Return which groups of the pack to keep the beginning of, and how many tokens of it.

        Of a single input that is all but its response, or its last token where it is not known which is the response.
        """
        wanted = {}
        for number, group in enumerate(pack.groups):
            single = group.members[0]
            tokens = group.prefix or (single.prompt or len(single.ids)) - 1
            if not group.kept and tokens >= FEWEST:
                wanted[number] = tokens
        return wanted

    def add(self, group: Group, tokens: int, layers: Sequence[tuple[Tensor, Tensor]]) -> None:
        """Keep a beginning, and let go of those that were not used for longest."""
        key = as_bytes(group.members[0].ids[:tokens])
        size = sum(_size(each) for layer in layers for each in layer)
        if key in self._entries or size > self._limit:
            return
        self._entries[key] = Kept(tokens, layers)
        self.bytes += size
        while self.bytes > self._limit:
            _, oldest = self._entries.popitem(last=False)
            self.bytes -= sum(_size(each) for layer in oldest.layers for each in layer)

    def clear(self) -> None:
        """Give the memory back."""
        self._entries.clear()
        self.bytes = 0


def _size(states: Any) -> int:
    return int(states.numel() * states.element_size())
