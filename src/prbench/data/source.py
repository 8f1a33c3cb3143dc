"""Raw rows with their place: of a named dataset, from a file, or from a folder or an archive of files.

What a file is comes from its first bytes, not from its name; only CSV, which nothing tells, is known by its name. A
row that cannot be read is a row with a `problem`; only damage after which nothing more can be read ends the reading.
"""

import csv
import gzip
import io
import json
import os
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from itertools import chain
from pathlib import Path, PurePath
from typing import IO, cast

from prbench.backends.own_code import each_of, load_python
from prbench.data import archives, hub
from prbench.data.columns import ColumnMap
from prbench.data.importers import PARTS
from prbench.data.rows import RawRow
from prbench.errors import DataError, UsageError, needs
from prbench.registry import DATASETS, PYTHON, Kind
from prbench.schema import Example, Json, RatedExample
from prbench.specs import Spec, kind_of, parse_spec

CSV_SUFFIXES = (".csv", ".tsv", ".csv.gz", ".tsv.gz")
DATA_SUFFIXES = (".jsonl", ".ndjson", ".json", ".jsonl.gz", ".ndjson.gz", ".json.gz", ".parquet", *CSV_SUFFIXES)
_OTHER_SUFFIXES = (".gz", ".txt", ".zip", ".tar", ".tgz", ".zst", ".arrow", ".yaml", ".yml", ".xlsx")
_LONGEST_CELL = 1 << 30  # characters
_JSON_CELLS = frozenset({"profile", "rubric_aspects", "meta", "rating"})  # columns of a CSV file that are no text
_BATCH_ROWS = 64  # decoded from Parquet at a time: rows may hold megabytes
_SPLIT_IN_NAME = re.compile(r"(?:^|[^a-z])(train|validation|valid|val|dev|test)(?:[^a-z]|$)")
_SAME_SPLIT = {"valid": "validation", "val": "validation", "dev": "validation"}
Rows = Iterable[Example | RatedExample | Mapping[str, Json]]
_CHUNK = 1 << 16  # characters read from a JSON array at a time


def is_named(source: str) -> bool:
    """Tell a dataset of the registry (`lab`, `python:…`) from a file, folder or hub id; a folder `lab` is `./lab`."""
    return kind_of(source) in DATASETS.names


def kind_of_dataset(source: str) -> Kind | None:
    """Return the row of a named dataset; `None` for a file, a folder or a hub id."""
    return DATASETS.find(kind_of(source)) if is_named(source) else None


def named_rows(source: str, split: str | None) -> tuple[Kind, Rows]:
    """Return the kind of a named dataset, and its rows."""
    spec = parse_spec(source, DATASETS)
    kind = DATASETS.find(spec.kind)
    rows = kind.make(spec, kind.read_options(spec), split, needs=Iterable)
    return kind, each_of(rows, spec) if kind.origin or kind.name == PYTHON else rows


def load_own(spec: Spec, options: None, split: str | None) -> Rows:
    """Return `python:package.module:Factory`: what the factory makes, if it can be gone through."""
    made = load_python(spec)
    if not isinstance(made, Iterable) or isinstance(made, str | bytes):
        raise UsageError(f"{spec.text}: made a {type(made).__name__}, and rows are a list of examples or of mappings.")
    return made


