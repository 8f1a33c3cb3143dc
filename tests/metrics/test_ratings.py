import math

import numpy as np
import pytest

from prbench.errors import UsageError
from prbench.metrics.ratings import alignments, rated_contrast, rated_summary
from prbench.schema import Probe, RatedRow

GRID = [0.0, 0.25, 0.5, 0.75, 1.0]


def rated(user: str, place: int, rating: float, score: float | None, probe: Probe = Probe.OWN) -> RatedRow:
    return RatedRow(id=f"{user}-{place}", probe=probe, user_id=user, category="", rating=rating, score=score)


def population(score, users: int = 10, probe: Probe = Probe.OWN) -> list[RatedRow]:  # type: ignore[no-untyped-def]
    """Users who each use the whole scale; `score(user, rating)` is the model."""
    return [
        rated(f"u{user}", place, rating, score(user, rating), probe)
        for user in range(users)
        for place, rating in enumerate(GRID)
    ]


def test_any_monotone_scale_is_mapped_to_perfect_alignment() -> None:
    summary = rated_summary(population(lambda user, rating: math.exp(3 * rating) - 7))
    assert summary.alignment is not None
    assert summary.alignment.value == pytest.approx(1.0)
    assert summary.spearman is not None
    assert summary.kendall is not None
    assert (summary.spearman.value, summary.kendall.value) == (pytest.approx(1.0), pytest.approx(1.0))
    assert (summary.users, summary.users_left_out, summary.coverage.value) == (10, 0, 1.0)


def test_a_model_that_knows_nothing_stands_at_the_floor() -> None:
    summary = rated_summary(population(lambda user, rating: 1.0))
    assert summary.alignment is not None
    assert summary.floor is not None
    # Everybody is given 0.5: the mean distance is (0.5 + 0.25 + 0 + 0.25 + 0.5) / 5.
    assert summary.alignment.value == pytest.approx(0.7)
    assert summary.floor.value == pytest.approx(0.7)


def test_constant_scores_are_a_correlation_of_zero() -> None:
    summary = rated_summary(population(lambda user, rating: 1.0))
    assert summary.spearman is not None
    assert summary.spearman.value == 0.0
    assert summary.users_left_out == 0


def test_the_map_is_never_fitted_on_the_user_it_serves() -> None:
    # Both users rate against each other: fitted on the other one, the map sends each score to the wrong end.
    rows = [rated("a", 0, 0.0, 1.0), rated("a", 1, 0.0, 2.0), rated("b", 0, 1.0, 1.0), rated("b", 1, 1.0, 2.0)]
    aligned = alignments(rows)
    assert aligned is not None
    assert aligned.tolist() == [0.0, 0.0, 0.0, 0.0]


def test_the_map_cannot_turn_the_order_round() -> None:
    summary = rated_summary(population(lambda user, rating: -rating))
    assert summary.alignment is not None
    assert summary.alignment.value == pytest.approx(0.7)  # a decreasing model is flattened to the mean
    assert summary.spearman is not None
    assert summary.spearman.value == pytest.approx(-1.0)


def test_unreadable_scores_earn_nothing_in_the_headline() -> None:
    rows = population(lambda user, rating: None if user == 0 else rating)
    summary = rated_summary(rows)
    assert summary.alignment is not None
    assert summary.alignment_readable is not None
    assert (summary.alignment.value, summary.alignment.n) == (pytest.approx(0.9), 50)
    assert (summary.alignment_readable.value, summary.alignment_readable.n) == (pytest.approx(1.0), 45)
    assert summary.coverage.value == pytest.approx(0.9)
    assert summary.users_left_out == 1


def test_users_weigh_the_same_however_many_ratings_they_gave() -> None:
    many = [rated("a", place, place / 9, place / 9) for place in range(10)]
    few = [rated("b", place, rating, -rating) for place, rating in enumerate([0.0, 0.5, 1.0])]
    summary = rated_summary(many + few)
    assert summary.spearman is not None
    assert (summary.spearman.value, summary.spearman.n) == (pytest.approx(0.0), 13)


