"""vLLM's replies, field for field as its protocol classes give them, through our clients.

The shapes are those that vLLM 0.32.0 gave (`tests/servers` runs it), and the logprobs of chat completions those of
`_get_top_logprobs` in its repository, which writes -9999.0 for minus infinity.
"""

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

pytest.importorskip("httpx", reason="needs pip install 'prbench[serve]'")

from prbench.errors import UsageError
from prbench.reward_models import ModelSettings, load_reward_model
from prbench.reward_models.generative import read_letters
from prbench.schema import Pick, Problem, RewardInput, Score, UserContext

USAGE = {"prompt_tokens": 10, "total_tokens": 10, "completion_tokens": 0, "prompt_tokens_details": None}
MODELS = {
    "object": "list",
    "data": [
        {
            "id": "org/reward",
            "object": "model",
            "created": 1745383000,
            "owned_by": "vllm",
            "root": "org/reward",
            "parent": None,
            "max_model_len": 4096,
            "permission": [{"id": "modelperm-1", "object": "model_permission", "allow_sampling": True}],
        }
    ],
}
CLASSIFIED = {
    "id": "classify-1",
    "object": "list",
    "created": 1745383065,
    "model": "org/reward",
    "data": [{"index": 0, "label": "LABEL_0", "probs": [-3.71875], "num_classes": 1}],
    "usage": USAGE,
}
UNLABELLED = {**CLASSIFIED, "data": [{"index": 0, "label": None, "probs": [0.25, 1.5], "num_classes": 2}]}
POOLED = {
    "id": "pooling-1",
    "object": "list",
    "created": 1745383065,
    "model": "org/reward",
    "data": [{"index": 0, "object": "pooling", "data": [2.109375]}],
    "usage": USAGE,
}
SCORED = {
    "id": "score-1",
    "object": "list",
    "created": 1745383065,
    "model": "org/reward",
    "data": [{"index": 0, "object": "score", "score": -0.8125}],
    "usage": USAGE,
}
POOLED_BY_TOKEN = {**POOLED, "data": [{"index": 0, "object": "pooling", "data": [[0.5], [-1.0], [0.75]]}]}
TOO_LONG = {
    "error": {
        "message": "This model's maximum context length is 4096 tokens. However, your request has 5000 input tokens.",
        "type": "BadRequestError",
        "param": "input_tokens",
        "code": 400,
    }
}
NO_TEMPLATE = {
    "error": {
        "message": "As of transformers v4.44, default chat template is no longer allowed, so you must provide a chat "
        "template if the tokenizer does not define one.",
        "type": "BadRequestError",
        "param": None,
        "code": 400,
    }
}
INPUT = RewardInput(question="Which tea?", user=UserContext.from_text("I like green tea."), response="Sencha.")

Start = Callable[[int, Any], Any]


class Recorded:
    """A server that gives the recorded replies and keeps what it was sent."""

    def __init__(self, status: int, reply: Any) -> None:
        self.bodies: list[Any] = []  # but those that only count tokens
        kept = self.bodies

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                self.answer(200, MODELS)

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                if self.path == "/tokenize" and "messages" in body:
                    self.answer(400, NO_TEMPLATE)
                elif self.path == "/tokenize":
                    self.answer(200, {"count": len(body["prompt"].split()), "max_model_len": 4096})
                else:
                    kept.append(body)
                    self.answer(status, reply)

            def answer(self, code: int, content: Any) -> None:
                data = json.dumps(content).encode()
                self.send_response(code)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()


@pytest.fixture
def start() -> Iterator[Start]:
    started: list[Recorded] = []

    def begin(status: int, reply: Any) -> Recorded:
        started.append(Recorded(status, reply))
        return started[-1]

    yield begin
    for each in started:
        each.server.shutdown()
        each.server.socket.close()


def scored(url: str, options: str) -> Score:
    model: Any = load_reward_model(f"server:{url}?{options}", ModelSettings()).model
    (score,) = model.score([INPUT])
    return score


