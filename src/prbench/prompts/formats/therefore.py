"""Plain prose that concludes: `Therefore, Response A is better.` A conclusion only; a remark on the way is none."""

import re

from prbench.prompts.formats import ReplyFormat
from prbench.prompts.formats.sentences import (
    BECAUSE,
    CLOSE,
    INTRO,
    LEAD,
    NOUN,
    OPEN,
    SIDE,
    Sentence,
    last_verdict,
    side_of,
    stated,
    stated_in,
    takes_back,
)
from prbench.schema import Pick
from prbench.specs import Spec

# `Response B`, `the first answer`: behind a lead, as in `I prefer Response B`, the name is enough.
_CHOSEN = rf"(?:the )?(?:{NOUN} \(?(?P<chosen>{SIDE})\)?|(?P<which>first|second) {NOUN})"
_CONCLUSION = re.compile(rf"{INTRO}(?:{LEAD})?{OPEN}(?:{stated()}|{_CHOSEN}){CLOSE}{BECAUSE}", re.IGNORECASE)


def load(spec: Spec, options: None) -> ReplyFormat:
    """Return `therefore`."""
    return ReplyFormat(pick=read, has_ties=True)


def read(reply: str) -> Pick:
    """Return what the last conclusion says."""
    return last_verdict(reply, _of_sentence) or Pick.UNREADABLE


def _of_sentence(sentence: Sentence) -> Pick | None:
    found = _CONCLUSION.fullmatch(sentence.text)
    if not found or not (found["concluding"] or found["then"] or found["lead"]):
        return None
    chosen = found["chosen"] or found["which"]
    if chosen and not found["lead"]:
        return None
    pick = side_of(chosen) if chosen else stated_in(found)
    return None if pick is None or takes_back(found["because"], pick) else pick
