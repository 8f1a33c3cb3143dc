"""The layouts in which scores and replies are recorded: ours, and those of RewardBench, RM-Bench and JudgeBench.

A row is a mapping with an `id`; which layout it has is told by its columns, as it is of data. `docs/reference/
recorded.md` has the tables.
"""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from prbench.data.rows import RawRow, quoted, row_error
from prbench.data.source import read_file
from prbench.schema import Json, Pick, Probe

_IDS = ("id", "item_id", "pair_id", "question_id")
_TEXTS = ("response", "text", "answer")
_BY_PROBE = tuple(probe.value for probe in Probe)
# The score of the chosen and that of the rejected response, in one row.
_PAIRS = (
    ("score_chosen", "score_rejected"),
    ("scores_chosen", "scores_rejected"),
    ("chosen_score", "rejected_score"),
    ("chosen", "rejected"),
)
_ORDER_REMEDY = "Say chosen_first or rejected_first"
_ORDERS: Mapping[str, int] = {"chosen_first": 0, "rejected_first": 1, "chosen": 0, "rejected": 1}
_DECISIONS: Mapping[str, Pick] = {
    "A>>B": Pick.FIRST,
    "A>B": Pick.FIRST,
    "A": Pick.FIRST,
    "first": Pick.FIRST,
    "A=B": Pick.TIE,
    "tie": Pick.TIE,
    "B>A": Pick.SECOND,
    "B>>A": Pick.SECOND,
    "B": Pick.SECOND,
    "second": Pick.SECOND,
    "unreadable": Pick.UNREADABLE,
}


class Place(NamedTuple):
    """Where a record stands."""

    where: str  # `file:line`

    @property
    def line(self) -> int:
        """The line, or in a table the row."""
        return int(self.where.rpartition(":")[2])


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreRecord:
    """One score of one response to one item."""

    id: str
    probe: Probe
    index: int | None  # its place among the responses; of a pair 0 is chosen, 1 rejected
    text: str | None
    value: float | None  # `None`: no number was recorded
    line: int
    model: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyRecord:
    """One reply of a judge about one pair in one order."""

    id: str
    probe: Probe
    first: int | str  # which response stood first: 0 (chosen), 1 (rejected), or what `may_be_place` says of a text
    may_be_place: bool = False  # the text may as well be a place, e.g. "1"; the responses tell
    text: str | None
    decision: Pick | None  # as it was recorded beside the reply
    problem: str  # why there is nothing to read
    line: int
    model: str = ""


def read_scores(path: Path) -> Iterator[ScoreRecord]:
    """Yield the scores of a file."""
    for raw in _rows(path):
        row, place = raw.value, Place(raw.where)
        pair = next((names for names in _PAIRS if _has_scores(row, names)), None)
        if pair is not None:
            yield from _scores_of_pair(row, pair, place)
        elif "scores" in row or "answers" in row:
            yield from _scores_of_list(row, place)
        else:
            yield from _score_of_response(row, place)


def _has_scores(row: Mapping[str, Json], names: Sequence[str]) -> bool:
    """Are both columns there, and do they hold scores? `chosen` and `rejected` may as well be texts."""
    if not all(name in row for name in names):
        return False
    return names[0] != "chosen" or all(not isinstance(row[name], str) or _is_number(row[name]) for name in names)


def _scores_of_pair(row: Mapping[str, Json], names: Sequence[str], place: Place) -> Iterator[ScoreRecord]:
    """One number a side, as we, RewardBench and others write them, or a list a side, as RM-Bench does."""
    chosen, rejected = (_unwrapped(row[name]) for name in names)
    item = _item(row, place)
    common: dict[str, Json] = {"probe": _probe(row, place), "line": place.line, "model": _model(row)}
    if isinstance(chosen, list) and isinstance(rejected, list):
        group = _within(item, row.get("domain") or row.get("subset"))
        for i, right in enumerate(chosen):
            for j, wrong in enumerate(rejected):
                for index, value in enumerate((right, wrong)):
                    score = _number(_unwrapped(value), names[index], place)
                    yield ScoreRecord(id=f"{group}#{i}-{j}", index=index, text=None, value=score, **common)
        return
    item = _within(item, row.get("subset")) if names[0] == "scores_chosen" else item
    for index, value in enumerate((chosen, rejected)):
        yield ScoreRecord(id=item, index=index, text=None, value=_number(value, names[index], place), **common)


