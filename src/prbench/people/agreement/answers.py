"""People's answers at the border: export rows, plain tables and runs of a judge become one list of records."""

import csv
import io
import json
import math
import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic_core import PydanticCustomError

from prbench.data.rows import quoted, read_number_as_text, row_error
from prbench.errors import DataError, UsageError
from prbench.metrics.agreement import Label
from prbench.runs import StoredRun, find_runs
from prbench.runs.files import EVAL
from prbench.schema import NOTHING, Probe, Row, Verdict

QUALITIES = ("correctness", "relevance", "helpfulness")
LOWEST, HIGHEST = 1.0, 5.0  # the scale of a rating
CHOSEN, REJECTED, TIE = "chosen", "rejected", "tie"
CHOICES = (CHOSEN, REJECTED, TIE)
TABLE_COLUMNS = ("item", "annotator", "label")
# An export may keep what people have not finished; a draft or a skip takes back an earlier answer.
TAKEN_BACK = {"draft": "drafts", "skipped": "skipped items"}
NOT_BEGUN = "open"
NUMBER = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Annotation:
    """What one annotator said about one item; what they left out is `None` or absent."""

    item: str
    annotator: str
    label: Label | None
    side_chosen: str | None = None  # where the chosen response stood: left or right
    ratings: Mapping[str, tuple[float, float]] = field(default_factory=lambda: NOTHING)  # chosen, rejected
    seconds: float | None = None
    is_judge: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Annotations:
    """All answers to be compared, and a line about everything that was left out."""

    rows: tuple[Annotation, ...]
    notes: tuple[str, ...] = ()

    @property
    def are_choices(self) -> bool:
        """True if the labels say which response of a pair was picked."""
        return all(row.label in (None, *CHOICES) for row in self.rows)

    @property
    def people(self) -> tuple[Annotation, ...]:
        return tuple(row for row in self.rows if not row.is_judge)

    @property
    def judges(self) -> tuple[Annotation, ...]:
        return tuple(row for row in self.rows if row.is_judge)


@dataclass(frozen=True, slots=True, kw_only=True)
class _ReadRow:
    """One row of a file. A row that is no answer takes part all the same: it may stand for an answer taken back."""

    where: str
    answer: Annotation
    saved_at: float | None = None
    counts: bool = True
    note: str = ""  # to be counted, if the row is the last word


def load_answers(paths: Sequence[Path], *, judge_runs: Sequence[Path] = ()) -> Annotations:
    """Read export rows (`.jsonl`), plain tables (`.csv`) and the verdicts of runs; all are put together."""
    notes: Counter[str] = Counter()
    latest: dict[tuple[str, str], _ReadRow] = {}
    for path in paths:
        if not path.is_file():
            raise UsageError(
                f"{path}: there is no such file. Give a .jsonl file of `prbench annotate export`, or a .csv."
            )
        suffix = path.suffix.lower()
        if suffix not in (".jsonl", ".csv"):
            raise UsageError(f"{path}: the name must end in .jsonl or .csv. Rename or convert the file.")
        for found in _read_export(path, notes) if suffix == ".jsonl" else _read_table(path):
            _keep_latest(latest, found, notes)
    notes.update(found.note for found in latest.values() if found.note)
    rows = [found.answer for found in latest.values() if found.counts]
    if not rows:
        left_out = "; ".join(f"{count} {what}" for what, count in notes.items())
        raise UsageError(f"{paths[0]}: there is no answer in it{f' ({left_out})' if left_out else ''}. Export again.")
    _check_labels(rows)
    lines: list[str] = []
    if judge_runs:
        judges = find_runs(judge_runs, kinds=(EVAL,))
        lines += judges.left_out
        for run in judges.runs:
            rows += _read_judge(run, rows, notes)
    lines += [f"{count} {what}" for what, count in notes.items()]
    return Annotations(rows=tuple(sorted(rows, key=lambda row: (row.annotator, row.item))), notes=tuple(lines))


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise UsageError(f"{path}: is not UTF-8 text. Save or export it as UTF-8.") from None


