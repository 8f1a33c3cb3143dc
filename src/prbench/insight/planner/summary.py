"""From rows to `planner.json`: precision and recall with intervals over users, and what they rest on."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict

from prbench.insight.planner.records import Matching, PlanRow
from prbench.metrics.estimate import ratio_estimates
from prbench.schema import BROKEN, Estimate, Json

DIGITS = 6


def summarise_plans(rows: Sequence[PlanRow], *, seed: int = 0) -> dict[str, Json]:
    """Return the figures of a planner.

    Precision is the share of planned aspects that are wanted, recall the share of wanted aspects that are planned;
    an aspect counts once. Where there is no plan, nothing was planned: recall counts its wanted aspects as missed
    (`recall_with_plan` leaves them out). Where the judge's reply cannot be read, the example is left out of both and
    lowers `judged`. A request to the planner that failed says nothing about it: the example is in `failed`, and left
    out of every share.
    """
    told = [row for row in rows if row.problem not in BROKEN]
    has_plan = [not row.problem for row in told]
    ones = [1.0] * len(told)
    return {
        "examples": len(rows),
        "users": len({row.user_id for row in rows}),
        "failed": sum(row.has_failed for row in rows),
        "planned": _share_of(has_plan, ones, [row.user_id for row in told], seed),
        "no_plan": dict(sorted(Counter(row.problem for row in rows if row.problem).items())),
        "aspects_per_plan": _ratio([len(row.planned) for row in told], has_plan),
        "aspects_wanted": _ratio([len(row.wanted) for row in rows], [1.0] * len(rows)),
        "judge": _figures([(row, row.judged) for row in told if row.judged is not None], seed),
        "lab": _lab_figures([(row, row.truth) for row in told if row.truth is not None], seed),
    }


def _figures(found: Sequence[tuple[PlanRow, Matching]], seed: int) -> dict[str, Json] | None:
    if not found:
        return None
    told = [(row, matching) for row, matching in found if matching.pairs is not None]
    asked = [(row, matching) for row, matching in found if row.planned]
    is_told = [float(matching.pairs is not None) for _, matching in asked]
    return {
        "judged": _share_of(is_told, [1.0] * len(asked), [row.user_id for row, _ in asked], seed),
        "unreadable": dict(sorted(Counter(m.problem for _, m in found if m.pairs is None).items())),
        "precision": _share(told, [len(row.planned) for row, _ in told], seed),
        "recall": _share(told, [len(row.wanted) for row, _ in told], seed),
        "recall_with_plan": _share(told, [0 if row.problem else len(row.wanted) for row, _ in told], seed),
    }


def _lab_figures(found: Sequence[tuple[PlanRow, Matching]], seed: int) -> dict[str, Json] | None:
    """The same by the lab's truth, with the share of planned aspects that could be read, and what chance gives."""
    figures = _figures(found, seed)
    if figures is None:
        return None
    planned = [len(row.planned) for row, _ in found]
    read = [sum(bool(trait) for trait in row.read) for row, _ in found]
    chance = [len(row.planned) * len(row.wanted) / ASPECTS_OF_A_SUBJECT for row, _ in found]
    return figures | {
        "aspects_read": _ratio(read, planned),
        "precision_of_read": _share(found, read, seed),
        "precision_by_chance": _ratio(chance, planned),
    }


ASPECTS_OF_A_SUBJECT = 6


def _share(found: Sequence[tuple[PlanRow, Matching]], of: Sequence[float], seed: int) -> dict[str, Json] | None:
    """Matched aspects among so many."""
    top = [matching.matched if number else 0 for (_, matching), number in zip(found, of, strict=True)]
    return _share_of(top, of, [row.user_id for row, _ in found], seed)


def _share_of(
    top: Sequence[float], bottom: Sequence[float], users: Sequence[str], seed: int
) -> dict[str, Json] | None:
    """A ratio with its interval; None where there is nothing to have a share of."""
    return _estimate(ratio_estimates(top, bottom, users, seed=seed)[0]) if any(bottom) else None


def _ratio(top: Sequence[float], bottom: Sequence[float]) -> float | None:
    return round(sum(top) / sum(bottom), DIGITS) if sum(bottom) else None


def _estimate(estimate: Estimate) -> dict[str, Json]:
    return {
        name: round(value, DIGITS) if isinstance(value, float) else value for name, value in asdict(estimate).items()
    }
