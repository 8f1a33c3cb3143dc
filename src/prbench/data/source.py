"""Raw rows with their place: of a named dataset, from a JSON, JSONL or Parquet file, or from a folder of such files.

What a file is comes from its first bytes, not from its name. A row that cannot be read is a row with a `problem`;
only damage after which nothing more can be read ends the reading.
"""

import gzip
import json
import os
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import chain
from pathlib import Path
from typing import IO, cast

from prbench.backends.own_code import each_of, load_python
from prbench.data import hub
from prbench.data.rows import RawRow
from prbench.errors import DataError, UsageError, needs
from prbench.registry import DATASETS, PYTHON, Kind
from prbench.schema import Example, Json, RatedExample
from prbench.specs import Spec, kind_of, parse_spec

DATA_SUFFIXES = (".jsonl", ".ndjson", ".json", ".jsonl.gz", ".ndjson.gz", ".json.gz", ".parquet")
_OTHER_SUFFIXES = (".gz", ".csv", ".tsv", ".txt", ".zip", ".zst", ".arrow", ".yaml", ".yml", ".xlsx")
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

    @property
    def wanted(self) -> dict[str, str]:
        """What the rows' own `category` and `split` must be, where no config or file name settles it."""
        place = Path(self.path).expanduser()
        if not place.is_file() and not self._is_loose_folder:
            return {}
        by_name = place.is_dir() and any(_splits_by_name(place).values())
        wanted = {"category": self.subset, "split": None if by_name else self.split}
        return {column: value for column, value in wanted.items() if value is not None}

    @property
    def _is_loose_folder(self) -> bool:
        folder = Path(self.path).expanduser()
        return folder.is_dir() and not hub.declares_configs(folder)

    def rows(self) -> Iterator[RawRow]:
        """Yield every raw row, in the order of the files."""
        place = Path(self.path).expanduser()
        if place.is_file():
            self._check_revision()
            return read_file(place)
        if self._is_loose_folder:
            self._check_revision()
            files = _choose_files(_splits_by_name(place), self.split, place)
            return chain.from_iterable(map(read_file, files))
        if not place.is_dir() and _looks_like_path(self.path):
            raise UsageError(_missing(place))
        return hub.read_dataset(str(place) if place.is_dir() else self.path, self.subset, self.split, self.revision)

    def splits(self) -> tuple[str, ...]:
        """The splits that files or configs are named after; none where the rows' own `split` decides."""
        place = Path(self.path).expanduser()
        if place.is_file():
            return ()
        if self._is_loose_folder:
            return tuple(sorted(set(_splits_by_name(place).values()) - {""}))
        return hub.split_names(str(place) if place.is_dir() else self.path, self.subset, self.revision)

    def _check_revision(self) -> None:
        if self.revision is not None:
            raise UsageError(f"{self.path} is a local file or folder, which has no revision. Leave --revision out.")


def read_file(path: Path) -> Iterator[RawRow]:
    """Yield the rows of one JSONL, JSON or Parquet file, zipped or not."""
    try:
        with path.open("rb") as file:
            start = file.read(4)
        if start == b"PAR1":
            yield from _read_parquet(path)
            return
        with gzip.open(path, "rb") if start[:2] == b"\x1f\x8b" else path.open("rb") as file:
            yield from _read_json(cast("IO[bytes]", file), path)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(f"{path}: the compressed file is damaged ({error}). Copy or download it again.") from error
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror or error}). Check the file.") from error


def _read_json(file: IO[bytes], path: Path) -> Iterator[RawRow]:
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
            f"{path}: begins with neither {{ nor [, so it is not JSON, JSONL or Parquet. Write one "
            "JSON object a line, with profile as a list of posts (docs/reference/data-format.md)."
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


def _read_array(file: IO[bytes], path: Path) -> Iterator[RawRow]:
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

    def __init__(self, file: IO[bytes], path: Path) -> None:
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


def _read_parquet(path: Path) -> Iterator[RawRow]:
    with needs("parquet", f"{path}: Parquet"):
        import pyarrow as pa
        import pyarrow.parquet as pq

    number = 0
    try:
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=_BATCH_ROWS):
                for position in range(batch.num_rows):
                    number += 1
                    yield _parquet_row(batch, position, f"{path}:{number}")
    except pa.ArrowException as error:
        fact = " ".join(str(error).split())
        raise DataError(f"{path}:{number + 1}: row: Parquet cannot be read ({fact}). Write the file again.") from error


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


def _splits_by_name(folder: Path) -> dict[Path, str]:
    """The data files, each with the split that its name tells, or `""`."""
    found = sorted(path for path in _files_below(folder) if path.name.endswith(DATA_SUFFIXES))
    names = {path: path.relative_to(folder) for path in found}
    visible = {path: name for path, name in names.items() if not any(part.startswith(".") for part in name.parts)}
    words = {path: _SPLIT_IN_NAME.search(str(name).lower()) for path, name in visible.items()}
    return {path: _SAME_SPLIT.get(word[1], word[1]) if word else "" for path, word in words.items()}


def _choose_files(splits: dict[Path, str], split: str | None, folder: Path) -> Sequence[Path]:
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
