"""Who gets which item: every item its planned number of people, every person about as many items. No I/O."""

from collections import Counter
from collections.abc import Collection, Sequence
from collections.abc import Set as AbstractSet
from hashlib import sha256

from prbench.annotate.records import Side

Pair = tuple[str, int]  # an item and a person


def deal(
    items: Sequence[str],
    people: Collection[int],
    overlap: int,
    *,
    seed: int,
    given: AbstractSet[Pair] = frozenset(),
    started: AbstractSet[Pair] = frozenset(),
) -> set[Pair]:
    """Return all pairs after dealing: what is `started` stays, and of what is `given` as little as possible moves.

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
    dealt = {(item, person) for item, several in holders.items() for person in several}
    _level(dealt, load, started, seed=seed)
    return dealt


def viewing_order(items: Collection[str], person: int, *, seed: int) -> list[str]:
    """Return the items in this person's own order, so that no two people tire at the same ones."""
    return sorted(items, key=lambda item: _coin(seed, "order", item, person))


def side_of_chosen(item: str, person: int | str, *, seed: int) -> Side:
    """One fixed coin per item and person."""
    return Side.LEFT if _coin(seed, "side", item, person)[0] % 2 == 0 else Side.RIGHT


def _level(dealt: set[Pair], load: Counter[int], started: AbstractSet[Pair], *, seed: int) -> None:
    """Move items that nobody has started from the busiest to the least busy, until they differ by one at most."""
    while move := _next_move(dealt, load, started, seed):
        item, giver, taker = move
        dealt.remove((item, giver))
        dealt.add((item, taker))
        load[giver] -= 1
        load[taker] += 1


def _next_move(
    dealt: set[Pair], load: Counter[int], started: AbstractSet[Pair], seed: int
) -> tuple[str, int, int] | None:
    by_load = sorted(load, key=lambda person: (load[person], person))
    movable: dict[int, list[str]] = {}
    for item, person in dealt - started:
        movable.setdefault(person, []).append(item)
    for giver in reversed(by_load):
        for taker in by_load:
            if load[giver] - load[taker] < 2:
                break
            offered = [item for item in movable.get(giver, []) if (item, taker) not in dealt]
            if offered:
                return min(offered, key=lambda item: _coin(seed, item, taker)), giver, taker
    return None


def _coin(*parts: object) -> bytes:
    return sha256("\x1f".join(map(str, parts)).encode()).digest()
