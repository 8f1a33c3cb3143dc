"""Who gets which item."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prbench.people.annotate import assignment as module
from prbench.people.annotate.assignment import assign, side_of_chosen, viewing_order
from prbench.people.annotate.records import ResponseSide

ITEMS = [f"item-{number}" for number in range(12)]


def loads(pairs: set[tuple[str, int]]) -> Counter[int]:
    return Counter(person for _, person in pairs)


def test_every_item_gets_its_people_and_every_person_as_many_items() -> None:
    pairs = assign(ITEMS, [1, 2, 3], 2, seed=0)
    assert Counter(item for item, _ in pairs) == dict.fromkeys(ITEMS, 2)
    assert loads(pairs) == {1: 8, 2: 8, 3: 8}


def test_the_same_seed_deals_the_same_and_another_one_does_not() -> None:
    assert assign(ITEMS, [1, 2, 3], 2, seed=0) == assign(ITEMS, [1, 2, 3], 2, seed=0)
    assert assign(ITEMS, [1, 2, 3], 2, seed=0) != assign(ITEMS, [1, 2, 3], 2, seed=1)


def test_an_item_waits_for_people_who_are_not_there_yet() -> None:
    alone = assign(ITEMS, [1], 2, seed=0)
    assert alone == {(item, 1) for item in ITEMS}
    assert assign(ITEMS, [1, 2], 2, seed=0, given=alone) == {(item, person) for item in ITEMS for person in (1, 2)}


def test_who_joins_later_takes_from_what_nobody_has_started() -> None:
    before = assign(ITEMS, [1, 2], 1, seed=0)
    started = {pair for pair in before if pair[1] == 1}
    after = assign(ITEMS, [1, 2, 3], 1, seed=0, given=before, started=started)
    assert started <= after
    assert loads(after) == {1: 6, 2: 3, 3: 3}
    assert len(before - after) == 3, "only what moved has changed"


def test_who_joins_five_thousand_items_is_dealt_with_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"item-{number}" for number in range(5000)]
    before = assign(names, [1, 2], 2, seed=0)
    thrown: list[object] = []
    coin = module._coin
    monkeypatch.setattr(module, "_coin", lambda *parts: thrown.append(parts) or coin(*parts))
    after = assign(names, [1, 2, 3], 2, seed=0, given=before)
    assert sorted(loads(after).values()) == [3333, 3333, 3334]
    # One coin per item for the order, one per item and giver, and one where an item that moved may go on to.
    assert len(thrown) <= 30_000, "looking at all items for each move would throw millions"


def test_who_is_not_listed_keeps_what_they_have_and_gets_nothing_new() -> None:
    before = {(item, 1) for item in ITEMS[:4]}
    after = assign(ITEMS, [2], 1, seed=0, given=before, started=before)
    assert loads(after) == {1: 4, 2: 8}


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 30), st.integers(1, 6), st.integers(1, 4), st.integers(0, 5))
def test_loads_differ_by_one_at_most(items: int, people: int, overlap: int, seed: int) -> None:
    names = [str(number) for number in range(items)]
    pairs = assign(names, range(people), overlap, seed=seed)
    counts = [loads(pairs)[person] for person in range(people)]
    assert max(counts) - min(counts) <= 1
    assert sum(counts) == items * min(overlap, people)


PAIRS = st.sets(st.tuples(st.sampled_from(ITEMS), st.integers(0, 4)))


@settings(max_examples=150, deadline=None)
@given(PAIRS, PAIRS, st.integers(1, 5), st.integers(1, 3), st.integers(0, 5))
def test_no_move_is_left_that_would_make_the_loads_more_even(
    given_before: set[tuple[str, int]], begun: set[tuple[str, int]], people: int, overlap: int, seed: int
) -> None:
    started = {pair for pair in given_before if pair in begun or pair[1] >= people}
    after = assign(ITEMS, range(people), overlap, seed=seed, given=given_before, started=started)
    assert started <= after
    counts, before = Counter(item for item, _ in after), Counter(item for item, _ in given_before)
    outside = Counter(item for item, person in given_before if person >= people)
    for item in ITEMS:
        assert counts[item] == max(before[item], min(overlap, people + outside[item])), "dealt up, never taken away"
    for item, giver in after - started:
        for taker in range(people):
            is_better = loads(after)[giver] - loads(after)[taker] >= 2
            assert not is_better or (item, taker) in after


@pytest.mark.parametrize("person", [1, 2])
def test_sides_are_about_even_and_people_see_items_in_their_own_order(person: int) -> None:
    names = [f"item-{number}" for number in range(1000)]
    left = sum(side_of_chosen(name, person, seed=0) is ResponseSide.LEFT for name in names)
    assert 437 <= left <= 563, "four standard deviations of a fair coin"
    assert viewing_order(names, person, seed=0) != viewing_order(names, 3 - person, seed=0)
