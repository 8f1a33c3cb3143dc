"""The page in a real browser: it shows every verdict in words, fits a phone, and runs nothing that came from data."""

from pathlib import Path

import pytest

from prbench.construction.check import check_dataset
from prbench.pages.check import render

HOSTILE = "<script>document.title='stolen'</script><img src=x onerror=\"document.title='stolen'\">"
pytestmark = pytest.mark.browser


def hostile_rows(pair):
    rows = [
        pair(
            n,
            chosen=f"{HOSTILE} Take alpha{n}.",
            split="train" if n % 2 else "test",
            profile=[{"id": "p", "text": HOSTILE}],
        )
        for n in range(20)
    ]
    return [*rows, rows[0] | {"id": f"again {HOSTILE}"}]


@pytest.fixture
def page_file(pair, tmp_path: Path) -> Path:
    path = tmp_path / "check.html"
    path.write_text(render(check_dataset(hostile_rows(pair), encoder="none")))
    return path


def test_verdicts_stand_in_words_and_text_from_data_stays_text(browser, page_file: Path) -> None:
    page = browser.new_page()
    page.goto(page_file.as_uri())
    assert page.title() == "Check of rows given in Python"
    assert page.locator("main script, header script").count() == page.locator("img").count() == 0
    rows = page.locator("#verdicts tbody tr")
    assert rows.count() == 17
    verdicts = [rows.nth(n).locator(".verdict").inner_text() for n in range(rows.count())]
    assert {"good", "bad", "skipped"} <= set(verdicts)
    colors = {
        verdict: page.locator(f"#verdicts .verdict.{verdict}").first.evaluate("node => getComputedStyle(node).color")
        for verdict in ("good", "bad", "skipped")
    }
    assert len(set(colors.values())) == 3
    assert HOSTILE in page.locator("#samples").inner_text()
    assert page.locator("#samples article").count() <= 3 * 5


def test_charts_show_floors_around_one_half_and_style_around_zero(browser, page_file: Path) -> None:
    page = browser.new_page()
    page.goto(page_file.as_uri())
    floors, style = (page.locator("figure .wide svg").nth(place) for place in range(2))
    assert "the longer response" in floors.locator("text").all_text_contents()
    assert "50" in floors.locator("text").all_text_contents()
    assert floors.get_attribute("aria-label").count(";") == 5 - 1
    assert "exclamation marks" in style.locator("text").all_text_contents()
    assert "0" in style.locator("text").all_text_contents()


def test_rated_rows_make_a_page_without_charts(browser, tmp_path: Path) -> None:
    rows = [{"id": str(n), "question": "q", "profile": [], "response": f"r{n}", "rating": 0.5} for n in range(3)]
    path = tmp_path / "rated.html"
    path.write_text(render(check_dataset(rows)))
    page = browser.new_page()
    page.goto(path.as_uri())
    assert page.locator("figure").count() == 0
    assert "pairs only" in page.locator("#verdicts").inner_text()
