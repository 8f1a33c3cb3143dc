"""Inputs that begin alike are put together, and nothing is lost on the way."""

import random

import pytest

from prbench.backends.shared_prefix.batching import Tokens
from prbench.backends.shared_prefix.prefixes import Group, Pack, group_by_prefix, pack_groups


def tokens(*ids: int) -> Tokens:
    return Tokens(ids=ids)


ONE = [tokens(1, 2, 3, 4, answer) for answer in (7, 8, 9)]
OTHER = [tokens(1, 5, 5, answer, 6) for answer in (2, 3)]


def test_candidates_of_one_prompt_form_a_group_whatever_their_order() -> None:
    groups = group_by_prefix([ONE[2], OTHER[0], ONE[0], OTHER[1], ONE[1], ONE[0]])
    assert groups == [Group(4, tuple(ONE)), Group(3, tuple(OTHER))]
    # 5 + 5 + 5 + 5 + 5 tokens are asked for; 4 + 3 and 3 + 2 * 2 are computed.
    assert [group.tokens for group in groups] == [7, 7]


def test_a_common_first_token_does_not_break_up_longer_prefixes() -> None:
    assert [group.prefix for group in group_by_prefix([*ONE, *OTHER, tokens(1, 9)])] == [4, 3, 0]


def test_every_tail_keeps_a_token_where_one_input_begins_another() -> None:
    (group,) = group_by_prefix([tokens(1, 2, 3), tokens(1, 2, 3, 4)])
    assert (group.prefix, group.tails) == (2, [1, 2])


def test_a_pack_has_all_prefixes_then_all_tails() -> None:
    pack = Pack([Group(0, (tokens(9, 9),)), *group_by_prefix([*ONE, *OTHER])])
    assert pack.ids() == [1, 2, 3, 4, 1, 5, 5, 7, 8, 9, 2, 6, 3, 6, 9, 9]
    assert pack.positions() == [0, 1, 2, 3, 0, 1, 2, 4, 4, 4, 3, 4, 3, 4, 0, 1]
    assert [places.last for places in pack.places()] == [7, 8, 9, 11, 13, 15]
    assert [pack.places()[3].of(token) for token in range(5)] == [4, 5, 6, 10, 11]


@pytest.mark.parametrize("seed", range(20))
def test_every_input_can_be_read_back_from_its_pack(seed: int) -> None:
    dice = random.Random(seed)
    inputs = [
        tokens(*(dice.choice((0, 0, 0, 1)) for _ in range(dice.randint(1, 12)))) for _ in range(dice.randint(1, 30))
    ]
    seen = []
    for pack in pack_groups(group_by_prefix(inputs), budget=30, most=5):
        assert len(pack.members) <= 5
        assert pack.tokens <= 30 or len(pack.members) == 1
        ids, positions = pack.ids(), pack.positions()
        assert len(ids) == len(positions) == pack.tokens
        for each, places in zip(pack.members, pack.places(), strict=True):
            assert tuple(ids[places.of(token)] for token in range(len(each.ids))) == each.ids
            assert [positions[places.of(token)] for token in range(len(each.ids))] == list(range(len(each.ids)))
            assert places.of(len(each.ids) - 1) == places.last
        seen += pack.members
    assert sorted(each.ids for each in seen) == sorted({each.ids for each in inputs})
