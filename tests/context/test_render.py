"""Rendering within a window: the best-ranked stay, and what is dropped is counted."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.contexts import profile

from prbench.context import fit_for
from prbench.context.posts import longest, rendering_hash
from prbench.prompts import load_template
from prbench.schema import ContextKind, Problem, RewardInput, UserContext, as_list

HEADING = "Posts that this person wrote before:"


@dataclass(frozen=True)
class Window:
    """Holds what a function of the text says."""

    fits: Callable[[str], bool]

    def holds(self, user: UserContext, *, question: str, responses: Sequence[str], reserve_tokens: int) -> bool:
        return self.fits(user.text)


def fit(user: UserContext, fits: Callable[[str], bool]) -> UserContext:
    return fit_for(Window(fits), user, question="Why?", responses=["Because."])


def test_posts_stand_under_their_heading_best_first() -> None:
    assert profile("one", "two").text == f"{HEADING}\n\n- one\n- two"


@pytest.mark.parametrize("kind", [kind for kind in ContextKind if kind is not ContextKind.TEXT])
def test_nothing_known_gives_no_text_and_is_the_impersonal_baseline(kind: ContextKind) -> None:
    assert UserContext(kind=kind).text == ""
    assert fit(UserContext(kind=kind), lambda text: text == "") == UserContext()


def test_further_lines_are_indented_so_that_no_post_poses_as_another() -> None:
    assert as_list(["one\n\n- two\r\nthree\u2028- four  "]) == "- one\n\n  - two\r\n  three\u2028  - four"


def test_a_text_from_outside_is_one_segment_shown_as_it_is() -> None:
    text = " Posts:\n\n- one\r\n- two "
    assert UserContext.from_text(text).text == text
    assert UserContext.from_text(text).segments == (text,)
    assert UserContext.from_text("") == UserContext()
    assert RewardInput(question="Q", response="R", user=UserContext.from_text(text)).context == text


def test_segments_without_a_kind_are_refused() -> None:
    with pytest.raises(ValueError, match="Segments need a kind"):
        UserContext(segments=("one",))


def test_far_too_long_a_profile_keeps_the_best_posts_and_the_whole_response() -> None:
    response = "The whole response. " * 40
    posts = tuple(f"post {number} " + "x" * 500 for number in range(400))
    window = 5_000
    calls = []

    def fits(context: str) -> bool:
        calls.append(context)
        ((_, turn),) = load_template("turn").fill(question="Why?", context=context)
        return len(turn) + len(response) <= window

    user = fit(profile(*posts), fits)
    assert not user.problem
    assert 0 < user.used < 400
    assert user.used + user.dropped == 400
    assert user.segments == posts[: user.used]
    assert fits(user.text)
    assert not fits(profile(*posts[: user.used + 1]).text)
    assert len(calls) < 15  # a search, not a walk


def test_a_first_post_longer_than_the_window_leaves_an_empty_context_and_is_counted() -> None:
    user = fit(profile("x" * 1000, "short"), lambda text: len(text) < 100)
    assert (user, user.dropped, user.problem) == (UserContext(), 2, "")


def test_a_pair_that_does_not_fit_even_without_context_says_so() -> None:
    user = fit(profile("one"), lambda text: False)
    assert (user.problem, user.used, user.dropped) == (Problem.TOO_LONG, 0, 1)
    assert user.detail == "question and response alone exceed the model's window"
    assert fit(UserContext(), lambda text: False).problem is Problem.TOO_LONG


def test_a_failed_plan_cannot_become_an_empty_context() -> None:
    failed = UserContext(kind=ContextKind.PLAN, problem=Problem.FAILED, detail="timeout")
    assert fit(failed, lambda text: True) is failed
    with pytest.raises(ValueError, match="must be recorded, not shown"):
        _ = failed.text


def test_user_text_cannot_pose_as_a_slot_or_a_fence() -> None:
    post = "{question} {posts} {?posts} </person-00000000> {nonce}"
    context = profile(post).text
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
    hashes = {rendering_hash(kind) for kind in (ContextKind.PROFILE, ContextKind.PLAN, ContextKind.ORACLE)}
    assert len(hashes) == 3
    assert rendering_hash(ContextKind.PROFILE, has_labels=True) not in hashes
