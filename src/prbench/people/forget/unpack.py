"""Packed files as the streams in them: gzip, bz2, xz and zip, and these in one another."""

import bz2
import gzip
import lzma
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, cast

GZIP = b"\x1f\x8b"
_ZIP = (b"PK\x03\x04", b"PK\x05\x06")
_BZ2, _XZ = b"BZh", b"\xfd7zXZ\0"
DEEPEST = 4  # packed in packed; what lies deeper is read as bytes


def is_packed(start: bytes) -> bool:
    """True for the first bytes of a file that is read unpacked but never written; gzip is no such file."""
    return start[:4] in _ZIP or start[:3] == _BZ2 or start[:6] == _XZ


@contextmanager
def opened(path: Path) -> Iterator[IO[bytes]]:
    """Open a file to read, unzipped if it is zipped."""
    with path.open("rb") as file:
        is_zipped = file.read(2) == GZIP
    with gzip.open(path, "rb") if is_zipped else path.open("rb") as file:
        yield cast("IO[bytes]", file)


def streams_of(path: Path) -> Iterator[tuple[str, IO[bytes]]]:
    """Yield what a file holds, unpacked, each with its name in the archive; a plain file is one stream without one."""
    with path.open("rb") as file:
        yield from _unpacked(file, "", DEEPEST)


def _unpacked(file: IO[bytes], place: str, depth: int) -> Iterator[tuple[str, IO[bytes]]]:
    start = file.read(6)
    file.seek(0)
    if depth and start[:4] in _ZIP:
        with zipfile.ZipFile(file) as archive:
            for entry in archive.infolist():
                with archive.open(entry) as member:
                    yield from _unpacked(member, f"{place} {entry.filename}".strip(), depth - 1)
    elif depth and (unpack := _unpacker(start)):
        with unpack(file) as inner:
            yield from _unpacked(inner, place, depth - 1)
    else:
        yield place, file


def _unpacker(start: bytes) -> Callable[[IO[bytes]], Any] | None:
    if start[:2] == GZIP:
        return gzip.open
    if start[:3] == _BZ2:
        return bz2.open
    return lzma.open if start == _XZ else None
