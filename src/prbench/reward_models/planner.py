"""`planner:FOLDER`: foresee what this user looks for, then score the response against that.

A trained planner reads the posts in the context and says which aspects belong to the question, and how likely this
user is to look for each; the criteria scorer says how much of each the response covers. The score is what the user
gets on average: coverage times probability, summed. With `weights=tags` it is the plan as people read it that counts:
essential 1, important 0.7, optional 0.3, all else nothing.

In the folder of a language model that was trained to plan (`prbench.training.lm_planner`) every aspect of its plan is
a criterion of weight 1.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from prbench.backends.encoders import load_encoder
from prbench.backends.fingerprint import fingerprint
from prbench.backends.llm import load_llm
from prbench.backends.llm.client import LLM
from prbench.backends.npz_weights import open_encoder
from prbench.context import Ask, make_context
from prbench.context.aspect_planner import WEIGHTS, AspectPlanner, PredictedAspect, aspect_text, read_planner
from prbench.errors import UsageError
from prbench.reward_models.base import Loaded
from prbench.reward_models.chat_models import cached
from prbench.reward_models.criteria import CriteriaScorer, Criterion, load_criteria
from prbench.reward_models.settings import EncoderOptions, ModelSettings
from prbench.schema import Json, Post, Problem, RewardInput, Score, User, UserContext
from prbench.specs import Spec, option

SCORER = "scorer.json"  # beside the adapter of a language model: which encoder its criteria scorer reads with
MOST_POSTS = 1000  # a context holds what the command line allowed; nothing is left out here


@dataclass(frozen=True, kw_only=True)
class PlannerOptions(EncoderOptions):
    """Options of trained planners."""

    weights: Literal["probability", "tags"] = option("probability", "what an aspect of the plan counts")


def load(spec: Spec, options: PlannerOptions, settings: ModelSettings) -> Loaded:
    """Return `planner:FOLDER`."""
    folder = Path(spec.target)
    if (folder / SCORER).is_file() and not (folder / WEIGHTS).is_file():
        return _load_lm_planner(spec, options, settings)
    read, criteria = read_planner(folder), load_criteria(folder)
    encoder = open_encoder(folder, load_encoder, options.encoder, otherwise=read.encoder)
    model = PlannerReward(
        AspectPlanner(read.weights, read.bank, encoder), CriteriaScorer(criteria, encoder), weighing=options.weights
    )
    return Loaded(spec=spec.text, kind="planner", model=model, identity=model.identity, items_per_step=256)


def _load_lm_planner(spec: Spec, options: PlannerOptions, settings: ModelSettings) -> Loaded:
    """Return a language model that plans, with the scorer beside it."""
    if "weights" in spec.options:
        raise UsageError(f"{spec.text}: a language model's plan has no tags or probabilities. Leave weights out.")
    folder = Path(spec.target)
    encoder = open_encoder(folder, load_encoder, options.encoder, otherwise=scorer_encoder(folder))
    planner = cached(load_llm(f"hf:{folder}", seed=settings.seed), settings)
    model = LmPlannerReward(
        planner,
        CriteriaScorer(load_criteria(folder), encoder),
        identity={"adapter": fingerprint(folder)},
        name=spec.target,
    )
    return Loaded(spec=spec.text, kind="planner", model=model, identity=model.identity, items_per_step=128)


class PlannerReward:
    """Scores responses by a plan; once texts are embedded, it costs next to nothing."""

    def __init__(
        self,
        planner: AspectPlanner,
        scorer: CriteriaScorer,
        *,
        weighing: str = "probability",
        name: str = "planner",
    ) -> None:
        self.name = name
        self._planner = planner
        self._scorer = scorer
        self._by_tag = weighing == "tags"
        self.identity: Mapping[str, Json] = {**planner.identity, **scorer.identity, "weights": weighing}

    def score(self, inputs: Sequence[RewardInput]) -> list[Score]:
        """Return one score per input, in the same order."""
        asked = list(dict.fromkeys((one.user, one.question) for one in inputs))
        plans = self._planner.predict([user.segments for user, _ in asked], [each for _, each in asked])
        criteria = {one: [self._criterion(each) for each in plan] for one, plan in zip(asked, plans, strict=True)}
        scores = self._scorer.score(
            [criteria[one.user, one.question] for one in inputs], [one.response for one in inputs]
        )
        return [Score(value=score) for score in scores]

    def _criterion(self, foreseen: PredictedAspect) -> Criterion:
        # What is not wanted keeps its place in the list, at weight 0: it competes for the sentences.
        return Criterion(foreseen.aspect.text, foreseen.weight if self._by_tag else foreseen.probability)


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
        made = self._maker.contexts([_ask(user, question) for user, question in asked])
        plans = dict(zip(asked, made, strict=True))
        values = self._scorer.score(
            [_criteria(plans[one.user, one.question]) for one in inputs], [one.response for one in inputs]
        )
        scores = []
        for one, value in zip(inputs, values, strict=True):
            plan = plans[one.user, one.question]
            failed = Score(value=None, problem=plan.problem, detail=plan.detail)
            scores.append(Score(value=value) if plan.problem is Problem.NONE else failed)
        return scores


def scorer_encoder(folder: Path) -> str:
    """Return the name of the encoder that the criteria scorer beside an adapter reads with."""
    try:
        return str(json.loads((folder / SCORER).read_text(encoding="utf-8"))["encoder"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{folder}: no planner was trained there. Use prbench train --method planner.") from error


def _ask(user: UserContext, question: str) -> Ask:
    # Newest first, as the context lists them: a profile is the other way round.
    posts = tuple(Post(id=str(at), text=text) for at, text in enumerate(reversed(user.segments)))
    return Ask(user=User(id="", profile=posts), question=question)


def _criteria(plan: UserContext) -> list[Criterion]:
    planned = (segment.partition(": ") for segment in plan.segments)
    return [Criterion(aspect_text(aspect, why), 1.0) for aspect, _, why in planned]
