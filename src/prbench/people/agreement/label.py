"""Do people pick the response that the label calls chosen, and does the side it stands on matter?"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from prbench.metrics.agreement import label_table, majority_labels
from prbench.metrics.estimate import ClusteredShare, clustered_share, ratio_draws
from prbench.people.agreement.answers import CHOICES, CHOSEN, REJECTED, TIE, Answer
from prbench.people.agreement.figures import Figure, Why

POINTS = {CHOSEN: 1.0, TIE: 0.5, REJECTED: 0.0}
CHANCE = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelAgreement:
    """Agreement with the label, in points: 1 for the chosen response, one half for a tie. Chance is one half."""

    by_answer: ClusteredShare
    by_majority: ClusteredShare  # one point per item, an even split being half a point
    ties: ClusteredShare
    even_splits: int  # items without a majority


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """Does the side matter? Without bias the left share is one half, and the difference is 0."""

    left_share: Figure  # of the answers that are no ties
    chosen_left: Figure  # share that picks the chosen response where it stood left
    chosen_right: Figure
    difference: Figure  # chosen_left - chosen_right: a lean to the left makes it positive


def measure_label(rows: Sequence[Answer], *, level: float, seed: int) -> LabelAgreement | Why:
    """Return how often the choices go with the label; the answers to one item are kept together."""
    made = [row for row in rows if row.label is not None]
    if not made:
        return Why("Nobody has made a choice yet.")
    items = [row.item for row in made]
    table = label_table(((row.annotator, row.item, row.label) for row in made), categories=CHOICES)
    majority = majority_labels(table)
    votes = [0.5 if label is None else POINTS[str(label)] for label in majority.values()]
    return LabelAgreement(
        by_answer=clustered_share([POINTS[str(row.label)] for row in made], items, level=level, seed=seed),
        by_majority=clustered_share(votes, list(majority), level=level, seed=seed),
        ties=clustered_share([float(row.label == TIE) for row in made], items, level=level, seed=seed),
        even_splits=sum(label is None for label in majority.values()),
    )


def measure_position(rows: Sequence[Answer], *, seed: int) -> Position:
    """Return the share of answers that pick the left response, and whether the chosen one does better on the left."""
    told = [row for row in rows if row.side_chosen is not None and row.label in (CHOSEN, REJECTED)]
    if not told:
        none = Why("The rows do not say on which side the chosen response stood.")
        return Position(left_share=none, chosen_left=none, chosen_right=none, difference=none)
    stood_left = np.array([row.side_chosen == "left" for row in told])
    right = np.array([row.label == CHOSEN for row in told])
    tops = np.stack([stood_left == right, stood_left & right, ~stood_left & right], axis=1).astype(np.float64)
    bottoms = np.stack([np.ones(len(told)), stood_left, ~stood_left], axis=1).astype(np.float64)
    draws = ratio_draws(tops, bottoms, [row.item for row in told], seed=seed)
    one_side = Why("The chosen response always stood on the same side.")
    return Position(
        left_share=draws.estimate(0),
        chosen_left=draws.estimate(1) if stood_left.any() else one_side,
        chosen_right=draws.estimate(2) if not stood_left.all() else one_side,
        difference=draws.estimate(1, minus=2) if 0 < stood_left.sum() < len(told) else one_side,
    )
