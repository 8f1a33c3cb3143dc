"""Who is to be forgotten: by which ids they go, which rows are theirs, and which words are theirs alone.

Texts are compared as words, so that a quote is known again through escapes, line breaks, capitals and punctuation.
"""

import html
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from prbench.construction.privacy.pseudonyms import Pseudonyms
from prbench.data.rows import POST_DIGESTS, made_user_id, post_digest
from prbench.errors import UsageError
from prbench.people.forget.readings import normal
from prbench.schema import Json, Post

PERSON_KEYS = ("user_id", "user", "owner", "annotator")  # fields that name the person a row belongs to
ITEM_KEYS = ("id", "item")
# Fields with a person's own words; responses and reasons are a model's.
OWN_FIELDS = ("question", "narrative", "text", "held_out", "evidence", "about", "note")
GONE = "[forgotten]"
SHORTEST_ID, SHORTEST_NUMBER = 4, 5  # characters, digits; shorter ids stand in too many texts by chance
QUOTE = 8  # so many words in a row are a quote, and no turn of phrase
SHORTEST = 4  # words of a text that is looked for whole; shorter ones stand anywhere
_ESCAPED_CHARACTER = re.compile(r"\\+u([0-9a-fA-F]{4})")
_ESCAPE = re.compile(r"\\+[nrtbf\"'/]?")
_TAG = re.compile(r"</?[a-zA-Z][^<>]{0,200}>")
_WORD = re.compile(r"[^\W_]+")

Gram = tuple[str, ...]


@dataclass(slots=True)
class Person:
    """One person's traces, as far as they are known."""

    ids: set[str]
    items: set[str] = field(default_factory=set)  # ids of their rows
    questions: set[str] = field(default_factory=set)
    texts: set[str] = field(default_factory=set)
    grams: set[Gram] = field(default_factory=set)  # quotes that only they have
    shared_grams: int = 0  # quotes that others have as well
    other_ids: set[str] = field(default_factory=set)  # other people's ids that contain one of theirs
    variants: set[str] = field(default_factory=set)  # ids here that differ from an unknown one by capitals only
    _digests: set[str] = field(default_factory=set)  # of their texts; a summary has those of its posts

    @property
    def searchable_ids(self) -> list[str]:
        """The ids that can be looked for in any text."""
        return sorted(one for one in self.ids if len(one) >= (SHORTEST_NUMBER if one.isdecimal() else SHORTEST_ID))

    @property
    def short_texts(self) -> int:
        """How many texts are too short to be told from anybody's."""
        return sum(len(words_of(text)) < SHORTEST for text in self.texts)

    def owns(self, row: Json) -> bool:
        """True if a row is this person's: by a person's id, by its profile, or by its item and question."""
        if not isinstance(row, Mapping):
            return False
        if self.is_named_by(row):
            return True
        if "user_id" in row and row["user_id"] is not None:
            return False
        digests = row.get(POST_DIGESTS)
        wrote_all = isinstance(digests, list) and bool(digests) and self._digests.issuperset(map(str, digests))
        if derived_id(row) in self.ids or wrote_all:
            return True
        item = next((str(row[key]) for key in ITEM_KEYS if isinstance(row.get(key), str | int)), None)
        return item in self.items and str(row.get("question", "")) in self.questions

    def is_named_by(self, row: Mapping[str, Json]) -> bool:
        return any(id_of(row.get(key)) in self.ids for key in PERSON_KEYS)

    def parts_in(self, row: Json) -> Iterator[Mapping[str, Json]]:
        """Yield the row if it is this person's, or else what in it is: rows can lie in lists and in other rows."""
        if self.owns(row):
            yield row
        else:
            yield from (part for part in parts_of(row) if self.is_named_by(part))

    def learn(self, row: Mapping[str, Json]) -> None:
        """Take note of what a row of this person tells."""
        for key in ITEM_KEYS:
            if isinstance(row.get(key), str | int):
                self.items.add(str(row[key]))
        if isinstance(row.get("question"), str):
            self.questions.add(row["question"])
        self.texts.update(own_texts(row))

    def settle(self) -> None:
        self.grams = {gram for text in self.texts for gram in grams_of(text)}
        self._digests = {post_digest(text) for text in self.texts}

    def spare(self, text: str) -> None:
        """Strike out the quotes that another person has written too."""
        for gram in list(self._quotes(text)):
            if gram in self.grams:
                self.grams.discard(gram)
                self.shared_grams += 1

    def quoted_in(self, *texts: str) -> str:
        """Return a quote of this person that one of these texts holds, or ""."""
        return " ".join(next((quote for one in texts for quote in self._quotes(one)), ()))

    def _quotes(self, text: str) -> Iterator[Gram]:
        if not self.grams:
            return
        words, sizes = words_of(text), {len(gram) for gram in self.grams}
        for start in range(len(words)):
            for size in sizes:
                gram = tuple(words[start : start + size])
                if gram in self.grams:
                    yield gram

    def named_in(self, *texts: str) -> str:
        """Return an id of this person that one of these texts holds as a word of its own, or ""."""
        return next((found[0] for one in texts for found in self._names(one)), "")

    def without_names(self, row: Json) -> Json:
        """Return a row of somebody else with this person's ids struck out.

        Rows that name nobody, and rows with texts of this person in them, stay: without the id, nobody would know any
        more whose texts these are. The search names them.
        """
        is_others = isinstance(row, Mapping) and id_of(row.get("user_id")) is not None
        if not is_others or any(text for part in self.parts_in(row) for text in own_texts(part)):
            return row
        return self._struck(row)

    def _struck(self, value: Json, key: str = "") -> Json:
        if isinstance(value, str):
            return self._struck_text(value)
        if isinstance(value, Mapping):
            return {self._struck_text(str(name)): self._struck(inner, str(name)) for name, inner in value.items()}
        if isinstance(value, list):
            return [self._struck(inner, key) for inner in value]
        return GONE if key in PERSON_KEYS and id_of(value) in self.ids else value

    def _struck_text(self, text: str) -> str:
        """Strike ids out; a number only in what is no prose, as another could be meant."""
        is_prose = any(map(str.isspace, text))
        for found in reversed(list(self._names(text))):
            if not (is_prose and found[0].isdecimal()):
                text = f"{text[: found.start()]}{GONE}{text[found.end() :]}"
        return text

    def _names(self, text: str) -> Iterator[re.Match[str]]:
        """Yield where an id stands, in capitals or not, that is no part of another person's id or of a number."""
        own, others = ({*ids, *map(normal, ids)} for ids in (self.searchable_ids, self.other_ids))
        mine = {one.casefold() for one in own}
        folded = text.casefold()
        if not any(one in folded for one in mine):
            return
        # Longest first: another person's id that contains one of these is read whole. 7.5 and 1,250 are one number.
        names = sorted(own | others, key=len, reverse=True)
        pattern = rf"(?<![A-Za-z0-9])(?<!\d[.,])(?:{'|'.join(map(re.escape, names))})(?![A-Za-z0-9])(?![.,]\d)"
        for found in re.finditer(pattern, text, re.IGNORECASE):
            if found[0] not in others and found[0].casefold() in mine:
                yield found


