"""What the choice of items adds to the differences between models, and the correlation without it."""

from dataclasses import dataclass

import numpy as np

from prbench.insight.meta.board import Board, Items, Pair
from prbench.insight.meta.intervals import Ties, compatible_rho, population_value, rho_of_spearman, ties_of
from prbench.metrics.correlation import spearman
from prbench.schema import Estimate

FEWEST_MODELS, FEWEST_USERS = 4, 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Corrected:
    """Spearman's correlation of the scores that ever more items would give."""

    spearman: Estimate
    reliability_benchmark: float  # share of the variance between models that other items would show again
    reliability_downstream: float


def noise_variance(items: Items) -> float:
    """Return the variance, from items alone, of one model's score beside the others'; users are clusters.

    How hard an item is for all models alike does not count, because it moves no model past another.
    """
    known = ~np.isnan(items.values)
    residuals = np.where(known, items.values - items.means, 0.0) / known.sum(axis=0)
    codes = np.unique(np.array(items.users), return_inverse=True)[1]
    users = int(codes.max()) + 1
    by_user = np.zeros((users, items.values.shape[1]))
    np.add.at(by_user, codes, residuals)
    contrasts = by_user - by_user.mean(axis=1, keepdims=True)
    return float((contrasts**2).sum() / (by_user.shape[1] - 1) * users / max(1, users - 1))


def reliability(board: Board) -> float | None:
    """Return the share of the variance between models that is no noise of the items; `None` where it is not known."""
    n = len(board.models)
    if board.items is None or n < FEWEST_MODELS or len(set(board.items.users)) < FEWEST_USERS:
        return None
    spread = float(np.var(board.scores, ddof=1))
    if spread <= 0:
        return None
    # 1 / spread is too large on average, by (n - 1) / (n - 3) for normal scores.
    return 1 - (n - 3) / (n - 1) * noise_variance(board.items) / spread


def corrected_spearman(pair: Pair) -> Corrected | None:
    """Return the correlation corrected for the noise of items (Spearman 1904), or `None` where that is not known.

    A side without item rows counts as measured without noise. Where noise is all that there is, nothing can be said:
    the interval goes from -1 to 1.
    """
    value = spearman(pair.benchmark.scores, pair.downstream.scores)
    both = [reliability(board) for board in (pair.benchmark, pair.downstream)]
    if value is None or both == [None, None]:
        return None
    first, second = (1.0 if share is None else share for share in both)
    ties = (ties_of(pair.benchmark.scores), ties_of(pair.downstream.scores))
    found, low, high = corrected_for(value, pair.n, first * second if min(first, second) > 0 else 0.0, ties)
    return Corrected(
        spearman=Estimate(value=found, low=low, high=high, n=pair.n),
        reliability_benchmark=first,
        reliability_downstream=second,
    )


def corrected_for(
    value: float, n: int, reliabilities: float, ties: tuple[Ties, Ties] = ((), ())
) -> tuple[float, float, float]:
    """Return Spearman's correlation and its interval, given the product of both reliabilities."""
    if reliabilities <= 0:
        return value, -1.0, 1.0
    scale = reliabilities**-0.5
    rhos = (rho_of_spearman(value), *compatible_rho(value, n, ties))
    found, low, high = (population_value(float(np.clip(rho * scale, -1.0, 1.0)), "spearman") for rho in rhos)
    return found, low, high
