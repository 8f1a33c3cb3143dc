"""Do people agree, with each other and with the label, and are both responses equally good?

A panel is asked to settle two questions, and each is answered in words: yes, no, or cannot tell; with its caveats.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from enum import StrEnum
from pathlib import Path

from prbench.errors import UsageError
from prbench.metrics.equivalence import Equivalence
from prbench.metrics.estimate import items_to_tell
from prbench.metrics.number_format import percent_text
from prbench.people.agreement.answers import HIGHEST, LOWEST, Annotation, load_answers
from prbench.people.agreement.figures import (
    CHANCE,
    TENTATIVE,
    AnnotatorSummary,
    LabelAgreement,
    Position,
    Quality,
    Reliability,
    Why,
    as_json,
    measure_annotators,
    measure_label,
    measure_position,
    measure_qualities,
    measure_reliability,
)
from prbench.schema import Estimate, Json

__all__ = ["PanelReport", "QuestionReply", "Settings", "agreement", "load_answers"]

NOT_CHOICES = Why("The labels are not chosen, rejected and tie, so they say nothing about the label of a pair.")
PREFERENCE = "Is personal preference the discriminating factor?"
EQUAL = "Is general quality equal?"
MANY = 1_000_000


class QuestionReply(StrEnum):
    """How a question comes out."""

    YES = "yes"
    NO = "no"
    CANNOT_TELL = "cannot tell"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What counts as enough. All of it is yours to justify before the answers are in."""

    margin: float = 0.5  # points on the scale from 1 to 5 that two responses may differ by
    bar: float = 0.75  # half of the pairs told apart for sure, the others by a coin
    alpha: float = 0.05
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.margin < HIGHEST - LOWEST:
            raise UsageError(f"The margin is {self.margin}. Give points above 0 and below {HIGHEST - LOWEST:g}.")
        if not CHANCE <= self.bar < 1:
            raise UsageError(f"The bar is {self.bar}. Give a share from 0.5, which is chance, to below 1.")
        if not 0 < self.alpha < 0.5:
            raise UsageError(f"The level alpha is {self.alpha}. Give a number between 0 and 0.5.")

    @property
    def level(self) -> float:
        """The level of the interval that has to lie above the bar."""
        return 1 - self.alpha


@dataclass(frozen=True, slots=True, kw_only=True)
class PanelQuestion:
    """One question with its answer."""

    text: str
    reply: QuestionReply
    because: str
    items: int
    items_needed: int | None = None  # to tell, if things are what they seem; `None` where it does not apply


@dataclass(frozen=True, slots=True, kw_only=True)
class PanelReport:
    """All that the answers of a panel say."""

    settings: Settings
    items: int
    answers: int
    people: int
    judges: int
    are_choices: bool
    notes: tuple[str, ...]
    questions: tuple[PanelQuestion, PanelQuestion]
    caveats: tuple[str, ...]
    label: LabelAgreement | Why
    position: Position
    qualities: tuple[Quality, ...]
    reliability: Reliability
    annotators: tuple[AnnotatorSummary, ...]

    def as_json(self) -> dict[str, Json]:
        """Return everything for machines; a figure that does not exist is null, with the reason beside it."""
        return {spec.name: as_json(getattr(self, spec.name)) for spec in fields(self)}


def agreement(
    files: Sequence[Path | str], *, judge_runs: Sequence[Path | str] = (), settings: Settings | None = None
) -> PanelReport:
    """Measure the answers in some files, with the verdicts of runs beside them.

        report = agreement(["answers.jsonl"], judge_runs=["runs/ID"])

    The two questions are asked of people, not of judges.
    """
    settings = settings or Settings()
    answers = load_answers([Path(file) for file in files], judge_runs=[Path(run) for run in judge_runs])
    people = answers.people
    label: LabelAgreement | Why = NOT_CHOICES
    if answers.are_choices:
        label = measure_label(people, level=settings.level)
    qualities = measure_qualities(people, margin=settings.margin, alpha=settings.alpha)
    position = measure_position(people)
    reliability = measure_reliability(answers, seed=settings.seed)
    annotators = measure_annotators(answers, seed=settings.seed)
    caveats: tuple[str, ...] = ()
    if answers.are_choices:
        caveats = find_caveats(people, settings, position=position, reliability=reliability, annotators=annotators)
    return PanelReport(
        settings=settings,
        items=len({row.item for row in people}),
        answers=len(people),
        people=len({row.annotator for row in people}),
        judges=len({row.annotator for row in answers.judges}),
        are_choices=answers.are_choices,
        notes=answers.notes,
        questions=(ask_preference(label, settings), ask_quality(qualities, settings)),
        caveats=caveats,
        label=label,
        position=position,
        qualities=qualities,
        reliability=reliability,
        annotators=annotators,
    )


def ask(rows: Sequence[Annotation], settings: Settings) -> tuple[PanelQuestion, PanelQuestion]:
    """Answer both questions from people's answers."""
    label = measure_label(rows, level=settings.level)
    qualities = measure_qualities(rows, margin=settings.margin, alpha=settings.alpha)
    return ask_preference(label, settings), ask_quality(qualities, settings)


