"""Who gets which item: every item its planned number of people, every person about as many items. No I/O."""

import heapq
from collections import Counter, defaultdict
from collections.abc import Collection, Sequence
from collections.abc import Set as AbstractSet
from hashlib import sha256

from prbench.people.annotate.records import ResponseSide

Pair = tuple[str, int]  # an item and a person


def assign(
    items: Sequence[str],
    people: Collection[int],
    overlap: int,
    *,
    seed: int,
    given: AbstractSet[Pair] = frozenset(),
    started: AbstractSet[Pair] = frozenset(),
) -> set[Pair]:
    """Return all pairs afterwards: what is `started` stays, and of what is `given` as little as possible moves.

    An item waits for more people where there are fewer than `overlap`; people who are not listed get nothing new.
    """
    pairs = set(given) | set(started)
    holders: dict[str, set[int]] = {item: set() for item in items}
    for item, person in pairs:
        holders[item].add(person)
    load = Counter(dict.fromkeys(people, 0))
    load.update(person for _, person in pairs if person in load)
    for item in sorted(items, key=lambda item: _coin(seed, item)):
        for _ in range(overlap - len(holders[item])):
            free = [person for person in people if person not in holders[item]]
            if not free:
                break
            taker = min(free, key=lambda person: (load[person], _coin(seed, item, person)))
            holders[item].add(taker)
            load[taker] += 1
    assigned = {(item, person) for item, several in holders.items() for person in several}
    # Items that nobody has started move from the busiest to the least busy, until they differ by one at most.
    offers = _Offers(assigned, started, seed=seed)
    while move := _next_move(offers, load):
        item, giver, taker = move
        offers.move(item, giver, taker)
        load[giver] -= 1
        load[taker] += 1
    return assigned


def viewing_order(items: Collection[str], person: int, *, seed: int) -> list[str]:
    """Return the items in this person's own order, so that no two people tire at the same ones."""
    return sorted(items, key=lambda item: _coin(seed, "order", item, person))


def side_of_chosen(item: str, person: int | str, *, seed: int) -> ResponseSide:
    """One fixed coin per item and person."""
    return ResponseSide.LEFT if _coin(seed, "side", item, person)[0] % 2 == 0 else ResponseSide.RIGHT


def _next_move(offers: "_Offers", load: Counter[int]) -> tuple[str, int, int] | None:
    by_load = sorted(load, key=lambda person: (load[person], person))
    for giver in reversed(by_load):
        for taker in by_load:
            if load[giver] - load[taker] < 2:
                break
            if (item := offers.best(giver, taker)) is not None:
                return item, giver, taker
    return None


class _Offers:
    """What each person could hand to each other: a heap per two people, so that no move looks at all items again."""

    def __init__(self, assigned: set[Pair], started: AbstractSet[Pair], *, seed: int) -> None:
        self._assigned = assigned
        self._seed = seed
        self._movable: defaultdict[int, set[str]] = defaultdict(set)
        for item, person in assigned - started:
            self._movable[person].add(item)
        self._heaps: dict[tuple[int, int], list[tuple[bytes, str]]] = {}

    def best(self, giver: int, taker: int) -> str | None:
        """Return the item with the smallest coin that `giver` may hand to `taker`, who does not have it."""
        if (giver, taker) not in self._heaps:
            offered = [(_coin(self._seed, item, taker), item) for item in self._movable[giver]]
            heapq.heapify(offered)
            self._heaps[giver, taker] = offered
        heap = self._heaps[giver, taker]
        while heap:
            item = heap[0][1]
            if item in self._movable[giver] and (item, taker) not in self._assigned:
                return item
            heapq.heappop(heap)
        return None

    def move(self, item: str, giver: int, taker: int) -> None:
        """Hand an item over, and note whom it can go to from there, and who may now give it to `giver`."""
        self._assigned.remove((item, giver))
        self._assigned.add((item, taker))
        self._movable[giver].remove(item)
        self._movable[taker].add(item)
        for (one, other), heap in self._heaps.items():
            if one == taker or other == giver:
                heapq.heappush(heap, (_coin(self._seed, item, other), item))


def _coin(*parts: object) -> bytes:
    return sha256("\x1f".join(map(str, parts)).encode()).digest()
