"""Is a margin worth what it claims? One temperature turns margins into probabilities that the chosen response wins."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from prbench.metrics.estimate import FloatArray, ratio_estimates, user_folds
from prbench.metrics.personal import margin
from prbench.schema import Estimate, Json, Row

BINS = 15
COVERAGES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
_BOUND = 1e3  # the search covers temperatures from a thousandth to a thousand times the mean size of a margin


@dataclass(frozen=True, slots=True, kw_only=True)
class Temperature:
    """The T of sigmoid(margin / T); at a bound, the likelihood has no maximum and the value only says which way."""

    value: float
    at_bound: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RiskPoint:
    """Share of errors among the most confident `coverage` of the pairs."""

    coverage: float
    risk: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """How far confidence can be believed; `ece` and `brier` are out of fold, `temperature` is fitted on all pairs."""

    ece: float  # without an interval: resampling adds noise to every bin, so its bootstrap is biased upwards
    ece_as_scored: float  # of sigmoid(margin) as it is: what a model that claims log-odds must answer for
    brier: Estimate
    temperature: float
    temperature_at_bound: bool
    risk_coverage: tuple[RiskPoint, ...]
    n: int


def calibrate(rows: Sequence[Row]) -> Calibration | None:
    """Calibration of the margins of `rows`; pairs without both scores are left out.

    The probability that the chosen response wins is sigmoid(margin / T): temperature scaling (Guo et al. 2017) of the
    model of Bradley and Terry (1952). For each of five folds of users T is fitted on the other folds, so that no
    figure is fitted on itself. The Brier score (1950) is the mean squared error of these probabilities. `None` for
    judges without scores, for models whose margins are all zero, and for a single user.
    """
    held_out = out_of_fold(rows)
    if held_out is None:
        return None
    users, margins, probabilities = held_out
    overall = fit_temperature(margins)
    return Calibration(
        ece=expected_calibration_error(probabilities),
        ece_as_scored=expected_calibration_error(win_probability(margins, 1.0)),
        brier=ratio_estimates((1 - probabilities) ** 2, np.ones(len(margins)), users)[0],
        temperature=overall.value,
        temperature_at_bound=overall.at_bound,
        risk_coverage=risk_coverage(margins),
        n=len(margins),
    )


def out_of_fold(rows: Sequence[Row]) -> tuple[list[str], FloatArray, FloatArray] | None:
    """Return users, margins and probabilities of the scored pairs, T being fitted on other users; see `calibrate`."""
    scored = sorted((row.user_id, row.id, value) for row in rows if (value := margin(row)) is not None)
    margins = np.array([value for _, _, value in scored])
    users = [user for user, _, _ in scored]
    folds = user_folds(users) if scored else np.zeros(0, dtype=np.int64)
    if len(set(folds.tolist())) < 2 or not margins.any():
        return None
    return users, margins, _probabilities_by_fold(margins, folds, lambda others: fit_temperature(others).value)


def _probabilities_by_fold(
    margins: FloatArray, folds: npt.NDArray[np.int64], temperature: Callable[[FloatArray], float]
) -> FloatArray:
    """Return the probabilities of each fold under the temperature that suits all other folds."""
    probabilities = np.empty(len(margins))
    for fold in sorted(set(folds.tolist())):
        held_out = folds == fold
        probabilities[held_out] = win_probability(margins[held_out], temperature(margins[~held_out]))
    return probabilities


def accuracy_of(margins: npt.ArrayLike) -> float:
    """Return the share of margins above 0, where a tie is half a point."""
    return float(np.mean(np.sign(np.asarray(margins, np.float64)) + 1) / 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibratedMargins:
    """What a model's margins must be divided by, and what that does to the calibration error on held-out users."""

    temperature: float
    ece_before: float
    ece_after: float  # each fifth of the users with the temperature of the others, so it is not fitted on itself

    @property
    def facts(self) -> dict[str, Json]:
        """What the card of a trained model says of it."""
        return {
            "temperature": round(self.temperature, 4),
            "ece_before_temperature": round(self.ece_before, 4),
            "ece_after_temperature": round(self.ece_after, 4),
        }


