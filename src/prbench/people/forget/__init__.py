"""Forgetting a person: out of datasets, builds, caches, runs and annotation projects, with a search that proves it.

First all files are read, to learn by which ids the person goes and what they wrote. Then rows and replies are removed,
files with texts last, each file whole by rename: a forgetting that was killed is finished by running it again. Then
figures that came from the rows are made anew. At last every file is searched.
"""

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

from prbench.construction.privacy.pseudonyms import KEY_FILE, KEY_VARIABLE, Pseudonyms, is_pseudonym, known_pseudonyms
from prbench.errors import PrbenchError, RunError, UsageError
from prbench.people.forget import folders
from prbench.people.forget.files import (
    CHANGED,
    MARK,
    ROWS,
    UNREADABLE,
    FileKind,
    forget_in_database,
    kind_of,
    remove_rows,
    rows_of,
    texts_of,
)
from prbench.people.forget.person import Person, find_ids, id_of, own_texts, parts_of
from prbench.people.forget.readings import readings
from prbench.runs import ITEMS, MANIFEST, SUMMARY
from prbench.runs.files import BUILD, EVAL, lock_folder, remove_scratch
from prbench.schema import Json, Probe


@dataclass(frozen=True, slots=True)
class Trace:
    """Something of the person that is still there."""

    path: str
    place: str
    what: str


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
            "found": [asdict(trace) for trace in self.traces],
        }


@dataclass(slots=True)
class Forgotten:
    """What was removed, what was searched for, and what is left."""

    user: str
    person: Person
    is_dry_run: bool = False
    removed: dict[str, int] = field(default_factory=dict)  # rows or replies, by file
    mentions: dict[str, int] = field(default_factory=dict)  # rows of others that named the person, by file
    swapped: dict[str, list[str]] = field(default_factory=dict)  # items asked with the person's profile, by run
    unread: dict[str, str] = field(default_factory=dict)  # why a file could not be read or changed, by file
    notes: list[str] = field(default_factory=list)
    search: Search | None = None

    @property
    def is_known(self) -> bool:
        return bool(self.removed or self.mentions or self.swapped or self.person.texts)

    @property
    def is_searchable(self) -> bool:
        """True if there was anything to look for."""
        return bool(self.removed or self.person.searchable_ids or self.person.grams)

    @property
    def is_gone(self) -> bool:
        """True if all files were searched, for something, and it was not found."""
        return self.search is not None and not self.search.traces and not self.unread and self.is_searchable

    def as_json(self) -> dict[str, Json]:
        """Return the report as `--json` prints it."""
        person = self.person
        return {
            "user": self.user,
            "ids": sorted(person.ids),
            "dry_run": self.is_dry_run,
            "removed": self.removed,
            "mentions": self.mentions,
            "swapped": self.swapped,
            "unread": self.unread,
            "known": self.is_known,
            "looked_for": {
                "ids": person.searchable_ids,
                "texts": len(person.texts),
                "quotes": len(person.grams),
                "quotes_others_have_too": person.shared_grams,
                "texts_too_short": person.short_texts,
            },
            "search": self.search.as_json() if self.search else None,
            "gone": self.is_gone,
            "notes": self.notes,
        }


def forget(user: str, paths: Sequence[Path], *, texts: Sequence[Path] = (), dry_run: bool = False) -> Forgotten:
    """Remove a person from all files under `paths`, and search what is left.

        forgotten = forget("user-17", [Path("my_set"), Path("runs")], dry_run=True)

    `texts` are files elsewhere that hold what the person wrote. With `dry_run`, nothing is changed.
    """
    for path in (*paths, *texts):
        if not path.exists():
            raise UsageError(f"{path}: there is no such file or folder. Check the path.")
    homes = {path.parent for path in paths if path.is_file()}
    places = sorted(homes | {Path(parent) for path in paths for parent, _, _ in os.walk(path)})
    with ExitStack() as locks:
        if not dry_run:
            # Before anything is read: a writer that went on would lose rows, or bring some back.
            touched = [*places, *(path.parent for path in _files(paths))]  # a link may lead elsewhere
            for home in dict.fromkeys(filter(None, map(folders.lock_of, dict.fromkeys(touched)))):
                locks.enter_context(lock_folder(home, "folder"))
            for folder in places:  # what a forgetting left that was killed while it wrote a file
                remove_scratch(folder, (f"*{MARK}", "README.md", MANIFEST, SUMMARY))
        return _forget(user, paths, places, texts, dry_run=dry_run)


