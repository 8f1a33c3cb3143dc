"""Accuracy of margins on held-out users, and the temperature that makes sigmoid(margin) the share of correct pairs."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from prbench.metrics.calibration import expected_calibration_error, fit_temperature, win_probability
from prbench.metrics.estimate import FloatArray, user_folds
from prbench.schema import Json


def accuracy_of(margins: ArrayLike) -> float:
    """Return the share of margins above 0, where a tie is half a point."""
    return float(np.mean(np.sign(np.asarray(margins, np.float64)) + 1) / 2)


@dataclass(frozen=True, kw_only=True)
class Calibrated:
    """What margins must be divided by, and what that does to the calibration error on held-out users."""

    temperature: float
    ece_before: float
    ece_after: float  # each fifth of the users with the temperature of the others, so it is not fitted on itself

    @property
    def facts(self) -> dict[str, Json]:
        """What a card says of it."""
        return {
            "temperature": round(self.temperature, 4),
            "ece_before_temperature": round(self.ece_before, 4),
            "ece_after_temperature": round(self.ece_after, 4),
        }


def calibrate_margins(margins: ArrayLike, users: Sequence[str]) -> Calibrated:
    """Return the temperature by which sigmoid(margin) is the share of such pairs that come out right.

    It is 1 where none is best, because no margin is wrong. Margins that are wrong on the whole get a very large one:
    nothing is sure.
    """

    def temperature(some: FloatArray) -> float:
        found = fit_temperature(some)
        all_right = found.at_bound and found.value < float(np.abs(some).mean())
        return 1.0 if all_right else found.value

    every, folds = np.asarray(margins, np.float64), user_folds(users)
    probabilities = np.empty(len(every))
    for fold in sorted(set(folds.tolist())):
        held_out = folds == fold
        probabilities[held_out] = win_probability(every[held_out], temperature(every[~held_out]))
    return Calibrated(
        temperature=temperature(every),
        ece_before=expected_calibration_error(win_probability(every, 1.0)),
        ece_after=expected_calibration_error(probabilities),
    )
