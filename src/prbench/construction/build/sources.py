"""Where the items of a build come from: rows with questions, people's posts, or the lab.

This is the border: rows are checked here, once. Pseudonyms and redaction are applied here too, before any other part
sees a row. Columns that a build does not know are left behind, as nobody can tell what they say about a person.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, ValidationError
from pydantic_core import PydanticCustomError

from prbench.construction.build.questions import hold_out
from prbench.construction.build.records import BuildItem
from prbench.construction.build.settings import BuildSettings
from prbench.construction.privacy import COLUMNS, clean_row
from prbench.construction.privacy.names import load_names
from prbench.construction.privacy.pseudonyms import Pseudonyms, rename_people
from prbench.data import kind_of_dataset, raw_rows
from prbench.data.rows import (
    AnyText,
    FilledText,
    NoteText,
    TextId,
    as_row,
    made_user_id,
    quoted,
    read_number_as_text,
    row_error,
    visible,
)
from prbench.data.texts import fold
from prbench.errors import DataError
from prbench.schema import NOTHING, Aspect, Json, Post, User

ROWS, POSTS = "rows", "posts"
RESERVED = frozenset({"prompts", "readme.md"})  # what publishing puts beside the folders of the categories
_REMEDY = "Correct it, or drop the row"


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceItems:
    """The items of a source, and what tells them from another source's."""

    kind: str  # rows, posts, or the name of a dataset that draws questions itself
    items: tuple[BuildItem, ...]
    hash: str  # of all rows as they were read: neither names, masks nor a limit change it
    masked: Mapping[str, int]  # what redaction replaced, by kind
    redaction: str = ""  # what found names; "": texts are as they came


@dataclass(frozen=True, slots=True, kw_only=True)
class _SourceRow:
    """One row of a source, or all posts of one user, with its place."""

    where: str
    row: Mapping[str, Json]
    meta: Mapping[str, Json] = field(default_factory=lambda: NOTHING)


def read_items(settings: BuildSettings, names: Pseudonyms | None, limit: int | None = None) -> SourceItems:
    """Read and check a source; the first `limit` rows, or users with their posts, are taken."""
    kind, found = _drawn_rows(settings) or _rows(settings)
    if not found:
        raise DataError(f"{settings.data}: holds no rows, so there is nothing to build from.")
    # Of the columns that a build reads: any source with the same ones is the same.
    read = [{key: each.row[key] for key in sorted(each.row) if key in COLUMNS} for each in found]
    lines = "\n".join(json.dumps(row, sort_keys=True, default=str) for row in read)
    digest = hashlib.sha256(lines.encode()).hexdigest()[:16]
    finder, redaction = load_names() if settings.redact else (None, "")
    others = rename_people((each.row.get("user_id") for each in found), names)
    masked: Counter[str] = Counter()
    items: list[BuildItem] = []
    places: dict[str, str] = {}
    for each in found[:limit]:
        if kind != POSTS:
            _check(_SourceQuestion, each.row, each.where)  # an empty id has a pseudonym, too
        clean = clean_row(each.row, pseudonyms=names, redaction=finder, others=others)
        masked.update(clean.counts)
        posts = kind == POSTS
        new = list(_post_items(clean.row, each.where, settings)) if posts else [_question_item(clean.row, each)]
        _check_duplicates(new, each, places)
        items += new
    return SourceItems(
        kind=kind, items=tuple(items), hash=digest, masked=dict(sorted(masked.items())), redaction=redaction
    )


def _unreserved(value: str) -> str:
    if value.casefold() in RESERVED:
        raise PydanticCustomError("reserved", "is the name of something in every dataset folder")
    return value


# What `prbench.data.rows` will ask of the finished pairs is asked here, before anything is paid for.
_PostId = Annotated[AnyText, BeforeValidator(read_number_as_text)]  # a post may do without
_Category = Annotated[NoteText, AfterValidator(_unreserved)]
_STRICT = ConfigDict(strict=True, extra="ignore")


class _SourcePost(BaseModel):
    model_config = _STRICT
    id: _PostId = ""
    text: FilledText
    category: NoteText = ""


class _SourceAspect(BaseModel):
    model_config = _STRICT
    aspect: AnyText
    evidence: NoteText = ""
    reason: NoteText = ""


class _SourceQuestion(BaseModel):
    model_config = _STRICT
    id: TextId
    user_id: TextId = ""  # the default stands for a column that is absent; an empty text is refused
    question: FilledText
    narrative: NoteText = ""
    profile: list[_SourcePost]
    category: _Category = ""
    rubric_aspects: Annotated[list[_SourceAspect], BeforeValidator(lambda value: [] if value is None else value)] = []


class _DrawnSourcePost(_SourcePost):
    category: _Category = ""  # of the pair, where the question is drawn from this post


class _SourceUser(BaseModel):
    model_config = _STRICT
    user_id: TextId
    posts: list[_DrawnSourcePost]


class _SingleSourcePost(_DrawnSourcePost):
    user_id: TextId


_Row = TypeVar("_Row", bound=BaseModel)


