"""What pays the policy: any reward model. `control:gold` is the lab's truth, a ceiling and no model under test."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from prbench.context import Material, fit
from prbench.reward_models import ModelSettings, load_ref, read_ref, require_scores
from prbench.reward_models.base import Loaded
from prbench.reward_models.view import DisturbedReward
from prbench.schema import Example, Json, Problem, RewardInput, Score


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One answer to be scored. Reward models get to see `given` alone."""

    example: Example
    material: Material  # what a reward model may be told of the user
    response: str

    @property
    def given(self) -> RewardInput:
        """What a reward model sees where its window holds all of it."""
        return self.with_context(fit(self.material, None).text)

    def with_context(self, text: str) -> RewardInput:
        """What a reward model sees with that much of the context."""
        return RewardInput(question=self.example.question, context=text, response=self.response)


class Reward(Protocol):
    """Scores answers; a score without a value is a failure."""

    @property
    def identity(self) -> Mapping[str, Json]:
        """All that changes the scores; goes into the run's id."""
        ...

    def score(self, candidates: Sequence[Candidate]) -> list[Score]:
        """Return one score per candidate, in the same order."""
        ...


def load_reward(spec: str, settings: ModelSettings) -> Reward:
    """Build what the command line names, e.g. `head:lab-user`, `server:URL`, `control:gold?noise=0.5`."""
    return ModelReward(load_ref(read_ref(spec), settings))


class ModelReward:
    """A reward model under test, in this process or behind `server:URL`."""

    def __init__(self, loaded: Loaded) -> None:
        self._loaded = loaded
        self._model = require_scores(loaded, "PPO")
        self.identity: Mapping[str, Json] = {
            "spec": loaded.spec,
            "model": dict(loaded.identity),
            "template_hash": loaded.template_hash,
        }

    def score(self, candidates: Sequence[Candidate]) -> list[Score]:
        """Return one score per candidate. Where a prompt is too long, posts are dropped and the answer never is."""
        scores = list(self._score(candidates, [candidate.given for candidate in candidates]))
        too_long = [place for place, score in enumerate(scores) if score.problem is Problem.TOO_LONG]
        shorter = {place: given for place in too_long if (given := self._shortened(candidates[place])) is not None}
        if shorter:
            scores_again = self._score([candidates[place] for place in shorter], list(shorter.values()))
            for place, score in zip(shorter, scores_again, strict=True):
                scores[place] = score
        return scores

    def _score(self, candidates: Sequence[Candidate], inputs: Sequence[RewardInput]) -> list[Score]:
        if isinstance(self._model, DisturbedReward):
            # The same user gets the same noise, however many posts the window holds.
            return self._model.score(inputs, users=[candidate.example.user.id for candidate in candidates])
        return self._model.score(inputs)

    def _shortened(self, candidate: Candidate) -> RewardInput | None:
        """Return the input with as many posts as the window holds; none where not even the answer fits."""
        if self._loaded.fits is None:
            return None
        holds = self._loaded.fits
        context = fit(candidate.material, lambda text: holds(candidate.with_context(text)))
        return candidate.with_context(context.text) if context.fits else None
