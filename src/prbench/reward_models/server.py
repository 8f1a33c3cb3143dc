"""Reward models behind HTTP: `server:URL` asks what is there, and speaks its language.

A server of ours says so at `/ready`. Others are known by `/v1/models` (vLLM, SGLang), `/info` (Text Embeddings
Inference) or `/models` (infinity); `dialects` has how each of them is asked.
"""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Any, Literal

from prbench.errors import UsageError
from prbench.reward_models.base import LoadedModel, ModelSettings, as_loaded, as_score, failed, input_row, one_by_one
from prbench.reward_models.dialects import DIALECTS, DialectReward, Served, has_chat_template
from prbench.reward_models.requests import MOST_AT_ONCE, TOKEN_VARIABLE, RequestFailedError, Requests
from prbench.schema import Json, PairInput, Problem, RewardInput, Score
from prbench.specs import Above, AtLeast, Spec, option

INPUTS_PER_REQUEST = 32  # to a server of ours, unless a batch size is given; it batches on its own
MOST_TO_OURS = 4  # requests at once, likewise
NOT_THERE = frozenset({400, 404, 405, 410, 422, 501})  # statuses that say: no such page here
Api = Literal["prbench", "classify", "pooling", "score", "rerank", "tei", "tei-predict", "sglang"]


@dataclass(frozen=True, kw_only=True)
class ServerOptions:
    """Options of models behind HTTP."""

    api: Api | None = option(None, "how it is asked; default: as it says of itself")
    model: str | None = option(None, "which of the served models")
    logit: Annotated[int, AtLeast(0)] | None = option(None, "which logit is the reward")
    template: str | None = option(None, "the user's turn")
    tokenizer: str | None = option(
        None, "folder or hub id: contexts are shortened by it, for servers that cannot count"
    )
    batch_size: Annotated[int, AtLeast(1)] | Literal["auto"] | None = option(
        None, "inputs in a request to prbench serve"
    )
    concurrency: Annotated[int, AtLeast(1)] | None = option(None, "requests at once, at most")
    timeout: Annotated[float, Above(0)] = option(120.0, "seconds for one reply, from when it is asked for")
    patience: Annotated[float, Above(0)] = option(120.0, "seconds of further tries")
    expect: str | None = option(None, "the hash that `prbench serve` must name")


@dataclass(frozen=True, kw_only=True)
class Introduction:
    """What a server said of itself: the answers by path, and why others gave none."""

    answers: dict[str, Any] = field(default_factory=dict)
    refusals: dict[str, str] = field(default_factory=dict)

    @property
    def summary(self) -> str:
        """What was asked, and what came back."""
        found = dict.fromkeys(self.answers, "something unknown") | self.refusals
        return "; ".join(f"GET {path}: {what}" for path, what in found.items())


def load(spec: Spec, options: ServerOptions, settings: ModelSettings) -> LoadedModel:
    """Return `server:URL`."""
    connect = partial(Requests, timeout_seconds=options.timeout, patience_seconds=options.patience)
    at_once = options.concurrency or MOST_AT_ONCE
    root = spec.target.rstrip("/").removesuffix("/v1")
    requests, intro = connect(root, at_once=at_once), Introduction()
    if options.api in (None, "prbench"):
        look(requests, intro, "/ready")
        if _speaks_prbench(intro) or options.api == "prbench":
            _check_unset(spec, "is for servers of others", "model", "logit", "tokenizer", "template")
            ours = connect(root, at_once=options.concurrency or MOST_TO_OURS)
            return as_loaded(spec, PrbenchServerReward(ours, settings, intro=intro, expect=options.expect))
    _check_unset(spec, "is for `prbench serve`", "expect")
    served = recognize(requests, options, intro)
    if options.api is None and served.engine == "vllm":
        return as_loaded(spec, _first_that_answers(requests, settings, served, options))
    api = options.api or API_OF.get(served.engine)
    if api is None:
        raise UsageError(
            f"{spec.target} is no reward server that is known here: {intro.summary}. Correct the address, or say how "
            f"it is asked: ?api= with one of {', '.join(DIALECTS)}."
        )
    if served.engine == "tei" and options.api in (None, "rerank"):
        api = "tei-predict" if options.logit is not None else "tei"
    if api == "rerank" and not served.engine:
        requests = connect(spec.target, at_once=at_once)  # of a hosted reranker the address is taken as it stands
    return as_loaded(spec, _dialect_reward(requests, settings, api, served, options))


def _check_unset(spec: Spec, why: str, *names: str) -> None:
    for name in names:
        if name in spec.options:
            raise UsageError(f"{spec.text}: {name} {why}. Leave it out, or correct ?api= or the address.")


