"""Style features and standardised differences, worked out by hand."""

import math

import numpy as np
import pytest

from prbench.check.finding import BAD, GOOD
from prbench.check.style import FEATURES, MOST_DZ, check_rated_length, check_style, features, standardised
from prbench.check.texts import sentences, words


def test_features_of_a_text() -> None:
    found = dict(zip(FEATURES, features("I'm here! Are we 42?\n- **My** list"), strict=True))
    assert found == {
        "characters": 34,
        "words": 7,  # i'm here are we 42 my list
        "sentences": 3,
        "words per sentence": pytest.approx(7 / 3),
        "characters per word": pytest.approx(20 / 7),
        "list and Markdown marks": 3,  # the dash and two pairs of stars
        "question marks": 1,
        "exclamation marks": 1,
        "digits": 2,
        "first person": 3,
        "type-token ratio": 1.0,
    }


def test_words_and_sentences_of_other_scripts() -> None:
    assert words("Ein Café, 東京") == ["ein", "café", "東", "京"]
    assert sentences("東京。大阪。") == ["東京。", "大阪。"]
    assert sentences("3.5 litres. Enough") == ["3.5 litres.", "Enough"]


def test_dz_and_its_interval_by_hand() -> None:
    differences = np.array([1.0, 2.0, 3.0, 2.0])  # mean 2, variance 2/3
    estimate = standardised(differences, ["a", "b", "c", "d"])
    dz = 2 / math.sqrt(2 / 3)
    half = 1.959964 * math.sqrt((2 / 3) / 4 / (2 / 3) + dz**2 / 8)
    assert estimate.value == pytest.approx(dz)
    assert (estimate.low, estimate.high) == (pytest.approx(dz - half, abs=1e-5), pytest.approx(dz + half, abs=1e-5))


def test_rows_of_one_user_widen_the_interval() -> None:
    differences = np.array([1.0, 1.0, -1.0, -1.0, 1.0, 1.0])
    alone = standardised(differences, list("abcdef"))
    in_twos = standardised(differences, list("aabbcc"))
    assert alone.value == in_twos.value
    assert in_twos.high - in_twos.low > alone.high - alone.low


def test_a_constant_difference_has_the_largest_dz_and_none_has_zero() -> None:
    assert standardised(np.ones(50), list(map(str, range(50)))).value == MOST_DZ
    nothing = standardised(np.zeros(5), list("abcde"))
    assert (nothing.value, nothing.low, nothing.high) == (0, 0, 0)
    assert standardised(np.ones(1), ["a"]).low < 0  # one row proves nothing


def test_planted_exclamation_marks_are_named(pair, open_rows) -> None:
    rows = [pair(n, chosen=f"Take alpha{n} and beta{n} together!") for n in range(40)]
    finding = check_style(open_rows(rows))
    assert finding.verdict == BAD
    assert "exclamation marks" in finding.figure
    assert "exclamation marks" in finding.remedy
    assert finding.values["exclamation marks"]["mean_difference"] == 1.0


def test_mirrored_pairs_have_no_difference(pair, open_rows) -> None:
    rows = [pair(n, chosen=f"Take alpha{n}! Now.") for n in range(40)]
    turned = [row | {"id": f"m{n}", "user_id": f"m{n}", "chosen": row["rejected"], "rejected": row["chosen"]}
              for n, row in enumerate(rows)]  # fmt: skip
    finding = check_style(open_rows([*rows, *turned]))
    assert finding.verdict == GOOD
    assert all(values["value"] == pytest.approx(0, abs=1e-9) for values in finding.values.values())


def rated(number: int, response: str, rating: float):
    return {"id": f"r{number}", "question": "Which?", "profile": [], "response": response, "rating": rating}


def test_length_and_rating(open_rows) -> None:
    grows = [rated(n, "x" * (n + 1), n / 40) for n in range(40)]
    finding = check_rated_length(open_rows(grows))
    assert (finding.verdict, finding.values["spearman"]["value"]) == (BAD, pytest.approx(1.0))
    # Lengths 1, 2 with both ratings equally often: no correlation.
    flat = [rated(n, "x" * (1 + n % 2), (n // 2) % 2) for n in range(40)]
    finding = check_rated_length(open_rows(flat))
    assert (finding.verdict, finding.values["spearman"]["value"]) == (GOOD, pytest.approx(0.0, abs=1e-6))
    assert "too few" in check_rated_length(open_rows(grows[:2])).figure
