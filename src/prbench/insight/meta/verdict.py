"""What the figures say in one sentence: yes, no, the wrong way round, no more than the design, or too few to tell.

`RULES` is the whole of it. A sentence quotes the figures that it rests on, and says why wherever one of them seems to
say something else: p and interval are made in different ways, and on the edge they part.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from prbench.insight.meta.intervals import ALPHA, MOST_MODELS, models_needed
from prbench.insight.meta.structural import NullBand

BAR = 0.5  # a correlation worth having


class MetaOutcome(StrEnum):
    """Whether a benchmark predicts downstream results."""

    PREDICTS = "predicts"
    AS_DESIGNED = "no more than the design yields by itself"
    REVERSED = "reversed"
    DOES_NOT = "does not predict"
    TOO_FEW = "too few models to tell"


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """All that a verdict rests on."""

    n: int
    value: float | None
    low: float | None
    high: float | None
    p: float | None
    bar: float = BAR
    families: int | None = None  # `None`: not known, so the interval is over models
    band: NullBand | None = None  # of boards of this spread; `None`: not simulated

    @property
    def is_known(self) -> bool:
        """True if there is a correlation with an interval and a p."""
        return None not in (self.value, self.low, self.high, self.p)

    @property
    def leaves_zero_out(self) -> bool:
        """True if the interval is on one side of 0."""
        return (self.low or 0.0) > 0 or (self.high or 0.0) < 0

    @property
    def is_small_p(self) -> bool:
        """True if p is under the level."""
        return self.p is not None and self.p < ALPHA

    @property
    def shows_sign(self) -> bool:
        """True if both p and the interval say that there is a correlation."""
        return self.is_small_p and self.leaves_zero_out

    @property
    def is_negative(self) -> bool:
        """True if what ranks high on one side ranks low on the other."""
        return (self.value or 0.0) < 0

    @property
    def rules_bar_out(self) -> bool:
        """True if the interval stays below the correlation worth having."""
        return self.high is not None and self.high < self.bar

    @property
    def is_as_designed(self) -> bool:
        """True if a board of this spread yields such a correlation by itself."""
        return self.band is not None and self.value is not None and self.band.place(self.value) == "inside"

    @property
    def over(self) -> str:
        """The models in words."""
        models = "1 model" if self.n == 1 else f"{self.n} models"
        return models if self.families in (None, self.n) else f"{models} of {self.families} families"

    @property
    def figures(self) -> str:
        """What every sentence quotes."""
        p = self.p or 0.0
        small_p = "< 0.001" if p < 0.001 else f"= {p:.3f}" if p < 0.01 else f"= {p:.2f}"
        population = "models" if self.families is None else "families"
        limits = f"95 % interval over {population} {self.low:.2f} to {self.high:.2f}"
        return f"Spearman {self.value:.2f}, {limits}, p {small_p}"

    @property
    def by_design(self) -> str:
        """Where the figure lies among boards of this spread, as a sentence; empty where none was simulated."""
        if self.band is None or self.value is None:
            return ""
        span = f"{self.band.low:.2f} to {self.band.high:.2f}"
        words = {"inside": "no more than", "below": "less than", "above": "more than"}
        return f" That is {words[self.band.place(self.value)]} the design yields by itself ({span})."


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One line of the table: when it holds, what follows, and in which words."""

    name: str
    holds: Callable[[Evidence], bool]
    outcome: MetaOutcome
    says: Callable[[Evidence], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Conclusion:
    """An outcome with its reason."""

    outcome: MetaOutcome
    sentence: str
    rule: str  # of `RULES`, which decided
    needed: int | None  # models that would show the observed correlation; `None`: it is 0, or there is none
    needed_for_bar: int  # models that would show a correlation worth having


def conclude(
    *,
    n: int,
    value: float | None,
    low: float | None,
    high: float | None,
    p: float | None,
    bar: float = BAR,
    families: int | None = None,
    band: NullBand | None = None,
) -> Conclusion:
    """Say whether the ranking by the benchmark predicts the ranking downstream, from Spearman's correlation.

    `bar` is the correlation that would make the benchmark worth its cost: a correlation is denied when the interval
    stays below it, and nothing is said when the interval holds both 0 and the bar. The first rule that holds counts.
    """
    seen = Evidence(n=n, value=value, low=low, high=high, p=p, bar=bar, families=families, band=band)
    rule = next(each for each in RULES if each.holds(seen))
    return Conclusion(
        outcome=rule.outcome,
        sentence=rule.says(seen),
        rule=rule.name,
        needed=models_needed(value) if value and seen.is_known else None,
        needed_for_bar=models_needed(bar),
    )


def _nothing(seen: Evidence) -> str:
    if seen.value is None and seen.n >= 2:
        why = f"all {seen.n} models have the same score on one side"
    else:
        why = f"{seen.over} can show nothing"
    return f"Too few models to tell: {why}. About {models_needed(seen.bar)} {_drawn(seen)} would show {_bar(seen)}."


def _bar(seen: Evidence) -> str:
    return f"a correlation of {seen.bar:.2f}"


def _drawn(seen: Evidence) -> str:
    return "models" if seen.families in (None, seen.n) else "models, each of a family of its own,"


def _reversed(seen: Evidence) -> str:
    what = "what ranks high here ranks low downstream"
    return f"It predicts the wrong way round: over {seen.over}, {what} ({seen.figures})."


def _not_well(seen: Evidence) -> str:
    ruled_out = f"over {seen.over} there is a correlation, but one of {seen.bar:.2f} can be ruled out"
    return f"It does not predict well enough: {ruled_out} ({seen.figures}).{seen.by_design}"


def _predicts(seen: Evidence) -> str:
    how = "strongly" if (seen.low or 0.0) >= seen.bar else "how strongly is open"
    return f"It predicts the downstream ranking, {how}: over {seen.over}, {seen.figures}.{seen.by_design}"


def _as_designed(seen: Evidence) -> str:
    assert seen.band is not None
    return (
        f"It predicts the downstream ranking, but no more than the design yields by itself: over {seen.over}, "
        f"{seen.figures}; models of this spread that read no text have {seen.band.low:.2f} to {seen.band.high:.2f}."
    )


def _parting(seen: Evidence) -> str:
    """Return why p and interval disagree, where they do."""
    if seen.is_small_p and not seen.leaves_zero_out:
        return " p is small although the interval holds 0: p asks about these models, the interval about others."
    if seen.leaves_zero_out and not seen.is_small_p:
        return " The interval leaves 0 out although p is not small: it counts boards of this very figure half."
    return ""


def _ruled_out(seen: Evidence) -> str:
    return (
        f"It does not predict the downstream ranking: over {seen.over}, {_bar(seen)} can be ruled out "
        f"({seen.figures}).{_parting(seen)}"
    )


def _parted(seen: Evidence) -> str:
    return (
        f"Too few models to tell: over {seen.over}, {seen.figures}.{_parting(seen)} "
        f"About {models_needed(seen.bar)} {_drawn(seen)} would show {_bar(seen)} with 80 % power."
    )


def _too_few(seen: Evidence) -> str:
    p = seen.p or 0.0
    by_chance = f"chance gives a correlation as far from 0 in {100 * p:.0f} % of the cases"
    for_bar = models_needed(seen.bar)
    would = f"{for_bar} {_drawn(seen)} would show {_bar(seen)}"
    needed = models_needed(seen.value) if seen.value else None
    if needed is not None and needed < MOST_MODELS:
        would = f"{needed} models would show one of {abs(seen.value or 0.0):.2f}, and {would},"
    return f"Too few models to tell: with {seen.over}, {by_chance} ({seen.figures}). About {would} with 80 % power."


# From top to bottom; the first that holds counts, and the last always does.
RULES: tuple[Rule, ...] = (
    Rule(
        name="no correlation, interval or p can be had",
        holds=lambda seen: not seen.is_known,
        outcome=MetaOutcome.TOO_FEW,
        says=_nothing,
    ),
    Rule(
        name="p < 0.05, the interval leaves 0 out, negative",
        holds=lambda seen: seen.shows_sign and seen.is_negative,
        outcome=MetaOutcome.REVERSED,
        says=_reversed,
    ),
    Rule(
        name="p < 0.05, the interval leaves 0 out and stays below the bar",
        holds=lambda seen: seen.shows_sign and seen.rules_bar_out,
        outcome=MetaOutcome.DOES_NOT,
        says=_not_well,
    ),
    Rule(
        name="p < 0.05, the interval leaves 0 out, inside what the design yields",
        holds=lambda seen: seen.shows_sign and seen.is_as_designed,
        outcome=MetaOutcome.AS_DESIGNED,
        says=_as_designed,
    ),
    Rule(
        name="p < 0.05, the interval leaves 0 out",
        holds=lambda seen: seen.shows_sign,
        outcome=MetaOutcome.PREDICTS,
        says=_predicts,
    ),
    Rule(
        name="not both, and the interval stays below the bar",
        holds=lambda seen: seen.rules_bar_out,
        outcome=MetaOutcome.DOES_NOT,
        says=_ruled_out,
    ),
    Rule(
        name="p < 0.05 or the interval leaves 0 out, not both",
        holds=lambda seen: seen.is_small_p or seen.leaves_zero_out,
        outcome=MetaOutcome.TOO_FEW,
        says=_parted,
    ),
    Rule(name="neither", holds=lambda seen: True, outcome=MetaOutcome.TOO_FEW, says=_too_few),
)
