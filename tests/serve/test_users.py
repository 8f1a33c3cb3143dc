"""What is known of a user, over HTTP: as records, or as one text that nobody takes apart."""

from collections.abc import Callable
from typing import Any

import pytest
from tests.support.contexts import profile

from prbench.reward_models import ModelSettings, load_reward_model
from prbench.reward_models.base import RewardModel
from prbench.reward_models.fake import FakeReward
from prbench.schema import ContextKind, LabeledPair, RewardInput, UserContext

Start = Callable[..., Any]
COINS = "I count every coin and never pay full price."
QUESTION, ANSWER = "How do I furnish a room?", "Buy second-hand, it costs next to nothing."
TENT = LabeledPair(question="Which tent?", chosen="A cheap one.", rejected="A dear one.")


LABEL = {"question": "Q", "chosen": "A", "rejected": "B"}


def value_of(server: Any, **about: Any) -> Any:
    reply = server.http.post("/score", json={"question": QUESTION, "response": ANSWER, **about})
    return reply.json()["scores"][0]["value"]


def test_prose_before_a_bullet_still_counts(start: Start) -> None:
    """A context was taken apart at its bullets, and what stood before the first of them was lost without a word."""
    loaded = load_reward_model("head:lab-user", ModelSettings())
    server = start(lambda: loaded)
    alone = value_of(server, context=COINS)
    with_bullet = value_of(server, context=f"{COINS}\n- ok")
    assert with_bullet != value_of(server, context="- ok")
    assert with_bullet == pytest.approx(alone, rel=0.2)  # the same post, with one word more
    assert with_bullet == value_of(server, user={"kind": "profile", "posts": [f"{COINS}\n- ok"]})


USERS = [
    UserContext(),
    profile(COINS),
    profile(" edges ", "a\r\nb", "a\u2028b", "a\x0cb", "- a\n\n- b", "```", "[compared two answers]", ""),
    profile(COINS, labels=(TENT,)),
    profile(labels=(TENT, TENT)),
    UserContext(kind=ContextKind.PLAN, segments=("low cost: counts pennies",)),
    UserContext.from_text("Somebody who saves.\n\n- ok\n\nAnd more."),
]


@pytest.mark.parametrize("spec", ["head:lab-user", "control:overlap", "control:embed"])
def test_scores_over_http_are_those_in_process(start: Start, spec: str) -> None:
    loaded = load_reward_model(spec, ModelSettings())
    served = load_reward_model(f"server:{start(lambda: loaded).url}", ModelSettings())
    inputs = [RewardInput(question=QUESTION, response=ANSWER, user=user) for user in USERS]
    assert isinstance(loaded.model, RewardModel)
    assert isinstance(served.model, RewardModel)
    assert served.model.score(inputs) == loaded.model.score(inputs)


def test_a_model_behind_the_server_gets_the_records(start: Start) -> None:
    seen = FakeReward(lambda each: 0.0)
    served = load_reward_model(f"server:{start(seen).url}", ModelSettings()).model
    assert isinstance(served, RewardModel)
    served.score([RewardInput(question=QUESTION, response=ANSWER, user=user) for user in USERS])
    assert [each.user for each in seen.inputs] == USERS
    assert [each.context for each in seen.inputs] == [user.text for user in USERS]


@pytest.mark.parametrize(
    "path,body", [("/v1/score", {"text_1": "Q", "text_2": "A"}), ("/v1/rerank", {"query": "Q", "documents": ["A"]})]
)
def test_the_other_protocols_take_a_user_too(start: Start, path: str, body: dict[str, Any]) -> None:
    seen = FakeReward(lambda each: 0.0)
    server = start(seen)
    user = {"kind": "profile", "posts": ["one", "two"], "labels": [LABEL]}
    for about in ({}, {"context": "one"}, {"user": user}):
        assert server.http.post(path, json={**body, **about}).status_code == 200
    pair = LabeledPair(question="Q", chosen="A", rejected="B")
    assert [each.user for each in seen.inputs] == [
        UserContext(),
        UserContext.from_text("one"),
        profile("one", "two", labels=(pair,)),
    ]


@pytest.mark.parametrize(
    "about,words",
    [
        ({}, "say what is known of the user: context or user"),
        ({"context": "", "user": {"kind": "none"}}, "context and user say the same in two ways"),
        ({"user": {"kind": "none", "posts": ["a"]}}, "kind is none, and there are posts"),
        ({"user": {"kind": "oracle", "posts": ["a"], "labels": [LABEL]}}, "an oracle knows all"),
        ({"user": {"kind": "narrative", "posts": ["a"]}}, "user.kind"),
        ({"user": {"kind": "profile", "posts": ["a"], "rubric": ["b"]}}, "user.rubric"),
    ],
)  # fmt: skip
def test_a_user_that_cannot_be_read_is_refused_in_one_line(start: Start, about: dict[str, Any], words: str) -> None:
    reply = start(FakeReward(lambda each: 0.0)).http.post("/score", json={"question": "Q", "response": "A", **about})
    assert reply.status_code == 422
    assert words in reply.json()["error"]["message"]
