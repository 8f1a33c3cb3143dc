"""Forgetting a person: out of datasets, builds, caches, runs and annotation projects, with a search that proves it.

First all files are read, to learn by which ids the person goes and what they wrote. Then rows and replies are removed,
files with texts last, each file whole by rename: a forgetting that was killed is finished by running it again. Then
figures that came from the rows are made anew. At last every file is searched.
"""

import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from prbench.errors import UsageError
from prbench.folders import take_lock
from prbench.forget import folders
from prbench.forget.databases import forget_in_database
from prbench.forget.files import SCRATCH, Kind, kind_of, remove_rows, rows_of
from prbench.forget.person import Person, find_ids, own_texts
from prbench.forget.search import Search, search
from prbench.privacy import KEY_FILE, KEY_VARIABLE, Pseudonyms, is_pseudonym, known_pseudonyms
from prbench.runs import ITEMS
from prbench.schema import Json, Probe

ROWS = (Kind.LINES, Kind.ARRAY, Kind.PARQUET)


@dataclass(slots=True)
class Forgotten:
    """What was removed, what was searched for, and what is left."""

    user: str
    person: Person
    is_dry_run: bool = False
    removed: dict[str, int] = field(default_factory=dict)  # rows or replies, by file
    mentions: dict[str, int] = field(default_factory=dict)  # rows of others that named the person, by file
    swapped: dict[str, list[str]] = field(default_factory=dict)  # items asked with the person's profile, by run
    notes: list[str] = field(default_factory=list)
    search: Search | None = None

    @property
    def is_gone(self) -> bool:
        """True if the search found nothing."""
        return self.search is not None and not self.search.traces

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
    """Remove a person from all files under `paths`. `texts` are files elsewhere that hold what the person wrote."""
    for path in (*paths, *texts):
        if not path.exists():
            raise UsageError(f"{path}: there is no such file or folder. Check the path.")
    if not dry_run:
        _remove_unfinished(paths)
    files = list(dict.fromkeys(_files(paths)))
    places = _folders(paths)
    pseudonyms = known_pseudonyms(path for path in files if path.name == KEY_FILE)
    if not is_pseudonym(user):
        for folder in filter(folders.is_build, places):
            folders.refuse_unknown_key(folder, pseudonyms)
    person = _meet(user, files, list(_files(texts)), pseudonyms)
    report = Forgotten(user=user, person=person, is_dry_run=dry_run)
    with ExitStack() as locks:
        for folder in places:
            if not dry_run and (folders.is_run(folder) or folders.is_build(folder)):
                locks.enter_context(take_lock(folder, "folder"))
        _remove(files, places, report)
        if not dry_run:
            _refresh(places, report)
    if not dry_run:
        report.search = search(dict.fromkeys(_files(paths)), person)
    return report


def _meet(user: str, files: Sequence[Path], more: Sequence[Path], pseudonyms: Sequence[Pseudonyms]) -> Person:
    """Learn who the person is: first the ids, then the rows, then what nobody else wrote."""
    tables = [(path, kind) for path in (*files, *more) if path.exists() and (kind := kind_of(path)) in ROWS]
    known = {str(row["user_id"]) for path, kind in tables for row in rows_of(path, kind) if _has_user(row)}
    if not pseudonyms and not is_pseudonym(user) and any(map(is_pseudonym, known)):
        # "Nothing was found" would be no proof here.
        raise UsageError(
            f"People go by pseudonyms here. Set {KEY_VARIABLE}, or give the pseudonym instead of {user!r}."
        )
    person = Person(ids=find_ids(user, pseudonyms, known))
    person.other_ids = {one for one in known - person.ids if any(mine in one for mine in person.ids)}
    for path, kind in tables:
        for row in rows_of(path, kind):
            if person.owns(row):
                person.learn(row)
    person.settle()
    for path, kind in tables:
        for row in rows_of(path, kind):
            if _has_user(row) and not person.owns(row):
                for text in own_texts(row):
                    person.spare(text)
    return person


