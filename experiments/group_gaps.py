"""How often the p-value of the gap between groups calls groups different that say nothing.

    python experiments/group_gaps.py     # about five minutes on one core; writes results/groups/false_positives.json

Every population has users of unequal quality, and groups that have nothing to do with it. In `UNEQUAL` the group
decides how many rows a user has, so users are not exchangeable, which the test assumes.
"""

import json
from pathlib import Path

import numpy as np

from prbench.metrics.groups import GroupedValues, IntArray, gap_p_value, user_correlations, user_means

FILE = Path(__file__).resolve().parents[1] / "results" / "groups" / "false_positives.json"
SIMULATIONS, PERMUTATIONS, LEVEL, SEED = 3_000, 199, 0.05, 11
EACH = 8  # rows of a user, where they do not differ
MANY, FEW = 40, 3
FIGURES = {"mean of rows": None, "mean of users": user_means, "correlation": user_correlations}
CASES = {  # users, groups, what has a group, the figure, and whether users have unequally many rows
    "two groups of users": (40, 2, "users", "mean of rows", False),
    "two groups of users with unequally many rows": (40, 2, "users", "mean of rows", True),
    "five groups of users": (60, 5, "users", "mean of rows", False),
    "two groups of users, mean of users": (40, 2, "users", "mean of users", False),
    "three groups of users, correlation": (40, 3, "users", "correlation", False),
    "three groups of rows": (40, 3, "rows", "mean of rows", False),
    "three groups of rows, mean of users": (40, 3, "rows", "mean of users", False),
    "three groups, of users for half of them": (40, 3, "half", "mean of rows", True),
    "two groups of users, one user in both": (40, 2, "all but one", "mean of rows", False),
}
UNEQUAL = {
    "mean of rows": (40, 2, "rows by group", "mean of rows", False),
    "mean of users": (40, 2, "rows by group", "mean of users", False),
}


def population(seed: int, users: int, groups: int, of: str, figure: str, is_skewed: bool) -> GroupedValues:
    """Draw one population."""
    dice = np.random.default_rng([seed, SEED])
    owners, labels, values = [], [], []
    for user in range(users):
        group, quality = int(dice.integers(groups)), float(dice.beta(4, 2))
        count = int(dice.geometric(0.1)) + 1 if is_skewed else EACH
        if of == "rows by group":
            count = (MANY, FEW)[group]
        varies = of == "rows" or (of == "half" and user % 2 == 0) or (of == "all but one" and user == 0)
        label: IntArray = dice.integers(groups, size=count) if varies else np.full(count, group)
        if figure == "correlation":
            rating = dice.random(count)
            value = np.column_stack([quality * rating + dice.normal(0, 0.4, count), rating])
        else:
            value = (dice.random(count) < quality).astype(np.float64)[:, None]
        owners.append(np.full(count, user))
        labels.append(label)
        values.append(value)
    return GroupedValues(
        names=[str(group) for group in range(groups)],
        users=[str(user) for user in range(users)],
        values=np.vstack(values),
        owners=np.concatenate(owners),
        labels=np.concatenate(labels),
        per_user=FIGURES[figure],
    )


def false_positives(case: tuple[int, int, str, str, bool]) -> float:
    """Return the share of populations whose groups are called different at 5 %."""
    p_values = [
        gap_p_value(population(seed, *case), seed=seed + 100_000, permutations=PERMUTATIONS)
        for seed in range(SIMULATIONS)
    ]
    return sum(p is not None and p <= LEVEL for p in p_values) / SIMULATIONS


def main() -> None:
    """Simulate every case and write the shares."""
    shares = {name: false_positives(case) for name, case in CASES.items()}
    unequal = {name: false_positives(case) for name, case in UNEQUAL.items()}
    found = {
        "command": "python experiments/group_gaps.py",
        "simulations": SIMULATIONS,
        "permutations": PERMUTATIONS,
        "level": LEVEL,
        "seed": SEED,
        "users": sorted({case[0] for case in CASES.values()}),
        "shares": shares,
        "lowest": min(shares.values()),
        "highest": max(shares.values()),
        "where_the_group_decides_how_many_rows_a_user_has": unequal,
    }
    FILE.parent.mkdir(exist_ok=True)
    FILE.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
