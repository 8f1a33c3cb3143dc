"""Texts as words, so that a quote is known again through escapes, line breaks, capitals and punctuation."""

import html
import re
from collections.abc import Iterator

QUOTE = 8  # so many words in a row are a quote, and no turn of phrase
SHORTEST = 4  # words of a text that is looked for whole; shorter ones stand anywhere
_ESCAPED_CHARACTER = re.compile(r"\\+u([0-9a-fA-F]{4})")
_ESCAPE = re.compile(r"\\+[nrtbf\"'/]?")
_TAG = re.compile(r"</?[a-zA-Z][^<>]{0,200}>")
_WORD = re.compile(r"[^\W_]+")

Gram = tuple[str, ...]


def unescaped(text: str) -> str:
    """Return a text with the characters that JSON and HTML write as escapes."""
    if "\\" in text:
        text = _ESCAPED_CHARACTER.sub(lambda found: _character(found[1]), text)
    return html.unescape(text) if "&" in text else text


def words_of(text: str) -> list[str]:
    """Return the words of a text in lower case; JSON in JSON, HTML and plain text give the same words."""
    if "\\" in text:
        text = _ESCAPED_CHARACTER.sub(lambda found: _character(found[1]), text)
        text = _ESCAPE.sub(" ", text)
    if "&" in text:
        text = html.unescape(text)
    if "<" in text:
        text = _TAG.sub(" ", text)
    return _WORD.findall(text.casefold())


def grams_of(text: str) -> Iterator[Gram]:
    """Yield every quote in a text; all of it, where it is shorter than a quote but longer than a phrase."""
    words = words_of(text)
    if SHORTEST <= len(words) < QUOTE:
        yield tuple(words)
    for start in range(len(words) - QUOTE + 1):
        yield tuple(words[start : start + QUOTE])


def _character(digits: str) -> str:
    code = int(digits, 16)
    return " " if 0xD800 <= code < 0xE000 else chr(code)
