"""Reward models behind HTTP: a server that speaks our protocol, or vLLM's classify, pooling and score endpoints."""

import json
import os
import random
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Annotated, Any, Literal

from prbench.backends.llm.servers import asked_seconds, is_loopback, wait_seconds
from prbench.errors import UsageError
from prbench.prompts import load_template
from prbench.reward_models.base import LoadedModel, ModelSettings, as_loaded, as_score, failed, input_row, one_by_one
from prbench.schema import Json, PairInput, Problem, RewardInput, Score
from prbench.specs import Above, AtLeast, Spec, option

if TYPE_CHECKING:
    import httpx

TOKEN_VARIABLE = "PRBENCH_SERVER_TOKEN"
_TRY_AGAIN = frozenset({429, 502, 503, 504})
_ABOUT_CONTENT = frozenset({400, 413, 422})  # no JSON, too much, or not of the right form
INPUTS_PER_REQUEST = 32  # unless a batch size is given; the server batches on its own
LONGEST_ASKED_WAIT_SECONDS = 60.0  # of a Retry-After: whoever asks for more is asked sooner
TRIES_AT_START = 5  # for a server that is not there at all


@dataclass(frozen=True, kw_only=True)
class ServerOptions:
    """Options of models behind HTTP."""

    api: Literal["prbench", "classify", "pooling", "score"] = option("prbench", "what it speaks: ours, or vLLM's")
    model: str | None = option(None, "vLLM: which of the served models")
    logit: Annotated[int, AtLeast(0)] | None = option(None, "vLLM: which logit is the reward")
    template: str | None = option(None, "vLLM: the user's turn")
    batch_size: Annotated[int, AtLeast(1)] | Literal["auto"] | None = option(None, "inputs in a request")
    concurrency: Annotated[int, AtLeast(1)] | None = option(None, "requests at once")
    timeout: Annotated[float, Above(0)] = option(120.0, "seconds for one reply")
    patience: Annotated[float, Above(0)] = option(120.0, "seconds of further tries")
    expect: str | None = option(None, "the hash that `prbench serve` must name")


def load(spec: Spec, options: ServerOptions, settings: ModelSettings) -> LoadedModel:
    """Return `server:URL`."""
    requests = Requests(spec.target, timeout_seconds=options.timeout, patience_seconds=options.patience)
    model: PrbenchServerReward | VllmReward
    if options.api == "prbench":
        for name in ("model", "logit", "template"):
            if name in spec.options:
                raise UsageError(
                    f"{spec.text}: {name} is for vLLM. Say ?api=classify, or choose it where the server starts."
                )
        model = PrbenchServerReward(requests, settings, concurrency=options.concurrency or 4, expect=options.expect)
    else:
        if options.expect is not None:
            raise UsageError(f"{spec.text}: expect is for `prbench serve`. For vLLM, say ?model=NAME.")
        model = VllmReward(
            requests,
            settings,
            api=options.api,
            model=options.model,
            logit=options.logit,
            concurrency=options.concurrency or 16,
        )
    return as_loaded(spec, model)


class RequestFailedError(Exception):
    """A request that got no usable answer, after all its tries."""

    def __init__(self, message: str, *, status: int | None = None) -> None:
        """`status` is that of a reply by which the server refused."""
        super().__init__(message)
        self.is_about_content = status in _ABOUT_CONTENT


