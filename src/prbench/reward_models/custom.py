"""Models brought as Python objects: anything with `score(inputs)` or `prefer(pairs)`."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, SupportsFloat

from prbench.errors import UsageError
from prbench.registry import load_python
from prbench.reward_models.base import Loaded, PairJudge, RewardModel
from prbench.reward_models.scores import as_score
from prbench.reward_models.settings import ModelSettings
from prbench.schema import Comparison, PairInput, Pick, RewardInput, Score
from prbench.specs import Spec


def load(spec: Spec, options: None, settings: ModelSettings) -> Loaded:
    """Return `python:package.module:Factory`: what the factory makes, which may be a whole `Loaded`."""
    made = load_python(spec)
    loaded = made if isinstance(made, Loaded) else wrap(made)
    identity = {**loaded.identity, "options": dict(spec.options)} if spec.options else loaded.identity
    return replace(loaded, spec=spec.text, kind=spec.kind, identity=identity)


def wrap(model: object) -> Loaded:
    """Return the object as a model under test.

    Its name is `.name`, or that of its class. `.identity` (a mapping of all that changes its scores), `.template_hash`
    and `.fits(input)` are used where it has them. `score` may return plain numbers, with `None` for "no score".
    """
    if isinstance(model, type):
        raise UsageError(f"{model.__name__} is a class. Give an object that it makes: {model.__name__}(…).")
    name = str(getattr(model, "name", "") or type(model).__name__)
    identity = getattr(model, "identity", None)
    if identity is not None and not isinstance(identity, Mapping):
        raise UsageError(
            f"{name}: identity is a {type(identity).__name__}; make it a mapping of what changes its scores."
        )
    return Loaded(
        spec=name,
        kind="custom",
        model=_adapted(name, model),
        identity=dict(identity)
        if identity is not None
        else {"class": f"{type(model).__module__}.{type(model).__qualname__}"},
        template_hash=str(getattr(model, "template_hash", "")),
        fits=_fits(name, model),
    )


def _adapted(name: str, model: object) -> RewardModel | PairJudge:
    for method, adapter in (("score", _Scorer), ("prefer", _Preferrer)):
        function = getattr(model, method, None)
        if callable(function):
            return adapter(name, function)
    raise UsageError(
        f"{name} has neither score(inputs) nor prefer(pairs), so it cannot be tested. Give it one of them."
    )


def _fits(name: str, model: object) -> Callable[[RewardInput | PairInput], bool] | None:
    fits = getattr(model, "fits", None)
    if fits is not None and not callable(fits):
        raise UsageError(f"{name}: fits is not a function. Make it fits(input) -> bool, or leave it out.")
    return fits


class _Scorer:
    """Turns what a user's `score` returns into scores."""

    def __init__(self, name: str, function: Callable[[Sequence[RewardInput]], Any]) -> None:
        self.name = name
        self._function = function

    def score(self, inputs: Sequence[RewardInput]) -> list[Score]:
        """Return one score per input, in the same order."""
        values = _one_each(self.name, "score", self._function(inputs), len(inputs))
        return [_score(self.name, value) for value in values]


class _Preferrer:
    """Checks what a user's `prefer` returns."""

    def __init__(self, name: str, function: Callable[[Sequence[PairInput]], Any]) -> None:
        self.name = name
        self._function = function

    def prefer(self, pairs: Sequence[PairInput]) -> list[Comparison]:
        """Return one comparison per pair, in the same order."""
        answers = _one_each(self.name, "prefer", self._function(pairs), len(pairs))
        return [_comparison(self.name, answer) for answer in answers]


def _one_each(name: str, method: str, values: Any, count: int) -> list[Any]:
    try:
        found = list(values)
    except TypeError:
        raise UsageError(f"{name}: {method} returned a {type(values).__name__}, not a list.") from None
    if len(found) != count:
        raise UsageError(
            f"{name}: {method} returned {len(found)} values for {count} inputs. Return one each, in order."
        )
    return found


def _score(name: str, value: Any) -> Score:
    if isinstance(value, Score):
        return value if value.value is None or math.isfinite(value.value) else as_score(value.value)
    if value is None:
        return as_score(None)
    if isinstance(value, str | bytes) or not isinstance(value, SupportsFloat):
        raise UsageError(f"{name}: score returned a {type(value).__name__} where a number, None or a Score belongs.")
    return as_score(float(value))


def _comparison(name: str, answer: Any) -> Comparison:
    if isinstance(answer, Comparison):
        return answer
    try:
        return Comparison(pick=Pick(answer))
    except ValueError:
        known = ", ".join(Pick)
        raise UsageError(f"{name}: prefer returned {answer!r} where a Comparison or one of {known} belongs.") from None
