"""What tells who a person is becomes `[email]`, `[phone]`, `[link]`, `[ip]`, `[handle]` or `[name]`.

First for texts, then for whole rows, in which people get pseudonyms too and columns that nobody knows are left behind.
"""

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from prbench.construction.privacy.contacts import BLANK, TextSpan, blank, find_contacts
from prbench.construction.privacy.names import NameFinder, find_names, spread, words_to_spread
from prbench.construction.privacy.pseudonyms import NOBODY, Pseudonyms, Renaming, can_be_searched
from prbench.schema import Json

KINDS = ("email", "link", "ip", "phone", "handle", "name")
MASKS = {kind: f"[{kind}]" for kind in KINDS}
_MASK = re.compile("|".join(map(re.escape, MASKS.values())))
# Columns that we know. Any other may hold anything (`author`, `email`), so it does not go on.
COLUMNS = frozenset(
    {"id", "user_id", "question", "narrative", "profile", "posts", "rubric_aspects", "category", "split", "meta"}
    | {"chosen", "rejected", "response", "rating", "text"}
)
POST_COLUMNS = frozenset({"id", "text", "category"})
ASPECT_COLUMNS = frozenset({"aspect", "evidence", "reason"})
_NO_PROSE = frozenset({"category", "split", "rating", "id", "user_id"})


@dataclass(frozen=True, slots=True)
class Redacted:
    """A text without what tells who somebody is, and how much of each kind was taken out."""

    text: str
    counts: Mapping[str, int]


def redact(text: str, names: NameFinder = find_names) -> Redacted:
    """Return a text in which names, addresses and links are masked.

        print(redact("Write to jo@example.org.").text)

    `names` finds names: by patterns, or by a model (`load_names`).
    """
    (found,) = redact_all([text], names)
    return found


def redact_all(texts: Sequence[str], names: NameFinder = find_names) -> list[Redacted]:
    """Redact texts of one person: a name that one of them introduces is masked in all of them.

    Masked texts come back unchanged, so that redacting twice is redacting once.
    """
    redacted = []
    for text, spans in zip(texts, find_spans(texts, names), strict=True):
        pieces, end = [], 0
        for span in spans:
            pieces += [text[end : span.start], MASKS[span.kind]]
            end = span.end
        counts = Counter(span.kind for span in spans)
        redacted.append(Redacted("".join(pieces) + text[end:], {kind: counts[kind] for kind in KINDS if counts[kind]}))
    return redacted


def find_spans(texts: Sequence[str], names: NameFinder = find_names) -> list[list[TextSpan]]:
    """Return what stands where in each text; nothing overlaps. Rounds go on until nothing new turns up."""
    left = [blank(text, [TextSpan(*match.span(), "mask") for match in _MASK.finditer(text)]) for text in texts]
    found: list[list[TextSpan]] = [[] for _ in texts]
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


def _round(text: str, known: frozenset[str], names: NameFinder) -> list[TextSpan]:
    """One look at a text: addresses first, for they may hold names; then names, the longest first."""
    found = list(find_contacts(text))
    text = blank(text, found)
    taken = bytearray(character == BLANK for character in text)
    people = {TextSpan(start, end, "name") for start, end in chain(names(text), spread(text, known)) if end > start}
    for span in sorted(people, key=lambda span: (span.start - span.end, span.start)):
        if not any(taken[span.start : span.end]):
            taken[span.start : span.end] = b"\1" * (span.end - span.start)
            found.append(span)
    return found


@dataclass(frozen=True, slots=True)
class CleanRow:
    """A row that may be shown."""

    row: dict[str, Json]
    counts: Mapping[str, int]  # by kind of mask


def clean_row(
    row: Mapping[str, Json],
    *,
    pseudonyms: Pseudonyms | None,
    redaction: NameFinder | None = find_names,
    others: Renaming = NOBODY,
) -> CleanRow:
    """Return the row with pseudonyms (unless None) and masks (unless `redaction` is None), and known columns only.

    All texts of the row are redacted together: a name that one post introduces is masked in the narrative too. The
    person's own id, the row's and its posts' are replaced wherever they stand, and so are those of `others`
    (`rename_people`) who are mentioned. Rows of `{user_id, posts}` and of single posts are rows as well.
    """
    known = _known_columns(row)
    counts: Counter[str] = Counter()
    if redaction is not None:
        masked: dict[str, str] = {}
        _change_texts(known, lambda text: masked.setdefault(text, text), but=_NO_PROSE)  # only to collect them
        for text, found in zip(list(masked), redact_all(list(masked), redaction), strict=True):
            masked[text] = found.text
            counts.update(found.counts)
        known = _change_texts(known, masked.__getitem__, but=_NO_PROSE)
    if pseudonyms is not None:
        known = _renamed(known, pseudonyms, others)
    return CleanRow(known, dict(counts))


def _known_columns(row: Mapping[str, Json]) -> dict[str, Json]:
    known = {name: value for name, value in row.items() if name in COLUMNS}
    for list_name, columns in (("profile", POST_COLUMNS), ("posts", POST_COLUMNS), ("rubric_aspects", ASPECT_COLUMNS)):
        parts = known.get(list_name)
        if isinstance(parts, Sequence) and not isinstance(parts, str):
            known[list_name] = [
                {name: value for name, value in part.items() if name in columns} if isinstance(part, Mapping) else part
                for part in parts
            ]
    return known


def _change_texts(
    value: Json, change: Callable[[str], str], *, but: frozenset[str] = frozenset(), column: str = ""
) -> Json:
    """Return the value with every text in it changed, but for those of some columns; names of keys stay."""
    if isinstance(value, str):
        return value if column in but else change(value)
    if isinstance(value, Mapping):
        return {name: _change_texts(inner, change, but=but, column=str(name)) for name, inner in value.items()}
    if isinstance(value, Sequence):
        return [_change_texts(inner, change, but=but, column=column) for inner in value]
    return value


def _renamed(row: dict[str, Json], pseudonyms: Pseudonyms, others: Renaming) -> dict[str, Json]:
    """Return the row with other ids; an old id becomes the new one wherever it stands."""
    user = str(row["user_id"]) if row.get("user_id") is not None else ""
    owner = user or str(row.get("id", ""))
    old_id = str(row["id"]) if row.get("id") is not None else ""
    new_id = pseudonyms.post(owner, old_id) if "text" in row else pseudonyms.item(old_id)
    lists = [name for name in ("profile", "posts") if isinstance(row.get(name), list)]
    posts = {one: pseudonyms.post(owner, one) for name in lists for one in map(_post_id, row[name]) if one}
    people = {user: pseudonyms.name(user)} if user else {}
    # Ids of posts and rows that can be told from other words; the person's own id, whatever it looks like.
    in_texts = {
        old: new for old, new in {**posts, old_id: new_id}.items() if can_be_searched(old) and not old.isalpha()
    }
    own = Renaming({**in_texts, **people})
    changed: dict[str, Json] = _change_texts(row, lambda text: others(own(text)))
    if user:
        changed["user_id"] = people[user]
    if old_id:
        changed["id"] = new_id
    for name in lists:
        changed[name] = [
            {**post, "id": posts[one]} if (one := _post_id(old)) else post
            for post, old in zip(changed[name], row[name], strict=True)
        ]
    return changed


def _post_id(post: Json) -> str:
    return str(post["id"]) if isinstance(post, Mapping) and post.get("id") is not None else ""