class Requests:
    """Asks one server, patiently: connection errors and busy replies are tried again, later and later.

    It gives up when `patience_seconds` have passed, or after `tries` where that is given.
    """

    def __init__(
        self,
        url: str,
        *,
        timeout_seconds: float,
        patience_seconds: float = 120.0,
        tries: int | None = None,
        first_wait_seconds: float = 0.5,
    ) -> None:
        try:
            import httpx
        except ImportError as error:
            raise UsageError("A reward server needs httpx. Install it with: pip install 'prbench[serve]'") from error
        if not url.startswith(("http://", "https://")):
            raise UsageError(f"server:{url} is not an address. Write server:http://host:port.")
        token = os.environ.get(TOKEN_VARIABLE)
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        self.url = url.rstrip("/")
        # A proxy of the environment cannot reach this machine's loopback; redirects are not followed, token and all.
        self._client = httpx.Client(headers=headers, timeout=timeout_seconds, trust_env=not is_loopback(url))
        self._transport_error = httpx.TransportError
        self._patience_seconds = patience_seconds
        self._tries = tries
        self._first_wait_seconds = first_wait_seconds

    def get(self, path: str) -> Any:
        """Return the JSON at the path; this is asked first, so a server that is not there is soon given up."""
        return self._ask(lambda: self._client.get(self.url + path), unreachable_tries=TRIES_AT_START)

    def post(self, path: str, body: Mapping[str, Json]) -> Any:
        """Return the JSON that the server answers to the body."""
        # Escaped, half a surrogate pair in a text is still JSON; as UTF-8 it could not be sent at all.
        content = json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        return self._ask(lambda: self._client.post(self.url + path, content=content, headers=headers))

    def _ask(self, send: "Callable[[], httpx.Response]", unreachable_tries: int | None = None) -> Any:
        give_up_at = time.monotonic() + self._patience_seconds
        for attempt in count(1):
            headers: Mapping[str, str] = {}
            most_tries = self._tries
            try:
                reply = send()
            except self._transport_error as error:
                problem = f"{type(error).__name__}: {error}"
                most_tries = self._tries or unreachable_tries
            else:
                if reply.is_success:
                    try:
                        return reply.json()
                    except ValueError as error:
                        raise RequestFailedError("the reply is not JSON") from error
                problem = f"HTTP {reply.status_code}: {' '.join(reply.text.split())[:200]}"
                if reply.status_code not in _TRY_AGAIN:
                    raise RequestFailedError(problem, status=reply.status_code)
                headers = reply.headers
            # Not before the server asks for, up to a minute. Who was refused together does not come back together.
            asked = min(asked_seconds(headers) or 0.0, LONGEST_ASKED_WAIT_SECONDS)
            wait = max(wait_seconds(attempt, {}, first=self._first_wait_seconds), asked)
            wait *= random.uniform(1.0, 1.25)
            is_last = most_tries is not None and attempt >= most_tries
            if is_last or time.monotonic() + wait > give_up_at:
                raise RequestFailedError(problem)
            time.sleep(wait)
        raise AssertionError("the tries have no end of their own")


class PrbenchServerReward:
    """A server that speaks our protocol. It must go on serving the model and template that it named at the start.

    `expect` is the hash that the server must have from the start: the part of the model's id after its last `#`,
    which covers all that changes the scores, the template included.
    """

    def __init__(
        self, requests: Requests, settings: ModelSettings, *, concurrency: int = 4, expect: str | None = None
    ) -> None:
        self._requests = requests
        self._batch_size = settings.batch_size or INPUTS_PER_REQUEST
        self._concurrency = concurrency
        ready = _at_start(requests, "/ready", "Start it, or correct the address.")
        if not isinstance(ready, dict) or not all(
            isinstance(ready.get(key), str) for key in ("model", "template_hash")
        ):
            raise UsageError(
                f"{requests.url}/ready is not that of a reward server of ours. For vLLM, say ?api=classify."
            )
        self.name: str = ready["model"]
        self.template_hash: str = ready["template_hash"]
        if expect not in (None, self.name, self.name.rpartition("#")[2]):
            raise UsageError(
                f"{requests.url} serves {self.name}, but {expect} is expected. "
                "Correct the address, or leave out ?expect=."
            )
        self.identity: Mapping[str, Json] = {"api": "prbench", "model": self.name, "template_hash": self.template_hash}
        # A server that can tell what fits says so; otherwise over-long inputs come back as too long.
        self.fits = self._fits if ready.get("fits") is True else None

    def score(self, inputs: Sequence[RewardInput]) -> list[Score]:
        size = self._batch_size
        batches = [inputs[start : start + size] for start in range(0, len(inputs), size)]
        with ThreadPoolExecutor(self._concurrency) as pool:
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


