import pytest

from prbench.metrics.accuracy import order_effects
from prbench.schema import Probe, Row, Verdict


def judged(item: str, chosen_first: str, rejected_first: str | None = None, user: str | None = None) -> Row:
    orders = [{"order": "chosen_first", "pick": chosen_first}]
    if rejected_first is not None:
        orders.append({"order": "rejected_first", "pick": rejected_first})
    return Row(
        id=item, probe=Probe.OWN, user_id=user or item, category="", verdict=Verdict.CHOSEN, orders=tuple(orders)
    )


def test_always_the_first_has_bias_one_and_no_consistency() -> None:
    effects = order_effects([judged(str(i), "first", "first") for i in range(10)])
    assert effects is not None
    assert effects.position_bias.value == 1.0
    assert effects.consistent is not None
    assert effects.flip_rate is not None
    assert (effects.consistent.value, effects.flip_rate.value) == (0.0, 1.0)


def test_always_the_second_has_bias_minus_one() -> None:
    effects = order_effects([judged(str(i), "second", "second") for i in range(4)])
    assert effects is not None
    assert effects.position_bias.value == -1.0


def test_same_response_in_both_orders_is_consistent_and_unbiased() -> None:
    effects = order_effects([judged("1", "first", "second"), judged("2", "second", "first")])
    assert effects is not None
    assert effects.position_bias.value == 0.0
    assert effects.consistent is not None
    assert effects.consistent.value == 1.0


def test_ties_and_unreadable_picks_by_hand() -> None:
    rows = [
        judged("1", "first", "second"),  # consistent
        judged("2", "first", "first"),  # flip
        judged("3", "tie", "tie"),  # consistent
        judged("4", "tie", "first"),  # neither
        judged("5", "first", "unreadable"),  # only its one pick counts
    ]
    effects = order_effects(rows)
    assert effects is not None
    assert effects.consistent is not None
    assert effects.flip_rate is not None
    assert (effects.consistent.value, effects.consistent.n) == (0.5, 4)
    assert effects.flip_rate.value == 0.25
    assert effects.consistent_correct is not None
    assert effects.consistent_correct.value == 0.25
    # Leans: +1 -1, +1 +1, 0 0, 0 +1, +1 over nine readable picks.
    assert (effects.position_bias.value, effects.position_bias.n) == (pytest.approx(4 / 9), 9)


def test_a_single_order_has_a_bias_but_no_consistency() -> None:
    effects = order_effects([judged("1", "first"), judged("2", "second"), judged("3", "first")])
    assert effects is not None
    assert effects.consistent is None
    assert effects.flip_rate is None
    assert effects.position_bias.value == pytest.approx(1 / 3)


def test_models_without_orders_have_no_order_effects() -> None:
    assert order_effects([Row(id="1", probe=Probe.OWN, user_id="a", category="", verdict=Verdict.CHOSEN)]) is None
    assert order_effects([judged("1", "unreadable", "unreadable")]) is None


def test_two_orders_of_one_pair_do_not_count_as_independent() -> None:
    # One public tool bootstraps them as separate items, which makes its interval too narrow.
    picks = ["first" if i % 3 else "second" for i in range(60)]
    one = order_effects([judged(f"{i:02}", pick) for i, pick in enumerate(picks)])
    two = order_effects([judged(f"{i:02}", pick, pick) for i, pick in enumerate(picks)])
    assert one is not None
    assert two is not None
    ends = [(each.position_bias.low, each.position_bias.high) for each in (one, two)]
    assert ends[0] == pytest.approx(ends[1], abs=0.02)
