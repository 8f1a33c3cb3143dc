"""HTTP servers on loopback that answer by a function: chat models, and vLLM with a classifier."""

import json
import math
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.golden.people import ASPECTS, POSTS, every_response

Body = dict[str, Any]
Answer = tuple[int, Any]  # status and JSON
Reply = tuple[str, str]  # text, and why it ended

MODEL = "scripted"
RESPONSES = every_response()
VERDICTS: tuple[Reply, ...] = (
    ("Result: A", "stop"),
    ("Result: B", "stop"),
    ("I weigh both.\n**Verdict:** [[B]]", "stop"),
    ("<think>Result: B, perhaps</think>\nFinal answer: A", "stop"),
    ("Result: tie", "stop"),
    ("Response A is cheaper, but B is warmer.", "stop"),
    ("The first of them says that", "length"),
    ("The second is kind.\n\\boxed{B}", "stop"),
)
RATINGS: tuple[Reply, ...] = (
    ("Score: 8", "stop"),
    ("It would please them.\n**Score:** 6.5", "stop"),
    ("Rating: 3/10", "stop"),
    ("Score: 11", "stop"),
    ("7", "stop"),
    ("This person would", "length"),
    ("I cannot tell.", "stop"),
    ("Final score: \\boxed{2}", "stop"),
    ("Score: 9 out of 10", "stop"),
)


class StandIn:
    """The server, and what it was asked."""

    def __init__(self, answer: Callable[[str, Body | None], Answer]) -> None:
        self.asked: list[tuple[str, Body | None]] = []
        stand_in = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            wbufsize = 1 << 16

            def do_GET(self) -> None:
                self.reply(None)

            def do_POST(self) -> None:
                self.reply(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

            def reply(self, body: Body | None) -> None:
                stand_in.asked.append((self.path, body))
                status, content = answer(self.path, body)
                data = json.dumps(content).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *args: object) -> None:
                """Stay silent."""

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.http.server_port}"
        self.chat = f"openai:{MODEL}@{self.url}/v1"  # as a chat model
        threading.Thread(target=self.http.serve_forever, args=(0.02,), daemon=True).start()

    def bodies(self, path: str, about: tuple[str, ...] = ()) -> list[Body]:
        """The bodies sent to a path, sorted, without the model's name; only those that hold one of some texts."""
        found = [body for asked, body in self.asked if asked == path and body is not None]
        kept = [body for body in found if not about or any(text in json.dumps(body) for text in about)]
        plain = [{name: value for name, value in body.items() if name != "model"} for body in kept]
        return sorted(plain, key=lambda body: json.dumps(body, sort_keys=True))

    def prompts(self, about: tuple[str, ...] = ()) -> list[Body]:
        """The chat requests that it got."""
        return self.bodies("/v1/chat/completions", about)


@contextmanager
def stand_in(answer: Callable[[str, Body | None], Answer]) -> Iterator[StandIn]:
    """Run a server for the length of a `with`."""
    server = StandIn(answer)
    try:
        yield server
    finally:
        server.http.shutdown()
        server.http.server_close()


def chat(script: Callable[[str, Body], Reply]) -> Callable[[str, Body | None], Answer]:
    """Answer as a chat model that gets (all text of the prompt, body) and says (text, why it ended)."""

    def answer(path: str, body: Body | None) -> Answer:
        if path == "/v1/models":
            return 200, {"object": "list", "data": [{"id": MODEL, "object": "model"}]}
        if path != "/v1/chat/completions" or body is None:
            return 404, {"error": {"message": "no such page"}}
        prompt = "\n".join(message["content"] for message in body["messages"])
        text, ended = script(prompt, body)
        if ended == "error":
            return 400, {"error": {"message": text}}
        choice: Body = {"index": 0, "finish_reason": ended, "message": {"role": "assistant", "content": text}}
        if body.get("logprobs"):
            choice["logprobs"] = {"content": [letters(prompt)]}
        usage = {"prompt_tokens": len(prompt.split()), "completion_tokens": len(text.split())}
        return 200, {"object": "chat.completion", "model": MODEL, "choices": [choice], "usage": usage}

    return answer


def pick(*parts: object) -> int:
    """A number that depends on the parts alone."""
    return int.from_bytes(sha256(":".join(map(str, parts)).encode()).digest()[:4], "big")


def responses_in(prompt: str) -> list[str]:
    """The known responses in a prompt, in the order in which they stand there."""
    return sorted((text for text in RESPONSES if text in prompt), key=prompt.index)


