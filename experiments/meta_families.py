"""Do intervals over families of `prbench meta` hold what they promise? Simulated boards of a known correlation.

    python experiments/meta_families.py            # minutes on one core; writes results/meta/families.json
    python experiments/meta_families.py --quick    # 100 boards per cell, nothing written

A score is the sum of its family's part and the model's own; `share` is the part of the variance that families have on
either side, and `between` and `within` are the correlations of both parts. So the correlation of models of a random
family is known. Coverage is the share of boards whose 95 % interval holds it. `over families` is the package's own
interval; beside it the interval over models, which takes variants for models drawn one by one, and two bootstraps of
families with variants in them that were not chosen. Levels: how often a test is under 0.05 where there is nothing.
The settings below were fixed before the run; every board is a row of `families_rows.csv.gz`, which git ignores.
"""

import csv
import gzip
import json
import math
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import t as student

from prbench.insight.meta.families import (
    Families,
    FamilyLimits,
    WithinFamilies,
    families_of,
    family_draws,
    within_families,
)
from prbench.insight.meta.intervals import interval_of, population_value
from prbench.insight.meta.statistics import over_families
from prbench.metrics.correlation import Correlation, Statistic, coefficient_of_each, correlate
from prbench.metrics.estimate import FloatArray

RESULTS = Path(__file__).parents[1] / "results" / "meta"
BOARDS, DRAWS = 1_000, 400
SIZES: Mapping[str, tuple[int, ...]] = {
    "30 variants of 10 families": (3,) * 10,
    "30 models as on the lab": (8, 5, 3, 3, 2, 2, 2, 1, 1, 1, 1, 1),
    "60 variants of 20 families": (3,) * 20,
    "30 variants of 6 families": (5,) * 6,
    "12 variants of 4 families": (3,) * 4,
}
# The families' share of the variance, the correlation between families, and that within.
SETTINGS = (
    (0.0, 0.0, 0.5),
    (0.5, 0.0, 0.0),
    (0.5, 0.5, 0.5),
    (0.8, 0.5, 0.5),
    (0.8, 0.9, 0.3),
    (0.8, 0.9, 0.9),
    (0.9, 0.97, 0.9),
    (0.9, 0.0, 0.0),
)
CORRELATIONS: tuple[Statistic, ...] = ("spearman", "kendall", "pearson")
MAIN = next(iter(SIZES))  # where the methods that were not chosen, and other correlations, are looked at as well
METHODS = ("over families", "over models", "bootstrap, percentile", "bootstrap of z with t")


def boards(sizes: tuple[int, ...], setting: tuple[float, float, float], many: int) -> tuple[Families, Any, Any]:
    """Return the families and both columns, (boards, models) each."""
    share, between, within = setting
    generator = np.random.default_rng([len(sizes), sum(sizes), *(round(100 * each) for each in setting)])
    families = families_of([f"{family:02d}" for family, size in enumerate(sizes) for _ in range(size)])
    first, second = generator.standard_normal((2, many, len(sizes)))
    own, other = generator.standard_normal((2, many, sum(sizes)))
    x = math.sqrt(share) * first[:, families.codes] + math.sqrt(1 - share) * own
    of_families = between * first + math.sqrt(1 - between**2) * second
    of_models = within * own + math.sqrt(1 - within**2) * other
    return families, x, math.sqrt(share) * of_families[:, families.codes] + math.sqrt(1 - share) * of_models


def limits(x: FloatArray, y: FloatArray, families: Families, seed: int | None) -> Iterator[tuple[str, float, float]]:
    """Yield the name and the ends of every interval of Spearman; bootstraps only where they have a seed."""
    found = over_families(x, y, families)
    assert found is not None
    yield "over families", found.low, found.high
    value = float(coefficient_of_each(x[None], y[None], "spearman")[0])
    naive = of_models(round(value, 12), len(x))
    yield "over models", *naive
    if seed is None:
        return
    drawn = family_draws(families, DRAWS, np.random.default_rng(seed))
    samples = np.concatenate([coefficient_of_each(x[rows], y[rows], "spearman") for rows in drawn])
    samples = samples[~np.isnan(samples)]
    low, high = np.percentile(samples, [2.5, 97.5])
    yield "bootstrap, percentile", float(low), float(high)
    z, all_z = (np.arctanh(np.clip(each, -0.999, 0.999)) for each in (value, samples))
    half = float(student.ppf(0.975, families.effective - 1)) * float(all_z.std())
    yield "bootstrap of z with t", math.tanh(z - half), math.tanh(z + half)


