"""Where a user stands, from a few labelled pairs: a ridge logistic regression towards the population.

    z = argmin  |z|^2 / 2 - sum over the pairs of log sigmoid(margin + difference . z)

It is convex, and solved by Newton's method; without pairs z is 0, which is the population's mean.
"""

import numpy as np
from numpy.typing import NDArray

MOST_STEPS = 100  # from the population's mean it takes about five
FLAT = 1e-10  # the slope at which it ends
HALVINGS = 40

Doubles = NDArray[np.float64]


def adapt(differences: Doubles, margins: Doubles, counts: Doubles) -> Doubles:
    """Return where each user stands: (users, r), the z of the formula above.

    `differences` (users, pairs, r) and `margins` (users, pairs) say how far the features of the two responses are
    apart, and what the population makes of that; `counts` is 1 for a pair and 0 for padding.
    """
    z = np.zeros((len(differences), differences.shape[2]))
    for _ in range(MOST_STEPS):
        doubt = counts / (1 + np.exp(np.minimum(margins + np.einsum("upr,ur->up", differences, z), 500)))
        slope = z - np.einsum("up,upr->ur", doubt, differences)
        if np.abs(slope).max(initial=0) < FLAT:
            break
        curvature = np.einsum("up,upr,ups->urs", doubt * (1 - doubt), differences, differences) + np.eye(z.shape[1])
        z = _downhill(z, np.linalg.solve(curvature, slope[..., None])[..., 0], differences, margins, counts)
    return z


def _downhill(z: Doubles, step: Doubles, differences: Doubles, margins: Doubles, counts: Doubles) -> Doubles:
    """Take Newton's step, halved where it overshoots."""

    def loss(z: Doubles) -> Doubles:
        fitted = margins + np.einsum("upr,ur->up", differences, z)
        total: Doubles = (z**2).sum(axis=1) / 2 + (counts * np.logaddexp(0, -fitted)).sum(axis=1)
        return total

    before, length = loss(z), np.ones((len(z), 1))
    for _ in range(HALVINGS):
        worse = loss(z - length * step) > before + 1e-12 * (1 + before)
        if not worse.any():
            break
        length[worse] /= 2
    return z - length * step
