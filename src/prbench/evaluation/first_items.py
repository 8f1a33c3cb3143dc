"""A look at the first items of a run: where most of them cannot be read, the user hears of it at once, and why.

A judge whose replies come in another format than its prompt asks for is the usual reason. So the line shows a reply,
and names the formats that would read it.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from prbench.errors import shortened
from prbench.prompts import packaged_names
from prbench.prompts.formats import OWN, formats_that_read
from prbench.schema import Json, Probe, Problem, RatedRow, Row, Verdict

FIRST = 20  # items that are looked at
LONGEST = 120  # characters of a reply that are shown


class FirstItems:
    """Looks at rows as they come, and says once what is wrong with them."""

    def __init__(self, model: str, *, is_recorded: bool = False) -> None:
        self._model = model
        self._is_recorded = is_recorded  # its replies are there, and only their reader can change
        self._rows: list[Row | RatedRow] = []
        self._is_told = False

    def add(self, rows: Iterable[Row | RatedRow]) -> str:
        """Take rows; return the line that the user should see now, or ""."""
        if self._is_told:
            return ""
        self._rows += [row for row in rows if row.probe is Probe.OWN][: FIRST - len(self._rows)]
        return self._line(FIRST)

    def end(self) -> str:
        """Return the line that the user should see, now that all rows are there, or ""."""
        return "" if self._is_told else self._line(len(self._rows))

    def _line(self, expected: int) -> str:
        unread = [row for row in self._rows if not is_readable(row)]
        if 2 * len(unread) <= expected:
            return ""
        self._is_told = True
        reason, _ = Counter(row.problem.value for row in unread).most_common(1)[0]
        share = f"{len(unread)} of the first {len(self._rows)} items cannot be read ({reason or 'unstated'})"
        without_verdict = [row for row in unread if row.problem is Problem.NO_VERDICT]
        replies = [reply for row in without_verdict for reply in _unread_replies(row)]
        if not replies:
            details = [row.detail for row in unread if row.detail]
            return f"{self._model}: {share}{f', e.g. {_quoted(details[0])}' if details else ''}."
        scores = not any(isinstance(row, Row) and row.orders for row in without_verdict)
        remedy = _remedy(replies, scores=scores, is_recorded=self._is_recorded)
        return f"{self._model}: {share}, e.g. the reply {_quoted(replies[0])}. {remedy}"


def is_readable(row: Row | RatedRow) -> bool:
    """Tell whether a row has a verdict, or a score."""
    return row.verdict is not Verdict.UNREADABLE if isinstance(row, Row) else row.score is not None


def nothing_readable(summary: Mapping[str, Json]) -> str:
    """Return the line about a run that has no figure because no item could be read, or ""."""
    if summary["coverage"]["value"] > 0:
        return ""
    counts: Mapping[str, int] = summary["unreadable"]
    reason = max(counts, key=lambda name: counts[name], default="") or "unstated"
    return (
        f"{summary['model']} · {summary['context']}: none of the {summary['n_items']} items could be read, so there "
        f"is no number; the most frequent reason is {reason!r}. The replies are in the rows of the run."
    )


def _unread_replies(row: Row | RatedRow) -> list[str]:
    if isinstance(row, RatedRow):
        return [row.raw] if row.raw else []
    if row.orders:
        return [str(order["raw"]) for order in row.orders if order["reason"] == Problem.NO_VERDICT and order["raw"]]
    return [reply for reply in row.replies.values() if reply]


def _quoted(text: str) -> str:
    return repr(shortened(" ".join(text.split()), LONGEST))


def _remedy(replies: Sequence[str], *, scores: bool, is_recorded: bool) -> str:
    names = formats_that_read(replies, scores=scores)
    if names and is_recorded:
        return f"Read it with {' or '.join(f'?format={name}' for name in names)}."
    if not names:
        return "No reply format reads it; a template may bring a pattern of its own (`prbench models --of replies`)."
    templates = [f"?template={found}" for name in names if (found := _template_of(name, scores=scores))]
    ask = f"Ask with {' or '.join(templates)}, or with" if templates else "Ask with"
    return f"The reply format {' or '.join(names)} reads it. {ask} a template that says `reply: {names[0]}`."


def _template_of(name: str, *, scores: bool) -> str:
    """Return the template that asks for a format, or "" where the package has none."""
    wanted = {OWN: "rate" if scores else "judge_pair"}.get(name, f"{name}_absolute" if scores else name)
    return wanted if wanted in packaged_names() else ""
