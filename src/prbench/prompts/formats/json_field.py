"""A JSON object with a field for the verdict or the score: `{"reason": "...", "winner": "A"}`."""

import re
from dataclasses import dataclass
from functools import partial

from prbench.prompts.formats import ReplyFormat
from prbench.prompts.formats.arena import meaning_of
from prbench.prompts.formats.sentences import NOUN, SIDE, TIE, side_of
from prbench.prompts.replies import number_on, read_json, within
from prbench.schema import Json, Pick
from prbench.specs import Spec, option

_SIDE = re.compile(rf"(?:{NOUN}[ _])?\(?(?P<side>{SIDE}|{TIE}|both|neither)\)?", re.IGNORECASE)
_LABEL = re.compile(r"\[\[ ?(?P<label>[abc]|tie|[ab] ?(?:>>?|<<?|=) ?[ab]) ?\]\]", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class JsonOptions:
    """Where in the object it stands."""

    field: str = option("winner", "of the object that holds the verdict, or the score")


def load(spec: Spec, options: JsonOptions) -> ReplyFormat:
    """Return `json`."""
    return ReplyFormat(pick=partial(read, options.field), score=partial(read_score, options.field), has_ties=True)


def read(field: str, reply: str) -> Pick:
    """Return what the last object with the field decides: A, 1 or first, B, 2 or second, or a tie."""
    return _meaning(_value(field, reply)) or Pick.UNREADABLE


def read_score(field: str, reply: str, low: float, high: float) -> float | None:
    """Return the number in the field of the last object that has it."""
    value = _value(field, reply)
    return within(
        None if value is None or isinstance(value, bool) else number_on(str(value).strip(), low, high), low, high
    )


def _value(field: str, reply: str) -> Json:
    """Return a text or a number; anything else is `None`."""
    found = read_json(reply, {"required": [field]})
    value = found[field] if found else None
    return value if isinstance(value, str | int | float) and not isinstance(value, bool) else None


def _meaning(value: Json) -> Pick | None:
    text = " ".join(str(value).split()).rstrip(".!")
    if labeled := _LABEL.fullmatch(text):
        return meaning_of(labeled["label"])
    if not (found := _SIDE.fullmatch(text)):
        return None
    return Pick.TIE if found["side"].lower() in ("both", "neither") else side_of(found["side"])
