"""Two plots for the documentation, as plain SVG files that read well on light and dark pages."""

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path

WIDTH, ROW, LEFT, RIGHT = 720, 26, 250, 170
COLOURS = ("#2563eb", "#d97706", "#059669", "#db2777", "#7c3aed", "#475569", "#0891b2", "#b45309")
STYLE = "font-family:system-ui,sans-serif;font-size:13px;fill:#64748b"
Estimate = Mapping[str, float]  # value, low, high: shares


def dot_plot(path: Path, title: str, rows: Sequence[tuple[str, Estimate]], *, low: float = 0.0) -> None:
    """Draw one dot with its interval per row, on an axis from `low` to 1, with a line at one half."""

    def across(share: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * (share - low) / (1 - low)

    parts = []
    bottom = 40 + ROW * len(rows)
    for tick in _ticks(low):
        dashes = "" if tick == 0.5 else ' stroke-dasharray="2 4"'
        parts.append(_line(across(tick), 34, across(tick), bottom, "#94a3b8", dashes))
        parts.append(_text(across(tick), bottom + 18, f"{100 * tick:.0f}", "middle"))
    for index, (name, one) in enumerate(rows):
        y = 50 + ROW * index
        parts.append(_text(LEFT - 12, y + 4, name, "end"))
        parts.append(_line(across(one["low"]), y, across(one["high"]), y, COLOURS[0], ' stroke-width="3"'))
        parts.append(f'<circle cx="{across(one["value"]):.1f}" cy="{y}" r="5" fill="{COLOURS[0]}"/>')
        figures = " ".join(f"{100 * one[key]:.1f}" for key in ("value", "low", "high"))
        value, least, most = figures.split()
        parts.append(_text(WIDTH - RIGHT + 16, y + 4, f"{value} [{least}, {most}]"))
    _write(path, title, parts, bottom + 30)


def line_plot(
    path: Path, title: str, ticks: Sequence[str], series: Sequence[tuple[str, Sequence[Estimate]]], *, low: float = 0.0
) -> None:
    """Draw one line per series over named places, with intervals, on an axis from `low` to 1."""
    top, bottom, left, right = 40.0, 300.0, 60.0, WIDTH - 210.0

    def down(share: float) -> float:
        return bottom - (bottom - top) * (share - low) / (1 - low)

    def across(place: int, shift: int) -> float:
        return left + (right - left) * (place + 0.5) / len(ticks) + 6 * (shift - (len(series) - 1) / 2)

    parts = [_line(left, down(tick), right, down(tick), "#94a3b8", ' stroke-dasharray="2 4"') for tick in _ticks(low)]
    parts += [_text(left - 10, down(tick) + 4, f"{100 * tick:.0f}", "end") for tick in _ticks(low)]
    for place, name in enumerate(ticks):
        parts.append(_text(left + (right - left) * (place + 0.5) / len(ticks), bottom + 20, name, "middle"))
    for index, (name, points) in enumerate(series):
        colour = COLOURS[index % len(COLOURS)]
        spots = [(across(place, index), one) for place, one in enumerate(points)]
        path_points = " ".join(f"{x:.1f},{down(one['value']):.1f}" for x, one in spots)
        parts.append(f'<polyline points="{path_points}" fill="none" stroke="{colour}" stroke-width="2"/>')
        for x, one in spots:
            parts.append(_line(x, down(one["low"]), x, down(one["high"]), colour, ""))
            parts.append(f'<circle cx="{x:.1f}" cy="{down(one["value"]):.1f}" r="4" fill="{colour}"/>')
        parts.append(f'<circle cx="{right + 20}" cy="{top + 22 * index}" r="5" fill="{colour}"/>')
        parts.append(_text(right + 32, top + 22 * index + 4, name))
    _write(path, title, parts, int(bottom) + 36)


def _ticks(low: float) -> list[float]:
    return [tick / 10 for tick in range(11) if tick / 10 >= low - 1e-9]


def _line(x1: float, y1: float, x2: float, y2: float, colour: str, more: str) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}"{more}/>'


def _text(x: float, y: float, text: str, anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" style="{STYLE}">{escape(text)}</text>'


def _write(path: Path, title: str, parts: Sequence[str], height: int) -> None:
    heading = f'<text x="8" y="20" style="{STYLE};font-weight:600">{escape(title)}</text>'
    size = f'viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}"'
    body = "\n".join([f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">', heading, *parts, "</svg>"])
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(body + "\n", encoding="utf-8")