def _scores_of_list(row: Mapping[str, Json], place: Place) -> Iterator[ScoreRecord]:
    """The scores of all answers of a pool, or of the right and then the wrong ones of RewardBench 2."""
    scored = row.get("scores")
    by_model = scored if isinstance(scored, Mapping) else {_model(row): scored}
    item, probe = _item(row, place), _probe(row, place)
    for model, scores in by_model.items():
        if scores is None:
            continue  # a pool has answers that this model did not score
        if not isinstance(scores, list):
            raise row_error(place.where, "scores", f"is {quoted(scores)}, not a list of numbers", "Correct the row")
        values = [_number(_unwrapped(value), "scores", place) for value in scores]
        common: dict[str, Json] = {"probe": probe, "text": None, "line": place.line, "model": model}
        right = row.get("num_correct")
        if right is None:
            for index, value in enumerate(values):
                yield ScoreRecord(id=item, index=index, value=value, **common)
            continue
        right = int(right) if isinstance(right, float) and right.is_integer() else right
        if isinstance(right, bool) or not str(right).isdecimal() or not 0 < int(right) < len(values):
            fact = f"is {quoted(right)}, with {len(values)} scores"
            raise row_error(
                place.where, "num_correct", fact, "Give a whole number above 0 and below that of the scores"
            )
        group = _within(item, row.get("subset"))
        for i, good in enumerate(values[: int(right)]):
            for j, bad in enumerate(values[int(right) :]):
                for index, value in enumerate((good, bad)):
                    yield ScoreRecord(id=f"{group}#{i}-{j}", index=index, value=value, **common)


def _score_of_response(row: Mapping[str, Json], place: Place) -> Iterator[ScoreRecord]:
    """One response a row: its score, or one a probe (`own`, `none`, `swap`)."""
    index = _index(row, place)
    text = next((row[name] for name in _TEXTS if isinstance(row.get(name), str)), None)
    common: dict[str, Json] = {"id": _item(row, place), "text": text, "line": place.line, "model": _model(row)}
    if index is None and text is None:
        index = 0  # the only response of a rated row
    named = [name for name in _BY_PROBE if name in row]
    beside = next((name for name in ("score", "probe") if row.get(name) not in (None, "")), None)
    filled = [name for name in named if row[name] not in (None, "")]
    if named and beside is not None and (filled or "score" not in row):
        fact = f"stands beside {', '.join(named)}, which say the same in another way"
        raise row_error(place.where, beside, fact, f"Keep {beside}, or the columns of the probes")
    if "score" in row and not filled:
        score = _number(row["score"], "score", place)
        yield ScoreRecord(probe=_probe(row, place), index=index, value=score, **common)
        return
    if not named:
        fact = f"is missing (columns: {', '.join(row)[:200]})"
        remedy = "Give id, response or index, and score; docs/reference/recorded.md has all layouts"
        raise row_error(place.where, "score", fact, remedy)
    for name in named:
        yield ScoreRecord(probe=Probe(name), index=index, value=_number(row[name], name, place), **common)


def read_replies(path: Path) -> Iterator[ReplyRecord]:
    """Yield the replies of a file."""
    for raw in _rows(path):
        row, place = raw.value, Place(raw.where)
        if "judgments" in row:
            yield from _of_judgebench(row, place)
        elif "orders" in row:
            yield from _of_our_run(row, place)
        else:
            yield _one_reply(row, place)


