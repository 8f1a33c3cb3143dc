"""Options that every kind of reward model takes: what it is shown of the user, and how it is disturbed.

    head:DIR?context=none          shows this model no user, whatever --context says
    fewshot:DIR?labels=FILE&shots=5
    control:gold?noise=0.5&fail=0.1

`context`, `labels` and `shots` stand for the flags of the same names, for one model. `noise` adds Gaussian noise of
that deviation to the scores and `fail` lets that share of them fail; both depend on the texts and the seed alone, so
that the same answer always gets the same.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from hashlib import sha256
from pathlib import Path
from statistics import NormalDist
from typing import Annotated, Literal

from prbench.errors import UsageError
from prbench.registry import MODELS, POLICIES
from prbench.reward_models.base import LoadedModel, RewardModel, failed, require_scores
from prbench.schema import Json, RewardInput, Score
from prbench.specs import AtLeast, Between, Spec, bind, format_spec, kind_of, option, parse_spec

CONTEXT_OPTIONS = ("context", "labels", "shots")  # what the model may know of the user, in place of the flags
GOLD, ORACLE = "gold", "oracle"  # `control:gold` reads the rubric, so it sees that context by itself


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """The options of any reward model that are no options of its kind."""

    context: Literal["none", "profile", "plan", "oracle"] | None = option(None, "what this model is shown of the user")
    labels: str | None = option(None, "labeled pairs of the users, to show this model: a file, a folder, or lab")
    shots: Annotated[int, AtLeast(1)] | None = option(None, "how many labeled pairs of a user to show")
    noise: Annotated[float, AtLeast(0)] = option(0.0, "deviation of Gaussian noise on the scores")
    fail: Annotated[float, Between(0, 1)] = option(0.0, "share of the scores that fail")

    @property
    def disturbs(self) -> bool:
        """True if scores do not stay what the model says."""
        return bool(self.noise or self.fail)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRef:
    """A reward model as it was named, not loaded yet."""

    full_spec: Spec
    spec: Spec  # of the model alone, without the view
    view: View

    @property
    def name(self) -> str:
        """The model as typed: what a board calls it."""
        return self.full_spec.text

    @property
    def text(self) -> str:
        """The spec that loads the same model: without what it is shown, with what disturbs it."""
        return self.full_spec.without(CONTEXT_OPTIONS).text

    @property
    def is_gold(self) -> bool:
        """True for the truth itself, disturbed or not."""
        return self.spec.kind == "control" and self.spec.target == GOLD

    def context(self, default: str) -> str:
        """Return what the model is shown of the user where the command says `default`."""
        return self.view.context or (ORACLE if self.is_gold else default)


def read_ref(text: str) -> ModelRef:
    """Take the spec of a reward model apart: options of any model here, those of its kind there."""
    spec = parse_spec(text, MODELS)
    names = {its.name for its in fields(View)}
    shared = {name: value for name, value in spec.options.items() if name in names}
    return ModelRef(full_spec=spec, spec=spec.without(names), view=bind(View, shared, where=text))


def context_of(name: str, default: str) -> str:
    """Return what the model of that name is shown; a name that is no spec, of an object in Python, says nothing."""
    try:
        return read_ref(name).context(default)
    except UsageError:
        return default


def check_view_empty(ref: ModelRef) -> None:
    """Refuse options that say what a model sees of the user where the inputs say it: in a server, in parity."""
    for name in CONTEXT_OPTIONS:
        if (value := getattr(ref.view, name)) is not None:
            wrong = f"{name}={value} means nothing here: its inputs say what is known."
            raise UsageError(f"{ref.name}: {wrong} Leave it out.")


def check_not_gold(ref: ModelRef, who: str) -> None:
    """Refuse the truth where nobody passes the rubric that it reads."""
    if ref.is_gold:
        raise UsageError(f"{ref.name}: reads the rubric, and {who} passes none. Name another model.")


def without_kind(name: str) -> str:
    """Return a spec without its kind; a name that is no spec is returned as it is."""
    try:
        return name.removeprefix(f"{parse_spec(name, MODELS).kind}:")
    except UsageError:
        return name


def board_name(text: str, context: str, usual: str) -> str:
    """Return a model's name across commands: its spec, with the context that it saw unless that is the usual one."""
    try:
        bare = parse_spec(text, MODELS).without(("context",))
    except UsageError:  # an object in Python has any name
        return text if context == usual else f"{text}?context={context}"
    return bare.text if context == usual else bare.with_option("context", context).text


def disturbed(loaded: LoadedModel, view: View, seed: int) -> LoadedModel:
    """Return the model with noise and failures in its scores, where they are asked for."""
    if not view.disturbs:
        return loaded
    model = DisturbedReward(require_scores(loaded, "noise= or fail="), view, seed)
    facts: dict[str, Json] = {"noise": view.noise, "fail": view.fail, "seed": seed}
    return replace(loaded, model=model, identity={**loaded.identity, "disturbed": facts})


class DisturbedReward:
    """Adds Gaussian noise to the scores of a model, and lets a share of them fail."""

    def __init__(self, inner: RewardModel, view: View, seed: int) -> None:
        self._inner = inner
        self._noise, self._fail, self._seed = view.noise, view.fail, seed

    def score(self, inputs: Sequence[RewardInput]) -> list[Score]:
        return self.score_for([(each, each.context) for each in inputs])

    def score_for(self, asked: Sequence[tuple[RewardInput, str]]) -> list[Score]:
        """Return one score per input; what is drawn depends on the name beside it, the question and the response."""
        scores = self._inner.score([each for each, _ in asked])
        found = []
        for score, (each, name) in zip(scores, asked, strict=True):
            texts = (name, each.question, each.response)
            if self._fail and _uniform("fail", self._seed, texts) < self._fail:
                found.append(failed("injected failure"))
            elif not self._noise or score.value is None:
                found.append(score)
            else:
                noise = self._noise * NormalDist().inv_cdf(_uniform("noise", self._seed, texts))
                found.append(replace(score, value=score.value + noise))
        return found


def _uniform(what: str, seed: int, texts: tuple[str, ...]) -> float:
    """Return a number above 0 and below 1 that these texts always get."""
    digest = sha256("\x1f".join((what, str(seed), *texts)).encode("utf-8", "backslashreplace")).digest()
    return (int.from_bytes(digest[:6], "big") + 0.5) / 2**48


@dataclass(frozen=True, kw_only=True)
class SpecParts:
    """The spec of a trained model without the folder, which may be moved."""

    kind: str
    options: Mapping[str, str]
    inside: Mapping[str, str]  # options that name something in the folder: the path from there

    def at(self, folder: Path) -> str:
        """Return the spec of the model in that folder."""
        options = {**self.options, **{name: str(folder / inside) for name, inside in self.inside.items()}}
        return format_spec(self.kind, str(folder), options)


def take_apart(spec: str, folder: Path) -> SpecParts:
    """Return the parts of `kind:FOLDER?name=value&…`, the spec of a model in that folder."""
    parsed = parse_spec(spec, MODELS if kind_of(spec) in MODELS.names else POLICIES)  # training makes either
    if parsed.target != str(folder):
        raise ValueError(f"{spec!r} is not the spec of a model in {folder}")
    options: dict[str, str] = {}
    inside: dict[str, str] = {}
    for name, value in parsed.options.items():
        if Path(value).is_relative_to(folder) and Path(value).exists():
            inside[name] = Path(value).relative_to(folder).as_posix()
        else:
            options[name] = value
    return SpecParts(kind=parsed.kind, options=options, inside=inside)
