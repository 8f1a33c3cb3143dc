"""Tables of how sure the figures are. One function each, named as the page names it."""

import csv
from collections.abc import Callable, Sequence

from table_cells import RESULTS, grid

Cells = dict[str, str]
Cut = Callable[[Cells], list[str]]


def rows_of(part: str) -> list[Cells]:
    """Return the rows of one part of `experiments/intervals.py`."""
    with (RESULTS / "intervals" / f"{part}.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def share(text: str) -> str:
    """Return a share in percent."""
    return f"{100 * float(text):.1f}"


def population(row: Cells) -> list[str]:
    """Return the cells that say how rows were drawn."""
    sizes = "skewed" if row["skewed"] == "True" else "equal"
    return [row["users"], row["pairs"], sizes, share(row["accuracy"]), row["correlation"]]


SIDES = ("first", "second")
POPULATION = ["users", "pairs each", "sizes", "accuracy", "correlation"]
SHAPE = "users differ by"


def otherwise(row: Cells) -> list[str]:
    """Return the same, and how the chances of users are distributed."""
    return [row["shape"], *population(row)]


def interval_coverage() -> str:
    """Return the coverage of every cell, a column a figure."""
    return _coverage("coverage")


def _coverage(part: str, columns: Sequence[str] = POPULATION, cells: Cut = population) -> str:
    found: dict[tuple[str, ...], list[str]] = {}
    figures: dict[str, None] = {}
    for row in rows_of(part):
        figures[row["figure"]] = None
        tails = f"{share(row['too_high'])} / {share(row['too_low'])}"
        found.setdefault(tuple(cells(row)), []).append(f"{share(row['coverage'])} ({tails})")
    return grid([*columns, *figures], [[*cell, *shares] for cell, shares in found.items()])


def interval_coverage_hard() -> str:
    """Return the same of the hard cells."""
    return _coverage("coverage_hard")


def interval_coverage_fresh() -> str:
    """Return the same of the cells that no earlier study had."""
    return _coverage("coverage_fresh")


def interval_coverage_otherwise() -> str:
    """Return the same where users differ in other ways."""
    return _coverage("coverage_otherwise", [SHAPE, *POPULATION], otherwise)


def interval_coverage_unequal() -> str:
    """Return the coverage of the difference between groups of very different size."""
    lines = [
        [
            f"{row['small_users']} users × {row['small_rows']}",
            f"{row['large_users']} users × {row['large_rows']}",
            share(row["accuracy"]),
            share(row["coverage"]),
        ]
        for row in rows_of("coverage_unequal")
    ]
    return grid(["small group", "large group", "accuracy of both", "coverage"], lines)


def interval_coverage_unlike() -> str:
    """Return the coverage of the difference between groups whose users differ unlike much."""
    lines = [
        [
            *(
                f"{row[f'{side}_users']} users × {row[f'{side}_pairs']}, {row[f'{side}_correlation']}"
                for side in SIDES
            ),
            share(row["accuracy"]),
            share(row["coverage"]),
        ]
        for row in rows_of("coverage_unlike")
    ]
    return grid(["first group, correlation", "second group, correlation", "accuracy of both", "coverage"], lines)


def interval_coverage_crossed() -> str:
    """Return the coverage where questions recur."""
    columns = ("users", "questions", "pairs", "accuracy", "variance_of_users", "variance_of_questions")
    lines = [
        [
            *(share(row[name]) if name == "accuracy" else row[name] for name in columns),
            share(row["coverage"]),
            share(row["coverage_users_alone"]),
        ]
        for row in rows_of("coverage_users_questions")
    ]
    head = ["users", "questions", "pairs each", "accuracy", "variance of users", "of questions"]
    return grid([*head, "users and questions", "users alone"], lines)


def interval_false_positives() -> str:
    """Return how often two equal models are told apart."""
    return _with(rows_of("false_positives"), ["false_positives"], ["told apart, %"])


def interval_false_positives_hard() -> str:
    """Return the same of the hard and the fresh cells."""
    return _with(rows_of("false_positives_hard"), ["false_positives"], ["told apart, %"])


def interval_false_positives_otherwise() -> str:
    """Return the same where users differ in other ways."""
    lines = [[*otherwise(row), share(row["false_positives"])] for row in rows_of("false_positives_otherwise")]
    return grid([SHAPE, *POPULATION, "told apart, %"], lines)


def interval_family_wise() -> str:
    """Return how often a board of equal models has any two without a common letter."""
    return _with(rows_of("family_wise"), ["family_wise"], ["boards, %"])


def interval_power() -> str:
    """Return the power at the printed resolution."""
    return _with(
        rows_of("power_at_resolution"), ["ties", "resolution", "power"], ["ties, %", "resolution, points", "found, %"]
    )


def _with(rows: Sequence[Cells], columns: Sequence[str], names: Sequence[str]) -> str:
    return grid([*POPULATION, *names], [[*population(row), *(share(row[name]) for name in columns)] for row in rows])
