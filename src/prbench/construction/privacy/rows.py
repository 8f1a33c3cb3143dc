"""A row before any of its text leaves: other names for people, and no address or name in any text."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from prbench.construction.privacy.names import find_names
from prbench.construction.privacy.pseudonyms import Pseudonyms
from prbench.construction.privacy.redact import NameFinder, redact_all
from prbench.construction.privacy.renaming import NOBODY, Renaming, can_be_searched, is_no_word
from prbench.schema import Json

# Columns that we know. Any other may hold anything (`author`, `email`), so it does not go on.
COLUMNS = frozenset(
    {"id", "user_id", "question", "narrative", "profile", "posts", "rubric_aspects", "category", "split", "meta"}
    | {"chosen", "rejected", "response", "rating", "text"}
)
POST_COLUMNS = frozenset({"id", "text", "category"})
ASPECT_COLUMNS = frozenset({"aspect", "evidence", "reason"})
_PLAIN = frozenset({"category", "split", "rating", "id", "user_id"})  # no prose


@dataclass(frozen=True, slots=True)
class CleanRow:
    """A row that may be shown, and what was taken out of it."""

    row: dict[str, Json]
    counts: Mapping[str, int]  # by kind of mask
    dropped: tuple[str, ...]  # unknown columns


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
        known = _renamed(known, pseudonyms, others)
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


def _renamed(row: dict[str, Json], pseudonyms: Pseudonyms, others: Renaming) -> dict[str, Json]:
    """Return the row with other ids; an old id becomes the new one wherever it stands."""
    user = str(row["user_id"]) if row.get("user_id") is not None else ""
    owner = user or str(row.get("id", ""))
    old_id = str(row["id"]) if row.get("id") is not None else ""
    new_id = pseudonyms.post(owner, old_id) if "text" in row else pseudonyms.item(old_id)
    lists = [name for name in ("profile", "posts") if isinstance(row.get(name), list)]
    posts = {one: pseudonyms.post(owner, one) for name in lists for one in map(_post_id, row[name]) if one}
    people = {user: pseudonyms.name(user)} if user else {}
    in_texts = Renaming(
        {**_in_texts(posts), **_in_texts({old_id: new_id}), **people}, lambda one: one == user or is_no_word(one)
    )
    changed: dict[str, Json] = {
        name: _everywhere(value, lambda text: others(in_texts(text))) for name, value in row.items()
    }
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


def _in_texts(names: Mapping[str, str]) -> dict[str, str]:
    """Return the ids of posts and rows that can be told from other words."""
    return {old: new for old, new in names.items() if can_be_searched(old) and is_no_word(old)}


def _post_id(post: Json) -> str:
    return str(post["id"]) if isinstance(post, Mapping) and post.get("id") is not None else ""


def _everywhere(value: Json, change: Callable[[str], str]) -> Json:
    """Return the value with every text in it changed, names of keys aside."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        return {name: _everywhere(inner, change) for name, inner in value.items()}
    return [_everywhere(inner, change) for inner in value] if isinstance(value, Sequence) else value
