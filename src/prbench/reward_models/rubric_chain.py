"""A chain: write this person's rubric for this question, score the response against it, average over several rubrics.

With a chat model, both steps are requests. A rubric is a few criteria with an importance (weights 1, 0.7, 0.3 as in
P-Check, arXiv 2601.02986); a response gets 0 to 10 per criterion, and a sample is worth the weighted mean. All
responses to one person's question are scored against the same rubrics. What cannot be read never becomes a number.

`rubric-chain:FOLDER` samples rubrics from a trained planner, which says how likely this user is to look for each
aspect that belongs to the question. A sample is a rubric: each aspect is in it or not, by a draw of that probability;
those that are not in it compete for sentences at weight 0. The mean over samples tends to the score under all rubrics
that the posts allow. An aspect's draws are spread evenly over the samples (a van der Corput sequence, shifted at
random): of 64 draws of probability 0.6, 38 or 39 fall on one side, where independent draws would miss by 4 on average,
more than people about whom nothing is known differ. They depend only on seed, posts and question, so all responses
meet the same rubrics, in any batch; the first 4 of 16 samples are those of 4.
"""

import json
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from math import fsum
from pathlib import Path
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from prbench.backends.encoders import load_encoder
from prbench.backends.llm.asking import filled
from prbench.backends.llm.client import LLM, ChatRequest, LlmOptions, Message, Reply
from prbench.context.aspect_planner import AspectPlanner, PredictedAspect, load_aspect_planner, read_planner
from prbench.errors import UsageError
from prbench.prompts import HASH_LENGTH, load_template
from prbench.prompts.replies import read_json
from prbench.registry import LLMS
from prbench.reward_models.base import LoadedModel, ModelSettings, as_loaded
from prbench.reward_models.generative import cached, open_llm
from prbench.reward_models.planner import CriteriaScorer, CriteriaWeights, Criterion, score_by_plan
from prbench.schema import BROKEN, RETRIED, Json, PairInput, Problem, RewardInput, Score, UserContext, gravest
from prbench.specs import Above, AtLeast, Spec, kind_of, option

RUBRIC, SCORES = "chain_rubric", "chain_score"
IMPORTANCE: Mapping[str, float] = {"essential": 1.0, "important": 0.7, "optional": 0.3}
FEWEST, MOST = 1, 6  # criteria of a rubric
TOP = 10  # the best score of one criterion
CACHED_RUBRICS = 4096  # rubrics kept for later calls: other responses to the question must meet the same ones

RUBRIC_SHAPE: Mapping[str, Json] = {
    "type": "object",
    "properties": {
        "criteria": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "criterion": {"type": "string", "minLength": 3},
                    "importance": {"type": "string", "enum": list(IMPORTANCE)},
                },
                "required": ["criterion", "importance"],
                "additionalProperties": False,
            },
            "minItems": FEWEST,
            "maxItems": MOST,
        }
    },
    "required": ["criteria"],
    "additionalProperties": False,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainRubric:
    """What a rubric reply held; without criteria, `problem` says why."""

    criteria: tuple[Criterion, ...] = ()
    problem: Problem = Problem.NONE
    detail: str = ""
    raw: str = ""


@dataclass(frozen=True, kw_only=True)
class RubricChainOptions(LlmOptions):
    """Options of rubric chains; a trained folder takes `samples` and `seed` alone."""

    samples: Annotated[int, AtLeast(1)] | None = option(None, "rubrics per question; default: 4, or 64 of a folder")
    temperature: Annotated[float, Above(0)] | None = option(None, "of the chat model; default: 0.7, or 0 for 1 sample")
    max_tokens: Annotated[int, AtLeast(1)] = option(512, "of a reply")


