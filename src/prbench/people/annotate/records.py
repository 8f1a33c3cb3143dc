"""The records of an annotation project, and an answer as the form of the page has it.

Inside, an answer always speaks of `chosen` and `rejected`, never of sides; the form speaks of sides alone.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from prbench.errors import UsageError
from prbench.people.agreement.answers import QUALITIES
from prbench.schema import Aspect, Verdict

ABOUT = ""  # the "item" under which a collecting annotator's posts are kept
MOST_REASONS = 5
MOST_POSTS = 5
LONGEST_NOTE = 4_000  # characters
LONGEST_REASON = 500
LONGEST_POST = 4_000
Rating = Annotated[int, Field(ge=1, le=5)]


class Mode(StrEnum):
    """What annotators are asked."""

    VALIDATE = "validate"  # which response fits another user's rubric
    COLLECT = "collect"  # which response they want themselves, and why


class ResponseSide(StrEnum):
    """Where the chosen response stood."""

    LEFT = "left"
    RIGHT = "right"

    @property
    def other(self) -> "ResponseSide":
        return ResponseSide.RIGHT if self is ResponseSide.LEFT else ResponseSide.LEFT


class Status(StrEnum):
    """How far one annotator is with one item."""

    OPEN = "open"  # nothing saved yet
    DRAFT = "draft"
    DONE = "done"
    SKIPPED = "skipped"


class Project(BaseModel):
    """What was fixed when the project was made; its table has texts alone, which become numbers here."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    id: str
    mode: Mode
    seed: int
    overlap: int
    data: str  # how the source was named
    created_at: str
    instructions: str  # "": the standard text
    url: str  # where links lead


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectItem:
    """One pair to be judged; the user's posts are not kept, as nobody is shown them."""

    id: str
    user_id: str
    question: str
    category: str
    rubric: tuple[Aspect, ...]
    chosen: str
    rejected: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Annotator:
    """A person with a link of their own."""

    id: int
    name: str
    is_paused: bool


class StrictRecord(BaseModel):
    """A record that is read from JSON: from the database, or from a file that was exported."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class Ratings(StrictRecord):
    """One response's general quality; `None` where it was not rated."""

    correctness: Rating | None = None
    relevance: Rating | None = None
    helpfulness: Rating | None = None


class Reason(StrictRecord):
    """What mattered to a collecting annotator: it becomes an aspect of their rubric."""

    aspect: str
    reason: str = ""


class ItemAnswer(StrictRecord):
    """What an annotator said about one item."""

    choice: Verdict | None = None
    chosen: Ratings = Ratings()
    rejected: Ratings = Ratings()
    note: str = ""
    is_flagged: bool = False
    why: tuple[Reason, ...] = ()
    posts: tuple[str, ...] = ()  # under ABOUT only

    def missing(self, mode: Mode) -> list[str]:
        """Say what is still to be filled in before the item is done."""
        wanted = [] if self.choice is not None else ["your choice"]
        if mode is Mode.VALIDATE and None in (*vars(self.chosen).values(), *vars(self.rejected).values()):
            wanted.append("all six ratings")
        if mode is Mode.COLLECT and self.choice not in (None, Verdict.TIE) and not self.why:
            wanted.append("at least one thing that mattered to you")
        return wanted


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedAnswer:
    """One line of the event log: what counts is the last one of an annotator and an item."""

    version: int  # grows with every event of the project
    item: str
    annotator: int
    side: ResponseSide
    status: Status
    answer: ItemAnswer
    seconds: float  # of active work on this item, in all
    saved_at: str
    tab: str  # the browser tab it came from


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignedItem:
    """One item on one annotator's list."""

    position: int  # stays the same when other items come or go
    item: ProjectItem
    side: ResponseSide
    saved: SavedAnswer | None

    @property
    def status(self) -> Status:
        return Status.OPEN if self.saved is None else self.saved.status


@dataclass(frozen=True, slots=True, kw_only=True)
class SaveResult:
    """What came of a save: what counts now, and what another tab had saved in the meantime."""

    saved: SavedAnswer
    replaced: SavedAnswer | None = None


def read_answer(form: Mapping[str, str], mode: Mode, side: ResponseSide) -> ItemAnswer:
    """Return the answer that a form holds; `side` says where the chosen response stood."""
    choices = {"": None, side.value: Verdict.CHOSEN, side.other.value: Verdict.REJECTED, "tie": Verdict.TIE}
    choice = form.get("choice", "")
    if choice not in choices:
        raise UsageError("The choice is none of left, right and tie.")
    is_rated = mode is Mode.VALIDATE
    reasons = []
    for number in () if is_rated else range(1, MOST_REASONS + 1):
        # One line each: other tools get them as lines of one text.
        aspect = " ".join(_read_text(form, f"aspect_{number}", LONGEST_REASON).split())
        reason = " ".join(_read_text(form, f"reason_{number}", LONGEST_REASON).split())
        if aspect or reason:
            reasons.append(Reason(aspect=aspect or reason, reason=reason if aspect else ""))
    return ItemAnswer(
        choice=choices[choice],
        chosen=_read_ratings(form, side) if is_rated else Ratings(),
        rejected=_read_ratings(form, side.other) if is_rated else Ratings(),
        note=_read_text(form, "note", LONGEST_NOTE),
        is_flagged=form.get("flag", "") == "yes",
        why=tuple(reasons),
    )


def read_posts(form: Mapping[str, str]) -> tuple[str, ...]:
    posts = (_read_text(form, f"post_{number}", LONGEST_POST) for number in range(1, MOST_POSTS + 1))
    return tuple(post for post in posts if post)


def form_fields(answer: ItemAnswer, side: ResponseSide) -> dict[str, str]:
    """Return the answer as the fields of the form; what is empty is left out."""
    fields = {"note": answer.note, "flag": "yes" if answer.is_flagged else ""}
    if answer.choice is not None:
        where = {Verdict.CHOSEN: side.value, Verdict.REJECTED: side.other.value, Verdict.TIE: "tie"}
        fields["choice"] = where[answer.choice]
    for place, ratings in ((side, answer.chosen), (side.other, answer.rejected)):
        for quality, value in ratings:
            fields[f"{place}_{quality}"] = "" if value is None else str(value)
    for number, reason in enumerate(answer.why, 1):
        fields |= {f"aspect_{number}": reason.aspect, f"reason_{number}": reason.reason}
    return {name: value for name, value in fields.items() if value}


def _read_ratings(form: Mapping[str, str], where: ResponseSide) -> Ratings:
    ratings = {}
    for quality in QUALITIES:
        if text := form.get(f"{where}_{quality}", ""):
            if text not in ("1", "2", "3", "4", "5"):
                raise UsageError("A rating is a whole number from 1 to 5.")
            ratings[quality] = int(text)
    return Ratings(**ratings)


def _read_text(form: Mapping[str, str], name: str, longest: int) -> str:
    text = form.get(name, "").replace("\r\n", "\n").strip()
    if len(text) > longest:
        raise UsageError(f"A text has {len(text)} characters; {longest} is the most. Shorten it.")
    return text
