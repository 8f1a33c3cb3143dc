"""From criteria to a score: the formula worked out by hand, and what must not change a score."""

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from prbench.context.aspect_planner import aspect_text
from prbench.errors import UsageError
from prbench.reward_models.planner import CriteriaScorer, CriteriaWeights, Criterion, covered

WORDS = ("cheap", "quick", "tea", "sea")


class Words:
    """An encoder that counts four words, so that a test knows every vector."""

    name = "words"
    identity = {"name": "words"}  # noqa: RUF012

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        counts = np.array([[text.lower().count(word) for word in WORDS] for text in texts], dtype=np.float32)
        return counts / np.maximum(np.linalg.norm(counts, axis=1, keepdims=True), 1)


def weights(*, sharpness: float = 0.0, cosine: float = 2.0) -> CriteriaWeights:
    return CriteriaWeights(
        criterion=np.zeros((4, 2), dtype=np.float32),
        sentence=np.zeros((4, 2), dtype=np.float32),
        cosine=np.float32(cosine).reshape(()),
        none=np.float32(0).reshape(()),
        sharpness=np.float32(sharpness).reshape(()),
        scale=np.float32(3).reshape(()),
    )


def test_criteria_compete_with_each_other_and_with_none_for_every_sentence() -> None:
    near = np.array([[math.log(2), math.log(5)], [math.log(3), -math.inf]])
    # Sentence 1: 2, 5 and 1 of 8 parts; sentence 2: 3, 0 and 1 of 4 parts. Sharpness 0 takes the mean.
    assert covered(near, 0.0, 0.0) == pytest.approx([(2 / 8 + 3 / 4) / 2, (5 / 8 + 0) / 2])


def test_a_large_sharpness_takes_the_best_sentence() -> None:
    near = np.array([[math.log(2)], [math.log(4)]])
    assert covered(near, 0.0, 1e4) == pytest.approx([4 / 5])


def test_a_score_is_the_weighted_sum_of_what_is_covered() -> None:
    scorer = CriteriaScorer(weights(), Words())
    (score,) = scorer.score([[Criterion("cheap", 0.7), Criterion("quick", 0.3)]], ["A cheap one. A sea."])
    e2 = math.exp(2)
    cheap, quick = (e2 / (e2 + 2) + 1 / 3) / 2, (1 / (e2 + 2) + 1 / 3) / 2
    assert score == pytest.approx(3 * (0.7 * cheap + 0.3 * quick), rel=1e-6)


def test_the_low_rank_form_adds_to_the_cosine() -> None:
    learned = weights(cosine=0.0)
    learned.criterion[WORDS.index("cheap"), 0] = 2.0
    learned.sentence[WORDS.index("tea"), 0] = 1.0
    (found,) = CriteriaScorer(learned, Words()).covered([["cheap"]], ["tea"])
    assert found == pytest.approx([math.exp(2) / (math.exp(2) + 1)])


def test_an_unwanted_rival_takes_a_sentence_away() -> None:
    scorer = CriteriaScorer(weights(), Words())
    alone, rivalled = scorer.score(
        [[Criterion("tea", 1.0)], [Criterion("tea", 1.0), Criterion("quick", 0.0)]], 2 * ["quick tea"]
    )
    assert rivalled < alone


@pytest.mark.parametrize("criteria,response", [([], "Cheap tea."), ([Criterion("cheap", 1.0)], ""), ([], "")])
def test_nothing_to_look_for_or_in_scores_nothing(criteria: list[Criterion], response: str) -> None:
    assert CriteriaScorer(weights(), Words()).score([criteria], [response]) == [0.0]


def test_scores_do_not_depend_on_company_or_order() -> None:
    scorer = CriteriaScorer(weights(sharpness=1.0), Words())
    criteria = [[Criterion(word, 0.5), Criterion("sea", 1.0)] for word in WORDS]
    responses = [f"{word} tea. Sea! Quick and cheap." for word in WORDS]
    together = scorer.score(criteria, responses)
    alone = [scorer.score([one], [text])[0] for one, text in zip(criteria[::-1], responses[::-1], strict=True)][::-1]
    assert together == alone


def test_saved_weights_come_back(tmp_path: Path) -> None:
    kept = weights(sharpness=0.5)
    kept.save(tmp_path)
    assert CriteriaWeights.load(tmp_path).hash == kept.hash


def test_a_folder_without_a_scorer_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"there is no criteria\.npz in that folder"):
        CriteriaWeights.load(tmp_path)
    np.savez(tmp_path / "criteria.npz", scale=1.0)
    with pytest.raises(UsageError, match="has no 'cosine'"):
        CriteriaWeights.load(tmp_path)


def test_an_aspect_is_one_text() -> None:
    assert aspect_text("Low cost", "They count pennies.") == "Low cost. They count pennies."
    assert aspect_text("Low cost") == "Low cost."
