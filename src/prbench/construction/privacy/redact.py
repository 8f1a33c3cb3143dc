"""Redaction: what tells who a person is becomes `[email]`, `[phone]`, `[link]`, `[ip]`, `[handle]` or `[name]`."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from prbench.construction.privacy.contacts import find_contacts
from prbench.construction.privacy.names import find_names, spread, words_to_spread
from prbench.construction.privacy.spans import BLANK, KINDS, MASK, MASKS, Span, blank

NameFinder = Callable[[str], Iterable[tuple[int, int]]]


@dataclass(frozen=True, slots=True)
class Redacted:
    """A text without what tells who somebody is, and how much of each kind was taken out."""

    text: str
    counts: Mapping[str, int]


def redact(text: str, names: NameFinder = find_names) -> Redacted:
    """Return the text with masks. `names` finds names: by patterns, or by a model (`load_names`)."""
    (found,) = redact_all([text], names)
    return found


def redact_all(texts: Sequence[str], names: NameFinder = find_names) -> list[Redacted]:
    """Redact texts of one person: a name that one of them introduces is masked in all of them.

    Masked texts come back unchanged, so that redacting twice is redacting once.
    """
    spans = find_spans(texts, names)
    return [_masked(text, found) for text, found in zip(texts, spans, strict=True)]


def find_spans(texts: Sequence[str], names: NameFinder = find_names) -> list[list[Span]]:
    """Return what stands where in each text; nothing overlaps. Rounds go on until nothing new turns up."""
    left = [_without_masks(text) for text in texts]
    found: list[list[Span]] = [[] for _ in texts]
    known: frozenset[str] = frozenset()
    is_new = True
    while is_new:
        is_new = False
        for place, text in enumerate(left):
            spans = _round(text, known, names)
            left[place] = blank(text, spans)
            found[place].extend(spans)
            is_new = is_new or bool(spans)
            people = [text[span.start : span.end] for span in spans if span.kind == "name"]
            known |= {word for name in people for word in words_to_spread(name)}
    return [sorted(spans) for spans in found]


def _round(text: str, known: frozenset[str], names: NameFinder) -> list[Span]:
    """One look at a text: addresses first, for they may hold names; then names, the longest first."""
    found = list(find_contacts(text))
    text = blank(text, found)
    taken = bytearray(character == BLANK for character in text)
    people = {Span(start, end, "name") for start, end in chain(names(text), spread(text, known)) if end > start}
    for span in sorted(people, key=lambda span: (span.start - span.end, span.start)):
        if not any(taken[span.start : span.end]):
            taken[span.start : span.end] = b"\1" * (span.end - span.start)
            found.append(span)
    return found


def _without_masks(text: str) -> str:
    return blank(text, [Span(*match.span(), "mask") for match in MASK.finditer(text)])


def _masked(text: str, spans: Sequence[Span]) -> Redacted:
    counts = Counter(span.kind for span in spans)
    return Redacted("".join(_pieces(text, spans)), {kind: counts[kind] for kind in KINDS if counts[kind]})


def _pieces(text: str, spans: Sequence[Span]) -> Iterator[str]:
    end = 0
    for span in spans:
        yield text[end : span.start]
        yield MASKS[span.kind]
        end = span.end
    yield text[end:]