def _keep_latest(latest: dict[tuple[str, str], _ReadRow], found: _ReadRow, notes: Counter[str]) -> None:
    """Keep the later of two rows of one person about one item, be it an answer or the item skipped."""
    key = (found.answer.annotator, found.answer.item)
    if key not in latest:
        latest[key] = found
        return
    before = latest[key]
    differ = (before.answer, before.counts) != (found.answer, found.counts)
    if differ and (found.saved_at is None or before.saved_at in (None, found.saved_at)):
        raise DataError(
            f"{found.where}: {key[0]!r} answered item {key[1]!r} already at {before.where}, differently and with no "
            "later `saved_at`. Keep one of the two."
        )
    notes["earlier or repeated answers of the same person to the same item, left out"] += 1
    if found.saved_at is not None and before.saved_at is not None and found.saved_at > before.saved_at:
        latest[key] = found


def _check_name(value: str) -> str:
    if not value.strip():
        raise PydanticCustomError("blank", "is empty")
    if not _can_be_shown(value):
        raise PydanticCustomError("control", "holds characters that cannot be shown")
    return value


def _can_be_shown(text: str) -> bool:
    """Tell whether a text has no control characters and no half surrogate pairs."""
    return not any(unicodedata.category(character) in ("Cc", "Cs") for character in text)


def _as_time(value: object) -> object:
    """Return a moment in seconds; a time without a zone is taken as UTC."""
    if not isinstance(value, str):
        return value
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        raise PydanticCustomError("time", "is no ISO 8601 time") from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


_Name = Annotated[str, BeforeValidator(read_number_as_text), AfterValidator(_check_name)]
_Rating = Annotated[float, Field(ge=LOWEST, le=HIGHEST)]


class _Ratings(BaseModel):
    model_config = ConfigDict(strict=True)

    correctness: _Rating | None = None
    relevance: _Rating | None = None
    helpfulness: _Rating | None = None


class _BothRatings(BaseModel):
    model_config = ConfigDict(strict=True)

    chosen: _Ratings | None = None
    rejected: _Ratings | None = None

    def complete(self) -> dict[str, tuple[float, float]]:
        """Return the qualities that both responses are rated in."""
        pairs = zip(self.chosen or (), self.rejected or (), strict=False)  # two models of one type: the same order
        return {name: (one, two) for (name, one), (_, two) in pairs if one is not None and two is not None}


class _Line(BaseModel):
    """One row of an export; columns that are not ours are ignored, and a number in quotes is no number."""

    model_config = ConfigDict(strict=True, extra="ignore")

    item: _Name
    annotator: _Name
    choice: Literal["chosen", "rejected", "tie"] | None
    side_chosen: Literal["left", "right"] | None = None
    ratings: _BothRatings | None = None
    seconds: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    saved_at: Annotated[Annotated[float, Field(allow_inf_nan=False)] | None, BeforeValidator(_as_time)] = None
    mode: str | None = None
    status: str | None = None
    flagged: bool | None = None


def _read_export(path: Path, notes: Counter[str]) -> Iterator[_ReadRow]:
    """Yield the rows of an export. Where people choose for themselves, their choice is the label: left out."""
    for number, text in enumerate(_read_text(path).split("\n"), 1):
        if not text.strip():
            continue
        where = f"{path}:{number}"
        line = _check_line(text, where)
        if line.mode == "collect":
            notes["rows of mode collect, left out: there a person makes the label instead of checking it"] += 1
            continue
        if line.status == NOT_BEGUN:
            notes["items not begun, left out"] += 1
            continue
        note = "answers to items that the annotator flagged; they count" if line.flagged else ""
        if line.status in TAKEN_BACK:
            note = f"{TAKEN_BACK[line.status]}, left out"
        counts = line.status not in TAKEN_BACK
        answer = Annotation(
            item=line.item,
            annotator=line.annotator,
            label=line.choice,
            side_chosen=line.side_chosen,
            ratings=(line.ratings and line.ratings.complete()) or NOTHING,
            seconds=line.seconds or None,  # imports from elsewhere write 0 where the time is not known
        )
        yield _ReadRow(where=where, answer=answer, saved_at=line.saved_at, counts=counts, note=note)


