"""Files of rows: what they hold, and the same files without one person's rows, put in place whole."""

import csv
import gzip
import io
import json
import lzma
import sqlite3
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import IO, cast

from prbench.people.forget.person import PERSON_KEYS
from prbench.people.forget.unpack import GZIP, is_packed, opened, streams_of
from prbench.runs.files import replacing
from prbench.schema import Json

MARK = ".forgetting"  # in the names of unfinished files
# What reading a damaged or locked file raises; an encrypted zip is a RuntimeError.
UNREADABLE = (
    OSError,
    EOFError,
    RuntimeError,
    csv.Error,
    zlib.error,
    lzma.LZMAError,
    zipfile.BadZipFile,
    sqlite3.DatabaseError,
)
_SIDE_FILES = ("-wal", "-shm", "-journal")
_BOM = b"\xef\xbb\xbf"
_WIDE = (b"\xff\xfe", b"\xfe\xff")  # how UTF-16 begins


class Kind(StrEnum):
    """What a file is, by its first bytes."""

    LINES = "rows"  # JSON Lines, zipped or not
    ARRAY = "array"  # one JSON array
    OBJECT = "object"  # one JSON object over several lines
    TABLE = "table"  # CSV with a column that names people
    PARQUET = "parquet"
    SQLITE = "sqlite"
    SIDE = "sqlite log"  # of an SQLite file, searched with it and as bytes
    PACKED = "packed"  # zip, bz2, xz
    OTHER = "other"


CHANGED = (Kind.LINES, Kind.ARRAY, Kind.PARQUET)  # rows can be taken out of these
ROWS = (*CHANGED, Kind.OBJECT, Kind.TABLE, Kind.PACKED)  # rows can be read in these


def kind_of(path: Path) -> Kind:
    """Tell what a file is."""
    with path.open("rb") as file:
        start = file.read(16)
    if start == b"SQLite format 3\0":
        return Kind.SQLITE
    if path.name.endswith(_SIDE_FILES):
        return Kind.SIDE
    if start[:4] == b"PAR1":
        return Kind.PARQUET
    if is_packed(start):
        return Kind.PACKED
    with opened(path) as file:
        return _shape(file)


def _shape(file: IO[bytes]) -> Kind:
    """Tell in which shape a stream holds rows; it is read from its start."""
    head = b""
    while not head and (block := file.read(1 << 16)):
        head = block.removeprefix(_BOM).lstrip()
    file.seek(0)
    if head[:4] == b"PAR1":
        return Kind.PARQUET
    if head[:1] in (b"{", b"["):
        return _shape_of_json(file)
    return Kind.TABLE if _delimiter(head) else Kind.OTHER


def _shape_of_json(file: IO[bytes]) -> Kind:
    """Lines of objects, an array, or one object; anything else is read as text."""
    first = next((line for line in file if line.removeprefix(_BOM).strip()), b"")
    file.seek(0)
    if isinstance(_parsed(first), dict):
        return Kind.LINES
    whole = _parsed(file.read())
    file.seek(0)
    if isinstance(whole, list | dict):
        return Kind.ARRAY if isinstance(whole, list) else Kind.OBJECT
    has_rows = any(isinstance(_parsed(line), dict) for line in file)  # the first line is damaged
    file.seek(0)
    return Kind.LINES if has_rows else Kind.OTHER


def _delimiter(head: bytes) -> str:
    """Return what separates the columns of a table that names people, or ""."""
    encoding = "utf-16" if head[:2] in _WIDE else "utf-8-sig"
    first = head.decode(encoding, errors="replace").partition("\n")[0]
    for delimiter in ",;\t|":
        columns = [column.strip().strip("\"'").lower() for column in first.split(delimiter)]
        if len(columns) > 1 and set(columns) & set(PERSON_KEYS):
            return delimiter
    return ""


def rows_of(path: Path, kind: Kind) -> Iterator[Json]:
    """Yield the rows of a file; lines that are no JSON are passed over, and searched as text later."""
    if kind is Kind.PACKED:
        for _, file in streams_of(path):
            yield from _rows(file, _shape(file))
    elif kind in ROWS:
        with opened(path) as file:
            yield from _rows(file, kind)


def _rows(file: IO[bytes], kind: Kind) -> Iterator[Json]:
    match kind:
        case Kind.LINES:
            yield from (row for line in file if (row := _parsed(line)) is not None)
        case Kind.ARRAY:
            yield from _parsed(file.read()) or ()
        case Kind.OBJECT:
            yield _parsed(file.read())
        case Kind.TABLE:
            yield from _table_rows(file)
        case Kind.PARQUET:
            yield from _parquet_rows(file)


def _table_rows(file: IO[bytes]) -> Iterator[Json]:
    head = file.read(1 << 16)
    file.seek(0)
    encoding = "utf-16" if head[:2] in _WIDE else "utf-8-sig"
    text = io.StringIO(file.read().decode(encoding, errors="replace"), newline="")
    for row in csv.DictReader(text, delimiter=_delimiter(head)):
        yield {str(name).strip().lower(): value for name, value in row.items()}


