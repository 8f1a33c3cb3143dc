"""Plots: axes with round labels, and points where the axis says."""

import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from prbench.pages.svg import Axis, line_panel, percent_axis, plain_axis, point, round_axis, text_panel, write_figure

SVG = "{http://www.w3.org/2000/svg}"


@pytest.mark.parametrize(
    "largest,labels",
    [
        (8.9, ["0", "2", "4", "6", "8", "10"]),
        (0.3, ["0", "0.1", "0.2", "0.3"]),
        (23_456, ["0", "5k", "10k", "15k", "20k", "25k"]),
        (2_000_000, ["0", "500k", "1M", "1.5M", "2M"]),
        (0, ["0", "1"]),
    ],
)
def test_a_plain_axis_has_at_most_six_round_labels_and_holds_the_largest_value(
    largest: float, labels: list[str]
) -> None:
    axis = plain_axis(largest)
    assert [label for _, label in axis.ticks] == labels
    assert axis.high >= largest


@pytest.mark.parametrize(
    "low,high,labels",
    [
        (6.3897, 6.4019, ["6.385", "6.39", "6.395", "6.4", "6.405"]),
        (-1.8, 1.2, ["-2", "-1", "0", "1", "2"]),
        (-0.3, -0.3, ["-0.3", "-0.2", "-0.1", "0"]),
    ],
)
def test_a_round_axis_holds_both_values(low: float, high: float, labels: list[str]) -> None:
    axis = round_axis(low, high)
    assert [label for _, label in axis.ticks] == labels
    assert axis.low <= low + 1e-9
    assert axis.high >= high


def test_a_percent_axis_begins_where_it_is_told() -> None:
    axis = percent_axis(0.5)
    assert [label for _, label in axis.ticks] == ["50", "60", "70", "80", "90", "100"]
    assert axis.place(0.75) == 0.5


def test_panels_are_drawn_below_each_other_with_points_to_scale(tmp_path: Path) -> None:
    axis = Axis(0.0, 10.0, [(0.0, "0"), (10.0, "10")])
    panels = [line_panel(name, ["2", "4"], [("one & only", [point(0), point(5)])], axis=axis) for name in "ab"]
    write_figure(tmp_path / "plots" / "two.svg", "two", panels)
    drawing = ElementTree.parse(tmp_path / "plots" / "two.svg").getroot()
    groups = list(drawing.iter(f"{SVG}g"))
    assert [group.attrib["transform"] for group in groups] == ["translate(0 30)", "translate(0 256)"]
    (line,) = groups[0].iter(f"{SVG}polyline")
    # The drawing area is 60 to 510 across and 40 to 190 down; two places lie at a quarter and three quarters.
    assert line.attrib["points"] == "172.5,190.0 397.5,115.0"
    assert "one & only" in [text.text for text in groups[1].iter(f"{SVG}text")]


def test_series_without_a_name_leave_the_room_of_the_legend_to_the_lines() -> None:
    axis = Axis(0.0, 10.0, [(0.0, "0")])
    parts = line_panel("", ["2", "4"], [("", [point(0), point(5)])], axis=axis).parts
    assert sum("<circle" in part for part in parts) == 2
    # The drawing area is now 60 to 700 across.
    assert any('points="220.0,190.0 540.0,115.0"' in part for part in parts)


def test_a_line_of_text_is_escaped() -> None:
    (part,) = text_panel("1 < 2").parts
    assert "1 &lt; 2" in part
