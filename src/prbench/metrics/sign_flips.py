"""Do users prefer one of two models, and by how much? The test by the signs of users, and its interval.

If nobody prefers either, each user's difference could as well have had the other sign, so the sum of differences is
compared with what it would be under all signs (Fisher 1935). Users of any size are taken as they are, and there are no
degrees of freedom to ask for. The interval holds the differences that this test does not reject (Robinson 1982).

A sum over signs is one of independent terms, so its tails come from a saddlepoint (Robinson 1982; in the form of
Barndorff-Nielsen 1986), not from drawing signs. That is a smooth curve through the steps of the exact distribution, as
the mid-p value is; where all differences have one sign, it is the mid-p value.
"""

import math
import sys
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]

FEWEST_USERS = 8
_MOST_STEPS = 100  # of Newton's method; about ten are needed, more next to the farthest sum
_CLOSE = 1e-12
_SAME = 1e-9  # sums that differ by less, relatively, differ by rounding


@dataclass(frozen=True)
class SignFlips:
    """Sums of differences, and the rows behind them, user by user."""

    sums: FloatArray
    rows: FloatArray

    @cached_property
    def _kinds(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Different pairs of sum and rows, and how many users have them."""
        inside = self.rows > 0
        pairs = np.stack([self.sums[inside], self.rows[inside]], axis=1)
        kinds, counts = np.unique(np.asarray(np.round(pairs, 12), dtype=np.float64), axis=0, return_counts=True)
        return kinds[:, 0], kinds[:, 1], counts.astype(np.float64)

    def p_value(self, difference: float = 0.0) -> float:
        """Return the two-sided p-value of a difference per row."""
        sums, rows, counts = self._kinds
        return flip_p(sums - difference * rows, counts)

    def can_reject(self, alpha: float) -> bool:
        """Tell whether enough users differ, and not all by the same share, for a p-value to fall below `alpha`.

        Of fewer than eight users the interval would be little else than the range.
        """
        sums, rows, counts = self._kinds
        enough = counts.sum() >= FEWEST_USERS and math.pow(0.5, float(counts[sums != 0].sum())) < alpha
        return bool(enough) and float(np.ptp(sums / rows)) > _SAME

    def interval(self, alpha: float) -> tuple[float, float]:
        """Return the differences whose p-value is not below `alpha`; see `can_reject`."""
        from scipy.optimize import brentq

        sums, rows, counts = self._kinds
        shares = sums / rows
        middle, farthest = float(counts @ sums / (counts @ rows)), float(np.ptp(shares))
        # Beyond all users, all signs are the same.
        ends = (float(shares.min()) - farthest * _SAME, float(shares.max()) + farthest * _SAME)

        def off(difference: float) -> float:
            return math.log(max(self.p_value(difference), sys.float_info.min) / alpha)

        low, high = (float(brentq(off, middle, end, xtol=farthest * _SAME, rtol=_SAME)) for end in ends)
        return low, high


def flip_p(terms: FloatArray, counts: FloatArray) -> float:
    """Return the two-sided p-value of a sum among the sums under all signs; each term stands for so many users."""
    from scipy.special import ndtr

    unit = math.sqrt(float(counts @ terms**2))
    if unit == 0:
        return 1.0
    sizes, place = np.abs(terms) / unit, abs(float(counts @ terms)) / unit
    least = math.pow(0.5, float(counts[sizes > _CLOSE].sum()))  # mid-p, where all signs are the same
    if place >= float(counts @ sizes) * (1 - _SAME):
        return least
    # The mean under a tilt is concave in it, so Newton's method comes from below and never goes too far.
    tilt, step = place, math.inf
    for _ in range(_MOST_STEPS):
        slopes = np.tanh(tilt * sizes)
        variance = float(counts @ (sizes**2 * (1 - slopes**2)))
        if variance <= 0:
            break
        step = (place - float(counts @ (sizes * slopes))) / variance
        tilt += step
        if step <= _CLOSE * (1 + tilt):
            break
    bent = tilt * sizes
    cumulant = float(counts @ (bent + np.log1p(np.exp(-2 * bent)) - math.log(2)))
    root = math.sqrt(max(2 * (tilt * place - cumulant), 0.0))
    if root < 1e-4:  # about the middle
        return 1.0
    # Next to the farthest sum, where nearly all signs have to agree, the saddlepoint says too much. Twice half of
    # Chernoff's bound is the mid-p value there, and above the saddlepoint elsewhere.
    most = math.exp(-(root**2) / 2)
    if variance <= 0:
        return max(most, least)
    saddlepoint = 2 * float(ndtr(-root - math.log(tilt * math.sqrt(variance) / root) / root))
    return max(min(saddlepoint, most, 1.0), least)