def load(spec: Spec, options: RubricChainOptions, settings: ModelSettings) -> LoadedModel:
    """Return `rubric-chain:LLM`, or `rubric-chain:FOLDER`."""
    if ":" not in spec.target or kind_of(spec.target) not in LLMS.names:
        foreign = sorted(spec.options.keys() - {"samples", "seed"})
        if foreign:
            raise UsageError(f"{spec.text}: {foreign[0]} is for chat models. A trained folder takes samples and seed.")
        sampled = load_sampled_rubrics(Path(spec.target), samples=options.samples or SAMPLES, seed=settings.seed)
        return as_loaded(spec, sampled, items_per_step=256)
    if settings.template:
        raise UsageError(f"{spec.text}: a rubric chain has two prompts of its own, so --template means nothing here.")
    samples = options.samples or 4
    llm, llm_identity = open_llm(spec.target, options, settings)
    model = RubricChain(
        cached(llm, settings),
        samples=samples,
        temperature=options.temperature or (0.7 if samples > 1 else 0.0),
        max_tokens=options.max_tokens,
        seed=settings.seed,
    )
    return as_loaded(spec, model, items_per_step=8, identity={**llm_identity, **model.identity})


class RubricChain:
    """Asks a chat model for rubrics, then for the scores of the response under each of them.

    A sample whose rubric cannot be read is left out, for all responses alike; if none is left, there is no score. A
    response that was not scored under one of the rubrics has no score either: a mean over fewer would not compare.
    """

    def __init__(self, llm: LLM, *, samples: int, temperature: float, max_tokens: int, seed: int = 0) -> None:
        self._llm = llm
        self._samples = samples
        self._temperature = temperature
        self._max_tokens = max_tokens
        self._seed = seed
        self._rubric = load_template(RUBRIC).require("question", "context", answer="json")
        self._score = load_template(SCORES).require("question", "criteria", "response", answer="json")
        self._cached: OrderedDict[tuple[str, UserContext, int], ChainRubric] = OrderedDict()

        both = f"{self._rubric.hash} {self._score.hash}"
        self.template_hash = sha256(both.encode()).hexdigest()[:HASH_LENGTH]
        self.identity: Mapping[str, Json] = {  # besides the chat model
            "samples": samples,
            "temperature": temperature,
            "max_tokens": max_tokens,
            "prompts": {RUBRIC: self._rubric.hash, SCORES: self._score.hash},
            "importance": dict(IMPORTANCE),
        }

    def score(self, inputs: Sequence[RewardInput]) -> list[Score]:
        rubrics = self._write_rubrics(inputs)
        asked = [
            (index, rubric)
            for index, some in enumerate(rubrics)
            if not any(rubric.problem in BROKEN for rubric in some)
            for rubric in some
            if rubric.criteria
        ]
        requests = [
            ChatRequest(
                messages=self._score_messages(inputs[index], rubric.criteria),
                max_tokens=self._max_tokens,
                seed=self._seed,
                json_schema=scores_shape(len(rubric.criteria)),
            )
            for index, rubric in asked
        ]
        replies = self._llm.complete(requests)
        scored: dict[int, list[tuple[ChainRubric, Reply]]] = {}
        for (index, rubric), reply in zip(asked, replies, strict=True):
            scored.setdefault(index, []).append((rubric, reply))
        found = []
        for index, some in enumerate(rubrics):
            if index in scored:
                found.append(mean_score(scored[index]))
                continue
            bad = gravest(some) or some[0]
            raw = json.dumps([{"rubric": rubric.raw} for rubric in some])
            found.append(Score(value=None, problem=bad.problem, detail=bad.detail, raw=raw))
        return found

    def fits(self, each: RewardInput | PairInput) -> bool:
        """Tell whether both steps fit the model's window, for the longest rubric that it may write."""
        if not isinstance(each, RewardInput):
            raise TypeError("a rubric chain scores single responses; ask with a RewardInput")
        if self._llm.window is None:
            return True
        room = self._llm.window - self._max_tokens
        second = self._llm.count_tokens(self._score_messages(each, ())) + self._max_tokens
        return (
            self._llm.count_tokens(self._rubric_request(each.question, each.user, 0).messages) <= room
            and second <= room
        )

    def _write_rubrics(self, inputs: Sequence[RewardInput]) -> list[list[ChainRubric]]:
        """Return the rubrics of each input; those that are worth another try are not cached."""
        wanted = [[(each.question, each.user, sample) for sample in range(self._samples)] for each in inputs]
        every = dict.fromkeys(asked for some in wanted for asked in some)
        found = {asked: self._cached[asked] for asked in every if asked in self._cached}
        new = [asked for asked in every if asked not in found]
        replies = self._llm.complete([self._rubric_request(*asked) for asked in new]) if new else []
        found.update(zip(new, map(read_rubric, replies), strict=True))
        for some in wanted:
            # A truncated one stays left out beside one that was read: all responses must meet the same rubrics.
            uncached = BROKEN if any(found[asked].criteria for asked in some) else RETRIED
            for asked in some:
                if found[asked].problem not in uncached:
                    self._cached[asked] = found[asked]
                    self._cached.move_to_end(asked)
        while len(self._cached) > CACHED_RUBRICS:
            self._cached.popitem(last=False)
        return [[found[asked] for asked in some] for some in wanted]

    def _rubric_request(self, question: str, user: UserContext, sample: int) -> ChatRequest:
        return ChatRequest(
            messages=filled(self._rubric, question=question, context=user.text),
            max_tokens=self._max_tokens,
            temperature=self._temperature,
            seed=self._seed + sample,
            json_schema=RUBRIC_SHAPE,
        )

    def _score_messages(self, each: RewardInput, criteria: Sequence[Criterion]) -> tuple[Message, ...]:
        listed = "\n".join(f"{number}. {criterion.text}" for number, criterion in enumerate(criteria, 1))
        return filled(self._score, question=each.question, criteria=listed, response=each.response)


