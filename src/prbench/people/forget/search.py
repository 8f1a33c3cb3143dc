"""The proof: every file is read, and searched for the person's ids and for quotes of their texts."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from prbench.people.forget.files import UNREADABLE, Kind, kind_of, rows_of, texts_of
from prbench.people.forget.person import Person, id_of, parts_of
from prbench.schema import Json


@dataclass(frozen=True, slots=True)
class Trace:
    """Something of the person that is still there."""

    path: str
    place: str
    what: str

    def as_json(self) -> dict[str, Json]:
        """Return the trace as `--json` prints it."""
        return {"path": self.path, "place": self.place, "what": self.what}


@dataclass(slots=True)
class Search:
    """What was read, and what was found."""

    files: Counter[str] = field(default_factory=Counter)  # by kind
    bytes: int = 0
    traces: list[Trace] = field(default_factory=list)
    unread: dict[str, str] = field(default_factory=dict)  # why a file could not be read to its end, by file

    def as_json(self) -> dict[str, Json]:
        """Return the search as `--json` prints it."""
        return {
            "files": dict(sorted(self.files.items())),
            "bytes": self.bytes,
            "unread": self.unread,
            "found": [trace.as_json() for trace in self.traces],
        }


def search(files: Iterable[Path], person: Person) -> Search:
    """Read all files; the first trace of each sort in each file is kept."""
    found = Search()
    for path in files:
        if not path.exists():  # a log of SQLite that went when its database was read
            continue
        try:
            kind = kind_of(path)
            found.files[kind.value] += 1
            found.bytes += path.stat().st_size
            found.traces.extend(_first_of_each_sort(_traces(path, kind, person)))
        except UNREADABLE as error:
            found.unread[str(path)] = in_words(error)
    return found


def in_words(error: BaseException) -> str:
    """Return in one line why something could not be read."""
    return " ".join(f"{error}".split()) or type(error).__name__


def _first_of_each_sort(traces: Iterable[Trace]) -> Iterator[Trace]:
    seen: set[str] = set()
    for trace in traces:
        sort = trace.what.partition(":")[0]
        if sort not in seen:
            seen.add(sort)
            yield trace


def _traces(path: Path, kind: Kind, person: Person) -> Iterator[Trace]:
    if person.named_in(path.name):
        yield Trace(str(path), "its name", f"id: {person.named_in(path.name)}")
    for number, row in enumerate(rows_of(path, kind), 1):
        if any(person.parts_in(row)):
            yield Trace(str(path), f"row {number}", "row: belongs to the person")
        for part in parts_of(row) if person.variants else ():
            if (other := id_of(part.get("user_id"))) in person.variants:
                yield Trace(str(path), f"row {number}", f"capitals: of {other}, which is the same id but for capitals")
    for place, text in texts_of(path, kind):
        if one := person.named_in(text):
            yield Trace(str(path), place, f"id: {one}")
        if quote := person.quoted_in(text):
            yield Trace(str(path), place, f"text: {quote}")
