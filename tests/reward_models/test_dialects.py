"""Every engine that `server:URL` speaks to, against a stand-in that answers as the engine does: one row each.

The stand-ins score a response by its length less 3, raw; what asks for no raw logit gets 0.5. Words are tokens.
vLLM and infinity are run for real in `tests/servers`; the others follow their documentation.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("httpx", reason="needs pip install 'prbench[serve]'")
pytest.importorskip("transformers", reason="needs pip install 'prbench[hf]'")

from tests.golden.stand_in import NO_TEMPLATE, StandIn, stand_in
from tests.servers.models import save_decoder, save_pair_encoder

from prbench.errors import UsageError
from prbench.reward_models import LoadedModel, ModelSettings, load_reward_model
from prbench.reward_models.dialects import DIALECTS, TRIAL
from prbench.schema import Problem, RewardInput, UserContext

Body = dict[str, Any]
Answer = tuple[int, Any]
NOT_FOUND = (404, {"detail": "Not Found"})
WINDOW = 30
INPUTS = [RewardInput(question="Q?", response="x" * length) for length in (3, 5, 8)]
LONG = RewardInput(question="Q?", user=UserContext.from_text("word " * WINDOW), response="x")


def listed(owner: str, window: int | None = WINDOW) -> Body:
    return {"object": "list", "data": [{"id": "org/rm", "owned_by": owner, "max_model_len": window}]}


def logit(text: str, raw: bool) -> float:
    return float(len(text) - 3) if raw else 0.5


def vllm(*paths: str, template: bool) -> Callable[[str, Body | None], Answer]:
    """vLLM with a classifier; a decoder has a chat template, an encoder none."""

    def answer(path: str, body: Body | None) -> Answer:
        if path == "/v1/models":
            return 200, listed("vllm")
        if body is None or (path != "/tokenize" and path not in paths):
            return NOT_FOUND
        if "messages" in body and not template:
            return 400, NO_TEMPLATE
        texts = [each["content"] for each in body.get("messages", ())]
        texts += [body[name] for name in ("prompt", "text_1", "text_2", "query") if name in body]
        texts += body.get("documents", [])
        marks = 3 if path in ("/score", "/rerank") and not template else 0
        size = sum(len(text.split()) for text in texts) + marks
        if path == "/tokenize":
            return 200, {"count": size, "max_model_len": WINDOW}
        if size > WINDOW:
            return 400, {"error": {"message": f"This model's maximum context length is {WINDOW} tokens."}}
        value = logit(texts[-1], body.get("use_activation") is False)
        rows: Body = {
            "/classify": {"data": [{"index": 0, "label": "LABEL_0", "probs": [value], "num_classes": 1}]},
            "/pooling": {"data": [{"index": 0, "object": "pooling", "data": [value]}]},
            "/score": {"data": [{"index": 0, "object": "score", "score": value}]},
            "/rerank": {"results": [{"index": 0, "document": {"text": texts[-1]}, "relevance_score": value}]},
        }
        return 200, {"model": body["model"], "usage": {"prompt_tokens": size}, **rows[path]}

    return answer


def tei(path: str, body: Body | None) -> Answer:
    """Text Embeddings Inference; the model of `/predict` has two logits."""
    if path == "/info":
        about = {"model_id": "org/rm", "model_sha": "abc", "max_input_length": WINDOW, "version": "1.8.2"}
        return 200, {**about, "model_type": {"reranker": {"id2label": {"0": "LABEL_0"}}}}
    if body is None:
        return NOT_FOUND
    if path == "/tokenize":
        marks = 2 if body["add_special_tokens"] else 0
        return 200, [[{"id": 1, "text": word} for word in [*body["inputs"].split(), *["[SEP]"] * marks]]]
    query, text = body["inputs"][0] if path == "/predict" else (body["query"], body["texts"][0])
    assert body["truncate"] is False
    size = len(query.split()) + len(text.split()) + 3
    if size > WINDOW:
        said = f"Input validation error: `inputs` must have less than {WINDOW} tokens. Given: {size}"
        return 413, {"error": said, "error_type": "Validation"}
    value = logit(text, body["raw_scores"])
    if path == "/predict":
        return 200, [[{"score": value, "label": "LABEL_1"}, {"score": -99.0, "label": "LABEL_0"}]]
    return 200, [{"index": 0, "score": value}]


def infinity(path: str, body: Body | None) -> Answer:
    """infinity says nothing of its window, and truncates."""
    if path == "/models":
        return 200, {"data": [{"id": "org/rm", "owned_by": "infinity", "capabilities": ["rerank"], "stats": {}}]}
    if path != "/rerank" or body is None:
        return NOT_FOUND
    value = logit(body["documents"][0], body["raw_scores"])
    return 200, {"object": "rerank", "results": [{"relevance_score": value, "index": 0}], "model": "org/rm"}


def hosted(path: str, body: Body | None) -> Answer:
    """A hosted reranker, as of Jina or Cohere: it lists other models, and takes no field that it does not know."""
    if path == "/v1/models":
        return 200, {"data": [{"id": "chat-1", "owned_by": "vendor"}, {"id": "chat-2", "owned_by": "vendor"}]}
    if path != "/v2/rerank" or body is None:
        return 403, {"message": "no such page, or no leave"}
    if set(body) != {"model", "query", "documents"}:
        return 422, {"message": "unknown field"}
    return 200, {"id": "1", "results": [{"index": 0, "relevance_score": logit(body["documents"][0], raw=True)}]}


def sglang(path: str, body: Body | None) -> Answer:
    """SGLang gets token ids: here the score is how many there are of the last word but one."""
    if path == "/v1/models":
        return 200, listed("sglang", 60)
    if path != "/classify" or body is None:
        return NOT_FOUND
    return 200, {"embedding": [float(len(body["input_ids"]))], "meta_info": {"prompt_tokens": len(body["input_ids"])}}


@dataclass(frozen=True, kw_only=True)
class Row:
    engine: Callable[[str, Body | None], Answer]
    options: str
    api: str  # the way that is found
    path: str  # where the score is asked for


ROWS = {
    "vllm, a decoder": Row(
        engine=vllm("/classify", "/pooling", template=True), options="", api="classify", path="/classify"
    ),
    "vllm, a decoder that only pools": Row(
        engine=vllm("/pooling", template=True), options="", api="pooling", path="/pooling"
    ),
    "vllm, an encoder": Row(
        engine=vllm("/classify", "/pooling", "/score", "/rerank", template=False),
        options="",
        api="score",
        path="/score",
    ),
    "vllm, rerank": Row(
        engine=vllm("/score", "/rerank", template=False), options="?api=rerank", api="rerank", path="/rerank"
    ),
    "tei": Row(engine=tei, options="", api="tei", path="/rerank"),
    "tei, several logits": Row(engine=tei, options="?logit=1", api="tei-predict", path="/predict"),
    "tei, named": Row(engine=tei, options="?api=tei-predict&logit=1", api="tei-predict", path="/predict"),
    "infinity": Row(engine=infinity, options="", api="rerank", path="/rerank"),
    "a hosted reranker": Row(engine=hosted, options="/v2?api=rerank&model=rerank-v3", api="rerank", path="/v2/rerank"),
}


def load(server: StandIn, options: str, **settings: Any) -> LoadedModel:
    return load_reward_model(f"server:{server.url}{options}", ModelSettings(**settings))


def values(loaded: LoadedModel, inputs: list[RewardInput]) -> list[float | None]:
    model: Any = loaded.model
    return [score.value for score in model.score(inputs)]


@pytest.mark.parametrize("name", ROWS)
def test_every_engine_is_recognized_and_gives_its_raw_logits(name: str) -> None:
    row = ROWS[name]
    with stand_in(row.engine) as server:
        loaded = load(server, row.options)
        assert loaded.identity["api"] == row.api
        assert values(loaded, INPUTS) == [0.0, 2.0, 5.0]
        asked = [body for path, body in server.asked if path == row.path]
        assert len(asked) >= len(INPUTS)


@pytest.mark.parametrize("name", [name for name in ROWS if not name.startswith(("infinity", "a hosted"))])
def test_what_an_engine_can_count_is_known_before_it_is_asked(name: str) -> None:
    row = ROWS[name]
    with stand_in(row.engine) as server:
        loaded = load(server, row.options)
        assert loaded.fits is not None
        assert [loaded.fits(each) for each in (*INPUTS, LONG)] == [True, True, True, False]
        model: Any = loaded.model
        (score,) = model.score([LONG])
        assert score.problem is Problem.TOO_LONG


@pytest.mark.parametrize("address", ["/v1", "/v1/"])
def test_an_address_may_end_in_v1(address: str) -> None:
    with stand_in(ROWS["vllm, a decoder"].engine) as server:
        assert values(load(server, address), INPUTS) == [0.0, 2.0, 5.0]
    with stand_in(infinity) as server:
        assert values(load(server, address), INPUTS) == [0.0, 2.0, 5.0]


def test_the_windows_last_token_is_used_where_bounds_leave_it_open() -> None:
    """TEI's tokenizer knows no pairs: whether one or two marks stand between two texts, the server decides."""
    with stand_in(tei) as server:
        loaded = load(server, "")
        assert loaded.fits is not None
        most = RewardInput(question="Q?", response="x " * (WINDOW - 4))
        more = RewardInput(question="Q?", response="x " * (WINDOW - 3))
        assert (loaded.fits(most), loaded.fits(more)) == (True, False)