def _remove(files: Sequence[Path], places: Sequence[Path], report: Forgotten) -> None:
    """Remove rows and replies. Runs come before the data that tells who lent a profile, and figures follow at once."""
    # A log of SQLite comes and goes with the database; the search looks into those that stay.
    kinds = {path: kind_of(path) for path in files if path.exists()}
    for path, kind in kinds.items():
        if kind is Kind.SQLITE:
            gone = forget_in_database(path, report.person, dry_run=report.is_dry_run)
            _note_removed(report, path, gone or 0)
    runs = [folder for folder in places if folders.is_run(folder)]
    for folder in runs:
        lent = _lent(folder, report)
        _remove_rows(folder / ITEMS, Kind.LINES, report, lent)
        if not report.is_dry_run:
            folders.refresh_run(folder, is_touched=bool(lent) or str(folder / ITEMS) in report.removed)
    for path, kind in kinds.items():
        if kind in ROWS and path.parent not in runs:
            _remove_rows(path, kind, report)


def _remove_rows(path: Path, kind: Kind, report: Forgotten, lent: frozenset[str] = frozenset()) -> None:
    """Remove the person's rows from a file, and those of others that were asked with the person's profile."""

    def is_gone(row: Json) -> bool:
        used = bool(lent) and row.get("probe") == Probe.SWAP.value and row.get("id") in lent
        return used or report.person.owns(row)

    count = sum(map(is_gone, rows_of(path, kind)))
    mentions = sum(bool(report.person.named_in(line)) for line in _other_lines(path, kind, is_gone))
    _note_removed(report, path, count)
    if mentions:
        report.mentions[str(path)] = mentions
    if (count or mentions) and not report.is_dry_run:
        remove_rows(path, kind, is_gone, report.person.without_names)


def _other_lines(path: Path, kind: Kind, is_gone: Callable[[Json], bool]) -> Iterator[str]:
    """Yield other people's rows as text: they may mention the person, e.g. as the writer of a near-duplicate."""
    if kind in (Kind.LINES, Kind.ARRAY):
        yield from (json.dumps(row, ensure_ascii=False) for row in rows_of(path, kind) if not is_gone(row))


def _lent(folder: Path, report: Forgotten) -> frozenset[str]:
    """Return the items of a run that were asked with this person's profile, and list those that still have a row."""
    items = folders.swapped_in(folder, report.person)
    if items is None:
        report.notes.append(
            f"{folder}: its data is not what it was, so nobody can tell which swap rows used the person's profile."
        )
        return frozenset()
    left = {row["id"] for row in rows_of(folder / ITEMS, Kind.LINES) if row.get("probe") == Probe.SWAP.value}
    if items & left:
        report.swapped[str(folder)] = sorted(items & left)
    return frozenset(items)


def _refresh(places: Sequence[Path], report: Forgotten) -> None:
    """Make cards and manifests anew where rows went, now or in a forgetting that was killed."""
    for folder in places:
        if folders.is_dataset(folder):
            folders.refresh_card(folder)
    for folder in places:
        if folders.is_build(folder):
            is_touched = any(Path(path).parent == folder for path in report.removed)
            report.notes.extend(folders.refresh_build(folder, is_touched=is_touched))


def _note_removed(report: Forgotten, path: Path, count: int) -> None:
    if count:
        report.removed[str(path)] = count


def _has_user(row: Json) -> bool:
    return isinstance(row, dict) and isinstance(row.get("user_id"), str | int)


def _folders(paths: Iterable[Path]) -> list[Path]:
    """Return every folder under some paths; of a file, the one that it is in."""
    found = {path.parent for path in paths if path.is_file()}
    return sorted(found | {Path(parent) for path in paths for parent, _, _ in os.walk(path)})


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


def _remove_unfinished(paths: Iterable[Path]) -> None:
    """Remove what a forgetting left that was killed while it wrote a file."""
    for path in _files(paths):
        if path.name.startswith(SCRATCH):
            path.unlink()
