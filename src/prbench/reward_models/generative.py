"""Reward models made of a chat model: a judge compares two responses, a rating model scores one.

The prompt template says in which format the replies come (`prbench.prompts.formats`).
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Literal

import numpy as np

from prbench.backends.llm import load_llm
from prbench.backends.llm.asking import filled
from prbench.backends.llm.client import (
    LLM,
    ChatRequest,
    CountsTokens,
    LlmOptions,
    Message,
    Reply,
    always,
    complete_alike,
    fingerprint_of,
    never,
)
from prbench.backends.llm.spending import keep
from prbench.errors import UsageError
from prbench.prompts import Template, load_template
from prbench.prompts.formats import OWN, open_format
from prbench.prompts.replies import read_pick
from prbench.reward_models.base import LoadedModel, ModelSettings, as_loaded
from prbench.schema import BROKEN, Comparison, Json, PairInput, Pick, Problem, RewardInput, Score
from prbench.specs import AtLeast, Spec, option

MAX_TOKENS = 512  # of a reply, unless the user or the template says it


@dataclass(frozen=True, kw_only=True)
class ChatOptions(LlmOptions):
    """Options of a reward model that asks a chat model."""

    max_tokens: Annotated[int, AtLeast(1)] | None = option(
        None, f"of a reply; default: what the template says, or {MAX_TOKENS}"
    )
    template: str | None = option(None, "prompt template in place of the kind's own: a path, or e.g. prometheus2")


def open_llm(target: str, options: LlmOptions, settings: ModelSettings) -> tuple[LLM, dict[str, Json]]:
    """Return the chat model of that spec, and all of it that changes replies."""
    llm = load_llm(
        target,
        window=options.window,
        concurrency=options.concurrency,
        timeout_seconds=options.timeout,
        seed=settings.seed,
        retries=options.retries,
        answers_as=options.answers_as,
        batch=options.batch,
    )
    return llm, {
        "llm": llm.name,
        "window": options.window,  # only a given one: what a server says of itself may come late or not at all
        "seed": settings.seed,
        "fingerprint": fingerprint_of(llm),
    }


def cached(llm: LLM, settings: ModelSettings) -> LLM:
    """Return the chat model with its replies kept, where the settings name a place for them."""
    return keep(llm, settings.cache, "reward model")


def items_per_step(options: LlmOptions) -> int:
    """Return how many items are asked about, then written, together; a batch is to hold all that there are."""
    return ITEMS_PER_STEP if options.batch is None else ITEMS_PER_BATCH


ITEMS_PER_STEP = 8
ITEMS_PER_BATCH = 8_000  # under three probes and two orders, just below what a batch may hold
Mode = Literal["parse", "logits"]
CANDIDATES = 20  # the most that hosted APIs and vLLM give by default


@dataclass(frozen=True, kw_only=True)
class JudgeOptions(ChatOptions):
    """Options of a model that compares."""

    mode: Mode = option("parse", "read the verdict off the reply, or the log-probabilities of A and B")


def load_judge(spec: Spec, options: JudgeOptions, settings: ModelSettings) -> LoadedModel:
    """Return `judge:LLM`."""
    template = load_template(settings.template or ("judge_pair" if options.mode == "parse" else "judge_pair_direct"))
    max_tokens = options.max_tokens or template.max_tokens or MAX_TOKENS
    llm, llm_identity = open_llm(spec.target, options, settings)
    model = JudgeModel(cached(llm, settings), template, options.mode, max_tokens)
    identity = {**llm_identity, "mode": options.mode, "max_tokens": max_tokens}
    tokens = llm.tokens if options.mode == "logits" and isinstance(llm, CountsTokens) else None
    return replace(as_loaded(spec, model, items_per_step=items_per_step(options), identity=identity), tokens=tokens)


def load_rating(spec: Spec, options: ChatOptions, settings: ModelSettings) -> LoadedModel:
    """Return `rating:LLM`."""
    template = load_template(settings.template or "rate").require("question", "context", "response", answer="score")
    low, high = template.scale or (1, 10)
    max_tokens = options.max_tokens or template.max_tokens or MAX_TOKENS
    llm, llm_identity = open_llm(spec.target, options, settings)
    model = RatingModel(cached(llm, settings), template, low, high, max_tokens)
    identity = {**llm_identity, "max_tokens": max_tokens}
    return as_loaded(spec, model, items_per_step=items_per_step(options), identity=identity)


class JudgeModel:
    """Asks a chat model which of two responses this user would prefer.

    `parse` reads the verdict that the reply states. `logits` asks for one token and compares the log-probabilities of
    the letters A and B as that token; it gives a margin, and ties only where the two are equal.
    """

    def __init__(self, llm: LLM, template: Template, mode: Mode = "parse", max_tokens: int = MAX_TOKENS) -> None:
        if mode not in ("parse", "logits"):
            raise UsageError(f"Unknown judge mode {mode!r}. Known modes: parse, logits.")
        if mode == "logits" and template.reply != OWN:
            raise UsageError(
                f"mode=logits looks for the letters A and B as the first token, and template {template.name!r} has "
                f"replies in the format {template.reply!r}. Use mode=parse."
            )
        self._llm = llm
        self._template = template.require("question", "context", "first", "second", answer="pick")
        self.template_hash = template.hash
        self._read_pick = open_format(template.reply).require_pick(template.reply)
        self._mode = mode
        self._max_tokens = max_tokens if mode == "parse" else 1

    def prefer(self, pairs: Sequence[PairInput]) -> list[Comparison]:
        read, candidates, cut_is_enough = partial(read_verdict, read=self._read_pick), 0, never
        if self._mode == "logits":
            read, candidates, cut_is_enough = partial(read_letters), CANDIDATES, always
        requests = [
            ChatRequest(
                messages=self._messages(pair),
                max_tokens=self._max_tokens,
                top_logprobs=candidates,
                cut_is_enough=cut_is_enough,
            )
            for pair in pairs
        ]
        return [read(reply) for reply in complete_alike(self._llm, requests)]

    def fits(self, pair: RewardInput | PairInput) -> bool:
        """Tell whether prompt and reply fit the model's window together; without a known window they do."""
        if not isinstance(pair, PairInput):
            raise TypeError("a judge compares pairs; ask with a PairInput")
        return _fits(self._llm, self._messages(pair), self._max_tokens)

    def _messages(self, pair: PairInput) -> tuple[Message, ...]:
        return filled(
            self._template, question=pair.question, context=pair.context, first=pair.first, second=pair.second
        )


