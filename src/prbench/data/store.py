"""The examples of one dataset: checked in one pass, kept on disk, fetched by position.

Records that this package made itself need neither the check nor the file. Which importer reads a row is told by its
columns, so that `--data FILE` just works.
"""

import errno
import hashlib
import json
import os
import tempfile
import weakref
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from itertools import chain
from pathlib import Path
from types import TracebackType
from typing import Literal, NamedTuple, Self, TypeAlias

import numpy as np
import numpy.typing as npt

from prbench.data.columns import ColumnMap
from prbench.data.hub import judge_of
from prbench.data.importers import find_importer
from prbench.data.rows import (
    RawRow,
    as_row,
    from_checked_row,
    hash64,
    is_rated,
    quoted,
    row_error,
    to_example,
    to_rated,
)
from prbench.data.source import DatasetSource, is_named, kind_of_dataset, named_rows
from prbench.errors import DataError, UsageError
from prbench.registry import Kind as DatasetKind
from prbench.schema import Example, Json, RatedExample, User

Item: TypeAlias = Example | RatedExample
Kind: TypeAlias = Literal["pairs", "rated"]

_NAMED = 3  # bad rows that an error repeats
_RESPONSES = frozenset({"chosen", "rejected", "response", "rating"})
_KIND_NAMES = {"pairs": "a pair", "rated": "a rated response"}
_POINTS_PER_USER = 8  # on the ring of donors: more of them share the rows out more evenly
_MANY_ALIKE = 64  # places with the same posts in a row: beyond, users with others get a ring of their own


def open_examples(
    source: str | Path | Iterable[Item | Mapping[str, Json]],
    subset: str | None = None,
    split: str | None = None,
    revision: str | None = None,
    limit: int | None = None,
    skip_bad_rows: int = 0,
    columns: str = "",
) -> "ExampleStore":
    """Check a dataset and return its examples.

    `source` is a JSONL, JSON, Parquet or CSV file, a folder or archive of such files, a hub id, a name (`lab`,
    `python:module:Factory`), or an iterable of records or of plain rows. `columns` says which columns are meant.
    """
    if isinstance(source, str | Path | None):
        source = check_source_given(source)
    if isinstance(source, str) and is_named(source):
        if columns:
            raise UsageError(f"--columns is for files, and {source} has our columns. Leave it out.")
        return _open_named(source, subset, split, revision, limit, skip_bad_rows)
    if isinstance(source, str | Path):
        found = DatasetSource(path=str(source), subset=subset, split=split, revision=revision, columns=columns)
        store = ExampleStore(found.rows(), str(source), wanted=found.wanted, limit=limit, skip_bad_rows=skip_bad_rows)
        store.judge_of_card = judge_of(Path(source).expanduser())
        return store
    if revision is not None:
        raise UsageError("Examples from Python have no revision. Leave it out.")
    wanted = {name: value for name, value in (("category", subset), ("split", split)) if value is not None}
    rows = map(ColumnMap.read(columns).apply, _number(source)) if columns else _number(source)
    return ExampleStore(rows, "examples", wanted=wanted, limit=limit, skip_bad_rows=skip_bad_rows)


def check_source_given(source: str | Path | None) -> str | Path:
    """Return the name of a dataset; an empty one would read whatever lies in the current folder."""
    if source is None or not str(source).strip():
        raise UsageError("The name of the data is empty. Give a file, a folder, a hub id or `lab`.")
    return source


def _open_named(
    name: str, subset: str | None, split: str | None, revision: str | None, limit: int | None, skip_bad_rows: int
) -> "ExampleStore":
    """Open a dataset of the registry; its loader takes the split, and makes no more rows than are asked for."""
    if revision is not None:
        raise UsageError(f"{name}: has no revision. Leave it out.")
    kind, rows = named_rows(name, split)
    wanted = _wanted_of(kind, subset, split)
    if kind.makes_records:
        store: ExampleStore = MadeExamples(rows, name, wanted=wanted, limit=limit)
    else:
        store = ExampleStore(_number(rows), name, wanted=wanted, limit=limit, skip_bad_rows=skip_bad_rows)
    store.judge = kind.judge
    return store


