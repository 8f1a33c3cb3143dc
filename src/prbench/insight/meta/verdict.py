"""What the figures say, in one sentence: yes, no, the wrong way round, or too few models to tell."""

import math
from dataclasses import dataclass
from enum import StrEnum
from statistics import NormalDist

ALPHA, POWER = 0.05, 0.8
BAR = 0.5  # a correlation worth having
FEWEST_FOR_P = 5  # with four models no order has a two-sided p under 0.05
MOST_MODELS = 10_000  # beyond, the number itself is no use


class Outcome(StrEnum):
    """Whether a benchmark predicts downstream results."""

    PREDICTS = "predicts"
    REVERSED = "reversed"
    DOES_NOT = "does not predict"
    TOO_FEW = "too few models to tell"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """An outcome with its reason."""

    outcome: Outcome
    sentence: str
    needed: int | None  # models that would show the observed correlation; `None`: it is 0, or there is none
    needed_for_bar: int  # models that would show a correlation worth having


def models_needed(correlation: float, *, alpha: float = ALPHA, power: float = POWER) -> int:
    """Return how many models show a Spearman correlation with this power, two-sided.

    By Fisher's z, whose variance for ranks is 1.06 / (n - 3) (Fieller, Hartley and Pearson 1957); never fewer than can
    show anything. `experiments/meta_coverage.py` holds it against simulated boards.
    """
    size = abs(correlation)
    if size <= 0:
        return MOST_MODELS
    z = math.atanh(min(size, 0.999))
    total = NormalDist().inv_cdf(1 - alpha / 2) + NormalDist().inv_cdf(power)
    return min(MOST_MODELS, max(FEWEST_FOR_P + 1, math.ceil(3 + 1.06 * (total / z) ** 2)))


def judge(
    *,
    n: int,
    value: float | None,
    low: float | None,
    high: float | None,
    p: float | None,
    bar: float = BAR,
    alpha: float = ALPHA,
) -> Verdict:
    """Say whether the ranking by the benchmark predicts the ranking downstream, from Spearman's correlation.

    `bar` is the correlation that would make the benchmark worth its cost: a correlation is denied when the interval
    stays below it, and nothing is said when the interval holds both 0 and the bar.
    """
    for_bar = models_needed(bar, alpha=alpha)
    if value is None or p is None or low is None or high is None:
        flat = value is None and n >= 2
        why = f"all {n} models have the same score on one side" if flat else f"{_models(n)} can show nothing"
        return Verdict(
            outcome=Outcome.TOO_FEW,
            sentence=f"Too few models to tell: {why}. About {for_bar} models would show a correlation of {bar:.2f}.",
            needed=None,
            needed_for_bar=for_bar,
        )
    needed = models_needed(value, alpha=alpha) if value else None
    outcome, sentence = _read(n, value, low, high, p, bar, alpha, needed, for_bar)
    return Verdict(outcome=outcome, sentence=sentence, needed=needed, needed_for_bar=for_bar)


def _read(
    n: int, value: float, low: float, high: float, p: float, bar: float, alpha: float, needed: int | None, for_bar: int
) -> tuple[Outcome, str]:
    figures = f"Spearman {value:.2f}, 95 % interval {low:.2f} to {high:.2f}, p {_p(p)}"
    if p < alpha and value < 0:
        return Outcome.REVERSED, (
            f"It predicts the wrong way round: over {_models(n)}, what ranks high here ranks low downstream "
            f"({figures})."
        )
    if p < alpha and high < bar:
        return Outcome.DOES_NOT, (
            f"It does not predict well enough: over {_models(n)} there is a correlation, but one of {bar:.2f} can be "
            f"ruled out ({figures})."
        )
    if p < alpha:
        how = "strongly" if low >= bar else "how strongly is open"
        return Outcome.PREDICTS, f"It predicts the downstream ranking, {how}: over {_models(n)}, {figures}."
    if high < bar:
        return Outcome.DOES_NOT, (
            f"It does not predict the downstream ranking: over {_models(n)}, a correlation of {bar:.2f} can be ruled "
            f"out ({figures})."
        )
    return Outcome.TOO_FEW, (
        f"Too few models to tell: with {_models(n)}, chance gives a correlation as far from 0 in "
        f"{100 * p:.0f} % of the cases ({figures}). {_would(value, bar, needed, for_bar)}"
    )


def _would(value: float, bar: float, needed: int | None, for_bar: int) -> str:
    known = f"{for_bar} models would show a correlation of {bar:.2f}"
    if needed is None or needed >= MOST_MODELS:
        return f"About {known} with 80 % power."
    return f"About {needed} models would show one of {abs(value):.2f}, and {known}, with 80 % power."


def _models(n: int) -> str:
    return "1 model" if n == 1 else f"{n} models"


def _p(p: float) -> str:
    return "< 0.001" if p < 0.001 else f"= {p:.3f}" if p < 0.01 else f"= {p:.2f}"
