"""Models brought as Python objects: anything with `score(inputs)` or `prefer(pairs)`."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from math import isfinite
from typing import Any, Protocol, SupportsFloat

from prbench.backends.own_code import asking, identity_of, load_python, plain_identity
from prbench.errors import UsageError
from prbench.reward_models.base import LoadedModel, ModelSettings, PairJudge, RewardModel, as_score
from prbench.schema import Comparison, PairInput, Pick, RewardInput, Score
from prbench.specs import Spec


class CustomScorer(Protocol):
    """An object of a user's own that scores: plain numbers, arrays of them, and `None` for "no score" are welcome."""

    def score(self, inputs: Sequence[RewardInput], /) -> Iterable[Score | SupportsFloat | None]:
        """Return one number per input, in the same order."""
        ...


class CustomJudge(Protocol):
    """An object of a user's own that compares, and says "first", "second" or "tie"."""

    def prefer(self, pairs: Sequence[PairInput], /) -> Iterable[Comparison | str]:
        """Return one answer per pair, in the same order."""
        ...


def load(spec: Spec, options: None, settings: ModelSettings) -> LoadedModel:
    """Return `python:package.module:Factory`: what the factory makes, which may be a whole `LoadedModel`."""
    made = load_python(spec)
    with asking(spec, f"the {type(made).__name__} that it made"):
        if not isinstance(made, LoadedModel):
            loaded = wrap(made, spec)
        elif type(made.model).__module__.startswith(f"{__package__}."):  # put together from parts of this package
            loaded = made
        else:
            fits = made.fits and _guarded_fits(made.fits, spec)
            loaded = replace(made, model=_adapted(spec.text, made.model, spec), fits=fits)
    return replace(loaded, spec=spec.text, kind=spec.kind, identity=identity_of(spec, loaded.identity))


def wrap(model: object, spec: Spec | None = None) -> LoadedModel:
    """Return the object as a model under test.

    Its name is `.name`, or that of its class. `.identity` (a mapping of all that changes its scores), `.template_hash`
    and `.fits(input)` are used where it has them. `score` may return plain numbers, with `None` for "no score". What
    the object of a `spec` raises is told in one line that names it; that of an object in Python is left alone.
    """
    if isinstance(model, type):
        raise UsageError(f"{model.__name__} is a class. Give an object that it makes: {model.__name__}(…).")
    name = spec.text if spec else str(getattr(model, "name", "") or type(model).__name__)
    fits, identity = getattr(model, "fits", None), getattr(model, "identity", None)
    if fits is not None and not callable(fits):
        raise UsageError(f"{name}: fits is not a function. Make it fits(input) -> bool, or leave it out.")
    if identity is not None and not isinstance(identity, Mapping):
        raise UsageError(
            f"{name}: identity is a {type(identity).__name__}; make it a mapping of what changes its scores."
        )
    return LoadedModel(
        spec=name,
        kind="custom",
        model=_adapted(name, model, spec),
        identity=plain_identity(name, identity)
        if identity is not None
        else {"class": f"{type(model).__module__}.{type(model).__qualname__}"},
        template_hash=str(getattr(model, "template_hash", "")),
        fits=None if fits is None else _guarded_fits(fits, spec),
    )


def _adapted(name: str, model: object, spec: Spec | None) -> RewardModel | PairJudge:
    for method, adapter in (("score", _Scorer), ("prefer", _Preferrer)):
        function = getattr(model, method, None)
        if callable(function):
            return adapter(name, function, spec)
    raise UsageError(
        f"{name} has neither score(inputs) nor prefer(pairs), so it cannot be tested. Give it one of them."
    )


def _guarded_fits(fits: Callable[[Any], object], spec: Spec | None) -> Callable[[RewardInput | PairInput], bool]:
    def holds(each: RewardInput | PairInput) -> bool:
        with asking(spec, "fits"):
            return bool(fits(each))

    return holds


class _Scorer:
    """Turns what a user's `score` returns into scores."""

    def __init__(self, name: str, function: Callable[[Sequence[RewardInput]], Any], spec: Spec | None) -> None:
        self.name = name
        self._function, self._spec = function, spec

    def score(self, inputs: Sequence[RewardInput]) -> list[Score]:
        with asking(self._spec, "score"):
            values = _one_each(self.name, "score", self._function(inputs), len(inputs))
        scores = []
        for value in values:
            number = _number(self.name, value.value if isinstance(value, Score) else value)
            is_fine = isinstance(value, Score) and (number is None or isfinite(number))
            scores.append(value if is_fine else as_score(number))
        return scores


class _Preferrer:
    """Checks what a user's `prefer` returns."""

    def __init__(self, name: str, function: Callable[[Sequence[PairInput]], Any], spec: Spec | None) -> None:
        self.name = name
        self._function, self._spec = function, spec

    def prefer(self, pairs: Sequence[PairInput]) -> list[Comparison]:
        with asking(self._spec, "prefer"):
            answers = _one_each(self.name, "prefer", self._function(pairs), len(pairs))
        comparisons = []
        for answer in answers:
            try:
                comparisons.append(answer if isinstance(answer, Comparison) else Comparison(pick=Pick(answer)))
            except ValueError:
                wrong = f"prefer returned {answer!r} where a Comparison or one of {', '.join(Pick)} belongs."
                raise UsageError(f"{self.name}: {wrong}") from None
        return comparisons


def _one_each(name: str, method: str, values: Any, count: int) -> list[Any]:
    # An array of numpy or torch has more of a list than a type checker sees.
    if not isinstance(values, Iterable) and not hasattr(values, "__getitem__"):
        raise UsageError(f"{name}: {method} returned a {type(values).__name__}, not a list.")
    found = list(values)
    if len(found) != count:
        raise UsageError(
            f"{name}: {method} returned {len(found)} values for {count} inputs. Return one each, in order."
        )
    return found


def _number(name: str, value: Any) -> float | None:
    if value is None:
        return None
    wrong = UsageError(f"{name}: score returned a {type(value).__name__} where a number, None or a Score belongs.")
    if isinstance(value, str | bytes) or not isinstance(value, SupportsFloat):
        raise wrong
    try:
        return float(value)
    except (TypeError, ValueError, RuntimeError) as error:  # an array of several numbers is no number
        raise wrong from error
