"""A row before any of its text leaves: other names for people, and no address or name in any text."""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from prbench.privacy.names import find_names
from prbench.privacy.pseudonyms import Pseudonyms
from prbench.privacy.redact import NameFinder, redact_all
from prbench.schema import Json

# Columns that we know. Any other may hold anything (`author`, `email`), so it does not go on.
COLUMNS = frozenset(
    {"id", "user_id", "question", "narrative", "profile", "posts", "rubric_aspects", "category", "split", "meta"}
    | {"chosen", "rejected", "response", "rating", "text"}
)
POST_COLUMNS = frozenset({"id", "text", "category"})
ASPECT_COLUMNS = frozenset({"aspect", "evidence", "reason"})
_PLAIN = frozenset({"category", "split", "rating", "id", "user_id"})  # no prose
SHORTEST_ID = 4  # shorter ids stand in too many texts by chance


@dataclass(frozen=True, slots=True)
class CleanRow:
    """A row that may be shown, and what was taken out of it."""

    row: dict[str, Json]
    counts: Mapping[str, int]  # by kind of mask
    dropped: tuple[str, ...]  # unknown columns


def clean_row(
    row: Mapping[str, Json], *, pseudonyms: Pseudonyms | None, redaction: NameFinder | None = find_names
) -> CleanRow:
    """Return the row with pseudonyms (unless None) and masks (unless `redaction` is None), and known columns only.

    All texts of the row are redacted together: a name that one post introduces is masked in the narrative too. The
    person's own id is replaced wherever it stands. Rows of `{user_id, posts}` and of single posts are rows as well.
    """
    known, dropped = _known_columns(row)
    counts: Counter[str] = Counter()
    if redaction is not None:
        texts = list(dict.fromkeys(_texts(known)))
        redacted = redact_all(texts, redaction)
        masked = {text: found.text for text, found in zip(texts, redacted, strict=True)}
        for found in redacted:
            counts.update(found.counts)
        known = _replace(known, lambda text: masked.get(text, text))
    if pseudonyms is not None:
        known = _renamed(known, pseudonyms)
    return CleanRow(known, dict(counts), dropped)


def _known_columns(row: Mapping[str, Json]) -> tuple[dict[str, Json], tuple[str, ...]]:
    dropped = [name for name in row if name not in COLUMNS]
    known = {name: value for name, value in row.items() if name in COLUMNS}
    for list_name, columns in (("profile", POST_COLUMNS), ("posts", POST_COLUMNS), ("rubric_aspects", ASPECT_COLUMNS)):
        parts = known.get(list_name)
        if not isinstance(parts, Sequence) or isinstance(parts, str):
            continue
        unknown = {name for part in parts if isinstance(part, Mapping) for name in part if name not in columns}
        dropped.extend(f"{list_name}.{name}" for name in sorted(unknown))
        known[list_name] = [
            {name: value for name, value in part.items() if name in columns} if isinstance(part, Mapping) else part
            for part in parts
        ]
    return known, tuple(dropped)


def _texts(value: Json, column: str = "") -> Iterator[str]:
    """Yield every text of a row but its ids and categories."""
    if isinstance(value, str):
        if column not in _PLAIN:
            yield value
    elif isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _texts(inner, str(name))
    elif isinstance(value, Sequence):
        for inner in value:
            yield from _texts(inner, column)


def _replace(value: Json, change: Callable[[str], str], column: str = "") -> Json:
    """Return the value with every text changed that `_texts` yields."""
    if isinstance(value, str):
        return value if column in _PLAIN else change(value)
    if isinstance(value, Mapping):
        return {name: _replace(inner, change, str(name)) for name, inner in value.items()}
    if isinstance(value, Sequence):
        return [_replace(inner, change, column) for inner in value]
    return value


def _renamed(row: dict[str, Json], pseudonyms: Pseudonyms) -> dict[str, Json]:
    """Return the row with other ids; a person's old id becomes the new one wherever it stands."""
    user = str(row["user_id"]) if row.get("user_id") is not None else ""
    owner = user or str(row.get("id", ""))
    changed = dict(row)
    if user:
        changed = {name: _everywhere(value, _renaming(user, pseudonyms.name(user))) for name, value in row.items()}
        changed["user_id"] = pseudonyms.name(user)
    if row.get("id") is not None:
        is_post = "text" in row
        changed["id"] = pseudonyms.post(owner, str(row["id"])) if is_post else pseudonyms.item(str(row["id"]))
    for name in ("profile", "posts"):
        if isinstance(row.get(name), list):
            ids = [post.get("id") if isinstance(post, Mapping) else None for post in row[name]]
            changed[name] = [
                post if post_id is None else {**post, "id": pseudonyms.post(owner, str(post_id))}
                for post, post_id in zip(changed[name], ids, strict=True)
            ]
    return changed


def _everywhere(value: Json, change: Callable[[str], str]) -> Json:
    """Return the value with every text in it changed, names of keys aside."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        return {name: _everywhere(inner, change) for name, inner in value.items()}
    return [_everywhere(inner, change) for inner in value] if isinstance(value, Sequence) else value


def _renaming(user: str, pseudonym: str) -> Callable[[str], str]:
    if len(user) < SHORTEST_ID or user.isdigit():
        return lambda text: pseudonym if text == user else text
    pattern = re.compile(rf"(?<!\w){re.escape(user)}(?!\w)", re.IGNORECASE)
    return lambda text: pattern.sub(pseudonym, text)
