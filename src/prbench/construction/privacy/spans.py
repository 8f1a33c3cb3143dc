"""Where something that tells who a person is stands in a text."""

import re
from collections.abc import Iterable, Iterator
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


def blank(text: str, spans: Iterable[Span]) -> str:
    """Return the text with parts of it made unreadable, and everything else where it was; no part overlaps another."""
    pieces, end = [], 0
    for span in sorted(spans):
        pieces += [text[end : span.start], BLANK * (span.end - span.start)]
        end = span.end
    return "".join(pieces) + text[end:]


def apart(spans: Iterable[Span]) -> Iterator[Span]:
    """Yield the spans from first to last, without those that begin in another."""
    end = 0
    for span in sorted(spans, key=lambda span: (span.start, -span.end)):
        if span.start >= end and span.end > span.start:
            yield span
            end = span.end
