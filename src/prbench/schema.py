"""The records that the steps hand to each other. This module imports nothing of ours and does no I/O."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Any

Json = Any  # what `json.loads` gives; the border checks it, the records only carry it

NOTHING: Mapping[str, Json] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Post:
    """Something a user wrote before. Its id stays with its text through every re-ranking."""

    id: str
    text: str
    category: str = ""
    extra: Mapping[str, Json] = field(default_factory=lambda: NOTHING)  # columns that are not ours, kept for export


@dataclass(frozen=True, slots=True, kw_only=True)
class User:
    """A person, known by what they wrote; the profile is in the order of writing, oldest first."""

    id: str
    profile: tuple[Post, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Aspect:
    """One thing that this user expects in an answer to this question."""

    aspect: str
    evidence: str = ""
    reason: str = ""

    @property
    def text(self) -> str:
        """The aspect with its reason, as writers, judges and models are told of it."""
        return f"{self.aspect}: {self.reason}" if self.reason else self.aspect


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """One preference pair: this user would pick `chosen` over `rejected`."""

    id: str
    user: User
    question: str
    chosen: str
    rejected: str
    rubric: tuple[Aspect, ...] = ()  # judges read it, reward models never do
    narrative: str = ""  # likewise
    category: str = ""
    split: str = ""
    meta: Mapping[str, Json] = field(default_factory=lambda: NOTHING)


@dataclass(frozen=True, slots=True, kw_only=True)
class RatedExample:
    """One response with the score that this user gave it, between 0 and 1."""

    id: str
    user: User
    question: str
    response: str
    rating: float
    category: str = ""
    split: str = ""
    meta: Mapping[str, Json] = field(default_factory=lambda: NOTHING)


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardInput:
    """All that a reward model may see. It has no rubric field, so no rubric can leak."""

    question: str
    context: str  # what may be known of the user; "" is the impersonal baseline
    response: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PairInput:
    """What a comparing model sees. It never learns which response is the chosen one."""

    question: str
    context: str
    first: str
    second: str


class Problem(StrEnum):
    """Why there is no score. The tables below say which of them are worth another try."""

    NONE = ""
    NO_VERDICT = "no_verdict"  # the reply holds no explicit verdict or score
    OUT_OF_TOKENS = "out_of_tokens"  # the reply was cut off before its end, whatever stands in it
    TOO_LONG = "too_long"  # question and response alone exceed the model's window
    FAILED = "failed"  # the request or the forward pass broke
    WRONG_MODEL = "wrong_model"  # another model replied than the one that was asked


# Nothing was heard of the model that was asked, so this says nothing about it.
BROKEN = frozenset({Problem.FAILED, Problem.WRONG_MODEL})
# What the next run asks again; the others would come out the same.
RETRIED = BROKEN | {Problem.OUT_OF_TOKENS}


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """How much a model believes that this user would like the response; `None` when it could not tell."""

    value: float | None
    problem: Problem = Problem.NONE
    detail: str = ""  # what there is to say about the problem
    raw: str = ""  # the model's own words, for generative models


class Pick(StrEnum):
    """What a comparing model answers."""

    FIRST = "first"
    SECOND = "second"
    TIE = "tie"
    UNREADABLE = "unreadable"


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One answer of a comparing model, for one order of the two responses."""

    pick: Pick
    problem: Problem = Problem.NONE
    detail: str = ""
    raw: str = ""
    margin: float | None = None  # log-odds of FIRST over SECOND, where the model gives it


class Verdict(StrEnum):
    """How one pair came out."""

    CHOSEN = "chosen"
    REJECTED = "rejected"
    TIE = "tie"
    UNREADABLE = "unreadable"


class Probe(StrEnum):
    """The same pair asked in another way."""

    OWN = "own"  # with this user's context
    NONE = "none"  # with no context
    SWAP = "swap"  # with another user's context, same category


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One item under one probe, as it stands in `items.jsonl`."""

    id: str
    probe: Probe
    user_id: str
    category: str
    verdict: Verdict
    score_chosen: float | None = None
    score_rejected: float | None = None
    problem: Problem = Problem.NONE  # written as `reason`
    detail: str = ""
    orders: tuple[Mapping[str, Json], ...] = ()  # judges only: both orders, with the raw replies
    replies: Mapping[str, str] = field(default_factory=lambda: NOTHING)  # rating models only: what they said
    pieces_used: int = 0  # posts (or planned aspects) that the model saw
    pieces_dropped: int = 0  # those that did not fit its window
    groups: Mapping[str, Json] = field(default_factory=lambda: NOTHING)  # to group by, and facts that metrics need


@dataclass(frozen=True, slots=True, kw_only=True)
class RatedRow:
    """One rated response under one probe."""

    id: str
    probe: Probe
    user_id: str
    category: str
    rating: float
    score: float | None
    problem: Problem = Problem.NONE
    detail: str = ""
    raw: str = ""
    pieces_used: int = 0
    pieces_dropped: int = 0
    groups: Mapping[str, Json] = field(default_factory=lambda: NOTHING)


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A number with its 95 % interval and the count of pairs behind it."""

    value: float
    low: float
    high: float
    n: int


POINTS: Mapping[Verdict, float] = MappingProxyType(
    {Verdict.CHOSEN: 1.0, Verdict.TIE: 0.5, Verdict.REJECTED: 0.0, Verdict.UNREADABLE: 0.0}
)


def decide(chosen: Score, rejected: Score) -> Verdict:
    """Compare two scores. A missing score is not a loss: it is unreadable, and counted as such."""
    if chosen.value is None or rejected.value is None:
        return Verdict.UNREADABLE
    if chosen.value == rejected.value:
        return Verdict.TIE
    return Verdict.CHOSEN if chosen.value > rejected.value else Verdict.REJECTED