def id_of(value: Json) -> str | None:
    """Return an id as text, or None for what is none; a table may hold numbers as 7.0."""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value) if isinstance(value, str | int) and not isinstance(value, bool) else None


def parts_of(value: Json) -> Iterator[Mapping[str, Json]]:
    """Yield every object in a value, itself first."""
    if isinstance(value, Mapping):
        yield value
    for inner in value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ():
        yield from parts_of(inner)


def find_ids(user: str, pseudonyms: Sequence[Pseudonyms], known: Iterable[str]) -> set[str]:
    """Return every id of a person who is given by any one of them: their own, or a pseudonym under a known key."""
    if not user.strip():
        raise UsageError("No user is named. Give the id as it stands in `user_id`.")
    ids = {user, *(names.name(user) for names in pseudonyms)}
    for one in known:
        made = {names.name(one) for names in pseudonyms}
        if made & ids:
            ids |= {one, *made}
    return ids


def derived_id(row: Mapping[str, Json]) -> str | None:
    """Return the id that a row without a user's id is given when it is read."""
    profile = row.get("profile")
    if not isinstance(profile, list):
        return None
    posts = [
        Post(id=str(post["id"]), text=post["text"])
        for post in profile
        if isinstance(post, Mapping) and "id" in post and isinstance(post.get("text"), str)
    ]
    return made_user_id(posts, row.get("id"))


def own_texts(
    row: Json, key: str = "", leave_out: Callable[[Mapping[str, Json]], bool] = lambda part: False
) -> Iterator[str]:
    """Yield what a person wrote in a row of theirs, but for the parts to leave out."""
    if isinstance(row, str):
        if key in OWN_FIELDS and row.strip():
            yield row
    elif isinstance(row, Mapping):
        if not leave_out(row):
            for name, value in row.items():
                yield from own_texts(value, str(name), leave_out)
    elif isinstance(row, list):
        for value in row:
            yield from own_texts(value, key, leave_out)


def words_of(text: str) -> list[str]:
    """Return the words of a text in lower case; JSON in JSON, HTML and plain text give the same words."""
    text = normal(text)
    if "\\" in text:
        text = _ESCAPED_CHARACTER.sub(lambda found: _character(found[1]), text)
        text = _ESCAPE.sub(" ", text)
    if "&" in text:
        text = html.unescape(text)
    if "<" in text:
        text = _TAG.sub(" ", text)
    return _WORD.findall(text.casefold())


def grams_of(text: str) -> Iterator[Gram]:
    """Yield every quote in a text; all of it, where it is shorter than a quote but longer than a phrase."""
    words = words_of(text)
    if SHORTEST <= len(words) < QUOTE:
        yield tuple(words)
    for start in range(len(words) - QUOTE + 1):
        yield tuple(words[start : start + QUOTE])


def _character(digits: str) -> str:
    code = int(digits, 16)
    return " " if 0xD800 <= code < 0xE000 else chr(code)