class VllmReward:
    """A classifier that vLLM serves, one conversation per request; vLLM batches what arrives together.

    The server lays out the conversation with its own chat template; `score` sends the user's turn and the response as
    a pair of texts instead, for encoders that read two. The raw logit is asked for (`use_activation` off): the
    default, a sigmoid or softmax, differs from version to version.
    """

    def __init__(
        self,
        requests: Requests,
        settings: ModelSettings,
        *,
        api: str,
        model: str | None = None,
        logit: int | None = None,
        concurrency: int = 16,
    ) -> None:
        self._requests = requests
        self._path = f"/{api}"
        self._is_pair = api == "score"
        self._turn = load_template(settings.template or "turn").require("question", "context", answer="text")
        self._logit = logit
        self._concurrency = concurrency
        listed = _at_start(requests, "/v1/models", "Start it with `vllm serve`, or correct the address.")
        try:
            windows = {str(each["id"]): each.get("max_model_len") for each in listed["data"]}
        except (TypeError, KeyError, AttributeError) as error:
            raise UsageError(f"{requests.url}/v1/models is not that of a vLLM server.") from error
        if model is None and len(windows) == 1:
            model = next(iter(windows))
        if model not in windows:
            raise UsageError(f"{requests.url} serves {', '.join(windows) or 'nothing'}. Say which: ?model=NAME.")
        self.name, self._window = model, windows[model]
        self.template_hash = self._turn.hash
        self.identity: Mapping[str, Json] = {"api": api, "model": self.name, "turn": self._turn.hash, "logit": logit}
        # /tokenize knows no pairs of texts; one that is too long then comes back as too long.
        self.fits = self._fits if self._window and not self._is_pair else None

    def score(self, inputs: Sequence[RewardInput]) -> list[Score]:
        with ThreadPoolExecutor(self._concurrency) as pool:
            return list(pool.map(self._score_one, inputs))

    def _score_one(self, each: RewardInput) -> Score:
        try:
            reply = self._requests.post(self._path, {**self._body(each), "use_activation": False})
            if isinstance(reply, dict) and reply.get("model") != self.name:
                raise UsageError(
                    f"{self._requests.url} answered as {reply.get('model')!r}, but the run began with {self.name!r}. "
                    "Give each model a server of its own."
                )
            values = _vllm_values(reply)
            if self._logit is None and len(values) != 1:
                raise UsageError(f"The served model has {len(values)} logits. Say which is the reward: ?logit=INDEX.")
            if self._logit is not None and self._logit >= len(values):
                raise UsageError(f"The served model has {len(values)} logits, so there is no logit={self._logit}.")
            return as_score(values[self._logit or 0])
        except RequestFailedError as error:
            is_too_long = any(words in str(error) for words in ("context length", "max_model_len"))
            return Score(value=None, problem=Problem.TOO_LONG if is_too_long else Problem.FAILED, detail=str(error))

    def _body(self, each: RewardInput) -> dict[str, Json]:
        turns = self._turn.fill(question=each.question, context=each.context)
        if self._is_pair:
            return {"model": self.name, "text_1": "\n\n".join(text for _, text in turns), "text_2": each.response}
        messages = [{"role": role, "content": text} for role, text in (*turns, ("assistant", each.response))]
        return {"model": self.name, "messages": messages, "add_generation_prompt": False}

    def _fits(self, each: RewardInput | PairInput) -> bool:
        try:
            replies = [self._requests.post("/tokenize", self._body(one)) for one in one_by_one(each)]
        except RequestFailedError:
            return True  # a server without /tokenize: an over-long input then comes back as too long
        return all(isinstance(reply, dict) and reply.get("count", 0) <= (self._window or 0) for reply in replies)


def _at_start(requests: Requests, path: str, remedy: str) -> Any:
    try:
        return requests.get(path)
    except RequestFailedError as error:
        if "HTTP 401" in str(error) or "HTTP 403" in str(error):
            remedy = f"Set {TOKEN_VARIABLE} to the server's token."
        raise UsageError(f"{requests.url} is not ready: {error}. {remedy}") from error


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


def _vllm_values(reply: Any) -> list[float]:
    """Return the logits of one conversation; a model that scores every token gives them at its last one."""
    try:
        (row,) = reply["data"]
        if "score" in row:
            return [float(row["score"])]
        values = row["probs"] if "probs" in row else row["data"]
        while isinstance(values, list) and values and isinstance(values[-1], list):
            values = values[-1]
        return [float(value) for value in values]
    except (TypeError, KeyError, ValueError) as error:
        raise RequestFailedError("the reply holds no logits") from error
