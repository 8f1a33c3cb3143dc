"""Deterministic stand-ins that ship with the package, for tests and dry runs."""

from collections.abc import Callable, Sequence

from prbench.errors import UsageError
from prbench.reward_models.base import LoadedModel, ModelSettings, as_loaded, as_score
from prbench.schema import RewardInput, Score
from prbench.specs import Spec


class FakeReward:
    """Scores by a function that you give it, counts its calls and keeps what it was shown.

    The function may return `None` for "no score" and may raise to play a broken model.
    """

    def __init__(self, function: Callable[[RewardInput], float | None], *, name: str = "fake") -> None:
        self.name = name
        self.identity = {"fake": name}
        self.calls = 0
        self.inputs: list[RewardInput] = []
        self._function = function

    def score(self, inputs: Sequence[RewardInput]) -> list[Score]:
        self.calls += 1
        self.inputs += inputs
        return [as_score(self._function(each)) for each in inputs]


def load(spec: Spec, options: None, settings: ModelSettings) -> LoadedModel:
    """Return `fake:constant`, `fake:length`, or `fake:keyword=WORD` (1 where the response holds the word, else 0)."""
    target = spec.target
    name, equals, word = target.partition("=")
    rules: dict[str, Callable[[RewardInput], float]] = {
        "constant": lambda each: 0.0,
        "length": lambda each: float(len(each.response)),
        "keyword": lambda each: float(word in each.response),
    }
    if name not in rules or bool(word) != (name == "keyword") or bool(equals) != bool(word):
        raise UsageError(f"There is no fake model {target!r}. Use fake:constant, fake:length or fake:keyword=WORD.")
    return as_loaded(spec, FakeReward(rules[name], name=target))
