"""The page: every model is drawn, nothing from data runs, and it fits a phone without a network."""

import re
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from tests.bon.conftest import ByWords, Counting, worth

from prbench.downstream.best_of_n.run import BonRun, BonSettings, best_of_n
from prbench.evaluation import EvalSettings
from prbench.pages.best_of_n import notes_of, number, page_of, percent
from prbench.pages.shell import render_page
from prbench.reward_models.base import LoadedModel
from prbench.reward_models.fake import FakeReward

HOSTILE = "<script>document.title='stolen'</script>"
ESTIMATE = {"value": 0.1234, "low": -0.5, "high": 1.0}


@pytest.fixture
def run(rows: Callable[[int], list[dict[str, Any]]], tmp_path: Path) -> BonRun:
    models = [
        LoadedModel(spec=f"{HOSTILE}{number}", kind="custom", model=FakeReward(score), identity={"fake": number})
        for number, score in enumerate([lambda each: worth(each.response), lambda each: 0.0])
    ]
    settings = BonSettings(n=8, context=EvalSettings(posts=2))
    return best_of_n(rows(12), Counting(), models, settings, out=tmp_path, judge=ByWords())


def page(run: BonRun) -> str:
    return render_page("best_of_n.html", page=page_of(run.summary))


def test_figures_are_written_with_their_intervals() -> None:
    assert number(ESTIMATE) == "0.123 [-0.500, 1.000]"
    assert number(ESTIMATE, interval=False, sign=True) == "+0.123"
    assert percent(ESTIMATE) == "12.3 [-50.0, 100.0]"
    assert number(None) == percent(None) == "–"


def test_curves_and_tables_show_every_selector(run: BonRun) -> None:
    made = page_of(run.summary)
    names = [line["name"] for line in made["curves"]["lines"]]
    assert names == [f"{HOSTILE}0", f"{HOSTILE}1", "random", "oracle"]
    right = made["curves"]["lines"][0]
    assert len(right["path"].split()) == 8  # every n
    assert len(right["points"]) == 4  # 1, 2, 4, 8
    places = [tick["at"] for tick in made["curves"]["x_ticks"]]
    steps = [later - earlier for earlier, later in pairwise(places)]
    assert max(steps) - min(steps) < 0.2  # powers of two stand equally far apart
    assert [row["name"] for row in made["rows"]] == names
    assert [row["name"] for row in made["swaps"]] == names[:2]


def test_groups_stand_beside_each_other(run: BonRun) -> None:
    shares = {name: {"value": 0.5, "low": 0.4, "high": 0.6} for name in run.summary["models"]}
    group = {"group": "plain", "questions": 7, "captured_headroom": shares}
    (table,) = page_of({**run.summary, "groups": {"level": [group]}})["groups"]
    assert table["heads"] == ["plain (7 questions)"]
    assert table["rows"][-1] == ["oracle", "50.0 [40.0, 60.0]"]


def test_curves_go_up_where_values_do(run: BonRun) -> None:
    ys = [point["y"] for point in page_of(run.summary)["curves"]["lines"][0]["points"]]
    assert ys == sorted(ys, reverse=True)


def test_notes_say_what_is_missing(run: BonRun) -> None:
    assert any("share the best score" in note for note in notes_of(run.summary))
    summary = {**run.summary, "left_out": {"sampling": 3, "grading": 0}, "truncated": 0.25}
    assert "3 questions are left out: their sampling failed. The same command tries again." in notes_of(summary)
    assert "25.0 % of the answers ran out of tokens." in notes_of(summary)


def test_few_users_are_said(run: BonRun) -> None:
    assert any(note.startswith("Intervals are over 3 users, too few") for note in page_of(run.summary)["notes"])
    assert not any("too few" in note for note in notes_of({**run.summary, "users": 20}))


def test_differences_show_what_is_left_of_them_among_all_pairs(run: BonRun) -> None:
    made = page_of(run.summary)["differences"]
    assert [each[3] for each in made] == ["< 0.001", *(each[3] for each in made[1:])]
    assert "adjusted by Holm" in page(run)


def test_a_model_without_figures_does_not_break_the_page(
    rows: Callable[[int], list[dict[str, Any]]], tmp_path: Path
) -> None:
    mute = LoadedModel(spec="mute", kind="custom", model=FakeReward(lambda each: None), identity={"fake": "mute"})
    settings = BonSettings(n=1)
    run = best_of_n(rows(6), Counting(), [mute], settings, out=tmp_path, judge=ByWords())
    assert "mute" in page(run)


def test_names_from_outside_stay_text_and_nothing_is_fetched(run: BonRun) -> None:
    html = page(run)
    assert HOSTILE not in html
    assert not re.search(r'(src|href)="', html)


@pytest.mark.browser
@pytest.mark.parametrize("width", [1280, 390])
def test_it_fits_a_phone_and_runs_nothing(run: BonRun, browser: Any, tmp_path: Path, width: int) -> None:
    path = tmp_path / "bon.html"
    path.write_text(page(run))
    tab = browser.new_page(viewport={"width": width, "height": 800})
    asked: list[str] = []
    tab.on("request", lambda request: asked.append(request.url))
    tab.goto(path.as_uri())
    assert tab.title() == "Best of 8"
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    assert asked == [path.as_uri()]
    assert tab.locator("polyline").count() >= 4
