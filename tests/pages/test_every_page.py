"""Every page in a real browser: it fits every screen, passes axe, says its origin, and can be saved."""

import csv
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from tests.support.browser import check_page

NAMES = (
    "board",
    "check",
    "diagnose",
    "diagnose_two",
    "agreement",
    "meta",
    "bon",
    "ppo",
    "bench",
    "leaderboard",
    "submission",
)
pytestmark = pytest.mark.browser


@pytest.fixture(params=NAMES)
def page(request: pytest.FixtureRequest, browser: Any, pages: dict[str, Path]) -> Iterator[Any]:
    """One page, opened from its file; it must load nothing else and run nothing of what came from data."""
    path = pages[request.param]
    page = browser.new_page(viewport={"width": 1400, "height": 900})
    page.name, errors, asked = request.param, [], []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    page.on("request", lambda made: asked.append(made.url))
    page.goto(path.as_uri())
    yield page
    assert errors == []
    assert [url for url in asked if not url.startswith("data:")] == [path.as_uri()]
    assert "stolen" not in page.title()
    page.close()


def test_it_fits_every_screen_in_light_and_dark_and_passes_axe(page: Any) -> None:
    for details in page.locator("details").all():
        details.evaluate("node => { node.open = true; }")
    check_page(page, page.name)


def test_it_says_date_command_data_and_versions(page: Any) -> None:
    facts = dict(
        zip(page.locator("footer dt").all_inner_texts(), page.locator("footer dd").all_inner_texts(), strict=True)
    )
    assert {"page written", "command", "data", "computed by"} <= facts.keys()
    assert facts["page written"].startswith("20")
    assert "prbench" in facts["computed by"]
    assert "Python" in facts["computed by"]


def test_every_chart_is_saved_as_svg_and_its_numbers_as_csv(page: Any, tmp_path: Path) -> None:
    for figure in page.locator("figure").all():
        drawing, numbers = figure.locator(".save a").all()
        text = unquote(drawing.get_attribute("href").partition(",")[2])
        ElementTree.fromstring(text)
        assert "var(" not in text
        rows = list(csv.reader(StringIO(unquote(numbers.get_attribute("href").partition(",")[2]))))
        assert len(rows) > 1
        assert {"low", "high", "n"} <= set(rows[0])
    for link in page.locator(".save a").all():
        cells = unquote(link.get_attribute("href").partition(",")[2])
        if link.inner_text() == "CSV":
            assert not [cell for row in csv.reader(StringIO(cells)) for cell in row if cell.startswith(("=", "@"))]
    first = page.locator(".save a").first
    first.focus()
    with page.expect_download() as download:
        page.keyboard.press("Enter")
    download.value.save_as(tmp_path / "saved")
    assert (tmp_path / "saved").stat().st_size > 100


def test_marks_at_one_place_stay_visible(page: Any) -> None:
    hidden = page.evaluate(
        """() => [...document.querySelectorAll(".wide svg")].flatMap((each) => {
          const places = [...each.querySelectorAll(".dot")].map((dot) => dot.getAttribute("transform"));
          return places.filter((place, index) => places.indexOf(place) !== index);
        })"""
    )
    assert hidden == []


def test_the_board_shows_model_and_accuracy_first_on_a_phone(browser: Any, pages: dict[str, Path]) -> None:
    page = browser.new_page(viewport={"width": 390, "height": 844})
    page.goto(pages["board"].as_uri())
    assert page.locator("table.board thead th").all_inner_texts()[:2] == ["model", "accuracy"]
    row = page.locator("table.board tbody tr").first
    for cell in (row.locator("th"), row.locator("td").first, row.locator(".interval").first):
        box = cell.bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= 390
    page.locator(".hint").first.wait_for(state="visible")
    page.set_viewport_size({"width": 1400, "height": 900})
    page.locator(".hint").first.wait_for(state="hidden")  # as soon as the page has seen its new width
    assert page.evaluate("(box => box.scrollWidth <= box.clientWidth)(document.querySelector('.scroll'))")
    page.close()
