"""A hash that changes whenever the words around what is known of a user do."""

from hashlib import sha256

from prbench.prompts import HASH_LENGTH
from prbench.schema import ContextKind, LabeledPair, UserContext

_SAMPLE = ("first line\n\nsecond line", "another piece")
_PAIR = LabeledPair(question="first line\nsecond line", chosen="one", rejected="two")


def rendering_hash(kind: ContextKind, *, has_labels: bool = False) -> str:
    """Return a digest of the heading and of the way of listing."""
    segments = () if kind is ContextKind.NONE else _SAMPLE
    sample = UserContext(kind=kind, segments=segments, labels=(_PAIR,) if has_labels else ())
    return sha256(sample.text.encode()).hexdigest()[:HASH_LENGTH]
