"""The two questions that a panel is asked to settle, answered in words: yes, no, or cannot tell."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from prbench.errors import UsageError
from prbench.metrics.equivalence import Equivalence
from prbench.metrics.estimate import items_to_tell
from prbench.people.agreement.answers import HIGHEST, LOWEST, Answer
from prbench.people.agreement.figures import Why
from prbench.people.agreement.label import CHANCE, LabelAgreement, measure_label
from prbench.people.agreement.quality import Quality, measure_qualities

PREFERENCE = "Is personal preference the discriminating factor?"
EQUAL = "Is general quality equal?"
MANY = 1_000_000


class Reply(StrEnum):
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
class Question:
    """One question with its answer."""

    text: str
    reply: Reply
    because: str
    items: int
    items_needed: int | None = None  # to tell, if things are what they seem; `None` where it does not apply


def ask(rows: Sequence[Answer], settings: Settings) -> tuple[Question, Question]:
    """Answer both questions from people's answers."""
    label = measure_label(rows, level=settings.level, seed=settings.seed)
    qualities = measure_qualities(rows, margin=settings.margin, alpha=settings.alpha)
    return ask_preference(label, settings), ask_quality(qualities, settings)


def ask_preference(label: LabelAgreement | Why, settings: Settings) -> Question:
    """Is the label what people find when they are shown the user's rubric? Yes if its lower end is above the bar."""
    if isinstance(label, Why):
        return Question(text=PREFERENCE, reply=Reply.CANNOT_TELL, because=label.words, items=0)
    share, bar = label.by_answer, settings.bar
    found = (
        f"Shown the user's rubric, people pick the chosen response in {_percent(share.estimate.value)} of "
        f"{share.answers} answers, ties counting half ({_level(settings.level)} interval {_percent(share.low)} to "
        f"{_percent(share.high)}, {share.estimate.n} items). Chance is 50 %, the bar is {_percent(bar)}."
    )
    if share.low > bar:
        return Question(text=PREFERENCE, reply=Reply.YES, because=found, items=share.estimate.n)
    if share.high < bar:
        return Question(text=PREFERENCE, reply=Reply.NO, because=found, items=share.estimate.n)
    needed = items_to_tell(share, bar, level=settings.level)
    return Question(
        text=PREFERENCE,
        reply=Reply.CANNOT_TELL,
        because=f"{found} The interval holds the bar. {_more(needed)}",
        items=share.estimate.n,
        items_needed=needed,
    )


def ask_quality(qualities: Sequence[Quality], settings: Settings) -> Question:
    """Yes if all qualities are shown to be equal within the margin, no if one is shown to differ by more."""
    untested = [(quality.name, quality.test.words) for quality in qualities if isinstance(quality.test, Why)]
    if untested:
        because = f"{untested[0][0].capitalize()}: {untested[0][1]}"
        return Question(text=EQUAL, reply=Reply.CANNOT_TELL, because=because, items=0)
    tests = {quality.name: quality.test for quality in qualities if isinstance(quality.test, Equivalence)}
    items = min(test.items for test in tests.values())
    level = _level(1 - 2 * settings.alpha)
    found = "; ".join(
        f"{name} {test.difference:+.2f} ({level} interval {test.low:+.2f} to {test.high:+.2f})"
        for name, test in tests.items()
    )
    found = f"Chosen minus rejected, on a scale from 1 to 5: {found}. The margin is ±{settings.margin:g}."
    if all(test.equivalent for test in tests.values()):
        return Question(text=EQUAL, reply=Reply.YES, because=f"{found}{_small(tests)}", items=items)
    beyond = [name for name, test in tests.items() if test.beyond]
    if beyond:
        found = f"{found} Beyond the margin: {', '.join(beyond)}."
        return Question(text=EQUAL, reply=Reply.NO, because=found, items=items)
    open_ones = {name: test for name, test in tests.items() if not test.equivalent}
    needs = [test.needed for test in open_ones.values()]
    needed = None if None in needs else max(need for need in needs if need is not None)
    return Question(
        text=EQUAL,
        reply=Reply.CANNOT_TELL,
        because=f"{found} Not shown within the margin, nor beyond it: {', '.join(open_ones)}. {_more(needed)}",
        items=items,
        items_needed=needed,
    )


def _small(tests: Mapping[str, Equivalence]) -> str:
    """Say which differences are there all the same: equal within a margin is not identical."""
    there = [name for name, test in tests.items() if test.low > 0 or test.high < 0]
    return f" Within it, a small difference is there: {', '.join(there)}." if there else ""


def _more(needed: int | None) -> str:
    if needed is None:
        return "If things are what they seem, no number of items would settle it."
    if needed > MANY:
        return "If things are what they seem, more than a million items would be needed."
    return f"If things are what they seem, about {needed:,} items would settle it (80 % power)."


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %" if share in (0, 1) else f"{100 * share:.1f} %"


def _level(level: float) -> str:
    return f"{100 * level:.6g} %"
