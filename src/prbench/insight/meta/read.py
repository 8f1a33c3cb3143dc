"""Result files at the border: tables of others, and what our own commands leave behind, become boards.

Of tables that others publish, it is known which column is the score, and how subsets are weighed into one. A source is
`FILE`, `FILE#COLUMN` or `NAME=FILE#COLUMN`. `FILE#*` takes every column of numbers as a board of its own.
"""

import csv
import io
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from prbench.errors import DataError, RunError, UsageError
from prbench.insight.meta.board import BoardSource, ModelBoard, board_of_items, board_of_scores, tabulate
from prbench.insight.meta.families import RULES, family_by_rule
from prbench.insight.meta.run_results import (
    ROW_FACTS,
    ModelResult,
    boards_of_models,
    is_prbench_result,
    read_result_file,
    read_run,
)
from prbench.metrics.official import REWARDBENCH_SECTIONS
from prbench.runs import MANIFEST, find_runs
from prbench.runs.files import BON, EVAL, PPO
from prbench.schema import Json

MODEL_NAMES, SCORE, ITEM, USER = ("model", "name"), "score", "item", "user"
SIZE, FAMILY, SEED = "size", "family", "seed"
ALL = "*"
BENCHMARK_KINDS, DOWNSTREAM_KINDS = (EVAL,), (BON, PPO)
TABLES = (".csv", ".tsv", ".json", ".jsonl")
_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([kmbt]?)", re.IGNORECASE)
# As people write numbers in tables; `float` also reads 0_55 as 55, and the digits of any script.
_PLAIN_NUMBER = re.compile(
    r"\s*([+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?|[+-]?inf(inity)?|nan)\s*", re.I | re.ASCII
)
_UNITS = {"": 1.0, "k": 1e3, "m": 1e6, "b": 1e9, "t": 1e12}
SUBSETS = frozenset(subset for section in REWARDBENCH_SECTIONS.values() for subset in section)


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedTable:
    """How a published table is known, and which column ranks its models."""

    name: str
    needs: frozenset[str]  # columns that only this table has together
    score: str


