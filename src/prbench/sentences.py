"""Where one sentence of a text ends and the next begins."""

import re

_END = re.compile(r"(?<=[.!?])\s+|\s*\n\s*")
_LIST_MARK = re.compile(r"^(?:[-*•+]|\d+[.)])\s+")
_LETTER = re.compile(r"[^\W\d_]")


def sentences_of(text: str) -> tuple[str, ...]:
    """Return the sentences of a text, without list marks; a line break ends a sentence too."""
    parts = (_LIST_MARK.sub("", part) for part in _END.split(text.strip()))
    return tuple(part for part in parts if _LETTER.search(part))
