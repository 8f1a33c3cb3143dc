"""People's answers at the border: export rows, plain tables and runs of a judge become one list of records."""

import csv
import io
import json
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic_core import PydanticCustomError

from prbench.data.rows import refuse, shown
from prbench.errors import DataError, UsageError
from prbench.metrics.agreement import Label
from prbench.runs import read_manifest, read_rows
from prbench.schema import NOTHING, Json, Probe, Row, Verdict

QUALITIES = ("correctness", "relevance", "helpfulness")
LOWEST, HIGHEST = 1.0, 5.0  # the scale of a rating
CHOSEN, REJECTED, TIE = "chosen", "rejected", "tie"
CHOICES = (CHOSEN, REJECTED, TIE)
TABLE_COLUMNS = ("item", "annotator", "label")
# An export keeps what people have not finished; only what they have counts.
NO_ANSWER = {"draft": "drafts", "skipped": "skipped items", "open": "items not begun"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What one annotator said about one item; what they left out is `None` or absent."""

    item: str
    annotator: str
    label: Label | None
    side_chosen: str | None = None  # where the chosen response stood: left or right
    ratings: Mapping[str, tuple[float, float]] = field(default_factory=lambda: NOTHING)  # chosen, rejected
    seconds: float | None = None
    is_judge: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """All answers to be compared, and a line about everything that was left out."""

    rows: tuple[Answer, ...]
    notes: tuple[str, ...] = ()

    @property
    def are_choices(self) -> bool:
        """True if the labels say which response of a pair was picked."""
        return all(row.label in (None, *CHOICES) for row in self.rows)

    @property
    def people(self) -> tuple[Answer, ...]:
        """The answers that no model gave."""
        return tuple(row for row in self.rows if not row.is_judge)

    @property
    def judges(self) -> tuple[Answer, ...]:
        """The answers of models."""
        return tuple(row for row in self.rows if row.is_judge)

    @property
    def labelled(self) -> list[tuple[str, str, Label | None]]:
        """Everybody's labels, as a table of labels wants them."""
        return labels_of(self.rows)


def labels_of(rows: Iterable[Answer]) -> list[tuple[str, str, Label | None]]:
    """Return (annotator, item, label) of every row."""
    return [(row.annotator, row.item, row.label) for row in rows]


def load_answers(paths: Sequence[Path], *, judge_runs: Sequence[Path] = ()) -> Answers:
    """Read export rows (`.jsonl`), plain tables (`.csv`) and the verdicts of runs; all are put together."""
    notes: Counter[str] = Counter()
    latest: dict[tuple[str, str], tuple[Answer, float | None, str]] = {}
    for path in paths:
        for where, answer, saved_at in _read(path, notes):
            _keep_latest(latest, where, answer, saved_at, notes)
    rows = [answer for answer, _, _ in latest.values()]
    if not rows:
        left_out = "; ".join(f"{count} {what}" for what, count in notes.items())
        raise UsageError(f"{paths[0]}: there is no answer in it{f' ({left_out})' if left_out else ''}. Export again.")
    _check_labels(rows)
    for folder in judge_runs:
        rows += _read_judge(folder, rows, notes)
    lines = [f"{count} {what}" for what, count in notes.items()]
    return Answers(rows=tuple(sorted(rows, key=lambda row: (row.annotator, row.item))), notes=tuple(lines))


def _read(path: Path, notes: Counter[str]) -> Iterator[tuple[str, Answer, float | None]]:
    if not path.is_file():
        raise UsageError(f"{path}: there is no such file. Give a .jsonl file of `prbench annotate export`, or a .csv.")
    match path.suffix.lower():
        case ".jsonl":
            return _read_export(path, notes)
        case ".csv":
            return _read_table(path)
        case _:
            raise UsageError(f"{path}: the name must end in .jsonl or .csv. Rename or convert the file.")


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise UsageError(f"{path}: is not UTF-8 text. Save or export it as UTF-8.") from None


def _keep_latest(
    latest: dict[tuple[str, str], tuple[Answer, float | None, str]],
    where: str,
    answer: Answer,
    saved_at: float | None,
    notes: Counter[str],
) -> None:
    key = (answer.annotator, answer.item)
    if key not in latest:
        latest[key] = (answer, saved_at, where)
        return
    before, when, there = latest[key]
    if before != answer and (saved_at is None or when is None or saved_at == when):
        raise DataError(
            f"{where}: {answer.annotator!r} answered item {answer.item!r} already at {there}, differently and with no "
            "later `saved_at`. Keep one of the two."
        )
    notes["earlier or repeated answers of the same person to the same item, left out"] += 1
    if saved_at is not None and when is not None and saved_at > when:
        latest[key] = (answer, saved_at, where)


def _check_name(value: str) -> str:
    if not value.strip():
        raise PydanticCustomError("blank", "is empty")
    if not _can_be_shown(value):
        raise PydanticCustomError("control", "holds characters that cannot be shown")
    return value


def _can_be_shown(text: str) -> bool:
    """Tell whether a text has no control characters and no half surrogate pairs."""
    return not any(unicodedata.category(character) in ("Cc", "Cs") for character in text)


def _as_text(value: object) -> object:
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _as_time(value: object) -> object:
    """Return a moment in seconds; a time without a zone is taken as UTC."""
    if not isinstance(value, str):
        return value
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        raise PydanticCustomError("time", "is no ISO 8601 time") from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


_Name = Annotated[str, BeforeValidator(_as_text), AfterValidator(_check_name)]
_Rating = Annotated[float, Field(ge=LOWEST, le=HIGHEST)]


class _Ratings(BaseModel):
    correctness: _Rating | None = None
    relevance: _Rating | None = None
    helpfulness: _Rating | None = None


class _BothRatings(BaseModel):
    chosen: _Ratings | None = None
    rejected: _Ratings | None = None


class _Line(BaseModel):
    """One row of an export; columns that are not ours are ignored."""

    model_config = ConfigDict(extra="ignore")

    item: _Name
    annotator: _Name
    choice: Literal["chosen", "rejected", "tie"] | None
    side_chosen: Literal["left", "right"] | None = None
    ratings: _BothRatings | None = None
    seconds: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    saved_at: Annotated[float | None, BeforeValidator(_as_time)] = None
    mode: str | None = None
    status: str | None = None
    flagged: bool | None = None


def _read_export(path: Path, notes: Counter[str]) -> Iterator[tuple[str, Answer, float | None]]:
    """Yield the answers of an export. Where people choose for themselves, their choice is the label: left out."""
    for number, text in enumerate(_read_text(path).split("\n"), 1):
        if not text.strip():
            continue
        where = f"{path}:{number}"
        line = _check_line(text, where)
        if line.mode == "collect":
            notes["rows of mode collect, left out: there a person makes the label instead of checking it"] += 1
        elif line.status in NO_ANSWER:
            notes[f"{NO_ANSWER[line.status]}, left out"] += 1
        else:
            if line.flagged:
                notes["answers to items that the annotator flagged; they count"] += 1
            yield where, _to_answer(line), line.saved_at


def _check_line(text: str, where: str) -> _Line:
    try:
        return _Line.model_validate(json.loads(text))
    except json.JSONDecodeError as error:
        raise refuse(where, "row", f"is not valid JSON ({error.msg})", "Export again, or drop the line") from None
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(str(step) for step in first["loc"]) or "row"
        fact = "is missing" if first["type"] == "missing" else f"{first['msg']}, found {shown(first['input'])}"
        raise refuse(where, place, fact, "Correct it, or drop the row") from None


def _to_answer(line: _Line) -> Answer:
    both: dict[str, tuple[float, float]] = {}
    chosen, rejected = (line.ratings.chosen, line.ratings.rejected) if line.ratings else (None, None)
    if chosen and rejected:
        for quality in QUALITIES:
            one, two = getattr(chosen, quality), getattr(rejected, quality)
            if one is not None and two is not None:
                both[quality] = (one, two)
    return Answer(
        item=line.item,
        annotator=line.annotator,
        label=line.choice,
        side_chosen=line.side_chosen,
        ratings=both or NOTHING,
        seconds=line.seconds or None,  # imports from elsewhere write 0 where the time is not known
    )


def _read_table(path: Path) -> Iterator[tuple[str, Answer, float | None]]:
    """Yield the answers of a plain table; an empty label is a gap."""
    reader = csv.DictReader(io.StringIO(_read_text(path), newline=""))
    missing = [name for name in TABLE_COLUMNS if name not in (reader.fieldnames or ())]
    if missing:
        raise refuse(f"{path}:1", missing[0], "is missing", "Give the columns item, annotator and label")
    for line in reader:
        where = f"{path}:{reader.line_num}"
        item, annotator, label = ((line[name] or "").strip() for name in TABLE_COLUMNS)
        for name, value in (("item", item), ("annotator", annotator), ("label", label)):
            if not value and name != "label":
                raise refuse(where, name, "is empty", "Fill it in, or drop the row")
            if not _can_be_shown(value):
                raise refuse(where, name, "holds characters that cannot be shown", "Correct it, or drop the row")
        yield where, Answer(item=item, annotator=annotator, label=_number_or_word(label)), None


def _number_or_word(text: str) -> Label | None:
    if not text:
        return None
    try:
        number = float(text)
    except ValueError:
        return text
    return number if number - number == 0 else text  # "nan" and "inf" are words


def _check_labels(rows: Sequence[Answer]) -> None:
    labels = {row.label for row in rows if row.label is not None}
    strange = sorted((label for label in labels if label not in CHOICES), key=str)
    if strange and labels & {CHOSEN, REJECTED}:
        raise DataError(
            f"The label {strange[0]!r} stands beside chosen and rejected. Compare answers to one question only."
        )
    if any(isinstance(label, str) for label in labels) and not all(isinstance(label, str) for label in labels):
        raise DataError(f"Some labels are numbers and some are words, such as {strange[-1]!r}. Use one kind.")


def _read_judge(folder: Path, people: Sequence[Answer], notes: Counter[str]) -> list[Answer]:
    """Return the verdicts of a run, with the user's own context, on the items that people answered."""
    if any(row.label is not None and row.label not in CHOICES for row in people):
        raise UsageError(f"--judge-run {folder}: its verdicts are chosen, rejected or tie, and these labels are not.")
    config: Mapping[str, Json] = read_manifest(folder)["facts"]
    name = f"{config['model']} ({folder.name})"
    wanted = {row.item for row in people}
    rows = [row for row in read_rows(folder, groups=()) if isinstance(row, Row) and row.probe is Probe.OWN]
    shared = [row for row in rows if row.id in wanted]
    if not shared:
        raise UsageError(f"--judge-run {folder}: has no pair that people answered. Give a run on the same data.")
    if unreadable := sum(row.verdict is Verdict.UNREADABLE for row in shared):
        notes[f"verdicts of {name} that could not be read, counted as gaps"] += unreadable
    if others := len(wanted) - len(shared):
        notes[f"items of which {name} has no verdict"] += others
    return [
        Answer(
            item=row.id,
            annotator=name,
            label=None if row.verdict is Verdict.UNREADABLE else row.verdict.value,
            is_judge=True,
        )
        for row in shared
    ]
