"""Specs: `KIND[:TARGET][?key=value[&key=value…]]`, and texts that become typed options. Nothing here knows a model.

The same binder serves the `?key=value` of a spec, `--set name=value` and whatever else comes in as text, so that a
wrong name or value reads alike everywhere.
"""

import inspect
import math
import os
import re
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields, replace
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from types import NoneType, SimpleNamespace, UnionType
from typing import Annotated, Any, Literal, Protocol, TypeVar, Union, get_args, get_origin, get_type_hints
from urllib.parse import quote, unquote

from prbench.errors import UsageError
from prbench.schema import NOTHING

T = TypeVar("T")

_OPTION = re.compile(r"([A-Za-z_][A-Za-z0-9_-]*)=(.*)", re.DOTALL)
_WHOLE = re.compile(r"[+-]?[0-9]+")
_BOOLEANS = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
_HELP = "help"
_origin: Callable[[Any], Any] = get_origin


@dataclass(frozen=True, slots=True)
class Bound:
    """What a number must keep; it stands in the annotation of an option."""

    words: str
    least: float = -math.inf
    most: float = math.inf
    above: float = -math.inf
    below: float | None = None  # None: infinity, too, is allowed

    def holds(self, value: float) -> bool:
        """Tell whether a number is allowed."""
        return self.least <= value <= self.most and value > self.above and (self.below is None or value < self.below)


def AtLeast(least: float) -> Bound:  # noqa: N802 (it stands where types stand)
    return Bound(f"of at least {least:g}", least=least)


def Above(bound: float) -> Bound:  # noqa: N802
    return Bound(f"above {bound:g}", above=bound)


def Below(bound: float) -> Bound:  # noqa: N802
    return Bound(f"below {bound:g}", below=bound)


def AtMost(most: float) -> Bound:  # noqa: N802
    return Bound(f"of at most {most:g}", most=most)


def Between(low: float, high: float) -> Bound:  # noqa: N802
    return Bound(f"from {low:g} to {high:g}", least=low, most=high)


Count = Annotated[int, AtLeast(1)]
Positive = Annotated[float, Above(0)]
NotNegative = Annotated[float, AtLeast(0)]
Share = Annotated[float, AtLeast(0), Below(1)]
Part = Annotated[float, Between(0, 1)]  # a share that may be the whole
Whole = Annotated[int, AtLeast(0)]


def option(default: Any, help: str) -> Any:  # noqa: A002 (as argparse and typer call it)
    """Return the field of an options record, with a line that says what it is."""
    return field(default=default, metadata={_HELP: help})


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """One thing as named on the command line, taken apart."""

    text: str  # as typed: the name on the board
    kind: str
    target: str  # "" where the kind takes none
    typed: Mapping[str, str] = field(default_factory=lambda: NOTHING)  # `name=value` as it stands in `text`, by name

    @property
    def options(self) -> dict[str, str]:
        """The values of the options by name: unquoted, `-` in a name as `_`, none empty."""
        return {name: unquote(part.partition("=")[2]) for name, part in self.typed.items()}

    def without(self, names: Collection[str]) -> "Spec":
        """Return the spec without some of its options, and else as it was typed."""
        if not self.typed.keys() & set(names):
            return self
        return self._with({name: part for name, part in self.typed.items() if name not in names})

    def with_option(self, name: str, value: str) -> "Spec":
        """Return the spec with one option more, or with another value of it."""
        return self._with({**self.typed, name: _option(name, value)})

    def _with(self, typed: Mapping[str, str]) -> "Spec":
        head = self.text.removesuffix(_tail(self.typed.values()))
        return replace(self, text=head + _tail(typed.values()), typed=typed)


class KindOfSpec(Protocol):
    """What the grammar asks of a kind."""

    @property
    def example(self) -> str: ...

    @property
    def takes_target(self) -> bool: ...

    @property
    def is_free_text(self) -> bool:
        """Its target is prose, which may hold question marks."""
        ...


