"""Summaries on the shelf: keys, edits, caches, refusals; and the score by hand."""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from tests.support.contexts import profile

from prbench.backends.llm import FakeLLM, Finish, Reply
from prbench.errors import UsageError
from prbench.reward_models.summaries import (
    MOST_WRITTEN,
    SUMMARIES,
    LLMSummarizer,
    Statement,
    Summary,
    SummaryCache,
    SummaryReward,
    SummaryWeights,
    as_line,
    load_summary_reward,
    posts_key,
    read_summary,
)
from prbench.schema import Problem, RewardInput

WORDS = ("cheap", "quick", "other")


class ThreeWords:
    """An encoder with one dimension per word."""

    name = "words"
    identity = {"name": "words"}  # noqa: RUF012

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        return np.array([[float(word in text) for word in WORDS] for text in texts], dtype=np.float32).reshape(-1, 3)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model whose readers tell the words apart all but fully: 8 * 5 = 40 in the exponent."""
    monkeypatch.setattr("prbench.backends.encoders._load_once", lambda name: ThreeWords())
    sharp = 5 * np.eye(3, dtype=np.float32)
    number = np.float32
    weights = SummaryWeights(
        post_weight=sharp,
        post_bias=np.zeros(3, number),
        sentence_weight=sharp,
        sentence_bias=np.zeros(3, number),
        statement_weight=sharp[:, :2],
        statement_bias=np.zeros(2, number),
        mix=2 * np.eye(2, dtype=number),
        average=np.array([-1.0, -2.0], number),
        scale=np.array(3.0, number),
        least=np.array(0.1, number),
        most=np.array(2.0, number),
    )
    weights.save_with(tmp_path, ["a cheap thing", "a quick thing"], "bank")
    return tmp_path


def load(folder: Path, cache: Path | None = None) -> SummaryReward:
    return load_summary_reward(folder, cache=str(cache) if cache else None, ask=lambda spec: FakeLLM("none"))


def ask(response: str, *posts: str) -> RewardInput:
    return RewardInput(question="?", user=profile(*posts), response=response)


def value(model: SummaryReward, response: str, *posts: str) -> float:
    (score,) = model.score([ask(response, *posts)])
    assert score.value is not None
    return score.value


def sigmoid(odds: float) -> float:
    return float(round(1 / (1 + np.exp(-odds)), 2))


def test_the_score_by_hand(folder: Path) -> None:
    """One post on cheap: log-odds -1 + 2 log 3. One of two sentences is cheap: half of 3 times the share."""
    model = load(folder)
    expected = 3 * 0.5 * sigmoid(-1 + 2 * np.log(3))
    assert value(model, "It is cheap. Some other thing.", "cheap!") == pytest.approx(expected, abs=1e-6)


def test_without_posts_the_average_user_decides(folder: Path) -> None:
    model = load(folder)
    assert value(model, "cheap") == pytest.approx(3 * sigmoid(-1.0), abs=1e-6)
    assert value(model, "quick") == pytest.approx(3 * sigmoid(-2.0), abs=1e-6)


def test_scores_do_not_depend_on_batch_or_order(folder: Path) -> None:
    inputs = [ask(f"{word}. More {word}.", f"{post} post") for word in WORDS for post in WORDS]
    together = [score.value for score in load(folder).score(inputs)]
    alone = [load(folder).score([one])[0].value for one in inputs]
    assert together == alone


def test_an_edited_line_is_used_at_the_next_scoring_and_changes_the_identity(folder: Path) -> None:
    cache = folder / "cache" / "mine.jsonl"
    before = load(folder, cache)
    assert value(before, "quick", "cheap post") < value(before, "cheap", "cheap post")
    row = json.loads(cache.read_text())
    row["statements"] = ["They want it quick.", {"text": "They want it cheap.", "weight": -0.5}]
    cache.write_text(json.dumps(row) + "\n")
    after = load(folder, cache)
    assert value(after, "quick", "cheap post") == pytest.approx(3.0, abs=1e-6)
    assert value(after, "cheap", "cheap post") == pytest.approx(-1.5, abs=1e-6)
    assert before.identity["edited"] == ""
    assert after.identity["edited"] != ""


def test_an_edit_in_the_folder_counts_too(folder: Path) -> None:
    row = {"key": posts_key(["cheap post"]), "statements": ["quick"], "made_by": "somebody"}
    (folder / SUMMARIES).write_text(json.dumps(row) + "\n")
    assert value(load(folder), "quick", "cheap post") == pytest.approx(3.0, abs=1e-6)


def test_nothing_is_written_without_a_cache_and_never_into_the_folder(folder: Path, tmp_path: Path) -> None:
    files = sorted(folder.iterdir())
    value(load(folder), "cheap", "quick post")
    assert sorted(folder.iterdir()) == files
    cache = tmp_path / "other" / "cache.jsonl"
    value(load(folder, cache), "cheap", "quick post")
    assert len(cache.read_text().splitlines()) == 1
    value(load(folder, cache), "cheap", "quick post")
    assert len(cache.read_text().splitlines()) == 1
    assert not (folder / SUMMARIES).exists()


def test_a_growing_cache_is_no_other_model(folder: Path) -> None:
    cache = folder / "cache.jsonl"
    model = load(folder, cache)
    first = dict(model.identity)
    value(model, "cheap", "quick post")
    assert load(folder, cache).identity == first == load(folder).identity


def test_the_summary_of_another_model_does_not_count_unless_edited(tmp_path: Path) -> None:
    path = tmp_path / "cache.jsonl"
    path.write_text(as_line(("p",), Summary(statements=(Statement("x", 0.5),)), "bank of another"))
    assert SummaryCache("mine", [], path).find(("p",)) is None
    found = SummaryCache("bank of another", [], path).find(("p",))
    assert found is not None
    assert found.statements == (Statement("x", 0.5),)


def test_a_key_does_not_depend_on_the_order_of_posts_or_on_white_space() -> None:
    assert posts_key(["one  post", "another\npost"]) == posts_key(["another post", "one post"])
    assert posts_key(["one post"]) != posts_key(["one post", "another"])


@pytest.mark.parametrize(
    "line,fact",
    [
        ("{", "not JSON"),
        ("[]", "has no key"),
        ('{"key": "k", "statements": []}', "at least one"),
        ('{"key": "k", "statements": [3]}', "must be a text"),
        ('{"key": "k", "statements": [{"text": "x", "weight": 2}]}', "a weight of 2"),
        ('{"key": "k", "statements": [{"text": "x", "weight": true}]}', "a weight of True"),
    ],
)
def test_a_line_that_was_edited_badly_is_named(folder: Path, line: str, fact: str) -> None:
    (folder / SUMMARIES).write_text(f"\n{line}\n")
    with pytest.raises(UsageError, match=fact) as caught:
        load(folder)
    assert f"{SUMMARIES}:2:" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_folder_without_a_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no summary"):
        load(tmp_path)


def test_a_chat_models_statements_are_read_line_by_line() -> None:
    found = read_summary(Reply(text="Sure.\n- They want it cheap.\n- They avoid risk: always.\n"))
    assert [one.text for one in found.statements] == ["They want it cheap.", "They avoid risk: always."]


def test_a_summary_that_was_cut_off_is_none_unless_it_has_all_that_is_read() -> None:
    cut = read_summary(Reply(text="- They want it cheap.\n- They wa", finish=Finish.LENGTH))
    assert (cut.statements, cut.problem) == ((), Problem.OUT_OF_TOKENS)
    text = "".join(f"- Statement {number}.\n" for number in range(MOST_WRITTEN))
    whole = read_summary(Reply(text=f"{text}- And anoth", finish=Finish.LENGTH))
    assert (len(whole.statements), whole.problem) == (MOST_WRITTEN, Problem.NONE)


def test_a_reply_without_statements_is_no_summary_and_no_score(folder: Path) -> None:
    assert read_summary(Reply(text="I cannot say.")).problem is Problem.NO_VERDICT
    assert read_summary(Reply(finish=Finish.ERROR, error="gone")).problem is Problem.FAILED
    assert read_summary(Reply(text="- Cheap.", finish=Finish.WRONG_MODEL)).problem is Problem.WRONG_MODEL
    content = json.loads((folder / "bank.json").read_text())
    (folder / "bank.json").write_text(json.dumps(content | {"summarizer": "fake:x"}))
    model = load_summary_reward(folder, ask=lambda spec: FakeLLM("I cannot say."))
    (score,) = model.score([ask("cheap", "a post")])
    assert (score.value, score.problem) == (None, Problem.NO_VERDICT)


def test_the_first_posts_that_fit_the_window_are_shown_and_none_is_too_long() -> None:
    long = "word " * 50
    alone = FakeLLM("x").count_tokens(LLMSummarizer(FakeLLM("x"))._messages(("first",)))
    fake = FakeLLM("- They want it.", window=alone + 512)
    (summary,) = LLMSummarizer(fake).summarize([("first", long)])
    assert summary.statements
    assert "word" not in fake.requests[0].messages[-1].content
    (none,) = LLMSummarizer(FakeLLM("- x", window=600)).summarize([(long,)])
    assert none.problem is Problem.TOO_LONG


def test_a_statement_with_a_line_separator_is_read_back(tmp_path: Path) -> None:
    """U+2028 and its like end no line of JSON; a person who edits the file may leave blank lines, and no last end."""
    kept = tmp_path / "s.jsonl"
    statements = tuple(Statement(f"likes{sign}quiet", 1.0) for sign in "\u2028\u2029\x85\x0c")
    kept.write_text("\n" + as_line(("post",), Summary(statements=statements), "me").rstrip("\n"), encoding="utf-8")
    assert SummaryCache("me", [kept]).find(("post",)) == Summary(statements=statements)


@pytest.mark.parametrize("line", [b"\xff\xfe", b"[" * 100_000, b"{"])
def test_a_damaged_line_of_summaries_names_file_and_line(tmp_path: Path, line: bytes) -> None:
    (tmp_path / "s.jsonl").write_bytes(b"\n" + line + b"\n")
    with pytest.raises(UsageError, match=r"s\.jsonl:2: not JSON"):
        SummaryCache("me", [tmp_path / "s.jsonl"])