PUBLISHED = (
    PublishedTable(
        name="RewardBench 2", needs=frozenset({"average", "factuality", "precise_if", "focus"}), score="average"
    ),
    PublishedTable(name="RM-Bench", needs=frozenset({"overall", "easy", "normal", "hard"}), score="overall"),
    PublishedTable(name="RewardBench", needs=SUBSETS | {"overall"}, score="overall"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultTable:
    """Rows of a file, each with the place where it stands."""

    path: Path
    columns: tuple[str, ...]
    rows: tuple[tuple[str, Mapping[str, Json]], ...]  # "file:line", row


def read_boards(
    sources: Sequence[str],
    *,
    at_kl: float | None = None,
    prefer: Sequence[str] = BENCHMARK_KINDS,
    family_by: str = "",
) -> list[ModelBoard]:
    """Return the boards that the sources name. Files about one model each are put together, by what they measure.

    Of a folder that holds runs of several kinds, the `prefer`red ones are taken; the notes of a board name the others.
    `family_by` is a column of tables (default: `family`), or a rule on names (`kind`, `method`, `name`).
    """
    boards: list[ModelBoard] = []
    single: list[ModelResult] = []
    left_out: list[str] = []
    for text in sources:
        source = replace(parse_source(text), at_kl=at_kl)
        path = source.path
        if not path.exists():
            raise DataError(f"{path}: there is no such file. Give a CSV or JSON file, or a folder of runs.")
        if path.is_dir() or (path / MANIFEST).exists():
            found, others = _of_folder(source, prefer)
            single += found
            left_out += others
            continue
        if path.suffix.lower() not in TABLES:
            raise DataError(f"{path}: is none of {', '.join(TABLES)}. Give a table of models, or a folder of runs.")
        try:
            content = json.loads(_text_of(path)) if path.suffix.lower() == ".json" else None
        except (ValueError, RecursionError):
            raise DataError(f"{path}: is not valid JSON. Write the file again.") from None
        if is_prbench_result(content):
            single += read_result_file(source, content)
        else:
            boards += _of_table(source, _table_of(path, content), family_by)
    ours = [_with_families(board, family_by) for board in boards_of_models(single)]
    ours[:1] = [replace(board, notes=(*left_out, *board.notes)) for board in ours[:1]]
    return _numbered([*boards, *ours])


def check_families(boards: Sequence[ModelBoard], family_by: str) -> None:
    """Refuse a column that no table has, and that is no rule."""
    if family_by and family_by not in RULES and not any(board.families for board in boards):
        raise UsageError(
            f"--family-by {family_by}: no source tells a family there. Name a column of a table, or a rule: "
            f"{', '.join(RULES)}."
        )


def _with_families(board: ModelBoard, family_by: str) -> ModelBoard:
    """Return the board with the families that a rule reads off its models' names, if a rule was named."""
    if family_by not in RULES:
        return board
    return replace(board, families={model: family_by_rule(model, family_by) for model in board.models})


def parse_source(text: str) -> BoardSource:
    """Take `NAME=FILE#COLUMN` apart; a file whose name has these signs in it is found as it is."""
    if Path(text).exists():
        return BoardSource(name="", path=Path(text), column="")
    name, mark, rest = text.partition("=")
    if not mark or "/" in name or "#" in name:
        name, rest = "", text
    file, _, column = rest.partition("#")
    if Path(rest).exists():
        file, column = rest, ""
    if not file:
        raise UsageError(f"{text!r}: names no file. Write FILE, FILE#COLUMN or NAME=FILE#COLUMN.")
    return BoardSource(name=name, path=Path(file), column=column)


def _of_folder(source: BoardSource, prefer: Sequence[str]) -> tuple[list[ModelResult], list[str]]:
    """Return the models of one run, or of the runs in a folder, and a line about each folder that was left out."""
    runs = find_runs([source.path], kinds=(*BENCHMARK_KINDS, *DOWNSTREAM_KINDS), groups=ROW_FACTS)
    left_out = list(runs.left_out)
    models: list[ModelResult] = []
    is_mixed = len({run.kind in prefer for run in runs.runs}) > 1
    for run in runs.runs:
        if is_mixed and run.kind not in prefer:
            left_out.append(f"{run.folder}: made by `prbench {run.kind}`, which is for the other side; left out.")
            continue
        try:
            models += read_run(run, source)
        except RunError as error:
            if len(runs.runs) == 1:
                raise
            left_out.append(f"{error} Left out.")
    if not models:
        raise RunError(left_out[0])
    return models, left_out


def _text_of(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: is not UTF-8 (byte {error.start}). Save it as UTF-8.") from None


def _table_of(path: Path, content: Json) -> ResultTable:
    rows = [(place, row) for place, row in _rows_of(path, content) if any(str(each).strip() for each in row.values())]
    if not rows:
        raise DataError(f"{path}: has no rows. A board needs a line per model, with columns such as model,score.")
    columns = tuple(dict.fromkeys(str(key) for _, row in rows for key in row))
    return ResultTable(path=path, columns=columns, rows=tuple(rows))


def _rows_of(path: Path, content: Json) -> Iterator[tuple[str, Mapping[str, Json]]]:
    """Yield the rows of a table with where they stand."""
    match path.suffix.lower():
        case ".json":
            if not isinstance(content, list) or not all(isinstance(row, dict) for row in content):
                raise DataError(f"{path}: is no list of models, and no result of prbench. Give a list of objects.")
            is_rewardbench = all(row.keys() >= SUBSETS for row in content)
            for number, row in enumerate(content, start=1):
                place = f"{path}, entry {number}"
                yield place, _with_sections(row, place) if is_rewardbench else row
        case ".jsonl":
            for number, line in enumerate(io.StringIO(_text_of(path)), start=1):  # which ends lines at \n alone
                try:
                    row = json.loads(line)
                except (ValueError, RecursionError):
                    row = None
                if not isinstance(row, dict):
                    raise DataError(f"{path}:{number}: is no JSON object. Write one object per line.")
                yield f"{path}:{number}", row
        case suffix:
            reader = csv.DictReader(io.StringIO(_text_of(path)), delimiter="\t" if suffix == ".tsv" else ",")
            names = [name.strip() for name in reader.fieldnames or ()]
            if twice := sorted({name for name in names if names.count(name) > 1}):
                raise DataError(f"{path}:1: has the column {twice[0]!r} twice. Rename one of them.")
            try:
                for row in reader:
                    place = f"{path}:{reader.line_num}"
                    if None in row or None in row.values():
                        line = f"{place}: has not as many fields as the header. Quote fields that hold commas."
                        raise DataError(line)
                    yield place, row
            except csv.Error as error:
                place = f"{path}:{reader.line_num + 1}"
                raise DataError(f"{place}: cannot be read ({error}). Look for a quote that is not closed.") from None


def _with_sections(row: Mapping[str, Json], place: str) -> dict[str, Json]:
    """Return a row of RewardBench with its section scores and their mean, `overall`; without gaps in the subsets."""
    try:
        sections = {
            name: sum(count * float(row[subset]) for subset, count in subsets.items()) / sum(subsets.values())
            for name, subsets in REWARDBENCH_SECTIONS.items()
        }
    except (TypeError, ValueError):
        raise DataError(f"{place}: a subset of RewardBench is no number. Correct it, or drop the model.") from None
    return {**row, **sections, "overall": sum(sections.values()) / len(sections)}


def _of_table(source: BoardSource, table: ResultTable, family_by: str) -> list[ModelBoard]:
    layout = next((known for known in PUBLISHED if known.needs <= set(table.columns)), None)
    by_name = {column.strip().lower(): column for column in reversed(table.columns)}
    model = next((by_name[name] for name in MODEL_NAMES if name in by_name), None)
    if model is None:
        raise DataError(f"{table.path}: has no column 'model'. Its columns: {', '.join(table.columns)}.")
    family = family_by or FAMILY
    if source.column == ALL:
        return [
            _board(table, model, column, name=f"{source.name} {column}".strip(), family=family)
            for column in _numeric_columns(table, model, family)
        ]
    score = source.column or (layout.score if layout else SCORE)
    if score not in table.columns:
        known = ", ".join(column for column in table.columns if column != model)
        raise DataError(f"{table.path}: has no column {score!r}. Choose one with FILE#COLUMN: {known}.")
    name = source.name or source.column or (layout.name if layout else table.path.stem)
    return [_board(table, model, score, name=name, family=family)]


def _numeric_columns(table: ResultTable, model: str, family: str) -> list[str]:
    """Return the columns that hold numbers and gaps alone, at least two of them different."""
    found = []
    for column in table.columns:
        if column in (model, family) or column.lower() in (ITEM, USER, SIZE, FAMILY, SEED):
            continue
        values = [_number(row.get(column)) for _, row in table.rows]
        known = {value for value in values if isinstance(value, float)}
        if None not in values and len(known) > 1:
            found.append(column)
    if not found:
        raise DataError(f"{table.path}: has no column of numbers. Give scores as plain numbers.")
    return found


def _number(value: Json) -> float | str | None:
    """Return the number, "" for a gap, or `None` for anything else."""
    if value is None or (isinstance(value, str) and not value.strip()):
        return ""
    if isinstance(value, bool) or (isinstance(value, str) and not _PLAIN_NUMBER.fullmatch(value)):
        return None
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    if math.isnan(number):
        return ""
    return number if math.isfinite(number) else None


def _board(table: ResultTable, model: str, score: str, *, name: str, family: str) -> ModelBoard:
    """Return the board of one column: means over items where there are items, and over seeds where there are seeds."""
    rows = list(_values(table, model, score))
    known = [(who, item, user, seed, value) for who, item, user, seed, value in rows if value is not None]
    if not known:
        raise DataError(f"{table.path}: no model has a {score}. Choose another column with FILE#COLUMN.")
    gaps = len(rows) - len(known)
    notes = (f"{name}: {gaps} rows without a {score} are left out.",) if gaps else ()
    sizes: dict[str, float] = {}
    families: dict[str, str] = {}
    for place, row in table.rows:
        who, size, told = (_word(row, column) for column in (model, SIZE, family))
        if size:
            found = _SIZE.fullmatch(size)
            if found is None:
                raise DataError(f"{place}: size is {size[:40]!r}. Write a number of parameters, e.g. 8B or 350M.")
            sizes[who] = float(found[1]) * _UNITS[found[2].lower()]
        if told and families.setdefault(who, told) != told:
            raise DataError(f"{place}: {who!r} is of two families, {families[who]!r} and {told!r}. Keep one.")
    by_seed: dict[str, dict[str, list[float]]] = {}
    for who, _, _, seed, value in known:
        by_seed.setdefault(who, {}).setdefault(seed, []).append(value)
    means = {who: tuple(fmean(each) for each in seeds.values()) for who, seeds in by_seed.items()}
    more: dict[str, Any] = {
        "sizes": sizes,
        "families": families,
        "seeds": {who: several for who, several in means.items() if len(several) > 1},
        "notes": notes,
    }
    if ITEM in table.columns:
        by_item: dict[tuple[str, str, str], list[float]] = {}
        for who, item, user, _, value in known:
            by_item.setdefault((who, item, user), []).append(value)
        models, items = tabulate([(*key, fmean(several)) for key, several in by_item.items()])
        board = board_of_items(name, models, items, **more)
    else:
        board = board_of_scores(name, {who: fmean(several) for who, several in means.items()}, **more)
    return board if family in table.columns else _with_families(board, family)


def _values(table: ResultTable, model: str, score: str) -> Iterator[tuple[str, str, str, str, float | None]]:
    """Yield the model, item, user, seed and score of every row, checked; a gap is `None`."""
    has_items = ITEM in table.columns
    seen: set[tuple[str, str, str]] = set()
    for place, row in table.rows:
        who, item, user, seed = (_word(row, column) for column in (model, ITEM, USER, SEED))
        value = _number(row.get(score))
        if not who:
            raise DataError(f"{place}: has no model. Name it, or drop the row.")
        if value is None:
            raise DataError(f"{place}: {score} is {str(row.get(score))[:40]!r}, and no number. Correct it.")
        if has_items and not item:
            raise DataError(f"{place}: has no item, and other rows have one. Name it, or drop the column.")
        if (who, item, seed) in seen:
            twice = f"{who!r} has item {item!r} twice" if has_items else f"{who!r} is there twice"
            raise DataError(f"{place}: {twice}. Keep one row.")
        seen.add((who, item, seed))
        yield who, item, user or item, seed, None if isinstance(value, str) else value


def _word(row: Mapping[str, Json], column: str) -> str:
    found = row.get(column)
    return "" if found is None else str(found).strip()


def _numbered(boards: Sequence[ModelBoard]) -> list[ModelBoard]:
    """Number boards of the same name."""
    names = [board.name for board in boards]
    seen: dict[str, int] = {}
    found = []
    for board in boards:
        seen[board.name] = seen.get(board.name, 0) + 1
        twice = names.count(board.name) > 1
        found.append(replace(board, name=f"{board.name} ({seen[board.name]})") if twice else board)
    return found
