"""The charts of all pages and docs, as SVG: rows of dots with intervals, and curves or clouds of points on two axes.

A page shows each chart in two widths, one of them for phones, and offers it as a file, with its numbers as CSV.
Nothing is drawn over something else: dots of one row have a lane each, and dots at one place stand side by side.
"""

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from unicodedata import east_asian_width

from markupsafe import Markup, escape

from prbench.metrics.number_format import PERCENT, NumberFormat, parts_of
from prbench.runs.files import write_text
from prbench.schema import Estimate, Json

WIDE, NARROW = 600, 332  # of the drawings, in pixels
_NOT_IN_XML = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
PHONE = 480  # below this width, labels stand above their rows
STYLES = 8  # colors and forms of dots, in chart.css
SIZE, SMALL = 13.0, 11.5  # of letters
LANE, LINE, GAP = 15.0, 16.0, 10.0
Point = tuple[float, float]
Cells = tuple[tuple[str, ...], list[list[Json]]]


@dataclass(frozen=True)
class Axis:
    """What values an axis spans, and where it is labeled."""

    low: float
    high: float
    ticks: Sequence[tuple[float, str]]
    is_log: bool = False

    def place(self, value: float) -> float:
        """Return where a value lies between the ends, 0 to 1."""
        low, high, at = map(math.log2, (self.low, self.high, value)) if self.is_log else (self.low, self.high, value)
        return (at - low) / (high - low) if high > low else 0.5


def round_axis(
    low: float,
    high: float,
    *,
    scale: float = 1.0,
    sign: bool = False,
    most: int = 5,
    steps: Sequence[float] = (1, 2, 5, 10),
) -> Axis:
    """Return an axis between round numbers that holds both values; of one value, from 0 to it."""
    if low == high:
        low, high = min(low, 0.0), max(high, 0.0)
    if low == high:
        return Axis(0.0, 1.0, [(0.0, "0"), (1.0, f"{scale:g}")])
    # A step is a power of ten times one of `steps`; without the specks, rounding could add a tick at an end.
    size = 10.0 ** math.floor(math.log10((high - low) / most))
    step = next(step * size for step in steps if high - low <= most * step * size * (1 + 1e-9))
    counts = range(math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9) + 1)
    ticks = [(round(count * step, 12), _short(round(count * step * scale, 12), sign=sign)) for count in counts]
    return Axis(counts[0] * step, counts[-1] * step, ticks)


