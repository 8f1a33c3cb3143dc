"""How often do the 95 % intervals hold the truth, and do tests, letters and the resolution keep their word?

    python experiments/intervals.py --out results/intervals            # 2,000 simulations a cell
    python experiments/intervals.py --out DIR --simulations 200        # a quick look

Every cell draws rows from a population whose truth is known, and asks prbench's own functions for the interval. Cells,
seed and number of simulations stand in this file and were fixed before the run whose figures are kept.

The reported set was committed before the method of today was run on any of it: the 28 cells of the first study, the
hard cells that a review named after it (accuracy near 1 where users differ much; six of the seven lie inside 60 to
95 % and a correlation of at most 0.35), and eleven fresh ones in the corners. The method was developed on 18 other
cells with other seeds (docs/design/0026-intervals-near-the-ends.md).
"""

import argparse
import csv
import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from itertools import combinations
from pathlib import Path
from statistics import NormalDist

import numpy as np
import numpy.typing as npt
from numpy.polynomial.hermite_e import hermegauss
from scipy.optimize import fsolve
from scipy.special import expit, logit, ndtr, ndtri
from scipy.stats import beta

from prbench.metrics.compare import ALPHA, holm, letters_of, smallest_difference
from prbench.metrics.estimate import ClusteredRatios, clustered_ratios

