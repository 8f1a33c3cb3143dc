"""A pattern of one's own, in the header of a prompt template: `reply: pattern:Choice: (?:(?P<first>1)|(?P<second>2))`.

It has to match a whole line, blanks around it aside; the last line that it matches counts. Lines of more than
`LONGEST` characters are not looked at, so that a careless pattern cannot stop a run.
"""

import re
from functools import partial

from prbench.errors import UsageError
from prbench.prompts.formats import ReplyFormat
from prbench.prompts.replies import number_on, strip_thinking, within
from prbench.schema import Pick
from prbench.specs import Spec

LONGEST = 300  # characters of a line that is looked at

_PICKS = {"first": Pick.FIRST, "second": Pick.SECOND, "tie": Pick.TIE}
_KINDS = ({"first", "second"}, {"first", "second", "tie"}, {"score_first", "score_second"}, {"score"})
_GROUPS = "first and second (and tie), score_first and score_second, or score"


def load(spec: Spec, options: None) -> ReplyFormat:
    """Return `pattern:REGEX`; one that cannot be read, or whose groups say nothing, is refused."""
    try:
        pattern = re.compile(spec.target)
    except (re.error, OverflowError) as error:
        raise UsageError(f"reply: {spec.text}: this is no pattern of Python's re ({error}). Mend it.") from error
    groups = set(pattern.groupindex)
    if groups not in _KINDS:
        named = ", ".join(sorted(groups)) or "none"
        raise UsageError(f"reply: {spec.text}: its named groups are {named}. Give it {_GROUPS}.")
    if pattern.fullmatch(""):
        raise UsageError(f"reply: {spec.text}: it matches a line that is empty. Ask for more.")
    if "score" in groups:
        return ReplyFormat(score=partial(_score, pattern))
    return ReplyFormat(pick=partial(_pick, pattern), has_ties="second" not in groups or "tie" in groups)


def _last(pattern: re.Pattern[str], reply: str) -> re.Match[str] | None:
    lines = (line.strip() for line in reversed(strip_thinking(reply).split("\n")))
    return next((found for line in lines if len(line) <= LONGEST and (found := pattern.fullmatch(line))), None)


def _pick(pattern: re.Pattern[str], reply: str) -> Pick:
    found = _last(pattern, reply)
    if not found:
        return Pick.UNREADABLE
    values = {name: value for name, value in found.groupdict().items() if value is not None}
    if "score_first" in pattern.groupindex:
        return _compared(values.get("score_first", ""), values.get("score_second", ""))
    return _PICKS[next(iter(values))] if len(values) == 1 else Pick.UNREADABLE


def _compared(first: str, second: str) -> Pick:
    """Compare two numbers, on whatever scale."""
    try:
        difference = float(first) - float(second)
    except ValueError:
        return Pick.UNREADABLE
    return Pick.TIE if difference == 0 else Pick.FIRST if difference > 0 else Pick.SECOND


def _score(pattern: re.Pattern[str], reply: str, low: float, high: float) -> float | None:
    found = _last(pattern, reply)
    return within(number_on(found["score"] or "", low, high) if found else None, low, high)