class KindsOfSpec(Protocol):
    """What the grammar asks of a table of kinds."""

    @property
    def what(self) -> str:
        """What its kinds are, e.g. `reward model`."""
        ...

    def find(self, name: str, text: str) -> KindOfSpec:
        """Return the kind of that name; an unknown one is refused, with the spec that names it."""
        ...

    def option_names(self, name: str) -> tuple[str, ...] | None:
        """Return the options of a kind; `None` where it takes any."""
        ...


def kind_of(text: str) -> str:
    """Return what stands where a spec has its kind."""
    return text.partition(":")[0].partition("?")[0]


def parse_spec(text: str, table: KindsOfSpec) -> Spec:
    """Take a spec apart; unknown kinds and options are refused with the known ones and the nearest match."""
    if not text.strip():
        raise UsageError(
            f"The name of the {table.what} is empty. Write one as KIND:TARGET; `prbench models` has them."
        )
    name, colon, rest = text.partition(":")
    if "?" in name:  # of a kind without a target
        name, rest, colon = text.partition("?")[0], text[text.index("?") :], ""
    kind = table.find(name, text)
    if kind.takes_target and (not colon or not rest):
        raise UsageError(f"{text!r} names no {table.what}. Write {name}:<target>, e.g. {kind.example}.")
    target, typed = _split(text, rest, table.option_names(name), free_text=kind.is_free_text)
    if kind.takes_target and not target:
        raise UsageError(f"{text!r} names no {table.what} before its options. Write {name}:<target>?key=value.")
    if target and not kind.takes_target:
        raise UsageError(f"{text!r}: there is one {table.what} {name!r}. Write {kind.example}, without {target!r}.")
    return Spec(text=text, kind=name, target=target, typed=typed)


def _split(text: str, rest: str, known: tuple[str, ...] | None, *, free_text: bool) -> tuple[str, dict[str, str]]:
    """Cut the options off at the last question mark, unless it belongs to the target; they come as they were typed."""
    target, mark, tail = rest.rpartition("?")
    # A folder may have a question mark in its name, and a prompt or an address may end in one.
    if not mark or not tail or os.path.exists(rest):
        return rest, {}
    parts = [_OPTION.fullmatch(part) for part in tail.split("&")]
    if not all(parts):
        if "://" in rest or free_text:
            return rest, {}
        raise UsageError(f"{text!r}: {tail!r} is not a list of options. Write ?name=value&name=value.")
    pairs = [(part[1].replace("-", "_"), part) for part in parts if part]
    if "://" in target and known is not None:
        is_meant = any(get_close_matches(name, known, n=1) for name, _ in pairs)
        if not is_meant:
            return rest, {}  # a query of the address itself
    typed: dict[str, str] = {}
    for name, part in pairs:
        if known is not None:
            check_known(name, known, where=repr(text))
        if name in typed:
            raise UsageError(f"{text!r}: the option {name!r} is given twice.")
        if not part[2]:
            raise UsageError(f"{text!r}: the option {name!r} has no value.")
        typed[name] = part[0]
    return target, typed


def check_known(name: str, known: Sequence[str], *, where: str) -> None:
    """Refuse an option that is not there, with the known ones and the nearest match."""
    if not known:
        raise UsageError(f"{where}: there are no options here, so {name!r} means nothing. Leave it out.")
    if name not in known:
        raise UsageError(f"{where}: unknown option {name!r}. {known_names('options', name, known)}")


def known_names(what: str, given: str, known: Iterable[str]) -> str:
    """Return what there is, and what was perhaps meant: `Known kinds: a, b. Did you mean 'a'?`."""
    listed = list(known)
    near = get_close_matches(given, listed, n=1)
    return f"Known {what}: {', '.join(listed)}." + (f" Did you mean {near[0]!r}?" if near else "")


def format_spec(kind: str, target: str, options: Mapping[str, str] = NOTHING) -> str:
    """Return the spec of these parts, as `parse_spec` takes it apart."""
    text = f"{kind}:{target}" if target else kind
    return text + _tail([_option(name, value) for name, value in options.items()])


