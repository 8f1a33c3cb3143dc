"""LLMBar: `Output (a)` and nothing else, or reasons and then `Therefore, Output (a) is better.` It knows no ties."""

import re

from prbench.prompts.formats import ReplyFormat
from prbench.prompts.formats.sentences import (
    BECAUSE,
    CLOSE,
    INTRO,
    LEAD,
    OPEN,
    Sentence,
    last_verdict,
    side_of,
    takes_back,
)
from prbench.schema import Pick
from prbench.specs import Spec

_OUTPUT = rf"{OPEN}output \(?(?P<side>[ab])\)?{CLOSE}"
_THAN = r"(?: than (?:the other(?: one| output)?|output \(?(?P<other>[ab])\)?))?"
_VERDICT = re.compile(
    rf"{INTRO}(?:{LEAD})?{_OUTPUT}(?P<states> is (?:the )?better(?: (?:one|output|choice))?{_THAN}{BECAUSE})?",
    re.IGNORECASE,
)


def load(spec: Spec, options: None) -> ReplyFormat:
    """Return `llmbar`."""
    return ReplyFormat(pick=read)


def read(reply: str) -> Pick:
    """Return what the last statement decides, or the name of an output that is the last line."""
    return last_verdict(reply, _of_sentence) or Pick.UNREADABLE


def _of_sentence(sentence: Sentence) -> Pick | None:
    found = _VERDICT.fullmatch(sentence.text)
    if not found:
        return None
    pick, is_announced = side_of(found["side"]), bool(found["lead"] or found["concluding"] or found["then"])
    if sentence.is_item and not is_announced:
        return None
    if found["states"]:
        is_void = pick is side_of(found["other"] or "") or takes_back(found["because"], pick) if pick else True
        return None if is_void else pick
    # The bare name is a heading, unless nothing follows.
    return pick if found["lead"] or sentence.is_last else None
