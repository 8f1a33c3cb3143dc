"""Files out and files in: which formats there are, and which one a file is."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from prbench.data.source import read_file
from prbench.errors import DataError, UsageError
from prbench.people.annotate import argilla, label_studio
from prbench.people.annotate.records import Mode
from prbench.people.annotate.rows import AnswerRow, TakenIn, answer_rows, pair_rows, take_in_rows
from prbench.people.annotate.store import Store
from prbench.runs.files import write_text
from prbench.schema import Json

ROWS, PAIRS, ARGILLA, LABEL_STUDIO = "rows", "pairs", "argilla", "label-studio"
ARGILLA_SETTINGS, LABEL_STUDIO_CONFIG = "argilla-settings", "label-studio-config"
FORMATS = (ROWS, PAIRS, ARGILLA, LABEL_STUDIO, ARGILLA_SETTINGS, LABEL_STUDIO_CONFIG)
COMPANIONS = {ARGILLA: (ARGILLA_SETTINGS, ".settings.json"), LABEL_STUDIO: (LABEL_STUDIO_CONFIG, ".config.xml")}


@dataclass(frozen=True, kw_only=True)
class Export:
    """One file to be written or downloaded."""

    name: str
    text: str
    media_type: str = "application/json"


def export(store: Store, form: str) -> Export:
    """Return a project's answers in one of the formats."""
    match form:
        case "rows":
            return Export(name="answers.jsonl", text=_lines(answer_rows(store)), media_type="application/x-ndjson")
        case "pairs":
            if store.project.mode is not Mode.COLLECT:
                raise UsageError("Only a project in mode collect gives new pairs. Use rows, argilla or label-studio.")
            return Export(name="pairs.jsonl", text=_lines(pair_rows(store)), media_type="application/x-ndjson")
        case "argilla":
            return Export(name="argilla.json", text=_document(argilla.to_records(store)))
        case "argilla-settings":
            return Export(name="argilla.settings.json", text=_document(argilla.to_settings(store)))
        case "label-studio":
            return Export(name="label-studio.json", text=_document(label_studio.to_tasks(store)))
        case "label-studio-config":
            config = label_studio.to_config(store)
            return Export(name="label-studio.config.xml", text=config, media_type="application/xml")
        case _:
            raise UsageError(f"There is no format {form!r}. There are: {', '.join(FORMATS)}.")


def write_export(store: Store, form: str, path: Path) -> list[Path]:
    """Write an export, and beside it what the other tool needs to read it; return the files."""
    written = {path: export(store, form).text}
    if form in COMPANIONS:
        other, suffix = COMPANIONS[form]
        written[path.with_name(path.stem + suffix)] = export(store, other).text
    for place in written:
        _spare_project(store, place)
    for place, text in written.items():
        write_text(place, text)
    return list(written)


def _spare_project(store: Store, place: Path) -> None:
    """Refuse to write over the project's own files."""
    own = [store.database.path.with_name(store.database.path.name + end) for end in ("", "-wal", "-shm")]
    is_same = place.exists() and any(each.exists() and place.samefile(each) for each in own)
    if is_same or place.resolve() in [each.resolve() for each in own]:
        raise UsageError(f"{place}: is a file of the project itself. Give --to another name.")


def take_in_file(store: Store, path: Path) -> TakenIn:
    """Add the answers of a file in any of the three formats; all are checked before one is added."""
    if not path.is_file():
        raise UsageError(f"{path}: there is no such file. Check the path.")
    found = []
    for row in read_file(path):
        if row.problem:
            raise DataError(f"{row.where}: {row.problem}.")
        found.append((row.where, row.value))
    return take_in_rows(store, _as_rows(store, found, path))


def _as_rows(store: Store, found: list[tuple[str, Json]], path: Path) -> Iterable[tuple[str, AnswerRow]]:
    first = found[0][1] if found else None
    if not isinstance(first, dict):
        raise DataError(f"{path}: holds no answers. Give a file of prbench annotate, Argilla or Label Studio.")
    if "fields" in first:
        return argilla.to_rows(store, [row for _, row in found], str(path))
    if "data" in first:
        return label_studio.to_rows(store, [row for _, row in found], str(path))
    return found


def _lines(rows: Iterable[Json]) -> str:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def _document(content: Json) -> str:
    return json.dumps(content, ensure_ascii=False, indent=1) + "\n"
