"""Files of rows: what they hold, and the same files without one person's rows, put in place whole."""

import bz2
import gzip
import json
import lzma
import os
import sqlite3
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import IO, cast

from prbench.schema import Json

SCRATCH = ".forgetting-"  # how the names of unfinished files begin
_SIDE_FILES = ("-wal", "-shm", "-journal")


class Kind(StrEnum):
    """What a file is, by its first bytes."""

    LINES = "rows"  # JSON Lines, zipped or not
    ARRAY = "array"  # one JSON array
    PARQUET = "parquet"
    SQLITE = "sqlite"
    SIDE = "sqlite log"  # of an SQLite file, searched with it and as bytes
    PACKED = "packed"  # zip, bz2, xz
    OTHER = "other"


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
    if start[:4] == b"PK\x03\x04" or start[:3] == b"BZh" or start[:6] == b"\xfd7zXZ\0":
        return Kind.PACKED
    if start[:2] == b"\x1f\x8b" or start.lstrip()[:1] in (b"{", b"["):
        return _kind_of_json(path)
    return Kind.OTHER


def _kind_of_json(path: Path) -> Kind:
    """Lines of objects, or an array of them; anything else is read as text."""
    try:
        with opened(path) as file:
            first = file.readline().strip()
            if first.startswith(b"["):
                return Kind.ARRAY
            return Kind.LINES if isinstance(json.loads(first), dict) else Kind.OTHER
    except (ValueError, EOFError, OSError):
        return Kind.OTHER


@contextmanager
def opened(path: Path) -> Iterator[IO[bytes]]:
    """Open a file to read, unzipped if it is zipped."""
    with path.open("rb") as file:
        is_zipped = file.read(2) == b"\x1f\x8b"
    with gzip.open(path, "rb") if is_zipped else path.open("rb") as file:
        yield cast("IO[bytes]", file)


def rows_of(path: Path, kind: Kind) -> Iterator[Json]:
    """Yield the rows of a file; lines that are no JSON are passed over, and searched as text later."""
    if kind is Kind.LINES:
        with opened(path) as file:
            for line in file:
                row = _parsed(line)
                if row is not None:
                    yield row
    elif kind is Kind.ARRAY:
        with opened(path) as file:
            rows = _parsed(file.read())
        yield from rows if isinstance(rows, list) else ()
    elif kind is Kind.PARQUET:
        import pyarrow.parquet as pq

        with pq.ParquetFile(path) as table:
            for batch in table.iter_batches(batch_size=64):
                yield from batch.to_pylist()


def remove_rows(
    path: Path, kind: Kind, is_gone: Callable[[Json], bool], change: Callable[[str], str] = lambda text: text
) -> None:
    """Write the file again without some rows; what is left of a JSONL file stays as it was, but for `change`."""
    if kind is Kind.LINES:
        with opened(path) as file, replacing(path) as new:
            for line in file:
                row = _parsed(line)
                if row is None:
                    new.write(line)
                elif not is_gone(row):
                    new.write(change(line.decode()).encode())
    elif kind is Kind.ARRAY:
        rows = [row for row in rows_of(path, kind) if not is_gone(row)]
        with replacing(path) as new:
            new.write(change(json.dumps(rows, ensure_ascii=False, indent=1)).encode() + b"\n")
    elif kind is Kind.PARQUET:
        _remove_parquet_rows(path, is_gone)


def _remove_parquet_rows(path: Path, is_gone: Callable[[Json], bool]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    with (
        pq.ParquetFile(path) as table,
        replacing(path) as new,
        pq.ParquetWriter(new, table.schema_arrow, compression="zstd") as writer,
    ):
        for batch in table.iter_batches(batch_size=1000):
            kept = pa.array([not is_gone(row) for row in batch.to_pylist()], type=pa.bool_())
            writer.write_batch(batch.filter(kept))


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """Give a new file that takes the old one's place, name, mode and packing when it is complete."""
    with path.open("rb") as file:
        is_zipped = file.read(2) == b"\x1f\x8b"
    scratch = path.with_name(f"{SCRATCH}{os.getpid()}-{path.name}")
    try:
        with scratch.open("wb") as file:
            if is_zipped:
                # No name and no time in the header: the same rows give the same bytes.
                with gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0) as zipped:
                    yield cast("IO[bytes]", zipped)
            else:
                yield file
            file.flush()
            os.fsync(file.fileno())
        scratch.chmod(path.stat().st_mode & 0o7777)
        os.replace(scratch, path)
    finally:
        scratch.unlink(missing_ok=True)


def texts_of(path: Path, kind: Kind) -> Iterator[tuple[str, str]]:
    """Yield all that a file says, with the place of each piece: rows and cells decoded, and the bytes as they are."""
    match kind:
        case Kind.PARQUET:
            for number, row in enumerate(rows_of(path, kind), 1):
                yield f"row {number}", json.dumps(row, ensure_ascii=False, default=str)
        case Kind.SQLITE:
            yield from _cells(path)
        case Kind.PACKED:
            yield from _unpacked(path)
        case _:
            with opened(path) as file:
                yield from _blocks(file)
    if kind in (Kind.PARQUET, Kind.SQLITE, Kind.PACKED):
        with path.open("rb") as file:
            yield from _blocks(file)


def _blocks(file: IO[bytes]) -> Iterator[tuple[str, str]]:
    """Yield lines; what has none, in blocks that overlap, so that no quote falls between two."""
    size, overlap, number, rest = 1 << 20, 1 << 13, 0, b""
    try:
        while block := file.read(size):
            number += 1
            yield f"part {number}", (rest + block).decode("utf-8", errors="replace")
            rest = (rest + block)[-overlap:]
    except (EOFError, OSError, gzip.BadGzipFile) as error:
        yield "damaged", f"{error}"


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
    except sqlite3.DatabaseError as error:
        yield "damaged", f"{error}"
    finally:
        database.close()


def _unpacked(path: Path) -> Iterator[tuple[str, str]]:
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            for name in archive.namelist():
                with archive.open(name) as member:
                    yield from ((f"{name} {place}", text) for place, text in _blocks(member))
        return
    with path.open("rb") as start:
        unpack = bz2.open if start.read(3) == b"BZh" else lzma.open
    with unpack(path, "rb") as file:
        yield from _blocks(cast("IO[bytes]", file))


def _parsed(line: bytes) -> Json:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None
