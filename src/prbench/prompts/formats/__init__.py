"""Reply formats: how judges say what they decided. `prbench.registry.REPLIES` has one row each, this package one file.

A format says how a text is read, and nothing of how it was asked for: that is the prompt template, whose header names
the format that its replies have (`reply: arena`). All formats take out thinking first, and let the last explicit
verdict win; none of them guesses.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from prbench.errors import UsageError
from prbench.registry import REPLIES
from prbench.schema import Pick
from prbench.specs import parse_spec

OWN = "result"  # the format that our own prompts ask for
SCALES = ((1.0, 10.0), (1.0, 5.0), (0.0, 100.0))  # on which a score is looked for where nobody names a scale


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyFormat:
    """What the loader of a row returns: readers of a text. `None`: the format has no such thing."""

    pick: Callable[[str], Pick] | None = None  # which of two responses the text decides for
    score: Callable[[str, float, float], float | None] | None = None  # the score of one, on a scale from low to high
    has_ties: bool = False  # a text may decide for neither

    def require_pick(self, name: str) -> Callable[[str], Pick]:
        """Return the reader of verdicts; a format without one is refused."""
        if self.pick is None:
            raise UsageError(f"The reply format {name!r} has scores and no verdicts. Use it with rating:, not judge:.")
        return self.pick

    def require_score(self, name: str) -> Callable[[str, float, float], float | None]:
        """Return the reader of scores; a format without one is refused."""
        if self.score is None:
            raise UsageError(f"The reply format {name!r} has verdicts and no scores. Use it with judge:, not rating:.")
        return self.score


def open_format(text: str) -> ReplyFormat:
    """Return the format of that name, e.g. `arena`, `json?field=winner` or `pattern:Choice (?P<first>1)|…`."""
    spec = parse_spec(text, REPLIES)
    kind = REPLIES.find(spec.kind)
    made: ReplyFormat = kind.make(spec, kind.read_options(spec), needs=ReplyFormat)
    return made


def formats_that_read(replies: Sequence[str], *, scores: bool = False) -> list[str]:
    """Return the formats that find a verdict (or a score) in most of some replies, the best one first."""
    counts: dict[str, int] = {}
    for kind in REPLIES.rows:
        if kind.takes_target:
            continue  # nobody can guess a pattern
        reads = open_format(kind.name)
        for reply in replies:
            if scores and reads.score is not None:
                found = any(reads.score(reply, low, high) is not None for low, high in SCALES)
            else:
                found = not scores and reads.pick is not None and reads.pick(reply) is not Pick.UNREADABLE
            counts[kind.name] = counts.get(kind.name, 0) + found
    most = max(counts.values(), default=0)
    return [name for name in sorted(counts, key=lambda name: -counts[name]) if 2 * counts[name] > most]
