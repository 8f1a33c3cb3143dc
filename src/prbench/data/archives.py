"""Archives (.zip, .tar, .tar.gz) as folders: what they hold, and its unpacking within bounds.

The sizes that an archive states may be false, so what counts is what is written. Only the files that are asked for are
unpacked, into a temporary folder that goes away with the reading.
"""

import shutil
import stat
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO

from prbench.errors import DataError, UsageError

MOST_BYTES = 8 << 30  # unpacked, in all
MOST_FILES = 20_000
_CHUNK = 1 << 20
_ZIP = b"PK\x03\x04"
_DAMAGE = (zipfile.BadZipFile, tarfile.TarError, EOFError, zlib.error, NotImplementedError, RuntimeError)


def is_archive(path: Path) -> bool:
    """Is this file an archive? Its bytes tell, not its name."""
    try:
        with path.open("rb") as file:
            if file.read(4) == _ZIP:
                return True
        return tarfile.is_tarfile(path)
    except OSError:
        return False  # reading it says what is wrong


def names_in(archive: Path) -> list[PurePosixPath]:
    """Return the names of the files in an archive; one that leads out of it is refused."""
    with _opened(archive) as (names, _):
        return names


@contextmanager
def unpacked(archive: Path, wanted: Callable[[PurePosixPath], bool]) -> Iterator[Path]:
    """Give a folder with the wanted files of an archive, for as long as it is needed."""
    with tempfile.TemporaryDirectory(prefix="prbench-") as folder, _opened(archive) as (names, read):
        written = 0
        for name in filter(wanted, names):
            place = Path(folder) / name
            place.parent.mkdir(parents=True, exist_ok=True)
            with read(name) as source, place.open("wb") as target:
                while chunk := source.read(_CHUNK):
                    written += len(chunk)
                    if written > MOST_BYTES:
                        size = f"{MOST_BYTES / (1 << 30):g} GiB"
                        raise DataError(f"{archive}: unpacks to more than {size}. Unpack it, and pass the folder.")
                    _write(target, chunk, folder)
        yield Path(folder)


def _write(target: IO[bytes], chunk: bytes, folder: str) -> None:
    try:
        target.write(chunk)
    except OSError as error:
        place = shutil.disk_usage(folder).free
        fact = f"The temporary folder {folder} cannot be written ({error.strerror}; {place} bytes are free)"
        raise UsageError(f"{fact}. Set TMPDIR to a folder with more room.") from error


@contextmanager
def _opened(archive: Path) -> Iterator[tuple[list[PurePosixPath], Callable[[PurePosixPath], IO[bytes]]]]:
    """Give the names of the files, and what opens one of them."""
    try:
        if zipfile.is_zipfile(archive):
            with zipfile.ZipFile(archive) as zipped:
                files = {PurePosixPath(one.filename): one for one in zipped.infolist() if _is_plain(one)}
                yield _checked(archive, list(files)), lambda name: zipped.open(files[name])
        else:
            with tarfile.open(archive) as tar:
                members = {PurePosixPath(one.name): one for one in tar if one.isfile()}  # no links, no devices
                yield _checked(archive, list(members)), lambda name: _member(tar, members[name])
    except _DAMAGE as error:
        fact = " ".join(str(error).split()) or type(error).__name__
        raise DataError(f"{archive}: the archive cannot be read ({fact}). Copy or download it again.") from error


def _is_plain(one: zipfile.ZipInfo) -> bool:
    return not one.is_dir() and not stat.S_ISLNK(one.external_attr >> 16)


def _member(tar: tarfile.TarFile, member: tarfile.TarInfo) -> IO[bytes]:
    found = tar.extractfile(member)
    if found is None:
        raise tarfile.ReadError(f"{member.name} is no file")
    return found


def _checked(archive: Path, names: list[PurePosixPath]) -> list[PurePosixPath]:
    if len(names) > MOST_FILES:
        raise DataError(f"{archive}: holds more than {MOST_FILES} files. Unpack it, and pass the folder.")
    for name in names:
        if name.is_absolute() or ".." in name.parts or "\\" in str(name):
            raise DataError(f"{archive}: holds {name}, which leads out of it. Do not trust this archive.")
    return sorted(names)
