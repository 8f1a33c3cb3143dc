"""What the importers share: reading a file through one of them, ids for rows without, columns that are not ours."""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TypeAlias

from prbench.data.rows import refuse, shown
from prbench.data.source import Source
from prbench.schema import Json

ToRows: TypeAlias = Callable[[Mapping[str, Json], str], list[dict[str, Json]]]


def read_with(to_rows: ToRows, path: str | Path) -> Iterator[dict[str, Json]]:
    """Yield our rows from a file or folder of rows that are known to be in the importer's format."""
    for raw in Source(path=str(path)).rows():
        if raw.problem:
            raise raw.refusal()
        try:
            rows = to_rows(raw.value, raw.where)
        except KeyError as error:
            remedy = "Check that this is the file you meant"
            raise refuse(raw.where, str(error.args[0]), "is missing", remedy) from None
        yield from rows


def content_id(*parts: Json) -> str:
    """An id made of the row's content, for rows that have none: it survives sorting and filtering."""
    text = json.dumps(parts, ensure_ascii=True, sort_keys=True, default=str)
    return f"row-{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def leftover(raw: Mapping[str, Json], used: frozenset[str], added: frozenset[str], where: str) -> dict[str, Json]:
    """The columns that the importer does not use; they go to `meta`. One that it would overwrite is refused."""
    for name in raw.keys() & added - used:
        if raw[name] is not None:
            fact = f"the importer needs the name {shown(name)} for a column of its own"
            raise refuse(where, name, fact, "Rename your column")
    return {name: value for name, value in raw.items() if name not in used}