class RatingModel:
    """Asks a chat model how much this user would like one response, on the template's scale."""

    def __init__(
        self, llm: LLM, template: Template, low: float = 1, high: float = 10, max_tokens: int = MAX_TOKENS
    ) -> None:
        self._llm = llm
        self._template = template.require("question", "context", "response", answer="score")
        self.template_hash = template.hash
        if template.scale != (low, high):
            raise UsageError(
                f"Template {template.name!r} asks for {template.answer!r}, but replies are read on the scale "
                f"{low:g}-{high:g}. Make the two agree."
            )
        self._read_score = open_format(template.reply).require_score(template.reply)
        self._low, self._high = low, high
        self._max_tokens = max_tokens

    def score(self, inputs: Sequence[RewardInput]) -> list[Score]:
        requests = [ChatRequest(messages=self._messages(each), max_tokens=self._max_tokens) for each in inputs]
        scores = []
        for reply in complete_alike(self._llm, requests):
            value = None if reply.problem else self._read_score(reply.text, self._low, self._high)
            problem = reply.problem or (Problem.NO_VERDICT if value is None else Problem.NONE)
            scores.append(Score(value=value, problem=problem, detail=reply.error, raw=reply.text))
        return scores

    def fits(self, each: RewardInput | PairInput) -> bool:
        """Tell whether prompt and reply fit the model's window together; without a known window they do."""
        if not isinstance(each, RewardInput):
            raise TypeError("a rating model scores single responses; ask with a RewardInput")
        return _fits(self._llm, self._messages(each), self._max_tokens)

    def _messages(self, each: RewardInput) -> tuple[Message, ...]:
        return filled(self._template, question=each.question, context=each.context, response=each.response)


def read_verdict(reply: Reply, read: Callable[[str], Pick] = read_pick) -> Comparison:
    """Read the verdict that a reply states; a reply without one is unreadable, never a guess.

    Of a truncated reply nobody knows what it would have decided: it may have been quoting or weighing.
    """
    if reply.problem:
        return _unread(reply)
    pick = read(reply.text)
    problem = Problem.NONE if pick is not Pick.UNREADABLE else Problem.NO_VERDICT
    return Comparison(pick=pick, problem=problem, raw=reply.text)


def read_letters(reply: Reply) -> Comparison:
    """Compare the log-probabilities of A and B as the first token; unreadable when neither is a candidate.

    With one letter among the candidates, the other is at most as likely as the least likely candidate: the margin is
    then that bound, which is on the cautious side.
    """
    if reply.problem in BROKEN:
        return _unread(reply)
    first, second = letter_logprob(reply.first_token, "A"), letter_logprob(reply.first_token, "B")
    if first is None and second is None:
        detail = "neither A nor B is among the first token's candidates"
        return Comparison(pick=Pick.UNREADABLE, problem=Problem.NO_VERDICT, detail=detail, raw=reply.text)
    bound = min(filter(math.isfinite, reply.first_token.values()))
    margin = (bound if first is None else first) - (bound if second is None else second)
    if first is None:
        pick = Pick.SECOND
    elif second is None or first > second:
        pick = Pick.FIRST
    else:
        pick = Pick.TIE if first == second else Pick.SECOND
    return Comparison(pick=pick, raw=reply.text, margin=margin)


def letter_logprob(candidates: Mapping[str, float], letter: str) -> float | None:
    """Return the log-probability of the capital letter, with or without white space around it, or `None`.

    The small letter does not count: `a` begins a sentence of prose more often than it answers the question.
    """
    values = [value for text, value in candidates.items() if text.strip() == letter and math.isfinite(value)]
    return float(np.logaddexp.reduce(values)) if values else None


def _unread(reply: Reply) -> Comparison:
    return Comparison(pick=Pick.UNREADABLE, problem=reply.problem, detail=reply.error, raw=reply.text)


def _fits(llm: LLM, messages: Sequence[Message], max_tokens: int) -> bool:
    return llm.window is None or llm.count_tokens(messages) + max_tokens <= llm.window
