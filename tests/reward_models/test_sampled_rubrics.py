"""Rubrics by coins: nested samples, fair shares, and one folder for both kinds of chain."""

from pathlib import Path

import numpy as np
import pytest

from prbench.errors import UsageError
from prbench.reward_models import ModelSettings, load_reward_model
from prbench.reward_models.rubric_chain import draw


def test_the_first_samples_are_those_of_fewer() -> None:
    sixteen = draw([0.3, 0.5, 0.9], ["a post"], "Why?", 16, 0)
    assert (draw([0.3, 0.5, 0.9], ["a post"], "Why?", 4, 0) == sixteen[:4]).all()


def test_coins_depend_on_seed_posts_and_question_but_not_on_the_order_of_posts() -> None:
    half = [0.5] * 64
    first = draw(half, ["a", "b"], "Why?", 1, 0)
    assert (draw(half, ["b", "a"], "Why?", 1, 0) == first).all()
    for posts, question, seed in ((["a"], "Why?", 0), (["a", "b"], "How?", 0), (["a", "b"], "Why?", 1)):
        assert (draw(half, posts, question, 1, seed) != first).any()


def test_an_aspect_is_in_as_many_rubrics_as_it_is_likely() -> None:
    """Of 64 coins that are spread evenly, each 64th of the line has one: a share is off by less than that."""
    for seed in range(20):
        shares = draw([0.0, 0.3, 0.6, 1.0], ["a post"], "Why?", 64, seed).mean(axis=0)
        assert (shares[0], shares[3]) == (0.0, 1.0)
        assert shares[1] == pytest.approx(0.3, abs=1 / 64)
        assert shares[2] == pytest.approx(0.6, abs=1 / 64)


def test_a_single_rubric_is_a_fair_draw() -> None:
    """4,000 seeds of one coin each: five standard errors of 0.3 are 0.036; two aspects do not go together."""
    drawn = np.concatenate([draw([0.3, 0.5], ["a post"], "Why?", 1, seed) for seed in range(4000)])
    assert drawn[:, 0].mean() == pytest.approx(0.3, abs=0.036)
    assert (drawn[:, 0] * drawn[:, 1]).mean() == pytest.approx(0.15, abs=0.03)


def test_options_of_chat_models_mean_nothing_to_a_folder(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="temperature is for chat models"):
        load_reward_model(f"rubric-chain:{tmp_path}?temperature=0.5", ModelSettings())


def test_a_folder_without_a_planner_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"there is no planner\.npz in that folder"):
        load_reward_model(f"rubric-chain:{tmp_path}", ModelSettings())
