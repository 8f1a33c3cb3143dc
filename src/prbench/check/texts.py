"""How the checks read a text: folded for comparison, in words, in sentences."""

import re

from prbench.data.index import hash64

# Scripts without spaces between words: each character counts as one.
_UNSPACED = "\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af"
_WORD = re.compile(rf"[{_UNSPACED}]|[^\W{_UNSPACED}]+(?:['’][^\W{_UNSPACED}]+)*")
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|(?<=[。！？])|\n+")


def fold(text: str) -> str:
    """Return the text with white space and case evened out: texts that fold alike count as the same."""
    return " ".join(text.casefold().split())


def fingerprint(text: str) -> int:
    """Return 64 bits that stand for the folded text."""
    return hash64(fold(text))


def words(text: str) -> list[str]:
    """Return the words in lower case."""
    return _WORD.findall(text.casefold())


def sentences(text: str) -> list[str]:
    """Return the sentences; a new line ends one, too. A text without full stops is one sentence."""
    return [part.strip() for part in _SENTENCE_END.split(text) if part.strip()]
