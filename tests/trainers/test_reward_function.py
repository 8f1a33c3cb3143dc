"""A reward model as trainers call it pays what `evaluate` measures, and the rows hold what it needs and no more."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.support.tiny_llama import word_tokenizer

import prbench
from prbench.errors import DataError, UsageError
from prbench.evaluation import Run
from prbench.reward_models import load_model
from prbench.reward_models.fake import FakeReward

LIMIT, WINDOW = 8, 220
CONTEXTS: dict[str, dict[str, Any]] = {
    "ten newest posts": {},
    "two posts": {"posts": 2},
    "three posts by words": {"posts": 3, "rank": "bm25"},
    "nothing": {"context": "none"},
}


def check_paid_as_scored(run: Run, model: Any, **told: Any) -> None:
    """Compare the rewards of all responses with the run's scores, bit by bit: in one call, and one by one."""
    reward = prbench.reward_function(model, **told)
    rows = [row for row in prbench.prompt_rows("lab", limit=LIMIT) for _ in range(2)]
    columns = {name: [row[name] for row in rows] for name in rows[0] if name != "prompt"}
    prompts = [row["prompt"] for row in rows]
    completions = [text for each in prbench.load_dataset("lab", limit=LIMIT) for text in (each.chosen, each.rejected)]
    scored = [row for row in run.rows() for _ in range(2)]
    wanted = [value for row in run.rows() for value in (row.score_chosen, row.score_rejected)]
    assert None not in wanted
    assert len(set(wanted)) >= LIMIT
    assert reward(prompts, completions, **columns) == wanted
    for place, text in enumerate(completions):
        if scored[place].posts_dropped == 0:  # else the longer response of the pair says what both are shown
            one = {name: some[place : place + 1] for name, some in columns.items()}
            assert reward(prompts[place : place + 1], [text], **one) == [wanted[place]]


@pytest.mark.parametrize("told", CONTEXTS.values(), ids=CONTEXTS.keys())
@pytest.mark.parametrize("model", ["control:longest", "head:lab-user", "control:overlap?noise=0.5"])
def test_a_reward_is_the_score_of_an_evaluation(model: str, told: dict[str, Any]) -> None:
    if model == "control:longest" and told:
        pytest.skip("a length is the same whatever is told")
    check_paid_as_scored(prbench.evaluate("lab", model, limit=LIMIT, probes="own", **told), model, **told)


