"""Is the general quality of the two responses equal? Equivalence tests on what people rated."""

from collections.abc import Sequence
from dataclasses import dataclass

from prbench.metrics.equivalence import Equivalence, equivalence
from prbench.people.agreement.answers import HIGHEST, LOWEST, QUALITIES, Answer
from prbench.people.agreement.figures import Why


@dataclass(frozen=True, slots=True, kw_only=True)
class Quality:
    """One quality of the chosen and of the rejected responses, from 1 to 5."""

    name: str
    chosen: float | None  # mean rating
    rejected: float | None
    test: Equivalence | Why  # of chosen - rejected, or why there is none


def measure_qualities(rows: Sequence[Answer], *, margin: float, alpha: float) -> tuple[Quality, ...]:
    """Return the test of every quality, over the answers that rate both responses."""
    return tuple(_measure(name, rows, margin=margin, alpha=alpha) for name in QUALITIES)


def _measure(name: str, rows: Sequence[Answer], *, margin: float, alpha: float) -> Quality:
    rated = [row for row in rows if name in row.ratings]
    items = [row.item for row in rated]
    if not rated:
        return Quality(name=name, chosen=None, rejected=None, test=Why("Nobody rated both responses of an item."))
    chosen, rejected = zip(*(row.ratings[name] for row in rated), strict=True)
    test: Equivalence | Why = Why("Only one item is rated, and one item says nothing about others.")
    if len(set(items)) > 1:
        differences = [one - two for one, two in zip(chosen, rejected, strict=True)]
        test = equivalence(differences, items, margin=margin, span=HIGHEST - LOWEST, alpha=alpha, tests=len(QUALITIES))
    return Quality(name=name, chosen=sum(chosen) / len(rated), rejected=sum(rejected) / len(rated), test=test)
