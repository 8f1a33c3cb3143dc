"""A trained planner: its formula by hand, its bank, its tags, and the plan it gives as a context."""

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from prbench.context import Ask, load_planner, make_context
from prbench.context.aspect_planner import (
    AspectPlanner,
    BankAspect,
    PlannerFolder,
    PlannerWeights,
    candidates,
    log_odds,
    read_planner,
)
from prbench.errors import UsageError
from prbench.schema import ContextKind, Post, User, UserContext

WORDS = ("money", "hurry", "tent", "stew")
BANK = (BankAspect("money", "They count it."), BankAspect("hurry"), BankAspect("stew"))


class Words:
    """An encoder that counts four words, so that a test knows every vector."""

    name = "words"
    identity = {"name": "words"}  # noqa: RUF012

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        counts = np.array([[text.lower().count(word) for word in WORDS] for text in texts], dtype=np.float32)
        return counts / np.maximum(np.linalg.norm(counts, axis=1, keepdims=True), 1)


def weights(**changes: float) -> PlannerWeights:
    """One member with two topics, money and hurry; questions about tents (aspects 0, 1) and about stews (2)."""
    by_word = np.zeros((1, 4, 2), dtype=np.float32)
    by_word[0, 0, 0] = by_word[0, 1, 1] = 100.0
    post_weight = np.concatenate([by_word, np.zeros((1, 4, 1), dtype=np.float32)], axis=2)
    values = {"offset": 0.0, "prior": 0.0, "scale": 1.0, **changes}
    return PlannerWeights(
        post_weight=post_weight,
        post_bias=np.array([[[0, 0, 50.0]]], dtype=np.float32),
        aspect_weight=by_word,
        aspect_bias=np.zeros((1, 1, 2), dtype=np.float32),
        mix=np.eye(2, dtype=np.float32)[None],
        average=np.zeros((1, 1, 2), dtype=np.float32),
        **{name: np.array([value], dtype=np.float32) for name, value in values.items()},
        questions=Words().encode(["tent", "stew"]),
        shares=np.array([[0.5, 0.25, 0.0], [0.0, 0.0, 0.9]], dtype=np.float32),
        nearness=np.array(100.0, dtype=np.float32),
        thresholds=np.array([0.9, 0.7, 0.6], dtype=np.float32),
    )


def planner(**changes: float) -> AspectPlanner:
    return AspectPlanner(weights(**changes), BANK, Words())


def ask(*posts: str, question: str = "Which tent?", user: str = "ann") -> Ask:
    profile = tuple(Post(id=str(number), text=text) for number, text in enumerate(posts))
    return Ask(user=User(id=user, profile=profile), question=question)


def test_what_a_user_posts_about_is_what_they_look_for() -> None:
    (plan,) = planner().predict([["My money!", "Money again."]], ["Which tent?"])
    # Two posts wholly about money: wants log(1 + 2 * 2) for that topic and nothing for the other.
    assert [(one.aspect.aspect, one.tag) for one in plan] == [("money", "important"), ("hurry", "")]
    assert plan[0].probability == pytest.approx(5 / 6, abs=1e-6)
    assert plan[1].probability == pytest.approx(0.5, abs=1e-6)


def test_small_talk_says_nothing() -> None:
    (plan,) = planner().predict([["The sea was calm."]], ["Which tent?"])
    assert [one.probability for one in plan] == pytest.approx([0.5, 0.5], abs=1e-6)


def test_without_posts_the_population_decides() -> None:
    (plan,) = planner(prior=1.0).predict([[]], ["Which tent?"])
    assert [(one.aspect.aspect, one.probability) for one in plan] == [
        ("money", pytest.approx(0.5, abs=1e-4)),
        ("hurry", pytest.approx(0.25, abs=1e-4)),
    ]