@pytest.mark.parametrize("api", ["score", "rerank"])
def test_a_decoder_behind_two_texts_is_refused(api: str) -> None:
    with (
        stand_in(vllm("/score", "/rerank", template=True)) as server,
        pytest.raises(UsageError, match=rf"serves a decoder, and \?api={api}.*Use \?api=classify"),
    ):
        load(server, f"?api={api}")


def test_texts_that_are_joined_without_a_mark_are_refused() -> None:
    """A decoder without a chat template is one, too: nothing stands between the two texts."""
    encoder = vllm("/score", template=False)

    def joins(path: str, body: Body | None) -> Answer:
        status, said = encoder(path, body)
        if path == "/score":
            said = {**said, "usage": {"prompt_tokens": said["usage"]["prompt_tokens"] - 2}}
        return status, said

    with stand_in(joins) as server, pytest.raises(UsageError, match="serves a decoder"):
        load(server, "?api=score")


def test_a_pair_encoder_asked_for_conversations_says_why_it_fails() -> None:
    with stand_in(ROWS["vllm, an encoder"].engine) as server:
        model: Any = load(server, "?api=classify").model
        (score,) = model.score(INPUTS[:1])
    assert score.problem is Problem.FAILED
    assert "POST " in score.detail
    assert "you must provide a chat template" in score.detail