Floats = npt.NDArray[np.float64]
SEED = 20_261_119
SIMULATIONS = 2_000
_normal = NormalDist()


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One population: how many users with how many pairs, how right the model is, how much users differ."""

    users: int
    pairs: int  # per user; the mean, where sizes are skewed
    accuracy: float
    correlation: float  # of two pairs of one user (intra-class)
    skewed: bool = False
    shape: str = "beta"  # how users' chances are distributed: see `Population.chances`

    def sizes(self) -> npt.NDArray[np.int64]:
        """Return the pairs of every user: all the same, or log-normal with a spread of 1 (at least one)."""
        if not self.skewed:
            return np.full(self.users, self.pairs, dtype=np.int64)
        quantiles = [math.exp(_normal.inv_cdf((place + 0.5) / self.users)) for place in range(self.users)]
        sizes = np.round(np.array(quantiles) / np.mean(quantiles) * self.pairs).astype(np.int64)
        least: npt.NDArray[np.int64] = np.maximum(1, sizes)
        return least


# A6 of the audit names the first eight settings; the others cross the ranges that were asked for.
CELLS = (
    Cell(users=10, pairs=20, accuracy=0.8, correlation=0.1),
    Cell(users=14, pairs=65, accuracy=0.94, correlation=0.05),
    Cell(users=15, pairs=48, accuracy=0.85, correlation=0.1),
    Cell(users=20, pairs=4, accuracy=0.9, correlation=0.05),
    Cell(users=30, pairs=4, accuracy=0.75, correlation=0.1),
    Cell(users=30, pairs=4, accuracy=0.75, correlation=0.35),
    Cell(users=30, pairs=4, accuracy=0.95, correlation=0.1),
    Cell(users=30, pairs=4, accuracy=0.75, correlation=0.1, skewed=True),
    Cell(users=10, pairs=8, accuracy=0.6, correlation=0.0),
    Cell(users=10, pairs=65, accuracy=0.6, correlation=0.35),
    Cell(users=12, pairs=30, accuracy=0.75, correlation=0.1, skewed=True),
    Cell(users=15, pairs=20, accuracy=0.9, correlation=0.2),
    Cell(users=20, pairs=20, accuracy=0.85, correlation=0.2, skewed=True),
    Cell(users=20, pairs=65, accuracy=0.7, correlation=0.35),
    Cell(users=30, pairs=20, accuracy=0.95, correlation=0.05),
    Cell(users=30, pairs=65, accuracy=0.8, correlation=0.2, skewed=True),
    Cell(users=50, pairs=4, accuracy=0.95, correlation=0.0),
    Cell(users=50, pairs=8, accuracy=0.6, correlation=0.1, skewed=True),
    Cell(users=50, pairs=20, accuracy=0.9, correlation=0.35),
    Cell(users=100, pairs=4, accuracy=0.75, correlation=0.1),
    Cell(users=100, pairs=4, accuracy=0.75, correlation=0.35),
    Cell(users=100, pairs=4, accuracy=0.95, correlation=0.1),
    Cell(users=100, pairs=20, accuracy=0.9, correlation=0.2, skewed=True),
    Cell(users=200, pairs=8, accuracy=0.85, correlation=0.2, skewed=True),
    Cell(users=200, pairs=4, accuracy=0.6, correlation=0.35),
    Cell(users=400, pairs=4, accuracy=0.75, correlation=0.1),
    Cell(users=400, pairs=4, accuracy=0.95, correlation=0.35),
    Cell(users=400, pairs=8, accuracy=0.9, correlation=0.1, skewed=True),
)
# Where a bad user is rare and nearly all of the variance: few samples hold one.
HARD = (
    Cell(users=10, pairs=20, accuracy=0.95, correlation=0.2),
    Cell(users=10, pairs=65, accuracy=0.95, correlation=0.35),
    Cell(users=20, pairs=65, accuracy=0.95, correlation=0.35),
    Cell(users=30, pairs=65, accuracy=0.9, correlation=0.35, skewed=True),
    Cell(users=50, pairs=20, accuracy=0.98, correlation=0.5),
    Cell(users=100, pairs=20, accuracy=0.95, correlation=0.35, skewed=True),
    Cell(users=400, pairs=20, accuracy=0.95, correlation=0.35, skewed=True),
)
# Named before the method of today was run on any cell of this file; they span the corners of what was asked for.
FRESH = (
    Cell(users=10, pairs=4, accuracy=0.6, correlation=0.35),
    Cell(users=10, pairs=4, accuracy=0.95, correlation=0.35),
    Cell(users=10, pairs=65, accuracy=0.95, correlation=0.0),
    Cell(users=12, pairs=8, accuracy=0.8, correlation=0.2, skewed=True),
    Cell(users=15, pairs=65, accuracy=0.7, correlation=0.05, skewed=True),
    Cell(users=20, pairs=30, accuracy=0.95, correlation=0.1),
    Cell(users=40, pairs=12, accuracy=0.85, correlation=0.35),
    Cell(users=60, pairs=30, accuracy=0.95, correlation=0.2, skewed=True),
    Cell(users=150, pairs=65, accuracy=0.8, correlation=0.35),
    Cell(users=250, pairs=10, accuracy=0.7, correlation=0.0, skewed=True),
    Cell(users=400, pairs=65, accuracy=0.95, correlation=0.35),
)
# Where users differ in other ways than by a beta distribution, of the same mean and correlation.
OTHERWISE = (
    Cell(users=10, pairs=65, accuracy=0.95, correlation=0.35),
    Cell(users=15, pairs=20, accuracy=0.9, correlation=0.2),
    Cell(users=20, pairs=65, accuracy=0.7, correlation=0.35),
    Cell(users=20, pairs=20, accuracy=0.85, correlation=0.2, skewed=True),
    Cell(users=50, pairs=20, accuracy=0.9, correlation=0.35),
    Cell(users=100, pairs=20, accuracy=0.95, correlation=0.35, skewed=True),
    Cell(users=400, pairs=4, accuracy=0.75, correlation=0.1),
)
# Users and rows of each in a small and in a large group of the same accuracy.
# Groups whose users differ unlike much, named by a review of the method.
UNLIKE = tuple(
    (Cell(users=users, pairs=pairs, accuracy=accuracy, correlation=correlation), other)
    for users, pairs, accuracy, correlation, other in (
        (20, 20, 0.9, 0.0, Cell(users=20, pairs=20, accuracy=0.9, correlation=0.35)),
        (20, 65, 0.8, 0.02, Cell(users=20, pairs=65, accuracy=0.8, correlation=0.35)),
        (40, 20, 0.8, 0.05, Cell(users=40, pairs=20, accuracy=0.8, correlation=0.35)),
        (100, 20, 0.8, 0.02, Cell(users=10, pairs=65, accuracy=0.8, correlation=0.35)),
        (200, 5, 0.85, 0.1, Cell(users=5, pairs=20, accuracy=0.85, correlation=0.35)),
        (40, 20, 0.8, 0.2, Cell(users=40, pairs=20, accuracy=0.8, correlation=0.1)),
    )
)
UNEQUAL = (
    ((2, 2), (200, 5), 0.85),
    ((3, 2), (200, 5), 0.85),
    ((5, 1), (200, 5), 0.85),
    ((10, 1), (100, 4), 0.9),
    ((20, 1), (200, 4), 0.95),
)
FALL = 0.15  # what the none and the swap probe lose against the own one
SHARED = 0.6  # share of pairs on which two probes are answered by the same chance
GROUP = 0.4  # share of users in the first group; its accuracy is FALL lower
# Users, questions, pairs per user, accuracy, variance of users and of questions on the probit scale.
CROSSED = (
    (100, 54, 4, 0.75, 0.2, 0.3),
    (400, 54, 4, 0.85, 0.2, 0.3),
    (400, 54, 4, 0.6, 0.05, 0.6),
    (50, 20, 10, 0.75, 0.3, 0.3),
    (200, 30, 8, 0.9, 0.3, 0.1),
    (30, 40, 20, 0.7, 0.5, 0.1),
)


@cache
def logit_normal(accuracy: float, correlation: float) -> tuple[float, float]:
    """Return mean and standard deviation on the logit of chances with this mean and correlation."""
    places, weights = hermegauss(120)
    weights = weights / weights.sum()

    def missed(guess: Floats) -> list[float]:
        chances = expit(guess[0] + math.exp(guess[1]) * places)
        variance = float(weights @ (chances - accuracy) ** 2)
        return [float(weights @ chances) - accuracy, variance - correlation * accuracy * (1 - accuracy)]

    center, log_spread = fsolve(missed, [logit(accuracy), 0.0])
    return float(center), math.exp(log_spread)


class Population:
    """Draws rows from a cell: who answers them, and whether each of two probes gets them right."""

    def __init__(self, cell: Cell, generator: np.random.Generator) -> None:
        self.cell, self.generator = cell, generator
        sizes = cell.sizes()
        self.owners = np.repeat(np.arange(cell.users), sizes)
        self.names = [f"u{owner:04}" for owner in self.owners]

    def chances(self, accuracy: float, quantiles: Floats) -> Floats:
        """Return every user's chance of a right pair, from a distribution with this mean and correlation.

        It is a beta distribution, a mixture of two points (most users are always right, some are not), or a normal one
        on the logit.
        """
        rho = self.cell.correlation
        if rho == 0:
            return np.full(len(quantiles), accuracy)
        if self.cell.shape == "two points":
            bad = 1 / (1 + rho * accuracy / (1 - accuracy))  # the share of users
            return np.where(quantiles < bad, 1 - (1 - accuracy) / bad, 1.0)
        if self.cell.shape == "logit-normal":
            center, spread = logit_normal(accuracy, rho)
            normal: Floats = expit(center + spread * ndtri(quantiles))
            return normal
        rest = (1 - rho) / rho
        result: Floats = beta.ppf(quantiles, accuracy * rest, (1 - accuracy) * rest)
        return result

    def accuracy(self) -> Floats:
        """Return which rows are right, of a model with the cell's accuracy."""
        chances = self.chances(self.cell.accuracy, self.generator.random(self.cell.users))
        return (self.generator.random(len(self.owners)) < chances[self.owners]).astype(np.float64)

    def probes(self, other: float) -> Floats:
        """Return which rows are right under two probes, (rows, 2); users and rows are partly the same to both."""
        quantiles = self.generator.random(self.cell.users)
        apart = self.generator.random(self.cell.users)
        second = np.where(self.generator.random(self.cell.users) < 0.5, quantiles, apart)
        chances = [self.chances(self.cell.accuracy, quantiles), self.chances(other, second)]
        luck, own_luck = self.generator.random((2, len(self.owners)))
        same = self.generator.random(len(self.owners)) < SHARED
        lucks = (luck, np.where(same, luck, own_luck))
        right = [one < chance[self.owners] for one, chance in zip(lucks, chances, strict=True)]
        return np.stack(right, axis=1).astype(np.float64)

    def groups(self) -> tuple[Floats, Floats]:
        """Return points and membership of two groups of users, (rows, 2) each; the first is worse by FALL."""
        first = np.arange(self.cell.users) % 5 < 5 * GROUP
        quantiles = self.generator.random(self.cell.users)
        low, high = (self.chances(value, quantiles) for value in (self.cell.accuracy - FALL, self.cell.accuracy))
        right = self.generator.random(len(self.owners)) < np.where(first, low, high)[self.owners]
        member = np.stack([first[self.owners], ~first[self.owners]], axis=1).astype(np.float64)
        return right[:, None] * member, member


