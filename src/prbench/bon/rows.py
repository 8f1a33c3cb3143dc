"""Files of rows that a later command continues: append-only while it runs, in order when it is done."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from prbench.errors import RunError
from prbench.folders import read_json, take_lock, write_json, write_lines
from prbench.schema import Json

MANIFEST = "manifest.json"
Row = Mapping[str, Json]


class RowFile:
    """One row per key, in a folder of its own that says what the rows depend on.

    A row that is written is safe from a kill. Of several rows with one key the latest counts, and `settle` drops the
    others and sorts the rest, so that the bytes do not tell how often the work was interrupted.
    """

    def __init__(self, folder: Path, name: str, config: Mapping[str, Json], *, keys: Sequence[str] = ("id",)) -> None:
        self.folder = folder
        self.rows: dict[tuple[str, ...], Row] = {}
        self._path = folder / name
        self._keys = tuple(keys)
        self._settled: list[tuple[str, ...]] = []  # in the order of the file
        folder.mkdir(parents=True, exist_ok=True)
        self._lock = take_lock(folder)
        try:
            self._check_manifest(config)
            self._read()
            # Half a surrogate pair in a model's reply is no UTF-8; escaped, it is still the same JSON.
            self._file = self._path.open("a", encoding="utf-8", errors="backslashreplace")
        except BaseException:
            self._lock.close()
            raise

    def append(self, rows: Sequence[Row]) -> None:
        """Write rows; when this returns, killing the process cannot lose them."""
        self._file.write("".join(json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n" for row in rows))
        self._file.flush()
        for row in rows:
            self._remember(row)

    def settle(self, places: Mapping[str, int]) -> None:
        """Sort the rows whose id has a place, one row per key; the file is replaced whole, or not at all.

        Rows without a place stay where they are: a command that asks for less does not move what others asked for.
        """
        present = list(dict.fromkeys(self._settled))
        placed = iter(sorted((key for key in present if key[0] in places), key=lambda key: (places[key[0]], key)))
        order = [next(placed) if key[0] in places else key for key in present]
        if order != self._settled:
            write_lines(self._path, (self.rows[key] for key in order))
            self._settled = order
            self._file.close()
            self._file = self._path.open("a", encoding="utf-8", errors="backslashreplace")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()
        self._lock.close()

    def _check_manifest(self, config: Mapping[str, Json]) -> None:
        path, plain = self.folder / MANIFEST, json.loads(json.dumps(config))
        if not path.exists():
            write_json(path, {"config": plain})
        elif read_json(path).get("config") != plain:
            raise RunError(f"{path}: this folder was made with another configuration. Use another --out.")

    def _read(self) -> None:
        """Read what is there, and cut off a last line that a kill left unfinished."""
        if not self._path.exists():
            return
        end = 0
        for line in _whole_lines(self._path):
            try:
                self._remember(json.loads(line))
            except (ValueError, KeyError, TypeError):
                place = f"{self._path}: byte {end}"
                raise RunError(f"{place}: not a row of ours. Restore the file, or remove it.") from None
            end += len(line)
        if end < self._path.stat().st_size:
            with self._path.open("rb+") as file:
                file.truncate(end)

    def _remember(self, row: Row) -> None:
        key = tuple(str(row[name]) for name in self._keys)
        self.rows[key] = row
        self._settled.append(key)


def _whole_lines(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        for line in file:
            if not line.endswith(b"\n"):
                return
            yield line