def wants_in(prompt: str) -> list[str]:
    """What the posts in a prompt show, or the aspects of a plan."""
    return [want for want, posts in POSTS.items() if any(text in prompt for text in (*posts, ASPECTS[want][0]))]


def judge(prompt: str, body: Body) -> Reply:
    """Say something of every kind, by the two responses, their order, and what is known of the person."""
    number = pick(*responses_in(prompt), *wants_in(prompt))
    if number % 9 == 0:
        return "the server is not in the mood", "error"
    return VERDICTS[number % len(VERDICTS)]


def letters(prompt: str) -> Body:
    """Log-probabilities of the first token: of A and B, of one of them with a blank, or of neither."""
    number = pick(*responses_in(prompt), *wants_in(prompt))
    first = (number % 97) / 10 - 5
    names = ((("A", "B"), ("B", " A"), ("A", "The"), ("It", "The")))[number % 4]
    values = [-math.log1p(math.exp(-first)), -math.log1p(math.exp(first))]
    found = [{"token": name, "logprob": value} for name, value in zip(names, values, strict=True)]
    return {**found[0], "top_logprobs": [*found, {"token": "\n", "logprob": -9.5}]}


def rate(prompt: str, body: Body) -> Reply:
    """Give numbers in every form, by the response and by what is known of the person."""
    return RATINGS[pick(*responses_in(prompt), *wants_in(prompt)) % len(RATINGS)]


def plan(prompt: str, body: Body) -> Reply:
    """Foresee what the posts show; for one kind of person the reply is no list, for another it is cut off."""
    wants = wants_in(prompt)
    if wants == ["thrift", "nature"]:
        return "This person likes cheap and green things.", "stop"
    lines = [f"{place}. **{ASPECTS[want][0]}**: {ASPECTS[want][1]}" for place, want in enumerate(wants, 1)]
    if wants == ["haste", "company"]:
        return "\n".join([*lines, "3. Something that is cut"]), "length"
    return "\n".join(lines or ["- Clarity — nothing else is known"]), "stop"


def rubrics(prompt: str, body: Body) -> Reply:
    """Write rubrics from the posts; then score responses against them."""
    shape = body["response_format"]["json_schema"]["schema"]["properties"]
    if "criteria" in shape:
        wants = wants_in(prompt) or ["thrift"]
        marks = ("essential", "important", "optional")
        turn = body["seed"] % 3
        criteria = [
            {"criterion": ASPECTS[want][0], "importance": marks[(place + turn) % 3]}
            for place, want in enumerate(wants)
        ]
        return (json.dumps({"criteria": criteria}), "stop") if turn < 2 else ("No rubric comes to mind.", "stop")
    count, number = shape["scores"]["minItems"], pick(*responses_in(prompt))
    if number % 11 == 0:
        return '{"scores": [', "length"
    return f'```json\n{{"scores": {[(number >> place) % 11 for place in range(count)]}}}\n```', "stop"


NO_TEMPLATE = {"error": {"message": "you must provide a chat template if the tokenizer does not define one."}}
WINDOW = 460  # characters, which are the tokens here
MARKS = 3  # around and between two texts, as BERT sets them


def vllm(path: str, body: Body | None) -> Answer:
    """Answer as vLLM does for a classifier of two logits with a window of 460 characters."""
    if path == "/v1/models" or body is None:
        return 200, {"data": [{"id": "org/reward", "max_model_len": WINDOW}]}
    texts = (
        [message["content"] for message in body["messages"]]
        if "messages" in body
        else [body[name] for name in ("prompt", "text_1", "text_2") if name in body]
    )
    size = sum(map(len, texts)) + (MARKS if path == "/score" else 0)
    if path == "/tokenize":
        return 200, {"count": size, "max_model_len": WINDOW}
    if size > WINDOW:
        return 400, {"error": {"message": f"This model's maximum context length is {WINDOW} tokens."}}
    logit = pick(*texts) % 1000 / 100 - 5
    rows: dict[str, Body] = {
        "/classify": {"index": 0, "label": "LABEL_1", "probs": [0.25, logit], "num_classes": 2},
        "/pooling": {"index": 0, "object": "pooling", "data": [[9.0, 9.0], [0.25, logit]]},
        "/score": {"index": 0, "object": "score", "score": logit},
    }
    if path not in rows:
        return 404, {"error": "no such page"}
    return 200, {"model": body["model"], "data": [rows[path]], "usage": {"prompt_tokens": size}}


def vllm_of_pairs(path: str, body: Body | None) -> Answer:
    """Answer likewise for an encoder, which has no chat template."""
    return (400, NO_TEMPLATE) if body is not None and "messages" in body else vllm(path, body)
