"""The interval of a share whose users differ: a beta-binomial posterior in which nobody knows how much they differ.

Near 0 or 1 the few users who depart from the rest hold nearly all of the variance. A sample without them shows a small
error, so an interval made of the error that was seen is too narrow just where it is too high. Here the correlation of
two rows of one user is uncertain like the share itself, and a low share goes with a high correlation.

Model: every user has a chance from a beta distribution with mean p and correlation rho (Griffiths 1973). Priors:
Jeffreys' for p (Brown, Cai and DasGupta 2001), and for rho one that is flat in its root, which is the standard
deviation of the chances over the largest that it can be (Gelman 2006). The integrals are sums over a grid.
"""

import math
from collections.abc import Callable
from functools import partial

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
Span = tuple[float, float]
LEVEL = 0.95
MOST_PER_USER = 1e7  # rows of one user: more tell no more, and logarithms of gamma functions lose their digits
_SHARES, _ROOTS = 20, 14  # cells of the coarse grid over arcsin(sqrt(p)) and sqrt(rho), which finds the region
_FINE_SHARES, _FINE_ROOTS = 40, 12  # cells of the grid in it
_FEWEST_CELLS, _FEWEST_ROOTS = 12, 5  # of a grid that a posterior must reach over, or it is too coarse
_MOST_ZOOMS = 24
_NEGLIGIBLE = 14.0  # of log posterior: what is so far below the top is left out
_BLOCK_CELLS = 1 << 20  # of one array of logarithms: 8 MB


def middles(cells: int, low: float, high: float) -> FloatArray:
    """Return the middles of so many equal cells."""
    return low + (np.arange(cells) + 0.5) / cells * (high - low)


ANGLES = middles(_SHARES, 0.0, math.pi / 2)  # Jeffreys' prior is flat in the angle
ROOTS = middles(_ROOTS, 0.0, 1.0)


class UserCounts:
    """Rows right and wrong of every user; alike users are counted. Neither has to be a whole number."""

    def __init__(self, right: FloatArray, wrong: FloatArray) -> None:
        kinds, kind_of = np.unique(np.stack([right, wrong], axis=1), axis=0, return_inverse=True)
        self.right, self.wrong = kinds.T
        self.rows = self.right + self.wrong
        self.users = np.bincount(kind_of.ravel()).astype(np.float64)

    def log_likelihood(self, angles: FloatArray, roots: FloatArray, weights: FloatArray) -> FloatArray:
        """Return the weighted log likelihood, (angles, roots), up to the binomial coefficients."""
        from scipy.special import gammaln

        share, rho = np.sin(angles)[:, None] ** 2, roots**2
        size = (1 - rho) / rho
        ones, others = share * size, (1 - share) * size  # the two parameters of the beta distribution
        found: FloatArray = weights.sum() * (gammaln(size) - gammaln(ones) - gammaln(others))
        step = max(1, _BLOCK_CELLS // ones.size)
        for start in range(0, len(weights), step):
            right, wrong, rows, weight = (
                each[start : start + step] for each in (self.right, self.wrong, self.rows, weights)
            )
            cells = gammaln(right[:, None, None] + ones) + gammaln(wrong[:, None, None] + others)
            found = found + np.tensordot(weight, cells, 1) - weight @ gammaln(rows[:, None] + size)
        return found

    def weights(self, rho: float) -> FloatArray:
        """Return how much every kind of user counts, so that the posterior lies about the ratio of sums.

        By likelihood a user with many rows counts less than these, the less the more rows correlate; a ratio of sums
        counts every row alike. With these weights both have the same center and the same variance.
        """
        total = self.users * self.rows
        seen = float(total @ self.rows / total.sum())  # rows per user as a row sees it
        weights: FloatArray = self.users * (1 + (self.rows - 1) * rho) / (1 + (seen - 1) * rho)
        return weights

    def interval(self, *, level: float = LEVEL) -> tuple[float, float]:
        """Return the equal-tailed posterior interval of the share."""
        on = self.log_likelihood
        likelihood = on(ANGLES, ROOTS, self.users)
        is_coarse = np.count_nonzero(_inside(likelihood).any(axis=0)) < _FEWEST_ROOTS
        weights = self.weights(_mean_correlation(likelihood, ROOTS))
        span, roots = _regions(ANGLES, ROOTS, likelihood)
        likelihood = on(middles(_FINE_SHARES, *span), middles(_FINE_ROOTS, *roots), weights)
        if is_coarse or np.count_nonzero(_inside(likelihood).any(axis=1)) < _FEWEST_CELLS:
            # For so many rows the grid is coarse: find the region again, the correlation in it, and the ends.
            angles, fine_roots, likelihood = _zoomed(partial(on, weights=self.users))
            weights = self.weights(_mean_correlation(likelihood, fine_roots))
            angles, fine_roots, likelihood = _zoomed(partial(on, weights=weights))
            half = (angles[1] - angles[0]) / 2
            span = float(angles[0] - half), float(angles[-1] + half)
        cells = np.exp(likelihood - likelihood.max()).sum(axis=1)
        below = np.concatenate([[0.0], np.cumsum(cells)]) / cells.sum()
        ends = np.interp([(1 - level) / 2, (1 + level) / 2], below, np.linspace(*span, len(cells) + 1))
        return float(np.sin(ends[0]) ** 2), float(np.sin(ends[1]) ** 2)


def _inside(likelihood: FloatArray) -> npt.NDArray[np.bool_]:
    """Return which cells of a grid are not negligible."""
    found: npt.NDArray[np.bool_] = likelihood > likelihood.max() - _NEGLIGIBLE
    return found


def _mean_correlation(likelihood: FloatArray, roots: FloatArray) -> float:
    cells = np.exp(likelihood - likelihood.max())
    return float(cells.sum(axis=0) @ roots**2 / cells.sum())


def _regions(angles: FloatArray, roots: FloatArray, likelihood: FloatArray) -> tuple[Span, Span]:
    """Return the parts of both axes that count."""
    inside = _inside(likelihood)
    return _region(angles, np.any(inside, axis=1), math.pi / 2), _region(roots, np.any(inside, axis=0), 1.0)


def _zoomed(on: Callable[[FloatArray, FloatArray], FloatArray]) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return a grid that is fine enough for a posterior, with its log likelihood.

    The share is narrowed down first, for every correlation: beside the true share, a wrong correlation fits better.
    """
    angles, roots = middles(_FINE_SHARES, 0.0, math.pi / 2), ROOTS
    for _ in range(_MOST_ZOOMS):
        likelihood = on(angles, roots)
        inside, (span, wide) = _inside(likelihood), _regions(angles, roots, likelihood)
        if np.count_nonzero(inside.any(axis=1)) < _FEWEST_CELLS:
            angles = middles(_FINE_SHARES, *span)
        elif np.count_nonzero(inside.any(axis=0)) < _FEWEST_ROOTS and wide != (roots[0], roots[-1]):
            roots = middles(len(ROOTS), *wide)
        else:
            break
    return angles, roots, likelihood


def _region(grid: FloatArray, inside: npt.NDArray[np.bool_], most: float) -> Span:
    """Return the part of a grid that counts, with one cell more on either side."""
    places = np.flatnonzero(inside)
    step = grid[1] - grid[0]
    return max(float(grid[places[0]] - step), 0.0), min(float(grid[places[-1]] + step), most)
