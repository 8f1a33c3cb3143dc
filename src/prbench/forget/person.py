"""Who is to be forgotten: by which ids they go, which rows are theirs, and which words are theirs alone."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from prbench.data.rows import profile_hash
from prbench.errors import UsageError
from prbench.forget.words import SHORTEST, Gram, grams_of, words_of
from prbench.privacy import Pseudonyms
from prbench.schema import Json, Post

PERSON_KEYS = ("user_id", "user", "owner", "annotator")  # fields that name the person a row belongs to
ITEM_KEYS = ("id", "item")
# Fields with a person's own words; responses and reasons are a model's.
OWN_FIELDS = ("question", "narrative", "text", "held_out", "evidence", "about", "note")
GONE = "[forgotten]"
SHORTEST_ID = 4  # characters; a shorter id, or a number, stands in too many texts by chance


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

    @property
    def searchable_ids(self) -> list[str]:
        """The ids that can be looked for in any text."""
        return sorted(one for one in self.ids if len(one) >= SHORTEST_ID and not one.isdigit())

    @property
    def short_texts(self) -> int:
        """How many texts are too short to be told from anybody's."""
        return sum(len(words_of(text)) < SHORTEST for text in self.texts)

    def owns(self, row: Json) -> bool:
        """True if a row is this person's: by a person's id, by its profile, or by its item and question."""
        if not isinstance(row, Mapping):
            return False
        named = [str(row[key]) for key in PERSON_KEYS if isinstance(row.get(key), str | int)]
        if any(name in self.ids for name in named):
            return True
        if "user_id" in row and row["user_id"] is not None:
            return False
        if derived_ids(row) & self.ids:
            return True
        item = next((str(row[key]) for key in ITEM_KEYS if isinstance(row.get(key), str | int)), None)
        return item in self.items and str(row.get("question", "")) in self.questions

    def learn(self, row: Mapping[str, Json]) -> None:
        """Take note of what a row of this person tells."""
        for key in ITEM_KEYS:
            if isinstance(row.get(key), str | int):
                self.items.add(str(row[key]))
        if isinstance(row.get("question"), str):
            self.questions.add(row["question"])
        self.texts.update(own_texts(row))

    def settle(self) -> None:
        """Make the quotes to look for out of the texts."""
        self.grams = {gram for text in self.texts for gram in grams_of(text)}

    def spare(self, text: str) -> None:
        """Strike out the quotes that another person has written too."""
        for gram in list(self._quotes(text)):
            if gram in self.grams:
                self.grams.discard(gram)
                self.shared_grams += 1

    def quoted_in(self, text: str) -> str:
        """Return a quote of this person that a text holds, or ""."""
        return " ".join(next(self._quotes(text), ()))

    def _quotes(self, text: str) -> Iterator[Gram]:
        if not self.grams:
            return
        words, sizes = words_of(text), {len(gram) for gram in self.grams}
        for start in range(len(words)):
            for size in sizes:
                gram = tuple(words[start : start + size])
                if gram in self.grams:
                    yield gram

    def named_in(self, text: str) -> str:
        """Return an id of this person that a text holds as a word of its own, or ""."""
        return next((found[0] for found in self._names(text)), "")

    def without_names(self, text: str) -> str:
        """Return a text with this person's ids struck out."""
        for found in reversed(list(self._names(text))):
            text = f"{text[: found.start()]}{GONE}{text[found.end() :]}"
        return text

    def _names(self, text: str) -> Iterator[re.Match[str]]:
        """Yield where an id stands that is no part of another person's id."""
        if not any(one in text for one in self.searchable_ids):
            return
        names = sorted({*self.searchable_ids, *self.other_ids}, key=len, reverse=True)
        for found in re.finditer(rf"(?<![A-Za-z0-9])(?:{'|'.join(map(re.escape, names))})(?![A-Za-z0-9])", text):
            if found[0] in self.ids:
                yield found


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


def derived_ids(row: Mapping[str, Json]) -> set[str]:
    """Return the ids that rows without a user's id are given when they are read (data/rows.py)."""
    profile = row.get("profile")
    if not isinstance(profile, list):
        return set()
    posts = [
        Post(id=str(post["id"]), text=post["text"])
        for post in profile
        if isinstance(post, Mapping) and "id" in post and isinstance(post.get("text"), str)
    ]
    return {f"profile-{profile_hash(posts)}"} if posts else {f"row-{row.get('id')}"}


def own_texts(row: Json, key: str = "") -> Iterator[str]:
    """Yield what a person wrote in a row of theirs."""
    if isinstance(row, str):
        if key in OWN_FIELDS and row.strip():
            yield row
    elif isinstance(row, Mapping):
        for name, value in row.items():
            yield from own_texts(value, str(name))
    elif isinstance(row, list):
        for value in row:
            yield from own_texts(value, key)
