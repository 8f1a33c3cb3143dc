"""Rubrics by coins: nested samples, fair shares, and one folder for both kinds of chain."""

from pathlib import Path

import pytest

from prbench.errors import UsageError
from prbench.reward_models import ModelSettings, load_reward_model
from prbench.reward_models.sampled_rubrics import draw


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
    """10,000 coins of 0.3: five standard errors are 0.023."""
    shares = draw([0.0, 0.3, 1.0], ["a post"], "Why?", 10_000, 0).mean(axis=0)
    assert shares[0] == 0.0
    assert shares[1] == pytest.approx(0.3, abs=0.023)
    assert shares[2] == 1.0


def test_options_of_chat_models_mean_nothing_to_a_folder(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="temperature is for chat models"):
        load_reward_model(f"rubric-chain:{tmp_path}?temperature=0.5", ModelSettings())


def test_a_folder_without_a_planner_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"there is no planner\.npz in that folder"):
        load_reward_model(f"rubric-chain:{tmp_path}", ModelSettings())
