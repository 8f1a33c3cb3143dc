"""What pays the policy: any reward model. `control:gold` is the lab's truth, a ceiling and no model under test."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from prbench.evaluation.items import PreparedItem
from prbench.evaluation.score import score_rows
from prbench.reward_models import ModelSettings, load_ref, read_ref, require_scores
from prbench.reward_models.base import Loaded
from prbench.schema import Example, Json, Probe, Score, UserContext


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One answer to be scored. A reward model sees question, user and response."""

    example: Example
    user: UserContext  # what a reward model may be told of the user
    response: str


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
        require_scores(loaded, "PPO")
        self._loaded = loaded
        self.identity: Mapping[str, Json] = {
            "spec": loaded.spec,
            "model": dict(loaded.identity),
            "template_hash": loaded.template_hash,
        }

    def score(self, candidates: Sequence[Candidate]) -> list[Score]:
        """Return one score per candidate. Where a prompt is too long, posts are dropped and the answer never is."""
        prepared = [
            PreparedItem(example=each.example, probe=Probe.OWN, user=each.user, responses=(each.response,))
            for each in candidates
        ]
        return [score for row in score_rows(prepared, self._loaded) for score in row.scores]
