import json
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from prbench.backends.llm import LLM, ChatRequest, Finish, Message, complete_each, load_llm
from prbench.backends.llm.local import LlamaCppLLM, check_gguf
from prbench.errors import UsageError
from prbench.prompts.replies import read_json

OPENING = "You compare answers for a reader who likes gardens and low prices. "


def ask(text: str, **fields: float) -> ChatRequest:
    return ChatRequest(messages=(Message("user", text),), max_tokens=6, **fields)


ENDLESS = {"type": "array", "items": {"const": "more"}, "minItems": 500}  # a reply that cannot end early
QUESTIONS = [
    ask(OPENING + "How do I start baking bread?", top_logprobs=5),
    ask(OPENING + "How do I start baking cakes?", top_logprobs=5),
    ask(OPENING * 6 + "What now?", top_logprobs=5),
    ask("Chess?", top_logprobs=5),
]


def test_greedy_reply_does_not_depend_on_other_requests_or_repetition(local_llm: LLM) -> None:
    """llama.cpp's prompt cache and parallel slots both break this; texts and log-probabilities must be equal."""
    alone = [local_llm.complete([request])[0] for request in QUESTIONS]
    together = local_llm.complete(QUESTIONS)
    backwards = local_llm.complete(QUESTIONS[::-1])[::-1]
    assert alone == together == backwards
    assert all(reply.text and len(reply.first_token) == 5 for reply in alone)


def test_sampled_reply_is_decided_by_its_seed(local_llm: LLM) -> None:
    request = ask("Name an animal and say why.", temperature=1.0, seed=1)
    other = ask("Name an animal and say why.", temperature=1.0, seed=2)
    first, second, third = local_llm.complete([request, other, request])
    assert first == third
    assert first.text != second.text


def test_token_count_is_exact(local_llm: LLM) -> None:
    messages = (Message("system", "Be brief."), Message("user", "Naïve ☕?\n\n  Tabs\tand numbers 12345."))
    (reply,) = local_llm.complete([ChatRequest(messages=messages, max_tokens=1)])
    assert local_llm.count_tokens(messages) == reply.prompt_tokens


SHAPE = {
    "type": "object",
    "properties": {
        "aspects": {
            "type": "array",
            "minItems": 2,
            "maxItems": 2,
            "items": {
                "type": "object",
                "properties": {
                    "aspect": {"type": "string", "maxLength": 20},
                    "score": {"type": "integer", "minimum": 0, "maximum": 2},
                },
                "required": ["aspect", "score"],
                "additionalProperties": False,
            },
        }
    },
    "required": ["aspects"],
    "additionalProperties": False,
}


def test_schema_holds_every_reply_to_its_shape_also_a_sampled_one(local_llm: LLM) -> None:
    """llama.cpp turns the schema into a grammar, in this process: what is sampled is free, its shape is not."""
    messages = (Message("user", "What makes a good cup of tea? Score each aspect."),)
    requests = [
        ChatRequest(messages=messages, max_tokens=120, temperature=temperature, seed=1, json_schema=SHAPE)
        for temperature in (0.0, 1.0)
    ]
    for reply in local_llm.complete(requests):
        assert reply.finish is Finish.STOP
        assert read_json(reply.text, SHAPE) == json.loads(reply.text)


def test_schema_that_cannot_be_used_is_an_error_reply(local_llm: LLM) -> None:
    (reply,) = local_llm.complete([ChatRequest(messages=QUESTIONS[3].messages, json_schema={"type": "nonsense"})])
    assert reply.finish is Finish.ERROR
    assert "JSON schema error" in reply.error


def test_replies_are_handed_out_one_by_one(local_llm: LLM) -> None:
    taken: list[str] = []

    def requests() -> Iterator[ChatRequest]:
        for text in ("Tea?", "Milk?"):
            taken.append(text)
            yield ask(text)

    stream = complete_each(local_llm, requests())
    assert next(stream)[0] == 0
    assert taken == ["Tea?"]
    assert [index for index, _ in stream] == [1]


