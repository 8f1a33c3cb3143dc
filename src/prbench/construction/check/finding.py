"""What a check leaves behind: a verdict in a word, the figure, and what to do about it."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, asdict, dataclass, field
from itertools import islice, zip_longest
from statistics import NormalDist

from prbench.metrics.estimate import LEVEL
from prbench.schema import NOTHING, Estimate, Json

GOOD, TOO_FEW, LOOK, BAD, SKIPPED = "good", "too few", "look", "bad", "skipped"
_SEVERITY = (SKIPPED, GOOD, TOO_FEW, LOOK, BAD)
DIGITS = 6
STEP = 0.05  # beyond its band an accuracy is worth a look, and this much further it is bad
WIDEST = 0.35  # interval of an accuracy that can be good; a wider one leaves nearly everything possible
FEWEST = 10  # users for anything to be good: with fewer, no interval was ever tried (docs/research/intervals.md)
MOST_SAMPLES = 5  # of one check
LONGEST_TEXT = 400  # characters of one text in a sample


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckSample:
    """Texts from the data that show what was found."""

    title: str
    texts: tuple[tuple[str, str], ...]  # what it is, and the text


@dataclass(frozen=True, slots=True)
class CheckFinding:
    """One check: what was looked at, what came out, and what to do if it is not good."""

    check: str
    verdict: str  # good, too few, look, bad or skipped
    figure: str
    _: KW_ONLY
    why: str  # what goes wrong if this is bad
    remedy: str  # dropped where the verdict is good
    values: Mapping[str, Json] = field(default_factory=lambda: NOTHING)  # the numbers behind the figure
    samples: tuple[CheckSample, ...] = ()

    def __post_init__(self) -> None:
        if self.verdict == GOOD:
            object.__setattr__(self, "remedy", "")

    def as_json(self) -> dict[str, Json]:
        """Return the finding as `--json` prints it."""
        return {
            "check": self.check,
            "verdict": self.verdict,
            "figure": self.figure,
            "remedy": self.remedy,
            "why": self.why,
            "values": dict(self.values),
            "samples": [{"title": sample.title, "texts": dict(sample.texts)} for sample in self.samples],
        }


def grade(value: float, *, good: float, look: float) -> str:
    """Return the verdict on a value that should be small: up to `good`, up to `look`, or above."""
    return GOOD if value <= good else LOOK if value <= look else BAD


def unless_too_few(verdict: str, estimate: Estimate, users: int, *, widest: float) -> str:
    """Return the verdict, or that there are too few rows to tell, where only that makes it good."""
    is_sure = users >= FEWEST and estimate.high - estimate.low <= widest
    return verdict if is_sure or verdict != GOOD else TOO_FEW


def worst(*verdicts: str) -> str:
    return max(verdicts, key=_SEVERITY.index)


def in_turns(kinds: Iterable[Sequence[CheckSample]]) -> tuple[CheckSample, ...]:
    """Return up to five samples, one of each kind before the second of any."""
    found = (sample for each in zip_longest(*kinds) for sample in each if sample is not None)
    return tuple(islice(found, MOST_SAMPLES))


def cut(text: str) -> str:
    """Return a text short enough for a sample."""
    return text if len(text) <= LONGEST_TEXT else f"{text[:LONGEST_TEXT]} … ({len(text):,} characters)"


def as_values(estimate: Estimate) -> dict[str, Json]:
    """Return an estimate as plain numbers, rounded so that the last bits do not differ between machines."""
    return {
        name: round(value, DIGITS) if isinstance(value, float) else value for name, value in asdict(estimate).items()
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Band:
    """Where the accuracy of a rule may lie."""

    low: float
    high: float

    def verdict(self, estimate: Estimate, users: int) -> str:
        """Judge by the end of the interval that is nearer to the band: few rows must not look like a shortcut.

        Nor may they look good: where the users are few or the interval is wide, there are too few rows to tell.
        """
        # Rounding keeps a value on the border, such as 0.55, from falling off it by a speck.
        beyond = round(max(estimate.low - self.high, self.low - estimate.high, 0.0), 9)
        return unless_too_few(grade(beyond, good=0, look=STEP), estimate, users, widest=WIDEST)

    def too_few(self, estimate: Estimate) -> str:
        """Return what to do where the rows are too few to tell."""
        return f"{estimate.n} rows are too few to tell; about {self.rows_needed} rows of as many users can."

    @property
    def rows_needed(self) -> int:
        """How many rows of as many users tell chance from an accuracy that is bad.

        n = (z / 2w)², from the normal interval of a share of one half; its half width w is the step from chance to
        bad.
        """
        z = NormalDist().inv_cdf(0.5 + LEVEL / 2)
        return math.ceil((z * 0.5 / (self.high + STEP - 0.5)) ** 2)


CHANCE = Band(low=0.45, high=0.55)
