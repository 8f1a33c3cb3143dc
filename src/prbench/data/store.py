"""The examples of one dataset: checked in one pass, kept on disk, fetched by position.

Rows wait in a temporary file, so that memory holds about 150 bytes per row, whatever the size of the rows. Records
that this package made itself need neither the check nor the file.
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
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Literal, Self, TypeAlias

from prbench.data.hub import judge_of
from prbench.data.importers import to_our_rows
from prbench.data.index import RowIndex
from prbench.data.rows import RawRow, as_row, from_checked_row, is_rated, refuse, shown, to_example, to_rated
from prbench.data.source import DatasetSource, is_named, kind_of_dataset, named_rows
from prbench.errors import DataError, UsageError
from prbench.registry import Kind as DatasetKind
from prbench.schema import Example, Json, RatedExample, User

Item: TypeAlias = Example | RatedExample
Kind: TypeAlias = Literal["pairs", "rated"]

_NAMED = 3  # bad rows that an error repeats
_RESPONSES = frozenset({"chosen", "rejected", "response", "rating", "response_A", "response_B"})
_KIND_NAMES = {"pairs": "a pair", "rated": "a rated response"}


def open_examples(
    source: str | Path | Iterable[Item | Mapping[str, Json]],
    subset: str | None = None,
    split: str | None = None,
    revision: str | None = None,
    limit: int | None = None,
    skip_bad_rows: int = 0,
) -> "ExampleStore":
    """Check a dataset and return its examples.

    `source` is a JSONL, JSON or Parquet file, a folder, a hub id, a name (`lab`, `python:module:Factory`), or an
    iterable of records or of plain rows.
    """
    if isinstance(source, str | Path | None):
        source = check_source_given(source)
    if isinstance(source, str) and is_named(source):
        return _open_named(source, subset, split, revision, limit, skip_bad_rows)
    if isinstance(source, str | Path):
        found = DatasetSource(path=str(source), subset=subset, split=split, revision=revision)
        store = ExampleStore(found.rows(), str(source), wanted=found.wanted, limit=limit, skip_bad_rows=skip_bad_rows)
        store.judge_of_card = judge_of(Path(source).expanduser())
        return store
    if revision is not None:
        raise UsageError("Examples from Python have no revision. Leave it out.")
    wanted = {name: value for name, value in (("category", subset), ("split", split)) if value is not None}
    return ExampleStore(_number(source), "examples", wanted=wanted, limit=limit, skip_bad_rows=skip_bad_rows)


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
        store: ExampleStore = MadeExamples(_records(rows, name), name, wanted=wanted, limit=limit)
    else:
        store = ExampleStore(_number(rows), name, wanted=wanted, limit=limit, skip_bad_rows=skip_bad_rows)
    store.judge = kind.judge
    return store


def _records(rows: Iterable[Item | Mapping[str, Json]], name: str) -> Iterator[Example]:
    """Yield records of ours; a kind of another package may promise them and make something else."""
    for number, row in enumerate(rows, 1):
        if not isinstance(row, Example):
            fact = f"is a {type(row).__name__}, and its kind says that it makes records"
            raise DataError(f"{name}:{number}: row: {fact}. Make prbench.schema.Example, or leave makes_records out.")
        yield row


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
        content.update(_canonical(_without_nulls(as_row(item))))
    return content.hexdigest()


class ExampleStore:
    """Checked examples, in the order of their source. `kind` says whether they are pairs or rated responses."""

    kind: Kind
    judge: str = ""  # the spec of the judge that knows the truth about these examples, where there is one
    judge_of_card: str = ""  # the same as their dataset card says, which anybody may have written
    bad_rows: list[str]

    @property
    def named_judge(self) -> str:
        """The judge that is named at all, for those who ask no more than which one it is."""
        return self.judge or self.judge_of_card

    def __init__(
        self,
        rows: Iterable[RawRow],
        name: str,
        *,
        wanted: Mapping[str, str] | None = None,
        limit: int | None = None,
        skip_bad_rows: int = 0,
    ) -> None:
        _check_limit(limit)
        if skip_bad_rows < 0:
            raise UsageError(f"The number of bad rows to skip is {skip_bad_rows}. Give 0 or more.")
        self.name = name
        self.bad_rows = []
        self._index = RowIndex()
        self._offsets = array("Q", [0])
        self._file = _unlinked_file()
        # Closes the file, and so frees its space, when the store is dropped or the process ends.
        self._close = weakref.finalize(self, os.close, self._file)
        try:
            self._read_all(rows, wanted or {}, limit, skip_bad_rows)
        except BaseException:
            self.close()
            raise

    def __len__(self) -> int:
        return len(self._index)

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
    def content_hash(self) -> str:
        """What names these rows: it covers those that were kept, in order, and nothing of the file around them.

        The same rows as JSONL, gzip or Parquet have the same hash. Keys with a null count as absent.
        """
        return self._content_hash

    @property
    def users(self) -> int:
        """How many different people the examples come from."""
        return self._index.users

    @property
    def categories(self) -> tuple[str, ...]:
        """The categories, in order of appearance."""
        return self._index.categories

    @property
    def bytes_in_memory(self) -> int:
        """What the store holds in memory for its rows."""
        return self._index.bytes_used + len(self._offsets) * self._offsets.itemsize

    def position(self, example_id: str) -> int:
        """Where the example with this id stands."""
        found = self._index.find(example_id)
        if found is None:
            raise KeyError(f"There is no example {example_id!r}.")
        return found

    def donor(self, position: int, seed: int) -> User | None:
        """Another user of the same category, for the swap probe; `None` if there is no other.

        It depends on the seed, the row's id and the users of its category, not on the order of the rows: when rows
        come or go, few others change their donor. A user with posts is preferred to one without.
        """
        found = self._index.donor(position, seed)
        return None if found is None else self[found].user

    def close(self) -> None:
        """Remove the temporary file."""
        self._close()

    def _read_all(
        self, rows: Iterable[RawRow], wanted: Mapping[str, str], limit: int | None, skip_bad_rows: int
    ) -> None:
        content = hashlib.sha256()
        seen: dict[str, Counter[str]] = {column: Counter() for column in wanted}
        with os.fdopen(self._file, "wb", closefd=False) as file:
            for where, row, canonical in self._sound_rows(rows, wanted, seen, skip_bad_rows):
                line = json.dumps([where, row], ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
                try:
                    file.write(line)
                    file.flush()
                except OSError as error:
                    raise _no_room(error) from error
                content.update(canonical)
                self._offsets.append(self._offsets[-1] + len(line))
                if len(self) == limit:
                    break
        if not len(self):
            raise DataError(_nothing_found(self.name, seen, len(self.bad_rows)))
        self._content_hash = content.hexdigest()

    def _sound_rows(
        self, rows: Iterable[RawRow], wanted: Mapping[str, str], seen: dict[str, Counter[str]], skip_bad_rows: int
    ) -> Iterator[tuple[str, dict[str, Json], bytes]]:
        """The rows that are wanted and pass the border, entered into the index; each with its bytes for the hash."""
        for raw in rows:
            try:
                ours = _to_our_rows(raw)
            except DataError as error:
                self._refuse(str(error), skip_bad_rows)
                continue
            for row in ours:
                if not _is_wanted(row, wanted, seen):
                    continue
                try:
                    item = self._check(row, raw.where)
                    checked = as_row(item)
                    canonical = _canonical(_without_nulls(checked))
                except DataError as error:
                    self._refuse(str(error), skip_bad_rows)
                    continue
                except RecursionError:
                    too_deep = refuse(raw.where, "meta", "is nested too deeply", "Flatten it, or drop it")
                    self._refuse(str(too_deep), skip_bad_rows)
                    continue
                self._index.add(item.id, item.user.id, item.category, bool(item.user.profile))
                yield raw.where, checked, canonical

    def _check(self, row: Mapping[str, Json], where: str) -> Item:
        kind: Kind = "rated" if is_rated(row) else "pairs"
        item: Item = to_rated(row, where) if kind == "rated" else to_example(row, where)
        if not len(self):
            self.kind = kind
        if kind != self.kind:
            fact = f"is {_KIND_NAMES[kind]}, but the rows before it are not"
            raise refuse(where, "row", fact, "Keep pairs and rated responses in separate files")
        earlier = self._index.find(item.id)
        if earlier is not None:
            place, known = self._fetch(earlier)
            if known["id"] == item.id:  # not just a clash of hashes
                raise refuse(where, "id", f"{shown(item.id)} was used before, at {place}", "Give every row its own id")
        return item

    def _refuse(self, message: str, skip_bad_rows: int) -> None:
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
        if not self._close.alive:
            raise ValueError("The store is closed.")
        start, end = self._offsets[position], self._offsets[position + 1]
        place, row = json.loads(_read_at(self._file, start, end - start))
        return place, row


class MadeExamples(ExampleStore):
    """Examples that this package made itself, such as the lab's: kept in memory as they are, without a second check.

    No more are taken from `examples` than `limit` asks for, so a generator makes no more.
    """

    def __init__(
        self,
        examples: Iterable[Example],
        name: str,
        *,
        wanted: Mapping[str, str] | None = None,
        limit: int | None = None,
    ) -> None:
        _check_limit(limit)
        self.name, self.kind, self.bad_rows = name, "pairs", []
        self._index = RowIndex()
        self._examples: list[Example] = []
        seen: dict[str, Counter[str]] = {column: Counter() for column in wanted or {}}
        for example in examples:
            if not _is_wanted({"category": example.category, "split": example.split}, wanted or {}, seen):
                continue
            self._index.add(example.id, example.user.id, example.category, bool(example.user.profile))
            self._examples.append(example)
            if len(self) == limit:
                break
        if not len(self):
            raise DataError(_nothing_found(name, seen))

    def __getitem__(self, position: int) -> Example:
        return self._examples[position]

    @cached_property
    def content_hash(self) -> str:
        """The hash of the same rows read from a file."""
        return content_hash(self._examples)

    @property
    def bytes_in_memory(self) -> int:
        """What the store holds in memory beside the examples."""
        return self._index.bytes_used

    def close(self) -> None:
        """Do nothing: there is no file."""


def _check_limit(limit: int | None) -> None:
    if limit is not None and limit < 1:
        raise UsageError(f"The limit is {limit}, but at least one row is needed. Leave it out to read all rows.")


def _nothing_found(name: str, seen: Mapping[str, Counter[str]], bad_rows: int = 0) -> str:
    for column, counts in seen.items():
        if counts:
            found = ", ".join(f"{value or '(none)'} ({count} rows)" for value, count in counts.most_common(8))
            return f"{name}: no row has the wanted {column}. It has: {found}."
    skipped = f" apart from {bad_rows} bad ones" if bad_rows else ""
    return f"{name}: there are no rows{skipped}. Check that this is the file you meant."


def _to_our_rows(raw: RawRow) -> list[dict[str, Json]]:
    if raw.problem:
        raise raw.refusal()
    if not isinstance(raw.value, Mapping):
        raise refuse(raw.where, "row", f"is {shown(raw.value)}, not an object with columns", "Correct or drop it")
    if raw.value.keys().isdisjoint(_RESPONSES):
        found = ", ".join(map(str, raw.value)) or "none"
        fact = f"has no response to judge (columns: {found[:200]})"
        raise refuse(
            raw.where, "row", fact, "Give chosen and rejected, or response and rating (docs/reference/data-format.md)"
        )
    return to_our_rows(raw.value, raw.where)


def _number(items: Iterable[Item | Mapping[str, Json]]) -> Iterator[RawRow]:
    for number, item in enumerate(items, 1):
        row = as_row(item) if isinstance(item, Example | RatedExample) else item
        yield RawRow(where=f"examples:{number}", value=row)


def _is_wanted(row: Mapping[str, Json], wanted: Mapping[str, str], seen: dict[str, Counter[str]]) -> bool:
    """Does the row belong to the subset and the split that were asked for? Counts those that do not."""
    for column, value in wanted.items():
        found = row.get(column) or ""
        if found != value:
            seen[column][str(found)] += 1
            return False
    return True


def _unlinked_file() -> int:
    """A file without a name: it is gone as soon as it is closed, or the process ends, however that happens."""
    try:
        file, path = tempfile.mkstemp(prefix="prbench-", suffix=".jsonl")
    except OSError as error:
        raise _no_room(error) from error
    os.unlink(path)
    return file


def _no_room(error: OSError) -> UsageError:
    what = "is full" if error.errno == errno.ENOSPC else f"cannot be used ({error.strerror})"
    return UsageError(f"The temporary folder {tempfile.gettempdir()} {what}. Set TMPDIR to a folder with more room.")


def _read_at(file: int, offset: int, length: int) -> bytes:
    parts = []
    while length:
        part = os.pread(file, length, offset)
        if not part:
            raise EOFError("The store's temporary file is shorter than it was written.")
        parts.append(part)
        offset, length = offset + len(part), length - len(part)
    return b"".join(parts)


def _canonical(row: Json) -> bytes:
    """The bytes for the hash of a row without nulls: sorted keys."""
    return json.dumps(row, ensure_ascii=False, separators=(",", ":"), sort_keys=True).encode() + b"\n"


def _without_nulls(value: Json) -> Json:
    """The value without keys that hold a null, which tables cannot tell from absent ones."""
    if isinstance(value, dict):
        return {key: _without_nulls(inner) for key, inner in value.items() if inner is not None}
    if isinstance(value, list):
        return [_without_nulls(inner) for inner in value]
    return value
