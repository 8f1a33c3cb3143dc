"""The file of items to label: written best first, and never over a file that is something else."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from prbench.data.export import write_jsonl
from prbench.data.source import read_file
from prbench.errors import DataError, UsageError
from prbench.schema import Example, Json

MARK = "label_next"  # in `meta` of every row: its rank, and of how many; by it the file is known again


def write_label_file(rows: Sequence[Example], path: Path) -> None:
    """Write the rows in their order, each with the mark that makes the file ours."""
    write_jsonl(
        (
            replace(row, meta={**row.meta, MARK: {"rank": rank, "of": len(rows)}})
            for rank, row in enumerate(rows, start=1)
        ),
        path,
    )


def check_overwrites_nothing(path: Path, sources: Iterable[str]) -> None:
    """Stop unless `path` is free, or is a label file that none of the `sources` of the runs' data needs."""
    if not path.exists():
        return
    if not path.is_file():
        raise UsageError(f"--label-file {path}: is not a file. Name a file, e.g. {path / 'label_next.jsonl'}.")
    if any(path.resolve().is_relative_to(Path(source).expanduser().resolve()) for source in sources):
        raise UsageError(f"--label-file {path}: holds data of these runs. Choose another name.")
    if not is_label_file(path):
        raise UsageError(
            f"--label-file {path}: exists already, and --label-next did not write it. Choose another name, or move "
            "the file away."
        )


def is_label_file(path: Path) -> bool:
    """True if every row has its mark, in order and complete: rows taken from a label file are no label file."""
    rank, mark = 0, None
    try:
        for rank, row in enumerate(read_file(path), start=1):
            mark = _mark(row.value)
            if mark is None or mark.get("rank") != rank:
                return False
    except DataError:  # damaged, or of another kind
        return False
    return mark is not None and mark.get("of") == rank


def _mark(row: Json) -> dict[str, Json] | None:
    meta = row.get("meta") if isinstance(row, dict) else None
    mark = meta.get(MARK) if isinstance(meta, dict) else None
    return mark if isinstance(mark, dict) else None
