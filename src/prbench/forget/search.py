"""The proof: every file is read, and searched for the person's ids and for quotes of their texts."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from prbench.forget.files import Kind, kind_of, rows_of, texts_of
from prbench.forget.person import Person
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

    def as_json(self) -> dict[str, Json]:
        """Return the search as `--json` prints it."""
        return {
            "files": dict(sorted(self.files.items())),
            "bytes": self.bytes,
            "found": [trace.as_json() for trace in self.traces],
        }


def search(files: Iterable[Path], person: Person) -> Search:
    """Read all files; the first trace of each sort in each file is kept."""
    found = Search()
    for path in files:
        if not path.exists():  # a log of SQLite that went when its database was read
            continue
        kind = kind_of(path)
        found.files[kind.value] += 1
        found.bytes += path.stat().st_size
        seen: set[str] = set()
        for trace in _traces(path, kind, person):
            if trace.what.partition(":")[0] not in seen:
                seen.add(trace.what.partition(":")[0])
                found.traces.append(trace)
    return found


def _traces(path: Path, kind: Kind, person: Person) -> Iterator[Trace]:
    if person.named_in(path.name):
        yield Trace(str(path), "its name", f"id: {person.named_in(path.name)}")
    for number, row in enumerate(rows_of(path, kind), 1):
        if person.owns(row):
            yield Trace(str(path), f"row {number}", "row: belongs to the person")
    for place, text in texts_of(path, kind):
        if one := person.named_in(text):
            yield Trace(str(path), place, f"id: {one}")
        if quote := person.quoted_in(text):
            yield Trace(str(path), place, f"text: {quote}")
