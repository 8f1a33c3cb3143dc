"""Do the intervals of `prbench meta` hold what they promise? Simulated boards whose correlation is known.

    python experiments/meta_coverage.py                # some minutes on one core; writes results/meta/coverage.json
    python experiments/meta_coverage.py --quick        # 200 boards per cell, nothing written

Two columns are joined by a Gaussian copula of correlation rho, for n models. Without items the scores are the columns
themselves. With items each side has 60 users, of which each brings a difficulty of its own, and a leaning of its own
towards or against every model, so that the reliability of a score is 0.8. Coverage is the share of boards whose 95 %
interval holds the true value: of the scores as measured, and (`corrected`) of the scores without the noise of items.
"""

import json
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import norm

from prbench.insight.meta.board import BoardPair, ItemTable, board_of_scores
from prbench.insight.meta.intervals import fisher_interval, interval_of, models_needed, population_value
from prbench.insight.meta.predictors import compare_spearman
from prbench.insight.meta.resolution import corrected_spearman
from prbench.metrics.correlation import Statistic, coefficient_of_each, correlate
from prbench.metrics.estimate import FloatArray

RESULTS = Path(__file__).parents[1] / "results" / "meta" / "coverage.json"
STATISTICS: tuple[Statistic, ...] = ("spearman", "kendall", "pearson")
SIZES, RHOS = (6, 12, 24, 48), (0.0, 0.5, 0.8, 0.95)
# Two benchmarks' correlations with downstream, and that of what is left of them.
DIFFERENCES = (
    (0.5, 0.5, 0.5),
    (0.8, 0.3, 0.5),
    (0.95, 0.8, 0.5),
    (0.5, 0.0, 0.0),
    (0.95, -0.2, 0.0),
    (0.95, -0.9, 0.0),
)
BOARDS, DRAWS, USERS = 1_000, 400, 60
NOISE = 0.25  # variance of a score from items; that of the models' true scores is 1
Limits = tuple[float, float]
Draw = Callable[[np.random.Generator, int, int, float], tuple[FloatArray, FloatArray]]


def columns(generator: np.random.Generator, boards: int, n: int, rho: float) -> tuple[FloatArray, FloatArray]:
    """Return two columns of n models for every board."""
    x, noise = generator.standard_normal((2, boards, n))
    return x, rho * x + math.sqrt(1 - rho**2) * noise


def heavy_tailed(generator: np.random.Generator, boards: int, n: int, rho: float) -> tuple[FloatArray, FloatArray]:
    """Return columns joined by a t copula with three degrees of freedom: extremes come together."""
    x, y = columns(generator, boards, n, rho)
    scale = np.sqrt(3 / generator.chisquare(3, size=(boards, n)))
    return x * scale, y * scale


def measured(generator: np.random.Generator, true: FloatArray) -> ItemTable:
    """Return the values that 60 users give to models of known worth."""
    difficulty = generator.standard_normal((USERS, 1))
    leanings = generator.standard_normal((USERS, len(true))) * math.sqrt(USERS * NOISE)
    names = tuple(str(user) for user in range(USERS))
    return ItemTable(ids=names, users=names, values=true + difficulty + leanings)


def share_covered(intervals: Sequence[Limits | None], truth: float) -> float:
    """Return the share of intervals that hold the true value, in percent."""
    known = [each for each in intervals if each is not None]
    return round(100 * float(np.mean([low - 1e-9 <= truth <= high + 1e-9 for low, high in known])), 1)


def ours(xs: FloatArray, ys: FloatArray, n: int, statistic: Statistic) -> list[Limits | None]:
    """Return the intervals of the package for every board; boards of equal figures have the same one."""
    values, ranks = coefficient_of_each(xs, ys, statistic), coefficient_of_each(xs, ys, "spearman")
    keys = list(zip(values.round(12).tolist(), ranks.round(12).tolist(), strict=True))
    found = {(value, rank): interval_of(value, n, statistic, spearman=rank) for value, rank in set(keys)}
    return [found[key] for key in keys]


