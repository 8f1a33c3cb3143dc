"""From a board to charts: plain positions that the page template draws, with no library at view time."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from prbench.metrics.calibration import reliability
from prbench.pages.board import Board, Line, percent
from prbench.schema import Json, Probe, Row

Chart = dict[str, Any]
Estimates = Mapping[str, float]
Unit = Literal["percent", "plain"]  # how figures are written
LEFT, RIGHT, TOP, BOTTOM = 56, 626, 14, 262  # the drawing area of a line chart
MOST_LINES = 6
STEPS = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0)  # between ticks on the axis of a dot plot
MOST_TICKS = 5
MOST_SIGNED_TICKS = 4  # labels with a sign are wider


def charts(board: Board) -> list[Chart]:
    """Return the charts of one board; those with nothing to show are left out."""
    found = [
        _accuracy(board),
        _personal(board),
        _minority(board),
        _categories(board),
        _dose(board),
        _calibration(board),
    ]
    return [chart for chart in found if chart is not None]


def _accuracy(board: Board) -> Chart | None:
    def probes(line: Line) -> list[tuple[str, str, Estimates | None]]:
        swap = line.summary["swap"] or {}
        gain = line.summary["personalization_gain"]
        own = line.summary["accuracy"]
        none = None if gain is None else _shifted(own, gain)
        return [
            ("own", "own profile", own),
            ("none", "no profile", none),
            ("swap", "another's profile", swap.get("swapped")),
        ]

    return _dots(
        board.lines,
        "Accuracy",
        "Own profile, no profile, and another user's profile. Chance is 50 %.",
        probes,
        reference=0.5,
    )


def _shifted(own: Estimates, gain: Estimates) -> Estimates:
    """Return the accuracy without a profile as a bare point: its interval stands in the next chart, as the gain's."""
    value = own["value"] - gain["value"]
    return {"value": value, "low": value, "high": value}


def _personal(board: Board) -> Chart | None:
    def gaps(line: Line) -> list[tuple[str, str, Estimates | None]]:
        swap = line.summary["swap"] or {}
        return [
            ("own", "swap gap", swap.get("gap")),
            ("none", "personalization gain", line.summary["personalization_gain"]),
        ]

    return _dots(
        board.lines,
        "Does it use the user?",
        "Swap gap: own minus another user's profile. Gain: own minus no profile. A model that ignores the user has 0.",
        gaps,
        reference=0.0,
        sign=True,
    )


def _minority(board: Board) -> Chart | None:
    def sides(line: Line) -> list[tuple[str, str, Estimates | None]]:
        return [
            ("own", "minority pairs", line.summary["minority_accuracy"]),
            ("none", "majority pairs", line.summary["majority_accuracy"]),
        ]

    return _dots(
        board.lines,
        "Minority against majority",
        "Accuracy where this user wants what most users do not, and where they agree.",
        sides,
        reference=0.5,
    )


def _categories(board: Board) -> Chart | None:
    best = next((line for line in board.lines if line.role != "ceiling"), None)
    if best is None or len(best.summary["accuracy_by_category"]) < 2:
        return None
    keys = ("own", "none", "swap")
    leaders = [line for line in board.lines if line.role != "ceiling"][: len(keys)]
    rows = [
        (
            category,
            [
                (key, line.run.name, line.summary["accuracy_by_category"].get(category))
                for key, line in zip(keys, leaders, strict=False)
            ],
        )
        for category in best.summary["accuracy_by_category"]
    ]
    return dot_chart(
        "By category",
        "Accuracy of the best models in each category.",
        rows,
        reference=0.5,
        sign=False,
    )


def _dots(
    lines: Sequence[Line],
    title: str,
    note: str,
    points_of: Callable[[Line], list[tuple[str, str, Estimates | None]]],
    *,
    reference: float,
    sign: bool = False,
) -> Chart | None:
    rows = [(line.run.name, points_of(line)) for line in lines]
    return dot_chart(title, note, rows, reference=reference, sign=sign)


def dot_chart(
    title: str,
    note: str,
    rows: Sequence[tuple[str, list[tuple[str, str, Estimates | None]]]],
    *,
    reference: float,
    unit: Unit = "percent",
    sign: bool = False,
) -> Chart | None:
    """Return labeled rows of dots, each dot (form, name, estimate) with its interval; `None` if there are none."""
    span = _span([est for _, points in rows for _, _, est in points if est is not None], reference)
    drawn = [
        {
            "label": label,
            "points": [_point(key, name, est, span, unit, sign) for key, name, est in points if est is not None],
        }
        for label, points in rows
    ]
    drawn = [row for row in drawn if row["points"]]
    if not drawn:
        return None
    legend = dict.fromkeys((key, name) for _, points in rows for key, name, est in points if est is not None)
    scale, digits = (100, 0) if unit == "percent" else (1, 1)
    return {
        "kind": "dots",
        "title": title,
        "note": note,
        "rows": drawn,
        "legend": list(legend),
        "reference": _place(reference, span),
        "ticks": [
            {"at": _place(tick, span), "text": f"{tick * scale:{'+' if sign else ''}.{digits}f}"}
            for tick in _ticks(span, reference)
        ],
    }


