"""One line per annotator: how much they did, how they go with the label and with the others, and what looks odd."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median

import numpy as np

from prbench.metrics.agreement import krippendorff_alpha
from prbench.metrics.estimate import clustered_share, ratio_estimates
from prbench.people.agreement.answers import CHOSEN, QUALITIES, REJECTED, TIE, Annotation, Annotations
from prbench.people.agreement.figures import CHANCE, SIDES, Figure, Why, figure_or_why, points, table_of
from prbench.schema import Estimate

FEW = 10  # answers below which nothing is called odd
SAME = 0.95  # share of equal answers from which on somebody may not have looked
ODD = 0.01  # chance below which a lean to one side is worth a look
FAST = 1 / 3  # of the others' median time
LOO_DRAWS = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class AnnotatorSummary:
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


def measure_annotators(answers: Annotations, *, seed: int) -> tuple[AnnotatorSummary, ...]:
    """Return everybody, people first."""
    names = sorted({row.annotator for row in answers.people}) + sorted({row.annotator for row in answers.judges})
    own = {name: [row for row in answers.rows if row.annotator == name] for name in names}
    known = {name: [row.seconds for row in own[name] if row.seconds is not None] for name in names}
    medians = {name: median(seconds) for name, seconds in known.items() if seconds}
    return tuple(_measure(name, own[name], answers, medians, seed=seed) for name in names)


def _measure(
    name: str, own: Sequence[Annotation], answers: Annotations, medians: dict[str, float], *, seed: int
) -> AnnotatorSummary:
    made = [row for row in own if row.label is not None]
    is_judge = own[0].is_judge
    with_label: Figure = Why("The labels are not choices.")
    if answers.are_choices:
        with_label = _share(
            [points(row.label) for row in made], [row.item for row in made], "No choice was made.", seed
        )
    rest = [row for row in answers.people if row.annotator != name]
    alpha_without: Figure = Why("It is no person." if is_judge else "There is nobody else.")
    if not is_judge and any(row.label is not None for row in rest):
        table = table_of(rest, are_choices=answers.are_choices)
        exchange = SIDES if answers.are_choices else None
        alpha = krippendorff_alpha(table, exchange=exchange, seed=seed, draws=LOO_DRAWS)
        alpha_without = figure_or_why(alpha, table)
    picks = _left_picks(made)
    rounds = [str(number) for number in range(len(picks))]
    return AnnotatorSummary(
        name=name,
        is_judge=is_judge,
        answers=len(made),
        no_choice=len(own) - len(made),
        with_label=with_label,
        with_others=_with_others(made, answers, seed=seed),
        alpha_without=alpha_without,
        seconds=medians.get(name),
        left_share=_share(picks, rounds, "The side is not known.", seed),
        ties=sum(row.label == TIE for row in made) if answers.are_choices else None,
        flags=() if is_judge else tuple(_flags(name, own, made, with_label, medians)),
    )


def _share(values: Sequence[float], clusters: Sequence[str], why: str, seed: int) -> Figure:
    """Return the mean with its Wilson interval, or why there is none."""
    if not values:
        return Why(why)
    share = clustered_share(values, clusters, seed=seed)
    return Estimate(value=share.estimate.value, low=share.low, high=share.high, n=len(values))


def _with_others(made: Sequence[Annotation], answers: Annotations, *, seed: int) -> Figure:
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


def _left_picks(made: Sequence[Annotation]) -> list[float]:
    """Return 1 for every pick of the left response, 0 for the right one; ties are left out."""
    picks = [row for row in made if row.side_chosen is not None and row.label in (CHOSEN, REJECTED)]
    return [float((row.side_chosen == "left") == (row.label == CHOSEN)) for row in picks]


def _flags(
    name: str, own: Sequence[Annotation], made: Sequence[Annotation], with_label: Figure, medians: dict[str, float]
) -> list[str]:
    """Return what is worth a look, in words. None of it is proof: a careful person may do the same."""
    flags = [_straight_lining(own), _always_the_same(made), _one_sided(made)]
    others = [seconds for other, seconds in medians.items() if other != name]
    if name in medians and others and len(own) >= FEW and medians[name] < FAST * median(others):
        flags.append(f"fast: {medians[name]:.0f} s per item, the others {median(others):.0f} s")
    if not isinstance(with_label, Why) and len(made) >= FEW and with_label.high < CHANCE:
        flags.append(f"goes against the label: {100 * with_label.value:.0f} %")
    return [flag for flag in flags if flag]


def _straight_lining(own: Sequence[Annotation]) -> str:
    # The ratings left and right, as they were given; without sides, of chosen and rejected.
    vectors = [
        tuple(
            (two, one) if row.side_chosen == "right" else (one, two)
            for one, two in (row.ratings[name] for name in QUALITIES if name in row.ratings)
        )
        for row in own
        if row.ratings
    ]
    if len(vectors) < FEW:
        return ""
    (_, times), *_ = Counter(vectors).most_common(1)
    if times < SAME * len(vectors):
        return ""
    return f"straight-lining: the same ratings on {times} of {len(vectors)} items"


def _always_the_same(made: Sequence[Annotation]) -> str:
    """Look at the answers as they were given: nobody sees which response is chosen, so sides are `_one_sided`'s."""
    seen = Counter(row.label for row in made if row.label not in (CHOSEN, REJECTED))
    if len(made) < FEW or not seen:
        return ""
    (label, times), *_ = seen.most_common(1)
    if times < SAME * len(made):
        return ""
    what = "cannot tell" if label == TIE else f"the same answer, {label!r},"
    return f"{what} on {times} of {len(made)} items"


def _one_sided(made: Sequence[Annotation]) -> str:
    from scipy.stats import binomtest

    picks = _left_picks(made)
    left = int(sum(picks))
    if len(picks) < FEW or binomtest(left, len(picks)).pvalue >= ODD:
        return ""
    side, times = ("left", left) if 2 * left > len(picks) else ("right", len(picks) - left)
    return f"leans {side}: {times} of {len(picks)} picks"
