"""What a model gets of a user is what was written, through every path: records, never a text taken apart again."""

import json
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from prbench.context import LabeledContext, make_context, required_contexts
from prbench.context.labels import read_labels
from prbench.data import open_examples
from prbench.data.rows import visible
from prbench.downstream.best_of_n.pool import Pool, PoolQuestion, RewardModelEntry, score_pool
from prbench.downstream.ppo.rollout import ModelReward, RewardCandidate
from prbench.evaluation import evaluate
from prbench.reward_models import wrap
from prbench.reward_models.base import user_row
from prbench.reward_models.fake import FakeReward
from prbench.schema import LABEL, ContextKind, Example, LabeledPair, Post, User, UserContext

PARTS = ("coins", " ", "\n", "\r\n", "\u2028", "\x0c", "- ", "  ", "```", LABEL, "\\", "Question: ", "é", "\n\n", "#")
nasty = st.lists(st.sampled_from(PARTS), max_size=6).map("".join) | st.text(max_size=12)
written = nasty.filter(visible)  # the border of the data refuses blank texts
pairs = st.builds(LabeledPair, question=written, chosen=written, rejected=written)


def recorder() -> FakeReward:
    return FakeReward(lambda each: float(len(each.response)))


def asker(posts: Sequence[str], number: int = 0, **texts: str) -> Example:
    user = User(id="ann", profile=tuple(Post(id=str(at), text=text) for at, text in enumerate(reversed(posts))))
    return Example(id=f"e{number}", user=user, **{"question": "Which?", "chosen": "A", "rejected": "B"} | texts)


@settings(max_examples=50, deadline=None)
@given(st.lists(written, max_size=4, unique=True), st.lists(pairs, max_size=2, unique=True))
@example([" edge ", "a\r\nb", "a\u2028b", "a\x0cb", "- a\n- b", "```", LABEL], [])
def test_a_model_gets_the_posts_and_labels_as_they_were_written(posts: list[str], labels: list[LabeledPair]) -> None:
    labels = [one for one in labels if one.chosen.split() != one.rejected.split()]
    item = asker(posts, question="What is under test?")
    given = [
        asker(posts, number, question=one.question, chosen=one.chosen, rejected=one.rejected)
        for number, one in enumerate(labels, 1)
    ]
    expected = UserContext(kind=ContextKind.PROFILE, segments=tuple(posts), labels=tuple(labels))

    in_eval = recorder()
    evaluate([item], in_eval, context="profile", labels=given or None)
    seen = {each.user for each in in_eval.inputs if each.user.used}
    assert seen == ({expected} if expected.used else set())

    maker = make_context("profile")
    if given:
        with open_examples(given) as store:
            maker = LabeledContext(maker, read_labels(store))
    in_bon = recorder()
    with TemporaryDirectory() as folder:
        pool = Pool(id="p", folder=Path(folder), n=2, answers={"e0": ("A", "B")}, truncated=0, incomplete={})
        question = PoolQuestion(example=item, donor=None)
        score_pool(pool, [question], RewardModelEntry(name="c", loaded=wrap(in_bon), maker=maker), seed=0)
    assert {(each.user.segments, each.user.labels) for each in in_bon.inputs} == {(expected.segments, expected.labels)}

    in_ppo = recorder()
    (told,) = required_contexts(maker, [item])
    ModelReward(wrap(in_ppo)).score([RewardCandidate(example=item, user=told, response="A")])
    assert [(each.user.segments, each.user.labels) for each in in_ppo.inputs] == [(expected.segments, expected.labels)]


kinds = st.sampled_from([ContextKind.PROFILE, ContextKind.PLAN, ContextKind.ORACLE])


@settings(max_examples=100, deadline=None)
@given(
    kinds, st.lists(nasty, max_size=4), st.lists(st.builds(LabeledPair, question=nasty, chosen=nasty, rejected=nasty))
)
def test_what_a_server_gets_of_a_user_is_the_same_record(
    kind: ContextKind, posts: list[str], labels: list[LabeledPair]
) -> None:
    pytest.importorskip("fastapi", reason="needs pip install 'prbench[serve]'")
    from prbench.serve.partners import ScoreBody
    from prbench.serve.protocol import InputRow, read_body
    from prbench.serve.settings import ServeSettings

    if kind is ContextKind.ORACLE:
        labels = []
    user = UserContext(kind=kind, segments=tuple(posts), labels=tuple(labels))
    body = json.dumps({"question": "Which?", **user_row(user), "response": "A"}).encode()
    _, (given,) = read_body(ScoreBody, body, ServeSettings())
    assert (given.user.segments, given.user.labels, given.context) == (user.segments, user.labels, user.text)
    assert InputRow.model_validate_json(body).as_inputs() == [given]


@given(nasty)
def test_a_text_from_outside_arrives_as_one_segment(text: str) -> None:
    pytest.importorskip("fastapi", reason="needs pip install 'prbench[serve]'")
    from prbench.serve.protocol import InputRow

    user = UserContext.from_text(text)
    rows = [{"context": text}, user_row(user)]
    for row in rows:
        body = json.dumps({"question": "Which?", **row, "response": "A"}).encode()
        assert InputRow.model_validate_json(body).as_inputs()[0].user == user
