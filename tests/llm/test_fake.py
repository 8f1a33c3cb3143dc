import pytest

from prbench.backends.llm import ChatRequest, FakeLLM, Finish, Message, Reply, load_llm
from prbench.backends.llm.fake import fake_from_target
from prbench.errors import UsageError
from prbench.prompts.replies import read_pick
from prbench.schema import Pick


def ask(text: str = "Hello there", **fields: int) -> ChatRequest:
    return ChatRequest(messages=(Message("user", text),), **fields)


def test_any_text_is_the_answer_to_every_request() -> None:
    replies = load_llm("fake:Result: A").complete([ask("one"), ask("two")])
    assert [reply.text for reply in replies] == ["Result: A", "Result: A"]


def test_prose_mentions_both_letters_and_states_no_verdict() -> None:
    (reply,) = load_llm("fake:prose").complete([ask()])
    assert "A" in reply.text
    assert "B" in reply.text
    assert read_pick(reply.text) is Pick.UNREADABLE


def test_echo_returns_the_last_message() -> None:
    assert load_llm("fake:echo").complete([ask("say this")])[0].text == "say this"


def test_thinking_runs_out_of_tokens_before_a_verdict() -> None:
    (reply,) = load_llm("fake:thinking").complete([ask()])
    assert reply.finish is Finish.LENGTH
    assert read_pick(reply.text) is Pick.UNREADABLE


def test_error_is_a_reply_not_an_exception() -> None:
    (reply,) = load_llm("fake:error").complete([ask()])
    assert (reply.finish, reply.error) == (Finish.ERROR, "fake:error always fails")


def test_list_answers_in_order_and_running_out_is_said() -> None:
    fake = FakeLLM(["first", Reply(text="second", finish=Finish.LENGTH)])
    assert [(r.text, r.finish) for r in fake.complete([ask(), ask()])] == [
        ("first", Finish.STOP),
        ("second", Finish.LENGTH),
    ]
    with pytest.raises(UsageError, match="has 2 scripted replies; request 3 has none"):
        fake.complete([ask()])


def test_function_sees_the_request_and_requests_are_kept() -> None:
    fake = FakeLLM(lambda request: request.messages[0].content.upper())
    assert fake.complete([ask("abc")])[0].text == "ABC"
    assert fake.requests == [ask("abc")]


def test_tokens_are_words() -> None:
    (reply,) = fake_from_target("three short words").complete([ask("two words")])
    assert (reply.prompt_tokens, reply.completion_tokens) == (2, 3)


def test_first_token_is_given_when_asked_for() -> None:
    fake = fake_from_target("B")
    assert not fake.complete([ask()])[0].first_token
    assert list(fake.complete([ask(top_logprobs=5)])[0].first_token) == ["B"]
