"""Where the chosen response stands when a judge is shown A and B."""

import numpy as np

from prbench.construction.check.finding import CHANCE, Finding, as_values, make_finding
from prbench.data import ExampleStore
from prbench.evaluation.score import chosen_comes_first
from prbench.metrics.estimate import ratio_estimates


def check_position(store: ExampleStore, *, seed: int) -> Finding:
    """Count the rows in which a judge that is asked once would see the chosen response as A."""
    first = [float(chosen_comes_first(example.id, seed=seed)) for example in store]
    users = [example.user.id for example in store]
    estimate = ratio_estimates(first, np.ones(len(first)), users, seed=seed)[0]
    return make_finding(
        "label position",
        CHANCE.verdict(estimate),
        f"chosen comes first in {100 * estimate.value:.1f} % of rows under seed {seed}",
        why="If chosen is mostly A, a judge that always answers A looks good when it is asked in one order only.",
        remedy="Take another --seed, or leave --orders at both, which asks in both orders.",
        values={"chosen_first": as_values(estimate), "seed": seed},
    )
