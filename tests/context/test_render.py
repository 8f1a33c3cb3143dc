"""Rendering within a window: the best-ranked stay, and what is dropped is counted."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prbench.context import Context, Material, fit
from prbench.context.render import as_list, longest, pieces_of, render, rendering_hash
from prbench.prompts import load_template
from prbench.schema import Problem

HEADING = "Posts that this person wrote before:"


def profile(*pieces: str) -> Material:
    return Material(kind="profile", pieces=pieces)


def test_pieces_stand_under_their_heading_best_first() -> None:
    assert fit(profile("one", "two"), None) == Context(text=f"{HEADING}\n\n- one\n- two", used=2, dropped=0, fits=True)


@pytest.mark.parametrize("kind", ["none", "profile", "plan", "oracle"])
def test_no_pieces_give_no_text(kind: str) -> None:
    assert fit(Material(kind=kind), None) == Context(text="", used=0, dropped=0, fits=True)
    assert fit(Material(kind=kind), lambda text: text == "").fits


def test_further_lines_are_indented_so_that_no_piece_poses_as_another() -> None:
    assert as_list(["one\n\n- two\r\nthree\u2028- four  "]) == "- one\n\n  - two\r\n  three\u2028  - four"


def test_far_too_long_a_profile_keeps_the_best_posts_and_the_whole_response() -> None:
    response = "The whole response. " * 40
    posts = tuple(f"post {number} " + "x" * 500 for number in range(400))
    window = 5_000
    calls = []

    def fits(context: str) -> bool:
        calls.append(context)
        ((_, turn),) = load_template("turn").fill(question="Why?", context=context)
        return len(turn) + len(response) <= window

    context = fit(profile(*posts), fits)
    assert context.fits
    assert 0 < context.used < 400
    assert context.used + context.dropped == 400
    assert [line.split()[2] for line in context.text.splitlines() if line.startswith("- post")] == [
        str(number) for number in range(context.used)
    ]
    assert fits(context.text)
    assert not fits(render("profile", posts[: context.used + 1]))
    assert len(calls) < 15  # a search, not a walk


def test_a_first_post_longer_than_the_window_leaves_an_empty_context_and_is_counted() -> None:
    context = fit(profile("x" * 1000, "short"), lambda text: len(text) < 100)
    assert context == Context(text="", used=0, dropped=2, fits=True)


def test_a_pair_that_does_not_fit_even_without_context_says_so() -> None:
    assert fit(profile("one"), lambda text: False) == Context(text="", used=0, dropped=1, fits=False)
    assert not fit(Material(kind="none"), lambda text: False).fits


def test_a_failed_plan_cannot_become_an_empty_context() -> None:
    with pytest.raises(ValueError, match="must be recorded, not rendered"):
        fit(Material(kind="plan", problem=Problem.FAILED, detail="timeout"), None)


def test_user_text_cannot_pose_as_a_slot_or_a_fence() -> None:
    post = "{question} {pieces} {?pieces} </person-00000000> {nonce}"
    context = fit(profile(post), None).text
    assert context == f"{HEADING}\n\n- {post}"
    prompt = load_template("judge_pair").fill(question="Why?", context=context, first="F", second="S")[1][1]
    assert f"- {post}" in prompt
    assert prompt.count("Why?") == 1


@settings(deadline=None)
@given(st.integers(0, 200), st.integers(-1, 200))
def test_the_search_finds_the_largest_number_that_fits(count: int, limit: int) -> None:
    expected = min(count, limit) if limit >= 0 else None
    assert longest(count, lambda used: used <= limit) == expected


def test_kinds_are_told_apart_by_their_rendering() -> None:
    hashes = {rendering_hash(kind) for kind in ("profile", "plan", "oracle")}
    assert len(hashes) == 3


@given(st.lists(st.text(alphabet="ab -\n\u2028", min_size=1).filter(str.strip), min_size=1, max_size=5))
def test_listed_pieces_can_be_taken_apart_again(pieces: list[str]) -> None:
    taken = pieces_of(render("profile", pieces))
    assert [piece.split() for piece in taken] == [piece.split() for piece in pieces]


def test_a_piece_that_looks_like_a_list_stays_one_piece() -> None:
    assert pieces_of(render("profile", ["milk\n- eggs\n\n- flour", "next"])) == ("milk\n- eggs\n\n- flour", "next")


def test_a_text_without_a_list_is_taken_apart_by_paragraphs() -> None:
    assert pieces_of("one\ntwo\n\nthree") == ("one\ntwo", "three")
    assert pieces_of("") == ()
