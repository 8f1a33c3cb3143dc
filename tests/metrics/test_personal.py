import numpy as np
import pytest

from prbench.errors import UsageError
from prbench.metrics.personal import (
    dose_response,
    impersonal_errors,
    majority_split,
    own_none_agreement,
    pair_probes,
    personalization_gain,
    profile_sensitivity,
    swap,
)
from prbench.schema import Probe, Row, Verdict

C, R, T, U = Verdict.CHOSEN, Verdict.REJECTED, Verdict.TIE, Verdict.UNREADABLE


def make_rows(probe: Probe, verdicts: dict[str, Verdict]) -> list[Row]:
    return [
        Row(id=item, probe=probe, user_id=f"user-{item}", category="art", verdict=verdict)
        for item, verdict in verdicts.items()
    ]


def scored(item: str, probe: Probe, margin: float | None) -> Row:
    verdict = U if margin is None else C if margin > 0 else R
    chosen = None if margin is None else 5 + margin
    return Row(
        id=item,
        probe=probe,
        user_id=item,
        category="",
        verdict=verdict,
        score_chosen=chosen,
        score_rejected=None if margin is None else 5.0,
    )


def test_gain_is_paired_on_items_that_have_both_probes() -> None:
    rows = make_rows(Probe.OWN, {"1": C, "2": C, "3": T, "4": U, "only": R})
    rows += make_rows(Probe.NONE, {"1": C, "2": R, "3": R, "4": C})
    gain = personalization_gain(rows)
    assert gain is not None
    assert (gain.value, gain.n) == ((2.5 - 2) / 4, 4)
    assert gain.low <= gain.value <= gain.high


def test_gain_of_a_model_that_ignores_the_user_is_exactly_zero() -> None:
    verdicts = {str(i): (C, R, T)[i % 3] for i in range(30)}
    gain = personalization_gain(make_rows(Probe.OWN, verdicts) + make_rows(Probe.NONE, verdicts))
    assert gain is not None
    assert (gain.value, gain.low, gain.high) == (0.0, 0.0, 0.0)


def test_gain_does_not_apply_without_both_probes() -> None:
    assert personalization_gain(make_rows(Probe.OWN, {"1": C})) is None
    assert personalization_gain([]) is None


def test_swap_gap_and_flip_rate_by_hand() -> None:
    rows = make_rows(Probe.OWN, {"1": C, "2": C, "3": C, "4": R, "5": T, "6": U})
    rows += make_rows(Probe.SWAP, {"1": C, "2": R, "3": T, "4": R, "5": T, "6": C})
    result = swap(rows)
    assert result is not None
    assert (result.own.value, result.swapped.value) == (pytest.approx(3.5 / 6), pytest.approx(3 / 6))
    assert result.gap.value == pytest.approx(0.5 / 6)
    # Items 2 and 3 change; item 6 was never readable under the own profile, so it cannot have changed.
    assert result.flip_rate is not None
    assert (result.flip_rate.value, result.flip_rate.n) == (2 / 5, 5)


def test_model_that_ignores_the_user_has_swap_gap_zero() -> None:
    verdicts = {str(i): (C, R)[i % 2] for i in range(20)}
    result = swap(make_rows(Probe.OWN, verdicts) + make_rows(Probe.SWAP, verdicts))
    assert result is not None
    assert (result.gap.value, result.gap.low, result.gap.high) == (0.0, 0.0, 0.0)
    assert result.flip_rate is not None
    assert result.flip_rate.value == 0.0


def test_swap_without_readable_pairs_has_no_flip_rate() -> None:
    result = swap(make_rows(Probe.OWN, {"1": C}) + make_rows(Probe.SWAP, {"1": U}))
    assert result is not None
    assert result.flip_rate is None
    assert swap(make_rows(Probe.OWN, {"1": C})) is None


def test_duplicate_ids_do_not_overwrite_each_other() -> None:
    rows = make_rows(Probe.OWN, {"1": C}) * 2 + make_rows(Probe.SWAP, {"1": C})
    with pytest.raises(UsageError, match="two rows for probe 'own'"):
        pair_probes(rows, Probe.OWN, Probe.SWAP)


def test_minority_is_known_from_the_rows_where_they_say_so() -> None:
    facts = {"1": True, "2": True, "3": False, "4": False, "5": None}
    verdicts = {"1": C, "2": R, "3": C, "4": C, "5": R}
    rows = [
        Row(id=i, probe=Probe.OWN, user_id=i, category="", verdict=verdicts[i], groups={"majority": facts[i]})
        for i in facts
    ]
    split = majority_split(rows)
    assert split is not None
    assert split.minority is not None
    assert split.majority is not None
    assert (split.minority.value, split.minority.n) == (1.0, 2)
    assert (split.majority.value, split.majority.n) == (0.5, 2)


