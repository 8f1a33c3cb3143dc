"""Files of rows and databases: what they hold, and the same without one person's rows.

Packed files are read as the streams in them: gzip, bz2, xz, lzma, zip and tar, and these in one another. What is
packed or encrypted in another way, and pictures and sound, are refused by name: nobody searched them. A file of rows
is put in place whole; in SQLite what is deleted is overwritten, and the file compacted.
"""

import bz2
import csv
import gzip
import io
import json
import lzma
import sqlite3
import tarfile
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from enum import StrEnum
from pathlib import Path
from typing import IO, Any, cast

from prbench.errors import RunError, needs
from prbench.people import annotate
from prbench.people.annotate.database import APPLICATION_ID
from prbench.people.forget.person import PERSON_KEYS, Person
from prbench.people.forget.readings import packed_in, readings
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
    tarfile.TarError,
    sqlite3.DatabaseError,
)
DEEPEST = 4  # packed in packed; what lies deeper is read as bytes
WAIT_SECONDS = 30.0  # for a database that somebody writes to
_GZIP, _BZ2, _XZ, _LZMA = b"\x1f\x8b", b"BZh", b"\xfd7zXZ\0", b"\x5d\0\0"
_TAR = 257  # where a tar says that it is one
# What cannot be opened here, by its first bytes or by its name.
_SEALED = {
    b"\x28\xb5\x2f\xfd": "zstd",
    b"\x04\x22\x4d\x18": "lz4",
    b"\xff\x06\0\0sNaPpY": "snappy",
    b"7z\xbc\xaf\x27\x1c": "7z",
    b"Rar!\x1a\x07": "RAR",
    b"\x1f\x9d": "compress",
    b"LZIP": "lzip",
    b"\x89LZO": "lzop",
    b"Salted__": "encrypted by OpenSSL",
    b"age-encryption": "encrypted by age",
    b"-----BEGIN PGP": "encrypted by PGP",
    b"%PDF": "a PDF",
    b"\x89PNG": "a picture",
    b"\xff\xd8\xff": "a picture",
    b"GIF8": "a picture",
    b"RIFF": "a picture, sound or film",
    b"OggS": "sound or film",
    b"ID3": "sound",
    b"fLaC": "sound",
}
_SEALED_NAMES = {
    ".br": "Brotli",
    ".gpg": "encrypted by PGP",
    ".enc": "encrypted",
    ".mp4": "film",
    ".heic": "a picture",
}
# The bytes of texts and of weights are far from equally frequent; what is packed or encrypted looks like noise.
_NOISE_BYTES, _NOISE = 2048, 600.0
_ZIP = (b"PK\x03\x04", b"PK\x05\x06")
_SIDE_FILES = ("-wal", "-shm", "-journal")
_BOM = b"\xef\xbb\xbf"
_WIDE = (b"\xff\xfe", b"\xfe\xff")  # how UTF-16 begins


class FileKind(StrEnum):
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


CHANGED = (FileKind.LINES, FileKind.ARRAY, FileKind.PARQUET)  # rows can be taken out of these
ROWS = (*CHANGED, FileKind.OBJECT, FileKind.TABLE, FileKind.PACKED)  # rows can be read in these


def kind_of(path: Path) -> FileKind:
    """Tell what a file is."""
    with path.open("rb") as file:
        start = file.read(_TAR + 5)
    _check_open(start, path.name)
    if start[:16] == b"SQLite format 3\0":
        return FileKind.SQLITE
    if path.name.endswith(_SIDE_FILES):
        return FileKind.SIDE
    if start[:4] == b"PAR1":
        return FileKind.PARQUET
    if _packing(start) not in ("", "gzip"):  # read unpacked but never written; gzip is no such
        return FileKind.PACKED
    with _opened(path) as file:
        kind = _shape(file)
    if kind is FileKind.OTHER and not _packing(start):
        with path.open("rb") as file:
            if _is_noise(file.read(1 << 16)):
                raise OSError("looks packed or encrypted in a way that cannot be opened here")
    return kind


def _check_open(start: bytes, name: str) -> None:
    """Refuse what cannot be opened, by name: that nothing was found in it would be no proof."""
    what = next((what for magic, what in _SEALED.items() if start.startswith(magic)), "")
    what = what or _SEALED_NAMES.get(Path(name).suffix.lower(), "")
    if start[1:4] == b"\x2a\x4d\x18":  # a frame that readers of zstd and lz4 skip
        what = "zstd or lz4"
    if start[4:8] == b"ftyp":
        what = "a picture or film"
    if start[:1] == b"\x78" and int.from_bytes(start[:2], "big") % 31 == 0 and _is_zlib(start):
        what = "zlib"
    if what:
        raise OSError(f"{what}, which cannot be searched")


