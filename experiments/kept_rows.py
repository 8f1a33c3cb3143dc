"""Rows of a benchmark as a compressed table: the same rows give the same bytes."""

import csv
import gzip
import io
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any


def write_table(path: Path, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Write `path`, a `.csv.gz` file."""
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(columns)
    table.writerows(rows)
    scratch = path.with_name(f"{path.name}.tmp")  # whoever is killed leaves no half of a file under its name
    with scratch.open("wb") as file, gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0) as zipped:
        zipped.write(text.getvalue().encode())
    scratch.replace(path)


def read_table(path: Path) -> list[dict[str, str]]:
    """Read such a file."""
    with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def scores_move(rows: Iterable[Mapping[str, str]], run: Sequence[str]) -> bool:
    """Tell whether another user's profile changes any score; `run` names the columns that tell runs apart.

    A model whose scores never change ignores the user for certain: its swap gap is 0 without an interval.
    """
    scores: dict[tuple[str, ...], dict[str, tuple[str, str]]] = {}
    for row in rows:
        item = (*(row[name] for name in run), row["id"])
        scores.setdefault(item, {})[row["probe"]] = (row["score_chosen"], row["score_rejected"])
    return any(each["own"] != each["swap"] for each in scores.values() if "swap" in each)