@dataclass(frozen=True, kw_only=True)
class DatasetSource:
    """A dataset as it was asked for on the command line."""

    path: str
    subset: str | None = None
    split: str | None = None
    revision: str | None = None
    columns: str = ""  # which columns are meant: see `prbench.data.columns`

    @property
    def wanted(self) -> dict[str, str]:
        """What the rows' own `category` and `split` must be, where no config or file name settles it."""
        place = Path(self.path).expanduser()
        if not place.is_file() and not self._is_loose_folder:
            return {}
        by_name = self._is_loose_folder and any(_splits_by_name(place).values())
        wanted = {"category": self.subset, "split": None if by_name else self.split}
        return {column: value for column, value in wanted.items() if value is not None}

    @property
    def _is_loose_folder(self) -> bool:
        """A folder without a card, or an archive."""
        place = Path(self.path).expanduser()
        if place.is_dir():
            return not hub.declares_configs(place)
        return place.is_file() and archives.is_archive(place)

    def rows(self) -> Iterator[RawRow]:
        """Yield every raw row, in the order of the files."""
        rows = self._rows()
        return map(ColumnMap.read(self.columns).apply, rows) if self.columns else rows

    def _rows(self) -> Iterator[RawRow]:
        place = Path(self.path).expanduser()
        if self._is_loose_folder:
            self._check_revision()
            names = _choose_files(_splits_by_name(place), self.split, place)
            if place.is_file():
                return _read_archive(place, names)
            return chain.from_iterable(read_file(place / name) for name in names)
        if place.is_file():
            self._check_revision()
            return read_file(place)
        if not place.is_dir() and _looks_like_path(self.path):
            raise UsageError(_missing(place))
        return hub.read_dataset(str(place) if place.is_dir() else self.path, self.subset, self.split, self.revision)

    def splits(self) -> tuple[str, ...]:
        """The splits that files or configs are named after; none where the rows' own `split` decides."""
        place = Path(self.path).expanduser()
        if self._is_loose_folder:
            return tuple(sorted(set(_splits_by_name(place).values()) - {""}))
        if place.is_file():
            return ()
        return hub.split_names(str(place) if place.is_dir() else self.path, self.subset, self.revision)

    def _check_revision(self) -> None:
        if self.revision is not None:
            raise UsageError(f"{self.path} is a local file or folder, which has no revision. Leave --revision out.")


def read_file(path: Path, name: str = "") -> Iterator[RawRow]:
    """Yield the rows of one JSONL, JSON, Parquet or CSV file, zipped or not; `name` is what places call it."""
    shown = name or str(path)
    try:
        with path.open("rb") as file:
            start = file.read(4)
        if start == b"PAR1":
            rows = _read_parquet(path, shown)
            yield from (replace(row, file=path) for row in rows)
            return
        with gzip.open(path, "rb") if start[:2] == b"\x1f\x8b" else path.open("rb") as file:
            read = _read_csv if path.name.lower().endswith(CSV_SUFFIXES) else _read_json
            yield from (replace(row, file=path) for row in read(cast("IO[bytes]", file), shown))
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(f"{shown}: the compressed file is damaged ({error}). Copy or download it again.") from error
    except OSError as error:
        raise DataError(f"{shown}: cannot be read ({error.strerror or error}). Check the file.") from error


def _read_archive(archive: Path, names: Sequence[PurePath]) -> Iterator[RawRow]:
    """Yield the rows of these files of an archive; what lies beside them is unpacked, too."""
    with archives.unpacked(archive, _is_data) as folder:
        for name in names:
            yield from read_file(folder / name, f"{archive}/{name}")


def _read_csv(file: IO[bytes], name: str) -> Iterator[RawRow]:
    """Rows of a table with a header. Cells are text, but for those of `_JSON_CELLS`; empty ones are null."""
    limit = csv.field_size_limit(_LONGEST_CELL)  # of the whole process: other tables hold no profiles
    # Broken bytes must not end the reading: they are found again in the cell that holds them.
    text = io.TextIOWrapper(file, encoding="utf-8-sig", errors="surrogateescape", newline="")
    reader = csv.DictReader(text, delimiter="\t" if ".tsv" in name.lower() else ",", strict=True)
    try:
        header = reader.fieldnames or []
        if twice := next((column for column in header if header.count(column) > 1), None):
            raise DataError(f"{name}: has two columns {twice!r}. Rename one of the two.")
        before = reader.line_num
        for row in reader:
            yield _csv_row(row, f"{name}:{before + 1}")
            before = reader.line_num
    except csv.Error as error:
        fact = f"the table is broken here ({error})"
        raise DataError(f"{name}:{reader.line_num}: row: {fact}. Repair the file.") from error
    finally:
        csv.field_size_limit(limit)


def _csv_row(row: Mapping[str | None, Json], where: str) -> RawRow:
    if None in row:
        return RawRow(where=where, problem="has more cells than the header has columns. Repair the row, or drop it")
    cells: dict[str, Json] = {str(column): cell or None for column, cell in row.items()}
    if any("\udc80" <= character <= "\udcff" for cell in cells.values() for character in cell or ""):
        return RawRow(where=where, problem="is not UTF-8. Save the file as UTF-8")
    for column in _JSON_CELLS & cells.keys():
        try:
            cells[column] = json.loads(cells[column] or "null")
        except ValueError:
            continue  # the border says what belongs there
    return RawRow(where=where, value=cells)


