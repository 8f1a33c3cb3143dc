"""The response-only classifier: it finds a planted word, and mirrored data leave it at exactly one half."""

import numpy as np
import pytest

from prbench.construction.check.duplicates import PairKey
from prbench.construction.check.floors import classify, row_groups, tfidf_differences


def texts(count: int, mark: str = ""):
    """Responses of words drawn alike for both sides, and a mark on the chosen one."""
    dice = np.random.default_rng(0)
    words = np.array([f"word{n}" for n in range(40)])
    drawn = [" ".join(dice.choice(words, 12)) for _ in range(2 * count)]
    return [f"{mark} {text}" for text in drawn[:count]], drawn[count:]


def test_a_planted_word_gives_it_away_and_is_named() -> None:
    differences = tfidf_differences(*texts(400, "however"))
    assert differences is not None
    result = classify(differences[0], np.arange(400))
    assert result is not None
    assert result.points.mean() == pytest.approx(1.0, abs=0.02)
    assert result.telling(differences[1])["chosen"][0] == "however"


def test_without_a_mark_it_is_near_chance() -> None:
    differences = tfidf_differences(*texts(400))
    assert differences is not None
    result = classify(differences[0], np.arange(400))
    assert result is not None
    assert abs(result.points.mean() - 0.5) < 4 * 0.5 / np.sqrt(400)


@pytest.mark.parametrize("mark", ["", "however"])
def test_mirrored_data_give_exactly_one_half(mark: str) -> None:
    chosen, rejected = texts(60, mark)
    differences = tfidf_differences(chosen + rejected, rejected + chosen)
    assert differences is not None
    result = classify(differences[0], np.tile(np.arange(60), 2))
    assert result is not None
    assert result.points.mean() == 0.5


@pytest.mark.parametrize("dense", [False, True])
def test_it_is_antisymmetric(dense: bool) -> None:
    differences = tfidf_differences(*texts(60, "however"))
    assert differences is not None
    matrix = differences[0].toarray().astype(float) if dense else differences[0]
    as_is, turned = classify(matrix, np.arange(60)), classify(-matrix, np.arange(60))
    assert as_is is not None
    assert turned is not None
    # Turned round, all labels flip as well, so the classifier learns the opposite and says the same.
    np.testing.assert_allclose(as_is.scores, turned.scores, atol=1e-4)
    np.testing.assert_allclose(as_is.weights, -turned.weights, atol=1e-4)


def test_equal_responses_are_a_tie() -> None:
    matrix = np.array([[1.0], [1.0], [0.0], [1.0]])
    result = classify(matrix, np.arange(4))
    assert result is not None
    assert result.points.tolist() == [1, 1, 0.5, 1]


def test_no_common_words_and_a_single_group() -> None:
    assert tfidf_differences(["one"], ["two"]) is None
    assert tfidf_differences(["!"], ["?"]) is None
    assert classify(np.ones((3, 1)), np.zeros(3, dtype=np.int64)) is None


def key(user: str, chosen: int, rejected: int) -> PairKey:
    return PairKey(user=user, question=0, chosen=chosen, rejected=rejected)


def test_equal_pairs_and_users_stay_together_where_groups_remain_small() -> None:
    # a-b by the pair (1, 2) in either order, b again by the user; the others alone: 3 of 11 rows is below 30 %
    keys = [key("a", 1, 2), key("b", 2, 1), key("b", 3, 4), *(key(f"u{n}", 10 + n, 50 + n) for n in range(8))]
    groups, together = row_groups(keys)
    assert together == "pairs and users"
    assert groups[0] == groups[1] == groups[2]
    assert len(set(groups.tolist())) == 9


def test_only_equal_pairs_stay_together_where_users_would_join_everything() -> None:
    keys = [key("a", 1, 2), key("b", 2, 1), key("b", 3, 4), key("c", 5, 6)]  # 3 of 4 rows would hang together
    groups, together = row_groups(keys)
    assert together == "pairs"
    assert groups[0] == groups[1] != groups[2]