def _wanted_of(kind: DatasetKind, subset: str | None, split: str | None) -> dict[str, str]:
    """Return what the columns of a named dataset's rows must be; its own splits are already chosen."""
    asked = {"category": subset, "split": None if kind.splits else split}
    return {column: value for column, value in asked.items() if value is not None}


def raw_rows(source: str, subset: str | None, split: str | None) -> tuple[Iterator[RawRow], Mapping[str, str]]:
    """Return the rows of a source as they come, unchecked, and what their `category` and `split` must be."""
    check_source_given(source)
    if is_named(source):
        kind, rows = named_rows(source, split)
        return _number(rows), _wanted_of(kind, subset, split)
    found = DatasetSource(path=source, subset=subset, split=split)
    return found.rows(), found.wanted


def split_names(source: str | Path, subset: str | None = None, revision: str | None = None) -> tuple[str, ...]:
    """Return the splits that files or configs are named after; none where the rows' own `split` decides."""
    check_source_given(source)
    kind = kind_of_dataset(source) if isinstance(source, str) else None
    if kind is not None:
        return kind.split_names()
    return DatasetSource(path=str(source), subset=subset, revision=revision).splits()


def content_hash(items: Iterable[Item]) -> str:
    """Return the hash of rows in order, the same as that of a store which holds them."""
    content = hashlib.sha256()
    for item in items:
        content.update(_canonical(as_row(item)))
    return content.hexdigest()