def _parquet_rows(file: IO[bytes]) -> Iterator[Json]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(file) as table:
            for batch in table.iter_batches(batch_size=64):
                yield from batch.to_pylist()
    except pa.ArrowException as error:
        raise OSError(str(error)) from None


def remove_rows(
    path: Path, kind: Kind, is_gone: Callable[[Json], bool], change: Callable[[Json], Json] = lambda row: row
) -> None:
    """Write the file again without some rows; what is left of a JSONL file stays as it was, but for `change`."""
    if kind is Kind.LINES:
        with opened(path) as file, _rewriting(path) as new:
            for line in file:
                row = _parsed(line)
                if row is None or not is_gone(row):
                    changed = row if row is None else change(row)
                    new.write(line if changed == row else _written(changed, row, line))
    elif kind is Kind.ARRAY:
        rows = [change(row) for row in rows_of(path, kind) if not is_gone(row)]
        with _rewriting(path) as new:
            new.write(_encoded(json.dumps(rows, ensure_ascii=False, indent=1)) + b"\n")
    elif kind is Kind.PARQUET:
        _remove_parquet_rows(path, is_gone)


def _written(row: Json, old: Json, line: bytes) -> bytes:
    """Write a changed row as its old line was written, as far as that can be told."""
    is_ascii, end = line.isascii(), line[len(line.rstrip()) :]
    for separators in ((", ", ": "), (",", ":")):
        if _encoded(json.dumps(old, ensure_ascii=is_ascii, separators=separators)) == line.rstrip():
            return _encoded(json.dumps(row, ensure_ascii=is_ascii, separators=separators)) + end
    return _encoded(json.dumps(row, ensure_ascii=is_ascii)) + end


def _encoded(text: str) -> bytes:
    """Return a text as bytes: those that were no UTF-8 as they were, half surrogate pairs as escapes."""
    try:
        return text.encode("utf-8", errors="surrogateescape")
    except UnicodeEncodeError:
        return text.encode("utf-8", errors="backslashreplace")


def _remove_parquet_rows(path: Path, is_gone: Callable[[Json], bool]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with (
            pq.ParquetFile(path) as table,
            _rewriting(path) as new,
            pq.ParquetWriter(new, table.schema_arrow, compression="zstd") as writer,
        ):
            for batch in table.iter_batches(batch_size=1000):
                kept = pa.array([not is_gone(row) for row in batch.to_pylist()], type=pa.bool_())
                writer.write_batch(batch.filter(kept))
    except pa.ArrowException as error:
        raise OSError(str(error)) from None


@contextmanager
def _rewriting(path: Path) -> Iterator[IO[bytes]]:
    """Give a new file that takes the old one's place, name, mode and packing when it is complete."""
    with path.open("rb") as file:
        is_zipped = file.read(2) == GZIP
    with replacing(path, mark=MARK, is_same_file=True) as scratch, scratch.open("wb") as file:
        if is_zipped:
            # No name and no time in the header: the same rows give the same bytes.
            with gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0) as zipped:
                yield cast("IO[bytes]", zipped)
        else:
            yield file


def texts_of(path: Path, kind: Kind) -> Iterator[tuple[str, str]]:
    """Yield all that a file says, with the place of each piece: rows and cells decoded, and the bytes as they are."""
    for number, row in enumerate(rows_of(path, kind), 1):
        yield f"row {number}", json.dumps(row, ensure_ascii=False, default=str)
    if kind is Kind.SQLITE:
        yield from _cells(path)
    for place, file in streams_of(path):
        if place:
            yield place, place  # the name in an archive
        yield from ((f"{place} {part}".strip(), text) for part, text in _blocks(file))
    if kind is Kind.PACKED:
        with path.open("rb") as file:
            yield from _blocks(file)


def _blocks(file: IO[bytes]) -> Iterator[tuple[str, str]]:
    """Yield the text of a stream in blocks that overlap, so that no quote falls between two."""
    size, overlap, number, rest, encoding = 1 << 20, 1 << 13, 0, b"", ""
    while block := file.read(size):
        number += 1
        if not encoding:
            wide = {_WIDE[0]: "utf-16-le", _WIDE[1]: "utf-16-be"}
            encoding = wide.get(block[:2], "utf-8")
        yield f"part {number}", (rest + block).decode(encoding, errors="replace")
        rest = (rest + block)[-overlap:]


def _cells(path: Path) -> Iterator[tuple[str, str]]:
    """Yield every text and blob of every table."""
    database = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    try:
        database.text_factory = lambda raw: raw.decode("utf-8", errors="replace")
        tables = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        for table in tables:
            for number, row in enumerate(database.execute(f'SELECT * FROM "{table}"'), 1):
                for cell in row:
                    if isinstance(cell, bytes):
                        yield f"{table} row {number}", cell.decode("utf-8", errors="replace")
                    elif isinstance(cell, str):
                        yield f"{table} row {number}", cell
    finally:
        database.close()


def _parsed(line: bytes) -> Json:
    try:
        return json.loads(line.removeprefix(_BOM).decode("utf-8", errors="surrogateescape"))
    except (ValueError, RecursionError):
        return None