def test_members_are_averaged_on_the_scale_of_log_odds() -> None:
    one = weights()
    two = PlannerWeights(
        **{
            name: np.concatenate([getattr(one, name)] * 2)
            if name not in ("questions", "shares", "nearness", "thresholds")
            else getattr(one, name)
            for name in PlannerWeights.__dataclass_fields__
        }
    )
    two.scale[1] = 3.0
    (plan,) = AspectPlanner(two, BANK, Words()).predict([["Money and money: money."]], ["tent"])
    odds = 2 * math.log(3)  # log(1 + 2) by the first, three times that by the second
    assert plan[0].probability == pytest.approx(1 / (1 + math.exp(-odds)), abs=1e-6)


def test_a_question_between_two_known_ones_has_the_aspects_of_both() -> None:
    one = weights()
    question = Words().encode(["tent and stew"])[0].astype(np.float64)
    places, prior = candidates(question, one.questions, one.shares, 1.0)
    assert places.tolist() == [0, 1, 2]
    assert prior == pytest.approx(log_odds(np.array([0.5, 0.25, 0.9])), abs=1e-6)


def test_the_three_tags_have_the_weights_of_p_check() -> None:
    tags = {}
    for scale in (0.3, 0.8, 1.0, 2.0):  # of log(5): the odds are 5 ** scale
        (plan,) = planner(scale=scale).predict([["money", "money too"]], ["tent"])
        tags[scale] = (plan[0].tag, plan[0].weight)
    assert tags == {0.3: ("optional", 0.3), 0.8: ("important", 0.7), 1.0: ("important", 0.7), 2.0: ("essential", 1.0)}


def test_the_context_lists_tagged_aspects_like_any_plan() -> None:
    maker = make_context("plan", planner=planner())
    plans = maker.contexts([ask("Money, money.", "Money."), ask(), ask("Calm sea.")])
    assert plans == [
        UserContext(kind=ContextKind.PLAN, segments=("money: They count it.",)),
        UserContext(kind=ContextKind.PLAN),  # no posts: nothing is known
        UserContext(
            kind=ContextKind.PLAN, segments=("money: They count it.",)
        ),  # nothing reached a tag: the likeliest alone
    ]


def test_a_context_sees_the_top_posts_only_and_plans_once() -> None:
    calls = []

    class Counting(AspectPlanner):
        def predict(self, posts, questions):  # type: ignore[no-untyped-def]
            calls.append((posts, questions))
            return super().predict(posts, questions)

    maker = make_context("plan", posts=1, planner=Counting(weights(), BANK, Words()))
    maker.contexts([ask("Money.", "Hurry!"), ask("Money.", "Hurry!", user="bob")])
    maker.contexts([ask("Money.", "Hurry!")])
    assert calls == [([("Hurry!",)], ["Which tent?"]), ([], [])]


def test_the_identity_changes_with_the_weights() -> None:
    assert planner().identity == planner().identity
    assert planner().identity["planner"] != planner(scale=2.0).identity["planner"]
    assert make_context("plan", planner=planner()).identity["kind"] == "plan"


def test_a_planner_is_saved_and_found_by_its_folder(tmp_path: Path) -> None:
    PlannerFolder(weights=weights(), bank=BANK, encoder="words").save(tmp_path)
    read = read_planner(tmp_path)
    assert (read.bank, read.encoder) == (BANK, "words")
    assert AspectPlanner(read.weights, read.bank, Words()).identity == planner().identity


def test_folders_without_a_planner_are_refused_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"there is no planner\.npz in that folder"):
        read_planner(tmp_path)
    with pytest.raises(UsageError, match="that folder holds no planner"):
        load_planner(str(tmp_path))
    PlannerFolder(weights=weights(), bank=BANK[:1], encoder="words").save(tmp_path)
    with pytest.raises(UsageError, match="belong to different planners"):
        read_planner(tmp_path)
    (tmp_path / "bank.json").write_text("[]")
    with pytest.raises(UsageError, match="cannot be read as a bank"):
        read_planner(tmp_path)


def test_any_chat_model_is_a_planner(tmp_path: Path) -> None:
    assert load_planner("fake:hello").name == "fake:hello"
    assert "hello" in load_planner("fake:hello", cache=tmp_path / "llm.sqlite").name
