"""Plots as plain SVG files that read well on light and dark pages."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from prbench.runs.files import write_text

WIDTH, ROW, LEFT, RIGHT = 720, 26, 250, 170
COLORS = ("#2563eb", "#d97706", "#059669", "#db2777", "#7c3aed", "#475569", "#0891b2", "#b45309")
STYLE = "font-family:system-ui,sans-serif;font-size:13px;fill:#64748b"
MOST_TICKS = 5
Estimate = Mapping[str, float]  # value, low, high
Series = tuple[str, Sequence[Estimate]]  # a name, and one estimate for every place


@dataclass(frozen=True)
class Axis:
    """What values an axis spans, and where it is labeled."""

    low: float
    high: float
    ticks: Sequence[tuple[float, str]]

    def place(self, value: float) -> float:
        """Return where a value lies between the ends, 0 to 1."""
        return (value - self.low) / (self.high - self.low)


@dataclass(frozen=True)
class Panel:
    """One drawing of a figure, ready to be put below others."""

    parts: Sequence[str]
    height: int


def percent_axis(low: float = 0.0) -> Axis:
    """Return an axis for shares from `low` to 1, labeled in percent."""
    ticks = [tick / 10 for tick in range(11) if tick / 10 >= low - 1e-9]
    return Axis(low, 1.0, [(tick, f"{100 * tick:.0f}") for tick in ticks])


def plain_axis(largest: float) -> Axis:
    """Return an axis from 0 to a round number that holds the largest value."""
    return round_axis(0.0, largest)


def round_axis(low: float, high: float) -> Axis:
    """Return an axis between round numbers that holds both values; of one value, from 0 to it."""
    if low == high:
        low, high = min(low, 0.0), max(high, 0.0)
    if low == high:
        return Axis(0.0, 1.0, [(0.0, "0"), (1.0, "1")])
    size = 10.0 ** math.floor(math.log10((high - low) / MOST_TICKS))
    step = next(step * size for step in (1, 2, 5, 10) if high - low <= MOST_TICKS * step * size * (1 + 1e-9))
    counts = range(math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9) + 1)
    return Axis(counts[0] * step, counts[-1] * step, [(count * step, _short(count * step)) for count in counts])


def point(value: float) -> Estimate:
    """Return a value without an interval."""
    return {"value": value, "low": value, "high": value}


def dot_plot(path: Path, title: str, rows: Sequence[tuple[str, Estimate]], *, low: float = 0.0) -> None:
    """Draw one dot with its interval per row, on an axis from `low` to 1, with a line at one half."""
    axis = percent_axis(low)

    def across(share: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * axis.place(share)

    parts = []
    bottom = 40 + ROW * len(rows)
    for tick, label in axis.ticks:
        dashes = "" if tick == 0.5 else ' stroke-dasharray="2 4"'
        parts.append(_line(across(tick), 34, across(tick), bottom, "#94a3b8", dashes))
        parts.append(_text(across(tick), bottom + 18, label, "middle"))
    for index, (name, one) in enumerate(rows):
        y = 50 + ROW * index
        parts.append(_text(LEFT - 12, y + 4, name, "end"))
        parts.append(_line(across(one["low"]), y, across(one["high"]), y, COLORS[0], ' stroke-width="3"'))
        parts.append(f'<circle cx="{across(one["value"]):.1f}" cy="{y}" r="5" fill="{COLORS[0]}"/>')
        figures = " ".join(f"{100 * one[key]:.1f}" for key in ("value", "low", "high"))
        value, least, most = figures.split()
        parts.append(_text(WIDTH - RIGHT + 16, y + 4, f"{value} [{least}, {most}]"))
    _write(path, title, parts, bottom + 30)


def line_plot(
    path: Path, title: str, ticks: Sequence[str], series: Sequence[Series], *, axis: Axis, height: float = 300.0
) -> None:
    """Draw one line per series over named places, with intervals."""
    panel = line_panel("", ticks, series, axis=axis, bottom=height)
    _write(path, title, panel.parts, panel.height)


def line_panel(
    title: str, ticks: Sequence[str], series: Sequence[Series], *, axis: Axis, bottom: float = 190.0
) -> Panel:
    """Return one line per series over named places, with intervals, as a part of a figure.

    Series without a name are not in the legend; where none has one, the lines take its room.
    """
    top, left, right = 40.0, 60.0, WIDTH - (210.0 if any(name for name, _ in series) else 20.0)

    def down(value: float) -> float:
        return bottom - (bottom - top) * axis.place(value)

    def across(place: int, shift: int) -> float:
        return left + (right - left) * (place + 0.5) / len(ticks) + 6 * (shift - (len(series) - 1) / 2)

    parts = [_text(8, 20, title)] if title else []
    parts += [
        _line(left, down(tick), right, down(tick), "#94a3b8", ' stroke-dasharray="2 4"') for tick, _ in axis.ticks
    ]
    parts += [_text(left - 10, down(tick) + 4, label, "end") for tick, label in axis.ticks]
    for place, name in enumerate(ticks):
        parts.append(_text(left + (right - left) * (place + 0.5) / len(ticks), bottom + 20, name, "middle"))
    for index, (name, points) in enumerate(series):
        color = COLORS[index % len(COLORS)]
        spots = [(across(place, index), one) for place, one in enumerate(points)]
        path_points = " ".join(f"{x:.1f},{down(one['value']):.1f}" for x, one in spots)
        parts.append(f'<polyline points="{path_points}" fill="none" stroke="{color}" stroke-width="2"/>')
        for x, one in spots:
            parts.append(_line(x, down(one["low"]), x, down(one["high"]), color, ""))
            parts.append(f'<circle cx="{x:.1f}" cy="{down(one["value"]):.1f}" r="4" fill="{color}"/>')
        if name:
            parts.append(f'<circle cx="{right + 20}" cy="{top + 22 * index}" r="5" fill="{color}"/>')
            parts.append(_text(right + 32, top + 22 * index + 4, name))
    return Panel(parts, int(bottom) + 36)


def text_panel(text: str) -> Panel:
    """Return a line of text as a part of a figure, for what needs no drawing."""
    return Panel([_text(8, 20, text)], 36)


def write_figure(path: Path, title: str, panels: Sequence[Panel]) -> None:
    """Draw the panels below each other."""
    parts, height = [], 30
    for panel in panels:
        parts += [f'<g transform="translate(0 {height})">', *panel.parts, "</g>"]
        height += panel.height
    _write(path, title, parts, height)


def _short(value: float) -> str:
    """Write a tick: 0.5, 20, 20k, 2M."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:g}{letter}"
    return f"{value:g}"


def _line(x1: float, y1: float, x2: float, y2: float, color: str, more: str) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{color}"{more}/>'


def _text(x: float, y: float, text: str, anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" style="{STYLE}">{escape(text)}</text>'


def _write(path: Path, title: str, parts: Sequence[str], height: int) -> None:
    heading = f'<text x="8" y="20" style="{STYLE};font-weight:600">{escape(title)}</text>'
    size = f'viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}"'
    body = "\n".join([f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">', heading, *parts, "</svg>"])
    write_text(path, body + "\n")
