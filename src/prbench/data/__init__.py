"""Datasets: open any source as checked examples, and write examples in the official layout."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, Self

from prbench.data.export import write_dataset
from prbench.data.source import is_named, kind_of_dataset
from prbench.data.store import ExampleStore, MadeExamples, content_hash, open_examples, raw_rows, split_names
from prbench.errors import UsageError
from prbench.runs.manifest import Keys
from prbench.schema import Example, Json, RatedExample
from prbench.specs import check_at_least

Rows = str | Path | Iterable[Example | RatedExample | Mapping[str, Json]]


@dataclass(frozen=True, kw_only=True)
class DataSettings:
    """Which rows to take. `source` is how the command line names them; empty for rows given in Python."""

    source: str = ""
    subset: str | None = None
    split: str | None = None
    revision: str | None = None
    limit: int | None = None
    skip_bad_rows: int = 0
    columns: str = ""  # which columns are meant (`prbench.data.columns`)

    KEYS: ClassVar[Keys] = Keys(
        source="", subset=None, split=None, revision=None, limit=None, skip_bad_rows=0, columns=""
    )

    def to_config(self) -> dict[str, Json]:
        """Return where rows came from, as a manifest holds it. The rows themselves are named by their hash."""
        return self.KEYS.write(self)

    @classmethod
    def from_config(cls, config: Mapping[str, Json]) -> Self:
        """Return what a manifest holds."""
        return cls(**cls.KEYS.read(config))


def load_dataset(
    data: Rows,
    *,
    subset: str | None = None,
    split: str | None = None,
    revision: str | None = None,
    limit: int | None = None,
    skip_bad_rows: int = 0,
    columns: str = "",
) -> ExampleStore:
    """Return the checked examples of a dataset: a sequence of `Example`, or of rated rows.

        pairs = prbench.load_dataset("lab", limit=100)
        print(len(pairs), pairs[0].question)

    `data` is a path, a hub id, `lab`, or rows. A bad row is an error, unless `skip_bad_rows` tolerates so many.
    `columns` says which columns are meant, as `--columns` does: `"prompt=ask,chosen=good,rejected=bad"`.
    """
    which = select_rows(data, subset=subset, split=split, revision=revision, limit=limit, skip_bad_rows=skip_bad_rows)
    which = replace(which, columns=columns)
    return open_data(which, None if which.source else data)


def open_data(which: DataSettings, rows: Rows | None = None) -> ExampleStore:
    """Open the rows that `which.source` names, or those given in Python."""
    return open_examples(
        which.source if rows is None else rows,
        subset=which.subset,
        split=which.split,
        revision=which.revision,
        limit=which.limit,
        skip_bad_rows=which.skip_bad_rows,
        columns=which.columns,
    )


def select_rows(
    data: Rows,
    *,
    subset: str | None = None,
    split: str | None = None,
    revision: str | None = None,
    limit: int | None = None,
    skip_bad_rows: int = 0,
) -> DataSettings:
    """Return what keyword arguments say of the rows to take; `source` stays empty for rows given in Python."""
    if isinstance(data, Mapping) or not isinstance(data, str | Path | Iterable):
        raise UsageError(
            f"data of type {type(data).__name__} cannot be read. Give a path, a name, a hub id, or a list of rows."
        )
    check_at_least(1, limit=limit)
    return DataSettings(
        source=str(data) if isinstance(data, str | Path) else "",
        subset=subset,
        split=split,
        revision=revision,
        limit=limit,
        skip_bad_rows=skip_bad_rows,
    )


__all__ = [
    "DataSettings",
    "ExampleStore",
    "MadeExamples",
    "Rows",
    "content_hash",
    "is_named",
    "kind_of_dataset",
    "load_dataset",
    "open_data",
    "open_examples",
    "raw_rows",
    "select_rows",
    "split_names",
    "write_dataset",
]