def plain_cell(n: int, rho: float, boards: int, draw: Draw | None = None) -> dict[str, float]:
    """Return the coverage for scores without items."""
    draw = draw or columns
    xs, ys = draw(np.random.default_rng([n, int(100 * rho), 1]), boards, n, rho)
    found: dict[str, float] = {}
    for statistic in STATISTICS:
        found[statistic] = share_covered(ours(xs, ys, n, statistic), truth_of(rho, statistic, draw))
    return found


def truth_of(rho: float, statistic: Statistic, draw: Draw) -> float:
    """Return the correlation of all models that there could be; Spearman's of the t copula by drawing many."""
    if draw is columns or statistic != "spearman":
        return population_value(rho, statistic)
    many = draw(np.random.default_rng(0), 1, 2_000_000, rho)
    return float(coefficient_of_each(*many, "spearman")[0])


def item_cell(n: int, rho: float, boards: int) -> dict[str, float]:
    """Return the coverage where scores are means over users."""
    generator = np.random.default_rng([n, int(100 * rho), 2])
    xs, ys = columns(generator, boards, n, rho)
    pairs = [item_pair(measured(generator, x), measured(generator, y)) for x, y in zip(xs, ys, strict=True)]
    seen = (np.stack([pair.benchmark.scores for pair in pairs]), np.stack([pair.downstream.scores for pair in pairs]))
    attenuated = rho / (1 + NOISE)
    found: dict[str, float] = {}
    for statistic in STATISTICS:
        truth = population_value(attenuated, statistic)
        found[statistic] = share_covered(ours(*seen, n, statistic), truth)
    corrected = [corrected_spearman(pair) for pair in pairs]
    limits = [None if each is None else (each.spearman.low, each.spearman.high) for each in corrected]
    found["corrected spearman"] = share_covered(limits, population_value(rho, "spearman"))
    return found


def item_pair(benchmark: ItemTable, downstream: ItemTable) -> BoardPair:
    """Return two boards of item rows, without the intervals of single scores, which nobody asks for here."""
    names = [str(model) for model in range(benchmark.values.shape[1])]
    boards = [
        replace(board_of_scores("", dict(zip(names, items.means, strict=True))), items=items)
        for items in (benchmark, downstream)
    ]
    return BoardPair(benchmark=boards[0], downstream=boards[1])


def other_methods(n: int, rho: float, boards: int) -> dict[str, float]:
    """Return the coverage of methods that were not chosen, for Spearman without items."""
    generator = np.random.default_rng([n, int(100 * rho), 1])
    xs, ys = columns(generator, boards, n, rho)
    values = coefficient_of_each(xs, ys, "spearman")
    truth = population_value(rho, "spearman")
    fisher = [fisher_interval(float(value), n, spread=1 + value**2 / 2) for value in values]
    found = {"Fisher z (Bonett and Wright)": share_covered([*fisher], truth)}
    percentile, bca, jackknife = [], [], []
    for x, y, value in zip(xs, ys, values, strict=True):
        drawn = generator.integers(0, n, size=(DRAWS, n))
        samples = np.sort(coefficient_of_each(x[drawn], y[drawn], "spearman"))
        samples = samples[~np.isnan(samples)]
        kept = np.array([[other for other in range(n) if other != left] for left in range(n)])
        without = coefficient_of_each(x[kept], y[kept], "spearman")
        percentile.append(at(samples, 0.025, 0.975))
        bca.append(at(samples, *bca_levels(samples, without, value)))
        jackknife.append(jackknife_interval(without, value, n))
    found["bootstrap, percentile"] = share_covered(percentile, truth)
    found["bootstrap, BCa"] = share_covered(bca, truth)
    found["jackknife of z"] = share_covered(jackknife, truth)
    return found


def at(samples: FloatArray, low: float, high: float) -> Limits:
    """Return two quantiles."""
    first, second = np.quantile(samples, [low, high])
    return float(first), float(second)


def bca_levels(samples: FloatArray, without: FloatArray, value: float) -> Limits:
    """Return the levels of the bias-corrected and accelerated bootstrap (Efron 1987)."""
    below = (np.sum(samples < value) + 0.5 * np.sum(samples == value)) / len(samples)
    bias = norm.ppf(np.clip(below, 0.5 / len(samples), 1 - 0.5 / len(samples)))
    gaps = without.mean() - without
    spread = float((gaps**2).sum())
    skew = float((gaps**3).sum() / (6 * spread**1.5)) if spread > 0 else 0.0
    levels = [bias + (bias + z) / (1 - skew * (bias + z)) for z in norm.ppf([0.025, 0.975])]
    return float(norm.cdf(levels[0])), float(norm.cdf(levels[1]))