def _forget(
    user: str, paths: Sequence[Path], places: Sequence[Path], texts: Sequence[Path], *, dry_run: bool
) -> Forgotten:
    files = list(dict.fromkeys(_files(paths)))
    pseudonyms = known_pseudonyms(path for path in files if path.name == KEY_FILE)
    more = list(_files(texts))
    kinds, unread = _kinds([*files, *more])
    if not is_pseudonym(user):
        for folder in (place for place in places if folders.kind_of_folder(place) == BUILD):
            try:
                folders.check_key_known(folder, pseudonyms)
            except RunError as error:
                unread[str(folder)] = in_words(error)
    person = _meet(user, kinds, pseudonyms)
    report = Forgotten(user=user, person=person, is_dry_run=dry_run, unread=unread)
    inside = set(files)
    _remove({path: kind for path, kind in kinds.items() if path in inside}, places, report)
    if not dry_run:  # cards and manifests are made anew where rows went, now or in a forgetting that was killed
        for folder in places:
            with _noting(folder, report, _ODD):
                folders.refresh_card(folder)
        for folder in (place for place in places if folders.kind_of_folder(place) == BUILD):
            with _noting(folder, report, _ODD):
                is_touched = any(Path(path).parent == folder for path in report.removed)
                report.notes.extend(folders.refresh_build(folder, is_touched=is_touched))
    if report.is_known:
        report.notes.extend(note for folder in places if (note := folders.what_stays(folder)))
    if not dry_run:
        report.search = search(dict.fromkeys(_files(paths)), person)
        report.unread.update(report.search.unread)
    return report


def _kinds(files: Iterable[Path]) -> tuple[dict[Path, FileKind], dict[str, str]]:
    """Return what each file is, and why some could not be read to their end: these are left as they are."""
    kinds, unread = dict[Path, FileKind](), dict[str, str]()
    for path in files:
        if not path.exists():  # a log of SQLite comes and goes with its database
            continue
        try:
            kind = kind_of(path)
            for _ in rows_of(path, kind):
                pass
            kinds[path] = kind
            if folders.is_damaged(path):
                unread[str(path)] = "is not valid JSON"
        except UNREADABLE as error:
            unread[str(path)] = in_words(error)
    return kinds, unread


def _meet(user: str, kinds: Mapping[Path, FileKind], pseudonyms: Sequence[Pseudonyms]) -> Person:
    """Learn who the person is: first the ids, then the rows; what others wrote as well is left out of the search."""
    tables = [(path, kind) for path, kind in kinds.items() if kind in ROWS]
    rows = (row for path, kind in tables for row in rows_of(path, kind))
    known = {one for row in rows for part in parts_of(row) if (one := id_of(part.get("user_id"))) is not None}
    if not pseudonyms and not is_pseudonym(user) and any(map(is_pseudonym, known)):
        # "Nothing was found" would be no proof here.
        raise UsageError(
            f"People go by pseudonyms here. Set {KEY_VARIABLE}, or give the pseudonym instead of {user!r}."
        )
    person = Person(ids=find_ids(user, pseudonyms, known))
    folded = {mine.casefold() for mine in person.ids}
    person.other_ids = {one for one in known - person.ids if any(mine in one.casefold() for mine in folded)}
    if not person.ids & known:
        person.variants = {one for one in person.other_ids if one.casefold() in folded}
    for path, kind in tables:
        for row in rows_of(path, kind):
            for part in person.parts_in(row):
                person.learn(part)
    person.settle()
    for path, kind in tables:
        for row in rows_of(path, kind):
            for part in () if person.owns(row) else parts_of(row):
                if id_of(part.get("user_id")) is not None and not person.is_named_by(part):
                    for text in own_texts(part, leave_out=person.is_named_by):
                        person.spare(text)
    return person


