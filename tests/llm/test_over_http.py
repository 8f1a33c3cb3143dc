"""Client, judge and rating model end to end: over HTTP, against a real llama.cpp server with the packaged model."""

from pathlib import Path

import pytest

from prbench.backends.llm import LLM, CachedLLM, ChatRequest, Finish, Message, load_llm
from prbench.backends.llm.client import always
from prbench.prompts import load_template
from prbench.reward_models.generative import JudgeModel, RatingModel
from prbench.schema import PairInput, Pick, Problem, RewardInput, UserContext

PAIR = PairInput(
    question="How should I spend a free Saturday?",
    user=UserContext.from_text("I love long walks and hate shopping."),
    first="Take the early train to the hills and walk the ridge path back to town.",
    second="Visit the new shopping centre, which opens at nine and has forty shops.",
)
REVERSED = PairInput(question=PAIR.question, user=PAIR.user, first=PAIR.second, second=PAIR.first)


@pytest.fixture(scope="module")
def llm(llama_server: str) -> LLM:
    return load_llm(f"openai:smollm2@{llama_server}", concurrency=2, timeout_seconds=60)


def test_server_tells_its_window(llm: LLM) -> None:
    assert llm.window == 2048


def test_counted_tokens_are_those_that_the_server_bills(llm: LLM) -> None:
    messages = (Message("system", "Be brief."), Message("user", "What is 2 + 2? Naïve ☕ <|im_end|> text."))
    (reply,) = llm.complete([ChatRequest(messages=messages, max_tokens=1)])
    assert llm.count_tokens(messages) == reply.prompt_tokens > 20


def test_replies_come_with_text_finish_and_usage(llm: LLM) -> None:
    request = ChatRequest(messages=(Message("user", "Say hello."),), max_tokens=4, seed=1)
    (reply,) = llm.complete([request])
    assert reply.text
    assert (reply.finish, reply.completion_tokens) == (Finish.LENGTH, 4)


def test_prompt_beyond_the_window_is_an_error_never_cut(llm: LLM) -> None:
    (reply,) = llm.complete([ChatRequest(messages=(Message("user", "word " * 3000),), max_tokens=4)])
    assert reply.finish is Finish.ERROR
    assert "exceeds the available context size" in reply.error


def test_json_schema_shapes_the_reply(llm: LLM) -> None:
    schema = {
        "type": "object",
        "properties": {"pick": {"enum": ["A", "B"]}},
        "required": ["pick"],
        "additionalProperties": False,
    }
    request = ChatRequest(messages=(Message("user", "A or B?"),), max_tokens=30, json_schema=schema)
    (reply,) = llm.complete([request])
    assert "".join(reply.text.split()) in ('{"pick":"A"}', '{"pick":"B"}')


def test_judge_by_parsing_keeps_the_raw_reply(llm: LLM) -> None:
    judge = JudgeModel(llm, load_template("judge_pair"), max_tokens=16)
    assert judge.fits(PAIR)
    comparisons = judge.prefer([PAIR, REVERSED])
    assert len(comparisons) == 2
    for comparison in comparisons:
        assert comparison.raw
        assert comparison.problem is not Problem.FAILED
        assert (comparison.pick is Pick.UNREADABLE) == (comparison.problem is not Problem.NONE)


def test_judge_by_logits_picks_with_a_margin_of_the_same_sign(llm: LLM) -> None:
    judge = JudgeModel(llm, load_template("judge_pair_direct"), "logits")
    for comparison in judge.prefer([PAIR, REVERSED]):
        assert comparison.pick in (Pick.FIRST, Pick.SECOND)
        assert comparison.margin is not None
        assert (comparison.margin > 0) == (comparison.pick is Pick.FIRST)


def test_rating_model_scores_or_says_why_not(llm: LLM) -> None:
    rating = RatingModel(llm, load_template("rate"), 1, 10, max_tokens=16)
    each = RewardInput(question=PAIR.question, user=PAIR.user, response=PAIR.first)
    assert rating.fits(each)
    (score,) = rating.score([each])
    assert score.raw
    assert (score.value is None) == (score.problem in (Problem.NO_VERDICT, Problem.OUT_OF_TOKENS))


def test_pair_beyond_the_window_does_not_fit(llm: LLM) -> None:
    long = PairInput(question="Q?", first="word " * 3000, second="short")
    assert not JudgeModel(llm, load_template("judge_pair"), max_tokens=16).fits(long)


def test_cached_replies_need_no_server(llm: LLM, tmp_path: Path) -> None:
    request = ChatRequest(
        messages=(Message("user", "One word, please."),), max_tokens=3, top_logprobs=2, cut_is_enough=always
    )
    first = CachedLLM(llm, tmp_path / "replies.sqlite").complete([request])
    again = CachedLLM(llm, tmp_path / "replies.sqlite")
    assert again.complete([request]) == first
    assert (again.hits, again.misses) == (1, 0)
