"""Figures as text: one way to write a value with its interval, a p-value, and what there is none of."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from prbench.schema import Json

MISSING = "–"


def counted(count: int, noun: str) -> str:
    """Return a count of things: `1 user`, `2 users`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


class _Interval(Protocol):
    @property
    def value(self) -> float: ...
    @property
    def low(self) -> float: ...
    @property
    def high(self) -> float: ...


Figure = _Interval | Mapping[str, Json] | None  # with value, low and high; `None` where it does not apply


@dataclass(frozen=True, slots=True)
class NumberFormat:
    """How the figures of one kind are written: their digits, their unit, and whether they bear a sign."""

    digits: int
    scale: float = 1.0
    sign: bool = False

    def number(self, value: float | None) -> str:
        """Return a number; what rounds to nothing is never negative."""
        if value is None or math.isnan(value):
            return MISSING
        return f"{self.scale * value:{'+' if self.sign else ''}z.{self.digits}f}"

    def interval(self, low: float | None, high: float | None) -> str:
        """Return the ends of an interval: `[0.12, 0.34]`."""
        return MISSING if low is None or high is None else f"[{self.number(low)}, {self.number(high)}]"

    def of(self, value: float | None, low: float | None, high: float | None) -> str:
        """Return a value with its interval, or alone where it has none: `0.23 [0.12, 0.34]`."""
        return (
            self.number(value) if low is None or high is None else f"{self.number(value)} {self.interval(low, high)}"
        )

    def value(self, figure: Figure) -> str:
        """Return the value of a figure without its interval."""
        return MISSING if figure is None else self.number(parts_of(figure)[0])

    def estimate(self, figure: Figure) -> str:
        """Return a figure with its interval."""
        return MISSING if figure is None else self.of(*parts_of(figure))

    def starred(self, figure: Figure) -> str:
        """Return the value of a figure, with a star where its interval excludes 0."""
        if figure is None:
            return MISSING
        value, low, high = parts_of(figure)
        return f"{self.number(value)}{'*' if low > 0 or high < 0 else ' '}"


PERCENT = NumberFormat(1, 100.0)
POINTS = NumberFormat(1, 100.0, sign=True)  # differences of shares


def parts_of(figure: _Interval | Mapping[str, Json]) -> tuple[float, float, float]:
    """Return value, low and high of a record, or of a record as JSON holds it."""
    if isinstance(figure, Mapping):
        return figure["value"], figure["low"], figure["high"]
    return figure.value, figure.low, figure.high


def percent_text(share: float) -> str:
    """Return a share in percent; none and all of them without a digit that would say nothing."""
    return f"{100 * share:.0f} %" if share in (0, 1) else f"{100 * share:.1f} %"


def p_text(p: float | None, *, equals: bool = False) -> str:
    """Return a p-value as one prints it; in a sentence, `equals` makes it `= 0.012` or `< 0.001`."""
    if p is None or math.isnan(p):
        return MISSING
    return "< 0.001" if p < 0.001 else f"{'= ' if equals else ''}{p:.3f}"