KNOWN: dict[tuple[float, int], tuple[float, float]] = {}


def of_models(value: float, n: int) -> tuple[float, float]:
    """Return the interval over models; boards of the same figure have the same one."""
    if (value, n) not in KNOWN:
        KNOWN[value, n] = interval_of(value, n, "spearman") or (-1.0, 1.0)
    return KNOWN[value, n]


def cell(name: str, setting: tuple[float, float, float], many: int, rows: list[list[Any]]) -> dict[str, Any]:
    """Return the coverage of every method in one cell, and keep its rows."""
    share, between, within = setting
    rho = share * between + (1 - share) * within
    families, xs, ys = boards(SIZES[name], setting, many)
    held: dict[str, list[bool]] = {method: [] for method in METHODS}
    others: dict[str, list[bool]] = {statistic: [] for statistic in CORRELATIONS[1:]}
    for number, (x, y) in enumerate(zip(xs, ys, strict=True)):
        truth = population_value(rho, "spearman")
        for method, low, high in limits(x, y, families, number if name == MAIN else None):
            held[method].append(low <= truth <= high)
            rows.append([name, *setting, number, method, f"{truth:.4f}", f"{low:.4f}", f"{high:.4f}"])
        for statistic in CORRELATIONS[1:] if name == MAIN else ():
            found = over_families(x, y, families, statistic)
            assert found is not None
            others[statistic].append(found.low <= population_value(rho, statistic) <= found.high)
    return {
        "models": name,
        "share": share,
        "between": between,
        "within": within,
        "truth": round(population_value(rho, "spearman"), 3),
        "coverage": {method: percent(each) for method, each in held.items() if each},
        "over families, other correlations": {statistic: percent(each) for statistic, each in others.items() if each},
    }


def levels(many: int) -> dict[str, float]:
    """Return how often tests are under 0.05 where there is nothing to find, in percent."""
    families, xs, ys = boards(SIZES[MAIN], (0.9, 0.0, 0.0), many)
    both = list(zip(xs, ys, strict=True))
    shuffled = [is_small(correlate(x, y, draws=999)) for x, y in both]
    limits_of = [is_small(over_families(x, y, families)) for x, y in both]
    families, xs, ys = boards(SIZES[MAIN], (0.8, 0.9, 0.0), many)
    inside = [is_small(within_families(x, y, families, draws=999)) for x, y in zip(xs, ys, strict=True)]
    return {
        "any order of the models, families have 0.9 of the variance": percent(shuffled),
        "no correlation among families, families have 0.9 of the variance": percent(limits_of),
        "within families, which correlate by 0.9 between them": percent(inside),
    }


def is_small(found: Correlation | FamilyLimits | WithinFamilies | None) -> bool:
    """Return whether a test finds something."""
    assert found is not None
    return (found.p_value if isinstance(found, Correlation) else found.p) < 0.05


def percent(held: list[bool]) -> float:
    """Return a share in percent."""
    return round(100 * float(np.mean(held)), 1)


def main() -> None:
    """Measure all cells, print them, and write them down."""
    many = 100 if "--quick" in sys.argv else BOARDS
    started = time.monotonic()
    rows: list[list[Any]] = []
    cells = []
    for name in SIZES:
        for setting in SETTINGS:
            cells.append(cell(name, setting, many, rows))
            print(json.dumps(cells[-1]), flush=True)
    main_cells = [each["coverage"] for each in cells if each["models"] == MAIN]
    found = {
        "command": "python experiments/meta_families.py",
        "boards": many,
        "draws": DRAWS,
        "sizes": SIZES,
        "range": {
            "ten families": {
                method: {
                    "low": min(each[method] for each in main_cells),
                    "high": max(each[method] for each in main_cells),
                }
                for method in METHODS
            },
            "all": {
                method: {
                    "low": min(each["coverage"][method] for each in cells),
                    "high": max(each["coverage"][method] for each in cells),
                }
                for method in METHODS[:2]
            },
        },
        "levels": levels(many),
        "cells": cells,
    }
    print(json.dumps({name: found[name] for name in ("range", "levels")}, indent=1))
    print(f"{time.monotonic() - started:.0f} s")
    if many == BOARDS:
        (RESULTS / "families.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        with gzip.open(RESULTS / "families_rows.csv.gz", "wt", encoding="utf-8", newline="") as file:
            head = ["models", "share", "between", "within", "board", "method", "truth", "low", "high"]
            csv.writer(file).writerows([head, *rows])


if __name__ == "__main__":
    main()
