"""Is it a quote? Words are compared in order; case, punctuation and the kind of apostrophe do not matter."""

import re
from collections.abc import Iterable

from prbench.check.texts import words

LEAST_WORDS = 3  # of a quote: single words occur everywhere, and prove nothing
_GAP = re.compile(r"\[?(?:\.\s?\.\s?\.|…)\]?")


def is_quote(quote: str, texts: Iterable[str]) -> bool:
    """True if one of the texts holds the quote; `...` stands for words left out, and the parts must be in order."""
    parts = [_folded(part) for part in _GAP.split(quote) if words(part)]
    return bool(parts) and any(_holds(_folded(text), parts) for text in texts)


def _holds(text: str, parts: list[str]) -> bool:
    place = 0
    for part in parts:
        if len(part.split()) < LEAST_WORDS and part != text:
            return False
        place = text.find(part, place)
        if place < 0:
            return False
        place += len(part) - 1  # the blank at its end begins the next one
    return True


def _folded(text: str) -> str:
    """The words between blanks, one also before the first and after the last, so that no part of a word is found."""
    return f" {' '.join(words(text.replace('’', chr(39))))} "
