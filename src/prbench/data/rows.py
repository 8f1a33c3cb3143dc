"""The border: a raw row is checked here, once, and becomes a record, or is refused with one line."""

import datetime
import decimal
import hashlib
import json
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails, PydanticCustomError

from prbench.errors import DataError, shortened
from prbench.schema import Aspect, Example, Json, Post, RatedExample, User

POST_KEYS = frozenset({"id", "category", "text", "extra"})
POST_DIGESTS = "post_digests"  # the field of a row that was made from posts and does not hold them
_SHOWN = 60  # characters of a value that an error repeats


def row_error(where: str, field: str, fact: str, remedy: str) -> DataError:
    """The one form of a refusal: place, field, fact and next step on one line."""
    return DataError(" ".join(f"{where}: {field}: {fact}. {remedy}.".split()))


def quoted(value: object) -> str:
    """A value as an error may repeat it: quoted, on one line, and short."""
    return shortened(repr(value), _SHOWN)


def _check_encoding(value: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError:
        raise PydanticCustomError("surrogate", "holds half of a surrogate pair, which is not a character") from None
    return value


def visible(text: str) -> str:
    """The text as a reader sees it: without characters of no width, and without white space around it."""
    if text.isascii():
        return text.strip()
    return "".join(character for character in text if unicodedata.category(character) != "Cf").strip()


def _check_filled(value: str) -> str:
    if not visible(value):
        raise PydanticCustomError("blank", "is empty")
    return value


def read_number_as_text(value: object) -> object:
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _read_object(value: object) -> object:
    """Accept a JSON object written as text: Parquet has no column for free-form objects."""
    if value is None:
        return {}
    if isinstance(value, str):
        found = _object_in(value)
        if found is None:
            raise PydanticCustomError("object", "is text that holds no JSON object")
        return found
    return value


def _object_in(text: str) -> dict[str, Json] | None:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


AnyText = Annotated[str, AfterValidator(_check_encoding)]
FilledText = Annotated[AnyText, AfterValidator(_check_filled)]
TextId = Annotated[FilledText, BeforeValidator(read_number_as_text)]
# May be absent, null or "".
NoteText = Annotated[AnyText, BeforeValidator(lambda value: "" if value is None else value)]
_Meta = Annotated[dict[str, Any], BeforeValidator(_read_object)]


# Strict types; unknown columns are kept, so that export loses nothing.
_STRICT = ConfigDict(strict=True, extra="allow", protected_namespaces=())


class _PostColumns(BaseModel):
    model_config = _STRICT
    id: TextId
    category: NoteText = ""
    text: FilledText


class _AspectColumns(BaseModel):
    model_config = _STRICT
    aspect: FilledText
    evidence: NoteText = ""
    reason: NoteText = ""


_Aspect = Annotated[
    _AspectColumns, BeforeValidator(lambda value: {"aspect": value} if isinstance(value, str) else value)
]
_Aspects = Annotated[
    list[_Aspect],
    BeforeValidator(lambda value: [] if value is None else value),
]


class _PairColumns(BaseModel):
    model_config = _STRICT
    id: TextId
    user_id: TextId = ""  # the default stands for a column that is absent; an empty text is refused
    question: FilledText
    profile: list[_PostColumns]
    rubric_aspects: _Aspects = []
    narrative: NoteText = ""
    category: NoteText = ""
    chosen: FilledText
    rejected: FilledText
    split: NoteText = ""
    meta: _Meta = {}


class _RatedColumns(BaseModel):
    model_config = _STRICT
    id: TextId
    user_id: TextId = ""
    question: FilledText
    profile: list[_PostColumns]
    category: NoteText = ""
    response: FilledText
    rating: float = Field(ge=0, le=1, allow_inf_nan=False)
    split: NoteText = ""
    meta: _Meta = {}


_Model = TypeVar("_Model", bound=BaseModel)


def is_rated(row: Mapping[str, Json]) -> bool:
    """Does the row carry a person's own score, rather than a pair?"""
    return "chosen" not in row and "rejected" not in row and ("response" in row or "rating" in row)


def to_example(row: Mapping[str, Json], where: str) -> Example:
    """Check one row with the official columns; `where` (`file:line`) is what an error calls it."""
    checked = _check(_PairColumns, row, where)
    if visible(checked.chosen) == visible(checked.rejected):
        fact = "is the same text as chosen, so the pair tests nothing"
        raise row_error(where, "rejected", fact, "Drop the row, or leave it out with --skip-bad-rows 1")
    meta = _collect_meta(checked, where)
    extras = [_present(aspect.model_extra) for aspect in checked.rubric_aspects]
    if any(extras):
        meta = _merge(meta, {"rubric_extra": _to_json(extras, where, "rubric_aspects")}, where, "meta")
    return Example(
        id=checked.id,
        user=_to_user(checked, where),
        question=checked.question,
        chosen=checked.chosen,
        rejected=checked.rejected,
        rubric=tuple(Aspect(aspect=a.aspect, evidence=a.evidence, reason=a.reason) for a in checked.rubric_aspects),
        narrative=checked.narrative,
        category=checked.category,
        split=checked.split,
        meta=meta,
    )


def to_rated(row: Mapping[str, Json], where: str) -> RatedExample:
    """Check one rated row; a rubric or narrative beside it goes to `meta`."""
    checked = _check(_RatedColumns, row, where)
    return RatedExample(
        id=checked.id,
        user=_to_user(checked, where),
        question=checked.question,
        response=checked.response,
        rating=float(checked.rating),
        category=checked.category,
        split=checked.split,
        meta=_collect_meta(checked, where),
    )


def as_row(item: Example | RatedExample) -> dict[str, Json]:
    """The official columns of a record, and `user_id`, `split` and `meta` where there is something in them."""
    row: dict[str, Json] = {
        "id": item.id,
        "user_id": item.user.id,
        "question": item.question,
        "profile": [_post_row(post) for post in item.user.profile],
    }
    if isinstance(item, Example):
        aspects = [{"aspect": a.aspect, "evidence": a.evidence, "reason": a.reason} for a in item.rubric]
        row |= {"rubric_aspects": aspects, "narrative": item.narrative, "category": item.category}
        row |= {"chosen": item.chosen, "rejected": item.rejected}
    else:
        row |= {"category": item.category, "response": item.response, "rating": item.rating}
    return row | ({"split": item.split} if item.split else {}) | ({"meta": dict(item.meta)} if item.meta else {})


def from_checked_row(row: Mapping[str, Json]) -> Example | RatedExample:
    """Rebuild a record from `as_row`'s own output, without checking it a second time."""
    common = {
        "id": row["id"],
        "user": User(id=row["user_id"], profile=tuple(map(_checked_post, row["profile"]))),
        "question": row["question"],
        "category": row["category"],
        "split": row.get("split", ""),
        "meta": row.get("meta", {}),
    }
    if is_rated(row):
        return RatedExample(**common, response=row["response"], rating=row["rating"])
    return Example(
        **common,
        chosen=row["chosen"],
        rejected=row["rejected"],
        rubric=tuple(Aspect(**aspect) for aspect in row["rubric_aspects"]),
        narrative=row["narrative"],
    )


def hash64(text: str) -> int:
    """64 bits that stand for a text, the same in every process."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")


def profile_hash(posts: Iterable[Post]) -> str:
    """16 hex digits that stand for the ids and texts of a profile, in order."""
    text = json.dumps([[post.id, post.text] for post in posts], ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def made_user_id(posts: Sequence[Post], row_id: object) -> str:
    """The id of a user whom the row does not name: a shared history is one person, a row without one its own."""
    return f"profile-{profile_hash(posts)}" if posts else f"row-{row_id}"


def post_digest(text: str) -> str:
    """16 hex digits that stand for one post; white space does not matter."""
    return hashlib.sha256(" ".join(text.split()).encode()).hexdigest()[:16]


def _check(model: type[_Model], row: Mapping[str, Json], where: str) -> _Model:
    # Tables write null for "no user ids"; for every other required column null is an error.
    columns = {name: value for name, value in row.items() if name != "user_id" or value is not None}
    try:
        return model.model_validate(columns)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        # ("profile", 3, "text") becomes profile[3].text.
        path = ""
        for step in first["loc"]:
            path += f"[{step}]" if isinstance(step, int) else f".{step}" if path else str(step)
        raise row_error(where, path or "row", *_explain(first)) from None


_WANTED = {
    "string_type": "text",
    "list_type": "a list",
    "dict_type": "an object",
    "model_type": "an object",
    "float_type": "a number",
}
_REMEDIES = {
    "profile": "Add the user's posts; an empty list stands for a user without any",
    "user_id": "Give the person's id, or leave the column out",
}


def _explain(error: ErrorDetails) -> tuple[str, str]:
    """What is wrong, and what to do."""
    kind, value = error["type"], error["input"]
    field = str(error["loc"][0]) if len(error["loc"]) == 1 else ""
    if kind == "missing" or value is None:
        fact = "is missing" if kind == "missing" else "is null"
        return fact, _REMEDIES.get(field, "Add it, or drop the row")
    if error["loc"][0] == "profile" and (len(error["loc"]) == 1 or (field == "" and len(error["loc"]) == 2)):
        wanted = f"must be {_WANTED[kind]}, found {_type_name(value)}" if kind in _WANTED else error["msg"]
        return wanted, 'Write a list of posts: [{"id": "p1", "text": "…"}]'
    if kind in _WANTED:
        return f"must be {_WANTED[kind]}, found {_type_name(value)}", "Correct the type, or drop the row"
    if kind == "blank":
        return "is empty", _REMEDIES.get(field, "Fill it in, or drop the row")
    if kind in ("greater_than_equal", "less_than_equal", "finite_number"):
        return f"is {quoted(value)}, outside 0..1", "Scale the ratings to 0..1"
    return error["msg"], "Correct it, or drop the row"


def _type_name(value: object) -> str:
    """The JSON name of a value's type."""
    match value:
        case bool():
            return "true or false"
        case int() | float():
            return "a number"
        case str():
            return "text"
        case Mapping():
            return "an object"
        case Sequence():
            return "a list"
        case _:
            return type(value).__name__


def _to_user(row: _PairColumns | _RatedColumns, where: str) -> User:
    posts = []
    for index, post in enumerate(row.profile):
        field = f"profile[{index}]"
        unknown = _present(post.model_extra)
        nested = unknown.get("extra")
        inner = _object_in(nested) if isinstance(nested, str) else nested
        if isinstance(inner, Mapping):
            del unknown["extra"]
            unknown = _merge(inner, unknown, where, field)
        extra = _to_json(unknown, where, field) if unknown else {}
        posts.append(Post(id=post.id, text=post.text, category=post.category, extra=extra))
    return User(id=row.user_id or made_user_id(posts, row.id), profile=tuple(posts))


def _checked_post(row: Mapping[str, Json]) -> Post:
    nested = row.get("extra")
    extra = nested if isinstance(nested, dict) else {key: row[key] for key in row if key not in POST_KEYS}
    return Post(id=row["id"], text=row["text"], category=row["category"], extra=extra)


def _post_row(post: Post) -> dict[str, Json]:
    row: dict[str, Json] = {"id": post.id, "category": post.category, "text": post.text}
    if not post.extra:
        return row
    # Beside the post's own keys, as they came; under `extra` where that would be read back as something else.
    if any(key in POST_KEYS or value is None for key, value in post.extra.items()):
        return {**row, "extra": dict(post.extra)}
    return {**row, **post.extra}


def _collect_meta(row: _PairColumns | _RatedColumns, where: str) -> dict[str, Json]:
    """`meta` and the unknown columns, which go under their own names."""
    merged = _merge(row.meta, _present(row.model_extra), where, "meta")
    return _to_json(merged, where, "meta") if merged else {}


def _present(columns: Mapping[str, Json] | None) -> dict[str, Json]:
    """The columns with a value: Parquet writes null where a row lacks a column, so null means absent."""
    return {name: value for name, value in (columns or {}).items() if value is not None}


def _merge(inner: Mapping[str, Json], outer: Mapping[str, Json], where: str, field: str) -> dict[str, Json]:
    for name in inner.keys() & outer.keys():
        if inner[name] != outer[name]:
            fact = f"{quoted(name)} stands both beside it and inside it, with different values"
            raise row_error(where, field, fact, "Rename one of the two")
    return {**inner, **outer}


def _to_json(value: Json, where: str, field: str) -> Json:
    """The value as JSON would give it back; what has no JSON form is refused."""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, default=_date_as_text)
        text.encode()
        return json.loads(text)
    except UnicodeEncodeError:
        fact = "holds half of a surrogate pair, which is not a character"
    except (TypeError, ValueError, RecursionError) as error:
        fact = f"has no JSON form ({error})"
    raise row_error(where, field, fact, "Use null, numbers, text, lists and objects, or drop the column")


def _date_as_text(value: object) -> str:
    match value:
        case datetime.date() | datetime.time():  # a datetime is a date
            return value.isoformat()
        case decimal.Decimal():
            return str(value)
        case _:
            raise TypeError(f"a value of type {type(value).__name__}")


@dataclass(frozen=True, slots=True, kw_only=True)
class RawRow:
    """One row as it was read, still unchecked."""

    where: str  # `file:line`
    value: Json = None
    problem: str = ""  # "fact. remedy", for a row that could not be read
    file: Path | None = None  # where it really lies, for formats of which a part lies in another file

    def refusal(self) -> DataError:
        """The one line about a row that could not be read."""
        return DataError(f"{self.where}: row: {self.problem}.")
