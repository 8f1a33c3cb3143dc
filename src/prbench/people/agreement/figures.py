"""A figure is an estimate, or the reason in words why there is none: never a bare nan, never an empty cell."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass

from prbench.metrics.agreement import LabelTable
from prbench.metrics.equivalence import Equivalence
from prbench.metrics.estimate import ClusteredShare
from prbench.schema import Estimate, Json

DIGITS = 6  # significant ones, so that a small p-value does not become 0


@dataclass(frozen=True, slots=True)
class Why:
    """Why there is no figure."""

    words: str


Figure = Estimate | Why


def figure_or_why(estimate: Estimate | None, table: LabelTable) -> Figure:
    """Return the coefficient of a table, or say why it is undefined."""
    return Why(_why_undefined(table)) if estimate is None else estimate


def _why_undefined(table: LabelTable) -> str:
    shared = table.counts()[table.counts().sum(axis=1) > 1]
    if len(table.raters) < 2:
        return "There is one annotator only, and nobody to agree with."
    if not len(shared):
        return "No item was answered by two annotators. Plan an overlap."
    if len(shared) == 1:
        return "Only one item was answered by two annotators, and one item says nothing about others."
    used = [category for category, total in zip(table.categories, shared.sum(axis=0), strict=True) if total]
    if len(used) == 1:
        return f"Everybody always answered {used[0]!r}: they agree, but there is nothing to set chance against."
    return "There are too few items with equally many answers."


def as_json(content: object) -> Json:
    """Return records as plain objects with rounded numbers; a figure that does not exist is null with its reason."""
    match content:
        case Why(words=words):
            return {"value": None, "why": words}
        case ClusteredShare(estimate=estimate):
            wilson = {"low": as_json(content.low), "high": as_json(content.high)}
            return {**as_json(estimate), "wilson": wilson, "answers": content.answers}
        case Equivalence():
            return {**_record(content), "p_value": as_json(content.p_value), "equivalent": content.equivalent}
        case Mapping():
            return {str(key): as_json(value) for key, value in content.items()}
        case list() | tuple():
            return [as_json(value) for value in content]
        case float():
            return float(f"{content:.{DIGITS}g}")
        case _:
            return _record(content) if is_dataclass(content) else content


def _record(content: object) -> dict[str, Json]:
    return {spec.name: as_json(getattr(content, spec.name)) for spec in fields(content)}  # type: ignore[arg-type]