@pytest.mark.parametrize(
    "reply,options,value",
    [
        (CLASSIFIED, "api=classify", -3.71875),
        (UNLABELLED, "api=classify&logit=1", 1.5),
        (POOLED, "api=pooling", 2.109375),
        (POOLED_BY_TOKEN, "api=pooling", 0.75),
    ],
)
def test_a_recorded_reply_gives_its_logit(start: Start, reply: Any, options: str, value: float) -> None:
    server = start(200, reply)
    assert scored(server.url, options) == Score(value=value)
    (body,) = server.bodies
    assert set(body) == {"model", "messages", "add_generation_prompt", "use_activation"}
    assert (body["model"], body["use_activation"], body["add_generation_prompt"]) == ("org/reward", False, False)
    assert "I like green tea." in body["messages"][0]["content"]
    assert body["messages"][-1] == {"role": "assistant", "content": "Sencha."}


def test_a_score_is_asked_for_as_two_texts_without_activation(start: Start) -> None:
    server = start(200, SCORED)
    assert scored(server.url, "api=score") == Score(value=-0.8125)
    body = server.bodies[-1]  # after the one that tells how many tokens stand between two texts
    assert set(body) == {"model", "text_1", "text_2", "use_activation"}
    assert (body["text_2"], body["use_activation"]) == ("Sencha.", False)
    assert "I like green tea." in body["text_1"]
    assert body["text_1"].endswith("Which tea?")


def test_a_pair_of_texts_is_measured_in_advance_like_a_conversation(start: Start) -> None:
    url = start(200, SCORED).url
    assert load_reward_model(f"server:{url}?api=score", ModelSettings()).fits is not None
    assert load_reward_model(f"server:{url}?api=classify", ModelSettings()).fits is not None


def test_a_recorded_refusal_is_too_long_and_not_a_number(start: Start) -> None:
    score = scored(start(400, TOO_LONG).url, "api=classify")
    assert (score.value, score.problem) == (None, Problem.TOO_LONG)
    assert "maximum context length" in score.detail


@pytest.mark.parametrize("reply", [{**CLASSIFIED, "data": []}, {**POOLED, "data": [{"index": 0, "data": "AAAA"}]}])
def test_a_reply_without_logits_is_a_failed_score(start: Start, reply: Any) -> None:
    score = scored(start(200, reply).url, "api=pooling")
    assert (score.value, score.problem) == (None, Problem.FAILED)


def test_a_reply_of_another_model_is_refused(start: Start) -> None:
    server = start(200, {**CLASSIFIED, "model": "org/other"})
    with pytest.raises(UsageError, match="answered as 'org/other'"):
        scored(server.url, "api=classify")


def test_a_chat_completion_with_candidates_gives_a_margin() -> None:
    """The chosen token comes first among its own candidates, and every entry has its bytes."""
    pytest.importorskip("openai", reason="needs pip install 'prbench[llm]'")
    from prbench.backends.llm.servers import read_body

    likely = [
        {"token": text, "logprob": value, "bytes": list(text.encode())} for text, value in ((" B", -0.5), ("A", -1.5))
    ]
    choice = {
        "index": 0,
        "message": {
            "role": "assistant",
            "content": " B",
            "refusal": None,
            "tool_calls": [],
            "reasoning_content": None,
        },
        "logprobs": {"content": [{**likely[0], "top_logprobs": likely}]},
        "finish_reason": "length",
        "stop_reason": None,
        "token_ids": None,
    }
    reply = read_body(
        {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "created": 1745383065,
            "model": "org/judge",
            "choices": [choice],
            "service_tier": None,
            "system_fingerprint": None,
            "usage": {**USAGE, "total_tokens": 11, "completion_tokens": 1},
            "prompt_logprobs": None,
            "prompt_token_ids": None,
            "kv_transfer_params": None,
        },
        wants_logprobs=True,
    )
    assert reply.first_token == {" B": -0.5, "A": -1.5}
    assert read_letters(reply).pick is Pick.SECOND
    assert read_letters(reply).margin == -1.0
