"""Where one sentence of a text ends and the next begins."""

import re

# Blanks before a line break are tried from their first one only: from each would take the square of their number.
_END = re.compile(r"(?<=[.!?])\s++|(?<!\s)[^\S\n]*+\n\s*+")
_LIST_MARK = re.compile(r"^(?:[-*•+]|\d+[.)])\s+")
_LETTER = re.compile(r"[^\W\d_]")


def sentences_of(text: str) -> tuple[str, ...]:
    """Return the sentences of a text, without list marks; a line break ends a sentence too."""
    parts = (_LIST_MARK.sub("", part) for part in _END.split(text.strip()))
    return tuple(part for part in parts if _LETTER.search(part))