@pytest.mark.parametrize(
    "answer,options,fact",
    [
        (lambda path, body: NOT_FOUND, "", r"no reward server that is known here: GET /ready: HTTP 404.*GET /info: "),
        (lambda path, body: (200, listed("somebody")), "", "no reward server that is known here"),
        (lambda path, body: NOT_FOUND, "?api=classify", r"\?api=classify needs /v1/models"),
        (lambda path, body: (401, {}), "", "Set PRBENCH_SERVER_TOKEN"),
        (vllm(template=True), "", r"no score of it: POST /classify: HTTP 404.*judge:openai:org/rm@http"),
        (vllm("/classify", template=True), "?model=other", r"serves org/rm. Say which: \?model=NAME"),
    ],
)
def test_a_server_without_scores_is_told_apart_by_what_it_was_asked(answer: Any, options: str, fact: str) -> None:
    with stand_in(answer) as server, pytest.raises(UsageError, match=fact):
        load(server, options)


def test_a_named_tokenizer_shortens_for_servers_that_cannot_count(tmp_path: Path) -> None:
    encoder = save_pair_encoder(tmp_path / "encoder")
    with stand_in(infinity) as server:
        blind = load(server, "")
        assert blind.fits is None
        assert "tokenizer=" in blind.note
        loaded = load(server, f"?tokenizer={encoder}", max_length=WINDOW)
        assert loaded.fits is not None
        assert (loaded.fits(INPUTS[0]), loaded.fits(LONG)) == (True, False)
        with pytest.raises(UsageError, match="reads them as chat"):
            load(server, f"?tokenizer={save_decoder(tmp_path / 'decoder')}")


def test_sglang_gets_the_token_ids_that_this_process_would_compute_on(tmp_path: Path) -> None:
    decoder = save_decoder(tmp_path)

    def with_path(path: str, body: Body | None) -> Answer:
        return (200, {"tokenizer_path": str(decoder)}) if path == "/get_model_info" else sglang(path, body)

    from transformers import AutoTokenizer

    with stand_in(with_path) as server:
        loaded = load(server, "")
        (value,) = values(loaded, [TRIAL])
        (body,) = server.bodies("/classify")
        assert loaded.fits is not None
        assert not loaded.fits(RewardInput(question="Q?", response="x " * 60))
    tokenizer = AutoTokenizer.from_pretrained(decoder)
    turns = [{"role": "user", "content": loaded.model._parts(TRIAL).turn}, {"role": "assistant", "content": "two"}]  # type: ignore[union-attr]
    assert body["input_ids"] == tokenizer.apply_chat_template(turns, return_dict=True)["input_ids"]
    assert value == len(body["input_ids"])


def test_inputs_that_begin_alike_are_sent_one_after_the_other_and_come_back_in_order() -> None:
    users = [UserContext.from_text(f"user {number}") for number in (1, 2, 1, 2)]
    inputs = [RewardInput(question="Q?", user=user, response="x" * (4 + place)) for place, user in enumerate(users)]
    with stand_in(ROWS["vllm, a decoder"].engine) as server:
        assert values(load(server, "?concurrency=1"), inputs) == [1.0, 2.0, 3.0, 4.0]
        sent = [body["messages"][0]["content"] for path, body in server.asked if path == "/classify" and body]
    assert [text.count("user 1") for text in sent[-4:]] == [1, 1, 0, 0]


def test_every_way_of_asking_is_tried_here() -> None:
    assert {row.api for row in ROWS.values()} | {"sglang"} == set(DIALECTS)
