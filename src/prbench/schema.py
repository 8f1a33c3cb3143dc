"""The records that the steps hand to each other. This module imports nothing of ours and does no I/O."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from textwrap import indent
from types import MappingProxyType
from typing import Any, Protocol, TypeVar

Json = Any  # what `json.loads` gives; the border checks it, the records only carry it

NOTHING: Mapping[str, Json] = MappingProxyType({})
# The fact of an imported row that says how the authors of its set count: a key of `metrics.official.WAYS`.
COUNTED_AS = "counted_as"
Progress = Callable[[int, int], None]  # items done, items in all
StepProgress = Callable[[str], Progress | None]  # told the name of a long step; may return what hears of its progress


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

    @property
    def texts(self) -> tuple[str, ...]:
        """What the posts say, sorted: users with the same texts cannot be told apart by their posts."""
        return tuple(sorted(post.text for post in self.profile))


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


class Problem(StrEnum):
    """Why there is no score. The tables below say which of them are worth another try."""

    NONE = ""
    NO_VERDICT = "no_verdict"  # the reply holds no explicit verdict or score
    OUT_OF_TOKENS = "out_of_tokens"  # the reply was cut off before its end, whatever stands in it
    TOO_LONG = "too_long"  # question and response alone exceed the model's window
    FAILED = "failed"  # the request or the forward pass broke
    WRONG_MODEL = "wrong_model"  # another model replied than the one that was asked
    NOT_RECORDED = "not_recorded"  # it was asked elsewhere, and what it said of this is not in its file


# Nothing was heard of the model that was asked, so this says nothing about it.
BROKEN = frozenset({Problem.FAILED, Problem.WRONG_MODEL})
# What the next run asks again; the others would come out the same.
RETRIED = BROKEN | {Problem.OUT_OF_TOKENS}


class HasProblem(Protocol):
    """A score, a comparison or whatever else may say why it is none."""

    @property
    def problem(self) -> Problem: ...


AnyHasProblem = TypeVar("AnyHasProblem", bound=HasProblem)


def gravest(found: Iterable[AnyHasProblem]) -> AnyHasProblem | None:
    """Return the one whose problem stands for all: a broken one, else a retried one, else the first; `None` of none.

    One row gets one problem. Were it that of a reply without a verdict, the request beside it that failed would
    neither be counted nor asked again.
    """
    order = sorted(found, key=lambda each: (each.problem not in BROKEN, each.problem not in RETRIED))
    return order[0] if order else None


class ContextKind(StrEnum):
    """What is told of a user."""

    NONE = "none"  # nothing, or labeled pairs alone
    PROFILE = "profile"  # posts
    PLAN = "plan"  # aspects that a planner inferred from posts
    ORACLE = "oracle"  # the gold rubric
    TEXT = "text"  # one text from outside, shown as it is


# The first line of a labeled pair. Any other segment that begins so gets a backslash, and one more if it has some.
LABEL = "[compared two answers]"
_LIKE_A_LABEL = re.compile(r"\\*" + re.escape(LABEL))
_HEADINGS: Mapping[ContextKind, str] = MappingProxyType(
    {
        ContextKind.PROFILE: "Posts that this person wrote before:",
        ContextKind.PLAN: "What this person probably looks for in an answer, judging by their earlier posts:",
        ContextKind.ORACLE: "What this person looks for in an answer, in their own account:",
    }
)
_HEADINGS_WITH_LABELS: Mapping[ContextKind, str] = MappingProxyType(
    {
        ContextKind.NONE: "Pairs of answers that this person compared before:",
        ContextKind.PROFILE: "Pairs of answers that this person compared before, and posts that they wrote:",
        ContextKind.PLAN: (
            "Pairs of answers that this person compared before, and what they probably look for in an answer, "
            "judging by their\nearlier posts:"
        ),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LabeledPair:
    """Two answers that a user compared before. It has no field for a rubric or a narrative, so none can leak."""

    question: str
    chosen: str
    rejected: str

    @property
    def text(self) -> str:
        """The pair in words; further lines of each part are indented, so that no part can pose as the next one."""
        parts = (("Question", self.question), ("Preferred", self.chosen), ("Turned down", self.rejected))
        return "\n".join([LABEL, *(f"{name}: {indent(part.strip(), '  ')[2:]}" for name, part in parts)])


@dataclass(frozen=True, kw_only=True)
class UserContext:
    """What a model may know of a user, as records; an empty one is the impersonal baseline.

    Contexts are equal where kind, segments and labels are, whatever was left out of them. The kind stays where nothing
    is told yet, as of a user without posts: labels may join it, under the heading of that kind. The text for language
    models is made here, once, and never read back.
    """

    kind: ContextKind = ContextKind.NONE
    segments: tuple[str, ...] = ()  # posts or aspects, best first, exactly as written
    labels: tuple[LabeledPair, ...] = ()
    dropped: int = field(default=0, compare=False)  # segments and labels that did not fit the model's window
    problem: Problem = field(default=Problem.NONE, compare=False)  # why nothing is told where something should be
    detail: str = field(default="", compare=False)
    truncated_posts: int = field(default=0, compare=False)  # posts that did not fit the planner's own window

    def __post_init__(self) -> None:
        """Refuse segments that no kind gives a heading."""
        if self.kind is ContextKind.NONE and self.segments:
            raise ValueError("Segments need a kind: say kind=ContextKind.PROFILE, or use UserContext.from_text.")
        if self.kind is ContextKind.TEXT and (len(self.segments) != 1 or self.labels):
            raise ValueError("A context of kind text is one segment, without labels.")
        if self.kind is ContextKind.ORACLE and self.labels:
            raise ValueError("An oracle knows all, so labels add nothing to it.")

    @classmethod
    def from_text(cls, text: str) -> "UserContext":
        """Return a text from outside as a context: one segment, shown as it is."""
        return cls(kind=ContextKind.TEXT, segments=(text,)) if text else cls()

    @property
    def used(self) -> int:
        """How many segments and labels are told."""
        return len(self.labels) + len(self.segments)

    @property
    def texts(self) -> tuple[str, ...]:
        """All that is told, one text each: the labeled pairs in words, then the segments."""
        return (*(label.text for label in self.labels), *self.segments)

    @cached_property
    def text(self) -> str:
        """What a language model is shown: a heading and a list; "" where nothing is known."""
        if self.problem is not Problem.NONE:
            raise ValueError(f"A {self.kind} context that is {self.problem.value!r} must be recorded, not shown.")
        if self.kind is ContextKind.TEXT:
            return self.segments[0]
        if not self.segments and not self.labels:
            return ""
        heading = (_HEADINGS_WITH_LABELS if self.labels else _HEADINGS)[self.kind]
        # No segment can be taken for a labeled pair, whatever its writer intended.
        segments = ["\\" + each.lstrip() if _LIKE_A_LABEL.match(each.lstrip()) else each for each in self.segments]
        return f"{heading}\n\n{as_list([*(label.text for label in self.labels), *segments])}"


def as_list(texts: Sequence[str]) -> str:
    """One point per text; further lines are indented, so that no text can pose as the next one."""
    return "\n".join("-" + indent(text.strip(), "  ")[1:] for text in texts)


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardInput:
    """All that a reward model may see. It has no rubric field, so no rubric can leak."""

    question: str
    response: str
    user: UserContext = UserContext()

    @property
    def context(self) -> str:
        """What is known of the user, as the text that a language model is shown."""
        return self.user.text


@dataclass(frozen=True, slots=True, kw_only=True)
class PairInput:
    """What a comparing model sees. It never learns which response is the chosen one."""

    question: str
    first: str
    second: str
    user: UserContext = UserContext()

    @property
    def context(self) -> str:
        """What is known of the user, as the text that a language model is shown."""
        return self.user.text


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
    posts_used: int = 0  # segments and labels that the model saw: posts, planned aspects, labeled pairs
    posts_dropped: int = 0  # those that did not fit its window, or the planner's
    groups: Mapping[str, Json] = field(default_factory=lambda: NOTHING)  # to group by, and facts that metrics need
    question_hash: str = ""  # of its text: rows with the same one were asked the same


@dataclass(frozen=True, slots=True, kw_only=True)
class RatedRow:
    """One rated response under one probe."""

    id: str
    probe: Probe
    user_id: str
    category: str
    rating: float
    score: float | None
    predicted: float | None = None  # the score on the scale of ratings; see `metrics.ratings.with_alignments`
    alignment: float | None = None  # 1 - |predicted - rating|
    problem: Problem = Problem.NONE
    detail: str = ""
    raw: str = ""
    posts_used: int = 0
    posts_dropped: int = 0
    groups: Mapping[str, Json] = field(default_factory=lambda: NOTHING)
    question_hash: str = ""


def crossed_fields(name: str) -> tuple[str, ...]:
    """Return the fields by which rows are grouped: `region` is one, and `region,age` crosses two."""
    return tuple(dict.fromkeys(field.strip() for field in name.split(",")))


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
