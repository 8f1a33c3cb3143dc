"""Does the benchmark say more than the models' size or family does? Correlation of what these leave unexplained."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from prbench.insight.meta.board import Pair
from prbench.insight.meta.intervals import fisher_interval
from prbench.metrics.estimate import FloatArray

FEWEST_FREE = 2  # models beyond what the covariates and the two columns use up


@dataclass(frozen=True, slots=True, kw_only=True)
class Partial:
    """Spearman's correlation given something else; without a value, `why` says what is missing."""

    given: str
    n: int
    value: float | None = None
    low: float | None = None
    high: float | None = None
    p: float | None = None
    why: str = ""


def partial_correlations(pair: Pair) -> list[Partial]:
    """Return the correlation given size, given family, and given both, as far as the boards tell them."""
    sizes = {**pair.downstream.sizes, **pair.benchmark.sizes}
    families = {**pair.downstream.families, **pair.benchmark.families}
    found = []
    if sizes:
        found.append(_partial(pair, "size", sizes, None))
    if families:
        found.append(_partial(pair, "family", None, families))
    if sizes and families:
        found.append(_partial(pair, "size and family", sizes, families))
    return found


def _partial(pair: Pair, given: str, sizes: Mapping[str, float] | None, families: Mapping[str, str] | None) -> Partial:
    from scipy.stats import rankdata
    from scipy.stats import t as student

    known = [
        place
        for place, model in enumerate(pair.models)
        if (sizes is None or model in sizes) and (families is None or model in families)
    ]
    names = [pair.models[place] for place in known]
    columns = [np.ones(len(known))]
    if sizes is not None:
        columns.append(rankdata([sizes[name] for name in names]))
    if families is not None:
        columns += _dummies([families[name] for name in names])
    explained = np.stack(columns, axis=1)
    used = int(np.linalg.matrix_rank(explained)) - 1 if known else 0
    free = len(known) - 2 - used
    if free < FEWEST_FREE:
        return Partial(given=given, n=len(known), why=f"{len(known)} models with a known {given} are too few.")
    x, y = (_unexplained(board.scores[known], explained) for board in (pair.benchmark, pair.downstream))
    if min(float(x @ x), float(y @ y)) < 1e-9:
        return Partial(given=given, n=len(known), why=f"The {given} explains a whole column.")
    value = float(x @ y / math.sqrt(float(x @ x) * float(y @ y)))
    low, high = fisher_interval(value, len(known) - used, spread=1 + value**2 / 2)
    p = 0.0 if abs(value) >= 1 else 2 * float(student.sf(abs(value) * math.sqrt(free / (1 - value**2)), free))
    return Partial(given=given, n=len(known), value=value, low=low, high=high, p=p)


def _dummies(families: Sequence[str]) -> list[FloatArray]:
    return [np.array([float(each == family) for each in families]) for family in sorted(set(families))[1:]]


def _unexplained(values: FloatArray, explained: FloatArray) -> FloatArray:
    from scipy.stats import rankdata

    ranks = rankdata(values)
    fitted = explained @ np.linalg.lstsq(explained, ranks, rcond=None)[0]
    rest: FloatArray = ranks - fitted
    return rest
