import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import brier_score_loss

from prbench.metrics.calibration import (
    calibrate,
    expected_calibration_error,
    fit_temperature,
    reliability,
    risk_coverage,
    win_probability,
)
from prbench.metrics.estimate import user_folds
from prbench.schema import Probe, Row, Verdict


def make_rows(margins: list[float], users: int | None = None) -> list[Row]:
    return [
        Row(
            id=str(i),
            probe=Probe.OWN,
            user_id=f"u{i % (users or len(margins))}",
            category="",
            verdict=Verdict.CHOSEN if margin > 0 else Verdict.REJECTED,
            score_chosen=margin,
            score_rejected=0.0,
        )
        for i, margin in enumerate(margins)
    ]


def simulated_margins(n: int, temperature: float, seed: int = 0) -> np.ndarray:
    """Margins of which `sigmoid(size / temperature)` point to the label."""
    generator = np.random.default_rng(seed)
    sizes = generator.exponential(2.0, n)
    right = generator.random(n) < 1 / (1 + np.exp(-sizes / temperature))
    return np.where(right, sizes, -sizes)


def test_temperature_by_hand() -> None:
    # Three margins of 1 and one of -1: the likelihood peaks at sigmoid(1/T) = 3/4, so T = 1 / ln 3.
    fitted = fit_temperature(np.array([1.0, 1.0, 1.0, -1.0]))
    assert fitted.value == pytest.approx(1 / np.log(3), rel=1e-9)
    assert not fitted.at_bound


def test_temperature_agrees_with_logistic_regression_on_both_orientations() -> None:
    margins = simulated_margins(500, temperature=3.0)
    features = np.concatenate([margins, -margins])[:, None]
    labels = np.repeat([1, 0], len(margins))
    model = LogisticRegression(fit_intercept=False, C=1e12, tol=1e-10).fit(features, labels)
    assert fit_temperature(margins).value == pytest.approx(1 / model.coef_[0, 0], rel=1e-4)


def test_temperature_scales_with_the_scores() -> None:
    margins = simulated_margins(200, temperature=1.0)
    assert fit_temperature(1000 * margins).value == pytest.approx(1000 * fit_temperature(margins).value)


def test_perfect_separation_stops_at_the_low_bound_and_says_so() -> None:
    fitted = fit_temperature(np.array([0.5, 1.0, 1.5]))
    assert fitted.at_bound
    assert fitted.value == pytest.approx(0.001)


def test_margins_that_are_wrong_on_the_whole_stop_at_the_high_bound() -> None:
    fitted = fit_temperature(np.array([-1.0, -1.0, 1.0]))
    assert fitted.at_bound
    assert fitted.value == pytest.approx(1000.0)


def test_probabilities_do_not_overflow() -> None:
    assert win_probability(np.array([-1e6, 0.0, 1e6]), 1e-3).tolist() == [0.0, 0.5, 1.0]


def test_calibration_error_of_two_bins_by_hand() -> None:
    # Confidence 0.6 and right half of the time; confidence 0.9 and always right: (0.1 + 0.1) / 2.
    p = np.array([0.6, 0.4, 0.9, 0.9])
    assert expected_calibration_error(p, bins=2) == pytest.approx(0.1)


def test_equal_confidences_share_a_bin_whatever_the_order() -> None:
    p = np.array([0.8] * 8 + [0.2] * 2)
    assert expected_calibration_error(p) == pytest.approx(0.0)
    assert expected_calibration_error(p[::-1]) == pytest.approx(0.0)


def test_reliability_points_hold_all_pairs_and_keep_equal_confidences_together() -> None:
    rows = make_rows([1.0, 1.0, 1.0, -1.0] * 10, users=7)
    points = reliability(rows)
    assert sum(point.n for point in points) == 40
    assert reliability(rows[::-1]) == points
    assert reliability([]) == ()
    honest = reliability(make_rows(simulated_margins(3000, temperature=2.0).tolist(), users=300))
    assert [point.n for point in honest] == [600] * 5
    assert all(point.correct == pytest.approx(point.confidence, abs=0.06) for point in honest)


def test_ties_are_calibrated() -> None:
    assert expected_calibration_error(np.full(10, 0.5)) == 0.0


