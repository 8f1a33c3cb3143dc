"""Measured figures of README and docs are those of the files under `results/`."""

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]
# Pages whose every measured figure is marked, or listed in experiments/unmeasured.toml.
COVERED = ["README.md", *(page.relative_to(ROOT).as_posix() for page in sorted((ROOT / "docs").rglob("*.md")))]


@pytest.fixture(scope="module")
def figures() -> Iterator[ModuleType]:
    """The script itself, with its neighbours to import."""
    sys.path.insert(0, str(ROOT / "experiments"))
    import figures

    yield figures
    sys.path.remove(str(ROOT / "experiments"))


def test_no_marked_figure_is_stale(figures: ModuleType) -> None:
    wrong = {page.name: list(figures.stale(page.read_text(encoding="utf-8"))) for page in figures.pages()}
    assert {name: lines for name, lines in wrong.items() if lines} == {}, "run: python experiments/figures.py"


@pytest.mark.parametrize("name", COVERED)
def test_no_measured_figure_is_unmarked(name: str, figures: ModuleType) -> None:
    allowed = list(figures.unmeasured().get(name, {}))
    found = list(figures.unmarked((ROOT / name).read_text(encoding="utf-8"), allowed))
    assert found == [], "mark each with its file of results, or say in experiments/unmeasured.toml what it is"


def test_every_passage_that_needs_no_source_is_still_there(figures: ModuleType) -> None:
    for name, passages in figures.unmeasured().items():
        text = " ".join((ROOT / name).read_text(encoding="utf-8").split())
        for passage, reason in passages.items():
            assert " ".join(passage.split()) in text, f"{name}: {passage!r} is gone; remove it from unmeasured.toml"
            assert reason


MARK = "<!-- = speed/lab_speed.json > rows ; ,d -->"


def test_a_stale_figure_is_named_and_renewed(figures: ModuleType) -> None:
    page = f"It made 99,000{MARK} pairs."
    assert list(figures.stale(page)) == [
        "speed/lab_speed.json > rows: is 100,000, and the page says …It made 99,000",
    ]
    assert figures.renewed(page) == f"It made 100,000{MARK} pairs."
    assert list(figures.stale(figures.renewed(page))) == []


def test_a_true_minus_sign_is_a_minus(figures: ModuleType) -> None:
    mark = "<!-- = train/figures.json > fewshot > swap_gap > value ; .0f -->"
    assert list(figures.stale(f"0{mark}")) == []
    known = figures.figure("meta/figures.json > models > lab: best of 64 > general", ".2f")
    mark = "<!-- = meta/figures.json > models > lab: best of 64 > general ; .2f -->"
    assert list(figures.stale(f"{known.replace('-', '−')}{mark}")) == []
    assert list(figures.unmarked(f"{known.replace('-', '−')}{mark}")) == []


def test_a_mark_that_a_code_block_shows_is_none(figures: ModuleType) -> None:
    shown = f"```text\n99,000{MARK}\n<!-- table: speed_cpu -->\n```\n"
    assert list(figures.stale(shown)) == []
    assert figures.renewed(shown) == shown


def test_a_question_mark_asks_for_the_figure(figures: ModuleType) -> None:
    assert figures.renewed(f"It made ?{MARK} pairs.") == f"It made 100,000{MARK} pairs."


@pytest.mark.parametrize("longer", ["1100,000", "+100,000", "7.100,000"])
def test_the_end_of_a_longer_number_is_no_match(longer: str, figures: ModuleType) -> None:
    assert len(list(figures.stale(f"It made {longer}{MARK} pairs."))) == 1


def test_an_estimate_is_written_with_its_interval_and_a_list_with_commas(figures: ModuleType) -> None:
    assert figures.written({"value": 0.814, "low": 0.786, "high": 0.841}, ".1p") == "81.4 [78.6, 84.1]"
    assert figures.written({"value": -0.21, "low": -0.3, "high": 0.13}, "+.2f") == "-0.21 [-0.30, +0.13]"
    assert figures.written([0.5, 0.25], ".2f") == "0.50, 0.25"


def test_a_source_that_has_nothing_there_is_named(figures: ModuleType) -> None:
    with pytest.raises(SystemExit, match=r"speed/lab_speed.json: has nothing under 'cats'"):
        figures.figure("speed/lab_speed.json > cats", "d")


def test_a_table_that_somebody_changed_is_named_and_renewed(figures: ModuleType) -> None:
    page = f"<!-- table: speed_cpu -->\n\n{figures.table('speed_cpu').replace('8.3', '8.4')}\n\n<!-- end -->\n"
    assert list(figures.stale(page)) == ["table speed_cpu: is not what experiments/tables_of_*.py make of the results"]
    assert list(figures.stale(figures.renewed(page))) == []


def test_a_table_without_an_end_is_named(figures: ModuleType) -> None:
    assert len(list(figures.stale("<!-- table: speed_cpu -->\n\n| a |\n"))) == 1


@pytest.mark.parametrize(
    "text",
    ["It got 81.4 [78.6, 84.1].", "It is 16 times as fast.", "a share of 46 %", "in 40 seconds", "rho is 0.96."],
)
def test_a_number_that_looks_measured_needs_a_source(text: str, figures: ModuleType) -> None:
    assert len(list(figures.unmarked(text))) == 1
    assert list(figures.unmarked(text, [text])) == []


@pytest.mark.parametrize(
    "text",
    [
        f"It made 100,000{MARK} pairs in ?",
        "`--rbo-p 0.9`",
        "```sh\nprbench eval --posts 0.5\n```",
        "arXiv 2604.07343",
        "Python 3.11, 3.12 and 3.13",
        "95 % intervals",
        "[speed](speed-0.5.md)",
        "1,600 pairs of 400 users",
    ],
)
def test_code_counts_and_versions_need_none(text: str, figures: ModuleType) -> None:
    assert list(figures.unmarked(text)) == []
