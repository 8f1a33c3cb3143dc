"""The page in a real browser: it answers in words, fits a phone, and runs nothing that came from data."""

from pathlib import Path

import pytest

from prbench.pages.agreement import render
from prbench.people.agreement import agreement

HOSTILE = "<script>document.title='stolen'</script><img src=x onerror=\"document.title='stolen'\">"
LONG = "an_annotator_whose_name_is_much_too_long_for_a_phone_and_has_no_place_to_break_at_all"
pytestmark = pytest.mark.browser


@pytest.fixture
def page_file(save, make_panel, tmp_path: Path) -> Path:
    rows = make_panel(40, ("ann", LONG, f"ben {HOSTILE}"), errors=0.25)
    for row in rows:
        if row["annotator"] == "ann":
            row |= {"seconds": 2.0, "choice": "chosen" if row["side_chosen"] == "left" else "rejected"}
    path = tmp_path / "agreement.html"
    path.write_text(render(agreement([save(rows)])))
    return path


def test_both_questions_are_answered_in_words_and_names_stay_text(browser, page_file: Path) -> None:
    page = browser.new_page()
    page.goto(page_file.as_uri())
    assert page.title() == "What the annotators say"
    assert page.locator("main script, header script").count() == page.locator("img").count() == 0
    questions = page.locator("#questions .answer")
    assert questions.locator("h2").all_inner_texts() == [
        "Is personal preference the discriminating factor?",
        "Is general quality equal?",
    ]
    assert set(questions.locator(".reply").all_inner_texts()) <= {"yes", "no", "cannot tell"}
    assert HOSTILE in page.locator("#annotators").inner_text()
    assert "leans left" in page.locator("#annotators").inner_text()
    assert "Worth a look: ann" in page.locator("#caveats").inner_text()
    page.locator("#reliability summary").click()
    assert page.locator("#reliability details tbody tr").count() == 3


def test_charts_show_everybody_the_margin_and_the_bar(browser, page_file: Path) -> None:
    page = browser.new_page()
    page.goto(page_file.as_uri())
    label, quality, alpha = (page.locator("figure .wide svg").nth(place) for place in range(3))
    assert label.get_attribute("aria-label").count(";") == 5 - 1  # everybody, three people, and the bar
    assert "bar to pass" in label.locator("text").all_text_contents()
    assert "margin ±0.5" in quality.locator("text").all_text_contents()
    assert "choice: Fleiss' kappa" in alpha.locator("text").all_text_contents()


def test_a_panel_of_which_nothing_is_known_makes_a_page_without_charts(
    browser, save, make_line, tmp_path: Path
) -> None:
    path = tmp_path / "empty.html"
    path.write_text(render(agreement([save([make_line("i", "ann", None, ratings=None, side_chosen=None)])])))
    page = browser.new_page()
    page.goto(path.as_uri())
    assert page.locator("figure").count() == 0
    assert page.locator("#questions .reply").all_inner_texts() == ["cannot tell", "cannot tell"]
    assert "Nobody has made a choice yet" in page.locator("#questions").inner_text()
    assert "nan" not in page.locator("main").inner_text().lower()


def test_plain_labels_make_a_page_too(browser, save, tmp_path: Path) -> None:
    rows = "".join(
        f"{item},{name},{(item * 7 + (name == 'b' and item % 4 == 0)) % 3}\n" for item in range(30) for name in "ab"
    )
    path = tmp_path / "labels.html"
    path.write_text(render(agreement([save(f"item,annotator,label\n{rows}", "t.csv")])))
    page = browser.new_page()
    page.goto(path.as_uri())
    assert "Krippendorff's alpha, interval" in page.locator("#reliability").inner_text()
    assert page.locator("figure").count() == 1