def test_minority_facts_also_serve_a_run_without_context() -> None:
    row = Row(id="1", probe=Probe.NONE, user_id="a", category="", verdict=R, groups={"majority": False})
    split = majority_split([row], probe=Probe.NONE)
    assert split is not None
    assert split.minority is not None
    assert split.minority.value == 0.0
    assert split.majority is None


def test_minority_is_a_fact_about_people_and_never_guessed_from_errors() -> None:
    rows = make_rows(Probe.OWN, {"1": C, "2": R, "3": C}) + make_rows(Probe.NONE, {"1": R, "2": R, "3": C})
    assert majority_split(rows) is None


def test_impersonal_errors_are_read_as_own_minus_swap_on_the_pairs_that_none_gets_wrong() -> None:
    rows = make_rows(Probe.NONE, {"1": R, "2": R, "3": R, "4": R, "5": C, "6": T, "7": U})
    rows += make_rows(Probe.OWN, {"1": C, "2": C, "3": T, "4": R, "5": R, "6": R, "7": R})
    rows += make_rows(Probe.SWAP, {"1": R, "2": C, "3": R, "4": R, "5": C, "6": C, "7": C})
    found = impersonal_errors(rows)
    assert found is not None
    # Own: 1 + 1 + 1/2 + 0 of 4; swapped: 1 of 4.
    assert (found.own.value, found.swapped.value, found.gap.value, found.gap.n) == (0.625, 0.25, 0.375, 4)
    assert found.gap.low < 0.375 < found.gap.high
    assert impersonal_errors([row for row in rows if row.probe is not Probe.SWAP]) is None


def test_a_gap_is_certainly_zero_only_where_no_score_moved() -> None:
    own = [scored(str(i), Probe.OWN, 1.0) for i in range(20)]
    same = [scored(str(i), Probe.SWAP, 1.0) for i in range(20)]
    moved = [*same[:-1], scored("19", Probe.SWAP, 1.1)]
    still = swap([*own, *same])
    assert still is not None
    assert (still.gap.value, still.gap.low, still.gap.high) == (0.0, 0.0, 0.0)
    found = swap([*own, *moved])
    assert found is not None
    # No verdict changed, yet one may on other users: up to z^2 / (20 + z^2) of them.
    reach = np.tanh(1.959964**2 / (20 + 1.959964**2))
    assert (found.gap.value, found.gap.low, found.gap.high) == pytest.approx((0.0, -reach, reach))


def test_a_model_that_ignores_the_user_but_answers_by_chance_gets_an_interval_around_zero() -> None:
    generator = np.random.default_rng(0)
    rows = [
        Row(id=str(i), probe=probe, user_id=f"u{i // 4}", category="", verdict=(C, R)[int(generator.integers(2))])
        for i in range(400)
        for probe in Probe
    ]
    gap, errors = swap(rows), impersonal_errors(rows)
    assert gap is not None
    assert errors is not None
    assert gap.gap.low < 0 < gap.gap.high
    assert errors.own.value == pytest.approx(0.5, abs=0.1)  # up from 0, and yet it knows nobody
    assert errors.gap.low < 0 < errors.gap.high


def test_sensitivity_is_the_share_of_margins_that_move() -> None:
    own = {"1": 1.0, "2": -1.0, "3": 2.0, "4": 0.5, "5": None}
    other = {"1": 1.0, "2": -1.0 + 1e-6, "3": -2.0, "4": 0.9, "5": 1.0}
    rows = [scored(i, Probe.OWN, m) for i, m in own.items()] + [scored(i, Probe.SWAP, m) for i, m in other.items()]
    sensitivity = profile_sensitivity(rows)
    assert sensitivity is not None
    assert (sensitivity.value, sensitivity.n) == (0.5, 4)


def test_sensitivity_does_not_apply_to_judges_without_scores() -> None:
    assert profile_sensitivity(make_rows(Probe.OWN, {"1": C}) + make_rows(Probe.SWAP, {"1": R})) is None


def test_dose_response_buckets_by_pieces_seen() -> None:
    seen = [(0, R), (1, C), (2, R), (9, C), (10, C), (150, T)]
    rows = [
        Row(id=str(i), probe=Probe.OWN, user_id=str(i), category="", verdict=v, posts_used=k)
        for i, (k, v) in enumerate(seen)
    ]
    doses = [(dose.low, dose.high, dose.accuracy.value, dose.accuracy.n) for dose in dose_response(rows)]
    assert doses == [(0, 0, 0.0, 1), (1, 2, 0.5, 2), (5, 9, 1.0, 1), (10, 24, 1.0, 1), (100, None, 0.5, 1)]


def test_agreement_of_own_and_none_counts_items_readable_under_both() -> None:
    rows = make_rows(Probe.OWN, {"1": C, "2": C, "3": T, "4": U})
    rows += make_rows(Probe.NONE, {"1": C, "2": R, "3": T, "4": C})
    agreement = own_none_agreement(rows)
    assert agreement is not None
    assert (agreement.value, agreement.n) == (pytest.approx(2 / 3), 3)
    assert own_none_agreement(make_rows(Probe.OWN, {"1": C})) is None
