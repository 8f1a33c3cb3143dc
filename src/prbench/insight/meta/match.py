"""The same model under two names: what is matched, by which rule, what is left over, and what it may have meant."""

import csv
import io
import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from prbench.errors import DataError
from prbench.insight.meta.board import Board, Pair
from prbench.reward_models.view import without_kind

CLOSE = 0.75  # similarity from which a name is suggested
COLUMNS = ("from", "to")
SAME, SPELLING, ORGANISATION = "the same name", "spelling", "without the organisation"


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """One model on both sides."""

    benchmark: str
    downstream: str
    rule: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Matches:
    """How the names of two boards go together."""

    matched: tuple[Match, ...]
    only_benchmark: tuple[str, ...]
    only_downstream: tuple[str, ...]
    suggestions: tuple[tuple[str, str], ...]  # names that look alike and were not used


def read_map(path: Path) -> dict[str, str]:
    """Return other names for models: a CSV with the columns from,to, or a JSON object."""
    if not path.exists():
        raise DataError(f"--map {path}: there is no such file.")
    try:
        text = path.read_text(encoding="utf-8-sig")
        names = json.loads(text) if path.suffix.lower() == ".json" else _csv_map(text, path)
    except ValueError:
        raise DataError(
            f"--map {path}: is not valid. Write a CSV with the columns from,to, or a JSON object."
        ) from None
    if not isinstance(names, dict) or not all(isinstance(each, str) for each in names.values()):
        raise DataError(f"--map {path}: must be an object of names, e.g. {{'Skywork-V2-8B': 'Skywork/…'}}.")
    return names


def _csv_map(text: str, path: Path) -> dict[str, str]:
    reader = csv.DictReader(io.StringIO(text))
    if tuple(reader.fieldnames or ()) != COLUMNS:
        raise DataError(f"--map {path}: must have the columns from,to. It has {', '.join(reader.fieldnames or ())}.")
    names: dict[str, str] = {}
    for row in reader:
        before, after = (str(row[column] or "").strip() for column in COLUMNS)
        if not before or not after:
            raise DataError(f"--map {path}:{reader.line_num}: a name is empty. Give both, or drop the line.")
        if names.get(before, after) != after:
            raise DataError(f"--map {path}:{reader.line_num}: {before!r} has two meanings. Keep one.")
        names[before] = after
    return names


def apply_map(boards: Sequence[Board], names: Mapping[str, str]) -> tuple[list[Board], list[str]]:
    """Return the boards under the names of the map, and a line about every name that no board has."""
    known = {model for board in boards for model in board.models}
    notes = [f"The map names {name!r}, which is on no board." for name in names if name not in known]
    renamed = [board.renamed(names) for board in boards]
    for board in renamed:
        twice = [model for model, count in Counter(board.models).items() if count > 1]
        if twice:
            raise DataError(f"{board.name}: the map gives the name {twice[0]!r} to two models. Correct the map.")
    return renamed, notes


def match(benchmark: Board, downstream: Board) -> Matches:
    """Match the models of two boards; a rule counts only where it leaves no choice."""
    matched: dict[str, Match] = {}
    taken: set[str] = set()
    for rule, key in ((SAME, str), (SPELLING, _spelling), (ORGANISATION, _without_organisation)):
        left = [name for name in benchmark.models if name not in matched]
        right = [name for name in downstream.models if name not in taken]
        ours, theirs = (Counter(map(key, names)) for names in (left, right))
        by_key = {key(name): name for name in right}
        for name in left:
            other = by_key.get(key(name))
            if other is None or ours[key(name)] > 1 or theirs[key(name)] > 1:
                continue
            if rule == ORGANISATION and "/" in name and "/" in other:
                continue  # two organisations, so two models
            matched[name] = Match(benchmark=name, downstream=other, rule=rule)
            taken.add(other)
    only_ours = tuple(name for name in benchmark.models if name not in matched)
    only_theirs = tuple(name for name in downstream.models if name not in taken)
    return Matches(
        matched=tuple(matched[name] for name in benchmark.models if name in matched),
        only_benchmark=only_ours,
        only_downstream=only_theirs,
        suggestions=tuple(_suggestions(only_ours, only_theirs)),
    )


def pair_up(benchmark: Board, downstream: Board) -> tuple[Pair, Matches]:
    """Return both boards with the models that they share, under the benchmark's names."""
    found = match(benchmark, downstream)
    names = {each.downstream: each.benchmark for each in found.matched}
    shared = [each.benchmark for each in found.matched]
    pair = Pair(benchmark=benchmark.of(shared), downstream=downstream.renamed(names).of(shared))
    return pair, found


def _spelling(name: str) -> str:
    """Return a name without case, and with one sign for all that separates words."""
    return re.sub(r"[\s_\-]+", "-", name.strip().casefold()).removesuffix("-")


def _without_organisation(name: str) -> str:
    """Return the last part of a path or hub id, without the kind of a spec."""
    return _spelling(without_kind(name)).rpartition("/")[2]


def _suggestions(left: Sequence[str], right: Sequence[str]) -> list[tuple[str, str]]:
    by_key = {_without_organisation(name): name for name in right}
    found = []
    for name in left:
        close = get_close_matches(_without_organisation(name), by_key, n=1, cutoff=CLOSE)
        found += [(name, by_key[key]) for key in close]
    return found
