"""Charts: axes with round labels, points where the axis says, nothing over something else, and numbers to save."""

import csv
import re
import xml.etree.ElementTree as ElementTree
from io import StringIO
from itertools import pairwise
from pathlib import Path

import pytest

from prbench.metrics.number_format import PERCENT, POINTS, NumberFormat, p_text
from prbench.pages.charts import (
    NARROW,
    WIDE,
    Axis,
    DotChart,
    LineChart,
    Mark,
    Series,
    line_chart,
    mark_of,
    point,
    round_axis,
    svg,
    svg_file,
    write_svg,
)
from prbench.pages.shell import csv_text

SVG = "{http://www.w3.org/2000/svg}"
PLACE = re.compile(r"translate\((\S+) (\S+)\)")


def places(chart: DotChart | LineChart, width: float = WIDE) -> list[tuple[float, float]]:
    """Where the dots of a drawing lie, those of the legend among them."""
    drawing = ElementTree.fromstring(str(svg(chart, width)))
    dots = [each for each in drawing.iter("path") if "dot" in each.attrib["class"]]
    found = (PLACE.match(dot.attrib["transform"]) for dot in dots)
    return [(float(each[1]), float(each[2])) for each in found if each]


def texts(chart: DotChart | LineChart, width: float = WIDE) -> list[str]:
    return [each.text or "" for each in ElementTree.fromstring(str(svg(chart, width))).iter("text")]


@pytest.mark.parametrize(
    "low,high,labels",
    [
        (0, 8.9, ["0", "2", "4", "6", "8", "10"]),
        (0, 0.3, ["0", "0.1", "0.2", "0.3"]),
        (0, 23_456, ["0", "5k", "10k", "15k", "20k", "25k"]),
        (0, 2_000_000, ["0", "500k", "1M", "1.5M", "2M"]),
        (0, 0, ["0", "1"]),
        (6.3897, 6.4019, ["6.385", "6.39", "6.395", "6.4", "6.405"]),
        (-1.8, 1.2, ["-2", "-1", "0", "1", "2"]),
        (-0.3, -0.3, ["-0.3", "-0.2", "-0.1", "0"]),
    ],
)
def test_an_axis_has_at_most_six_round_labels_and_holds_both_values(
    low: float, high: float, labels: list[str]
) -> None:
    axis = round_axis(low, high)
    assert [label for _, label in axis.ticks] == labels
    assert axis.low <= low + 1e-9
    assert axis.high >= high


def test_an_axis_of_shares_is_labeled_in_percent() -> None:
    axis = round_axis(0.5, 1.0, scale=100.0)
    assert [label for _, label in axis.ticks] == ["50", "60", "70", "80", "90", "100"]
    assert axis.place(0.75) == 0.5


def test_a_figure_is_written_in_one_way() -> None:
    estimate = {"value": 0.1234, "low": -0.5, "high": 1.0}
    assert PERCENT.estimate(estimate) == "12.3 [-50.0, 100.0]"
    assert POINTS.value(estimate) == "+12.3"
    assert POINTS.starred({"value": 0.1, "low": 0.05, "high": 0.2}) == "+10.0*"
    assert POINTS.starred(estimate) == "+12.3 "
    assert NumberFormat(3).estimate(estimate) == "0.123 [-0.500, 1.000]"
    assert NumberFormat(2).number(-0.001) == "0.00"
    assert NumberFormat(2).of(0.5, None, None) == "0.50"
    assert PERCENT.estimate(None) == PERCENT.value(None) == PERCENT.number(float("nan")) == "–"
    assert (p_text(0.0001), p_text(0.02), p_text(0.02, equals=True), p_text(None)) == (
        "< 0.001",
        "0.020",
        "= 0.020",
        "–",
    )


def test_points_lie_where_the_axes_say() -> None:
    chart = line_chart("t", ["2", "4"], [("t", [point(0), point(5)])], y=Axis(0.0, 10.0, [(0.0, "0"), (10.0, "10")]))
    (x1, y1), (x2, y2) = places(chart)
    (line,) = ElementTree.fromstring(str(svg(chart, WIDE))).iter("polyline")
    assert line.attrib["points"] == f"{x1},{y1} {x2},{y2}"
    assert x1 < x2
    assert y1 - y2 == 135.0  # half of the 270 that the drawing is high


def test_marks_at_the_same_place_stand_side_by_side() -> None:
    same = [Series(name=name, style=0, marks=[Mark(value=1, low=1, high=1, x=1, name="m")]) for name in "abc"]
    axis = Axis(0.0, 2.0, [(0.0, "0"), (2.0, "2")])
    spots = places(LineChart(title="t", note="", series=same, x=axis, y=axis))[:3]
    assert sorted({y for _, y in spots}) == [spots[0][1]]
    assert min(abs(a - b) for (a, _), (b, _) in pairwise(spots)) >= 8