def parse_settings(texts: Sequence[str], *, where: str) -> dict[str, str]:
    """Return the names and values of `name=value` texts, e.g. those of `--set`."""
    found: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        name = name.strip().replace("-", "_")
        if not equals or not name:
            raise UsageError(f"{where} {text}: write name=value.")
        if name in found:
            raise UsageError(f"{where} {text}: {name} is given twice.")
        found[name] = value
    return found


def bind(options: type[T], texts: Mapping[str, str], *, where: str, given: Mapping[str, object] = NOTHING) -> T:
    """Return the record of these texts and of values that are `given` as they are; the rest have their defaults.

    An unknown key is refused with the known ones and the nearest match, a wrong value with what is allowed.
    """
    known = _fields_of(options)
    hints = get_type_hints(options, include_extras=True)
    for name in (*texts, *given):
        if name not in known:
            shown = [
                f"{name}={its.default}" if its.default not in (MISSING, None) else name for name, its in known.items()
            ]
            near = get_close_matches(name, known, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise UsageError(f"{where}: unknown option {name!r}. Known options: {', '.join(shown)}.{hint}")
    values: dict[str, object] = {
        name: read_value(hints[name], text, f"{where}: {name}") for name, text in texts.items()
    }
    for name, value in given.items():
        if name in texts:
            raise UsageError(f"{where} {name}={texts[name]}: {name} is given as an option too. Give it once.")
        values[name] = check_value(hints[name], value, f"{where}: {name}")
    for name, its in known.items():
        if name not in values and its.default is MISSING and its.default_factory is MISSING:
            raise UsageError(f"{where}: {name} is missing, and has no default. Give {name}=VALUE.")
    return options(**values)


def call(function: Callable[..., T], texts: Mapping[str, str], *, where: str) -> T:
    """Call a function of somebody else's with these texts, converted as its annotations and defaults say."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError) as error:  # some that are written in C tell nobody what they take
        if texts:
            fact = f"it does not say which options it takes, so {next(iter(texts))!r} cannot be given"
            raise UsageError(f"{where}: {fact}. Wrap it in a function of your own.") from error
        return function()
    for name, parameter in signature.parameters.items():
        if parameter.kind is parameter.POSITIONAL_ONLY and parameter.default is parameter.empty:
            raise UsageError(f"{where}: {name} cannot be given by name. Take the / out of its parameters.")
    by_name = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    parameters = {name: each for name, each in signature.parameters.items() if each.kind in by_name}
    takes_any = any(each.kind is each.VAR_KEYWORD for each in signature.parameters.values())
    for name in texts:
        if not takes_any:
            check_known(name, list(parameters), where=where)
    for name, parameter in parameters.items():
        if parameter.default is parameter.empty and name not in texts:
            raise UsageError(f"{where}: {name} is missing, and has no default. Write ?{name}=VALUE.")
    values = {}
    for name, text in texts.items():
        kind = _type_of(function, parameters[name], where) if name in parameters else str
        values[name] = read_value(kind, text, f"{where}: {name}")
    return function(**values)


def _type_of(function: Callable[..., object], parameter: inspect.Parameter, where: str) -> Any:
    """Return the type that a parameter is annotated with, or else that of its default."""
    if parameter.annotation is parameter.empty:
        if parameter.default is None or parameter.default is parameter.empty:
            return str
        return type(parameter.default)
    # Its annotation alone is resolved: others may name what is imported for type checkers only.
    alone = SimpleNamespace(__annotations__={parameter.name: parameter.annotation})
    try:
        # The names that the function's annotations were written among.
        while isinstance(function, partial):
            function = function.func
        if isinstance(function, type):
            made: Any = inspect.unwrap(function.__init__)  # type: ignore[misc]
        else:
            made = inspect.unwrap(function)
        found = getattr(made, "__globals__", None)
        hints = get_type_hints(
            alone,
            globalns=dict(vars(sys.modules[function.__module__]) if found is None else found),
            include_extras=True,
        )
    except (NameError, AttributeError, SyntaxError, TypeError) as error:
        fact = f"the type of {parameter.name}, {parameter.annotation!r}, cannot be found ({error})"
        raise UsageError(f"{where}: {fact}. Annotate it with int, float, bool or str.") from error
    return hints[parameter.name]


def read_value(kind: Any, text: str, where: str) -> Any:
    """Return a text as a value of a type: int, float, bool, str, Path, Literal, a tuple or a union of those.

    An empty text stands for nothing where the type has `None`. `where` ends in the name of the value.
    """
    members = [member for member in _members(kind) if _is_readable(member[0])]
    if not any(member is not NoneType for member, _ in members):
        named = kind.__name__ if isinstance(kind, type) and _origin(kind) is None else str(kind)
        fact = f"a value of type {named} cannot be read from text"
        raise UsageError(f"{where}: {fact}. Use int, float, bool, str, Path, Literal, or a tuple of those.")
    for member, bounds in members:
        try:
            return _convert(member, bounds, text)
        except ValueError:
            continue
    raise UsageError(f"{where}={text} cannot be used. Give {_allowed(members)}.")


def check_value(kind: Any, value: Any, where: str) -> Any:
    """Return a value that is no text if it is of the type, within its bounds; a whole number also is a number."""
    members = _members(kind)
    for member, bounds in members:
        if _is_of(member, value) and all(bound.holds(value) for bound in bounds):
            return value
    raise UsageError(f"{where}={value!r} cannot be used. Give {_allowed(members)}.")


def check_fields(record: Any) -> None:
    """Refuse a record of which a field is not of its type, or out of its bounds."""
    hints = get_type_hints(type(record), include_extras=True)
    for each in fields(record):
        check_value(hints[each.name], getattr(record, each.name), each.name)


def _is_of(kind: Any, value: Any) -> bool:
    origin = _origin(kind)
    if origin is Literal:
        return value in get_args(kind)
    if kind in (int, float):
        is_number = isinstance(value, int | kind) and not isinstance(value, bool)
        return is_number and math.isfinite(value)
    plain = origin or kind
    return plain is Any or isinstance(value, plain)


Member = tuple[Any, tuple[Bound, ...]]  # a type that is no union, and the bounds of its numbers


def _members(kind: Any, bounds: tuple[Any, ...] = ()) -> list[Member]:
    """Return the types of a union; `None` first, and choices before what takes any text."""
    origin = _origin(kind)
    if origin is Annotated:
        inner, *its = get_args(kind)
        return _members(inner, (*bounds, *its))
    if origin in (Union, UnionType):
        found = [member for each in get_args(kind) for member in _members(each, bounds)]
        return sorted(found, key=lambda member: (member[0] is not NoneType, _origin(member[0]) is not Literal))
    return [(kind, tuple(bound for bound in bounds if isinstance(bound, Bound)))]


def _convert(kind: Any, bounds: Sequence[Bound], text: str) -> Any:
    """Return the value; a ValueError says that the text is none of this type."""
    origin = _origin(kind)
    if tuple in (origin, kind):
        return _convert_each(kind, bounds, [part.strip() for part in text.split(",") if part.strip()])
    if origin is Literal:
        return {str(value): value for value in get_args(kind)}[_known(text, map(str, get_args(kind)))]
    if kind is NoneType:
        return {"": None}[_known(text, [""])]
    if kind is bool:
        return _BOOLEANS[_known(text.lower(), _BOOLEANS)]
    if kind in (int, float):
        if kind is int and not _WHOLE.fullmatch(text):  # `int` itself takes 1_000
            raise ValueError(text)
        number = kind(text)
        if not math.isfinite(number) or not all(bound.holds(number) for bound in bounds):
            raise ValueError(text)
        return number
    if kind is Path:
        return Path(text)
    return text  # str, Any, object


def _convert_each(kind: Any, bounds: Sequence[Bound], texts: Sequence[str]) -> tuple[Any, ...]:
    """Return the members of a tuple, each of its own type; a ValueError says that one is none, or of too few."""
    kinds = _kinds_in(kind)
    if kinds[-1] is Ellipsis:
        kinds = kinds[:1] * len(texts)
    found = []
    for each, text in zip(kinds, texts, strict=True):
        for member, its in _members(each, tuple(bounds)):
            try:
                found.append(_convert(member, its, text))
                break
            except ValueError:
                continue
        else:
            raise ValueError(text)
    return tuple(found)


def _kinds_in(kind: Any) -> tuple[Any, ...]:
    """Return the types of a tuple's members; those of a plain one are texts."""
    return get_args(kind) or (str, Ellipsis)


def _is_readable(kind: Any) -> bool:
    """Tell whether a type that is no union can be read from text."""
    if tuple in (_origin(kind), kind):
        members = [member for each in _kinds_in(kind) if each is not Ellipsis for member, _ in _members(each)]
        return all(_is_readable(member) and tuple not in (_origin(member), member) for member in members)
    plain = (NoneType, bool, int, float, str, Path, Any, object)
    return _origin(kind) is Literal or any(kind is each for each in plain)


def _known(text: str, known: Iterable[str]) -> str:
    if text not in known:
        raise ValueError(text)
    return text


def _allowed(members: Sequence[Member]) -> str:
    """Return what may be given, in words."""
    found = []
    for kind, bounds in members:
        if not _is_readable(kind):
            continue
        if _origin(kind) is Literal:
            values = ", ".join(map(str, get_args(kind)))
            found.append(f"one of: {values}" if len(get_args(kind)) > 1 else values)
        elif kind is not NoneType:
            found.append(
                " and ".join(
                    [
                        " ".join([_in_words(kind), *(bound.words for bound in bounds[:1])]),
                        *(bound.words for bound in bounds[1:]),
                    ]
                )
            )
    return " or ".join(sorted(found, key=lambda words: words.startswith("one of")))


def _in_words(kind: Any) -> str:
    """Return what a type takes; of a tuple, how many of what."""
    words = {bool: "true or false", int: "a whole number", float: "a number", Path: "a path"}
    if tuple not in (_origin(kind), kind):
        return words.get(kind, "a text")
    many = {bool: "true or false", int: "whole numbers", float: "numbers", Path: "paths"}
    kinds = _kinds_in(kind)
    what = many.get(kinds[0], "texts") if len(set(kinds) - {Ellipsis}) == 1 else "values"
    return f"{what if kinds[-1] is Ellipsis else f'{len(kinds)} {what}'} with commas between them"


@dataclass(frozen=True, slots=True, kw_only=True)
class OptionInfo:
    """One option of a record, as help texts show it."""

    name: str
    values: str  # what is allowed
    default: object  # `None` where it has none, or where it is found out
    help: str


def describe(options: type) -> list[OptionInfo]:
    """Return what there is to say about the options of a record, in their order."""
    hints = get_type_hints(options, include_extras=True)
    return [
        OptionInfo(
            name=name,
            values=_allowed(_members(hints[name])),
            default=None if its.default is MISSING else its.default,
            help=str(its.metadata.get(_HELP, "")),
        )
        for name, its in _fields_of(options).items()
    ]


def _fields_of(options: type) -> dict[str, "Field[Any]"]:
    return {its.name: its for its in fields(options) if its.init}


def _option(name: str, value: str) -> str:
    return f"{name}={quote(value, safe='/:@,. ')}"


def _tail(parts: Collection[str]) -> str:
    return f"?{'&'.join(parts)}" if parts else ""


def check_at_least(least: int, **numbers: int | None) -> None:
    """Refuse keyword arguments that are no whole numbers of at least `least`; `None` says nothing."""
    for name, number in numbers.items():
        is_whole = isinstance(number, int) and not isinstance(number, bool)
        if number is not None and (not is_whole or number < least):
            raise UsageError(f"{name}={number!r}: give a whole number of at least {least}, or None.")