def read_rubric(reply: Reply) -> ChainRubric:
    """Return the criteria that a reply holds, each once, or the reason why it holds none."""
    if reply.problem:
        return ChainRubric(problem=reply.problem, detail=reply.error, raw=reply.text)
    found = read_json(reply.text, RUBRIC_SHAPE)
    if found is None:
        return ChainRubric(problem=Problem.NO_VERDICT, detail="the reply holds no rubric", raw=reply.text)
    weights: dict[str, float] = {}
    for each in found["criteria"]:
        weights.setdefault(" ".join(each["criterion"].split()), IMPORTANCE[each["importance"]])
    copied = {"", "...", "criterion", *IMPORTANCE}  # words of our own form are no criteria
    criteria = tuple(Criterion(text, weight) for text, weight in weights.items() if text.casefold() not in copied)
    if not criteria:
        return ChainRubric(problem=Problem.NO_VERDICT, detail="the rubric only repeats the form", raw=reply.text)
    return ChainRubric(criteria=criteria, raw=reply.text)


def read_scores(reply: Reply, count: int) -> list[float] | None:
    """Return one number from 0 to 10 per criterion; `None` unless there are exactly that many."""
    found = read_json(reply.text, scores_shape(count))
    return None if found is None else [float(each) for each in found["scores"]]


def scores_shape(count: int) -> dict[str, Json]:
    """Return the JSON schema of the scores for that many criteria."""
    number = {"type": "integer", "minimum": 0, "maximum": TOP}
    return {
        "type": "object",
        "properties": {"scores": {"type": "array", "items": number, "minItems": count, "maxItems": count}},
        "required": ["scores"],
        "additionalProperties": False,
    }


