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
from prbench.pages.best_of_n import notes_of, page_of, render
from prbench.reward_models.base import LoadedModel
from prbench.reward_models.fake import FakeReward

HOSTILE = "<script>document.title='stolen'</script>"


@pytest.fixture
def run(rows: Callable[[int], list[dict[str, Any]]], tmp_path: Path) -> BonRun:
    models = [
        LoadedModel(spec=f"{HOSTILE}{number}", kind="custom", model=FakeReward(score), identity={"fake": number})
        for number, score in enumerate([lambda each: worth(each.response), lambda each: 0.0])
    ]
    settings = BonSettings(n=8, context=EvalSettings(posts=2))
    return best_of_n(rows(12), Counting(), models, settings, out=tmp_path, judge=ByWords())


def page(run: BonRun) -> str:
    return render(run.summary)


def test_curves_and_tables_show_every_selector(run: BonRun) -> None:
    made = page_of(run.summary)
    curves = made["charts"][0]
    names = [line.name for line in curves.series]
    assert names == [f"{HOSTILE}0", f"{HOSTILE}1", "random", "oracle"]
    right = curves.series[0]
    assert len(right.curve) == 8  # every n
    assert [mark.x for mark in right.marks] == [1, 2, 4, 8]
    places = [curves.x.place(tick) for tick, _ in curves.x.ticks]
    steps = [later - earlier for earlier, later in pairwise(places)]
    assert max(steps) - min(steps) < 1e-9  # powers of two stand equally far apart
    assert [row[0] for row in made["models"][1]] == names
    assert [row[0] for row in made["swaps"][1]] == names[:2]


def test_groups_stand_beside_each_other(run: BonRun) -> None:
    shares = {name: {"value": 0.5, "low": 0.4, "high": 0.6} for name in run.summary["models"]}
    group = {"group": "plain", "questions": 7, "captured_headroom": shares}
    ((field, (heads, rows)),) = page_of({**run.summary, "groups": {"level": [group]}})["groups"]
    assert (field, heads) == ("level", ("picked by", "plain (7 questions)"))
    assert rows[-1] == ["oracle", "50.0 [40.0, 60.0]"]


def test_curves_go_up_where_values_do(run: BonRun) -> None:
    values = [mark.value for mark in page_of(run.summary)["charts"][0].series[0].marks]
    assert values == sorted(values)


def test_notes_say_what_is_missing(run: BonRun) -> None:
    assert any("share the best score" in note for note in notes_of(run.summary))
    summary = {**run.summary, "left_out": {"sampling": 3, "grading": 0}, "truncated": 0.25}
    assert "3 questions are left out: their sampling failed. The same command tries again." in notes_of(summary)
    assert "25.0 % of the answers ran out of tokens." in notes_of(summary)


def test_few_users_are_said(run: BonRun) -> None:
    assert any(note.startswith("Intervals are over 3 users, too few") for note in page_of(run.summary)["notes"])
    assert not any("too few" in note for note in notes_of({**run.summary, "users": 20}))


def test_differences_show_what_is_left_of_them_among_all_pairs(run: BonRun) -> None:
    made = page_of(run.summary)["differences"][1]
    # The first two differ by the same for every user: no error, and so no test.
    assert [each[3] for each in made[:2]] == ["–", "0.007"]
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
    assert not re.search(r'src="|href="(?!data:)', html)
