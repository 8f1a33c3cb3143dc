"""The contexts by name: what they show, what they cannot see, and what names them in a run's id."""

import dataclasses
import re

import pytest

from prbench.backends.llm.client import ChatRequest, Message, Reply
from prbench.context import KINDS, Ask, leak_keys, make_context, oracle_context
from prbench.errors import DataError, UsageError
from prbench.schema import Aspect, Example, Post, User

MARKER = "narrative-and-rubric-marker"
USER = User(id="u", profile=tuple(Post(id=str(number), text=f"post {number}") for number in range(12)))
EXAMPLE = Example(
    id="e",
    user=USER,
    question="Which tent?",
    chosen="A cheap one.",
    rejected="A dear one.",
    rubric=(
        Aspect(aspect=f"low cost {MARKER}", reason=f"counts pennies {MARKER}", evidence=f"pennies {MARKER}"),
        Aspect(aspect="calm, no crowds"),
    ),
    narrative=f"I count my pennies. {MARKER}",
)


class Recorder:
    """A planner that answers the same to everything and keeps what it was asked."""

    name = "fake:recorder"
    window = None

    def __init__(self) -> None:
        self.asked: list[ChatRequest] = []

    def complete(self, requests: list[ChatRequest]) -> list[Reply]:
        self.asked += requests
        return [Reply(text="- low price: they say so") for _ in requests]

    def count_tokens(self, messages: list[Message]) -> int:
        return sum(len(message.content) for message in messages)


def ask_of(example: Example) -> Ask:
    return Ask(user=example.user, question=example.question)


def test_none_shows_nothing() -> None:
    (user,) = make_context("none").contexts([ask_of(EXAMPLE)])
    assert user.text == ""


def test_profile_shows_the_top_posts_and_no_more() -> None:
    (user,) = make_context("profile", posts=3).contexts([ask_of(EXAMPLE)])
    assert user.segments == ("post 11", "post 10", "post 9")


@pytest.mark.parametrize("kind", ["none", "profile", "plan"])
@pytest.mark.parametrize("rank", ["recent", "bm25"])
def test_a_user_without_posts_gets_an_empty_context(kind: str, rank: str) -> None:
    planner = Recorder()
    maker = make_context(kind, rank=rank, planner=planner)
    (user,) = maker.contexts([Ask(user=User(id="new"), question="Which tent?")])
    assert user.text == ""
    assert user.problem == ""
    assert planner.asked == []


def test_no_context_but_the_oracle_can_see_rubric_or_narrative() -> None:
    planner = Recorder()
    for kind in ("none", "profile", "plan"):
        (user,) = make_context(kind, planner=planner).contexts([ask_of(EXAMPLE)])
        assert MARKER not in repr(user)
    assert planner.asked
    assert MARKER not in repr(planner.asked)
    # Not by luck: there is no field through which they could come. `excluded_keys` holds digests alone.
    assert {field.name for field in dataclasses.fields(Ask)} == {"user", "question", "excluded_keys", "owner"}
    assert leak_keys(EXAMPLE) == leak_keys(dataclasses.replace(EXAMPLE, rubric=(), narrative=""))
    assert all(re.fullmatch("[0-9a-f]{32}", name) for name in leak_keys(EXAMPLE))
    assert {field.name for field in dataclasses.fields(User)} == {"id", "profile"}
    assert MARKER not in repr(ask_of(EXAMPLE))


def test_oracle_shows_the_gold_rubric() -> None:
    user = oracle_context(EXAMPLE)
    assert (
        f"- low cost {MARKER}: counts pennies {MARKER}\n  Evidence: pennies {MARKER}\n- calm, no crowds" in user.text
    )
    assert user.used == 2
    assert EXAMPLE.narrative not in user.text


def test_an_oracle_without_a_rubric_is_refused() -> None:
    with pytest.raises(DataError, match=r"Example e: .*--context oracle"):
        oracle_context(dataclasses.replace(EXAMPLE, rubric=()))


def test_the_oracle_is_not_made_from_users_and_questions() -> None:
    maker = make_context("oracle")
    assert maker.kind == "oracle"
    with pytest.raises(UsageError, match="contexts_of"):
        maker.contexts([ask_of(EXAMPLE)])


def test_identity_holds_all_that_changes_the_text() -> None:
    planner = Recorder()
    identities = [
        dict(make_context(kind, posts=posts, rank=rank, planner=planner, plan_tokens=tokens).identity)
        for kind, posts, rank, tokens in [
            ("none", 10, "recent", 512),
            ("oracle", 10, "recent", 512),
            ("profile", 10, "recent", 512),
            ("profile", 5, "recent", 512),
            ("profile", 10, "bm25", 512),
            ("plan", 10, "recent", 512),
            ("plan", 10, "recent", 900),
        ]
    ]
    assert all(identities.count(identity) == 1 for identity in identities)
    assert {identity["kind"] for identity in identities} == set(KINDS)
    assert identities[-1]["planner"] == "fake:recorder"


def test_wrong_options_are_refused() -> None:
    with pytest.raises(UsageError, match="none, profile, plan, oracle"):
        make_context("persona")
    with pytest.raises(UsageError, match="--posts 0"):
        make_context("profile", posts=0)
    with pytest.raises(UsageError, match="--rank 'newest'"):
        make_context("profile", rank="newest")
    with pytest.raises(UsageError, match="--planner"):
        make_context("plan")
