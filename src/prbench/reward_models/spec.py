"""Spec strings: `kind:target[?key=value&…]`, as they stand on the command line and on the board."""

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from urllib.parse import unquote

from prbench.errors import UsageError
from prbench.reward_models.settings import AUTO, ModelSettings

_HF = (
    "batch_size",
    "max_length",
    "dtype",
    "chat_template",
    "trust_remote_code",
    "revision",
    "template",
    "device",
    "bos",
    "share_prefixes",
    "compile",
)
_LLM = ("max_tokens", "concurrency", "window", "timeout", "template", "seed", "answers_as")

# Which options each kind takes. Those that `ModelSettings` has as well override its fields.
OPTIONS: Mapping[str, tuple[str, ...]] = {
    "control": ("seed", "encoder"),
    "classifier": (*_HF, "logit", "head", "loader", "adapter"),
    "judge": ("mode", *_LLM),
    "rating": _LLM,
    "implicit": (*_HF, "beta", "per_token"),
    "pmi": (*_HF, "per_token"),
    "head": ("encoder",),
    "planner": ("weights", "encoder"),
    "match": ("encoder",),
    "blend": (),
    "fewshot": ("encoder",),
    "server": ("api", "model", "logit", "batch_size", "concurrency", "timeout", "patience", "expect", "template"),
    "summary": ("cache", "encoder", "concurrency", "window", "timeout", "seed", "answers_as"),
    "rubric-chain": ("samples", "temperature", *(name for name in _LLM if name != "template")),
    "fake": (),
}
# The `cache` of a spec is a file of summaries; that of the settings holds replies.
_FOR_SETTINGS = frozenset(field.name for field in dataclasses.fields(ModelSettings)) - {"cache"}
_OPTION = re.compile(r"([A-Za-z_][A-Za-z0-9_-]*)=(.*)", re.DOTALL)
_TRUTH = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}


@dataclass(frozen=True, kw_only=True)
class Spec:
    """One model as named on the command line, taken apart."""

    text: str  # the whole spec
    kind: str
    target: str
    options: Mapping[str, str]

    def choice(self, name: str, allowed: tuple[str, ...], default: str) -> str:
        """Return the option if it is one of `allowed`."""
        value = self.options.get(name, default)
        if value not in allowed:
            raise UsageError(f"{self.text}: {name}={value} is not known. Use one of: {', '.join(allowed)}.")
        return value

    def whole(self, name: str, default: int) -> int:
        """Return the option as a whole number of at least 1."""
        value = self.options.get(name)
        if value is None:
            return default
        if not value.isdecimal() or int(value) < 1:
            raise UsageError(f"{self.text}: {name}={value} is not a whole number above 0.")
        return int(value)

    def number(self, name: str, default: float) -> float:
        """Return the option as a number above 0."""
        value = self.options.get(name)
        if value is None:
            return default
        try:
            number = float(value)
        except ValueError:
            number = 0.0
        if not 0 < number < float("inf"):
            raise UsageError(f"{self.text}: {name}={value} is not a number above 0.")
        return number

    def truth(self, name: str, default: bool) -> bool:
        """Return the option as true or false."""
        value = self.options.get(name)
        if value is None:
            return default
        if value.lower() not in _TRUTH:
            raise UsageError(f"{self.text}: {name}={value} is neither true nor false.")
        return _TRUTH[value.lower()]


def parse_spec(text: str) -> Spec:
    """Take a spec apart; unknown kinds and options are refused with the known ones and the nearest match."""
    kind, colon, rest = text.partition(":")
    if kind not in OPTIONS:
        raise UsageError(f"Unknown kind {kind!r} in {text!r}. {_known('kinds', kind, tuple(OPTIONS))}")
    if not colon or not rest:
        raise UsageError(f"{text!r} names no model: write {kind}:<target>, as `prbench models` shows.")
    target, options = _split(text, kind, rest)
    if not target:
        raise UsageError(f"{text!r} names no model before its options.")
    return Spec(text=text, kind=kind, target=target, options=options)


def override(settings: ModelSettings, spec: Spec) -> ModelSettings:
    """Return the settings with the spec's options put in."""
    changes: dict[str, object] = {}
    for name in spec.options.keys() & _FOR_SETTINGS:
        match name:
            case "batch_size" if spec.options[name] == "auto":
                changes[name] = AUTO
            case "batch_size" | "max_length":
                changes[name] = spec.whole(name, 1)
            case "seed":
                changes[name] = _seed(spec)
            case "trust_remote_code" | "share_prefixes" | "compile":
                changes[name] = spec.truth(name, False)
            case "chat_template":
                changes[name] = Path(spec.options[name])
            case _:
                changes[name] = spec.options[name]
    return dataclasses.replace(settings, **changes)  # type: ignore[arg-type]


def _seed(spec: Spec) -> int:
    value = spec.options["seed"]
    if not value.isdecimal():
        raise UsageError(f"{spec.text}: seed={value} is not a whole number.")
    return int(value)


def _split(text: str, kind: str, rest: str) -> tuple[str, dict[str, str]]:
    """Cut the options off at the last question mark, unless it belongs to the target."""
    target, mark, tail = rest.rpartition("?")
    # A folder may have a question mark in its name, and a prompt or an address may end in one.
    if not mark or not tail or Path(rest).exists():
        return rest, {}
    parts = [_OPTION.fullmatch(part) for part in tail.split("&")]
    if not all(parts):
        if "://" in rest or kind in ("judge", "rating", "rubric-chain", "fake"):
            return rest, {}
        raise UsageError(f"{text!r}: {tail!r} is not a list of options. Write ?name=value&name=value.")
    pairs = [(part[1].replace("-", "_"), unquote(part[2])) for part in parts if part]
    if "://" in target and not any(_is_meant(name, OPTIONS[kind]) for name, _ in pairs):
        return rest, {}  # a query of the address itself
    return target, _checked(text, kind, pairs)


def _is_meant(name: str, known: tuple[str, ...]) -> bool:
    return bool(get_close_matches(name, known, n=1))


def _checked(text: str, kind: str, pairs: list[tuple[str, str]]) -> dict[str, str]:
    options: dict[str, str] = {}
    for name, value in pairs:
        if name not in OPTIONS[kind]:
            if not OPTIONS[kind]:
                raise UsageError(f"{text!r}: models of kind {kind} take no options, so {name!r} means nothing.")
            raise UsageError(f"{text!r}: unknown option {name!r}. {_known('options', name, OPTIONS[kind])}")
        if name in options:
            raise UsageError(f"{text!r}: the option {name!r} is given twice.")
        if not value:
            raise UsageError(f"{text!r}: the option {name!r} has no value.")
        options[name] = value
    return options


def _known(what: str, given: str, known: tuple[str, ...]) -> str:
    near = get_close_matches(given, known, n=1)
    return f"Known {what}: {', '.join(sorted(known))}." + (f" Did you mean {near[0]!r}?" if near else "")
