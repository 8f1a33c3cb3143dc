"""One table says what the figures mean; each rule and each combination has a test."""

from itertools import product

import pytest

from prbench.insight.meta.intervals import MOST_MODELS, models_needed
from prbench.insight.meta.structural import NullBand
from prbench.insight.meta.verdict import RULES, MetaOutcome, conclude


@pytest.mark.parametrize(
    "figures,outcome,words",
    [
        ({"n": 24, "value": 0.9, "low": 0.7, "high": 0.97, "p": 0.0001}, MetaOutcome.PREDICTS, "strongly"),
        (
            {"n": 24, "value": 0.5, "low": 0.1, "high": 0.8, "p": 0.01},
            MetaOutcome.PREDICTS,
            "how strongly is open",
        ),
        (
            {"n": 24, "value": -0.6, "low": -0.9, "high": -0.2, "p": 0.002},
            MetaOutcome.REVERSED,
            "wrong way round",
        ),
        (
            {"n": 200, "value": 0.1, "low": -0.05, "high": 0.24, "p": 0.16},
            MetaOutcome.DOES_NOT,
            "can be ruled out",
        ),
        (
            {"n": 400, "value": 0.2, "low": 0.1, "high": 0.3, "p": 0.0001},
            MetaOutcome.DOES_NOT,
            "not predict well enough",
        ),
        (
            {"n": 6, "value": 0.26, "low": -0.65, "high": 0.84, "p": 0.66},
            MetaOutcome.TOO_FEW,
            "Too few models to tell",
        ),
        ({"n": 6, "value": 0.0, "low": -0.75, "high": 0.75, "p": 1.0}, MetaOutcome.TOO_FEW, "About 31 models"),
        ({"n": 6, "value": None, "low": None, "high": None, "p": None}, MetaOutcome.TOO_FEW, "the same score"),
        (
            {"n": 1, "value": None, "low": None, "high": None, "p": None},
            MetaOutcome.TOO_FEW,
            "1 model can show nothing",
        ),
        (
            {"n": 3, "value": 1.0, "low": None, "high": None, "p": 0.33},
            MetaOutcome.TOO_FEW,
            "3 models can show nothing",
        ),
    ],
)
def test_each_outcome(figures: dict[str, float], outcome: MetaOutcome, words: str) -> None:
    verdict = conclude(**figures)  # type: ignore[arg-type]
    assert verdict.outcome is outcome
    assert words in verdict.sentence
    assert "< 0.001" not in verdict.sentence or "= <" not in verdict.sentence


def test_too_few_names_the_number_that_would_be_needed() -> None:
    verdict = conclude(n=6, value=9 / 35, low=-0.65, high=0.84, p=0.66)
    assert (verdict.needed, verdict.needed_for_bar) == (124, 31)
    assert (
        "About 124 models would show one of 0.26, and 31 models would show a correlation of 0.50" in verdict.sentence
    )


def test_a_higher_bar_is_denied_earlier() -> None:
    figures = {"n": 30, "value": 0.3, "low": -0.1, "high": 0.6, "p": 0.1}
    assert conclude(**figures, bar=0.7).outcome is MetaOutcome.DOES_NOT  # type: ignore[arg-type]
    assert conclude(**figures, bar=0.5).outcome is MetaOutcome.TOO_FEW  # type: ignore[arg-type]


def test_models_needed_by_hand() -> None:
    # 3 + 1.06 (2.8016 / atanh 0.5)^2 = 30.57: 31 models.
    assert models_needed(0.5) == models_needed(-0.5) == 31
    assert models_needed(0.99) == 6
    assert models_needed(0.0) == models_needed(1e-6) == MOST_MODELS
    assert models_needed(0.5, power=0.9) > 31


# p, the interval, and where the figure lies beside the band of the design -> the rule that decides. The bar is 0.5.
INTERVALS = {
    "above 0, past the bar": (0.6, 0.9, 0.8),
    "above 0, holds the bar": (0.1, 0.8, 0.5),
    "above 0, below the bar": (0.1, 0.4, 0.2),
    "holds 0 and the bar": (-0.2, 0.7, 0.3),
    "holds 0, below the bar": (-0.2, 0.3, 0.1),
    "below 0": (-0.8, -0.1, -0.5),
}
BANDS = {"none": None, "inside": (-1.0, 1.0), "below": (0.95, 1.0), "above": (-1.0, -0.95)}
SHOWN, CHANCE = 0.001, 0.2
NAMES = {number: rule.name for number, rule in enumerate(RULES)}
EXPECTED = {
    (SHOWN, "above 0, past the bar"): 4,
    (SHOWN, "above 0, holds the bar"): 4,
    (SHOWN, "above 0, below the bar"): 2,
    (SHOWN, "holds 0 and the bar"): 6,
    (SHOWN, "holds 0, below the bar"): 5,
    (SHOWN, "below 0"): 1,
    (CHANCE, "above 0, past the bar"): 6,
    (CHANCE, "above 0, holds the bar"): 6,
    (CHANCE, "above 0, below the bar"): 5,
    (CHANCE, "holds 0 and the bar"): 7,
    (CHANCE, "holds 0, below the bar"): 5,
    (CHANCE, "below 0"): 5,
}


@pytest.mark.parametrize("p,interval,band", [*product((SHOWN, CHANCE), INTERVALS, BANDS)])
def test_every_combination(p: float, interval: str, band: str) -> None:
    low, high, value = INTERVALS[interval]
    limits = BANDS[band]
    found = conclude(
        n=24,
        value=value,
        low=low,
        high=high,
        p=p,
        families=12,
        band=None if limits is None else NullBand(low=limits[0], median=0.0, high=limits[1]),
    )
    number = EXPECTED[p, interval]
    if number == 4 and band == "inside":
        number = 3
    assert found.rule == NAMES[number]
    assert found.outcome is RULES[number].outcome
    # No sentence stands beside a figure that says otherwise without saying why.
    claims = found.outcome in (MetaOutcome.PREDICTS, MetaOutcome.AS_DESIGNED, MetaOutcome.REVERSED)
    holds_zero = low <= 0 <= high
    assert not (claims and (holds_zero or p >= 0.05))
    if not claims and p < 0.05 and holds_zero:
        assert "p is small although the interval holds 0" in found.sentence
    if not claims and p >= 0.05 and not holds_zero:
        assert "The interval leaves 0 out although p is not small" in found.sentence
    if found.outcome is MetaOutcome.TOO_FEW:
        assert "chance gives" not in found.sentence or (p >= 0.05 and holds_zero)
    if claims and found.outcome is not MetaOutcome.REVERSED and band != "none":
        words = {"inside": "no more than", "below": "less than", "above": "more than"}[band]
        assert f"{words} the design yields by itself" in found.sentence
    assert "over families" in found.sentence
    assert "24 models of 12 families" in found.sentence


def test_without_figures_the_first_rule_decides() -> None:
    assert conclude(n=9, value=0.9, low=None, high=None, p=None, families=3).rule == NAMES[0]
    assert (
        "9 models of 3 families can show nothing"
        in conclude(n=9, value=0.9, low=None, high=None, p=None, families=3).sentence
    )


def test_every_rule_can_decide() -> None:
    assert {0, 3, *EXPECTED.values()} == set(NAMES)
