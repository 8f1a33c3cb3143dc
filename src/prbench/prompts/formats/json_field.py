"""A JSON object with a field for the verdict or the score: `{"reason": "...", "winner": "A"}`."""

import math
import re
from dataclasses import dataclass
from functools import partial

from prbench.prompts.formats import ReplyFormat
from prbench.prompts.formats.arena import meaning_of
from prbench.prompts.formats.sentences import NOUN, SIDE, TIE, labeled, last_labeled, side_of
from prbench.prompts.llm_json import objects_with
from prbench.prompts.replies import number_on, values_in, within
from prbench.schema import Json, Pick
from prbench.specs import Spec, option

_SIDE = re.compile(rf"(?:{NOUN}[ _])?\(?(?P<side>{SIDE}|{TIE}|both|neither)\)?", re.IGNORECASE)
_LABEL = re.compile(r"\[\[ ?(?P<label>[abc]|tie|[ab] ?(?:>>?|<<?|=) ?[ab]) ?\]\]", re.IGNORECASE)

# To be read as a label in a sentence, an object is replaced by its number between two characters of nobody's.
_OPEN, _CLOSE = "\ue000", "\ue001"
_NEW_SENTENCE = re.compile(r"[ \t]++(?=[A-Z])")
_WHAT = (
    r"(?:json(?: (?:object|output|response|answer|reply|result|verdict))?|object|output|response|reply|score|rating)"
)
_LEAD = (
    r"(?:(?:here (?:it is|you (?:go|are))|(?:(?:here is|here's|this is) )?(?:(?:my|the|a) )?"
    rf"(?:(?:final|valid|requested|resulting|overall) )*+{_WHAT}(?: is)?) ?[:=–—-]? ?)?"
)
_OBJECT = labeled(rf"{_LEAD}{_OPEN}(?P<label>[0-9]++){_CLOSE}[}}\])]*+")


@dataclass(frozen=True, kw_only=True)
class JsonOptions:
    """Where in the object it stands."""

    field: str = option("winner", "of the object that holds the verdict, or the score")


def load(spec: Spec, options: JsonOptions) -> ReplyFormat:
    """Return `json`."""
    return ReplyFormat(pick=partial(read, options.field), score=partial(read_score, options.field), has_ties=True)


def read(field: str, reply: str) -> Pick:
    """Return what the last object of its own decides: A, 1 or first, B, 2 or second, or a tie."""
    text, values = _numbered(field, reply)

    def meaning(label: str) -> Pick:
        return _meaning(values[int(label)]) or Pick.UNREADABLE

    return last_labeled(text, _OBJECT.fullmatch, meaning) or Pick.UNREADABLE


def read_score(field: str, reply: str, low: float, high: float) -> float | None:
    """Return the number in the field of the last object of its own."""
    text, values = _numbered(field, reply)

    def number(label: str) -> float:
        value = number_on(str(values[int(label)]).strip(), low, high)
        return math.inf if value is None else value  # explicit, but no score: an earlier one does not stand in for it

    return within(last_labeled(text, _OBJECT.fullmatch, number), low, high)


def _numbered(field: str, reply: str) -> tuple[str, list[Json]]:
    """Return the reply with a number for each value that has the field, and what the field holds: a text, a number.

    Anything else in the field is `None`, and so is what several objects inside one value say.
    """
    text, found = values_in(reply)
    pieces, values, position = list[str](), list[Json](), 0

    def prose(end: int) -> str:
        rest = text[position:end].replace(_OPEN, " ").replace(_CLOSE, " ")
        begins = _NEW_SENTENCE.match(rest) if position else None
        return f". {rest[begins.end() :]}" if begins else rest

    for each in found:
        objects = objects_with(frozenset((field,)), each.value)
        if not objects and not isinstance(each.value, dict):
            continue
        pieces.append(prose(each.start))
        if objects:
            pieces.append(f"{_OPEN}{len(values)}{_CLOSE}")
            value = objects[0][field] if len(objects) == 1 else None
            values.append(value if isinstance(value, str | int | float) and not isinstance(value, bool) else None)
        position = each.end
    return "".join((*pieces, prose(len(text)))), values


def _meaning(value: Json) -> Pick | None:
    text = " ".join(str(value).split()).rstrip(".!")
    if found := _LABEL.fullmatch(text):
        return meaning_of(found["label"])
    if not (side := _SIDE.fullmatch(text)):
        return None
    return Pick.TIE if side["side"].lower() in ("both", "neither") else side_of(side["side"])
