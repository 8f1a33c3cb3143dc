"""How reward servers that others wrote are asked for one score, one row each, and the model that asks them.

`LAYOUTS` says in which form an engine is given question and response: as a conversation that it lays out with its own
chat template, as two texts (encoders that read pairs), or as the token ids that this process would compute on.
"""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal, TypeVar

from prbench.errors import UsageError
from prbench.prompts import load_template
from prbench.reward_models.base import ModelSettings, as_score, one_by_one
from prbench.reward_models.chat import Chat
from prbench.reward_models.hf_models import load_layout
from prbench.reward_models.requests import RequestFailedError, Requests
from prbench.schema import NOTHING, Json, PairInput, Problem, RewardInput, Score

Layout = Literal["chat", "pair", "ids"]
Range = tuple[int, int]  # of tokens: at least, at most

# How engines say that an input is longer than the window: vLLM, SGLang, TEI.
TOO_LONG = ("context length", "max_model_len", "must have less than", "maximum allowed length")
COUNTED_TEXTS = 2048  # texts whose length is kept, as the same profile stands before several responses
TRIAL = RewardInput(question="one", response="two")
NO_TOKENIZER = (
    "the server does not say how long a text is in tokens, so contexts are not shortened to its window. "
    "Name the model's tokenizer: ?tokenizer=FOLDER_OR_ID."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """One input, in every form that an engine may want."""

    model: str
    turns: tuple[tuple[str, str], ...]  # of the user, as (role, text)
    response: str
    ids: tuple[int, ...] = ()

    @property
    def turn(self) -> str:
        """What the user says, as one text."""
        return "\n\n".join(text for _, text in self.turns)

    @property
    def messages(self) -> list[dict[str, str]]:
        """The whole conversation."""
        return [{"role": role, "content": text} for role, text in (*self.turns, ("assistant", self.response))]


@dataclass(frozen=True, kw_only=True)
class Dialect:
    """How an engine is asked for the score of one input, and where its logits stand in the reply."""

    api: str  # as in ?api=
    path: str
    layout: Layout
    body: Callable[[Parts], dict[str, Json]]
    logits: Callable[[Any], list[float]]


def _of_chat(parts: Parts) -> dict[str, Json]:
    return {"model": parts.model, "messages": parts.messages, "add_generation_prompt": False}


def _of_rows(reply: Any) -> list[float]:
    """Return the logits of one conversation; a model that scores every token gives them at its last one."""
    (row,) = reply["data"]
    if "score" in row:
        return [float(row["score"])]
    values = row["probs"] if "probs" in row else row["data"]
    while isinstance(values, list) and values and isinstance(values[-1], list):
        values = values[-1]
    return [float(value) for value in values]


def _of_results(reply: Any) -> list[float]:
    (row,) = reply["results"]
    return [float(row["relevance_score"])]


def _of_ranks(reply: Any) -> list[float]:
    (row,) = reply
    return [float(row["score"])]


def _of_embedding(reply: Any) -> list[float]:
    (row,) = reply if isinstance(reply, list) else [reply]
    return [float(value) for value in row["embedding"]]


def _of_labels(reply: Any) -> list[float]:
    """Return the logits in the order of their labels' numbers: they come sorted by size."""
    (row,) = reply
    by_number = {str(each["label"]).rpartition("_")[2]: float(each["score"]) for each in row}
    if len(row) > 1 and not all(number.isdigit() for number in by_number):
        raise ValueError("labels without a number")
    return [by_number[number] for number in sorted(by_number, key=lambda name: (len(name), name))]


DIALECTS: Mapping[str, Dialect] = {
    each.api: each
    for each in (
        Dialect(api="classify", path="/classify", layout="chat", body=_of_chat, logits=_of_rows),
        Dialect(api="pooling", path="/pooling", layout="chat", body=_of_chat, logits=_of_rows),
        Dialect(
            api="score",
            path="/score",
            layout="pair",
            body=lambda parts: {"model": parts.model, "text_1": parts.turn, "text_2": parts.response},
            logits=_of_rows,
        ),
        Dialect(  # Jina, Cohere, infinity, vLLM, llama.cpp
            api="rerank",
            path="/rerank",
            layout="pair",
            body=lambda parts: {"model": parts.model, "query": parts.turn, "documents": [parts.response]},
            logits=_of_results,
        ),
        Dialect(  # Text Embeddings Inference with a model of one logit
            api="tei",
            path="/rerank",
            layout="pair",
            body=lambda parts: {"query": parts.turn, "texts": [parts.response], "truncate": False},
            logits=_of_ranks,
        ),
        Dialect(  # likewise with a model of several
            api="tei-predict",
            path="/predict",
            layout="pair",
            body=lambda parts: {"inputs": [[parts.turn, parts.response]], "truncate": False},
            logits=_of_labels,
        ),
        Dialect(
            api="sglang",
            path="/classify",
            layout="ids",
            body=lambda parts: {"input_ids": list(parts.ids)},
            logits=_of_embedding,
        ),
    )
}


@dataclass(frozen=True, kw_only=True)
class Served:
    """What a server serves, as far as it says so."""

    engine: str  # vllm, sglang, infinity, tei, or "" where it is not known
    model: str  # "" where a request need not name it
    window: int | None = None  # in tokens
    extra: Mapping[str, Json] = field(default_factory=lambda: NOTHING)  # in every request: the raw logit is asked for


Found = TypeVar("Found")


class DialectReward:
    """A model behind an engine's server, one input per request; the engine batches what arrives together.

    The raw logit is asked for wherever an engine lets one: what it makes of it by default, a sigmoid or a softmax,
    differs from version to version. Inputs that begin alike are sent one after the other, so that an engine which
    keeps the beginnings of prompts makes use of them.
    """

    def __init__(
        self,
        requests: Requests,
        settings: ModelSettings,
        dialect: Dialect,
        served: Served,
        *,
        logit: int | None = None,
        tokenizer: str | None = None,
    ) -> None:
        self._requests = requests
        self._dialect = dialect
        self._served = served
        self._turn = load_template(settings.template or "turn").require("question", "context", answer="text")
        self._logit = logit
        self.name = served.model
        self.template_hash = self._turn.hash
        self.note = ""
        self._window = min(filter(None, (served.window, settings.max_length)), default=None)
        self._chat = self._layout_of(tokenizer, settings) if tokenizer else None
        self.identity: Mapping[str, Json] = {
            "api": dialect.api,
            "model": served.model,
            "turn": self._turn.hash,
            "logit": logit,
            **({"max_length": settings.max_length} if settings.max_length else {}),
            **({"layout": dict(self._chat.identity)} if self._chat else {}),
        }
        self._count = lru_cache(COUNTED_TEXTS)(self._count_text)
        self._marks: Range = (0, 0)
        self.fits = self._chat.fits if self._chat else self._measure()

    def score(self, inputs: Sequence[RewardInput]) -> list[Score]:
        """Return one score per input, in the same order."""
        order = sorted(range(len(inputs)), key=lambda place: (inputs[place].context, inputs[place].question))
        with ThreadPoolExecutor(self._requests.at_once) as pool:
            scores = dict(zip(order, pool.map(self._score_one, [inputs[place] for place in order]), strict=True))
        return [scores[place] for place in range(len(inputs))]

    def try_out(self) -> None:
        """Ask for one score; raise where that fails, or where nobody knows which logit is meant."""
        self._ask(TRIAL)

    def _score_one(self, each: RewardInput) -> Score:
        try:
            return as_score(self._ask(each))
        except RequestFailedError as error:
            is_too_long = any(words in str(error) for words in TOO_LONG)
            detail = f"POST {self._requests.url}{self._dialect.path}: {error}"
            return Score(value=None, problem=Problem.TOO_LONG if is_too_long else Problem.FAILED, detail=detail)

    def _ask(self, each: RewardInput) -> float:
        reply = self._requests.post(self._dialect.path, {**self._body(each), **self._served.extra})
        answered = reply.get("model") if isinstance(reply, dict) else None
        if answered not in (None, self.name) and self._served.engine == "vllm":
            raise UsageError(
                f"{self._requests.url} answered as {answered!r}, but the run began with {self.name!r}. "
                "Give each model a server of its own."
            )
        try:
            values = self._dialect.logits(reply)
        except (TypeError, KeyError, ValueError, IndexError) as error:
            raise RequestFailedError("the reply holds no logits") from error
        if self._logit is None and len(values) != 1:
            raise UsageError(f"The served model has {len(values)} logits. Say which is the reward: ?logit=INDEX.")
        if self._logit is not None and self._logit >= len(values):
            raise UsageError(f"The served model has {len(values)} logits, so there is no logit={self._logit}.")
        return values[self._logit or 0]

    def _body(self, each: RewardInput) -> dict[str, Json]:
        return self._dialect.body(self._parts(each))

    def _parts(self, each: RewardInput) -> Parts:
        turns = tuple(self._turn.fill(question=each.question, context=each.context))
        ids: tuple[int, ...] = ()
        if self._dialect.layout == "ids" and self._chat:
            tokens = self._chat.try_encode(each)
            if isinstance(tokens, Score):
                raise RequestFailedError(tokens.detail)
            ids = tokens.ids
        return Parts(model=self.name, turns=turns, response=each.response, ids=ids)

    def _layout_of(self, source: str, settings: ModelSettings) -> Chat:
        """Return how this process would lay out the same inputs; another way than the engine's is refused."""
        config, tokenizer = load_layout(source, settings)
        chat = Chat(tokenizer, config, settings, may_pair=True)
        wanted = {"pair": ("pair",), "chat": ("chat",), "ids": ("chat", "plain", "pair")}[self._dialect.layout]
        if chat.layout not in wanted:
            raise UsageError(
                f"?api={self._dialect.api} sends question and response as {self._dialect.layout}, and {source} reads "
                f"them as {chat.layout}. {_REMEDIES[self._dialect.layout]}"
            )
        if self._window and chat.limit and self._window < chat.limit:
            chat.limit = self._window
        return chat

    def _measure(self) -> Callable[[RewardInput | PairInput], bool] | None:
        """Return what tells whether an input fits the server's window; `None` where nobody can tell beforehand."""
        if self._window is None:
            self.note = NO_TOKENIZER
            return None
        if self._dialect.layout == "chat":
            return self._fits
        try:
            self._marks = self._pair_marks()
        except RequestFailedError:
            self.note = NO_TOKENIZER
            return None
        return self._fits

    def _fits(self, each: RewardInput | PairInput) -> bool:
        try:
            for one in one_by_one(each):
                least, most = self._tokens(one)
                if least > (self._window or 0):
                    return False
                # Where the count leaves it open, the server itself decides.
                if most > (self._window or 0) and self._score_one(one).problem is Problem.TOO_LONG:
                    return False
        except RequestFailedError:
            return True  # a server without /tokenize: an over-long input then comes back as too long
        return True

    def _tokens(self, each: RewardInput) -> Range:
        if self._dialect.layout == "chat":
            reply = self._requests.post("/tokenize", self._body(each))
            count = reply.get("count", 0) if isinstance(reply, dict) else 0
            return count, count
        parts = self._parts(each)
        texts = self._count(parts.turn) + self._count(parts.response)
        return texts + self._marks[0], texts + self._marks[1]

    def _count_text(self, text: str, with_marks: bool = False) -> int:
        """Return the tokens of one text by the server's own tokenizer: of vLLM, or of TEI."""
        try:
            if self._served.engine == "tei":
                body: dict[str, Json] = {"inputs": text, "add_special_tokens": with_marks}
                (tokens,) = self._requests.post("/tokenize", body)
                return len(tokens)
            body = {"model": self.name, "prompt": text, "add_special_tokens": with_marks}
            return int(self._requests.post("/tokenize", body)["count"])
        except (TypeError, KeyError, ValueError) as error:
            raise RequestFailedError("/tokenize gives no count") from error

    def _pair_marks(self) -> Range:
        """Return how many tokens stand around and between two texts; refuse a model that joins them without any.

        vLLM says in `usage` how long the pair was as a whole. A decoder behind its /score and /rerank gets the two
        texts one after the other, without the chat template: its scores then have little to do with the model's.
        """
        first, second = TRIAL.question, TRIAL.response
        if self._served.engine == "tei":
            single = self._count_text(first, with_marks=True) - self._count(first)
            return single + 1, 2 * single  # BERT sets one mark between, RoBERTa two
        if has_chat_template(self._requests, self.name):
            raise _joined(self._requests.url, self._dialect.api)
        turn = self._parts(TRIAL).turn
        reply = self._requests.post(self._dialect.path, {**self._body(TRIAL), **self._served.extra})
        usage = reply.get("usage") if isinstance(reply, dict) else None
        whole = usage.get("prompt_tokens") if isinstance(usage, dict) else None
        if not isinstance(whole, int):
            raise RequestFailedError("the reply has no usage")
        marks = whole - self._count(turn) - self._count(second)
        if marks < _FEWEST_MARKS:
            raise _joined(self._requests.url, self._dialect.api)
        return marks, marks


def has_chat_template(requests: Requests, model: str) -> bool:
    """Tell whether vLLM can lay out a conversation for this model: encoders that read pairs have no chat template."""
    parts = Parts(model=model, turns=(("user", TRIAL.question),), response=TRIAL.response)
    try:
        requests.post("/tokenize", _of_chat(parts))
    except RequestFailedError as error:
        if error.is_about_content:
            return False
        raise
    return True


_FEWEST_MARKS = 2  # one before or after, and one between
_REMEDIES: Mapping[str, str] = {
    "pair": "Serve it where conversations are read, e.g. vLLM with ?api=classify.",
    "chat": "Ask for two texts: ?api=score.",
    "ids": "",
}


def _joined(url: str, api: str) -> UsageError:
    return UsageError(
        f"{url} serves a decoder, and ?api={api} gives it question and response joined without the chat template, "
        "which scores something else. Use ?api=classify, or leave out ?api=."
    )
