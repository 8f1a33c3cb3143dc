"""Sequences that begin alike, put together so that their common beginning is computed once.

A pack is one long sequence: the common prefixes of all its groups, then what is left of each input, its tail.
Attention lets a tail see its own prefix and itself; positions go on from the prefix in every tail. Nothing is padded.
An input that shares nothing is a group of its own, without prefix; such tails come last. A prefix that was computed
for an earlier pack, and kept (`kept`), takes no place in the sequence.
"""

from array import array
from bisect import bisect, insort
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise

import numpy as np
from torch import Tensor

from prbench.backends.shared_prefix.batching import Tokens


@dataclass(frozen=True, slots=True)
class Group:
    """Inputs with a common beginning. Every tail has at least one token."""

    prefix: int  # tokens
    members: tuple[Tokens, ...]
    kept: "Kept | None" = None  # the prefix, if it need not be computed

    @property
    def computed_prefix(self) -> int:
        """Return how many tokens of the prefix are computed."""
        return 0 if self.kept else self.prefix

    @property
    def tails(self) -> list[int]:
        """Return the lengths of the tails."""
        return [len(each.ids) - self.prefix for each in self.members]

    @property
    def tokens(self) -> int:
        """Return how many tokens are computed for the group."""
        return self.computed_prefix + sum(self.tails)


@dataclass(frozen=True, slots=True)
class GroupSpan:
    """Where a group lies in the packed sequence."""

    prefix_start: int
    prefix: int
    tail_start: int
    tails: tuple[int, ...]  # lengths
    kept: "Kept | None" = None  # the prefix is here, and not in the sequence

    @property
    def tail_starts(self) -> list[int]:
        """Return where every tail begins."""
        starts, place = [], self.tail_start
        for length in self.tails:
            starts.append(place)
            place += length
        return starts


@dataclass(frozen=True, slots=True)
class Places:
    """Where the tokens of one input lie in the packed sequence."""

    prefix_start: int
    prefix: int
    tail_start: int
    tail: int  # length
    is_kept: bool = False  # the prefix is not in the sequence

    @property
    def last(self) -> int:
        """Return the place of the last token."""
        return self.tail_start + self.tail - 1

    def of(self, token: int) -> int:
        """Return the place of one token of the input."""
        if token >= self.prefix:
            return self.tail_start + token - self.prefix
        assert not self.is_kept, "what was kept of a prefix are keys and values, not its states"
        return self.prefix_start + token


class Pack:
    """Groups that go through the model together: first those with a prefix to compute, then those with a kept one."""

    def __init__(self, groups: Sequence[Group]) -> None:
        self.groups = sorted(groups, key=lambda group: (group.computed_prefix == 0, group.kept is None))
        self.members = [each for group in self.groups for each in group.members]
        self.tokens = sum(group.tokens for group in self.groups)
        self.spans: list[GroupSpan] = []
        prefix_start, tail_start = 0, sum(group.computed_prefix for group in self.groups)
        for group in self.groups:
            self.spans.append(GroupSpan(prefix_start, group.prefix, tail_start, tuple(group.tails), group.kept))
            prefix_start += group.computed_prefix
            tail_start += sum(group.tails)

    def ids(self) -> list[int]:
        """Return the token ids of the packed sequence."""
        prefixes = (group.members[0].ids[: group.computed_prefix] for group in self.groups)
        tails = (each.ids[group.prefix :] for group in self.groups for each in group.members)
        return list(chain.from_iterable(chain(prefixes, tails)))

    def positions(self) -> list[int]:
        """Return the place of every token in its own input."""
        prefixes = (range(group.computed_prefix) for group in self.groups)
        tails = (range(group.prefix, len(each.ids)) for group in self.groups for each in group.members)
        return list(chain.from_iterable(chain(prefixes, tails)))

    def places(self) -> list[Places]:
        """Return for every member where its tokens are in the packed sequence."""
        return [
            Places(span.prefix_start, span.prefix, start, length, span.kept is not None)
            for span in self.spans
            for start, length in zip(span.tail_starts, span.tails, strict=True)
        ]


