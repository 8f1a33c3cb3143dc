"""Auto-J: a comparison, then `So, the final decision is Response 1.` (or `Response 2`, or `Tie`)."""

import re

from prbench.prompts.formats import ReplyFormat
from prbench.prompts.formats.sentences import (
    BECAUSE,
    CLOSE,
    INTRO,
    NOUN,
    OPEN,
    SIDE,
    TIE,
    Sentence,
    last_verdict,
    side_of,
    takes_back,
)
from prbench.schema import Pick
from prbench.specs import Spec

_DECISION = re.compile(
    rf"{INTRO}(?:(?:my|the) )?(?:final|overall) decision(?:(?: is|:)(?: that)?|:) ?"
    rf"{OPEN}(?:(?:the )?{NOUN} )?\(?(?P<side>{SIDE}|{TIE})\)?"
    rf"(?: is (?:the )?better(?: (?:one|response))?)?{CLOSE}{BECAUSE}",
    re.IGNORECASE,
)


def load(spec: Spec, options: None) -> ReplyFormat:
    """Return `autoj`."""
    return ReplyFormat(pick=read, has_ties=True)


def read(reply: str) -> Pick:
    """Return the last final decision."""
    return last_verdict(reply, _of_sentence) or Pick.UNREADABLE


def _of_sentence(sentence: Sentence) -> Pick | None:
    found = _DECISION.fullmatch(sentence.text)
    pick = side_of(found["side"]) if found else None
    return None if not found or pick is None or takes_back(found["because"], pick) else pick