def _read_json(file: IO[bytes], path: str) -> Iterator[RawRow]:
    """Lines, or one array, told apart by the first character."""
    first = b""
    while not first.strip(b"\xef\xbb\xbf \t\r\n"):
        first = file.read(1)
        if not first:
            return  # empty: the caller counts the rows
    file.seek(0)
    if first == b"[":
        yield from _read_array(file, path)
    elif first == b"{":
        for number, line in enumerate(file, 1):
            body = line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line
            if body.strip():
                yield _parse_line(body.rstrip(b"\r\n"), f"{path}:{number}")
    else:
        raise DataError(
            f"{path}: begins with neither {{ nor [, so it is not JSON, JSONL or Parquet; tables end in .csv or .tsv. "
            "Write one JSON object a line, with profile as a list of posts (docs/reference/data-format.md)."
        )


def _parse_line(line: bytes, where: str) -> RawRow:
    try:
        return RawRow(where=where, value=json.loads(line.decode(), parse_constant=_reject_constant))
    except UnicodeDecodeError as error:
        return RawRow(where=where, problem=f"is not UTF-8 (byte {error.start + 1}). Save the file as UTF-8")
    except json.JSONDecodeError as error:
        fact = f"is not JSON ({error.msg} at character {error.pos + 1}). Repair the line, or drop it"
        return RawRow(where=where, problem=fact)
    except (ValueError, RecursionError) as error:
        return RawRow(where=where, problem=f"is not JSON ({error}). Repair the line, or drop it")


def _reject_constant(name: str) -> Json:
    raise ValueError(f"{name} is not a JSON number")


def _read_array(file: IO[bytes], path: str) -> Iterator[RawRow]:
    """Decode one element after the other, so that only one has to fit into memory."""
    reader = _ArrayReader(file, path)
    reader.expect("[")
    while not reader.skips("]"):
        line = reader.line
        yield RawRow(where=f"{path}:{line}", value=reader.element())
        if not reader.skips(","):
            reader.expect("]")
            break
    reader.expect_end()


class _ArrayReader:
    """A window on the text of a JSON array. After damage there is no next row to find, so damage is an error."""

    def __init__(self, file: IO[bytes], path: str) -> None:
        import codecs

        self._file = codecs.getreader("utf-8-sig")(file)
        self._path = path
        self._text, self._at, self._ended = "", 0, False
        self._decoder = json.JSONDecoder(parse_constant=_reject_constant)
        self._line = 1

    @property
    def line(self) -> int:
        """The line of the next character that is not space."""
        self._skip_space()
        return self._line

    def element(self) -> Json:
        """Decode the next element, reading on for as long as it is incomplete."""
        while True:
            try:
                value, end = self._decoder.raw_decode(self._text, self._at)
                # A number at the very end of the window might go on in the next chunk.
                if end < len(self._text) or self._ended:
                    self._move_to(end)
                    return value
            except json.JSONDecodeError as error:
                if self._ended:
                    raise self._broken(error.msg) from None
            except (ValueError, RecursionError) as error:
                raise self._broken(str(error)) from None
            self._read_more()

    def skips(self, character: str) -> bool:
        """Step over `character`, if it comes next."""
        self._skip_space()
        found = self._text[self._at : self._at + 1] == character
        if found:
            self._move_to(self._at + 1)
        return found

    def expect(self, character: str) -> None:
        """Step over `character`, which must come next."""
        if not self.skips(character):
            raise self._broken(f"expected {character}")

    def expect_end(self) -> None:
        """Nothing may follow the array."""
        self._skip_space()
        if self._at < len(self._text):
            raise self._broken("text after the end of the array")

    def _broken(self, fact: str) -> DataError:
        return DataError(f"{self._path}:{self._line}: row: the array is broken here ({fact}). Repair the file.")

    def _skip_space(self) -> None:
        while True:
            end = self._at
            while end < len(self._text) and self._text[end] in " \t\r\n":
                end += 1
            self._move_to(end)
            if end < len(self._text) or self._ended:
                return
            self._read_more()

    def _move_to(self, end: int) -> None:
        self._line += self._text.count("\n", self._at, end)
        self._at = end

    def _read_more(self) -> None:
        # Doubling keeps a very long element from being decoded once per chunk.
        size = max(_CHUNK, len(self._text) - self._at)
        try:
            more = self._file.read(size, size)
        except UnicodeDecodeError:
            raise self._broken("not UTF-8") from None
        self._text, self._at, self._ended = self._text[self._at :] + more, 0, not more


