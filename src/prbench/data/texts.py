"""How texts are compared: folded, in words, in sentences, as quotes."""

import re
from collections.abc import Iterable

LEAST_QUOTED_WORDS = 3  # single words occur everywhere, and prove nothing
# Scripts without spaces between words: each character counts as one.
_UNSPACED = "\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af"
_WORD = re.compile(rf"[{_UNSPACED}]|[^\W{_UNSPACED}]+(?:['’][^\W{_UNSPACED}]+)*")
_GAP = re.compile(r"\[?(?:\.\s?\.\s?\.|…)\]?")
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|(?<=[。！？])|\n+")
# Blanks before a line break are tried from their first one only: from each would take the square of their number.
_STATEMENT_END = re.compile(r"(?<=[.!?])\s++|(?<!\s)[^\S\n]*+\n\s*+")
_LIST_MARK = re.compile(r"^(?:[-*•+]|\d+[.)])\s+")
_LETTER = re.compile(r"[^\W\d_]")


def fold(text: str) -> str:
    """Return the text with white space and case evened out: texts that fold alike count as the same."""
    return " ".join(text.casefold().split())


def words(text: str) -> list[str]:
    """Return the words in lower case."""
    return _WORD.findall(text.casefold())


def sentences(text: str) -> list[str]:
    """Return the sentences as they are counted and compared, in any script; what models embed is `sentences_of`.

    A new line ends one, too. A text without full stops is one sentence.
    """
    return [part.strip() for part in _SENTENCE_END.split(text) if part.strip()]


def sentences_of(text: str) -> tuple[str, ...]:
    """Return the sentences as models embed them: without list marks, and only those with a letter in them."""
    parts = (_LIST_MARK.sub("", part) for part in _STATEMENT_END.split(text.strip()))
    return tuple(part for part in parts if _LETTER.search(part))


def is_quote(quote: str, texts: Iterable[str]) -> bool:
    """Tell whether one of the texts holds the quote; case, punctuation and the kind of apostrophe do not matter.

    `...` stands for words left out, and the parts must be in order.
    """
    parts = [_padded(part) for part in _GAP.split(quote) if words(part)]
    return bool(parts) and any(_holds(_padded(text), parts) for text in texts)


def _holds(text: str, parts: list[str]) -> bool:
    place = 0
    for part in parts:
        if len(part.split()) < LEAST_QUOTED_WORDS and part != text:
            return False
        place = text.find(part, place)
        if place < 0:
            return False
        place += len(part) - 1  # the blank at its end begins the next one
    return True


def _padded(text: str) -> str:
    """Return the words with a blank around each, so that no part of a word is found."""
    return f" {' '.join(words(text.replace('’', chr(39))))} "