def _check_line(text: str, where: str) -> _Line:
    try:
        return _Line.model_validate(json.loads(text))
    except json.JSONDecodeError as error:
        raise row_error(where, "row", f"is not valid JSON ({error.msg})", "Export again, or drop the line") from None
    except RecursionError:
        raise row_error(where, "row", "is nested too deeply", "Export again, or drop the line") from None
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(str(step) for step in first["loc"]) or "row"
        fact = "is missing" if first["type"] == "missing" else f"{first['msg']}, found {quoted(first['input'])}"
        raise row_error(where, place, fact, "Correct it, or drop the row") from None
    except ValueError:  # all that is left: a number of more digits than Python reads
        raise row_error(where, "row", "holds a number of thousands of digits", "Correct it, or drop the row") from None


def _read_table(path: Path) -> Iterator[_ReadRow]:
    """Yield the answers of a plain table; an empty label is a gap."""
    reader = csv.DictReader(io.StringIO(_read_text(path), newline=""))
    try:
        missing = [name for name in TABLE_COLUMNS if name not in (reader.fieldnames or ())]
        if missing:
            raise row_error(f"{path}:1", missing[0], "is missing", "Give the columns item, annotator and label")
        for line in reader:
            where = f"{path}:{reader.line_num}"
            item, annotator, text = ((line[name] or "").strip() for name in TABLE_COLUMNS)
            for name, value in (("item", item), ("annotator", annotator), ("label", text)):
                if not value and name != "label":
                    raise row_error(where, name, "is empty", "Fill it in, or drop the row")
                if not _can_be_shown(value):
                    fact = "holds characters that cannot be shown"
                    raise row_error(where, name, fact, "Correct it, or drop the row")
            number = float(text) if NUMBER.fullmatch(text) else math.inf
            label = number if math.isfinite(number) else text or None
            yield _ReadRow(where=where, answer=Annotation(item=item, annotator=annotator, label=label))
    except csv.Error as error:
        fact = f"cannot be read as CSV ({error})"
        raise row_error(f"{path}:{reader.line_num + 1}", "row", fact, "Look for a quote that is not closed") from None


def _check_labels(rows: Sequence[Annotation]) -> None:
    labels = {row.label for row in rows if row.label is not None}
    strange = sorted((label for label in labels if label not in CHOICES), key=str)
    if strange and labels & {CHOSEN, REJECTED}:
        raise DataError(
            f"The label {strange[0]!r} stands beside chosen and rejected. Compare answers to one question only."
        )
    words = sorted(label for label in labels if isinstance(label, str))
    if words and len(words) < len(labels):
        raise DataError(f"Some labels are numbers and some are words, such as {words[0]!r}. Use one kind.")


def _read_judge(run: StoredRun, known: Sequence[Annotation], notes: Counter[str]) -> list[Annotation]:
    """Return the verdicts of a run, with the user's own context, on the items that people answered."""
    folder = run.folder
    people = [row for row in known if not row.is_judge]
    if any(row.label is not None and row.label not in CHOICES for row in people):
        raise UsageError(f"--judge-run {folder}: its verdicts are chosen, rejected or tie, and these labels are not.")
    name = f"{run.manifest['facts']['model']} ({folder.name})"
    if name in {row.annotator for row in known}:
        raise UsageError(f"--judge-run {folder}: {name} stands among the annotators already. Give every run once.")
    wanted = {row.item for row in people}
    rows = [row for row in run.rows if isinstance(row, Row) and row.probe is Probe.OWN]
    shared = [row for row in rows if row.id in wanted]
    if not shared:
        raise UsageError(f"--judge-run {folder}: has no pair that people answered. Give a run on the same data.")
    if unreadable := sum(row.verdict is Verdict.UNREADABLE for row in shared):
        notes[f"verdicts of {name} that could not be read, counted as gaps"] += unreadable
    if others := len(wanted) - len(shared):
        notes[f"items of which {name} has no verdict"] += others
    return [
        Annotation(
            item=row.id,
            annotator=name,
            label=None if row.verdict is Verdict.UNREADABLE else row.verdict.value,
            is_judge=True,
        )
        for row in shared
    ]