def group_by_prefix(sequences: Sequence[Tokens]) -> list[Group]:
    """Group distinct sequences to save tokens; the groups do not depend on the order of the inputs.

    Sorted, sequences that begin alike are neighbors. Neighbors are joined from the longest common beginning to the
    shortest; where a join would save fewer tokens than its two halves do apart, the halves are kept.
    """
    # As bytes, long sequences that begin alike are compared in no time; any fixed order will do.
    keyed = sorted((as_bytes(each.ids), each.prompt, each.types, each) for each in set(sequences))
    members = [each for *_, each in keyed]
    # A tail must keep a token, so a prefix ends before the last one.
    shared = [
        min(common_tokens(one, other), len(first.ids) - 1, len(second.ids) - 1)
        for (one, *_, first), (other, *_, second) in pairwise(keyed)
    ]
    # The best grouping found of a stretch, by its start: its end, tokens saved, and (start, end, prefix) of each part.
    best: dict[int, tuple[int, int, tuple[tuple[int, int, int], ...]]] = {
        index: (index + 1, 0, ((index, index + 1, 0),)) for index in range(len(members))
    }
    first_of = list(range(len(members)))  # by the last of a stretch
    for border in sorted(range(len(shared)), key=lambda border: (-shared[border], border)):
        start, prefix = first_of[border], shared[border]
        _, left, left_parts = best.pop(start)
        end, right, right_parts = best.pop(border + 1)
        together = (end - start - 1) * prefix
        if together > left + right:
            best[start] = (end, together, ((start, end, prefix),))
        else:
            best[start] = (end, left + right, left_parts + right_parts)
        first_of[end - 1] = start
    parts = [part for start in sorted(best) for part in best[start][2]]
    return [Group(prefix, tuple(members[start:end])) for start, end, prefix in parts]


def as_bytes(ids: Sequence[int]) -> bytes:
    """Return tokens as four bytes each."""
    return array("I", ids).tobytes()


def common_tokens(one: bytes, other: bytes) -> int:
    """Return how many leading tokens two sequences of four-byte tokens share."""
    shorter = min(len(one), len(other)) // 4
    differ = np.frombuffer(one, np.uint32, shorter) != np.frombuffer(other, np.uint32, shorter)
    return int(differ.argmax()) if differ.any() else shorter


def pack_groups(groups: Iterable[Group], budget: int, most: int | None = None) -> Iterator[Pack]:
    """Fill packs, longest groups first, of at most `most` inputs and `budget` tokens; one input may exceed them."""
    parts = [part for group in groups for part in _split(group, budget, most)]
    parts.sort(key=lambda part: -part.tokens)
    packs: list[list[Group]] = []
    room: list[tuple[int, int]] = []  # tokens and inputs
    for part in parts:
        members = len(part.members)
        place = next((at for at, free in enumerate(room) if free[0] >= part.tokens and free[1] >= members), len(packs))
        if place == len(packs):
            packs.append([])
            room.append((budget, most or len(parts) * budget))
        packs[place].append(part)
        room[place] = (room[place][0] - part.tokens, room[place][1] - members)
    return map(Pack, packs)


def _split(group: Group, budget: int, most: int | None) -> Iterator[Group]:
    """Divide a group that is too large; each part has the prefix again."""
    parts: list[list[Tokens]] = [[]]
    size = group.computed_prefix
    for each, tail in zip(group.members, group.tails, strict=True):
        if parts[-1] and (size + tail > budget or len(parts[-1]) == most):
            parts.append([])
            size = group.computed_prefix
        parts[-1].append(each)
        size += tail
    for part in parts:  # a single input has nobody to share a prefix with, unless it is kept
        yield Group(group.prefix if len(part) > 1 or group.kept else 0, tuple(part), group.kept)


FEWEST = 32  # tokens that are worth keeping


@dataclass(frozen=True, slots=True)
class Kept:
    """The first tokens of a sequence as a decoder remembers them."""

    tokens: int
    layers: Sequence[tuple[Tensor, Tensor]]  # keys and values: (heads, at least `tokens`, size)

    @property
    def bytes(self) -> int:
        """Return the memory that the layers take."""
        return sum(each.numel() * each.element_size() for layer in self.layers for each in layer)

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
        new = Kept(tokens, layers)
        if key in self._entries or new.bytes > self._limit:
            return
        self._entries[key] = new
        insort(self._sorted, key)
        self.bytes += new.bytes
        while self.bytes > self._limit:
            oldest, kept = self._entries.popitem(last=False)
            del self._sorted[bisect(self._sorted, oldest) - 1]
            self.bytes -= kept.bytes

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
