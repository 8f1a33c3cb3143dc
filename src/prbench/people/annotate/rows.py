"""Our own rows: one per answer that is done. Every other format is made from these and read back into them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, Field, ValidationError

from prbench.errors import DataError, UsageError
from prbench.people.annotate.people import check_name, stored_time
from prbench.people.annotate.records import (
    ABOUT,
    MOST_POSTS,
    MOST_REASONS,
    ItemAnswer,
    Mode,
    Ratings,
    Reason,
    ResponseSide,
    Status,
    StrictRecord,
)
from prbench.people.annotate.store import Store
from prbench.schema import Json, Verdict

AnswerRow = dict[str, Json]


def answer_rows(store: Store) -> list[AnswerRow]:
    """Return the answers that are done, by item and annotator."""
    names = {person.id: person.name for person in store.people.all()}
    questions = {item.id: item.question for item in store.items()}
    rows = []
    for saved in store.answers():
        answer, mode = saved.answer, store.project.mode
        if saved.status is not Status.DONE:
            continue
        row: AnswerRow = {
            "item": saved.item,
            "annotator": names[saved.annotator],
            "question": questions[saved.item],
            "choice": answer.choice,
            "side_chosen": saved.side.value,
            "ratings": {"chosen": answer.chosen.model_dump(), "rejected": answer.rejected.model_dump()},
            "note": answer.note,
            "seconds": round(saved.seconds, 1),
            "saved_at": saved.saved_at,
            "mode": mode.value,
        }
        if answer.is_flagged:
            row["flagged"] = True
        if mode is Mode.COLLECT:
            about = store.about(saved.annotator)
            row["why"] = [reason.model_dump() for reason in answer.why]
            row["posts"] = list(about.answer.posts) if about else []
        rows.append(row)
    return rows


def pair_rows(store: Store) -> list[dict[str, Json]]:
    """Return what was collected as examples in the official columns; who could not tell makes no pair."""
    items = {item.id: item for item in store.items()}
    pairs = []
    for row in answer_rows(store):
        if row["choice"] == Verdict.TIE:
            continue
        item, name = items[row["item"]], row["annotator"]
        agrees = row["choice"] == Verdict.CHOSEN
        pairs.append(
            {
                "id": f"{item.id}:{name}",
                "user_id": name,
                "question": item.question,
                "profile": [
                    {"id": f"{name}:post-{number}", "category": "", "text": text}
                    for number, text in enumerate(row["posts"], 1)
                ],
                "rubric_aspects": [
                    {"aspect": why["aspect"], "evidence": "", "reason": why["reason"]} for why in row["why"]
                ],
                "narrative": row["note"],
                "category": item.category,
                "chosen": item.chosen if agrees else item.rejected,
                "rejected": item.rejected if agrees else item.chosen,
                "meta": {"source_item": item.id, "source_choice": row["choice"], "collected_at": row["saved_at"]},
            }
        )
    return pairs


def _check_name(text: str) -> str:
    try:
        return check_name(text)
    except UsageError as error:
        raise ValueError(str(error)) from None  # pydantic reports ValueErrors alone


def _check_time(text: str) -> str:
    moment = datetime.fromisoformat(text)
    try:
        return stored_time(moment if moment.tzinfo else moment.replace(tzinfo=UTC))
    except OverflowError:
        raise ValueError("is no year from 1 to 9999 in UTC") from None


StoredTime = Annotated[str, AfterValidator(_check_time)]
Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Checked = TypeVar("Checked", bound=BaseModel)
_Name = Annotated[str, AfterValidator(_check_name)]


class _ItemRatings(StrictRecord):
    chosen: Ratings
    rejected: Ratings


class _Row(StrictRecord):
    item: Annotated[str, Field(min_length=1)]
    annotator: _Name
    question: str = ""
    choice: Literal["chosen", "rejected", "tie"]
    side_chosen: Literal["left", "right"]
    ratings: _ItemRatings
    note: str = ""
    seconds: Seconds = 0.0
    saved_at: StoredTime
    mode: Literal["validate", "collect"]
    flagged: bool = False
    why: Annotated[list[Reason], Field(default_factory=list, max_length=MOST_REASONS)]
    posts: Annotated[list[str], Field(default_factory=list, max_length=MOST_POSTS)]


@dataclass(frozen=True, kw_only=True)
class ImportResult:
    """What came of an import."""

    added: int
    known: int  # here already, or older than what is here


def import_rows(store: Store, rows: Iterable[tuple[str, Mapping[str, Json]]]) -> ImportResult:
    """Add the answers of rows, each given with the place that an error names; all are checked before one is added."""
    checked = [(where, check(_Row, row, where)) for where, row in rows]
    known = {item.id for item in store.items()}
    for where, row in checked:
        if row.item not in known:
            raise DataError(f"{where}: item {row.item!r} is not in the project. Use a project of the same data.")
        if row.mode != store.project.mode:
            raise DataError(
                f"{where}: mode is {row.mode}, and the project's is {store.project.mode}. Use another file."
            )
    added = 0
    for _, row in checked:
        answer = ItemAnswer(
            choice=Verdict(row.choice),
            chosen=row.ratings.chosen,
            rejected=row.ratings.rejected,
            note=row.note,
            is_flagged=row.flagged,
            why=tuple(row.why),
        )
        side, when = ResponseSide(row.side_chosen), (row.seconds, row.saved_at)
        added += store.import_answer(row.annotator, row.item, side, answer, when)
    for about in {row.annotator: row for _, row in checked if row.posts}.values():
        answer = ItemAnswer(posts=tuple(about.posts))
        store.import_answer(about.annotator, ABOUT, ResponseSide.LEFT, answer, (0.0, about.saved_at))
    return ImportResult(added=added, known=len(checked) - added)


def check(model: type[Checked], value: Json, where: str) -> Checked:
    """Return what came from a file as the model has it, or say in one line where it is otherwise."""
    try:
        return model.model_validate(value)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"]))
        fact = "Input should be an object" if first["type"] == "model_type" else first["msg"]
        raise DataError(f"{where}: {place or 'row'}: {fact}. Correct it, or drop the row.") from None
