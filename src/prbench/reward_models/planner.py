"""`planner:FOLDER`: predict what this user looks for, then score the response against that.

A trained planner reads the posts in the context and says which aspects belong to the question, and how likely this
user is to look for each; the criteria scorer says how much of each the response covers. The score is what the user
gets on average: coverage times probability, summed. With `weights=tags` it is the plan as people read it that counts:
essential 1, important 0.7, optional 0.3, all else nothing.

In the folder of a language model that was trained to plan (`prbench.training.lm_planner`) every aspect of its plan is
a criterion of weight 1.

The criteria scorer: a learned form says how near a criterion and a sentence are; the criteria of one question compete
for every sentence, and so does "none of them". A criterion of weight 0 earns nothing and only competes: it keeps a
sentence that serves something else from being taken for the nearest thing that is wanted.

    near(c, s)  = cosine * c.s + (U c).(V s)
    serves(s,c) = softmax over c and "none" of near(c, s)
    covered(c)  = sum_s softmax_s(sharpness * serves(s,c)) serves(s,c)     sharpness 0: the mean; large: the best
    score       = scale * sum_c weight(c) covered(c)

The arrays are trained in `prbench.training.criteria`, on pairs whose rubric is known.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from prbench.backends.encoders import Doubles, Encoder
from prbench.backends.hf import fingerprint
from prbench.backends.llm import load_llm
from prbench.backends.llm.client import LLM
from prbench.backends.npz_weights import NpzRecord, embed, open_encoder
from prbench.context import Ask, make_context
from prbench.context.aspect_planner import WEIGHTS as PLANNER_WEIGHTS
from prbench.context.aspect_planner import (
    AspectPlanner,
    Floats,
    PredictedAspect,
    aspect_text,
    read_planner,
    softmax,
)
from prbench.data.texts import sentences_of
from prbench.errors import UsageError
from prbench.reward_models.base import EncoderOptions, LoadedModel, ModelSettings, as_loaded
from prbench.reward_models.generative import cached
from prbench.schema import Json, Post, RewardInput, Score, User, UserContext
from prbench.specs import Spec, option


@dataclass(frozen=True, slots=True)
class Criterion:
    """Something to look for in a response, and how much it counts."""

    text: str  # an aspect as `aspect_text` writes it
    weight: float


@dataclass(frozen=True, kw_only=True)
class CriteriaWeights(NpzRecord):
    """The arrays of one scorer, for embeddings of size d and rank r."""

    FILE = "criteria.npz"

    criterion: Floats  # (d, r): U
    sentence: Floats  # (d, r): V
    cosine: Floats  # ()
    none: Floats  # (): nearness of "none of them" to any sentence
    sharpness: Floats  # ()
    scale: Floats  # ()


class CriteriaScorer:
    """Scores responses against criteria with trained arrays; every text is embedded once."""

    def __init__(self, weights: CriteriaWeights, encoder: Encoder) -> None:
        self._weights = weights
        self._encoder = encoder
        self.scale = float(weights.scale)  # what a covered criterion of weight 1 adds to a score
        self.identity: Mapping[str, Json] = {
            "criteria": weights.hash,
            "encoder": dict(encoder.identity),
            "criteria_rule": 1,
        }

    def score(self, criteria: Sequence[Sequence[Criterion]], responses: Sequence[str]) -> list[float]:
        """Return one score per list of criteria and response; 0 where there is nothing to look for, or in."""
        covered = self.covered([[one.text for one in group] for group in criteria], responses)
        scores = [
            self._weights.scale * sum(one.weight * share for one, share in zip(group, shares, strict=True))
            for group, shares in zip(criteria, covered, strict=True)
        ]
        # Computed in float64 and rounded: the last bits of a matrix product depend on how many rows it has.
        return [float(np.float32(score)) for score in scores]

    def covered(self, criteria: Sequence[Sequence[str]], responses: Sequence[str]) -> list[Doubles]:
        """Return how much of each criterion each response covers, between 0 and 1."""
        parts = [sentences_of(response) for response in responses]
        texts = list(dict.fromkeys(text for group in (*criteria, *parts) for text in group))
        size = len(self._weights.criterion)
        vectors = np.zeros((0, size))
        if texts:
            vectors = embed(self._encoder, texts, size, model="the scorer of criteria")  # (texts, d)
        place = {text: index for index, text in enumerate(texts)}
        as_criterion, as_sentence = vectors @ self._weights.criterion, vectors @ self._weights.sentence
        found = []
        for group, sentences in zip(criteria, parts, strict=True):
            ours, theirs = [place[text] for text in group], [place[text] for text in sentences]
            near = self._weights.cosine * (vectors[theirs] @ vectors[ours].T)
            near = near + as_sentence[theirs] @ as_criterion[ours].T
            found.append(covered(near, float(self._weights.none), float(self._weights.sharpness)))
        return found


def covered(near: Doubles, none: float, sharpness: float) -> Doubles:
    """Return how much of each criterion is covered, from the nearness of (sentences, criteria)."""
    if not near.size:
        return np.zeros(near.shape[1])
    serves = softmax(np.column_stack([near, np.full(len(near), none)]), axis=1)[:, :-1]
    shares: Doubles = (softmax(sharpness * serves, axis=0) * serves).sum(axis=0)
    return shares


SCORER = "scorer.json"  # beside the adapter of a language model: which encoder its criteria scorer reads with
MOST_POSTS = 1000  # a context holds what the command line allowed; nothing is left out here


@dataclass(frozen=True, kw_only=True)
class PlannerOptions(EncoderOptions):
    """Options of trained planners."""

    weights: Literal["probability", "tags"] = option("probability", "what an aspect of the plan counts")


def load(spec: Spec, options: PlannerOptions, settings: ModelSettings) -> LoadedModel:
    """Return `planner:FOLDER`."""
    folder = Path(spec.target)
    if (folder / SCORER).is_file() and not (folder / PLANNER_WEIGHTS).is_file():
        return _load_lm_planner(spec, options, settings)
    read, criteria = read_planner(folder), CriteriaWeights.load(folder)
    encoder = open_encoder(folder, options.encoder, otherwise=read.encoder)
    planner, scorer = AspectPlanner(read.weights, read.bank, encoder), CriteriaScorer(criteria, encoder)
    model = PlannerReward(planner, scorer, weighing=options.weights)
    return as_loaded(spec, model, items_per_step=256)


def _load_lm_planner(spec: Spec, options: PlannerOptions, settings: ModelSettings) -> LoadedModel:
    """Return a language model that plans, with the scorer beside it."""
    if "weights" in spec.options:
        raise UsageError(f"{spec.text}: a language model's plan has no tags or probabilities. Leave weights out.")
    folder = Path(spec.target)
    try:
        reads_with = str(json.loads((folder / SCORER).read_text(encoding="utf-8"))["encoder"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        wrong = "no planner was trained there. Use prbench train --method planner."
        raise UsageError(f"{folder}: {wrong}") from error
    encoder = open_encoder(folder, options.encoder, otherwise=reads_with)
    planner = cached(load_llm(f"hf:{folder}", seed=settings.seed), settings)
    model = LmPlannerReward(
        planner,
        CriteriaScorer(CriteriaWeights.load(folder), encoder),
        identity={"adapter": fingerprint(folder)},
        name=spec.target,
    )
    return as_loaded(spec, model, items_per_step=128)


CriteriaOf = Callable[[Sequence[PredictedAspect], UserContext, str], list[Criterion]]  # of a plan, user and question


def score_by_plan(
    planner: AspectPlanner, scorer: CriteriaScorer, inputs: Sequence[RewardInput], criteria_of: CriteriaOf
) -> list[Score]:
    """Return one score per input: how much it covers of what the planner predicts for its user."""
    asked = list(dict.fromkeys((one.user, one.question) for one in inputs))
    plans = planner.predict([user.segments for user, _ in asked], [question for _, question in asked])
    criteria = {one: criteria_of(plan, *one) for one, plan in zip(asked, plans, strict=True)}
    scores = scorer.score([criteria[one.user, one.question] for one in inputs], [one.response for one in inputs])
    return [Score(value=score) for score in scores]


class PlannerReward:
    """Scores responses by a plan; once texts are embedded, it costs next to nothing."""

    def __init__(self, planner: AspectPlanner, scorer: CriteriaScorer, *, weighing: str = "probability") -> None:
        self.name = "planner"
        self._planner = planner
        self._scorer = scorer
        self._by_tag = weighing == "tags"
        self.identity: Mapping[str, Json] = {**planner.identity, **scorer.identity, "weights": weighing}

    def score(self, inputs: Sequence[RewardInput]) -> list[Score]:

        def criteria_of(plan: Sequence[PredictedAspect], user: UserContext, question: str) -> list[Criterion]:
            # What is not wanted keeps its place in the list, at weight 0: it competes for the sentences.
            return [Criterion(each.aspect.text, each.weight if self._by_tag else each.probability) for each in plan]

        return score_by_plan(self._planner, self._scorer, inputs, criteria_of)


class LmPlannerReward:
    """Scores responses by what a language model plans from the posts."""

    def __init__(self, planner: LLM, scorer: CriteriaScorer, *, identity: Mapping[str, Json], name: str) -> None:
        self.name = name
        self._maker = make_context("plan", posts=MOST_POSTS, planner=planner)
        self._scorer = scorer
        self.identity: Mapping[str, Json] = {**self._maker.identity, **scorer.identity, **identity}

    def score(self, inputs: Sequence[RewardInput]) -> list[Score]:
        """Return one score per input, in the same order; where there is no plan, there is no score."""
        asked = list(dict.fromkeys((one.user, one.question) for one in inputs))
        asks = []
        for user, question in asked:
            # Newest first, as the context lists them: a profile is the other way round.
            posts = tuple(Post(id=str(at), text=text) for at, text in enumerate(reversed(user.segments)))
            asks.append(Ask(user=User(id="", profile=posts), question=question))
        plans = dict(zip(asked, self._maker.contexts(asks), strict=True))
        criteria = {
            key: [Criterion(aspect_text(*segment.split(": ", 1)), 1.0) for segment in plan.segments]
            for key, plan in plans.items()
        }
        values = self._scorer.score(
            [criteria[one.user, one.question] for one in inputs], [one.response for one in inputs]
        )
        return [
            Score(value=None if plan.problem else value, problem=plan.problem, detail=plan.detail)
            for plan, value in zip((plans[one.user, one.question] for one in inputs), values, strict=True)
        ]
