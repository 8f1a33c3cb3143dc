"""What others send to a reward server: each form gets its own reply, and one line for what is wrong."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from tests.support.contexts import profile

import prbench
from prbench.reward_models import LoadedModel, ModelSettings, load_reward_model
from prbench.reward_models.fake import FakeReward
from prbench.schema import Problem, RewardInput, Score, UserContext
from prbench.serve.partners import PROTOCOLS

Start = Callable[..., Any]
USER = {"kind": "profile", "posts": ["I count coins."]}
CHAT = [{"role": "user", "content": "Q?"}, {"role": "assistant", "content": "four"}]
NOTHING_TO_SCORE: list[tuple[str, dict[str, Any]]] = [
    ("/score", {"inputs": []}),
    ("/score", {"text_1": "Q?", "text_2": []}),
    ("/fits", {"inputs": []}),
    ("/v1/score", {"text_1": [], "text_2": []}),
    ("/v1/rerank", {"query": "Q?", "documents": []}),
    ("/rerank", {"query": "Q?", "documents": []}),
    ("/classify", {"input": []}),
    ("/classify", {"messages": []}),
    ("/get_reward", {"query": [], "prompts": [], "labels": []}),
]
LABEL = {"question": "Q?", "user": USER, "ends": ["<|end|>"]}


def asked(model: FakeReward) -> list[tuple[str, UserContext, str]]:
    return [(each.question, each.user, each.response) for each in model.inputs]


def test_every_path_answers_a_post_and_is_counted_by_its_name(start: Start, lengths: FakeReward) -> None:
    server = start(lengths)
    paths = [path for each in PROTOCOLS for path in each.paths]
    assert len(set(paths)) == len(paths)
    for path in paths:
        assert server.http.post(path, content=b"{").status_code == 400
        assert server.metric(f'prbench_requests_total{{endpoint="{path}"}}') == 1
        assert server.http.get(path).status_code == 405


@pytest.mark.parametrize(("path", "body"), NOTHING_TO_SCORE)
def test_a_request_with_nothing_to_score_is_refused_at_once(
    start: Start, lengths: FakeReward, path: str, body: dict[str, Any]
) -> None:
    reply = start(lengths).http.post(path, json=body, timeout=5)
    assert (reply.status_code, lengths.calls) == (422, 0)
    assert reply.json()["error"]["message"]


def test_every_path_is_asked_for_nothing() -> None:
    assert {path for path, _ in NOTHING_TO_SCORE} == {path for each in PROTOCOLS for path in each.paths}


# --- OpenRLHF


def test_openrlhf_gets_the_reward_of_the_answer_alone(start: Start, lengths: FakeReward) -> None:
    server = start(lengths)
    queries = ["<|user|>Q?<|assistant|> four <|end|><|pad|>", "<|user|>Q?<|assistant|>nothing ends me"]
    body = {"query": queries, "prompts": ["<|user|>Q?<|assistant|>"] * 2, "labels": [json.dumps(LABEL)] * 2}
    reply = server.http.post("/get_reward", json=body).json()
    values = [4.0, 15.0]
    assert {key: reply[key] for key in ("rewards", "scores", "extra_logs")} == {
        "rewards": values,
        "scores": values,
        "extra_logs": {"raw_score": values},
    }
    assert asked(lengths) == [("Q?", profile("I count coins."), text) for text in ("four", "nothing ends me")]


def test_rows_for_openrlhf_are_paid_as_the_function_pays(start: Start) -> None:
    rows = prbench.prompt_rows("lab", "openrlhf", limit=4, posts=2, plain=True, ends=["</s>"])
    known = prbench.prompt_rows("lab", limit=4)
    answers = [example.chosen for example in prbench.load_dataset("lab", limit=4)]  # type: ignore[union-attr]
    body = {
        "query": [f"{row['prompt']} {answer}</s>" for row, answer in zip(rows, answers, strict=True)],
        "prompts": [row["prompt"] for row in rows],
        "labels": [row["label"] for row in rows],
    }
    server = start(lambda: prbench.load_model("control:overlap"))
    columns = {name: [row[name] for row in known] for name in ("question", "profile", "user_id")}
    paid = prbench.reward_function("control:overlap", posts=2)([row["prompt"] for row in known], answers, **columns)
    assert server.http.post("/get_reward", json=body).json()["rewards"] == paid
    assert any(paid)


@pytest.mark.parametrize(
    ("changes", "fact"),
    [
        ({"labels": ["user-7"]}, "labels.0: must be JSON that says who asks what"),
        ({"labels": ['{"question": "Q?"}']}, "labels.0: must be JSON that says who asks what"),
        ({"labels": ['{"question": "Q?", "context": "", "rubric": "coins"}']}, "labels.0: must be JSON"),
        ({"prompts": ["another prompt"]}, "query.0: does not begin with its prompt"),
        ({"prompts": []}, "1 queries, 0 prompts and 1 labels"),
        ({"query": []}, "query: List should have at least 1 item"),
    ],
)
def test_what_openrlhf_cannot_have_meant_gets_one_line(
    start: Start, lengths: FakeReward, changes: dict[str, Any], fact: str
) -> None:
    body = {"query": ["Q? four"], "prompts": ["Q?"], "labels": [json.dumps(LABEL)], **changes}
    reply = start(lengths).http.post("/get_reward", json=body)
    assert reply.status_code == 422
    assert fact in reply.json()["error"]["message"]
    assert lengths.calls == 0


def test_rows_for_verl_are_what_a_users_message_takes(start: Start, lengths: FakeReward) -> None:
    (row,) = prbench.prompt_rows("lab", "verl", limit=1, posts=2)
    info = row["extra_info"]
    assert isinstance(info, dict)
    told = {"role": "user", "content": "…", "question": info["question"], "user": json.loads(str(info["user"]))}
    reply = start(lengths).http.post("/classify", json={"messages": [told, CHAT[1]]})
    assert reply.status_code == 200, reply.text
    (only,) = asked(lengths)
    assert (only[0], only[1].segments) == (info["question"], tuple(json.loads(str(info["user"]))["posts"]))
    assert len(only[1].segments) == 2


# --- classification, as vLLM's clients and verl's reward loop ask for it


def test_verls_reward_loop_reads_the_score_of_a_conversation(start: Start, lengths: FakeReward) -> None:
    server = start(lengths)
    told = [{"role": "system", "content": "Answer."}, {**CHAT[0], "question": "And?", "user": USER}, CHAT[1]]
    body = {"model": "lengths", "use_activation": False}
    for given in ({"messages": CHAT}, {"input": json.dumps(CHAT)}, {"input": [json.dumps(told)]}):
        reply = server.http.post("/classify", json={**body, **given}).json()
        assert reply["data"][-1]["probs"][-1] == 4.0
        assert reply["data"] == [{"index": 0, "label": None, "probs": [4.0], "num_classes": 1}]
    assert asked(lengths) == [
        ("Q?", UserContext(), "four"),
        ("Q?", UserContext(), "four"),
        ("And?", profile("I count coins."), "four"),
    ]
    several = server.http.post("/classify", json={"input": [json.dumps(CHAT)] * 2}).json()["data"]
    assert [(row["index"], row["probs"]) for row in several] == [(0, [4.0]), (1, [4.0])]


@pytest.mark.parametrize(
    ("body", "fact"),
    [
        ({"input": "<|user|>Q?<|assistant|>four"}, "cannot be taken apart again. Send messages"),
        ({"input": json.dumps([*CHAT[:1], {"role": "assistant"}])}, "cannot be taken apart again"),
        ({}, "give either messages or input"),
        ({"messages": CHAT, "input": "x"}, "give either messages or input"),
        ({"messages": CHAT[:1]}, "must end with a message of the user"),
        ({"messages": [*CHAT, *CHAT]}, "A conversation of 4 messages"),
        ({"messages": CHAT, "use_activation": True}, "a reward is the model's raw number"),
        ({"messages": CHAT, "add_generation_prompt": True}, "begins another answer"),
        ({"messages": CHAT, "truncate_prompt_tokens": 5}, "truncate_prompt_tokens: Extra inputs"),
    ],
)
def test_what_cannot_be_classified_gets_one_line(
    start: Start, lengths: FakeReward, body: dict[str, Any], fact: str
) -> None:
    reply = start(lengths).http.post("/classify", json=body)
    assert reply.status_code == 422
    assert fact in reply.json()["error"]["message"]
    assert lengths.calls == 0


def test_a_form_without_a_place_for_failures_refuses_the_request(start: Start) -> None:
    """verl and OpenRLHF would take anything else for a number, or wait for it."""
    scores = {
        "four": Score(value=4.0),
        "long": Score(value=None, problem=Problem.TOO_LONG, detail="900 tokens"),
        "none": Score(value=None, problem=Problem.NO_VERDICT),
    }

    class Model:
        def score(self, inputs: Any) -> Any:
            return [scores[each.response] for each in inputs]

    server = start(lambda: LoadedModel(spec="odd", kind="custom", model=Model()))
    for response, fact in (
        ("long", "Input 1 has no score: too_long: 900 tokens (max_model_len)."),
        ("none", "Input 1 has no score: no_verdict."),
    ):
        chats = [json.dumps([CHAT[0], {"role": "assistant", "content": text}]) for text in ("four", response)]
        queries = {"query": ["Q?four", f"Q?{response}"], "prompts": ["Q?"] * 2, "labels": [json.dumps(LABEL)] * 2}
        for reply in (
            server.http.post("/classify", json={"input": chats}),
            server.http.post("/get_reward", json=queries),
        ):
            assert (reply.status_code, reply.json()["error"]["message"]) == (422, fact)


# --- vLLM's fields


@pytest.mark.parametrize("names", [("text_1", "text_2"), ("queries", "documents"), ("data_1", "data_2")])
@pytest.mark.parametrize("path", ["/v1/score", "/score"])
def test_pairs_are_taken_by_all_their_names(
    start: Start, lengths: FakeReward, names: tuple[str, str], path: str
) -> None:
    server = start(lengths)
    body = {names[0]: "q", names[1]: ["a", "bb"], "model": "lengths", "use_activation": False}
    data = server.http.post(path, json=body).json()["data"]
    assert [(row["index"], row["score"]) for row in data] == [(0, 1.0), (1, 2.0)]
    for wrong, fact in (
        ({**body, "text_1": "q", "queries": "q"}, "Extra inputs"),
        ({**body, "use_activation": True}, "a reward is the model's raw number"),
        ({**body, "user": "user-7"}, "user: Input should be"),
    ):
        reply = server.http.post(path, json=wrong)
        assert (reply.status_code, fact in reply.json()["error"]["message"]) == (422, True), reply.text
    assert server.http.post(path, json={**body, "model": "gpt"}).status_code == 404


def test_a_ranking_is_asked_for_with_vllms_fields(start: Start, lengths: FakeReward) -> None:
    body = {"query": "q", "documents": ["a", "bb"], "use_activation": False, "top_n": 1}
    for path in ("/v1/rerank", "/rerank"):
        (best,) = start(lengths).http.post(path, json=body).json()["results"]
        assert (best["index"], best["relevance_score"]) == (1, 2.0)


@pytest.mark.parametrize("window", [512, None])
def test_the_list_of_models_says_how_much_one_holds(start: Start, lengths: FakeReward, window: int | None) -> None:
    spec = "classifier:/models/rm?dtype=float32"
    server = start(lambda: LoadedModel(spec=spec, kind="classifier", model=lengths, window=window))
    (row,) = server.http.get("/v1/models").json()["data"]
    assert row["max_model_len"] == window
    for model in (row["id"], spec, "/models/rm"):
        assert server.http.post("/classify", json={"messages": CHAT, "model": model}).status_code == 200


@pytest.mark.parametrize("api", ["score", "classify"])
def test_our_client_of_vllm_speaks_to_our_server_too(start: Start, lengths: FakeReward, api: str) -> None:
    loaded = load_reward_model(f"server:{start(lengths).url}?api={api}", ModelSettings())
    inputs = [RewardInput(question="Q?", response=text, user=profile("I count coins.")) for text in ("a", "bb")]
    assert loaded.model.score(inputs) == [Score(value=1.0), Score(value=2.0)]  # type: ignore[union-attr]
    assert all("I count coins." in each.question for each in lengths.inputs)
