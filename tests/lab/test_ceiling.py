"""The ceiling for readers of posts: what the posterior of a user's wants says, by hand and against drawn users."""

import math
import runpy
from pathlib import Path

import pytest

from prbench.lab import texts_of_share
from prbench.lab.population import LEVELS, POPULARITY, TRAITS, Users, load_library

CEILING = runpy.run_path(str(Path(__file__).parents[2] / "experiments" / "lab_ceiling.py"))
posterior, points = CEILING["posterior"], CEILING["points"]


def test_with_as_many_posts_as_wants_nothing_is_left_to_guess() -> None:
    wants = frozenset({"thrift", "craft", "nature"})
    assert list(posterior(wants, 8)) == [wants]
    assert points(posterior(wants, 8), frozenset({"craft"}), frozenset({"time"})) == 1
    assert points(posterior(wants, 8), frozenset({"time"}), frozenset({"craft"})) == 0


def test_three_posts_on_three_traits_may_be_of_somebody_who_wants_more() -> None:
    wants = frozenset({"thrift", "craft", "nature"})
    found = posterior(wants, 3)
    assert len(found) == 1 + 5 + 10  # no other, one of five others, two of five
    # A fourth want: its odds, and a quarter of the draws show these three.
    more = POPULARITY["beauty"] / (1 - POPULARITY["beauty"]) / 4
    assert found[wants | {"beauty"}] / found[wants] == pytest.approx(more)


def test_a_post_that_says_nothing_of_the_pair_leaves_the_more_popular_side() -> None:
    found = posterior(frozenset({"craft"}), 1)
    assert points(found, frozenset({"thrift"}), frozenset({"beauty"})) == 1
    assert points(found, frozenset({"beauty"}), frozenset({"thrift"})) == 0
    assert points(found, frozenset({"time"}), frozenset({"time"})) == 0.5


def test_drawn_users_want_what_the_posterior_expects_of_one_post() -> None:
    pool, _ = texts_of_share(load_library(), "test", 0)
    trait_of = {text: trait for trait in TRAITS for level in LEVELS for _, text in pool.signals[trait, level]}
    users = [user for user in Users(12_000, "ceiling", 0, pool) if user.informative == 1]
    for trait in ("thrift", "beauty"):
        expected = []
        for user in users:
            (shown,) = (trait_of[post.text] for post in user.user.profile if post.text in trait_of)
            wants = posterior(frozenset({shown}), 1)
            expected.append(sum(weight for want, weight in wants.items() if trait in want) / sum(wants.values()))
        share = sum(trait in user.wanted for user in users) / len(users)
        assert share == pytest.approx(sum(expected) / len(users), abs=3 * math.sqrt(0.25 / len(users)))
