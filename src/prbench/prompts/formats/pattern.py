"""A pattern of one's own, in the header of a prompt template: `reply: pattern:Choice: (?:(?P<first>1)|(?P<second>2))`.

It has to match a whole line, blanks around it aside; the last line that it matches counts. A careless pattern cannot
stop a run: its ways to match a line are counted when it is loaded, one with a repetition inside a repetition is
refused, and lines that are too long for it are not looked at, nor is what stands before `STEPS` ways of a reply.
"""

import re
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from math import comb, isfinite
from typing import Any

from prbench.errors import UsageError
from prbench.prompts.formats import ReplyFormat
from prbench.prompts.replies import number_on, strip_thinking, within
from prbench.schema import Pick
from prbench.specs import Spec

LONGEST, SHORTEST = 300, 40  # characters of a line that is looked at, at most; a pattern that cannot afford the latter
STEPS_OF_LINE, STEPS = 30_000_000, 300_000_000  # ways to match: a fraction of a second, and seconds

_PICKS = {"first": Pick.FIRST, "second": Pick.SECOND, "tie": Pick.TIE}
_KINDS = ({"first", "second"}, {"first", "second", "tie"}, {"score_first", "score_second"}, {"score"})
_GROUPS = "first and second (and tie), score_first and score_second, or score"


def load(spec: Spec, options: None) -> ReplyFormat:
    """Return `pattern:REGEX`; one that cannot be read, or whose groups say nothing, is refused."""
    try:
        pattern = re.compile(spec.target)
    except (re.error, OverflowError) as error:
        raise UsageError(f"reply: {spec.text}: this is no pattern of Python's re ({error}). Mend it.") from error
    try:
        bounded = _Bounded(pattern, *_ways(import_module("re._parser").parse(spec.target), is_repeated=False))
    except _NestedError as error:
        raise UsageError(
            f"reply: {spec.text}: a repetition holds another one, an optional part or alternatives, which may take "
            "years to read. Repeat single characters, such as [^:]+."
        ) from error
    if bounded.longest < SHORTEST:
        raise UsageError(
            f"reply: {spec.text}: it has too many repetitions and optional parts to be read in time. Use fewer."
        )
    groups = set(pattern.groupindex)
    if groups not in _KINDS:
        named = ", ".join(sorted(groups)) or "none"
        raise UsageError(f"reply: {spec.text}: its named groups are {named}. Give it {_GROUPS}.")
    if pattern.fullmatch(""):
        raise UsageError(f"reply: {spec.text}: it matches a line that is empty. Ask for more.")
    if "score" in groups:
        return ReplyFormat(score=partial(_score, bounded))
    return ReplyFormat(pick=partial(_pick, bounded), has_ties="second" not in groups or "tie" in groups)


class _NestedError(Exception):
    """Something that repeats holds something that varies."""


@dataclass(frozen=True, slots=True)
class _Bounded:
    """A pattern, and how many ways there are at most to match a line with it."""

    pattern: re.Pattern[str]
    ways: int  # by alternatives and optional parts
    repeats: int  # of open length, one behind another

    def steps(self, length: int) -> int:
        """Return the ways to match a line: repetitions one behind another share its characters among them."""
        return self.ways * comb(length + self.repeats, self.repeats)

    @property
    def longest(self) -> int:
        """The length of the longest line that can be read in time."""
        return max((length for length in range(LONGEST + 1) if self.steps(length) <= STEPS_OF_LINE), default=0)

    def last(self, reply: str) -> re.Match[str] | None:
        """Return the match of the last line that matches."""
        left, longest = STEPS, self.longest
        for line in (line.strip() for line in reversed(strip_thinking(reply).split("\n"))):
            if len(line) > longest:
                continue
            if found := self.pattern.fullmatch(line):
                return found
            left -= self.steps(len(line))
            if left < 0:
                return None
        return None


def _ways(parsed: Any, *, is_repeated: bool) -> tuple[int, int]:
    """Return `ways` and `repeats` of what Python's `re` parsed; what varies inside a repetition is refused."""
    ways, repeats = 1, 0
    for operation, value in parsed:
        name = str(operation)
        if name == "BRANCH":
            inner = [_ways(branch, is_repeated=is_repeated) for branch in value[1]]
            found = sum(each for each, _ in inner), max(each for _, each in inner)
        elif name.endswith("_REPEAT"):
            low, high, body = value
            found = _ways(body, is_repeated=is_repeated or high > 1)
            if low != high:
                found = (found[0] + 1, found[1]) if high == 1 else (found[0], found[1] + 1)
        elif name == "GROUPREF_EXISTS":
            inner = [_ways(part or (), is_repeated=is_repeated) for part in value[1:]]
            found = sum(each for each, _ in inner), max(each for _, each in inner)
        elif name in ("SUBPATTERN", "ASSERT", "ASSERT_NOT", "ATOMIC_GROUP"):
            found = _ways(value if name == "ATOMIC_GROUP" else value[-1], is_repeated=is_repeated)
        else:
            found = 1, int(name.startswith("GROUPREF"))
        if is_repeated and found != (1, 0):
            raise _NestedError
        ways, repeats = ways * found[0], repeats + found[1]
    return ways, repeats


def _pick(bounded: _Bounded, reply: str) -> Pick:
    found = bounded.last(reply)
    if not found:
        return Pick.UNREADABLE
    values = {name: value for name, value in found.groupdict().items() if value is not None}
    if "score_first" in bounded.pattern.groupindex:
        return _compared(values.get("score_first", ""), values.get("score_second", ""))
    return _PICKS[next(iter(values))] if len(values) == 1 else Pick.UNREADABLE


def _compared(first: str, second: str) -> Pick:
    """Compare two numbers, on whatever scale; `nan` and `inf` are none."""
    try:
        scores = float(first), float(second)
    except ValueError:
        return Pick.UNREADABLE
    if not all(isfinite(score) for score in scores):
        return Pick.UNREADABLE
    difference = scores[0] - scores[1]
    return Pick.TIE if difference == 0 else Pick.FIRST if difference > 0 else Pick.SECOND


def _score(bounded: _Bounded, reply: str, low: float, high: float) -> float | None:
    found = bounded.last(reply)
    return within(number_on(found["score"] or "", low, high) if found else None, low, high)
