"""The page in a real browser: it fits a phone, needs no network, and runs nothing that came from data."""

import json
from pathlib import Path

import pytest

from prbench.evaluation import EvalSettings, evaluate
from prbench.insight.diagnose import diagnose
from prbench.pages.diagnose import render

HOSTILE = "<script>document.title='stolen'</script><img src=x onerror=\"document.title='stolen'\">"
KIND = "<b onclick=x>bold</b>"
pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The pages of one run, and of two, on pairs with hostile texts and names."""
    folder = tmp_path_factory.mktemp("pages")
    rows = [
        {
            "id": f"i{n}",
            "user_id": f"{HOSTILE}{n}",
            "question": f"{HOSTILE} what?",
            "profile": [{"id": "p", "text": HOSTILE}],
            "chosen": ("Much longer than the other one.", "Short.")[n % 3 == 0],
            "rejected": ("Short.", "Much longer than the other one.")[n % 3 == 0],
            "meta": {"kind": KIND if n % 3 == 0 else "a_kind_whose_name_has_no_place_to_break" + "_" * 24},
        }
        for n in range(90)
    ]
    data = folder / "pairs.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    runs = [
        evaluate(data, f"control:{name}", settings=EvalSettings(), out=folder / "runs").folder
        for name in ("longest", "shortest")
    ]
    places = {}
    for name, chosen in (("one", runs[:1]), ("two", runs)):
        places[name] = folder / f"{name}.html"
        places[name].write_text(render(diagnose(chosen, label_next=5)))
    return places


def test_it_says_what_is_weaker_and_hides_the_label(browser, pages) -> None:
    page = browser.new_page()
    page.goto(pages["one"].as_uri())
    assert f"kind={KIND}" in page.inner_text("#weak")
    assert page.locator("#next article").count() == 5
    # The responses stand in the order of the alphabet, whichever is the chosen one.
    first = {text.split("\n")[-1] for text in page.locator(".pair div:first-child").all_inner_texts()}
    assert first == {"Much longer than the other one."}