def _drawn_rows(settings: BuildSettings) -> tuple[str, list[_SourceRow]] | None:
    """Return the questions of a dataset that draws them itself; `meta` keeps what it knows, to judge the result by."""
    kind = kind_of_dataset(settings.data)
    draw = kind.question_source() if kind else None
    if kind is None or draw is None:
        return None
    found = []
    for example in draw(settings.users):
        row = {key: value for key, value in as_row(example).items() if key not in ("chosen", "rejected", "meta")}
        meta = {kind.name: {"id": example.id, **example.meta}}
        found.append(_SourceRow(where=f"{kind.name}:{example.id}", row=row, meta=meta))
    return kind.name, found


def _rows(settings: BuildSettings) -> tuple[str, list[_SourceRow]]:
    found, wanted = raw_rows(settings.data, settings.subset, settings.split)
    rows = []
    for raw in found:
        if raw.problem:
            raise raw.refusal()
        if not isinstance(raw.value, Mapping):
            raise row_error(raw.where, "row", "is not an object", _REMEDY)
        row = {key: value for key, value in raw.value.items() if value is not None}
        if all(row.get(key) == value for key, value in wanted.items()):
            rows.append(_SourceRow(where=raw.where, row=row))
    if not rows or "question" in rows[0].row:
        return ROWS, rows
    if "posts" in rows[0].row or "text" in rows[0].row:
        return POSTS, _by_user(rows)
    fact = "has neither question nor posts nor text"
    raise row_error(rows[0].where, "row", fact, "See docs/how-to/build.md for what a build reads")


def _by_user(rows: Sequence[_SourceRow]) -> list[_SourceRow]:
    """Put all posts of one user into one row."""
    users: dict[str, _SourceRow] = {}
    for each in rows:
        if "posts" in each.row:
            several = _check(_SourceUser, each.row, each.where)
            user_id, posts = several.user_id, several.posts
        else:
            single = _check(_SingleSourcePost, each.row, each.where)
            user_id, posts = single.user_id, [single]
        first = users.setdefault(user_id, _SourceRow(where=each.where, row={"user_id": user_id, "posts": []}))
        for post in posts:
            name = f"{user_id}-{len(first.row['posts'])}"
            row = {"id": post.id if visible(post.id) else name, "text": post.text.strip(), "category": post.category}
            first.row["posts"].append(row)
    return list(users.values())


def _check(model: type[_Row], row: Mapping[str, Json], where: str) -> _Row:
    try:
        return model.model_validate(row)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        steps = (f"[{step}]" if isinstance(step, int) else f".{step}" for step in first["loc"])
        field = "".join(steps).removeprefix(".") or "row"
        fact = "is missing" if first["type"] == "missing" else first["msg"][0].lower() + first["msg"][1:]
        raise row_error(where, field, fact, _REMEDY) from None


def _question_item(row: Mapping[str, Json], found: _SourceRow) -> BuildItem:
    checked = _check(_SourceQuestion, row, found.where)
    profile = tuple(_post(post, f"{checked.id}-{number}") for number, post in enumerate(checked.profile))
    return BuildItem(
        id=checked.id,
        user=User(id=checked.user_id or made_user_id(profile, checked.id), profile=profile),
        question=checked.question.strip(),
        narrative=checked.narrative.strip(),
        category=checked.category,
        rubric=tuple(
            Aspect(aspect=each.aspect.strip(), evidence=each.evidence.strip(), reason=each.reason.strip())
            for each in checked.rubric_aspects
            if visible(each.aspect)
        ),
        meta=found.meta,
    )


def _post_items(row: Mapping[str, Json], where: str, settings: BuildSettings) -> Iterator[BuildItem]:
    """Yield so many items of a user; each has one post to draw its question from, and none of these in its profile."""
    checked = _check(_SourceUser, row, where)
    # A post that stands twice is one post: else its copy would stay in the profile.
    posts = list({fold(post.text): _post(post, post.id) for post in checked.posts}.values())
    held = hold_out(posts, settings.questions_per_user, settings.seed)
    profile = tuple(post for post in posts if post not in held)
    for post in held or (None,):
        yield BuildItem(
            id=f"{checked.user_id}/{post.id}" if post else checked.user_id,
            user=User(id=checked.user_id, profile=profile),
            category=post.category if post else "",
            held_out=post,
        )


def _post(row: _SourcePost, name: str) -> Post:
    return Post(id=row.id if visible(row.id) else name, text=row.text.strip(), category=row.category)


def _check_duplicates(items: Sequence[BuildItem], found: _SourceRow, places: dict[str, str]) -> None:
    """Refuse a second item of one id, by the id that the user knows; `places` has the rows before, by item."""
    for item in items:
        if item.id in places:
            row = found.row
            fact = f"{quoted(row.get('id'))} stands twice"
            if "question" not in row:
                posts = Counter(str(post["id"]) for post in row["posts"])
                fact = f"{quoted(posts.most_common(1)[0][0])} stands twice among the posts of one user"
            also = f", first in {places[item.id]}" if places[item.id] != found.where else ""
            raise row_error(found.where, "id", f"{fact}{also}", "Give every row, and every post, its own")
        places[item.id] = found.where