class ExampleStore:
    """Checked examples, in the order of their source. `kind` says whether they are pairs or rated responses.

    Rows wait in a temporary file. Memory holds the id of each, references to its user and category, and where its line
    begins: some 250 bytes, whatever the size of the row.
    """

    kind: Kind
    judge: str = ""  # the spec of the judge that knows the truth about these examples, where there is one
    judge_of_card: str = ""  # the same as their dataset card says, which anybody may have written

    def __init__(
        self,
        rows: Iterable[RawRow],
        name: str,
        *,
        wanted: Mapping[str, str] | None = None,
        limit: int | None = None,
        skip_bad_rows: int = 0,
    ) -> None:
        if skip_bad_rows < 0:
            raise UsageError(f"The number of bad rows to skip is {skip_bad_rows}. Give 0 or more.")
        self._begin(name, wanted, limit)
        with _needs_room():
            # Without a name, it is gone as soon as it is closed or the process ends, however that happens.
            self._file = tempfile.TemporaryFile(prefix="prbench-")  # noqa: SIM115
        # Closes the file, and so frees its space, when the store is dropped.
        self._close = weakref.finalize(self, self._file.close)
        self._offsets = array("Q", [0])
        try:
            self._read_all(rows, skip_bad_rows, limit)
        except BaseException:
            self.close()
            raise

    def _read_all(self, rows: Iterable[RawRow], skip_bad_rows: int, limit: int | None) -> None:
        content = hashlib.sha256()
        for where, item, row, canonical in self._sound_rows(rows, skip_bad_rows):
            line = json.dumps([where, row], ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
            with _needs_room():
                self._file.write(line)
                self._file.flush()
            self._add(item)
            self._offsets.append(self._offsets[-1] + len(line))
            content.update(canonical)
            if len(self) == limit:
                break
        self._check_found()
        self._content_hash = content.hexdigest()

    def _begin(self, name: str, wanted: Mapping[str, str] | None, limit: int | None) -> None:
        if limit is not None and limit < 1:
            raise UsageError(f"The limit is {limit}, but at least one row is needed. Leave it out to read all rows.")
        self.name = name
        self.bad_rows: list[str] = []
        self._wanted = wanted or {}
        self._unwanted: dict[str, Counter[str]] = {column: Counter() for column in self._wanted}
        self._ids: list[str] = []
        self._positions: dict[str, int] = {}  # by id
        self._users: list[str] = []  # of each row, as are the next two
        self._categories: list[str] = []
        self._has_posts = bytearray()
        self._posts = array("Q")  # of each row, a hash of its user's posts: whom a model could not tell apart
        self._same: dict[str, str] = {}  # one text for all rows of a user or a category
        self._rows_of: dict[str, array[int]] = {}  # by category, in order of appearance
        self._rings: dict[tuple[str, bool, int | None], _Ring] = {}

    def _add(self, item: Item) -> None:
        self._rows_of.setdefault(item.category, array("Q")).append(len(self))
        self._positions.setdefault(item.id, len(self))
        self._ids.append(item.id)
        self._users.append(self._same.setdefault(item.user.id, item.user.id))
        self._categories.append(self._same.setdefault(item.category, item.category))
        self._has_posts.append(bool(item.user.profile))
        self._posts.append(hash64("\x1f".join(item.user.texts)))

    def _is_wanted(self, category: Json, split: Json) -> bool:
        """Does a row belong to the subset and the split that were asked for? Counts those that do not."""
        found = {"category": category, "split": split}
        for column, value in self._wanted.items():
            if found[column] != value:
                self._unwanted[column][str(found[column])] += 1
                return False
        return True

    def _check_found(self) -> None:
        if len(self):
            return
        for column, counts in self._unwanted.items():
            if counts:
                found = ", ".join(f"{value or '(none)'} ({count} rows)" for value, count in counts.most_common(8))
                raise DataError(f"{self.name}: no row has the wanted {column}. It has: {found}.")
        skipped = f" apart from {len(self.bad_rows)} bad ones" if self.bad_rows else ""
        raise DataError(f"{self.name}: there are no rows{skipped}. Check that this is the file you meant.")

    def __len__(self) -> int:
        return len(self._ids)

    def __getitem__(self, position: int) -> Item:
        if not -len(self) <= position < len(self):
            raise IndexError(f"There are {len(self)} examples, so there is none at position {position}.")
        return from_checked_row(self._fetch(position % len(self))[1])

    def __iter__(self) -> Iterator[Item]:
        return (self[position] for position in range(len(self)))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    @property
    def named_judge(self) -> str:
        """The judge that is named at all, for those who ask no more than which one it is."""
        return self.judge or self.judge_of_card

    @property
    def content_hash(self) -> str:
        """What names these rows: it covers those that were kept, in order, and nothing of the file around them.

        The same rows as JSONL, gzip or Parquet have the same hash. Keys with a null count as absent.
        """
        return self._content_hash

    @property
    def users(self) -> int:
        """How many different people the examples come from."""
        return len(set(self._users))

    @property
    def categories(self) -> tuple[str, ...]:
        """The categories, in order of appearance."""
        return tuple(self._rows_of)

    def position(self, example_id: str) -> int:
        """Where the example with this id stands."""
        if example_id not in self._positions:
            raise KeyError(f"There is no example {example_id!r}.")
        return self._positions[example_id]

    def has(self, example_id: str) -> bool:
        """Is there an example with this id?"""
        return example_id in self._positions

    def posts_hash(self, position: int) -> int:
        """What the posts of a row's user come to: equal for users whom their posts do not tell apart."""
        return self._posts[position]

    def donor(self, position: int, seed: int) -> User | None:
        """Another user of the same category, for the swap probe; `None` if there is no other.

        The row's hashed id is a point on a ring of hashed users, and the next user there is the donor. It depends on
        the seed, the id and the users of the category, not on the order of the rows: when rows come or go, few others
        change their donor. Users with other posts than this row's are preferred, of these the ones with any.
        """
        point = np.uint64(hash64(f"{seed}:{hash64(self._ids[position])}"))
        user, posts = hash64(self._users[position]), self._posts[position]
        for other_than in (posts, None):
            for with_posts in (True, False):
                row = self._next_on_ring(self._categories[position], with_posts, point, user, other_than)
                if row is not None:
                    return self[row].user
        return None

    def _next_on_ring(
        self, category: str, with_posts: bool, point: np.uint64, user: int, other_than: int | None
    ) -> int | None:
        """Return the row of the next other user on a ring, `other_than` those with posts of this hash."""
        key = (category, with_posts, None)
        if key not in self._rings:
            rows = [row for row in self._rows_of[category] if self._has_posts[row] or not with_posts]
            self._rings[key] = _ring(rows, [self._users[row] for row in rows], [self._ids[row] for row in rows])
        ring = self._rings.get((category, with_posts, other_than), self._rings[key])
        start = int(np.searchsorted(ring.points, point))
        for step, place in enumerate(chain(range(start, len(ring.points)), range(start))):
            row = int(ring.rows[place])
            if int(ring.users[place]) != user and self._posts[row] != other_than:
                return row
            if step == _MANY_ALIKE and (category, with_posts, other_than) not in self._rings:
                others = np.array([self._posts[row] != other_than for row in ring.rows.tolist()], dtype=np.bool_)
                self._rings[category, with_posts, other_than] = _Ring(
                    points=ring.points[others], users=ring.users[others], rows=ring.rows[others]
                )
                return self._next_on_ring(category, with_posts, point, user, other_than)
        return None

    def close(self) -> None:
        """Remove the temporary file."""
        self._close()

    def _sound_rows(
        self, rows: Iterable[RawRow], skip_bad_rows: int
    ) -> Iterator[tuple[str, Item, dict[str, Json], bytes]]:
        """The rows that are wanted and pass the border: place, record, row, and its bytes for the hash."""
        for raw in rows:
            try:
                ours = _to_our_rows(raw)
            except DataError as error:
                self._note_bad_row(str(error), skip_bad_rows)
                continue
            for row in ours:
                if not self._is_wanted(row.get("category") or "", row.get("split") or ""):
                    continue
                try:
                    item = self._check(row, raw.where)
                    checked = as_row(item)
                    canonical = _canonical(checked)
                except DataError as error:
                    self._note_bad_row(str(error), skip_bad_rows)
                except RecursionError:
                    too_deep = row_error(raw.where, "meta", "is nested too deeply", "Flatten it, or drop it")
                    self._note_bad_row(str(too_deep), skip_bad_rows)
                else:
                    yield raw.where, item, checked, canonical

    def _check(self, row: Mapping[str, Json], where: str) -> Item:
        kind: Kind = "rated" if is_rated(row) else "pairs"
        item: Item = to_rated(row, where) if kind == "rated" else to_example(row, where)
        if not len(self):
            self.kind = kind
        if kind != self.kind:
            fact = f"is {_KIND_NAMES[kind]}, but the rows before it are not"
            raise row_error(where, "row", fact, "Keep pairs and rated responses in separate files")
        if item.id in self._positions:
            place, _ = self._fetch(self._positions[item.id])
            raise row_error(where, "id", f"{quoted(item.id)} was used before, at {place}", "Give every row its own id")
        return item

    def _note_bad_row(self, message: str, skip_bad_rows: int) -> None:
        self.bad_rows.append(message)
        if len(self.bad_rows) <= skip_bad_rows:
            return
        if not skip_bad_rows:
            raise DataError(message)
        first = " | ".join(self.bad_rows[:_NAMED])
        raise DataError(
            f"{self.name}: more than {skip_bad_rows} bad rows. The first: {first} | "
            "Repair them, or allow more with --skip-bad-rows."
        )

    def _fetch(self, position: int) -> tuple[str, dict[str, Json]]:
        """The place and the row at a position. Reads at an offset, so threads do not disturb each other."""
        if self._file.closed:
            raise ValueError("The store is closed.")
        start, end = self._offsets[position], self._offsets[position + 1]
        place, row = json.loads(os.pread(self._file.fileno(), end - start, start))
        return place, row


class MadeExamples(ExampleStore):
    """Examples that this package made itself, such as the lab's: kept in memory as they are, without a second check.

    No more are taken from `examples` than `limit` asks for, so a generator makes no more.
    """

    def __init__(
        self,
        examples: Iterable[Item | Mapping[str, Json]],
        name: str,
        *,
        wanted: Mapping[str, str] | None = None,
        limit: int | None = None,
    ) -> None:
        self._begin(name, wanted, limit)
        self.kind = "pairs"
        self._examples: list[Example] = []
        for number, example in enumerate(examples, 1):
            if not isinstance(example, Example):  # a kind of another package may promise records, and make others
                fact = f"is a {type(example).__name__}, and its kind says that it makes records"
                raise DataError(
                    f"{name}:{number}: row: {fact}. Make prbench.schema.Example, or leave makes_records out."
                )
            if not self._is_wanted(example.category, example.split):
                continue
            self._add(example)
            self._examples.append(example)
            if len(self) == limit:
                break
        self._check_found()

    def __getitem__(self, position: int) -> Example:
        return self._examples[position]

    @cached_property
    def content_hash(self) -> str:
        """The hash of the same rows read from a file."""
        return content_hash(self._examples)

    def close(self) -> None:
        """Do nothing: there is no file."""


class _Ring(NamedTuple):
    """The users of one category, each at several places of a circle, sorted by place."""

    points: npt.NDArray[np.uint64]
    users: npt.NDArray[np.uint64]
    rows: npt.NDArray[np.int64]  # for each point, a row that holds the user's profile


def _ring(rows: list[int], users: list[str], ids: list[str]) -> _Ring:
    hashed = np.array([hash64(user) for user in users], dtype=np.uint64)
    # Of a user's rows, the one with the smallest hash lends the profile: rows that come or go rarely change that.
    order = np.lexsort((np.array([hash64(each) for each in ids], dtype=np.uint64), hashed))
    unique, first = np.unique(hashed[order], return_index=True)
    lenders = np.array(rows, dtype=np.int64)[order][first]
    points = []
    for number in range(1, _POINTS_PER_USER + 1):  # splitmix64 (Steele et al. 2014) puts a user's points far apart
        mixed = unique + np.uint64(0x9E3779B97F4A7C15 * number % 2**64)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        points.append(mixed ^ (mixed >> np.uint64(31)))
    all_points = np.concatenate(points)
    around = np.argsort(all_points, kind="stable")
    return _Ring(
        all_points[around], np.tile(unique, _POINTS_PER_USER)[around], np.tile(lenders, _POINTS_PER_USER)[around]
    )


def _to_our_rows(raw: RawRow) -> list[dict[str, Json]]:
    """The row itself, if it has our columns, or what its importer makes of it."""
    if raw.problem:
        raise raw.refusal()
    if not isinstance(raw.value, Mapping):
        raise row_error(raw.where, "row", f"is {quoted(raw.value)}, not an object with columns", "Correct or drop it")
    importer = find_importer(raw.value, raw.where)
    if importer is not None:
        return importer.rows(raw)
    if raw.value.keys().isdisjoint(_RESPONSES):
        found = ", ".join(map(str, raw.value)) or "none"
        fact = f"has no response to judge (columns: {found[:200]})"
        remedy = "Give chosen and rejected, or response and rating (docs/reference/data-format.md), or --columns"
        raise row_error(raw.where, "row", fact, remedy)
    return [dict(raw.value)]


def _number(items: Iterable[Item | Mapping[str, Json]]) -> Iterator[RawRow]:
    for number, item in enumerate(items, 1):
        row = as_row(item) if isinstance(item, Example | RatedExample) else item
        yield RawRow(where=f"examples:{number}", value=row)


@contextmanager
def _needs_room() -> Iterator[None]:
    """Say what is wrong with the temporary folder, where something is."""
    try:
        yield
    except OSError as error:
        what = "is full" if error.errno == errno.ENOSPC else f"cannot be used ({error.strerror})"
        folder = tempfile.gettempdir()
        raise UsageError(f"The temporary folder {folder} {what}. Set TMPDIR to a folder with more room.") from error


_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), sort_keys=True).encode


def _canonical(row: Json) -> bytes:
    """The bytes of a row for the hash: sorted keys, no nulls, which tables cannot tell from absent keys."""
    return _encode(_without_nulls(row)).encode() + b"\n"


def _without_nulls(value: Json) -> Json:
    if isinstance(value, dict):
        return {
            key: _without_nulls(inner) if isinstance(inner, dict | list) else inner
            for key, inner in value.items()
            if inner is not None
        }
    return [_without_nulls(inner) for inner in value] if isinstance(value, list) else value