def jackknife_interval(without: FloatArray, value: float, n: int) -> Limits:
    """Return value ± 1.96 jackknife errors on the scale of z."""
    z, all_z = (np.arctanh(np.clip(each, -0.999, 0.999)) for each in (without, value))
    half = 1.96 * math.sqrt((n - 1) / n * float(((z - z.mean()) ** 2).sum()))
    return math.tanh(all_z - half), math.tanh(all_z + half)


def difference_cell(n: int, rhos: tuple[float, float], errors: float, boards: int) -> float:
    """Return the coverage of the difference of two benchmarks whose errors correlate."""
    generator = np.random.default_rng([n, int(100 * rhos[0]), 3])
    downstream, first, second = generator.standard_normal((3, boards, n))
    a = rhos[0] * downstream + math.sqrt(1 - rhos[0] ** 2) * first
    b = rhos[1] * downstream + math.sqrt(1 - rhos[1] ** 2) * (errors * first + math.sqrt(1 - errors**2) * second)
    truth = population_value(rhos[0], "spearman") - population_value(rhos[1], "spearman")
    found = [compare_spearman(*each, permutations=0) for each in zip(a, b, downstream, strict=True)]
    return share_covered([None if each is None else (each.low, each.high) for each in found], truth)


def power(rho: float, boards: int) -> dict[str, float]:
    """Return how often the permutation test finds a correlation with the models that are said to be needed."""
    n = models_needed(population_value(rho, "spearman"))
    xs, ys = columns(np.random.default_rng([n, 4]), boards, n, rho)
    tests = [correlate(x, y, draws=999) for x, y in zip(xs, ys, strict=True)]
    return {
        "models": n,
        "power": round(100 * float(np.mean([test is not None and test.p_value < 0.05 for test in tests])), 1),
    }


def show(cells: Sequence[Mapping[str, Any]]) -> None:
    """Print coverage in percent, one line per cell."""
    others = list(cells[0]["other methods"])
    heads = ["n", "rho", "Spearman", "Kendall", "Pearson", "| items: Spearman", "Kendall", "Pearson", "corrected"]
    print("  ".join([*heads, "| t copula", *others]))
    for cell in cells:
        plain, items = cell["without items"], cell["with items"]
        figures = [plain[name] for name in STATISTICS] + [items[name] for name in (*STATISTICS, "corrected spearman")]
        figures += [cell["heavy tails"], *cell["other methods"].values()]
        print(f"{cell['n']:3d}  {cell['rho']:4.2f}  " + "  ".join(f"{figure:5.1f}" for figure in figures))
    ours = [cell[kind]["spearman"] for cell in cells for kind in ("without items", "with items")]
    print(f"Spearman: {min(ours):.1f} to {max(ours):.1f} % over {len(ours)} cells")


def main() -> None:
    """Measure all cells, print them, and write them down."""
    boards = 200 if "--quick" in sys.argv else BOARDS
    cells: list[dict[str, Any]] = [
        {
            "n": n,
            "rho": rho,
            "without items": plain_cell(n, rho, boards),
            "with items": item_cell(n, rho, boards),
            "heavy tails": plain_cell(n, rho, boards, heavy_tailed)["spearman"],
            "other methods": other_methods(n, rho, boards),
        }
        for n in SIZES
        for rho in RHOS
    ]
    show(cells)
    results = {
        "boards": boards,
        "users": USERS,
        "reliability": 1 / (1 + NOISE),
        "cells": cells,
        "differences": {
            f"n {n}, rho {one} and {two}, errors {errors}": difference_cell(n, (one, two), errors, boards)
            for n in SIZES
            for one, two, errors in DIFFERENCES
        },
        "power": {str(rho): power(rho, boards) for rho in (0.3, 0.5, 0.7, 0.9)},
    }
    print(json.dumps({key: results[key] for key in ("differences", "power")}, indent=1))
    if boards == BOARDS:
        RESULTS.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