def _speaks_prbench(intro: Introduction) -> bool:
    said = intro.answers.get("/ready")
    return isinstance(said, dict) and all(isinstance(said.get(key), str) for key in ("model", "template_hash"))


def look(requests: Requests, intro: Introduction, *paths: str, must_answer: bool = True) -> None:
    """Ask a server what it is, and note what it says; if it `must_answer`, a refusal to say anything is an error."""
    for path in paths:
        try:
            intro.answers[path] = requests.get(path)
        except RequestFailedError as error:
            if not must_answer and error.status is not None:
                intro.refusals[path] = str(error)
                continue
            if error.status in (401, 403):
                remedy = f"Set {TOKEN_VARIABLE} to the server's token."
            elif error.status is None or error.status >= 500:
                remedy = "Start it, or correct the address."
            else:
                intro.refusals[path] = str(error)
                continue
            raise UsageError(f"{requests.url} is not ready: GET {path}: {error}. {remedy}") from error


# What an engine is asked by where nothing else is said; vLLM depends on its model.
API_OF: Mapping[str, Api] = {"infinity": "rerank", "tei": "tei", "sglang": "sglang"}
RAW: Mapping[str, Mapping[str, Json]] = {  # asks for the raw logit
    "vllm": {"use_activation": False},
    "infinity": {"raw_scores": True, "return_documents": False},
    "tei": {"raw_scores": True},
}


def recognize(requests: Requests, options: ServerOptions, intro: Introduction) -> Served:
    """Return what answers there; with ?api=rerank nothing need be known of it, as with hosted rerankers."""
    must_answer = options.api != "rerank"
    look(requests, intro, "/v1/models", must_answer=must_answer)
    listed = _rows(intro.answers.get("/v1/models"))
    owner = str(listed[0].get("owned_by", "")) if listed else ""
    if not listed:
        look(requests, intro, "/info", "/models", must_answer=must_answer)
        info, listed = intro.answers.get("/info"), _rows(intro.answers.get("/models"))
        owner = str(listed[0].get("owned_by", "")) if listed else ""
        if isinstance(info, dict) and "model_type" in info:
            if options.model not in (None, info.get("model_id")):
                raise UsageError(
                    f"{requests.url} serves {info.get('model_id')}, not {options.model}. Leave out ?model=."
                )
            window = info.get("max_input_length")
            return Served(engine="tei", model=str(info.get("model_id", "")), window=window, extra=RAW["tei"])
    if not listed:
        if options.api == "rerank":
            return Served(engine="", model=options.model or "")
        if options.api is not None:
            path = "/info" if options.api.startswith("tei") else "/v1/models"
            raise UsageError(
                f"{requests.url} does not say what it serves: {intro.summary}. ?api={options.api} needs {path}: "
                "correct the address, or leave out ?api=."
            )
        return Served(engine="", model="")
    engine = owner if owner in ("vllm", "sglang", "infinity") else ""
    if options.api in ("classify", "pooling", "score"):
        engine = "vllm"  # or what answers like it
    if options.api == "rerank" and not engine:
        return Served(engine="", model=options.model or "")  # what a vendor lists may be anything
    windows = {str(each.get("id")): each.get("max_model_len") for each in listed}
    model = options.model or (next(iter(windows)) if len(windows) == 1 else None)
    if model not in windows:
        raise UsageError(f"{requests.url} serves {', '.join(windows)}. Say which: ?model=NAME.")
    return Served(engine=engine, model=model, window=windows[model], extra=RAW.get(engine, {}))


def _rows(answer: Any) -> list[Mapping[str, Any]]:
    rows = answer.get("data") if isinstance(answer, dict) else None
    return [each for each in rows if isinstance(each, dict)] if isinstance(rows, list) else []


def _dialect_reward(
    requests: Requests, settings: ModelSettings, api: str, served: Served, options: ServerOptions
) -> DialectReward:
    tokenizer = options.tokenizer
    if api == "sglang" and tokenizer is None:
        intro = Introduction()
        look(requests, intro, "/get_model_info")
        info = intro.answers.get("/get_model_info")
        tokenizer = str(info.get("tokenizer_path") or info.get("model_path")) if isinstance(info, dict) else None
        if tokenizer is None:
            raise UsageError(
                f"{requests.url} does not say what it serves. Name its tokenizer: ?tokenizer=FOLDER_OR_ID."
            )
    return DialectReward(requests, settings, DIALECTS[api], served, logit=options.logit, tokenizer=tokenizer)


