"""JSON as language models write it: found in prose, forgiven its small slips, checked against a shape."""

import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from prbench.schema import Json

DEEPEST = 32  # levels; what is deeper is no reply to us, and would only cost time
LONGEST_NUMBER = 40  # characters
# What breaks off is read again from the next brace inside it. So that reading stays linear, a text may be read over in
# vain so many times, and short ones as often as they need.
PATIENCE, SHORT = 4, 10_000  # times, characters

_SPACE = re.compile(r"(?:[\s\ufeff]|//[^\n]*+|#[^\n]*+)*+")
_PLAIN = re.compile(r"[-+.\w]++")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?(?:[eE][+-]?[0-9]++)?")
_WORDS: Mapping[str, Json] = {"true": True, "false": False, "null": None}
_OPEN = re.compile(r"[{\[]")
_CLOSING = re.compile(r"\A[}\])\s]*+")
_LINE_OPEN = re.compile(r"^[{\[]", re.MULTILINE)
_OTHER_KEY = re.compile(r"\{\s*+['‘’]?\w[\w -]{0,40}+['‘’]?\s*+:")  # as JavaScript and Python write it
_DIGITS = re.compile(r"\A\s*+[0-9]{1,3}\s*+")
_STRINGS = json.JSONDecoder(strict=False)  # line breaks inside a text are forgiven
_STRING = re.compile(r""""[^"\\]*+(?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})[^"\\]*+)*+""")  # without the quote at its end
_TYPOGRAPHIC = re.compile(r"[“”„]([^“”„\\]*+)")


class MalformedJsonError(Exception):
    """The text is no JSON from some point on."""


class TruncatedJsonError(MalformedJsonError):
    """The text ends in the middle of a value."""


class AmbiguousJsonError(Exception):
    """The text breaks off so often, and so late, that reading it to its end would take too long."""


class TooDeepError(MalformedJsonError):
    """A value has too many levels."""

    def __init__(self, position: int) -> None:
        super().__init__()
        self.position = position


@dataclass(frozen=True, slots=True)
class Found:
    """A JSON value and where it stands."""

    start: int
    end: int
    value: Json


@dataclass(frozen=True, slots=True)
class Scan:
    """The values of a text, and where objects begin that break off."""

    values: tuple[Found, ...]
    broken: tuple[int, ...]


def scan(text: str) -> Scan:
    """Find the objects and arrays that stand in the text, outermost ones only, in their order.

    A reply may quote a text that has JSON of its own, and fail to escape it. So after an object that breaks off, only
    what begins a line counts, and no value counts where another brace is closed after it, but not right behind it.
    (A quotation that closes the object and opens another one looks like a change of mind; only a schema helps there.)

    Raises `AmbiguousJsonError` where that would take much longer than reading the text once.
    """
    values: list[Found] = []
    broken: list[int] = []
    position, allowance = 0, PATIENCE * len(text) + SHORT
    while found := (_LINE_OPEN if broken else _OPEN).search(text, position):
        reader = _Reader(text)
        try:
            value, position = reader.value(found.start(), 0)
        except TooDeepError as error:
            position = error.position
        except MalformedJsonError as error:
            allowance -= reader.reached - found.start()
            if allowance < 0:
                raise AmbiguousJsonError from error
            if reader.has_key or _OTHER_KEY.match(text, found.start()):
                broken.append(found.start())
            position = len(text) if isinstance(error, TruncatedJsonError) else found.start() + 1
        else:
            values.append(Found(found.start(), position, value))
    # What stands between the values, without the braces right behind one: is another brace closed there?
    nexts = [*(value.start for value in values[1:]), len(text)]
    gaps = [_CLOSING.sub("", text[value.end : end], count=1) for value, end in zip(values, nexts, strict=False)]
    return Scan(() if any("}" in gap for gap in gaps) else tuple(values), tuple(broken))


def objects_with(required: frozenset[str], value: Json) -> list[dict[str, Json]]:
    """Return the value itself if it is an object with these keys, else all such objects inside it."""
    if isinstance(value, dict) and required <= value.keys():
        return [value]
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [found for part in inner for found in objects_with(required, part)]