def mean_score(scored: Sequence[tuple[ChainRubric, Reply]]) -> Score:
    """Return the mean over the samples; one that was not scored leaves the response without a score."""
    raw = json.dumps([{"rubric": rubric.raw, "scores": reply.text} for rubric, reply in scored])
    samples = []
    for rubric, reply in scored:
        scores = None if reply.problem else read_scores(reply, len(rubric.criteria))
        if reply.problem:
            samples.append(Score(value=None, problem=reply.problem, detail=reply.error))
        elif scores is None:
            detail = "the reply does not score every criterion"
            samples.append(Score(value=None, problem=Problem.NO_VERDICT, detail=detail))
        else:  # the weighted mean, from 0 to 10
            total = fsum(each.weight for each in rubric.criteria)
            worth = fsum(each.weight * score for each, score in zip(rubric.criteria, scores, strict=True))
            samples.append(Score(value=worth / total))
    bad = gravest(sample for sample in samples if sample.value is None)
    if bad:
        return replace(bad, raw=raw)
    return Score(value=fsum(sample.value for sample in samples if sample.value is not None) / len(samples), raw=raw)


_BITS = 32  # of a uniform number
SAMPLES = 64  # unless said otherwise; more cost next to nothing, as coverage is computed once


def load_sampled_rubrics(folder: Path, *, samples: int, seed: int) -> "SampledRubrics":
    """Read a folder that `prbench train --method rubric-chain` (or `planner`) wrote."""
    planner = load_aspect_planner(folder)
    scorer = CriteriaScorer(CriteriaWeights.load(folder), load_encoder(read_planner(folder).encoder))
    return SampledRubrics(planner, scorer, samples=samples, seed=seed)


class SampledRubrics:
    """Scores responses against rubrics that are sampled from a planner."""

    def __init__(self, planner: AspectPlanner, scorer: CriteriaScorer, *, samples: int, seed: int) -> None:
        self._planner = planner
        self._scorer = scorer
        self._samples = samples
        self._seed = seed
        sampling: Mapping[str, Json] = {"samples": samples, "seed": seed, "sampling_rule": 2}
        self.identity: Mapping[str, Json] = {**planner.identity, **scorer.identity, **sampling}

    def score(self, inputs: Sequence[RewardInput]) -> list[Score]:
        return score_by_plan(self._planner, self._scorer, inputs, self._criteria)

    def _criteria(self, plan: Sequence[PredictedAspect], user: UserContext, question: str) -> list[Criterion]:
        """Return the aspects with the share of samples that hold each: a score is linear in the weights.

        So scoring once with these weights is the mean of the scores under the single rubrics.
        """
        ordered = sorted(plan, key=lambda each: each.aspect.text)  # the draws of an aspect stay its own
        probabilities = [each.probability for each in ordered]
        rubrics = draw(probabilities, user.segments, question, self._samples, self._seed)
        return [
            Criterion(each.aspect.text, float(share))
            for each, share in zip(ordered, rubrics.mean(axis=0), strict=True)
        ]


def draw(
    probabilities: Sequence[float], posts: Sequence[str], question: str, samples: int, seed: int
) -> NDArray[np.float64]:
    """Return rubrics as (samples, aspects) of 0 and 1; they depend on seed, posts and question."""
    key = sha256("\0".join([str(seed), question, *sorted(posts)]).encode("utf-8", "surrogatepass")).digest()
    dice = np.random.default_rng(int.from_bytes(key[:16], "big"))
    masks = dice.integers(0, 1 << _BITS, len(probabilities), dtype=np.uint64)
    # The numbers from 0 on with their bits in reverse: any first part of them is spread evenly.
    numbers, reverse = np.arange(samples, dtype=np.uint64), np.zeros(samples, dtype=np.uint64)
    for bit in range(_BITS):
        reverse |= ((numbers >> np.uint64(bit)) & np.uint64(1)) << np.uint64(_BITS - 1 - bit)
    uniforms = (reverse[:, None] ^ masks[None, :]) / 2.0**_BITS  # (samples, aspects)
    rubrics: NDArray[np.float64] = (uniforms < np.asarray(probabilities)).astype(np.float64)
    return rubrics
