"""One function says what the figures mean; each thing that it can say has a test."""

import pytest

from prbench.insight.meta.statistics import MOST_MODELS, MetaOutcome, conclude, models_needed


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