def test_control_token_in_a_response_cannot_end_its_turn(local_llm: LLM) -> None:
    """Unbroken, `<|im_end|>` is one token and closes the turn; broken, it is text of several tokens."""
    plain = local_llm.count_tokens([Message("user", "x")])
    assert local_llm.count_tokens([Message("user", "x<|im_end|>")]) >= plain + 3


def test_prompt_beyond_the_window_is_an_error_never_cut(local_llm: LLM) -> None:
    assert local_llm.window == 2048
    (reply,) = local_llm.complete([ask("word " * 3000)])
    assert reply.finish is Finish.ERROR
    assert "exceeds the available context size (2048 tokens)" in reply.error


def test_reply_that_meets_the_end_of_the_window_is_marked_as_cut(smollm2: str) -> None:
    """The reply ends there; llama.cpp's context shift would drop the middle of the prompt and go on."""
    llm = LlamaCppLLM("smollm2", n_ctx=256, threads=1)
    prompt = (Message("user", "Tell me a long story. " + "word " * 200),)
    room = 256 - llm.count_tokens(prompt)
    assert 0 < room < 40
    (reply,) = llm.complete([ChatRequest(messages=prompt, max_tokens=100, json_schema=ENDLESS)])
    assert reply.finish is Finish.LENGTH
    assert reply.completion_tokens == room


def test_window_beyond_the_models_own_is_refused(smollm2: str) -> None:
    with pytest.raises(UsageError, match="window is 8192 tokens"):
        load_llm("local:smollm2", window=9000)


def test_loading_and_asking_prints_nothing(smollm2: str) -> None:
    code = (
        "from prbench.backends.llm import *\nfrom prbench.backends.llm.local import LlamaCppLLM\n"
        "llm = LlamaCppLLM('smollm2', n_ctx=256, threads=1)\n"
        "turns = [(Message('user', text),) for text in ('Hi', 'a ' * 999)]\n"
        "fine, too_long = llm.complete([ChatRequest(messages=turn, max_tokens=2) for turn in turns])\n"
        "assert fine.text and too_long.error\n"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


def test_nobody_else_on_this_machine_can_use_the_model(smollm2: str) -> None:
    """The library always opens a loopback port; without the secret key of this process it answers nothing."""
    llm = LlamaCppLLM("smollm2", n_ctx=256, threads=1)
    body = json.dumps({"messages": [{"role": "user", "content": "Hi"}]}).encode()
    request = urllib.request.Request(
        f"{llm._server.listening_address}/v1/chat/completions", body, {"Content-Type": "application/json"}
    )
    with pytest.raises(urllib.error.HTTPError, match="401"):
        urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=10)


def test_missing_file_is_named() -> None:
    with pytest.raises(UsageError, match=r"no such file\. Give the path of a \.gguf file, or local:smollm2"):
        load_llm("local:/nowhere/model.gguf")


def test_file_that_is_no_gguf_is_refused(tmp_path: Path) -> None:
    (tmp_path / "model.gguf").write_bytes(b"PK\x03\x04 something else")
    with pytest.raises(UsageError, match="not a GGUF file"):
        check_gguf(tmp_path / "model.gguf")


def test_model_without_chat_template_is_refused_not_given_another_ones(tmp_path: Path) -> None:
    (tmp_path / "model.gguf").write_bytes(b"GGUF" + bytes(200))
    with pytest.raises(UsageError, match="no chat template"):
        check_gguf(tmp_path / "model.gguf")


def test_broken_model_is_one_line_not_a_crash(tmp_path: Path) -> None:
    pytest.importorskip("xllamacpp", reason="xllamacpp is not installed: pip install 'prbench[llm]'")
    path = tmp_path / "model.gguf"
    path.write_bytes(b"GGUF" + bytes(100) + b"tokenizer.chat_template" + bytes(100))
    with pytest.raises(UsageError, match=r"llama\.cpp cannot load this model"):
        load_llm(f"local:{path}")