def calibrate_margins(margins: npt.ArrayLike, users: Sequence[str]) -> CalibratedMargins:
    """Return the temperature by which sigmoid(margin) is the share of such pairs that come out right.

    It is 1 where none is best, because no margin is wrong. Margins that are wrong on the whole get a very large one:
    nothing is sure.
    """

    def temperature(some: FloatArray) -> float:
        found = fit_temperature(some)
        all_right = found.at_bound and found.value < float(np.abs(some).mean())
        return 1.0 if all_right else found.value

    every = np.asarray(margins, np.float64)
    return CalibratedMargins(
        temperature=temperature(every),
        ece_before=expected_calibration_error(win_probability(every, 1.0)),
        ece_after=expected_calibration_error(_probabilities_by_fold(every, user_folds(users), temperature)),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ReliabilityPoint:
    """One bin of the reliability curve: what was claimed, and what came true."""

    confidence: float
    correct: float
    n: int


def reliability(rows: Sequence[Row], *, bins: int = 5) -> tuple[ReliabilityPoint, ...]:
    """Return mean confidence and share of right verdicts over bins of equal mass, out of fold as in `calibrate`.

    Pairs of equal confidence share a bin, so there can be fewer bins than asked for; empty where `calibrate` gives
    `None`.
    """
    held_out = out_of_fold(rows)
    if held_out is None:
        return ()
    confidence, correct, bin_of = _binned(held_out[2], bins)
    parts = [np.flatnonzero(bin_of == place) for place in np.unique(bin_of)]
    return tuple(
        ReliabilityPoint(confidence=float(confidence[part].mean()), correct=float(correct[part].mean()), n=len(part))
        for part in parts
    )


def _binned(probabilities: FloatArray, bins: int) -> tuple[FloatArray, FloatArray, npt.NDArray[np.int64]]:
    """Return confidence, correctness and bin of every pair; the bins have equal mass, and equal values share one."""
    confidence = np.maximum(probabilities, 1 - probabilities)
    correct = np.where(probabilities > 0.5, 1.0, np.where(probabilities < 0.5, 0.0, 0.5))
    _, group, counts = np.unique(confidence, return_inverse=True, return_counts=True)
    middles = (np.cumsum(counts) - counts / 2) / len(confidence)  # where each value's block stands, from 0 to 1
    return confidence, correct, np.floor(bins * middles).astype(np.int64)[group]


def win_probability(margins: FloatArray, temperature: float) -> FloatArray:
    """Return sigmoid(margin / temperature), without overflow at either end."""
    half: FloatArray = 0.5 * (1 + np.tanh(np.asarray(margins) / (2 * temperature)))
    return half


def fit_temperature(margins: FloatArray) -> Temperature:
    """Return the temperature under which the observed wins are most likely.

    Margins point towards the label, so the log-likelihood is sum(log sigmoid(b * margin)) with b = 1 / T; it is
    concave in b, and its slope sum(margin * sigmoid(-b * margin)) falls, which makes bisection safe. With every margin
    positive the slope never reaches zero (T goes to 0); with margins that are wrong on the whole it is never positive
    (T grows without limit). The search then stops at its bound and says so.
    """
    sizes = np.abs(margins)
    if not sizes.any():
        return Temperature(value=1.0, at_bound=True)  # all ties: every temperature gives one half
    scaled = margins / sizes.mean()

    def slope(log_b: float) -> float:
        return float(np.sum(scaled * win_probability(-scaled, float(np.exp(-log_b)))))

    low, high = -float(np.log(_BOUND)), float(np.log(_BOUND))
    if slope(low) <= 0 or slope(high) >= 0:
        edge = low if slope(low) <= 0 else high
        return Temperature(value=float(sizes.mean() * np.exp(-edge)), at_bound=True)
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if slope(middle) > 0 else (low, middle)
    return Temperature(value=float(sizes.mean() * np.exp(-(low + high) / 2)), at_bound=False)


def expected_calibration_error(probabilities: FloatArray, *, bins: int = BINS) -> float:
    """Mean distance between confidence and correctness over bins of equal mass.

    Sources: Naeini et al. 2015, and Nguyen and O'Connor 2015 for such bins.
    Confidence is max(p, 1 - p); the more confident side is right (1), wrong (0) or, at p = 0.5, a tie (0.5). Pairs of
    equal confidence always share a bin, so that the order of the rows cannot matter; with few pairs the figure is
    biased upwards.
    """
    confidence, correct, bin_of = _binned(probabilities, bins)
    gaps = np.bincount(bin_of, weights=confidence - correct, minlength=bins)
    return float(np.abs(gaps).sum() / len(confidence))


def risk_coverage(margins: FloatArray, *, coverages: Sequence[float] = COVERAGES) -> tuple[RiskPoint, ...]:
    """Error rate when only the most confident pairs (by the size of their margin) are answered.

    That is selective prediction (El-Yaniv and Wiener 2010). A tie is half an error. Among margins of equal size the
    errors are spread evenly, which is the mean over all orders.
    """
    sizes = np.abs(margins)
    errors = np.where(margins > 0, 0.0, np.where(margins < 0, 1.0, 0.5))
    _, group, counts = np.unique(-sizes, return_inverse=True, return_counts=True)
    spread = (np.bincount(group, weights=errors) / counts)[np.sort(group)]
    cumulated = np.cumsum(spread)
    points = []
    for share in coverages:
        answered = max(1, round(share * len(margins)))
        points.append(RiskPoint(coverage=answered / len(margins), risk=float(cumulated[answered - 1] / answered)))
    return tuple(points)
