"""From boards to one self-contained page: the table of runs, charts, and a browser of single items."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from prbench.metrics.calibration import reliability
from prbench.metrics.number_format import MISSING, PERCENT, POINTS, NumberFormat, parts_of
from prbench.pages.board import (
    AT_BOUND,
    CEILING,
    GROUP_NOTE,
    LEGEND,
    METRICS,
    PAIRS,
    Board,
    Line,
    Metric,
    Summary,
    board_table,
    notes_of_run,
    official_table,
)
from prbench.pages.charts import Chart, DotChart, LineChart, Mark, Series, mark_of, named_axis, point, round_axis
from prbench.pages.groups import tables_of_groups
from prbench.pages.items import Items
from prbench.pages.shell import Origin, data_name, render_page
from prbench.schema import NOTHING, Json, Probe, Row

MOST_LINES = 6
NO_CONFIDENCE = (
    f" With the {AT_BOUND} none fits, as the margins are all right, or wrong on the whole: what follows is no "
    "confidence of the model."
)
LEADERS = 3  # models that are compared by category


def render(boards: Sequence[Board], items: Items, *, command: str = "") -> str:
    """Return the page as a string."""
    page = {"title": "Personalized reward models", **parts_of_boards(boards), "browser": items.as_json()}
    return render_page("board.html", page, origin_of_boards(boards, command))


def parts_of_boards(boards: Sequence[Board], pages: Mapping[str, str] = NOTHING) -> dict[str, Json]:
    """Return what every page of boards shows; `pages` has, by run id, the addresses of pages of single runs."""
    return {"boards": [_board(board, pages) for board in boards], "planners": _planners(boards)}


def origin_of_boards(boards: Sequence[Board], command: str) -> Origin:
    """Return what a page of boards was made from."""
    manifests = [line.run.manifest for board in boards for line in board.lines]
    named = (data_name(each["data"], each["config"].get("data_hash", "")) for each in manifests)
    return Origin(command=command, data="; ".join(dict.fromkeys(named)), manifests=manifests)


def _board(board: Board, pages: Mapping[str, str]) -> dict[str, Json]:
    lines = board.lines
    found = [metric for metric in METRICS[board.kind] if not metric.is_dull([line.summary for line in lines])]
    # What is an interval alone stands in the cell of the figure before it: a page is not as wide as a terminal.
    shown = [metric for metric in found if metric.printed != "bounds"]
    beside = {first: second for first, second in pairwise(found) if second.printed == "bounds"}
    return {
        "data": board.data,
        "size": board.size,
        "resolution": board.resolution,
        "population": board.population,
        "notes": [f"{line.run.name}: {note}" for line in lines for note in notes_of_run(line.run)],
        "legend": LEGEND if board.kind == PAIRS else "",
        "metrics": shown,
        "lines": [
            {
                "role": line.role,
                "letters": line.letters,
                "model": line.run.model,
                "page": pages.get(line.summary["run_id"], ""),
                "context": line.summary["context"],
                "cells": [_cell(metric, line, beside.get(metric)) for metric in shown],
            }
            for line in lines
        ],
        "table": board_table([board]),
        "official": official_table(board),
        "groups": list(tables_of_groups(board)),
        "group_note": GROUP_NOTE,
        "charts": _charts(board) if board.kind == PAIRS else [],
    }


def _cell(metric: Metric, line: Line, beside: Metric | None) -> dict[str, Json]:
    """Return one figure of a run: its value, its interval, what stands beside it, and what the table sorts by."""
    figure = metric.read(line.summary)
    cell = {"value": MISSING, "interval": "", "sort": "", "title": f"{metric.name} does not apply", "beside": []}
    if figure is None:
        return cell
    if not isinstance(figure, Mapping):
        caveat = metric.caveat(line.summary)
        title = f"{metric.name}: {caveat}" if caveat else metric.name
        return {
            **cell,
            "value": metric.form.number(figure),
            "sort": figure,
            "title": title,
            "beside": ["at its bound"] if caveat else [],
        }
    value, low, high = parts_of(figure)
    count = f", n = {figure['n']}" if figure.get("n") is not None else ""
    return {
        "value": metric.form.number(value),
        "interval": metric.form.interval(low, high),
        "sort": value,
        "title": f"{metric.name} {metric.form.estimate(figure)}{count}",
        "beside": [beside.name, beside.text(line.summary, "bounds")] if beside else [],
    }


def _planners(boards: Sequence[Board]) -> tuple[tuple[str, ...], list[list[str]]] | None:
    rows = [
        [
            line.run.name,
            line.run.planner["settings"]["planner"],
            how,
            *(PERCENT.estimate(each) for each in (line.run.planner["planned"], found["precision"], found["recall"])),
        ]
        for board in boards
        for line in board.lines
        if line.run.planner
        for key, how in (("judge", "by the judge"), ("lab", "by the lab's truth"))
        if (found := line.run.planner.get(key))
    ]
    return (("run", "planner", "compared", "with a plan", "precision", "recall"), rows) if rows else None


def _charts(board: Board) -> list[Chart]:
    others = (make(board) for make in (_categories, _dose, _calibration))
    return [*_by_run(board), *(chart for chart in others if chart is not None)]


def _by_run(board: Board) -> Iterator[Chart]:
    """Yield the charts that have a row per run, as far as there is something to show."""
    for title, note, reference, form, parts in BY_RUN:
        rows = []
        for line in board.lines:
            found = [mark_of(read(line.summary), name, style) for style, (name, read) in enumerate(parts)]
            if any(found):
                rows.append((line.run.name, [mark for marks in found for mark in marks]))
        if rows:
            yield DotChart(title=title, note=note, rows=rows, reference=reference, form=form)


def _without_profile(summary: Summary) -> Json:
    """Return the accuracy without a profile as a bare point: its interval stands in the next chart, as the gain's."""
    own, gain = summary["accuracy"], summary["personalization_gain"]
    return None if gain is None or own is None else {**point(own["value"] - gain["value"]), "n": gain["n"]}


