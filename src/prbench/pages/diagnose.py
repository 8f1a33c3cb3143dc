"""From a diagnosis to words and to one self-contained page, in the look of the report."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib.metadata import version
from string import ascii_uppercase

from prbench.insight.diagnose import Diagnosis, disagreements
from prbench.insight.diagnose.slices import FEWEST_ITEMS, FEWEST_USERS, Cell, Field, Slice, SliceFinding
from prbench.pages.board import percent as estimate_text
from prbench.pages.charts import Chart, dot_chart
from prbench.pages.shell import render_page
from prbench.schema import Estimate, Example, Json

LETTERS = ascii_uppercase
FORMS = ("own", "none", "swap")  # forms of dots: as many runs fit into a chart
MOST_ITEMS = 50  # to label, with their texts, on the page
WORDS = {
    SliceFinding.WEAKER: "weaker",
    SliceFinding.STRONGER: "stronger",
    SliceFinding.ALIKE: "",
    SliceFinding.TOO_SMALL: "too small",
    SliceFinding.NOT_TESTED: "not tested",
}
MARKS = {  # where room is short
    SliceFinding.WEAKER: "▼",
    SliceFinding.STRONGER: "▲",
    SliceFinding.ALIKE: "",
    SliceFinding.TOO_SMALL: "?",
    SliceFinding.NOT_TESTED: "–",
}


def percent(estimate: Estimate | Mapping[str, float]) -> str:
    """Return an estimate in percent with its interval."""
    return estimate_text(asdict(estimate) if isinstance(estimate, Estimate) else estimate, interval=True)


def signed(estimate: Estimate) -> str:
    """Return a difference in points with its interval."""
    return estimate_text(asdict(estimate), interval=True, sign=True)


def finding_text(cell: Cell, *, short: bool = False) -> str:
    """Say in words how a slice compares with the rest."""
    if short:
        return MARKS[cell.finding]
    if cell.against_rest is None:
        return WORDS[cell.finding]
    figures = f"{100 * cell.against_rest.difference.value:+.1f}, p {_p(cell.against_rest.holm_p)}"
    return f"{figures} {WORDS[cell.finding]}".strip()


def limits_text(found: Diagnosis) -> str:
    """Say how the slices were tested, and what the tests cannot show."""
    tested = sum(cell.against_rest is not None for each in found.slices for cell in each.cells)
    text = (
        "Intervals are 95 %, over users. A slice is weaker or stronger than the other items if that stands after "
        f"Holm's correction over {tested} tests, by users and by items; without a word, no difference is shown. Too "
        f"small: fewer than {FEWEST_ITEMS} pairs or {FEWEST_USERS} users, here or in the rest. Slices overlap: a "
        "cause is not told from what goes with it."
    )
    for name in [field.name for field in found.fields if field.by_outcome]:
        text += (
            f" Not tested: {name}, which the data does not state; here it is where {LETTERS[0]} is wrong without a "
            "profile, and such pairs are hard for it anyway."
        )
    marks = (
        "▼ weaker, ▲ stronger, ? too small, – not tested; differ: share of pairs on which the runs' verdicts differ."
    )
    return text if len(found.names) == 1 else f"{text} {marks}"


def render(found: Diagnosis) -> str:
    """Return the page as a string."""
    data = found.run_table.runs[0].summary["data"]
    facts = {
        "data": data["name"],
        "split": ", ".join(found.run_table.splits) or "unnamed",
        "pairs": found.items,
        "users": data["users"],
        "hash": data["hash"][:12],
    }
    page = {
        "title": "Where it fails" if found.labeled else "What to label next",
        "facts": facts,
        "notes": found.notes,
        "runs": _runs(found),
        "odds": disagreements(found.run_table) if found.labeled and len(found.names) > 1 else {},
        "weak": [line for each in found.weak for line in _weak_lines(each)],
        "charts": [chart for field in found.fields if (chart := _chart(found, field)) is not None],
        "tables": _tables(found),
        "several": len(found.names) > 1,
        "label_next": _items(found),
        "label_count": len(found.label_next),
        "limits": limits_text(found) if found.labeled else "",
        "labeled": found.labeled,
        "version": version("prbench"),
    }
    return render_page("diagnose.html", page=page)


def _runs(found: Diagnosis) -> list[dict[str, Json]]:
    return [
        {
            "letter": letter,
            "name": run.name,
            "folder": run.folder.name,
            "accuracy": percent(run.summary["accuracy"]) if found.labeled else "",
        }
        for letter, run in zip(LETTERS, found.run_table.runs, strict=False)
    ]


def _weak_lines(each: Slice) -> list[dict[str, Json]]:
    return [
        {
            "letter": letter,
            "name": each.name,
            "accuracy": percent(cell.accuracy),
            "difference": signed(cell.against_rest.difference),
            "p": _p(cell.against_rest.holm_p),
            "errors": f"{cell.extra_errors:.0f}",
        }
        for letter, cell in zip(LETTERS, each.cells, strict=False)
        if cell.finding is SliceFinding.WEAKER and cell.against_rest is not None
    ]


def _chart(found: Diagnosis, field: Field) -> Chart | None:
    inside = [each for each in found.slices if each.field == field.name]
    several = len(found.names) > 1
    rows = [(each.value, _run_dots(each) if several else [_finding_dot(each.cells[0])]) for each in inside]
    return dot_chart(f"By {field.name}", "Accuracy in percent, with intervals over users.", rows, reference=0.5)


def _finding_dot(cell: Cell) -> tuple[str, str, Mapping[str, float] | None]:
    """Return a dot whose form, not only its color, tells whether the slice is weaker."""
    form, name = {
        SliceFinding.WEAKER: ("swap", "weaker than the rest"),
        SliceFinding.TOO_SMALL: ("none", "too small to tell"),
        SliceFinding.NOT_TESTED: ("none", "not tested"),
    }.get(cell.finding, ("own", "not weaker"))
    return form, name, asdict(cell.accuracy)


def _run_dots(each: Slice) -> list[tuple[str, str, Mapping[str, float] | None]]:
    return [
        (form, f"run {letter}", asdict(cell.accuracy))
        for form, letter, cell in zip(FORMS, LETTERS, each.cells, strict=False)
    ]


def _tables(found: Diagnosis) -> list[dict[str, Json]]:
    return [
        {"field": field.name, "rows": [_row(each) for each in found.slices if each.field == field.name]}
        for field in found.fields
        if found.labeled
    ]


def _row(each: Slice) -> dict[str, Json]:
    return {
        "value": each.value,
        "n": len(each.items),
        "users": each.users,
        "cells": [_cell(cell) for cell in each.cells],
        "disagreement": None if each.disagreement is None else f"{100 * each.disagreement:.0f} %",
    }


def _cell(cell: Cell) -> dict[str, Json]:
    rest, first = cell.against_rest, cell.against_first
    return {
        "accuracy": percent(cell.accuracy),
        "rest": "–" if rest is None else signed(rest.difference),
        "p": "–" if rest is None else _p(rest.holm_p),
        "finding": cell.finding.value,
        "mark": {SliceFinding.WEAKER: "bad", SliceFinding.STRONGER: "good"}.get(cell.finding, "skipped"),
        "first": None if first is None else signed(first.difference) + ("*" if first.is_shown else ""),
    }


def _items(found: Diagnosis) -> list[dict[str, Json]]:
    return [
        {
            "id": each.id,
            "user": each.user_id,
            "category": each.category,
            "figures": f"confidence {100 * each.confidence:.0f} %, disagreement {each.disagreement:.2f} bits",
            "texts": _texts(found.run_table.examples.get(each.id)),
        }
        for each in found.label_next[:MOST_ITEMS]
    ]


def _texts(example: Example | None) -> Sequence[str]:
    """Return question and responses; which one is the chosen is not said, as somebody is to label them."""
    if example is None:
        return []
    return [example.question, *sorted((example.chosen, example.rejected))]


def _p(value: float) -> str:
    return "< 0.001" if value < 0.001 else f"{value:.3f}"