def _of_judgebench(row: Mapping[str, Json], place: Place) -> Iterator[ReplyRecord]:
    """JudgeBench's output: its own row, with what was said of A and B, and then of B and A."""
    texts = [side for side in (row.get("response_A"), row.get("response_B")) if isinstance(side, str)]
    if len(texts) < 2:
        raise row_error(place.where, "judgments", "stands without response_A and response_B", "Keep the whole row")
    if not isinstance(row["judgments"], list) or len(row["judgments"]) > len(texts):
        raise row_error(place.where, "judgments", "is no list of one or two judgments", "Correct the row")
    for first, said in zip(texts, row["judgments"], strict=False):
        if said is not None and not isinstance(said, Mapping):
            raise row_error(place.where, "judgments", f"holds {quoted(said)}, not an object", "Correct the row")
        judged: Mapping[str, Json] = said or {}
        judgment = judged.get("judgment") or {}
        if not isinstance(judgment, Mapping):
            raise row_error(place.where, "judgment", f"is {quoted(judgment)}, not an object", "Correct the row")
        yield ReplyRecord(
            id=_item(row, place),
            probe=_probe(row, place),
            first=first,
            text=_text(judgment.get("response"), "response", place),
            decision=_decision(judged.get("decision"), place) if said else None,
            problem="" if said else "the request failed when it was recorded",
            line=place.line,
            model=str(judgment.get("judge_model") or ""),
        )


def _of_our_run(row: Mapping[str, Json], place: Place) -> Iterator[ReplyRecord]:
    """A row of `items.jsonl`: both orders, with the raw replies."""
    said_of = row["orders"]
    if not isinstance(said_of, list) or not all(isinstance(said, Mapping) for said in said_of):
        raise row_error(place.where, "orders", f"is {quoted(said_of)}, not a list of objects", "Correct the row")
    for said in said_of:
        reason = said.get("reason") or ""
        lost = reason if reason not in ("", "no_verdict") else ""
        yield ReplyRecord(
            id=_item(row, place),
            probe=_probe(row, place),
            first=_place_of_first(said.get("order"), place, _ORDER_REMEDY),
            text=_text(said.get("raw"), "raw", place),
            decision=_decision(said.get("pick"), place),
            problem=f"the reply was lost when it was recorded ({lost})" if lost else "",
            line=place.line,
        )


def _one_reply(row: Mapping[str, Json], place: Place) -> ReplyRecord:
    """One reply a row: `order` or `first` says which response stood first."""
    order, first = row.get("order"), row.get("first")
    said = first if order in (None, "") else order
    text_of_first = first if order in (None, "") and isinstance(first, str) and first else None
    remedy = f"{_ORDER_REMEDY}, or in `first` the text of the response that stood first"
    known = _place_of_first(said, place, remedy) if text_of_first is None else text_of_first
    text = _text(row.get("reply", row.get("raw")), "reply", place)
    decision = _decision(row["decision"], place) if row.get("decision") is not None else None
    return ReplyRecord(
        id=_item(row, place),
        probe=_probe(row, place),
        first=known,
        may_be_place=text_of_first is not None,
        text=text,
        decision=decision,
        problem="" if text is not None or decision is not None else f"line {place.line} holds no reply",
        line=place.line,
        model=_model(row),
    )


def _place_of_first(said: Json, place: Place, remedy: str) -> int:
    """Which response stood first: 0 (chosen) or 1."""
    known = place_named(said)
    if known is not None:
        return known
    raise row_error(place.where, "order", "is missing" if said is None else f"is {quoted(said)}", remedy)


def place_named(said: Json) -> int | None:
    """Return the place that a value names: 0 is chosen, 1 is rejected; `None` where it names none."""
    if isinstance(said, str):
        return _ORDERS.get(said, int(said) if said in ("0", "1") else None)
    return said if isinstance(said, int) and not isinstance(said, bool) and said in (0, 1) else None


def _text(said: Json, field: str, place: Place) -> str | None:
    if said is not None and not isinstance(said, str):
        raise row_error(place.where, field, f"is {quoted(said)}, not a text", "Correct the row")
    return said