def _is_zlib(start: bytes) -> bool:
    try:
        return bool(zlib.decompressobj().decompress(start))
    except zlib.error:
        return False


def _is_noise(block: bytes) -> bool:
    """Tell whether all bytes are about as frequent, by chi-squared (its mean is 255 where they are)."""
    if len(block) < _NOISE_BYTES:
        return False
    mean, counts = len(block) / 256, Counter(block)
    return sum((counts[byte] - mean) ** 2 for byte in range(256)) / mean < _NOISE


@contextmanager
def _opened(path: Path) -> Iterator[IO[bytes]]:
    """Open a file to read, unzipped if it is zipped."""
    with path.open("rb") as file:
        is_zipped = file.read(2) == _GZIP
    with gzip.open(path, "rb") if is_zipped else path.open("rb") as file:
        yield cast("IO[bytes]", file)


def _streams_of(path: Path) -> Iterator[tuple[str, IO[bytes]]]:
    """Yield what a file holds, unpacked, each with its name in the archive; a plain file is one stream without one."""
    with path.open("rb") as file:
        yield from _unpacked(file, "", DEEPEST)


def _packing(start: bytes) -> str:
    """Return how a stream that begins so is packed; "" for one that is not, or not in a known way."""
    magics = {_GZIP: "gzip", _BZ2: "bz2", _XZ: "xz", _LZMA: "xz", **dict.fromkeys(_ZIP, "zip")}
    found = (name for magic, name in magics.items() if start.startswith(magic))
    return next(found, "tar" if start[_TAR : _TAR + 5] == b"ustar" else "")


def _unpacked(file: IO[bytes], place: str, depth: int) -> Iterator[tuple[str, IO[bytes]]]:
    start = file.read(_TAR + 5)
    file.seek(0)
    _check_open(start, place)
    match _packing(start) if depth else "":
        case "zip":
            with zipfile.ZipFile(file) as archive:
                for entry in archive.infolist():
                    with archive.open(entry) as member:
                        yield from _unpacked(member, f"{place} {entry.filename}".strip(), depth - 1)
        case "tar":
            with tarfile.open(fileobj=file, mode="r:") as tape:
                for header in tape:
                    if (content := tape.extractfile(header)) is not None:
                        yield from _unpacked(content, f"{place} {header.name}".strip(), depth - 1)
        case "":
            yield place, file
        case packing:
            openers: dict[str, Callable[[IO[bytes]], Any]] = {"gzip": gzip.open, "bz2": bz2.open, "xz": lzma.open}
            with openers[packing](file) as inner:
                yield from _unpacked(inner, place, depth - 1)


def _shape(file: IO[bytes]) -> FileKind:
    """Tell in which shape a stream holds rows; it is read from its start."""
    head = b""
    while not head and (block := file.read(1 << 16)):
        head = block.removeprefix(_BOM).lstrip()
    file.seek(0)
    if head[:4] == b"PAR1":
        return FileKind.PARQUET
    if head[:1] not in (b"{", b"["):
        return FileKind.TABLE if _delimiter(head) else FileKind.OTHER
    first = next((line for line in file if line.removeprefix(_BOM).strip()), b"")
    file.seek(0)
    if isinstance(_parsed(first), dict):
        return FileKind.LINES
    whole = _parsed(file.read())
    file.seek(0)
    if isinstance(whole, list | dict):
        return FileKind.ARRAY if isinstance(whole, list) else FileKind.OBJECT
    has_rows = any(isinstance(_parsed(line), dict) for line in file)  # the first line is damaged
    file.seek(0)
    return FileKind.LINES if has_rows else FileKind.OTHER


def _encoding(head: bytes) -> str:
    return "utf-16" if head[:2] in _WIDE else "utf-8-sig"


def _delimiter(head: bytes) -> str:
    """Return what separates the columns of a table that names people, or ""."""
    first = head.decode(_encoding(head), errors="replace").partition("\n")[0]
    for delimiter in ",;\t|":
        columns = [column.strip().strip("\"'").lower() for column in first.split(delimiter)]
        if len(columns) > 1 and set(columns) & set(PERSON_KEYS):
            return delimiter
    return ""


