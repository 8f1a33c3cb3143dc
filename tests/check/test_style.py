"""Style features and standardized differences, worked out by hand."""

import math

import numpy as np
import pytest

from prbench.construction.check.finding import BAD, GOOD, SKIPPED, TOO_FEW
from prbench.construction.check.style import FEATURES, MOST_DZ, check_rated_length, check_style, features, standardized
from prbench.data.texts import sentences, words


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
    estimate = standardized(differences, ["a", "b", "c", "d"])
    dz = 2 / math.sqrt(2 / 3)
    error = math.sqrt((2 / 3) / 4 / (2 / 3) + dz**2 / 8)
    half = 3.182446 * error  # Student's t, 3 degrees of freedom, 0.975
    assert estimate.value == pytest.approx(dz)
    assert (estimate.low, estimate.high) == (pytest.approx(dz - half, abs=1e-5), pytest.approx(dz + half, abs=1e-5))
    corrected = standardized(differences, ["a", "b", "c", "d"], comparisons=11)
    assert corrected.high == pytest.approx(dz + 7.704063 * error, abs=1e-5)  # 1 - 0.05 / 22


def test_the_interval_is_over_users_by_hand() -> None:
    # Mean 1/3, variance 16/15. Centered sums of users: 4/3, -8/3, 4/3; sum of squares 32/3.
    estimate = standardized(np.array([1.0, 1.0, -1.0, -1.0, 1.0, 1.0]), list("aabbcc"))
    dz = (1 / 3) / math.sqrt(16 / 15)
    of_mean = 3 / 2 * (32 / 3) / 36
    half = 4.302653 * math.sqrt(of_mean / (16 / 15) + dz**2 / 6)  # 2 degrees of freedom; three users
    assert (estimate.value, estimate.high) == (pytest.approx(dz), pytest.approx(dz + half, abs=1e-5))


def test_rows_of_one_user_widen_the_interval() -> None:
    differences = np.array([1.0, 1.0, -1.0, -1.0, 1.0, 1.0])
    alone = standardized(differences, list("abcdef"))
    in_twos = standardized(differences, list("aabbcc"))
    assert alone.value == in_twos.value
    assert in_twos.high - in_twos.low > alone.high - alone.low


def test_a_constant_difference_has_the_largest_dz_and_none_has_zero() -> None:
    assert standardized(np.ones(50), list(map(str, range(50)))).value == MOST_DZ
    nothing = standardized(np.zeros(5), list("abcde"))
    assert (nothing.value, nothing.low, nothing.high) == (0, 0, 0)


@pytest.mark.parametrize("rows_each", [1, 100])
def test_the_same_difference_in_every_row_of_few_users_is_not_certain(rows_each: int) -> None:
    # By signs alone, 8 users agree by chance in 11 features with 11 * 2 / 2**8 = 0.086, 9 users with 0.043.
    def low(users: int) -> float:
        names = [str(user) for user in range(users) for _ in range(rows_each)]
        return standardized(np.ones(len(names)), names, comparisons=11).low

    assert low(5) < 0
    assert low(8) < 0 < low(9)
    assert low(9) == pytest.approx(10 - 3.899875 * math.sqrt(100 / 18), abs=1e-5)  # 8 degrees of freedom


def test_few_rows_or_users_are_skipped_with_a_remedy(pair, open_rows) -> None:
    def lively(rows: int, users: int):
        return open_rows(
            [pair(n, chosen=f"Take alpha{n} and beta{n} together!", user_id=str(n % users)) for n in range(rows)]
        )

    for rows, users in [(1, 1), (9, 9), (100, 4)]:
        finding = check_style(lively(rows, users))
        assert (finding.verdict, finding.figure, finding.values) == (SKIPPED, "too few rows", {})
        assert "10 rows of 5 users" in finding.remedy
    few = check_style(lively(10, 5))  # enough to look at, not to be certain
    assert (few.verdict, few.remedy.split(".")[0]) == (TOO_FEW, "10 rows of 5 users cannot tell a habit from chance")
    assert check_style(lively(10, 10)).verdict == BAD


def test_random_signs_seldom_raise_an_alarm() -> None:
    rng, users = np.random.default_rng(0), [str(user) for user in range(10)]
    alarms = 0
    for _ in range(200):
        signs = rng.choice([-1.0, 1.0], (10, len(FEATURES)))
        alarms += any(standardized(column, users, comparisons=len(FEATURES)).low > 0 for column in signs.T)
    assert alarms <= 10  # 5 %


def test_planted_exclamation_marks_are_named(pair, open_rows) -> None:
    rows = [pair(n, chosen=f"Take alpha{n} and beta{n} together!") for n in range(40)]
    finding = check_style(open_rows(rows))
    assert finding.verdict == BAD
    assert "exclamation marks" in finding.figure
    assert finding.figure.endswith("(interval corrected for 11 features)")
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
