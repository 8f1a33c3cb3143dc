"""Keys and values of prompts that were computed before, for candidates of one prompt that come one by one."""

from bisect import bisect, insort
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torch import Tensor

from prbench.backends.shared_prefix.batching import Tokens
from prbench.backends.shared_prefix.prefixes import Group, Pack, as_bytes, common_tokens

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
    """The prompts that were used last, as many as the bytes allow.

    `read_at` says at which token an input's number is read. That token, and what follows, is always computed: of a
    kept prefix there are keys and values, and no states.
    """

    def __init__(self, limit: int, read_at: Callable[[Tokens], int], *, fewest: int = FEWEST) -> None:
        self._limit = limit
        self._read_at = read_at
        self._fewest = fewest
        self._entries: OrderedDict[bytes, Kept] = OrderedDict()  # by token ids; the one used last comes last
        self._sorted: list[bytes] = []  # the same ids: what begins most alike stands side by side
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._entries)

    def use(self, group: Group) -> Group:
        """Return the group behind a kept prefix, if that saves tokens."""
        begun = as_bytes(group.members[0].ids[: self._shared(group)])
        place = bisect(self._sorted, begun)
        near = self._sorted[max(0, place - 1) : place + 1]
        found = max(near, key=lambda key: common_tokens(key, begun), default=b"")
        tokens = common_tokens(found, begun)
        if tokens < self._fewest or sum(len(each.ids) - tokens for each in group.members) >= group.tokens:
            return group
        self._entries.move_to_end(found)
        return Group(tokens, group.members, Kept(tokens, self._entries[found].layers))

    def wanted(self, pack: Pack) -> dict[int, int]:
        """Return which groups of the pack to keep the beginning of, and how many tokens: the prompt, as a rule."""
        wanted = {}
        for number, group in enumerate(pack.groups):
            tokens = min(self._shared(group), group.members[0].prompt or len(group.members[0].ids))
            already = group.prefix if group.kept else 0
            if tokens >= self._fewest and tokens >= already + self._fewest:
                wanted[number] = tokens
        return wanted

    def add(self, group: Group, tokens: int, layers: Sequence[tuple[Tensor, Tensor]]) -> None:
        """Keep a beginning, and let go of those that were not used for longest."""
        key = as_bytes(group.members[0].ids[:tokens])
        size = _size(layers)
        if key in self._entries or size > self._limit:
            return
        self._entries[key] = Kept(tokens, layers)
        insort(self._sorted, key)
        self.bytes += size
        while self.bytes > self._limit:
            oldest, kept = self._entries.popitem(last=False)
            del self._sorted[bisect(self._sorted, oldest) - 1]
            self.bytes -= _size(kept.layers)

    def shrink(self) -> None:
        """Give the memory back, and take half as much from now on."""
        self._entries.clear()
        self._sorted.clear()
        self._limit //= 2
        self.bytes = 0

    def _shared(self, group: Group) -> int:
        """Return how many leading tokens all members have in common, before any of them is read."""
        first, *others = (as_bytes(each.ids) for each in group.members)
        return min([self._read_at(each) for each in group.members] + [common_tokens(first, other) for other in others])


def _size(layers: Sequence[tuple[Tensor, Tensor]]) -> int:
    return sum(each.numel() * each.element_size() for layer in layers for each in layer)