def rows_of(path: Path, kind: FileKind) -> Iterator[Json]:
    """Yield the rows of a file; lines that are no JSON are passed over, and searched as text later."""
    for _, file in _streams_of(path) if kind in ROWS else ():
        match _shape(file) if kind is FileKind.PACKED else kind:
            case FileKind.LINES:
                yield from (row for line in file if (row := _parsed(line)) is not None)
            case FileKind.ARRAY:
                yield from _parsed(file.read()) or ()
            case FileKind.OBJECT:
                yield _parsed(file.read())
            case FileKind.TABLE:
                head = file.read(1 << 16)
                file.seek(0)
                text = io.StringIO(file.read().decode(_encoding(head), errors="replace"), newline="")
                for row in csv.DictReader(text, delimiter=_delimiter(head)):
                    yield {str(name).strip().lower(): value for name, value in row.items()}
            case FileKind.PARQUET:
                yield from _parquet_rows(file)


def _parquet_rows(file: IO[bytes]) -> Iterator[Json]:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ModuleNotFoundError as error:  # a file that was not searched is named, and the search goes on
        raise OSError(f"needs {error.name}: pip install 'prbench[parquet]'") from error

    try:
        with pq.ParquetFile(file) as table:
            for batch in table.iter_batches(batch_size=64):
                yield from batch.to_pylist()
    except pa.ArrowException as error:
        raise OSError(str(error)) from None


def remove_rows(
    path: Path, kind: FileKind, is_gone: Callable[[Json], bool], change: Callable[[Json], Json] = lambda row: row
) -> None:
    """Write the file again without some rows; what is left of a JSONL file stays as it was, but for `change`."""
    if kind is FileKind.LINES:
        with _opened(path) as file, _rewriting(path) as new:
            for line in file:
                row = _parsed(line)
                if row is None or not is_gone(row):
                    changed = row if row is None else change(row)
                    new.write(line if changed == row else _written(changed, row, line))
    elif kind is FileKind.ARRAY:
        rows = [change(row) for row in rows_of(path, kind) if not is_gone(row)]
        with _rewriting(path) as new:
            new.write(_encoded(json.dumps(rows, ensure_ascii=False, indent=1)) + b"\n")
    elif kind is FileKind.PARQUET:
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
    with needs("parquet", f"{path}: Parquet"):
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
        is_zipped = file.read(2) == _GZIP
    with replacing(path, mark=MARK, is_same_file=True) as scratch, scratch.open("wb") as file:
        if is_zipped:
            # No name and no time in the header: the same rows give the same bytes.
            with gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0) as zipped:
                yield cast("IO[bytes]", zipped)
        else:
            yield file


def texts_of(path: Path, kind: FileKind) -> Iterator[tuple[str, str]]:
    """Yield all that a file says, with the place of each piece: rows and cells decoded, and the bytes as they are."""
    for number, row in enumerate(rows_of(path, kind), 1):
        yield from _with_packed(f"row {number}", json.dumps(row, ensure_ascii=False, default=str))
    if kind is FileKind.SQLITE:
        yield from _cells(path)
    for place, file in _streams_of(path):
        if place:
            yield place, place  # the name in an archive
        yield from _texts_in(file, place)
    if kind is FileKind.PACKED:
        with path.open("rb") as file:  # names and comments of an archive
            yield from ((f"part {number}", text) for number, text, _ in _blocks(file))


def _texts_in(file: IO[bytes], place: str) -> Iterator[tuple[str, str]]:
    """Yield the text of an unpacked stream, and of what is packed in it as digits."""
    for number, text, goes_on in _blocks(file):
        yield from _with_packed(f"{place} part {number}".strip(), text, goes_on=_OVERLAP if goes_on else 0)


def _with_packed(place: str, text: str, *, goes_on: int = 0) -> Iterator[tuple[str, str]]:
    """Yield a text, and the texts of what is packed in it as base64 or hexadecimal digits."""
    yield place, text
    for content in packed_in(text, goes_on=goes_on):
        if content[:1] == b"\x78":
            with suppress(zlib.error):  # two bytes are no sure sign
                yield f"{place} zlib", zlib.decompressobj().decompress(content, _BLOCK).decode(errors="replace")
            continue
        for inner, file in _unpacked(io.BytesIO(content), f"{place} packed", DEEPEST):
            yield from ((f"{inner} part {number}", one) for number, one, _ in _blocks(file))


_BLOCK, _OVERLAP = 1 << 20, 1 << 13