Bounds = tuple[float, float, float]  # truth, low, high


def one_accuracy(population: Population) -> Bounds:
    """Return the interval of an accuracy."""
    points = population.accuracy()
    found = clustered_ratios(points, np.ones(len(points)), population.names).estimate(0)
    return population.cell.accuracy, found.low, found.high


def one_contrast(population: Population, fall: float) -> Bounds:
    """Return the interval of a gain or a swap gap: two probes on the same rows."""
    points = population.probes(population.cell.accuracy - fall)
    found = clustered_ratios(points, np.ones_like(points), population.names).estimate(0, minus=1)
    return fall, found.low, found.high


def one_group_gap(population: Population) -> Bounds:
    """Return the interval of the difference between two groups of users."""
    points, member = population.groups()
    found = clustered_ratios(points, member, population.names).estimate(1, minus=0)
    return FALL, found.low, found.high


FIGURES: dict[str, Callable[[Population], Bounds]] = {
    "accuracy": one_accuracy,
    "gain": lambda population: one_contrast(population, FALL),
    "swap gap": lambda population: one_contrast(population, FALL / 3),
    "group difference": one_group_gap,
}


def cover(simulations: int, cells: Sequence[Cell] = CELLS, part: int = 0) -> Iterator[dict[str, object]]:
    """Yield the coverage of every cell and figure."""
    for place, cell in enumerate(cells):
        for number, (figure, draw) in enumerate(FIGURES.items()):
            population = Population(cell, np.random.default_rng([SEED + part, place, number]))
            bounds = np.array([draw(population) for _ in range(simulations)])
            yield {"figure": figure, **asdict(cell), **coverage_of(bounds)}