def _first_that_answers(
    requests: Requests, settings: ModelSettings, served: Served, options: ServerOptions
) -> DialectReward:
    """Return the way in which vLLM serves this model: a conversation where it has a chat template, else two texts."""
    said = []
    try:
        apis = ("classify", "pooling") if has_chat_template(requests, served.model) else ("score",)
    except RequestFailedError:
        apis = ("classify", "pooling")  # without /tokenize, only the scores themselves can tell
    for api in apis:
        try:
            model = _dialect_reward(requests, settings, api, served, options)
            model.try_out()
        except RequestFailedError as error:
            said.append(f"POST {DIALECTS[api].path}: {error}")
            if error.status not in NOT_THERE:
                break
            continue
        return model
    raise UsageError(
        f"{requests.url} has {served.model}, and no score of it: {'; '.join(said)}. Start a reward model with "
        f"`vllm serve MODEL --runner pooling`; a model that writes is a judge: judge:openai:{served.model}@"
        f"{requests.url}/v1."
    )


class PrbenchServerReward:
    """A server that speaks our protocol. It must go on serving the model and template that it named at the start.

    `expect` is the hash that the server must have from the start: the part of the model's id after its last `#`,
    which covers all that changes the scores, the template included.
    """

    def __init__(
        self,
        requests: Requests,
        settings: ModelSettings,
        *,
        intro: Introduction | None = None,
        expect: str | None = None,
    ) -> None:
        self._requests = requests
        self._batch_size = settings.batch_size or INPUTS_PER_REQUEST
        if intro is None:
            intro = Introduction()
            look(requests, intro, "/ready")
        if not _speaks_prbench(intro):
            raise UsageError(
                f"{requests.url}/ready is not that of a reward server of ours: {intro.summary}. For another one, "
                "leave out ?api=, or say ?api=classify, score or rerank."
            )
        said = intro.answers["/ready"]
        self.name: str = said["model"]
        self.template_hash: str = said["template_hash"]
        if expect not in (None, self.name, self.name.rpartition("#")[2]):
            raise UsageError(
                f"{requests.url} serves {self.name}, but {expect} is expected. "
                "Correct the address, or leave out ?expect=."
            )
        self.identity: Mapping[str, Json] = {"api": "prbench", "model": self.name, "template_hash": self.template_hash}
        # A server that can tell what fits says so; otherwise over-long inputs come back as too long.
        self.fits = self._fits if said.get("fits") is True else None

    def score(self, inputs: Sequence[RewardInput]) -> list[Score]:
        size = self._batch_size
        batches = [inputs[start : start + size] for start in range(0, len(inputs), size)]
        with ThreadPoolExecutor(self._requests.at_once) as pool:
            return [score for batch in pool.map(self._score_batch, batches) for score in batch]

    def _score_batch(self, batch: Sequence[RewardInput]) -> list[Score]:
        try:
            reply = self._requests.post("/score", {"inputs": [input_row(each) for each in batch]})
            self._check_sender(reply)
            return _read_scores(reply, len(batch))
        except RequestFailedError as error:
            if error.is_about_content and len(batch) > 1:
                # One input may be to blame, as with half a surrogate pair in it: it must not take the others with it.
                return [score for each in batch for score in self._score_batch([each])]
            return [failed(str(error))] * len(batch)

    def _check_sender(self, reply: Any) -> None:
        """Refuse scores of another model: they would mix two models in one run."""
        if not isinstance(reply, dict):
            raise RequestFailedError("the reply is not an object")
        for key, expected in (("model", self.name), ("template_hash", self.template_hash)):
            if reply.get(key) != expected:
                raise UsageError(
                    f"{self._requests.url} answered with {key} {reply.get(key)!r}, but the run began with "
                    f"{expected!r}. Give each model a server of its own."
                )

    def _fits(self, each: RewardInput | PairInput) -> bool:
        try:
            reply = self._requests.post("/fits", {"inputs": [input_row(one) for one in one_by_one(each)]})
        except RequestFailedError:
            return True  # the request for its score will fail as well, and say why
        self._check_sender(reply)
        return all(reply.get("fits") or [False])


def _read_scores(reply: Mapping[str, Any], count: int) -> list[Score]:
    rows = reply.get("scores")
    if not isinstance(rows, list) or len(rows) != count:
        found = len(rows) if isinstance(rows, list) else "no"
        raise RequestFailedError(f"the reply has {found} scores for {count} inputs")
    try:
        return [
            as_score(float(row["value"]))
            if row["value"] is not None
            else Score(
                value=None,
                problem=Problem(row.get("problem") or Problem.FAILED),
                detail=str(row.get("detail", "")),
            )
            for row in rows
        ]
    except (TypeError, KeyError, ValueError, AttributeError) as error:
        raise RequestFailedError(f"a score of the reply cannot be read: {error}") from error
