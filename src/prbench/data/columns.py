"""`--columns`: which columns of a file are meant, where no importer knows it.

    prompt=instruction,chosen=output_1,rejected=output_2
    question=ask,first=a,second=b,label=winner:A/B
    question=messages[0].content,response=reply,rating=stars,user_id="who, exactly"

On the left stands a column of ours, on the right one of theirs, with `.name` and `[number]` leading into objects and
lists, and quotes around a name that holds one of the signs. `label` says which of `first` and `second` is preferred:
by the value that names the first, a slash, and the value that names the second. All other columns stay as they are;
one that has the name of a column which another now stands for is kept as `their_NAME`.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from prbench.data.importers import IMPORTERS
from prbench.data.rows import RawRow, quoted
from prbench.errors import DataError, UsageError
from prbench.schema import Json
from prbench.specs import known_names

OURS = (
    *("id", "user_id", "question", "prompt", "profile", "chosen", "rejected", "response", "rating"),
    *("category", "split", "narrative", "rubric_aspects"),
)
LABELED = ("first", "second", "label")
_NAME = r'(?:"[^"]+"|[^\s",=:.\[\]][^",=:.\[\]]*)'
_PATH = re.compile(rf"({_NAME})((?:\.{_NAME}|\[\d+\])*)")
_STEP = re.compile(rf"\.({_NAME})|\[(\d+)\]")
_ENTRY = re.compile(rf'\s*(\w+)\s*=\s*({_PATH.pattern})\s*(?::\s*("[^"]*"|[^",/]*)/("[^"]*"|[^",/]*))?\s*(?:,|$)')
_WRITE = "Write ours=theirs,ours=theirs, e.g. prompt=instruction,chosen=output_1,rejected=output_2"


class _MissingError(Exception):
    """A row lacks something; it says what."""


class Path(NamedTuple):
    """A column, and the way into it."""

    text: str
    column: str
    steps: tuple[str | int, ...]

    def find(self, row: Mapping[str, Json]) -> Json:
        """What is there in a row; a column of the very name comes first."""
        if self.text in row:
            return row[self.text]
        if self.column not in row:
            raise _MissingError(f"has no column {self.column!r} (it has: {', '.join(row)[:200] or 'none'})")
        value = row[self.column]
        for step in self.steps:
            try:
                value = value[step]
            except (KeyError, IndexError, TypeError):
                raise _MissingError(f"has nothing at {self.text} ({step!r} leads nowhere)") from None
        return value


def _unquoted(text: str) -> str:
    return text[1:-1] if text.startswith('"') else text.strip()


def _read_path(text: str) -> Path:
    found = _PATH.fullmatch(text.strip())
    assert found is not None, text  # the entry matched it before
    steps = (int(number) if number else _unquoted(name) for name, number in _STEP.findall(found[2]))
    return Path(text=text.strip(), column=_unquoted(found[1]), steps=tuple(steps))


@dataclass(frozen=True, kw_only=True)
class ColumnMap:
    """Which of their columns stands for each of ours."""

    sources: Mapping[str, Path]
    first: str = ""  # the value of `label` that prefers the first
    second: str = ""

    @classmethod
    def read(cls, text: str) -> "ColumnMap":
        """Read `--columns`."""
        sources: dict[str, Path] = {}
        values: tuple[str, str] | None = None
        position = 0
        while position < len(text):
            entry = _ENTRY.match(text, position)
            if entry is None:
                raise UsageError(f"--columns {text}: cannot be read from {text[position:]!r} on. {_WRITE}.")
            name = entry[1]
            if name not in OURS + LABELED:
                raise UsageError(f"--columns {text}: {known_names('columns', name, OURS + LABELED)}")
            if name in sources:
                raise UsageError(f"--columns {text}: {name} is given twice. Give it once.")
            if (entry[5] is not None) != (name == "label"):
                form = "label=COLUMN:VALUE/VALUE, with the value that names the first, and that of the second"
                raise UsageError(f"--columns {text}: values belong to the label, and it needs them. Write {form}.")
            if entry[5] is not None:
                values = _unquoted(entry[5]), _unquoted(entry[6])
            sources[name] = _read_path(entry[2])
            position = entry.end()
        cls._check(text, sources, values)
        return cls(sources=sources, **dict(zip(("first", "second"), values or ("", ""), strict=True)))

    @staticmethod
    def _check(text: str, sources: Mapping[str, Path], values: tuple[str, str] | None) -> None:
        labeled = [name for name in LABELED if name in sources]
        if labeled and (len(labeled) < len(LABELED) or "chosen" in sources or "rejected" in sources):
            fact = "first, second and label belong together, in place of chosen and rejected"
            raise UsageError(f"--columns {text}: {fact}. Give all three, or chosen and rejected.")
        if values and (values[0] == values[1] or not all(values)):
            raise UsageError(f"--columns {text}: the two values of the label must differ. Write label=winner:A/B.")
        if "question" in sources and "prompt" in sources:
            raise UsageError(f"--columns {text}: question and prompt mean the same. Give one of them.")

    def apply(self, raw: RawRow) -> RawRow:
        """The row with our columns; one that lacks what is meant is a row with a problem."""
        if raw.problem or not isinstance(raw.value, Mapping):
            return raw
        try:
            return replace(raw, value=self._row(raw.value, raw.where))
        except _MissingError as error:
            return replace(raw, problem=f"{error}. Correct --columns, or drop the row")
        except DataError as error:
            return replace(raw, problem=str(error).removeprefix(f"{raw.where}: ").rstrip("."))

    def _row(self, theirs: Mapping[str, Json], where: str) -> dict[str, Json]:
        found = {name: path.find(theirs) for name, path in self.sources.items()}
        used = {path.text if path.text in theirs else path.column for path in self.sources.values()}
        row = {name: value for name, value in theirs.items() if name not in used}
        if "label" in found:
            first, second, label = (found.pop(name) for name in LABELED)
            found |= dict(zip(("chosen", "rejected"), self._in_order(first, second, label), strict=True))
            row[self.sources["label"].column] = theirs[self.sources["label"].column]  # kept, as a fact of the row
        row = {f"their_{name}" if name in found else name: value for name, value in row.items()} | found
        if isinstance(row.get("profile"), str | list):
            row["profile"] = _posts(row["profile"])
        if "response" in row and "chosen" not in row:
            return _rated(row)
        if "question" in row:
            row["prompt"] = row.pop("question")
        trl = next(importer for importer in IMPORTERS if importer.name == "trl")
        made: list[dict[str, Json]] = trl.to_rows(row, where)
        return made[0]

    def _in_order(self, first: Json, second: Json, label: Json) -> tuple[Json, Json]:
        said = str(label).lower() if isinstance(label, bool) else str(label)
        if said == self.first:
            return first, second
        if said == self.second:
            return second, first
        raise _MissingError(f"has the label {quoted(label)}, which is neither {self.first!r} nor {self.second!r}")


def _posts(profile: Json) -> Json:
    """Texts as posts, numbered in their order; posts as they are."""
    texts = [profile] if isinstance(profile, str) else profile
    if not all(isinstance(text, str) for text in texts):
        return profile
    return [{"id": str(number), "text": text} for number, text in enumerate(texts, 1)]


def _rated(row: dict[str, Json]) -> dict[str, Json]:
    from prbench.data.importing import content_id

    if "prompt" in row:
        row["question"] = row.pop("prompt")
    row.setdefault("profile", [])
    row.setdefault("id", content_id(row.get("user_id"), row.get("question"), row["response"]))
    return row
