"""Models that only workers load: here there is their spec, and what a run must know about them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NoReturn

from prbench.reward_models.base import Loaded, PairJudge
from prbench.reward_models.settings import ModelSettings
from prbench.schema import Comparison, PairInput, RewardInput, Score


@dataclass(frozen=True, kw_only=True)
class RemoteModelRef:
    """How a worker gets the model."""

    spec: str
    settings: ModelSettings

    def refuse(self) -> NoReturn:
        """Fail: a run on an engine that loads in workers never asks here."""
        raise AssertionError(f"{self.spec} is loaded by workers, and was asked outside of them")


class ScoresElsewhere(RemoteModelRef):
    """Stands for a reward model."""

    def score(self, inputs: Sequence[RewardInput]) -> list[Score]:
        """Never called."""
        self.refuse()


class PrefersElsewhere(RemoteModelRef):
    """Stands for a model that compares."""

    def prefer(self, pairs: Sequence[PairInput]) -> list[Comparison]:
        """Never called."""
        self.refuse()


def detach(loaded: Loaded, settings: ModelSettings) -> Loaded:
    """Return what may leave the worker: all that is known about the model, without the model."""
    stands_for = PrefersElsewhere if isinstance(loaded.model, PairJudge) else ScoresElsewhere
    model = stands_for(spec=loaded.spec, settings=settings)
    return replace(loaded, model=model, identity=dict(loaded.identity), fits=None, tokens=None)