def cover_hard(simulations: int) -> Iterator[dict[str, object]]:
    """Yield the same of the cells in which few samples hold what varies."""
    yield from cover(simulations, HARD, part=1)


def cover_fresh(simulations: int) -> Iterator[dict[str, object]]:
    """Yield the same of cells that no earlier study had."""
    yield from cover(simulations, FRESH, part=2)


def cover_otherwise(simulations: int) -> Iterator[dict[str, object]]:
    """Yield the same where users differ in other ways, from half of the simulations."""
    for number, shape in enumerate(("two points", "logit-normal")):
        cells = [replace(cell, shape=shape) for cell in OTHERWISE]
        yield from cover(simulations // 2, cells, part=3 + number)


def cover_unequal(simulations: int) -> Iterator[dict[str, object]]:
    """Yield the coverage of the difference between a small and a large group of the same accuracy."""
    for place, (small, large, accuracy) in enumerate(UNEQUAL):
        generator = np.random.default_rng([SEED, 5_000, place])
        users = [f"{side}{user}" for side, (count, rows) in zip("sl", (small, large), strict=True)
                 for user in range(count) for _ in range(rows)]  # fmt: skip
        first = np.array([name[0] == "s" for name in users])
        member = np.stack([first, ~first], axis=1).astype(np.float64)
        found = []
        for _ in range(simulations):
            right = generator.random(len(users)) < accuracy
            gap = clustered_ratios(right[:, None] * member, member, users).estimate(0, minus=1)
            found.append((0.0, gap.low, gap.high))
        sizes = {"small_users": small[0], "small_rows": small[1], "large_users": large[0], "large_rows": large[1]}
        yield {**sizes, "accuracy": accuracy, **coverage_of(np.array(found))}


def cover_unlike(simulations: int) -> Iterator[dict[str, object]]:
    """Yield the coverage of the difference between two groups of the same accuracy whose users differ unlike much."""
    for place, (first, second) in enumerate(UNLIKE):
        generator = np.random.default_rng([SEED, 6_000, place])
        populations = [Population(cell, generator) for cell in (first, second)]
        users = [f"{side}{name}" for side, each in zip("ab", populations, strict=True) for name in each.names]
        inside = np.array([name[0] == "a" for name in users])
        member = np.stack([inside, ~inside], axis=1).astype(np.float64)
        found = []
        for _ in range(simulations // 2):
            chances = [
                each.chances(each.cell.accuracy, generator.random(each.cell.users))[each.owners]
                for each in populations
            ]
            right = generator.random(len(users)) < np.concatenate(chances)
            gap = clustered_ratios(right[:, None] * member, member, users).estimate(0, minus=1)
            found.append((0.0, gap.low, gap.high))
        sides = {f"{name}_{key}": value for name, cell in (("first", first), ("second", second))
                 for key, value in asdict(cell).items() if key in ("users", "pairs", "correlation")}  # fmt: skip
        yield {**sides, "accuracy": first.accuracy, **coverage_of(np.array(found))}


def coverage_of(bounds: Floats) -> dict[str, float]:
    """Return the share of intervals that hold the truth, that lie above and below it, and their mean width."""
    truth, low, high = bounds.T
    above, below = float((low > truth + 1e-12).mean()), float((high < truth - 1e-12).mean())
    figures = {"coverage": 1 - above - below, "too_high": above, "too_low": below, "width": float((high - low).mean())}
    return {name: round(value, 5) for name, value in figures.items()}


def cover_crossed(simulations: int) -> Iterator[dict[str, object]]:
    """Yield the coverage of the interval for new users and new questions, beside that for new users alone."""
    for place, (users, questions, pairs, accuracy, of_users, of_questions) in enumerate(CROSSED):
        generator = np.random.default_rng([SEED, 1_000, place])
        owners = np.repeat(np.arange(users), pairs)
        names = [f"u{owner}" for owner in owners]
        threshold = _normal.inv_cdf(accuracy) * math.sqrt(1 + of_users + of_questions)
        found = []
        for _ in range(simulations):
            asked = np.argsort(generator.random((users, questions)), axis=1)[:, :pairs].ravel()
            lean = math.sqrt(of_users) * generator.standard_normal(users)[owners]
            lean += math.sqrt(of_questions) * generator.standard_normal(questions)[asked]
            points = (generator.random(len(owners)) < ndtr(threshold + lean)).astype(np.float64)
            both = clustered_ratios(points, np.ones(len(points)), names, questions=[f"q{each}" for each in asked])
            alone = clustered_ratios(points, np.ones(len(points)), names)
            found.append([(each.estimate(0).low, each.estimate(0).high) for each in (both, alone)])
        bounds = np.array(found)  # (simulations, 2, 2)
        truth = np.full((simulations, 1), accuracy)
        two_way, one_way = (coverage_of(np.hstack([truth, bounds[:, side]])) for side in (0, 1))
        yield {
            "users": users,
            "questions": questions,
            "pairs": pairs,
            "accuracy": accuracy,
            "variance_of_users": of_users,
            "variance_of_questions": of_questions,
            **two_way,
            "coverage_users_alone": one_way["coverage"],
        }


# What the printed resolution is tried on, with the share of ties.
POWER_CELLS = (
    (Cell(users=100, pairs=4, accuracy=0.8, correlation=0.1), 0.0),
    (Cell(users=400, pairs=4, accuracy=0.75, correlation=0.1), 0.0),
    (Cell(users=100, pairs=8, accuracy=0.75, correlation=0.2), 0.3),
    (Cell(users=200, pairs=8, accuracy=0.8, correlation=0.2, skewed=True), 0.0),
    (Cell(users=60, pairs=20, accuracy=0.7, correlation=0.1), 0.2),
    (Cell(users=100, pairs=10, accuracy=0.7, correlation=0.1, skewed=True), 0.2),
)
MODELS = 8
LETTER_CELLS = (
    Cell(users=30, pairs=4, accuracy=0.75, correlation=0.1),
    Cell(users=100, pairs=4, accuracy=0.75, correlation=0.35),
    Cell(users=50, pairs=8, accuracy=0.8, correlation=0.1, skewed=True),
)


def with_ties(points: Floats, share: float, generator: np.random.Generator) -> Floats:
    """Return the points with this share of them, of each model by itself, turned into ties."""
    return np.where(generator.random(points.shape) < share, 0.5, points)


def false_positives(simulations: int, cells: Sequence[Cell] = CELLS, part: int = 2_000) -> Iterator[dict[str, object]]:
    """Yield how often two models of the same accuracy are said to differ at 5 %."""
    for place, cell in enumerate(cells):
        population = Population(cell, np.random.default_rng([SEED, part, place]))
        hits = 0
        for _ in range(simulations):
            points = population.probes(cell.accuracy)
            p = clustered_ratios(points, np.ones_like(points), population.names).p_value(0, minus=1)
            hits += p is not None and p < ALPHA
        yield {**asdict(cell), "false_positives": round(hits / simulations, 5)}


def false_positives_hard(simulations: int) -> Iterator[dict[str, object]]:
    """Yield the same of the hard and the fresh cells."""
    yield from false_positives(simulations, (*HARD, *FRESH), part=2_001)


def false_positives_otherwise(simulations: int) -> Iterator[dict[str, object]]:
    """Yield the same where users differ in other ways."""
    for number, shape in enumerate(("two points", "logit-normal")):
        cells = [replace(cell, shape=shape) for cell in OTHERWISE]
        yield from false_positives(simulations, cells, part=2_002 + number)


def power_at_resolution(simulations: int) -> Iterator[dict[str, object]]:
    """Yield how often a true difference as large as the printed resolution is found."""
    for place, (cell, ties) in enumerate(POWER_CELLS):
        population = Population(cell, np.random.default_rng([SEED, 3_000, place]))

        def draw(fall: float, population: Population = population, ties: float = ties) -> ClusteredRatios:
            # A tie moves half a point towards either side alike, so that differences shrink by the share of ties.
            points = with_ties(population.probes(population.cell.accuracy - fall), ties, population.generator)
            return clustered_ratios(points, np.ones_like(points), population.names)

        printed = 0.05
        for _ in range(4):  # the variance depends on the difference: a fixed point
            fall = printed / (1 - ties)
            found = [smallest_difference(draw(fall).spread(0, minus=1)) or 0.0 for _ in range(200)]
            printed = float(np.median(found))
        p_values = [draw(printed / (1 - ties)).p_value(0, minus=1) for _ in range(simulations)]
        hits = sum(p is not None and p < ALPHA for p in p_values)
        yield {**asdict(cell), "ties": ties, "resolution": round(printed, 5), "power": round(hits / simulations, 5)}


def family_wise(simulations: int) -> Iterator[dict[str, object]]:
    """Yield how often a board of equal models gives any two of them no letter in common."""
    for place, cell in enumerate(LETTER_CELLS):
        population = Population(cell, np.random.default_rng([SEED, 4_000, place]))
        generator, wrong = population.generator, 0
        pairs = list(combinations(range(MODELS), 2))
        for _ in range(simulations):
            shared = population.chances(cell.accuracy, generator.random(cell.users))[population.owners]
            points = (generator.random((MODELS, len(shared))) < shared).T.astype(np.float64)
            ratios = clustered_ratios(points, np.ones_like(points), population.names)
            p_values = [ratios.p_value(one, minus=two) or 0.0 for one, two in pairs]
            # As `rank_board` does, without the intervals that nobody asks for here.
            apart = [pair for pair, p in zip(pairs, holm(p_values), strict=True) if p < ALPHA]
            wrong += any(letters != "a" for letters in letters_of(MODELS, apart))
        yield {**asdict(cell), "models": MODELS, "family_wise": round(wrong / simulations, 5)}


PARTS: dict[str, Callable[[int], Iterator[dict[str, object]]]] = {
    "coverage": cover,
    "coverage_hard": cover_hard,
    "coverage_fresh": cover_fresh,
    "coverage_otherwise": cover_otherwise,
    "coverage_unequal": cover_unequal,
    "coverage_unlike": cover_unlike,
    "coverage_users_questions": cover_crossed,
    "false_positives": false_positives,
    "false_positives_hard": false_positives_hard,
    "false_positives_otherwise": false_positives_otherwise,
    "power_at_resolution": power_at_resolution,
    "family_wise": family_wise,
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run all parts, or some, and write one CSV file for each, beside what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--simulations", type=int, default=SIMULATIONS)
    parser.add_argument("--parts", nargs="*", choices=PARTS, default=list(PARTS))
    options = parser.parse_args(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    kept = options.out / "summary.json"
    figures: dict[str, object] = {"seed": SEED, "simulations": options.simulations}
    if kept.exists():  # of other parts, which may run side by side
        earlier = json.loads(kept.read_text(encoding="utf-8"))
        if {name: earlier[name] for name in figures} == figures:
            figures |= earlier
    for name in options.parts:
        rows = list(PARTS[name](options.simulations))
        with (options.out / f"{name}.csv").open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, fieldnames=list(rows[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
        figures[name] = summary_of(name, rows)
        print(name, json.dumps(figures[name]), flush=True)
    kept.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


def summary_of(name: str, rows: Sequence[dict[str, object]]) -> dict[str, object]:
    """Return the lowest and highest figure of a part, and how many lie within the bar."""
    column, low, high = BARS[name]
    values = [float(str(row[column])) for row in rows]
    inside = sum(low <= value <= high for value in values)
    return {"cells": len(rows), "lowest": min(values), "highest": max(values), "bar": [low, high], "inside": inside}


BARS = {  # the figure of each part, and what it should lie between
    "coverage": ("coverage", 0.93, 0.97),
    "coverage_hard": ("coverage", 0.93, 0.97),
    "coverage_fresh": ("coverage", 0.93, 0.97),
    "coverage_otherwise": ("coverage", 0.93, 0.97),
    "coverage_unequal": ("coverage", 0.93, 0.97),
    "coverage_unlike": ("coverage", 0.93, 0.97),
    "coverage_users_questions": ("coverage", 0.93, 0.97),
    "false_positives": ("false_positives", 0.035, 0.065),
    "false_positives_hard": ("false_positives", 0.035, 0.065),
    "false_positives_otherwise": ("false_positives", 0.035, 0.065),
    "power_at_resolution": ("power", 0.77, 0.83),
    "family_wise": ("family_wise", 0.0, 0.06),
}

if __name__ == "__main__":
    main()
