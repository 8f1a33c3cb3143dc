"""How large a benchmark must be, from rows whose variances are known."""

import numpy as np
import pytest

from prbench.errors import DataError
from prbench.insight.meta.board import BoardPair
from prbench.insight.meta.resolution import measure_resolution

WORTH = [0.0, 0.1, 0.2, 0.3, 0.4, 0.5]


def test_more_users_agree_more(item_board) -> None:
    study = measure_resolution(item_board(WORTH, users=80, each=2, noise=1.0))
    assert (study.models, study.users, study.items) == (6, 80, 160)
    tried = [size for size in study.sizes if size.agreement is not None]
    assert [size.users for size in study.sizes] == [2, 5, 10, 20, 40, 80, 160, 320]
    assert [size.users for size in tried] == [2, 5, 10, 20, 40]
    assert tried[0].agreement < tried[-1].agreement
    assert all(one.reliability < two.reliability for one, two in zip(study.sizes, study.sizes[1:], strict=False))
    assert study.sizes[5].ceiling == pytest.approx(study.sizes[5].reliability ** 0.5)


def test_what_is_needed_follows_from_the_variances(item_board) -> None:
    study = measure_resolution(item_board(WORTH, users=400, each=2, noise=1.0))
    # Variance of the models 0.035, of one item 1: a reliability of 0.9 leaves a noise of 0.0039, or 257 items.
    needed = {each.reliability: each for each in study.needed}[0.9]
    assert needed.items == pytest.approx(257, rel=0.35)
    # There is nothing in common between items of one user, so twice the items need half of the users.
    by_items = needed.users_by_items
    assert by_items[1] / by_items[4] == pytest.approx(4, rel=0.2)
    assert by_items[2] == pytest.approx(needed.users, rel=0.05)


def test_models_needed_grow_with_noise(item_board) -> None:
    clean = measure_resolution(item_board(WORTH, users=100, noise=0.1)).power
    noisy = measure_resolution(item_board(WORTH, users=20, noise=1.5)).power
    assert [each.models for each in clean] == [each.models for each in noisy] == [90, 31, 15, 7]
    assert noisy[1].models_with_these_items > clean[1].models_with_these_items >= 31


def test_models_that_do_not_differ_need_too_many(item_board) -> None:
    study = measure_resolution(item_board([0.0] * 6, users=30, noise=1.0, seed=3))
    assert study.reliability < 0.6
    assert any("takes" in line for line in study.advice)
    as_json = study.as_json()
    assert as_json["needed"][0]["reliability"] == 0.8


def test_one_item_per_user_cannot_split_the_variance(item_board) -> None:
    study = measure_resolution(item_board(WORTH, users=50, each=1))
    assert study.needed[0].users_by_items == {}


def test_boards_that_cannot_be_studied(scores, item_board) -> None:
    with pytest.raises(DataError, match="has no item rows"):
        measure_resolution(scores(1, 2, 3, 4))
    with pytest.raises(DataError, match="3 models and 40 users are too few"):
        measure_resolution(item_board([0.0, 1.0, 2.0]))
    with pytest.raises(DataError, match="6 models and 2 users are too few"):
        measure_resolution(item_board(WORTH, users=2))


def test_it_is_the_same_each_time(item_board) -> None:
    board = item_board(WORTH, users=30)
    assert measure_resolution(board, seed=1) == measure_resolution(board, seed=1)
    assert not np.isnan(measure_resolution(board).sizes[0].agreement)


def test_parts_of_a_board_before_downstream(item_board, scores) -> None:
    board = item_board([*WORTH, 0.6, 0.7], users=40, noise=2.0)
    down = scores(*range(8)).renamed({chr(97 + place): f"m{place}" for place in range(8)})
    parts = measure_resolution(board, [BoardPair(benchmark=board, downstream=down)]).parts
    assert {part.models for part in parts} == {6, 8}
    whole = [part for part in parts if part.models == 8]
    assert [part.users for part in whole] == [2, 5, 10, 20, 40]
    assert whole[0].mean < whole[-1].mean
    assert whole[-1].low == whole[-1].high  # all users and all models: there is one way to take them