@pytest.fixture(scope="module")
def classifier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Save a classifier of two layers that reads the lab's words."""
    torch = pytest.importorskip("torch", reason="needs pip install 'prbench[hf]'")
    from transformers import LlamaConfig, LlamaForSequenceClassification

    examples = list(prbench.load_dataset("lab", limit=LIMIT))
    texts = [text for each in examples for text in (each.question, each.chosen, each.rejected)]
    tokenizer = word_tokenizer(texts + [post.text for each in examples for post in each.user.profile])
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=WINDOW,
        initializer_range=0.3,
        num_labels=1,
        pad_token_id=None,
    )
    folder = tmp_path_factory.mktemp("classifier")
    LlamaForSequenceClassification(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.mark.parametrize("told", CONTEXTS.values(), ids=CONTEXTS.keys())
@pytest.mark.parametrize("sharing", [True, False])
def test_a_classifier_pays_what_it_scores(classifier: Path, told: dict[str, Any], sharing: bool) -> None:
    model = load_model(f"classifier:{classifier}?batch_size=1&share_prefixes={str(sharing).lower()}")
    run = prbench.evaluate("lab", model, limit=LIMIT, probes="own", **told)
    assert model.window == WINDOW
    assert any(row.posts_dropped for row in run.rows()) == (not told)  # ten posts are more than the window holds
    check_paid_as_scored(run, model, **told)


def test_batches_of_a_classifier_are_those_of_the_evaluation(classifier: Path) -> None:
    told = {"posts": 2}
    model = load_model(f"classifier:{classifier}?share_prefixes=false")
    run = prbench.evaluate("lab", model, limit=LIMIT, probes="own", **told)
    rows = [row for row in prbench.prompt_rows("lab", limit=LIMIT) for _ in range(2)]
    columns = {name: [row[name] for row in rows] for name in rows[0] if name != "prompt"}
    completions = [text for each in prbench.load_dataset("lab", limit=LIMIT) for text in (each.chosen, each.rejected)]
    found = prbench.reward_function(model, **told)([row["prompt"] for row in rows], completions, **columns)
    assert found == [value for row in run.rows() for value in (row.score_chosen, row.score_rejected)]


def test_messages_and_texts_are_read_alike() -> None:
    reward = prbench.reward_function("control:overlap")
    profile = [[{"id": "p", "text": "I count coins."}], [{"text": "I like parks."}]]
    prompts = ["How do I save?", [{"role": "user", "content": "How do I save?"}]]
    completions = ["Count coins.", [{"role": "assistant", "content": [{"type": "text", "text": "Count coins."}]}]]
    fits, other = reward(prompts=prompts, completions=completions, profile=profile, unknown=[1, 2])
    assert fits is not None
    assert other == 0.0
    assert fits > other
    assert prbench.reward_function("control:overlap", "none")(prompts, completions) == [0.0, 0.0]
    with pytest.raises(UsageError, match="only compares"):
        prbench.reward_function("judge:fake:A")


def test_a_row_of_somebody_else_and_an_answer_without_text_have_no_score() -> None:
    """A trainer with several tasks calls every reward for every row; a call of a tool says nothing to a user."""
    reward = prbench.reward_function("control:longest")
    completions: list[Any] = [
        "long",
        "long",
        [{"role": "assistant", "content": None, "tool_calls": []}],
        [],
        "",
        " \n",
    ]
    profiles: list[Any] = [[{"text": "I am brief."}], None, [], [], [], []]
    assert reward(["Q?"] * 6, completions, profile=profiles) == [4.0, None, None, None, None, None]
    assert prbench.reward_function("control:longest?fail=1")(["Q?"], ["long"], profile=[[]]) == [None]


@pytest.mark.parametrize(
    "given",
    [
        5,
        [5],
        ["a text"],
        {"role": "assistant", "content": "A"},
        [{"role": "assistant", "content": 5}],
        [{"role": "assistant", "content": ["a", "b"]}],
    ],
    ids=str,
)
def test_what_is_neither_text_nor_messages_is_refused_by_its_place(given: Any) -> None:
    reward = prbench.reward_function("control:longest", "none")
    with pytest.raises(UsageError, match=r"control:longest: completion 1 is .* Give a text, or messages"):
        reward(["Q?", "Q?"], ["A", given])
    with pytest.raises(UsageError, match=r"control:longest: prompt 0 is .* Give a text, or messages"):
        reward([given], ["A"])


def test_the_question_of_a_conversation_is_what_its_user_said_last() -> None:
    profile = [[{"text": "I count coins."}]]
    begun = [
        {"role": "user", "content": "Hello"},
        {"role": "assistant", "content": "Hi"},
        {"role": "user", "content": "How do I save?"},
    ]
    model = FakeReward(lambda each: float(len(each.response)))
    reward = prbench.reward_function(model)
    for prompt in (begun, [*begun, {"role": "assistant", "content": "Sure, "}]):
        assert reward([prompt], ["four"], profile=profile) == [4.0]
    assert [each.question for each in model.inputs] == ["How do I save?"] * 2


def test_a_reward_function_shows_what_its_spec_says() -> None:
    asked = {"prompts": ["How do I save?"], "completions": ["Count coins."], "profile": [[{"text": "I count coins."}]]}
    assert prbench.reward_function("control:overlap?context=none")(**asked) == [0.0]
    (told,) = prbench.reward_function("control:overlap?context=profile", "none")(**asked)
    assert told is not None
    assert told > 0
    with pytest.raises(UsageError, match="shown no labeled pairs"):
        prbench.reward_function("control:overlap?labels=nofile&shots=3")
    with pytest.raises(UsageError, match="trainers pass no rubrics"):
        prbench.reward_function("control:gold")


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ({}, "have no column `profile`, which context=profile needs"),
        ({"profile": [[], []]}, "1 questions, 2 profiles, 1 user ids and 1 completions"),
        ({"profile": [[{"id": "p"}]]}, "post 0 has no text"),
    ],
)
def test_columns_that_cannot_be_read_are_refused(columns: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        prbench.reward_function("control:overlap")(["Q"], ["A"], **columns)


def test_rows_hold_what_the_reward_needs_and_nothing_of_the_truth() -> None:
    examples = list(prbench.load_dataset("lab", limit=4))
    for trainer in ("trl", "verl", "openrlhf"):
        rows = prbench.prompt_rows("lab", trainer, limit=4)
        assert len(rows) == 4
        for row, example in zip(rows, examples, strict=True):
            text = json.dumps(row, ensure_ascii=False)
            hidden = [example.chosen, example.rejected, example.narrative, *(each.reason for each in example.rubric)]
            assert not [each for each in hidden if each and json.dumps(each, ensure_ascii=False)[1:-1] in text]
            assert row["prompt"][-1] == {"role": "user", "content": f"Question: {example.question}"}
    (row,) = prbench.prompt_rows("lab", limit=1, policy_context="profile", posts=2, plain=True)
    newest = [post.text for post in examples[0].user.profile[::-1][:2]]
    assert all(text in row["prompt"] for text in newest)
    assert [post["text"] for post in row["profile"]] == [post.text for post in examples[0].user.profile]
    label = json.loads(prbench.prompt_rows("lab", "openrlhf", limit=1, posts=2, ends=["<|end|>"])[0]["label"])
    assert label["user"] == {"kind": "profile", "posts": newest, "labels": []}
    assert (label["question"], label["ends"]) == (examples[0].question, ["<|end|>"])
    known = json.loads(prbench.prompt_rows("lab", "verl", limit=1, context="none")[0]["extra_info"]["user"])
    assert known["posts"] == []


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"trainer": "axolotl"}, "Use one of: trl, verl, openrlhf"),
        ({"context": "none"}, "for TRL, give it to reward_function"),
        ({"ends": ["</s>"]}, "only OpenRLHF's answers"),
        ({"policy_context": "oracle"}, "no row may hold"),
        ({"policy_context": "plan"}, "needs a planner"),
    ],
)
def test_rows_that_make_no_sense_are_refused(given: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        prbench.prompt_rows("lab", **given)


def test_rated_rows_ask_nothing() -> None:
    rated = [{"id": "r", "question": "Q?", "profile": [], "response": "A", "rating": 0.5}]
    with pytest.raises(DataError, match="prompts are made of pairs"):
        prbench.prompt_rows(rated)