def ask_preference(label: LabelAgreement | Why, settings: Settings) -> PanelQuestion:
    """Is the label what people find when they are shown the user's rubric? Yes if its lower end is above the bar."""
    if isinstance(label, Why):
        return PanelQuestion(text=PREFERENCE, reply=QuestionReply.CANNOT_TELL, because=label.words, items=0)
    share, bar = label.by_answer, settings.bar
    found = (
        f"Shown the user's rubric, people pick the chosen response in {percent_text(share.estimate.value)} of "
        f"{share.answers} answers, ties counting half ({_level(settings.level)} interval {percent_text(share.low)} to "
        f"{percent_text(share.high)}, {share.estimate.n} items). Chance is 50 %, the bar is {percent_text(bar)}."
    )
    reply, needed = QuestionReply.YES if share.low > bar else QuestionReply.NO, None
    if share.low <= bar <= share.high:
        reply, needed = QuestionReply.CANNOT_TELL, items_to_tell(share, bar, level=settings.level)
        found += f" The interval holds the bar. {_more(needed)}"
    return PanelQuestion(text=PREFERENCE, reply=reply, because=found, items=share.estimate.n, items_needed=needed)


def ask_quality(qualities: Sequence[Quality], settings: Settings) -> PanelQuestion:
    """Yes if all qualities are shown to be equal within the margin, no if one is shown to differ by more."""
    untested = [(quality.name, quality.test.words) for quality in qualities if isinstance(quality.test, Why)]
    if untested:
        because = f"{untested[0][0].capitalize()}: {untested[0][1]}"
        return PanelQuestion(text=EQUAL, reply=QuestionReply.CANNOT_TELL, because=because, items=0)
    tests = {quality.name: quality.test for quality in qualities if isinstance(quality.test, Equivalence)}
    items = min(test.items for test in tests.values())
    level = _level(1 - 2 * settings.alpha)  # two one-sided tests at alpha are an interval at 1 - 2 alpha
    found = "; ".join(
        f"{name} {test.difference:+.2f} ({level} interval {test.low:+.2f} to {test.high:+.2f})"
        for name, test in tests.items()
    )
    found = f"Chosen minus rejected, on a scale from 1 to 5: {found}. The margin is ±{settings.margin:g}."
    reply, needed = QuestionReply.YES, None
    open_ones = {name: test for name, test in tests.items() if not test.equivalent}
    if not open_ones:
        # Equal within a margin is not identical.
        there = [name for name, test in tests.items() if test.low > 0 or test.high < 0]
        found += f" Within it, a small difference is there: {', '.join(there)}." if there else ""
    elif beyond := [name for name, test in tests.items() if test.beyond]:
        reply = QuestionReply.NO
        found += f" Beyond the margin: {', '.join(beyond)}."
    else:
        reply = QuestionReply.CANNOT_TELL
        needs = [test.needed for test in open_ones.values()]
        needed = None if None in needs else max(need for need in needs if need is not None)
        found += f" Not shown within the margin, nor beyond it: {', '.join(open_ones)}. {_more(needed)}"
    return PanelQuestion(text=EQUAL, reply=reply, because=found, items=items, items_needed=needed)


def _more(needed: int | None) -> str:
    if needed is None:
        return "If things are what they seem, no number of items would settle it."
    if needed > MANY:
        return "If things are what they seem, more than a million items would be needed."
    return f"If things are what they seem, about {needed:,} items would settle it (80 % power)."


def _level(level: float) -> str:
    return f"{100 * level:.6g} %"


def find_caveats(
    people: Sequence[Annotation],
    settings: Settings,
    *,
    position: Position,
    reliability: Reliability,
    annotators: Sequence[AnnotatorSummary],
) -> tuple[str, ...]:
    """Return what to know before believing the two answers, one sentence each."""
    names = sorted({row.annotator for row in people})
    lines = [f"All answers come from one person, {names[0]}."] if len(names) == 1 else []
    lines += _one_decides(people, names, settings) if len(names) > 1 else []
    difference, left = position.difference, position.left_share
    # A lean is told by the difference between the sides, as the left share also moves with where chosen stood.
    if isinstance(difference, Estimate) and isinstance(left, Estimate) and not difference.low <= 0 <= difference.high:
        side, picked = ("left", left.value) if difference.value > 0 else ("right", 1 - left.value)
        lines += [f"People lean to the {side}: {100 * picked:.1f} % of the picks."] if picked > CHANCE else []
    alpha = reliability.alpha
    if not isinstance(alpha, Estimate):
        lines.append(f"Agreement with each other is not known. {alpha.words}")
    elif alpha.high < TENTATIVE:
        lines.append(
            f"People agree little with each other: alpha {alpha.value:.2f}, at most {alpha.high:.2f}, "
            f"where {TENTATIVE} is asked for even tentative conclusions."
        )
    odd = [each.name for each in annotators if each.flags]
    if odd:
        lines.append(f"Worth a look: {', '.join(odd)} (see the table of annotators).")
    return tuple(lines)


def _one_decides(rows: Sequence[Annotation], names: Sequence[str], settings: Settings) -> list[str]:
    """Say which replies would be others without some single annotator."""
    usual = ask(rows, settings)
    lines = []
    for name in names:
        rest = ask([row for row in rows if row.annotator != name], settings)
        lines += [
            f"Without {name}, “{now.text}” would be “{now.reply.value}”, not “{before.reply.value}”."
            for before, now in zip(usual, rest, strict=True)
            if before.reply is not now.reply
        ]
    return lines
