"""A package of somebody else's: one kind of reward model, and objects for `python:toy_rewards:NAME`."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from prbench.prompts.formats import ReplyFormat
from prbench.registry import Kind
from prbench.reward_models import LoadedModel, ModelSettings
from prbench.schema import Pick, RewardInput, Score
from prbench.specs import Spec, option


@dataclass(frozen=True, kw_only=True)
class ToyOptions:
    times: int = option(1, "what a word counts")


class ToyReward:
    """Counts a word."""

    name = "toy"

    def __init__(self, word: str, times: int = 1) -> None:
        self.identity = {"word": word, "times": times}
        self._word, self._times = word, times

    def score(self, inputs: Sequence[RewardInput]) -> list[Score]:
        return [Score(value=float(self._times * each.response.count(self._word))) for each in inputs]


def load(spec: Spec, options: ToyOptions, settings: ModelSettings) -> LoadedModel:
    model = ToyReward(spec.target, options.times)
    return LoadedModel(spec=spec.text, kind=spec.kind, model=model, identity=model.identity)


TOY = Kind(
    name="toy",
    example="toy:WORD?times=2",
    summary="counts a word",
    load="toy_rewards:load",
    options="toy_rewards:ToyOptions",
    light=True,
)


def load_shout(spec: Spec, options: None) -> ReplyFormat:
    """A reply format: whoever is shouted last has won."""
    shouts = {"FIRST!": Pick.FIRST, "SECOND!": Pick.SECOND}
    return ReplyFormat(pick=lambda reply: shouts.get((reply.split() or [""])[-1], Pick.UNREADABLE))


SHOUT = Kind(
    name="shout", example="shout", summary="FIRST! or SECOND!", load="toy_rewards:load_shout", takes_target=False
)


class Parrot:
    """A policy: says the question again."""

    def __init__(self, times: int = 1) -> None:
        self._times = times

    def sample(self, prompts: Sequence[Any], *, n: int, seed: int) -> list[list[str]]:
        return [[" ".join([prompt.question] * (self._times + number)) for number in range(n)] for prompt in prompts]


def rows(users: int = 2) -> list[dict[str, Any]]:
    """A dataset."""
    return [
        {
            "id": f"row-{user}",
            "user_id": f"user-{user}",
            "question": f"What now, {user}?",
            "profile": [{"id": "p", "category": "c", "text": "I like tea."}],
            "chosen": "Tea, tea.",
            "rejected": "Coffee.",
            "category": "c",
        }
        for user in range(users)
    ]


class Picky:
    """Compares, and gives no score."""

    def prefer(self, pairs: Sequence[Any]) -> list[str]:
        return ["first" for _ in pairs]


NOT_CALLABLE = 3
