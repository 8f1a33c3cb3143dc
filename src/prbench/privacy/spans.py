"""Where something that tells who a person is stands in a text."""

import re
from dataclasses import dataclass

KINDS = ("email", "link", "ip", "phone", "handle", "name")
MASKS = {kind: f"[{kind}]" for kind in KINDS}
MASK = re.compile("|".join(map(re.escape, MASKS.values())))
BLANK = "\ufffc"  # stands for every character of what is masked already; no pattern reads it


@dataclass(frozen=True, slots=True, order=True)
class Span:
    """A part of a text, and what it tells."""

    start: int
    end: int
    kind: str


def blank(text: str, start: int, end: int) -> str:
    """Return the text with a part of it made unreadable, and everything else where it was."""
    return text[:start] + BLANK * (end - start) + text[end:]