@pytest.mark.parametrize("width", [WIDE, NARROW])
def test_every_dot_of_a_row_has_a_lane_with_its_number(width: float) -> None:
    marks = [Mark(value=0.5, low=0.4, high=0.6, n=9, series=name, style=place) for place, name in enumerate("abc")]
    chart = DotChart(title="t", note="", rows=[("one & only", marks)], reference=0.5)
    lanes = [y for _, y in places(chart, width)[-3:]]
    assert [later - earlier for earlier, later in pairwise(lanes)] == [15.0, 15.0]
    assert texts(chart, width).count("50.0 [40.0, 60.0]") == 3
    assert "one & only" in texts(chart, width)
    assert "n 9" not in texts(chart, width)  # where all are of the same n, the tooltip is enough
    assert "a 50.0 [40.0, 60.0], n = 9" in str(svg(chart, width))


def test_n_is_shown_where_it_differs() -> None:
    rows = [(name, mark_of({"value": 0.5, "low": 0.4, "high": 0.6, "n": n})) for name, n in (("a", 1200), ("b", 7))]
    assert {"n 1,200", "n 7"} <= set(texts(DotChart(title="t", note="", rows=rows)))


def test_a_long_name_is_wrapped_and_not_cut() -> None:
    name = "classifier:organization/a-reward-model-with-a-name-of-many-words?context=profile&posts=30" * 2
    rows = [(name, mark_of(point(0.5)))]
    for width in (WIDE, NARROW):
        assert name in "".join(texts(DotChart(title="t", note="", rows=rows), width))


def test_a_file_has_its_title_its_numbers_and_no_variables(tmp_path: Path) -> None:
    chart = DotChart(title="a <title>", note="1 < 2", rows=[("row", mark_of(point(0.5)))])
    write_svg(tmp_path / "plots" / "one.svg", "a <title>", [chart, chart], ["a note"])
    text = (tmp_path / "plots" / "one.svg").read_text()
    words = [each.text for each in ElementTree.fromstring(text).iter(f"{SVG}text")]
    assert words.count("a <title>") == 3  # of the file, and of both charts
    assert {"1 < 2", "row", "a note"} <= set(words)
    assert "var(" not in text
    assert svg_file("a <title>", [chart]).count("a &lt;title&gt;") == 2  # the title, and the words for the blind


def test_the_numbers_of_a_chart_are_csv() -> None:
    rows = [("=2+2", [Mark(value=-0.5, low=-1, high=0, n=3, series="@a", style=0)])]
    names, cells = DotChart(title="t", note="", rows=rows).numbers()
    assert names == ("row", "series", "value", "low", "high", "n")
    (line,) = csv.DictReader(StringIO(csv_text(names, cells)))
    assert line == {"row": "'=2+2", "series": "'@a", "value": "-0.5", "low": "-1", "high": "0", "n": "3"}
    chart = line_chart(
        "t", ["2", "4"], [("s", [point(0), {"value": 1, "low": 0, "high": 2, "n": 8}])], y=round_axis(0, 2)
    )
    assert chart.numbers()[1] == [["s", "2", 0, 0, 0, 0, None], ["s", "4", 1, 1, 0, 2, 8]]


@pytest.mark.parametrize("start", list("=+-@\t\r"))
def test_no_text_becomes_a_formula(start: str) -> None:
    (row,) = list(csv.reader(StringIO(csv_text((f"{start}a",), []))))
    assert row == [f"'{start}a"]


@pytest.mark.parametrize(
    "figure", ["-0.9 [-15.5, 13.8]", "+0.13 [-0.12, +0.37]", "+12.5*", "-3", "+0.444 [+0.000, +1.333]"]
)
def test_a_figure_with_its_sign_is_no_formula(figure: str) -> None:
    assert csv_text(("change",), [[figure]]).splitlines()[1].strip('"') == figure


def test_a_long_text_of_digits_is_told_from_a_number_at_once() -> None:
    assert csv_text(("cell",), [["-" + "1" * 100_000 + "x"]]).splitlines()[1].startswith("'-1")


def test_what_xml_does_not_allow_is_shown_as_unknown(tmp_path: Path) -> None:
    mark = Mark(value=0.5, low=0.4, high=0.6, n=3, series="s", style=0)
    chart = DotChart(title="a\x1b[31m", note="", rows=[("b\x00", [mark])])
    write_svg(tmp_path / "odd.svg", "a\x0bb", [chart])
    words = [each.text or "" for each in ElementTree.parse(tmp_path / "odd.svg").iter(f"{SVG}text")]
    assert {"a\ufffdb", "b\ufffd"} <= set(words)


def test_a_chart_without_marks_is_empty() -> None:
    assert DotChart(title="none", note="", rows=[]).draw(WIDE).height == 0