def _remove(kinds: Mapping[Path, FileKind], places: Sequence[Path], report: Forgotten) -> None:
    """Remove rows and replies. Runs come before the data that tells who lent a profile, and figures follow at once."""
    for path, kind in kinds.items():
        if kind is FileKind.SQLITE:
            with _noting(path, report, UNREADABLE):
                if gone := forget_in_database(path, report.person, dry_run=report.is_dry_run):
                    report.removed[str(path)] = gone
    runs = [folder for folder in places if folders.kind_of_folder(folder) == EVAL and folder / ITEMS in kinds]
    for folder in runs:
        with _noting(folder, report, _ODD):
            lent = _lent(folder, report)
            _remove_rows(folder / ITEMS, FileKind.LINES, report, lent)
            if not report.is_dry_run:
                folders.refresh_run(folder, is_touched=bool(lent) or str(folder / ITEMS) in report.removed)
    for path, kind in kinds.items():
        if kind in CHANGED and not (path.name == ITEMS and path.parent in runs):
            with _noting(path, report, UNREADABLE):
                _remove_rows(path, kind, report)


_ODD = (*UNREADABLE, PrbenchError, KeyError, TypeError, ValueError)  # a folder that is not as we write them


@contextmanager
def _noting(path: Path, report: Forgotten, errors: tuple[type[Exception], ...]) -> Iterator[None]:
    """Go on after what cannot be read, and say so."""
    try:
        yield
    except errors as error:
        report.unread[str(path)] = in_words(error)


def _remove_rows(path: Path, kind: FileKind, report: Forgotten, lent: frozenset[str] = frozenset()) -> None:
    """Remove the person's rows from a file, and those of others that were asked with the person's profile."""

    def is_gone(row: Json) -> bool:
        is_row = isinstance(row, Mapping)
        used = is_row and bool(lent) and row.get("probe") == Probe.SWAP.value and row.get("id") in lent
        return used or report.person.owns(row)

    strike = report.person.without_names
    count = sum(map(is_gone, rows_of(path, kind)))
    # Others may mention the person, e.g. as the writer of a near-duplicate. Parquet is searched, and not changed.
    others = (row for row in rows_of(path, kind) if kind is not FileKind.PARQUET and not is_gone(row))
    mentions = sum(strike(row) != row for row in others)
    if count:
        report.removed[str(path)] = count
    if mentions:
        report.mentions[str(path)] = mentions
    if (count or mentions) and not report.is_dry_run:
        remove_rows(path, kind, is_gone, strike)


def _lent(folder: Path, report: Forgotten) -> frozenset[str]:
    """Return the items of a run that were asked with this person's profile, and list those that still have a row."""
    items = folders.swapped_in(folder, report.person)
    if items is None:
        report.notes.append(
            f"{folder}: its data is not what it was, so nobody can tell which swap rows used the person's profile."
        )
        return frozenset()
    left = {row["id"] for row in rows_of(folder / ITEMS, FileKind.LINES) if row.get("probe") == Probe.SWAP.value}
    if items & left:
        report.swapped[str(folder)] = sorted(items & left)
    return frozenset(items)


def _files(paths: Iterable[Path]) -> Iterator[Path]:
    """Yield every file under some paths, hidden ones too, in order; of a link to a file, the file."""
    for path in paths:
        if path.is_file():
            yield path.resolve() if path.is_symlink() else path
        for parent, names, entries in os.walk(path):
            names.sort()
            for one in (Path(parent) / name for name in sorted(entries)):
                if one.is_file():
                    yield one.resolve() if one.is_symlink() else one


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
            sorts: set[str] = set()
            for trace in _traces(path, kind, person):
                if (sort := trace.what.partition(":")[0]) not in sorts:
                    sorts.add(sort)
                    found.traces.append(trace)  # at once: a file may break off later
        except UNREADABLE as error:
            found.unread[str(path)] = in_words(error)
    return found


def in_words(error: BaseException) -> str:
    return " ".join(f"{error}".split()) or type(error).__name__


def _traces(path: Path, kind: FileKind, person: Person) -> Iterator[Trace]:
    if one := person.named_in(*readings(path.name)):
        yield Trace(str(path), "its name", f"id: {one}")
    for number, row in enumerate(rows_of(path, kind), 1):
        if any(person.parts_in(row)):
            yield Trace(str(path), f"row {number}", "row: belongs to the person")
        for part in parts_of(row) if person.variants else ():
            if (other := id_of(part.get("user_id"))) in person.variants:
                yield Trace(str(path), f"row {number}", f"capitals: of {other}, which is the same id but for capitals")
    for place, text in texts_of(path, kind):
        forms = list(readings(text))
        if one := person.named_in(*forms):
            yield Trace(str(path), place, f"id: {one}")
        if quote := person.quoted_in(*forms):
            yield Trace(str(path), place, f"text: {quote}")
