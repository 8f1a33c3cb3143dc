"""The page in a real browser: it sorts, filters, fits a phone, and runs nothing that came from data."""

import json
from pathlib import Path

import pytest

from prbench.evaluation import EvalSettings, evaluate
from prbench.evaluation.summary import load_runs
from prbench.pages import write_report
from prbench.pages.board import make_boards

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def page_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page of three runs on 60 pairs, some of them hostile."""
    folder = tmp_path_factory.mktemp(
        "a_folder_with_a_name_that_is_much_too_long_for_a_phone_and_has_no_place_to_break"
    )
    data = []
    for number in range(60):
        flip = number % 3 == 0
        sides = (f"Sow seeds of thrift number {number}.", f"Buy a tall olive tree and many pots, number {number}.")
        data.append(
            {
                "id": f"item-{number:02d}",
                "user_id": f"user-{number % 12}",
                "question": f"What should I plant, case {number}?",
                "profile": [
                    {"id": f"p{number % 12}", "category": "", "text": "I love thrift <img src=x onerror=alert(1)>"}
                ],
                "rubric_aspects": [{"aspect": "thrift", "evidence": "", "reason": ""}],
                "narrative": "",
                "category": ("Art_and_Entertainment", "Society_and_Culture")[number % 2],
                "chosen": sides[flip] + "<script>document.title='stolen'</script>",
                "rejected": sides[not flip],
            }
        )
    path = folder / "data.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in data))
    for model, context in (
        ("control:longest", "profile"),
        ("control:overlap", "profile"),
        ("control:overlap", "oracle"),
    ):
        evaluate(path, model, settings=EvalSettings(context=context), out=folder / "file-runs")
    write_report(make_boards(load_runs([folder / "file-runs"]).runs), folder / "board.html")
    return folder / "board.html"


def open_page(browser, page_file: Path, width: int = 1200):  # type: ignore[no-untyped-def]
    page = browser.new_page(viewport={"width": width, "height": 900})
    page.errors = []
    page.asked = []
    page.on("pageerror", lambda error: page.errors.append(str(error)))
    page.on("request", lambda request: page.asked.append(request.url))
    page.goto(page_file.as_uri())
    return page


def test_it_opens_without_network_and_without_errors(browser, page_file: Path) -> None:
    page = open_page(browser, page_file)
    assert page.errors == []
    assert all(url.startswith(("file:", "data:")) for url in page.asked)
    assert page.title() == "Personalized reward models"


def test_a_script_inside_a_response_stays_text(browser, page_file: Path) -> None:
    page = open_page(browser, page_file)
    assert page.title() == "Personalized reward models"
    assert "<script>document.title" in page.locator(".item .pair").first.inner_text()
    page.locator(".item summary").first.click()
    assert "onerror=alert(1)" in page.locator(".item details li").first.inner_text()
    assert page.locator(".item img").count() == 0


def test_a_click_on_a_heading_sorts_and_a_second_one_turns_it_round(browser, page_file: Path) -> None:
    page = open_page(browser, page_file)

    def column() -> list[float]:
        cells = page.locator("table.sortable tbody tr td:nth-child(2)")
        return [float(cells.nth(i).get_attribute("data-sort")) for i in range(cells.count())]

    head = page.locator("th button", has_text="accuracy")
    head.click()
    assert column() == sorted(column(), reverse=True)
    head.click()
    assert column() == sorted(column())


def test_the_filters_find_wrong_and_right_items(browser, page_file: Path) -> None:
    page = open_page(browser, page_file)
    counts = {}
    for verdict in ("", "rejected", "chosen", "tie", "unreadable"):
        page.select_option("#verdict", verdict)
        counts[verdict] = int(page.locator("#count").inner_text().split()[0])
    assert counts[""] == 60 == counts["rejected"] + counts["chosen"] + counts["tie"] + counts["unreadable"]
    page.select_option("#verdict", "")
    page.fill("#words", "case 17?")
    assert page.locator("#count").inner_text().startswith("1 items")
    page.fill("#words", "")
    page.click("#next")
    assert "showing 11 to 20" in page.locator("#count").inner_text()