def test_brier_score_agrees_with_sklearn_on_both_orientations() -> None:
    margins = simulated_margins(300, temperature=1.0)
    rows = make_rows(margins.tolist(), users=30)
    result = calibrate(rows)
    assert result is not None
    folds = user_folds([row.user_id for row in rows])
    p = np.empty(len(margins))
    for fold in set(folds.tolist()):
        p[folds == fold] = win_probability(margins[folds == fold], fit_temperature(margins[folds != fold]).value)
    expected = brier_score_loss(np.repeat([1, 0], len(p)), np.concatenate([p, 1 - p]))
    assert result.brier.value == pytest.approx(expected)
    assert result.brier.low < expected < result.brier.high


def test_honest_margins_are_found_calibrated() -> None:
    result = calibrate(make_rows(simulated_margins(3000, temperature=2.0).tolist(), users=300))
    assert result is not None
    assert result.temperature == pytest.approx(2.0, rel=0.1)
    assert result.ece < 0.04
    assert result.n == 3000


def test_margins_as_scored_must_be_log_odds_themselves() -> None:
    margins = simulated_margins(3000, temperature=1.0)
    honest, boastful = (calibrate(make_rows((times * margins).tolist(), users=300)) for times in (1, 10))
    assert honest is not None
    assert boastful is not None
    assert honest.ece == pytest.approx(boastful.ece, abs=1e-3)  # a temperature of their own makes up for the factor
    assert honest.ece_as_scored < 0.04
    assert boastful.ece_as_scored > 0.1


def test_figures_of_a_user_do_not_depend_on_a_fit_to_that_user() -> None:
    # One user is always wrong. Fitted on themselves they would be given a milder temperature.
    right = [Row(id=f"r{i}", probe=Probe.OWN, user_id="a", category="", verdict=Verdict.CHOSEN,
                 score_chosen=1.0 + i % 2, score_rejected=0.0) for i in range(10)]  # fmt: skip
    wrong = [Row(id=f"w{i}", probe=Probe.OWN, user_id="b", category="", verdict=Verdict.REJECTED,
                 score_chosen=-1.0, score_rejected=0.0) for i in range(10)]  # fmt: skip
    result = calibrate(right + wrong)
    assert result is not None
    # T for b comes from a alone, who is separated: p = 0 for all of b. T for a comes from b alone: p near one half.
    assert result.brier.value == pytest.approx((10 * 0.25 + 10 * 1.0) / 20, abs=0.01)


def test_calibration_does_not_apply_without_scores_or_with_one_user() -> None:
    judge_row = Row(id="1", probe=Probe.OWN, user_id="a", category="", verdict=Verdict.CHOSEN)
    assert calibrate([judge_row]) is None
    assert calibrate([]) is None
    assert calibrate(make_rows([1.0, -1.0], users=1)) is None
    assert calibrate(make_rows([0.0, 0.0, 0.0])) is None


def test_risk_falls_when_only_confident_pairs_are_answered() -> None:
    points = risk_coverage(np.array([4.0, 3.0, -2.0, 1.0]), coverages=(0.25, 0.5, 0.75, 1.0))
    assert [(p.coverage, p.risk) for p in points] == [
        (0.25, 0.0),
        (0.5, 0.0),
        (0.75, pytest.approx(1 / 3)),
        (1.0, 0.25),
    ]


def test_risk_among_equal_margins_does_not_depend_on_their_order() -> None:
    margins = np.array([1.0, -1.0, 1.0, -1.0])
    for order in (margins, np.sort(margins), -np.sort(-margins)):
        assert [p.risk for p in risk_coverage(order, coverages=(0.25, 1.0))] == [0.5, 0.5]


def test_order_of_rows_changes_no_digit() -> None:
    rows = make_rows(simulated_margins(100, temperature=1.0).tolist(), users=10)
    assert calibrate(rows) == calibrate(rows[::-1])


def test_folds_stay_when_users_are_added() -> None:
    few, more = user_folds(["a", "b", "c"]), user_folds(["a", "b", "c", "d", "e"])
    assert few.tolist() == more.tolist()[:3]
    assert set(user_folds([str(i) for i in range(200)]).tolist()) == {0, 1, 2, 3, 4}


def test_a_handful_of_users_who_hash_alike_still_makes_folds() -> None:
    alike = [f"u{i}" for i in range(200) if user_folds([f"u{i}", "anchor", "b", "c", "d"])[0] == 0][:3]
    assert len(set(user_folds(alike).tolist())) == 3
    assert set(user_folds(["a", "a"]).tolist()) == {0}
