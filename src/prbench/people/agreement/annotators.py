"""One line per annotator: how much they did, how they go with the label and with the others, and what looks odd."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median

import numpy as np

from prbench.metrics.agreement import krippendorff_alpha
from prbench.metrics.estimate import clustered_share, ratio_estimates
from prbench.people.agreement.answers import CHOSEN, QUALITIES, REJECTED, TIE, Answer, Answers
from prbench.people.agreement.figures import Figure, Why, figure_or_why
from prbench.people.agreement.label import CHANCE, POINTS
from prbench.people.agreement.reliability import SIDES, table_of
from prbench.schema import Estimate

FEW = 10  # answers below which nothing is called odd
SAME = 0.95  # share of equal answers from which on somebody may not have looked
ODD = 0.01  # chance below which a lean to one side is worth a look
FAST = 1 / 3  # of the others' median time
LOO_DRAWS = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Annotator:
    """What one annotator, or judge, did."""

    name: str
    is_judge: bool
    answers: int
    no_choice: int
    with_label: Figure
    with_others: Figure  # share of other people's answers to the same items that are the same
    alpha_without: Figure  # of the people, without this one
    seconds: float | None  # median
    left_share: Figure
    ties: int | None
    flags: tuple[str, ...]


def measure_annotators(answers: Answers, *, seed: int) -> tuple[Annotator, ...]:
    """Return everybody, people first."""
    names = sorted({row.annotator for row in answers.people}) + sorted({row.annotator for row in answers.judges})
    own = {name: [row for row in answers.rows if row.annotator == name] for name in names}
    medians = {name: found for name in names if (found := _median_seconds(own[name])) is not None}
    return tuple(_measure(name, own[name], answers, medians, seed=seed) for name in names)


def _measure(
    name: str,
    own: Sequence[Answer],
    answers: Answers,
    medians: dict[str, float],
    *,
    seed: int,
) -> Annotator:
    made = [row for row in own if row.label is not None]
    with_label = _with_label(made, seed=seed) if answers.are_choices else Why("The labels are not choices.")
    is_judge = own[0].is_judge
    return Annotator(
        name=name,
        is_judge=is_judge,
        answers=len(made),
        no_choice=len(own) - len(made),
        with_label=with_label,
        with_others=_with_others(made, answers, seed=seed),
        alpha_without=Why("It is no person.") if is_judge else _alpha_without(name, answers, seed=seed),
        seconds=medians.get(name),
        left_share=_left_share(made, seed=seed),
        ties=sum(row.label == TIE for row in made) if answers.are_choices else None,
        flags=() if is_judge else tuple(_flags(name, own, made, with_label, medians)),
    )


def _with_label(made: Sequence[Answer], *, seed: int) -> Figure:
    if not made:
        return Why("No choice was made.")
    share = clustered_share([POINTS[str(row.label)] for row in made], [row.item for row in made], seed=seed)
    return Estimate(value=share.estimate.value, low=share.low, high=share.high, n=len(made))


def _with_others(made: Sequence[Answer], answers: Answers, *, seed: int) -> Figure:
    """Compare with other people; a judge is compared with them as well, but nobody with a judge."""
    if not made:
        return Why("No choice was made.")
    mine = {row.item: row.label for row in made}
    others = [
        row
        for row in answers.people
        if row.annotator != made[0].annotator and row.label is not None and row.item in mine
    ]
    if not others:
        return Why("Nobody else answered the same items.")
    same = [float(row.label == mine[row.item]) for row in others]
    shared = ratio_estimates(same, np.ones(len(same)), [row.item for row in others], seed=seed)[0]
    return replace(shared, n=len({row.item for row in others}))


def _alpha_without(name: str, answers: Answers, *, seed: int) -> Figure:
    rest = [row for row in answers.people if row.annotator != name]
    if not any(row.label is not None for row in rest):
        return Why("There is nobody else.")
    table = table_of(rest, are_choices=answers.are_choices)
    exchange = SIDES if answers.are_choices else None
    return figure_or_why(krippendorff_alpha(table, exchange=exchange, seed=seed, draws=LOO_DRAWS), table)


def _left_share(made: Sequence[Answer], *, seed: int) -> Figure:
    picks = _left_picks(made)
    if not picks:
        return Why("The side is not known.")
    share = clustered_share(picks, [str(number) for number in range(len(picks))], seed=seed)
    return Estimate(value=share.estimate.value, low=share.low, high=share.high, n=len(picks))


def _left_picks(made: Sequence[Answer]) -> list[float]:
    """Return 1 for every pick of the left response, 0 for the right one; ties are left out."""
    told = [row for row in made if row.side_chosen is not None and row.label in (CHOSEN, REJECTED)]
    return [float((row.side_chosen == "left") == (row.label == CHOSEN)) for row in told]


def _median_seconds(rows: Sequence[Answer]) -> float | None:
    known = [row.seconds for row in rows if row.seconds is not None]
    return median(known) if known else None


def _flags(
    name: str, own: Sequence[Answer], made: Sequence[Answer], with_label: Figure, medians: dict[str, float]
) -> list[str]:
    """Return what is worth a look, in words. None of it is proof: a careful person may do the same."""
    flags = [_straight_lining(own), _always_the_same(made), _one_sided(made), _fast(name, own, medians)]
    if not isinstance(with_label, Why) and len(made) >= FEW and with_label.high < CHANCE:
        flags.append(f"goes against the label: {100 * with_label.value:.0f} %")
    return [flag for flag in flags if flag]


def _straight_lining(own: Sequence[Answer]) -> str:
    vectors = [_ratings_by_side(row) for row in own if row.ratings]
    if len(vectors) < FEW:
        return ""
    (_, times), *_ = Counter(vectors).most_common(1)
    if times < SAME * len(vectors):
        return ""
    return f"straight-lining: the same ratings on {times} of {len(vectors)} items"


def _ratings_by_side(row: Answer) -> tuple[tuple[float, float], ...]:
    """Return the ratings left and right, as they were given; without sides, of chosen and rejected."""
    pairs = [row.ratings[name] for name in QUALITIES if name in row.ratings]
    return tuple((two, one) if row.side_chosen == "right" else (one, two) for one, two in pairs)


def _always_the_same(made: Sequence[Answer]) -> str:
    """Look at the answers as they were given: nobody sees which response is chosen, so sides are `_one_sided`'s."""
    seen = Counter(row.label for row in made if row.label not in (CHOSEN, REJECTED))
    if len(made) < FEW or not seen:
        return ""
    (label, times), *_ = seen.most_common(1)
    if times < SAME * len(made):
        return ""
    what = "cannot tell" if label == TIE else f"the same answer, {label!r},"
    return f"{what} on {times} of {len(made)} items"


def _one_sided(made: Sequence[Answer]) -> str:
    from scipy.stats import binomtest

    picks = _left_picks(made)
    left = int(sum(picks))
    if len(picks) < FEW or binomtest(left, len(picks)).pvalue >= ODD:
        return ""
    side, times = ("left", left) if 2 * left > len(picks) else ("right", len(picks) - left)
    return f"leans {side}: {times} of {len(picks)} picks"


def _fast(name: str, own: Sequence[Answer], medians: dict[str, float]) -> str:
    others = [seconds for other, seconds in medians.items() if other != name]
    if name not in medians or not others or len(own) < FEW:
        return ""
    mine, usual = medians[name], median(others)
    return f"fast: {mine:.0f} s per item, the others {usual:.0f} s" if mine < FAST * usual else ""