def _categories(board: Board) -> Chart | None:
    leaders = [line for line in board.lines if line.role != CEILING][:LEADERS]
    if not leaders or len(leaders[0].summary["accuracy_by_category"] or ()) < 2:
        return None
    rows = [
        (
            category or "(none)",
            [
                mark
                for style, line in enumerate(leaders)
                for mark in mark_of((line.summary["accuracy_by_category"] or {}).get(category), line.run.name, style)
            ],
        )
        for category in leaders[0].summary["accuracy_by_category"]
    ]
    note = f"Accuracy of the first {len(leaders)} runs in each category, in percent."
    return DotChart(title="Accuracy by category", note=note, rows=rows, reference=0.5)


def _dose(board: Board) -> Chart | None:
    """Accuracy over the number of posts that the model saw, for the best models."""
    found: dict[str, dict[tuple[int, str], Json]] = {}
    for line in board.lines:
        doses = line.summary["dose_response"] or []
        if line.role != CEILING and len(doses) > 1:
            found[line.run.name] = {
                (low, f"{low}+" if high is None else str(low) if low == high else f"{low}–{high}"): dose["accuracy"]
                for dose in doses
                for low, high in ((dose["low"], dose["high"]),)
            }
    if not found:
        return None
    buckets = sorted({bucket for doses in found.values() for bucket in doses})
    series = [
        Series(
            name=name,
            style=style,
            marks=[
                replace(mark, x=buckets.index(bucket), name=f"{bucket[1]} posts")
                for bucket, figure in doses.items()
                for mark in mark_of(figure)
            ],
        )
        for style, (name, doses) in enumerate(list(found.items())[:MOST_LINES])
    ]
    counts = [{doses[bucket]["n"] for doses in found.values() if bucket in doses} for bucket in buckets]
    names = [f"{name} (n {min(ns)})" if len(ns) == 1 else name for (_, name), ns in zip(buckets, counts, strict=True)]
    marks = [mark for each in series for mark in each.marks]
    return LineChart(
        title="Accuracy by number of posts",
        note="Accuracy in percent by the number of posts that the model saw, with n pairs.",
        series=series,
        x=named_axis(names),
        y=round_axis(min(mark.low for mark in marks), max(mark.high for mark in marks), scale=100.0),
        x_name="posts",
        form=PERCENT,
    )


def _calibration(board: Board) -> Chart | None:
    """Stated confidence against the share that was right, out of fold."""
    series: list[Series] = []
    at_bound = False
    for line in board.lines:
        if line.role == CEILING or line.summary["calibration"] is None or len(series) == MOST_LINES:
            continue
        rows = [row for row in line.run.rows if isinstance(row, Row) and row.probe is Probe.OWN]
        error = NumberFormat(1, 100.0).number(line.summary["calibration"]["ece"])
        if line.summary["calibration"]["temperature_at_bound"]:
            error, at_bound = f"{error}, {AT_BOUND}", True
        marks = [
            Mark(
                value=p.correct,
                low=p.correct,
                high=p.correct,
                n=p.n,
                x=p.confidence,
                name=f"confidence {PERCENT.number(p.confidence)}",
            )
            for p in reliability(rows)
        ]
        series.append(Series(name=f"{line.run.name} (calibration error {error})", style=len(series), marks=marks))
    if not series:
        return None
    return LineChart(
        title="Calibration",
        note=f"Share of right verdicts by confidence, in percent, after one temperature fitted on other users. On the "
        f"dashed line, confidence is what it should be.{NO_CONFIDENCE if at_bound else ''}",
        series=series,
        x=round_axis(0.5, 1.0, scale=100.0),
        y=round_axis(0.0, 1.0, scale=100.0),
        x_name="confidence",
        form=PERCENT,
        diagonal=True,
    )


BY_RUN: Sequence[tuple[str, str, float, NumberFormat, Sequence[tuple[str, Callable[[Summary], Json]]]]] = (
    (
        "Accuracy",
        "With the user's own profile, without, and with another user's, in percent. Chance is 50.",
        0.5,
        PERCENT,
        (
            ("own profile", lambda summary: summary["accuracy"]),
            ("no profile", _without_profile),
            ("another user's profile", lambda summary: (summary["swap"] or {}).get("swapped")),
        ),
    ),
    (
        "Does it use the user?",
        "In points. Swap gap: accuracy with the own profile minus with another user's. Gain: with the profile minus "
        "without. Both are exactly 0 if no score moves; a judge that samples its replies and ignores the user has 0 "
        "in expectation. Gap on impersonal errors: the swap gap on the pairs that the model gets wrong when it "
        "knows nobody.",
        0.0,
        POINTS,
        (
            ("swap gap", lambda summary: (summary["swap"] or {}).get("gap")),
            ("gain", lambda summary: summary["personalization_gain"]),
            ("gap on impersonal errors", lambda summary: (summary["impersonal_errors"] or {}).get("gap")),
        ),
    ),
    (
        "Minority and majority",
        "Accuracy in percent where this user wants what most users do not want, and where they want what most "
        "do. Only where that is known of the users.",
        0.5,
        PERCENT,
        (
            ("minority", lambda summary: summary["minority_accuracy"]),
            ("majority", lambda summary: summary["majority_accuracy"]),
        ),
    ),
)
