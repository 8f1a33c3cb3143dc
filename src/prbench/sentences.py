"""Where one sentence of a text ends and the next begins."""

import re

_END = re.compile(r"(?<=[.!?])\s+")


def sentences_of(text: str) -> tuple[str, ...]:
    """Return the sentences of a text; one without full stops is one sentence."""
    return tuple(part for part in _END.split(text.strip()) if part)