def _blocks(file: IO[bytes]) -> Iterator[tuple[int, str, bool]]:
    """Yield the text of a stream in numbered blocks that overlap, so that no quote falls between two.

    The last item says whether more may follow. What is no UTF-8 comes a second time as Latin-1, and what is half NULs
    as UTF-16: a log may be written in either without saying so.
    """
    number, rest, encoding = 0, b"", ""
    while block := file.read(_BLOCK):
        number += 1
        if not encoding:
            wide = {_WIDE[0]: "utf-16-le", _WIDE[1]: "utf-16-be"}
            encoding = wide.get(block[:2], "utf-8")
        whole, goes_on = rest + block, len(block) == _BLOCK
        text = whole.decode(encoding, errors="replace")
        yield number, text, goes_on
        if encoding == "utf-8" and "\ufffd" in text:
            yield number, whole.decode("latin-1"), goes_on
        if encoding == "utf-8" and whole.count(0) * 3 > len(whole):
            yield number, whole.decode("utf-16-le", errors="replace"), goes_on
            yield number, whole.decode("utf-16-be", errors="replace"), goes_on
        # An even number of bytes, so that UTF-16 stays whole; of UTF-8, what is cut here is whole in the other block.
        rest = whole[-_OVERLAP:]


def _cells(path: Path) -> Iterator[tuple[str, str]]:
    """Yield every text and blob of every table."""
    database = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)
    try:
        database.text_factory = lambda raw: raw.decode("utf-8", errors="replace")
        tables = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        for table in tables:
            quoted = table.replace('"', '""')
            for number, row in enumerate(database.execute(f'SELECT * FROM "{quoted}"'), 1):
                for cell in row:
                    if isinstance(cell, bytes):
                        for place, file in _unpacked(io.BytesIO(cell), f"{table} row {number}", DEEPEST):
                            yield from _texts_in(file, place)
                    elif isinstance(cell, str):
                        yield from _with_packed(f"{table} row {number}", cell)
    finally:
        database.close()


def _parsed(line: bytes) -> Json:
    try:
        return json.loads(line.removeprefix(_BOM).decode("utf-8", errors="surrogateescape"))
    except (ValueError, RecursionError):
        return None


def forget_in_database(path: Path, person: Person, *, dry_run: bool) -> int | None:
    """Remove a person from a database of ours and return how many rows went; None for a database of somebody else."""
    with _database(path) as database:
        tables = {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        if database.execute("PRAGMA application_id").fetchone()[0] != APPLICATION_ID:
            columns = {row[1] for row in database.execute("PRAGMA table_info(replies)")}
            if not {"key", "reply"} <= columns:  # any program may have a table of that name
                return None
            return _forget_replies(database, person, has_owners="owners" in tables, dry_run=dry_run)
        ids = sorted(person.ids)
        marks = ",".join("?" * len(ids))
        items = database.execute(f"SELECT count(*) FROM items WHERE user_id IN ({marks})", ids).fetchone()[0]
        people = database.execute(f"SELECT count(*) FROM annotators WHERE name IN ({marks})", ids).fetchone()[0]
    if not dry_run:
        for one in ids:
            annotate.forget(path, one)
    return int(items + people)


def _forget_replies(database: sqlite3.Connection, person: Person, *, has_owners: bool, dry_run: bool) -> int:
    """Remove the replies that were made from the person's texts, by their owner; and any that quotes or names them."""
    ids = sorted(person.ids)
    keys: set[str] = set()
    if has_owners:
        marks = ",".join("?" * len(ids))
        keys = {key for (key,) in database.execute(f"SELECT key FROM owners WHERE user IN ({marks})", ids)}
    for key, reply in database.execute("SELECT key, reply FROM replies"):
        forms = [*readings(reply)] if key not in keys else []
        if person.named_in(*forms) or person.quoted_in(*forms):
            keys.add(key)
    query = "SELECT 1 FROM replies WHERE key = ?"
    present = sum(database.execute(query, (key,)).fetchone() is not None for key in keys)
    if dry_run:
        return present
    for key in keys:
        database.execute("DELETE FROM replies WHERE key = ?", (key,))
        if has_owners:
            database.execute("DELETE FROM owners WHERE key = ?", (key,))
    database.commit()
    # Also after a run that was killed: deleted rows may lie in the log, or in free pages.
    database.execute("VACUUM")
    database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return present


@contextmanager
def _database(path: Path) -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(path, timeout=WAIT_SECONDS)
    try:
        connection.execute("PRAGMA secure_delete = ON")
        yield connection
    except sqlite3.OperationalError as error:
        if "lock" not in str(error) and "busy" not in str(error):
            raise
        raise RunError(
            f"{path}: cannot be changed now ({error}). End what uses it, and run the command again."
        ) from None
    finally:
        connection.close()