def _read_parquet(path: Path, name: str) -> Iterator[RawRow]:
    with needs("parquet", f"{name}: Parquet"):
        import pyarrow as pa
        import pyarrow.parquet as pq

    number = 0
    try:
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=_BATCH_ROWS):
                for position in range(batch.num_rows):
                    number += 1
                    yield _parquet_row(batch, position, f"{name}:{number}")
    except pa.ArrowException as error:
        fact = " ".join(str(error).split())
        raise DataError(f"{name}:{number + 1}: row: Parquet cannot be read ({fact}). Write the file again.") from error


def _parquet_row(batch: Json, position: int, where: str) -> RawRow:
    try:
        return RawRow(where=where, value=batch.slice(position, 1).to_pylist()[0])
    except UnicodeDecodeError:
        return RawRow(where=where, problem="holds text that is not UTF-8. Write the file again from clean text")


def _files_below(folder: Path) -> Iterator[Path]:
    """Every file below a folder; `Path.rglob` would silently pass over a folder that may not be read."""

    def stop(error: OSError) -> None:
        raise DataError(f"{error.filename}: {error.strerror}. Make it readable, or move it away.")

    for parent, _, names in os.walk(folder, onerror=stop):
        yield from (Path(parent) / name for name in names)


def _splits_by_name(place: Path) -> dict[PurePath, str]:
    """The data files of a folder or an archive by their names in it, each with the split that its name tells, or `""`.

    Files that are parts of others (the conversations of PersonaMem) hold no rows of their own.
    """
    if place.is_file():
        found: list[PurePath] = [name for name in archives.names_in(place) if _is_data(name)]
    else:
        found = sorted(path.relative_to(place) for path in _files_below(place))
        found = [name for name in found if _is_data(name)]
    names = [name for name in found if not _is_part(name, found)]
    words = {name: _SPLIT_IN_NAME.search(str(name).lower()) for name in names}
    return {name: _SAME_SPLIT.get(word[1], word[1]) if word else "" for name, word in words.items()}


def _is_data(name: PurePath) -> bool:
    hidden = any(part.startswith(".") or part == "__MACOSX" for part in name.parts)
    return name.name.lower().endswith(DATA_SUFFIXES) and not hidden


def _is_part(name: PurePath, found: Sequence[PurePath]) -> bool:
    for part, whole in PARTS:
        if name.match(part):
            base = name.parents[len(PurePath(part).parts) - 1]
            if any(other.parent == base and other.match(whole) for other in found):
                return True
    return False


def _choose_files(splits: Mapping[PurePath, str], split: str | None, folder: Path) -> Sequence[PurePath]:
    if not splits:
        raise DataError(f"{folder}: holds no data file. Put files there that end in: {', '.join(DATA_SUFFIXES)}.")
    named = sorted(set(splits.values()) - {""})
    # Without split words in the names, the rows' own `split` column decides.
    if not named:
        return list(splits)
    if split is None:
        if "test" not in named and (len(named) > 1 or "" in splits.values()):
            raise UsageError(f"{folder}: has the splits {', '.join(named)}. Choose one with --split.")
        split = "test" if "test" in named else named[0]
    wanted = _SAME_SPLIT.get(split, split)
    if wanted not in named:
        raise UsageError(f"{folder}: has no split {split!r}. It has: {', '.join(named)}.")
    return [path for path, name in splits.items() if name == wanted]


def _looks_like_path(name: str) -> bool:
    """A hub id is `owner/name` or `name`; anything with another shape can only be a path."""
    if name.startswith((".", "/", "~")) or name.count("/") > 1 or "\\" in name:
        return True
    if name.lower().endswith(DATA_SUFFIXES + _OTHER_SUFFIXES):
        return True
    return "/" in name and Path(name).parent.is_dir()


def _missing(path: Path) -> str:
    """Say what is missing, and which names nearby were perhaps meant."""
    if not path.parent.is_dir():
        return f"{path}: there is no such file, and no folder {path.parent} either. Check the path."
    names = sorted(entry.name for entry in path.parent.iterdir())
    near = get_close_matches(path.name, names, n=3, cutoff=0.5)
    near = near or [name for name in names if name.endswith(DATA_SUFFIXES)][:3]
    hint = f"Did you mean {' or '.join(near)}?" if near else "Check the path."
    return f"{path}: there is no such file. {hint}"
