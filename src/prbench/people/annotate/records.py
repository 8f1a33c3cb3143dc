"""The records of an annotation project. Inside, an answer always speaks of `chosen` and `rejected`, never of sides."""

from dataclasses import dataclass, field
from enum import StrEnum

from prbench.schema import Aspect, Verdict

ABOUT = ""  # the "item" under which a collecting annotator's posts are kept
MOST_REASONS = 5
MOST_POSTS = 5


class Mode(StrEnum):
    """What annotators are asked."""

    VALIDATE = "validate"  # which response fits another user's rubric
    COLLECT = "collect"  # which response they want themselves, and why


class Side(StrEnum):
    """Where the chosen response stood."""

    LEFT = "left"
    RIGHT = "right"

    @property
    def other(self) -> "Side":
        """Return the side of the rejected response."""
        return Side.RIGHT if self is Side.LEFT else Side.LEFT


class Status(StrEnum):
    """How far one annotator is with one item."""

    OPEN = "open"  # nothing saved yet
    DRAFT = "draft"
    DONE = "done"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    """What was fixed when the project was made."""

    id: str
    mode: Mode
    seed: int
    overlap: int
    data: str  # how the source was named
    created_at: str
    instructions: str  # "": the standard text
    url: str  # where links lead


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratings:
    """One response's general quality, each from 1 to 5; `None` where it was not rated."""

    correctness: int | None = None
    relevance: int | None = None
    helpfulness: int | None = None

    @property
    def is_complete(self) -> bool:
        """Tell whether nothing is missing."""
        return None not in (self.correctness, self.relevance, self.helpfulness)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """What mattered to a collecting annotator: it becomes an aspect of their rubric."""

    aspect: str
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What an annotator said about one item."""

    choice: Verdict | None = None
    chosen: Ratings = field(default_factory=Ratings)
    rejected: Ratings = field(default_factory=Ratings)
    note: str = ""
    is_flagged: bool = False
    why: tuple[Reason, ...] = ()
    posts: tuple[str, ...] = ()  # under ABOUT only

    def missing(self, mode: Mode) -> list[str]:
        """Say what is still to be filled in before the item is done."""
        wanted = [] if self.choice is not None else ["your choice"]
        if mode is Mode.VALIDATE and not (self.chosen.is_complete and self.rejected.is_complete):
            wanted.append("all six ratings")
        if mode is Mode.COLLECT and self.choice not in (None, Verdict.TIE) and not self.why:
            wanted.append("at least one thing that mattered to you")
        return wanted


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """One line of the event log: what counts is the last one of an annotator and an item."""

    version: int  # grows with every event of the project
    item: str
    annotator: int
    side: Side
    status: Status
    answer: Answer
    seconds: float  # of active work on this item, in all
    saved_at: str
    tab: str  # the browser tab it came from


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One item on one annotator's list."""

    position: int  # stays the same when other items come or go
    item: Item
    side: Side
    saved: Saved | None

    @property
    def status(self) -> Status:
        """Return how far it is."""
        return Status.OPEN if self.saved is None else self.saved.status


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of a save: what counts now, and what another tab had saved in the meantime."""

    saved: Saved
    replaced: Saved | None = None