def test_users_who_cannot_be_ranked_are_left_out_and_counted() -> None:
    rows = population(lambda user, rating: rating, users=2)
    rows += [rated("two", 0, 0.0, 1.0), rated("two", 1, 1.0, 0.0)]
    rows += [rated("flat", place, 0.5, float(place)) for place in range(4)]
    summary = rated_summary(rows)
    assert (summary.users, summary.users_left_out) == (4, 2)
    assert summary.spearman is not None
    assert summary.spearman.n == 10


def test_rank_correlations_by_hand() -> None:
    # Ranks 1 2 3 against 1 3 2: rho = 1 - 6 * 2 / (3 * 8) = 0.5, tau = (2 - 1) / 3.
    rows = [rated(user, place, place / 2, [1.0, 3.0, 2.0][place]) for user in "ab" for place in range(3)]
    summary = rated_summary(rows)
    assert summary.spearman is not None
    assert summary.kendall is not None
    assert (summary.spearman.value, summary.kendall.value) == (pytest.approx(0.5), pytest.approx(1 / 3))


def test_one_user_has_no_alignment_and_a_wide_interval() -> None:
    summary = rated_summary([rated("a", place, rating, rating) for place, rating in enumerate(GRID)])
    assert summary.alignment is None
    assert summary.floor is None
    assert summary.spearman is not None
    assert summary.spearman.low < 0 < summary.spearman.high == 1.0


def test_no_readable_score_gives_no_alignment_and_no_crash() -> None:
    summary = rated_summary(population(lambda user, rating: None))
    assert summary.alignment is not None
    assert summary.alignment.value == 0.0
    assert summary.alignment_readable is None
    assert summary.spearman is None
    assert summary.coverage.value == 0.0


def test_gain_and_swap_gap_compare_the_same_items() -> None:
    rows = population(lambda user, rating: rating)
    rows += population(lambda user, rating: 0.0, probe=Probe.NONE)
    rows += population(lambda user, rating: -rating, probe=Probe.SWAP)
    gain, gap = rated_contrast(rows, Probe.NONE), rated_contrast(rows, Probe.SWAP)
    assert gain is not None
    assert gap is not None
    assert gain.alignment is not None
    assert gain.spearman is not None
    assert gap.spearman is not None
    assert gain.alignment.value == pytest.approx(0.3)
    assert (gain.alignment.n, gain.spearman.n) == (50, 50)
    assert gain.spearman.value == pytest.approx(1.0)
    assert gap.spearman.value == pytest.approx(2.0)


def test_a_context_that_only_shifts_the_scale_gains_nothing() -> None:
    noise = np.random.default_rng(0).normal(0, 0.3, 50).tolist()
    own = [rated(f"u{i // 5}", i % 5, GRID[i % 5], GRID[i % 5] + noise[i]) for i in range(50)]
    shifted = [rated(r.user_id, i % 5, r.rating, 10 * (r.score or 0.0) + 3, Probe.NONE) for i, r in enumerate(own)]
    gain = rated_contrast(own + shifted, Probe.NONE)
    assert gain is not None
    assert gain.alignment is not None
    assert gain.alignment.value == pytest.approx(0.0, abs=1e-12)


def test_contrasts_do_not_apply_without_both_probes() -> None:
    rows = population(lambda user, rating: rating)
    assert rated_contrast(rows, Probe.NONE) is None
    assert rated_contrast(rows, Probe.SWAP) is None


def test_mixed_probes_and_no_rows_are_refused() -> None:
    with pytest.raises(UsageError, match="mix several probes"):
        rated_summary([rated("a", 0, 0.5, 0.5), rated("a", 0, 0.5, 0.5, Probe.NONE)])
    with pytest.raises(UsageError, match="no rated rows"):
        rated_summary([])


def test_order_of_rows_changes_no_digit() -> None:
    rows = population(lambda user, rating: (user * 7 % 3) * rating + user / 10)
    assert rated_summary(rows) == rated_summary(rows[::-1])