def _short(value: float, *, sign: bool) -> str:
    """Write a tick: 0.5, 20, 20k, 2M."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:g}{letter}"
    return f"{value:+g}" if sign and value else f"{value:g}"


def named_axis(names: Sequence[str]) -> Axis:
    """Return an axis with names at 0, 1, 2, … in place of numbers."""
    return Axis(-0.5, len(names) - 0.5, list(enumerate(names)))


@dataclass(frozen=True, kw_only=True)
class Mark:
    """One value of a chart, with its interval, and how many items are behind it."""

    value: float
    low: float
    high: float
    n: int | None = None
    series: str = ""  # in rows of dots: what the legend calls it
    style: int = 0
    x: float = 0.0  # on two axes: where it stands, and the interval of that
    x_ends: Point | None = None
    name: str = ""  # on two axes: what it is, e.g. a model, or `8 posts`

    @property
    def has_interval(self) -> bool:
        """True unless the ends of the interval are the value itself."""
        return self.low < self.high


def point(value: float) -> dict[str, Json]:
    """Return a value without an interval."""
    return {"value": value, "low": value, "high": value}


def mark_of(figure: Estimate | Mapping[str, Json] | None, series: str = "", style: int = 0) -> list[Mark]:
    """Return a figure as a mark, or none where it does not apply."""
    if figure is None:
        return []
    value, low, high = parts_of(figure)
    n = figure.get("n") if isinstance(figure, Mapping) else figure.n
    return [Mark(value=value, low=low, high=high, n=n, series=series, style=style)]


@dataclass(frozen=True, kw_only=True)
class Drawing:
    """Parts of an SVG file, below which others can be put."""

    parts: Sequence[str]
    height: float


@dataclass(frozen=True, kw_only=True)
class DotChart:
    """Labeled rows of dots, each with its interval and its number beside it."""

    title: str
    note: str
    rows: Sequence[tuple[str, Sequence[Mark]]]
    reference: float | None = None
    form: NumberFormat = PERCENT
    ends: Point | None = None  # what the axis holds in any case

    @property
    def alt(self) -> str:
        """What the chart shows, in words."""
        rows = [f"{label}: {', '.join(_words(mark, self.form) for mark in marks)}" for label, marks in self.rows]
        return f"{self.title}. {'; '.join(rows)}."

    def numbers(self) -> Cells:
        """Return the numbers behind the chart as a table."""
        rows = [[label, m.series, m.value, m.low, m.high, m.n] for label, marks in self.rows for m in marks]
        return ("row", "series", "value", "low", "high", "n"), rows

    def draw(self, width: float) -> Drawing:
        """Draw the chart so wide."""
        marks = [mark for _, row in self.rows for mark in row]
        if not marks:
            return Drawing(parts=[], height=0.0)
        legend = dict.fromkeys((mark.series, mark.style) for mark in marks)
        parts, top = _legend(legend if len(legend) > 1 else (), width)
        counts = [f"n {mark.n:,}" if mark.n is not None else "" for mark in marks]
        count_width = max(map(_width, counts)) + GAP if len({mark.n for mark in marks}) > 1 else 0.0
        right = width - count_width - max(_width(_figure(mark, self.form)) for mark in marks) - GAP
        is_phone = width < PHONE
        label_width = width if is_phone else min(0.36 * width, max(_width(label, SIZE) for label, _ in self.rows) + 4)
        left = 6.0 if is_phone else label_width + GAP
        known = [end for mark in marks for end in (mark.low, mark.high, mark.value)]
        known += [*(self.ends or ()), *([] if self.reference is None else [self.reference])]
        axis = round_axis(
            min(known),
            max(known),
            scale=self.form.scale,
            sign=self.form.sign,
            most=4 if is_phone else 6,
            steps=(1, 2.5, 5, 10) if self.reference else (1, 2, 5, 10),  # so that one half has a label
        )

        left = max(left, _width(axis.ticks[0][1]) / 2)

        def across(value: float) -> float:
            return left + (right - left) * axis.place(value)

        y = top
        for label, row in self.rows:
            lines = _wrapped(label, label_width, SIZE)
            above = LINE * len(lines) if is_phone else 0.0
            height = max(LANE * len(row), 0.0 if is_phone else LINE * len(lines))
            start = y + above
            ends = (start + 2 if is_phone else start - 2, start + height + 8)  # of the lines behind the dots
            behind = [(at, "grid") for at, _ in axis.ticks]
            behind += [] if self.reference is None else [(self.reference, "ref")]
            parts += [_line(across(at), ends[0], across(at), ends[1], style) for at, style in behind]
            first = y + 11 if is_phone else y + 3 + height / 2 - LINE * (len(lines) - 1) / 2 + 4
            parts += [_text(0, first + LINE * place, line) for place, line in enumerate(lines)]
            lane = start + 3 + (height - LANE * (len(row) - 1)) / 2
            for mark in row:
                drawn = [
                    *([_line(across(mark.low), lane, across(mark.high), lane, "bar")] if mark.has_interval else []),
                    _shape(mark.style, across(mark.value), lane),
                ]
                parts.append(_group(mark.style, f"{label}: {_words(mark, self.form)}", drawn))
                parts.append(_text(width - count_width, lane + 4, _figure(mark, self.form), "end", "small num"))
                if count_width and mark.n is not None:
                    parts.append(_text(width, lane + 4, f"n {mark.n:,}", "end", "small quiet num"))
                lane += LANE
            y = start + height + (1.6 * GAP if is_phone else GAP)
        ticks = _fitting([(across(at), text) for at, text in axis.ticks])
        parts += [_text(at, y + 12, text, "middle", "small quiet num") for at, text in ticks]
        return Drawing(parts=parts, height=y + 18)


@dataclass(frozen=True, kw_only=True)
class Series:
    """One line of a chart: its marks, and the curve if it does not simply lead from one to the next."""

    name: str
    marks: Sequence[Mark]
    style: int = 0
    curve: Sequence[Point] | None = None
    has_band: bool = False  # intervals are drawn as a band
    is_dashed: bool = False


@dataclass(frozen=True, kw_only=True)
class LineChart:
    """Lines over two axes, or a cloud of points without lines."""

    title: str
    note: str
    series: Sequence[Series]
    x: Axis
    y: Axis
    x_name: str = ""
    y_name: str = ""
    form: NumberFormat = field(default=NumberFormat(3))
    has_lines: bool = True
    has_names: bool = False  # dots have their names beside them, where there is room
    diagonal: bool = False  # a dashed line from corner to corner
    alt_text: str = ""

    @property
    def alt(self) -> str:
        """What the chart shows, in words."""
        if self.alt_text:
            return f"{self.title}. {self.alt_text}"
        described = (
            f"{each.name}: {', '.join(_words(mark, self.form) for mark in each.marks)}" for each in self.series
        )
        return f"{self.title}. {'; '.join(described)}."

    def numbers(self) -> Cells:
        """Return the numbers behind the chart as a table."""
        rows: list[list[Json]] = [
            [each.name, mark.name, mark.x, mark.value, mark.low, mark.high, mark.n]
            for each in self.series
            for mark in each.marks
        ]
        return ("series", "point", self.x_name or "x", self.y_name or "value", "low", "high", "n"), rows

    def draw(self, width: float) -> Drawing:
        """Draw the chart so wide."""
        left = max(_width(text) for _, text in self.y.ticks) + GAP
        right, top = width - 14.0, (LINE + 6 if self.y_name else 8.0)
        bottom = top + (230.0 if width < PHONE else 270.0)
        aside = 8 + min(20.0, 4.0 * (len(self.series) - 1))  # room for dots that stand side by side at an end

        def at(x: float, y: float) -> Point:
            return left + aside + (right - left - 2 * aside + 8) * self.x.place(x), bottom - (
                bottom - top
            ) * self.y.place(y)

        parts = [_text(0, 11, self.y_name, style="small quiet")] if self.y_name else []
        for tick, text in self.y.ticks:
            _, y = at(self.x.low, tick)
            parts += [_line(left, y, right + 6, y, "grid"), _text(left - 6, y + 4, text, "end", "small quiet num")]
        ticks = [(at(tick, self.y.low)[0], text) for tick, text in self.x.ticks]
        if not self.has_lines:
            parts += [_line(x, top, x, bottom, "grid") for x, _ in ticks]
        parts += [_text(x, bottom + 17, text, "middle", "small quiet num") for x, text in _fitting(ticks, end=width)]
        below = bottom + 24
        if self.x_name:
            parts.append(_text((left + right) / 2, bottom + 36, self.x_name, "middle", "small quiet"))
            below += LINE + 2
        if self.diagonal:
            (x1, y1), (x2, y2) = at(self.x.low, self.x.low), at(self.x.high, self.x.high)
            parts.append(_line(x1, y1, x2, y2, "ref dashed"))
        parts += self._draw_series(at)
        named = [(each.name, each.style) for each in self.series if each.name and each.name != self.title]
        needs_legend = len(self.series) > 1 or any(name for name, _ in named)
        legend, height = _legend(named if needs_legend else (), width, below + 6)
        return Drawing(parts=[*parts, *legend], height=height if named and needs_legend else below)

    def _draw_series(self, at: Callable[[float, float], Point]) -> Iterator[str]:
        marks = [(each, mark) for each in self.series for mark in each.marks]
        spots = _side_by_side(
            [at(mark.x, mark.value) for _, mark in marks],
            by_column=self.has_lines and any(mark.has_interval and not each.has_band for each, mark in marks),
        )
        spot_of = {id(mark): spot for (_, mark), spot in zip(marks, spots, strict=True)}
        for each in self.series:
            if each.has_band:
                band = [at(mark.x, mark.high) for mark in each.marks] + [
                    at(mark.x, mark.low) for mark in reversed(each.marks)
                ]
                yield _group(each.style, "", [f'<polygon class="band" points="{_points(band)}"/>'])
        for each in self.series:
            if self.has_lines:
                path = [at(*point) for point in each.curve] if each.curve else [spot_of[id(m)] for m in each.marks]
                dashed = " dashed" if each.is_dashed else ""
                yield _group(each.style, "", [f'<polyline class="line{dashed}" points="{_points(path)}"/>'])
        for each, mark in marks:
            x, y = spot_of[id(mark)]
            drawn = []
            if mark.has_interval and not each.has_band:
                drawn.append(_line(x, at(mark.x, mark.low)[1], x, at(mark.x, mark.high)[1], "whisker"))
            if mark.x_ends:
                drawn.append(_line(at(mark.x_ends[0], 0)[0], y, at(mark.x_ends[1], 0)[0], y, "whisker"))
            drawn.append(_shape(each.style, x, y))
            yield _group(
                each.style,
                f"{each.name}: {_words(mark, self.form)}" if each.name else _words(mark, self.form),
                drawn,
            )
        if self.has_names:
            yield from _names(
                [mark.name for _, mark in marks], spots, at(self.x.low, self.y.low), at(self.x.high, self.y.high)
            )


Chart = DotChart | LineChart
Figures = Sequence[Estimate | Mapping[str, Json]]


def line_chart(
    title: str,
    names: Sequence[str],
    series: Sequence[tuple[str, Figures]],
    *,
    y: Axis,
    note: str = "",
    x_name: str = "",
) -> LineChart:
    """Return a line per series over named places, with intervals."""
    drawn = [
        Series(
            name=name,
            style=style,
            marks=[
                replace(mark, x=place, name=names[place])
                for place, figure in enumerate(figures)
                for mark in mark_of(figure)
            ],
        )
        for style, (name, figures) in enumerate(series)
    ]
    return LineChart(title=title, note=note, series=drawn, x=named_axis(names), y=y, x_name=x_name)


def svg(chart: Chart, width: float) -> Markup:
    """Return a chart as a part of a page, whose style draws it."""
    drawing = chart.draw(width)
    size = f'viewBox="0 0 {width:g} {drawing.height:g}" width="{width:g}" height="{drawing.height:g}"'
    return Markup(
        f'<svg class="chart" {size} role="img" aria-label="{_escape(chart.alt)}">{"".join(drawing.parts)}</svg>'
    )


def svg_file(title: str, charts: Sequence[Chart], notes: Sequence[str] = ()) -> str:
    """Return charts below each other as an SVG file of its own, in the light colors."""
    parts, y, pad = [_text(0, 14, title, style="title")], 26.0, 16
    for chart in charts:
        if len(charts) > 1:
            parts.append(_text(0, y + 14, chart.title, style="title"))
            y += 22
        lines = _wrapped(chart.note, WIDE, SMALL) if chart.note else []
        parts += [_text(0, y + 10 + LINE * place, line, style="small quiet") for place, line in enumerate(lines)]
        y += LINE * len(lines) + 8
        drawing = chart.draw(WIDE)
        parts += [f'<g transform="translate(0 {y:g})">', *drawing.parts, "</g>"]
        y += drawing.height + (26 if len(charts) > 1 else 0)
    for note in notes:
        parts.append(_text(0, y + 10, note, style="small quiet"))
        y += LINE
    width, height = WIDE + 2 * pad, y + 2 * pad
    size = f'viewBox="{-pad} {-pad} {width:g} {height:g}" width="{width:g}" height="{height:g}"'
    alt = _escape(charts[0].alt if len(charts) == 1 else ". ".join([title, *(chart.alt for chart in charts)]))
    head = f'<svg xmlns="http://www.w3.org/2000/svg" class="chart" {size} role="img" aria-label="{alt}">'
    # The colors are put in, for programs that know no variables.
    colors = dict(re.findall(r"--([a-z0-9-]+):\s*([^;]+);", asset("tokens.css").partition("@media")[0]))
    style = re.sub(r"var\(--([a-z0-9-]+)\)", lambda found: str(colors[found[1]]), asset("chart.css"))
    paper = f'<rect class="paper" x="{-pad}" y="{-pad}" width="{width:g}" height="{height:g}"/>'
    return "\n".join([head, f"<style>{style}</style>", paper, *parts, "</svg>\n"])


def write_svg(path: Path, title: str, charts: Sequence[Chart], notes: Sequence[str] = ()) -> None:
    """Write charts below each other as an SVG file."""
    write_text(path, svg_file(title, charts, notes))


@cache
def asset(name: str) -> str:
    """Return a style or script of the pages; the colors are those of the annotation pages, which ship them."""
    folder = ("prbench.people.annotate", "static") if name == "tokens.css" else ("prbench.pages", "templates")
    return files(folder[0]).joinpath(folder[1], name).read_text(encoding="utf-8")


def _figure(mark: Mark, form: NumberFormat) -> str:
    return form.of(mark.value, mark.low, mark.high) if mark.has_interval else form.number(mark.value)


def _words(mark: Mark, form: NumberFormat) -> str:
    """Return a mark in words: what it is, its value with its interval, and its n."""
    name = mark.series or (f"{mark.name}:" if mark.name else "")
    return f"{name} {_figure(mark, form)}{'' if mark.n is None else f', n = {mark.n}'}".strip()


def _legend(
    names: Sequence[tuple[str, int]] | Mapping[tuple[str, int], None], width: float, y: float = 0.0
) -> tuple[list[str], float]:
    """Return the legend from `y` on, as many names in a line as fit, and where it ends."""
    parts: list[str] = []
    x = 0.0
    for name, style in names:
        lines = _wrapped(name, width - 18, SMALL)
        wide = 18 + max(_width(line) for line in lines) + 16
        if x and x + wide - 16 > width:
            x, y = 0.0, y + LINE
        parts.append(_group(style, "", [_shape(style, x + 6, y + 6)]))
        parts += [_text(x + 18, y + 10 + LINE * place, line, style="small") for place, line in enumerate(lines)]
        y += LINE * (len(lines) - 1)
        x += wide
    return parts, y + LINE + 8 if names else y


def _side_by_side(spots: Sequence[Point], *, by_column: bool) -> list[Point]:
    """Return the places with those apart that would lie on each other; by column, all that share one across."""
    clusters: list[list[int]] = []
    for place, (x, y) in enumerate(spots):
        for cluster in clusters:
            other_x, other_y = spots[cluster[0]]
            if abs(x - other_x) < 4 and (by_column or abs(y - other_y) < 5):
                cluster.append(place)
                break
        else:
            clusters.append([place])
    moved = list(spots)
    for cluster in clusters:
        step = min(8.0, 44.0 / len(cluster))
        for rank, place in enumerate(cluster):
            x, y = spots[place]
            moved[place] = (x + step * (rank - (len(cluster) - 1) / 2), y)
    return moved


def _names(names: Sequence[str], spots: Sequence[Point], start_at: Point, end_at: Point) -> Iterator[str]:
    """Yield the names of the dots that have room for one; every dot has its name in its tooltip as well."""
    (left, bottom), (right, top) = start_at, end_at
    taken = [(x - 6, y - 6, x + 6, y + 6) for x, y in spots]
    for name, (x, y) in zip(names, spots, strict=True):
        short = name.rpartition("/")[2]
        wide = _width(short)
        for start, line in ((x + side, y + shift) for shift in (4, -9, 17) for side in (9, -9 - wide)):
            box = (start, line - 10, start + wide, line + 3)
            hits = any(box[0] < o[2] and o[0] < box[2] and box[1] < o[3] and o[1] < box[3] for o in taken)
            if left <= start and start + wide <= right and top <= box[1] and box[3] <= bottom and not hits:
                taken.append(box)
                yield _text(start, line, short, style="small halo")
                break


def _fitting(ticks: Sequence[tuple[float, str]], *, end: float = math.inf) -> list[tuple[float, str]]:
    """Return the labels that do not touch each other, the first among them."""
    kept: list[tuple[float, str]] = []
    for at, text in ticks:
        half = _width(text) / 2
        if (not kept or at - half > kept[-1][0] + _width(kept[-1][1]) / 2 + 6) and at + half <= end:
            kept.append((at, text))
    return kept


def _width(text: str, size: float = SMALL) -> float:
    """Return about how wide a text is, rather too much: nobody knows the font that will be there."""
    return size * sum(
        1.0 if east_asian_width(c) in "WF" else 0.4 if c in " .,:;|!'()[]ijlIt/" else 0.9 if c in "mwMW@%" else 0.64
        for c in text
    )


def _wrapped(text: str, width: float, size: float) -> list[str]:
    """Return a text in lines that are not wider, broken where names have joints, or anywhere."""
    lines, line, joint = [], "", 0
    for character in text:
        line += character
        if _width(line, size) > width and len(line) > 1:
            cut = joint or len(line) - 1
            lines.append(line[:cut].rstrip())
            line, joint = line[cut:].lstrip(), 0
        if character in " /:?=_-,&·;":
            joint = len(line)
    return [*lines, line] if line or not lines else lines


def _shape(style: int, x: float, y: float) -> str:
    """Return a dot: the form tells series apart for those who see no colors."""
    forms = (
        "M-4.5 0a4.5 4.5 0 1 0 9 0a4.5 4.5 0 1 0-9 0z",
        "M-4-4h8v8h-8z",
        "M0-5.6L5.6 0L0 5.6L-5.6 0z",
        "M0-5.2L5.2 4.2H-5.2z",
    )
    hollow = " hollow" if style % STYLES >= len(forms) else ""
    return f'<path class="dot{hollow}" transform="translate({x:.1f} {y:.1f})" d="{forms[style % len(forms)]}"/>'


def _group(style: int, title: str, parts: Sequence[str]) -> str:
    told = f"<title>{_escape(title)}</title>" if title else ""
    return f'<g class="s{style % STYLES}">{told}{"".join(parts)}</g>'


def _line(x1: float, y1: float, x2: float, y2: float, style: str) -> str:
    return f'<line class="{style}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def _points(points: Sequence[Point]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in points)


def _escape(text: str) -> Markup:
    """Return a text for an SVG file; what XML does not allow in one is shown as unknown."""
    return escape(_NOT_IN_XML.sub("\ufffd", text))


def _text(x: float, y: float, text: str, anchor: str = "start", style: str = "") -> str:
    more = (f' text-anchor="{anchor}"' if anchor != "start" else "") + (f' class="{style}"' if style else "")
    return f'<text x="{x:.1f}" y="{y:.1f}"{more}>{_escape(text)}</text>'
