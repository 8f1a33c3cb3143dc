"""The page in a real browser: it answers in words, fits a phone, and runs nothing that came from data."""

from pathlib import Path

import numpy as np
import pytest

from prbench.insight.meta import Choices, compare_boards
from prbench.insight.meta.board import board_of_scores
from prbench.insight.meta.resolution import measure_resolution
from prbench.pages.meta import paper_case, render

HOSTILE = "<script>document.title='stolen'</script><img src=x onerror=\"document.title='stolen'\">"
LONG = "a_model_whose_name_is_much_too_long_for_a_phone_and_has_no_place_to_break_at_all"


def test_the_paper_case_is_recomputed() -> None:
    rows = paper_case()["cells"][1]
    assert [row[2:4] for row in rows] == [["0.9180", "0.2571"], ["0.9265", "0.3714"]]
    assert [row[5] for row in rows] == ["0.66", "0.50"]
    assert all("Too few models to tell" in each["says"] for each in paper_case()["verdicts"])


@pytest.fixture
def page_file(item_board, tmp_path: Path) -> Path:
    names = [LONG, HOSTILE, *[f"m{place}" for place in range(2, 10)]]
    worth = np.linspace(0, 1, 10)
    board = item_board(worth).renamed({f"m{place}": name for place, name in enumerate(names[:2])})
    down = board_of_scores("downstream", dict(zip(names, worth**2, strict=True)))
    other = board_of_scores("other", dict(zip(names, np.cos(9 * worth), strict=True)))
    found = compare_boards([board, other], [down], choices=Choices(draws=200))
    path = tmp_path / "meta.html"
    path.write_text(render(found, [measure_resolution(board)]))
    return path


@pytest.mark.browser
def test_it_answers_in_words_and_names_stay_text(browser, page_file: Path) -> None:
    page = browser.new_page()
    page.goto(page_file.as_uri())
    assert page.title() == "Does the benchmark predict what policies get?"
    assert page.locator("main script, header script").count() == page.locator("img").count() == 0
    answers = page.locator(".answer .reply").all_inner_texts()
    assert answers[0] == "yes"
    scatter = page.locator("figure .wide svg").first
    assert scatter.locator(".dot").count() == 10
    assert scatter.locator(".whisker").count() == 10
    assert "Too few models to tell" in page.locator("#paper").inner_text()
    assert page.locator("#differences tbody tr").count() == 1