def _decision(said: Json, place: Place) -> Pick:
    """What the recording program read off the reply; null stands for a reply without a verdict."""
    if said is None:
        return Pick.UNREADABLE
    if not isinstance(said, str) or said not in _DECISIONS:
        known = ", ".join(_DECISIONS)
        raise row_error(place.where, "decision", f"is {quoted(said)}", f"Use one of: {known}; or null for none")
    return _DECISIONS[said]


def _rows(path: Path) -> Iterator[RawRow]:
    """The rows of a file; a JSON object of columns, as RewardBench writes its scores, is a table."""
    rows = read_file(path)
    first = next(rows, None)
    if first is None:
        return
    if first.problem or (isinstance(first.value, Mapping) and isinstance(first.value.get("id"), list)):
        table = _table(path)
        if table is not None:
            yield from table
            return
    for raw in chain([first], rows):
        if raw.problem:
            raise raw.refusal()
        if not isinstance(raw.value, Mapping):
            raise row_error(raw.where, "row", f"is {quoted(raw.value)}, not an object", "Correct or drop it")
        yield raw


def _table(path: Path) -> list[RawRow] | None:
    """The rows of one JSON object whose values are columns; `None` where it is something else."""
    try:
        found = json.loads(path.read_bytes())
    except (ValueError, UnicodeDecodeError):
        return None
    if not isinstance(found, dict):
        return None
    columns = {name: values for name, values in found.items() if isinstance(values, list)}
    if "id" not in columns or len({len(values) for values in columns.values()}) != 1:
        return None
    return [
        RawRow(where=f"{path}:{number}", value=dict(zip(columns, values, strict=True)))
        for number, values in enumerate(zip(*columns.values(), strict=True), 1)
    ]


def _item(row: Mapping[str, Json], place: Place) -> str:
    for name in _IDS:
        if row.get(name) not in (None, ""):
            return str(row[name])
    remedy = "Add the id of the item. Of RewardBench, take the file in eval-set-scores, not *_all.jsonl"
    raise row_error(place.where, "id", f"is missing (columns: {', '.join(row)[:200]})", remedy)


def _within(item: str, part: Json) -> str:
    """The id as our importers make it of ids that start anew in each part of a set."""
    return item if not part or item.startswith(f"{part}/") else f"{part}/{item}"


def _probe(row: Mapping[str, Json], place: Place) -> Probe:
    said = row.get("probe")
    if said in (None, ""):
        return Probe.OWN
    if not isinstance(said, str) or said not in _BY_PROBE:
        raise row_error(place.where, "probe", f"is {quoted(said)}", f"Use one of: {', '.join(_BY_PROBE)}")
    return Probe(said)


def _model(row: Mapping[str, Json]) -> str:
    return str(row.get("model") or "")


def _index(row: Mapping[str, Json], place: Place) -> int | None:
    said = row.get("index", row.get("side"))
    if said in (None, ""):
        return None
    if said in ("chosen", "rejected"):
        return _ORDERS[said]
    text = str(said)
    if isinstance(said, bool) or not text.isdecimal():
        raise row_error(place.where, "index", f"is {quoted(said)}", "Use 0, 1, …, or chosen and rejected")
    return int(text)


def _unwrapped(value: Json) -> Json:
    """A list of one number as the number: some programs write one score so."""
    return value[0] if isinstance(value, list) and len(value) == 1 else value


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _number(value: Json, field: str, place: Place) -> float | None:
    """A score; null, an empty cell, NaN and infinities are none. Anything else is refused."""
    if value is None or (isinstance(value, str) and not value.strip()):
        return None
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise row_error(place.where, field, f"is {quoted(value)}, not a number", "Correct the row, or leave it empty")
    try:
        number = float(value)
    except ValueError:
        fact = f"is {quoted(value)}, not a number"
        raise row_error(place.where, field, fact, "Correct the row, or leave it empty") from None
    return number if math.isfinite(number) else None