class _Reader:
    """Reads one value. Its methods take a position (and a depth) and return a value and the position after it."""

    def __init__(self, text: str) -> None:
        self._text = text
        self.has_key = False  # a key and its colon were read: this is meant as an object
        self.reached = 0  # position up to which the text was looked at

    def value(self, position: int, depth: int) -> tuple[Json, int]:
        position = self._skip(position)
        if depth > DEEPEST:
            raise TooDeepError(position)
        match self._text[position]:
            case "{":
                return self._object(position + 1, depth)
            case "[":
                return self._array(position + 1, depth)
            case '"' | "“" | "”" | "„":
                return self._string(position)
            case _:
                return self._plain(position)

    def _skip(self, position: int) -> int:
        position = self._reach(_SPACE.match(self._text, position), position)
        if position >= len(self._text):
            raise TruncatedJsonError
        return position

    def _reach(self, found: re.Match[str] | None, position: int) -> int:
        """Return where a match ends, or the position where there is none, and note that it was looked at."""
        position = found.end() if found else position
        self.reached = max(self.reached, position)
        return position

    def _object(self, position: int, depth: int) -> tuple[dict[str, Json], int]:
        content: dict[str, Json] = {}
        position = self._skip(position)
        while self._text[position] != "}":
            key, position = self._string(position)
            position = self._expect(":", position)
            self.has_key = True
            if key in content:
                raise MalformedJsonError  # which of the two is meant, nobody can say
            content[key], position = self.value(position, depth + 1)
            position = self._comma_or("}", position)
        return content, position + 1

    def _array(self, position: int, depth: int) -> tuple[list[Json], int]:
        content: list[Json] = []
        position = self._skip(position)
        while self._text[position] != "]":
            item, position = self.value(position, depth + 1)
            content.append(item)
            position = self._comma_or("]", position)
        return content, position + 1

    def _expect(self, mark: str, position: int) -> int:
        position = self._skip(position)
        if self._text[position] != mark:
            raise MalformedJsonError
        return position + 1

    def _comma_or(self, end: str, position: int) -> int:
        """Return the position of the next item, or of the end; a comma may stand before that."""
        position = self._skip(position)
        return position if self._text[position] == end else self._skip(self._expect(",", position))

    def _string(self, position: int) -> tuple[str, int]:
        if self._text[position] != '"':
            found = _TYPOGRAPHIC.match(self._text, position)
            end = self._reach(found, position)
            if not found or self._text[end : end + 1] not in ("“", "”"):
                raise MalformedJsonError
            return found[1], end + 1
        end = self._reach(_STRING.match(self._text, position), position)
        if end >= len(self._text) - (self._text[end : end + 1] == "\\"):
            raise TruncatedJsonError
        if self._text[end] != '"':
            raise MalformedJsonError  # an escape that JSON does not know
        value = _STRINGS.decode(self._text[position : end + 1])
        # Half a surrogate pair cannot be written anywhere; the mark shows that something was there.
        return value.encode("utf-8", "replace").decode(), end + 1

    def _plain(self, position: int) -> tuple[Json, int]:
        found = _PLAIN.match(self._text, position)
        self._reach(found, position)
        word = found[0] if found else ""
        if found and word in _WORDS:
            return _WORDS[word], found.end()
        if not found or len(word) > LONGEST_NUMBER or not _NUMBER.fullmatch(word):
            raise MalformedJsonError
        number = json.loads(word)
        if not math.isfinite(number):
            raise MalformedJsonError
        return number, found.end()


def whole_number(value: Json) -> int | None:
    """Return a whole number: also 2.0, and one of up to three plain digits that is written as text; else nothing."""
    if isinstance(value, str) and _DIGITS.fullmatch(value):
        return int(value)
    if not _is_number(value) or not math.isfinite(value) or value != int(value):
        return None
    return int(value)


def fits_shape(value: Json, shape: Mapping[str, Json]) -> bool:
    """Tell whether a value has the shape of a JSON schema; keys that the schema does not name are let through.

    Known words: type, properties, required, items, enum, const, minimum, maximum, minItems, maxItems, minLength,
    maxLength. Another one is a `ValueError`, as it would go unchecked.
    """
    unknown = shape.keys() - _CHECKS.keys() - _NOT_CHECKED
    if unknown:
        raise ValueError(f"a shape cannot use {', '.join(sorted(unknown))}")
    return all(_CHECKS[word](value, wanted) for word, wanted in shape.items() if word in _CHECKS)


def _is_number(value: Json) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _same(value: Json, wanted: Json) -> bool:
    return bool(value == wanted) and isinstance(value, bool) == isinstance(wanted, bool)


_TYPES: Mapping[str, Callable[[Json], bool]] = {
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
    "number": _is_number,
    "integer": lambda value: _is_number(value) and value == int(value),
}
_CHECKS: Mapping[str, Callable[[Json, Json], bool]] = {
    "type": lambda value, names: any(_TYPES[name](value) for name in ([names] if isinstance(names, str) else names)),
    "properties": lambda value, parts: (
        not isinstance(value, dict) or all(fits_shape(value[key], part) for key, part in parts.items() if key in value)
    ),
    "required": lambda value, keys: not isinstance(value, dict) or set(keys) <= value.keys(),
    "items": lambda value, part: not isinstance(value, list) or all(fits_shape(item, part) for item in value),
    "enum": lambda value, options: any(_same(value, option) for option in options),
    "const": _same,
    "minimum": lambda value, least: not _is_number(value) or value >= least,
    "maximum": lambda value, most: not _is_number(value) or value <= most,
    "minItems": lambda value, least: not isinstance(value, list) or len(value) >= least,
    "maxItems": lambda value, most: not isinstance(value, list) or len(value) <= most,
    "minLength": lambda value, least: not isinstance(value, str) or len(value) >= least,
    "maxLength": lambda value, most: not isinstance(value, str) or len(value) <= most,
}
_NOT_CHECKED = frozenset({"additionalProperties", "title", "description", "$schema"})