def _point(
    key: str, name: str, estimate: Estimates, span: tuple[float, float], unit: Unit, sign: bool
) -> dict[str, Json]:
    low, high = _place(estimate["low"], span), _place(estimate["high"], span)
    return {
        "key": key,
        "name": name,
        "at": _place(estimate["value"], span),
        "low": low,
        "width": round(high - low, 2),
        "text": _figures(estimate, unit, sign),
    }


def _figures(estimate: Estimates, unit: Unit, sign: bool) -> str:
    has_interval = estimate["low"] < estimate["high"]
    if unit == "percent":
        return percent(estimate, interval=has_interval, sign=sign)
    value, low, high = (f"{estimate[key]:{'+' if sign else ''}.2f}" for key in ("value", "low", "high"))
    return f"{value} [{low}, {high}]" if has_interval else value


def _span(estimates: Sequence[Estimates], reference: float) -> tuple[float, float]:
    """Return an axis in whole tens of points that holds every interval and the reference line."""
    low = min([reference - 0.1, *(estimate["low"] for estimate in estimates)])
    high = max([reference + 0.1, *(estimate["high"] for estimate in estimates)])
    return math.floor(10 * low + 1e-9) / 10, math.ceil(10 * high - 1e-9) / 10


def _ticks(span: tuple[float, float], reference: float) -> list[float]:
    """Return round places on an axis, the reference among them."""
    most = MOST_TICKS if span[0] >= 0 else MOST_SIGNED_TICKS
    step = next(step for step in STEPS if span[1] - span[0] <= most * step + 1e-9)
    first, last = math.ceil((span[0] - reference) / step - 1e-9), math.floor((span[1] - reference) / step + 1e-9)
    return [reference + step * count for count in range(first, last + 1)]


def _place(value: float, span: tuple[float, float]) -> float:
    share = (value - span[0]) / (span[1] - span[0])
    return round(100 * min(1.0, max(0.0, share)), 2)


def _dose(board: Board) -> Chart | None:
    """Accuracy over the number of posts that the model saw, for the best models."""
    series = []
    for line in board.lines:
        doses = line.summary["dose_response"] or []
        if line.role != "ceiling" and len(doses) > 1:
            series.append((line.run.name, [(_bucket(dose), dose["accuracy"]["value"]) for dose in doses]))
    series = series[:MOST_LINES]
    if not series:
        return None
    names = list(dict.fromkeys(name for _, points in series for name, _ in points))
    names.sort(key=lambda name: int(name.split("–")[0].rstrip("+")))
    where = {name: _spread(place, len(names)) for place, name in enumerate(names)}
    return _line_chart(
        "Dose and response",
        "Accuracy by the number of posts that the model saw.",
        [
            (name, [(where[bucket], value, f"{bucket} posts: {100 * value:.1f}") for bucket, value in points])
            for name, points in series
        ],
        x_ticks=[{"at": at, "text": name} for name, at in where.items()],
    )


def _bucket(dose: Mapping[str, Json]) -> str:
    low, high = dose["low"], dose["high"]
    if high is None:
        return f"{low}+"
    return str(low) if low == high else f"{low}–{high}"


def _spread(place: int, count: int) -> float:
    return round(LEFT + (RIGHT - LEFT) * (place + 0.5) / count, 1)


def _calibration(board: Board) -> Chart | None:
    """Stated confidence against the share that was right, out of fold."""
    series = []
    for line in board.lines:
        if line.role == "ceiling" or line.summary["calibration"] is None:
            continue
        rows = [row for row in line.run.rows if isinstance(row, Row) and row.probe is Probe.OWN]
        points = reliability(rows)
        name = f"{line.run.name} (ECE {100 * line.summary['calibration']['ece']:.1f})"
        series.append(
            (
                name,
                [
                    (_across(p.confidence), p.correct, f"says {100 * p.confidence:.0f}, is {100 * p.correct:.0f}")
                    for p in points
                ],
            )
        )
    series = series[:MOST_LINES]
    if not series:
        return None
    chart = _line_chart(
        "Calibration",
        "Share of right verdicts by stated confidence, after one temperature fitted on other users. "
        "On the dashed line, confidence can be believed.",
        series,
        x_ticks=[{"at": _across(tick), "text": f"{100 * tick:.0f}"} for tick in (0.5, 0.6, 0.7, 0.8, 0.9, 1.0)],
    )
    chart["diagonal"] = f"{_across(0.5)},{_down(0.5)} {_across(1.0)},{_down(1.0)}"
    return chart


def _line_chart(
    title: str,
    note: str,
    series: Sequence[tuple[str, list[tuple[float, float, str]]]],
    *,
    x_ticks: list[dict[str, Json]],
) -> Chart:
    lines = [
        {
            "name": name,
            "path": " ".join(f"{x},{_down(value)}" for x, value, _ in points),
            "points": [{"x": x, "y": _down(value), "text": text} for x, value, text in points],
        }
        for name, points in series
    ]
    ticks = [{"at": _down(tick), "text": f"{100 * tick:.0f}"} for tick in (0.0, 0.25, 0.5, 0.75, 1.0)]
    return {
        "kind": "lines",
        "title": title,
        "note": note,
        "lines": lines,
        "y_ticks": ticks,
        "x_ticks": x_ticks,
        "diagonal": "",
    }


def _across(confidence: float) -> float:
    return round(LEFT + (RIGHT - LEFT) * (confidence - 0.5) / 0.5, 1)


def _down(value: float) -> float:
    return round(BOTTOM - (BOTTOM - TOP) * value, 1)
