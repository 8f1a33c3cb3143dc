"""Which model answered: the rule, the documentation that prints it, and what a client makes of a stranger."""

import logging
from pathlib import Path
from typing import Any

import pytest
from tests.support.model_ids import MODEL_IDS, Ids, model_ids_table
from tests.support.scripted_server import Said, scripted_server

from prbench.backends.llm import CachedLLM, ChatRequest, Finish, Message, load_llm
from prbench.backends.llm.servers import is_same_model
from prbench.backends.policy import FailedSample, Prompt
from prbench.downstream.policies import ChatPolicy
from prbench.errors import UsageError

pytest.importorskip("openai", reason="the OpenAI client is not installed: pip install 'prbench[llm]'")

DOCS = Path(__file__).parents[2] / "docs"
REQUEST = ChatRequest(messages=(Message("user", "Hello"),))


@pytest.mark.parametrize("ids", MODEL_IDS, ids=lambda ids: f"{ids.asked} {ids.answered}")
def test_table_of_ids(ids: Ids) -> None:
    assert is_same_model(ids.asked, ids.answered) == ids.same


@pytest.mark.parametrize("answered", [None, "", "  ", 7, ["m"], {"id": "other"}])
def test_server_that_names_no_model_says_nothing(answered: object) -> None:
    assert is_same_model("m", answered)


@pytest.mark.parametrize(
    "asked,answered",
    [
        ("m", "totally-other-model"),
        ("org/m", "/models/n.gguf"),
        ("m", "/models/mistral.gguf"),
        ("m", "m-other"),
        ("a/b/m", "c/b/m"),
        ("m", "m-"),
        ("m", "m:"),
        ("m", "m-2024-08-06-preview"),
        ("m", "m:tag/other"),
        ("m", "2024-08-06"),
    ],
)
def test_other_models(asked: str, answered: str) -> None:
    assert not is_same_model(asked, answered)


def test_the_path_of_a_windows_file_ends_in_its_name() -> None:
    assert is_same_model("Model-Q4_K_M", "C:\\models\\model-q4_k_m.gguf")


def test_the_documentation_shows_the_table() -> None:
    assert model_ids_table() in (DOCS / "reference" / "llm.md").read_text(encoding="utf-8")


def test_reply_of_another_model_says_who_was_asked_and_who_answered(caplog: pytest.LogCaptureFixture) -> None:
    stranger = Said(text="Result: A", model="other model/x", finish="length")
    with scripted_server(lambda body: stranger) as server, caplog.at_level(logging.WARNING):
        replies = load_llm(server.spec).complete([REQUEST, REQUEST])
        alias = load_llm(f"{server.spec}?answers_as=other%20model/x").complete([REQUEST])
    for reply in replies:
        assert reply.finish is Finish.WRONG_MODEL
        assert reply.error == (
            "asked for 'scripted', but 'other model/x' answered. If that is one model: ?answers_as=other%20model/x"
        )
        assert reply.completion_tokens == 2, "it was paid for"
    assert len([record for record in caplog.records if "answered" in record.message]) == 1
    assert alias[0].finish is Finish.LENGTH


def test_alias_is_accepted_beside_the_id_that_was_asked_for() -> None:
    with scripted_server(lambda body: Said(text="fine", model=body["messages"][0]["content"])) as server:
        llm = load_llm(server.spec, answers_as="org/Alias")
        requests = [ChatRequest(messages=(Message("user", name),)) for name in ("alias:q4", "scripted", "other")]
        replies = llm.complete(requests)
    assert [reply.finish for reply in replies] == [Finish.STOP, Finish.STOP, Finish.WRONG_MODEL]
    assert "asked for 'scripted' or 'org/Alias', but 'other' answered" in replies[2].error


def test_replies_under_an_alias_are_not_those_of_the_model_itself(tmp_path: Path) -> None:
    with scripted_server(lambda body: Said(text="fine", model="alias")) as server:
        loose = CachedLLM(load_llm(server.spec, answers_as="alias"), tmp_path / "r.sqlite")
        strict = CachedLLM(load_llm(server.spec), tmp_path / "r.sqlite")
        assert loose.complete([REQUEST])[0].finish is Finish.STOP
        assert strict.complete([REQUEST])[0].finish is Finish.WRONG_MODEL
        assert (load_llm(server.spec).name, loose.name) == (server.spec, server.spec)


def test_long_and_odd_ids_stay_one_short_line() -> None:
    with scripted_server(lambda body: Said(text="fine", model="x\n" * 5000)) as server:
        (reply,) = load_llm(server.spec).complete([REQUEST])
    assert len(reply.error) <= 400
    assert "\n" not in reply.error


def test_alias_without_a_server_is_refused() -> None:
    with pytest.raises(UsageError, match="answers_as is for servers"):
        load_llm("fake:x", answers_as="y")


def test_sample_of_another_policy_is_a_failed_one() -> None:
    def answer(body: dict[str, Any]) -> Said:
        return Said(text="Sow beans.", model="other")

    with scripted_server(answer) as server:
        policy = ChatPolicy(load_llm(server.spec), temperature=0.0, max_tokens=20)
        ((sample,),) = policy.sample([Prompt(id="q", question="What to sow?", context="")], n=1, seed=0)
    assert isinstance(sample, FailedSample)
    assert "'other' answered" in sample.error
