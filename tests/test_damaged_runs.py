"""A damaged run: left out where many are read, refused in one line alone, and never written to."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from prbench.data import DataSettings
from prbench.errors import RunError
from prbench.evaluation import evaluate
from prbench.evaluation.api import load_runs as load_in_python
from prbench.evaluation.summary import load_runs
from prbench.insight.diagnose import diagnose
from prbench.insight.meta.read import read_boards
from prbench.people.agreement.answers import load_answers
from prbench.runs import RunConfig, read_rows

Damage = Callable[[Path], None]
LIMIT, MODELS = 12, ("control:longest", "control:overlap", "control:shortest")
DEEP = "[" * 100_000


def in_row(**change: Any) -> Damage:
    def damage(run: Path) -> None:
        first, *others = (run / "items.jsonl").read_text().splitlines(keepends=True)
        (run / "items.jsonl").write_text(json.dumps(json.loads(first) | change) + "\n" + "".join(others))

    return damage


def in_file(name: str, *keys: str, value: Any = None) -> Damage:
    """Set what stands at some keys; `...` takes it out."""

    def damage(run: Path) -> None:
        content = json.loads((run / name).read_text())
        inner = content
        for key in keys[:-1]:
            inner = inner[key]
        if value is ...:
            del inner[keys[-1]]
        else:
            inner[keys[-1]] = value
        (run / name).write_text(json.dumps(content))

    return damage


def whole(name: str, text: str) -> Damage:
    return lambda run: void((run / name).write_text(text))


def a_folder(name: str) -> Damage:
    def damage(run: Path) -> None:
        (run / name).unlink()
        (run / name).mkdir()

    return damage


def void(_: object) -> None:
    """Return nothing."""


ROWS: dict[str, Damage] = {
    "id int": in_row(id=5),
    "id null": in_row(id=None),
    "unknown probe": in_row(probe="x"),
    "user int": in_row(user_id=7),
    "user null": in_row(user_id=None),
    "category int": in_row(category=7),
    "score text": in_row(score_chosen="x"),
    "score bool": in_row(score_rejected=True),
    "posts text": in_row(posts_used="x"),
    "posts null": in_row(posts_used=None),
    "detail null": in_row(detail=None),
    "groups null": in_row(groups=None),
    "groups list": in_row(groups=[1]),
    "groups text": in_row(groups="majority"),
    "group list": in_row(groups={"majority": [1]}),
    "orders": in_row(orders=[{}]),
    "deep rows": whole("items.jsonl", DEEP + "\n"),
    "no rows but a folder": a_folder("items.jsonl"),
}
MANIFESTS: dict[str, Damage] = {
    "kind alone": whole("manifest.json", '{"kind": "eval"}'),
    "deep": whole("manifest.json", DEEP),
    "a folder": a_folder("manifest.json"),
    "no run_id": in_file("manifest.json", "run_id", value=...),
    "other run_id": in_file("manifest.json", "run_id", value="x"),
    "no facts": in_file("manifest.json", "facts", value=...),
    "facts null": in_file("manifest.json", "facts"),
    "no facts.data": in_file("manifest.json", "facts", "data", value=...),
    "rows a text": in_file("manifest.json", "facts", "data", "rows", value="12"),
    "no hash": in_file("manifest.json", "facts", "data", "hash", value=...),
    "no group_by": in_file("manifest.json", "facts", "group_by", value=...),
    "groups of lists": in_file("manifest.json", "facts", "group_by", value=[["a"]]),
    "no model": in_file("manifest.json", "facts", "model", value=...),
    "no config": in_file("manifest.json", "config", value=...),
    "config list": in_file("manifest.json", "config", value=[]),
    "no settings": in_file("manifest.json", "config", "settings", value=...),
    "no data": in_file("manifest.json", "data", value=...),
    "data null": in_file("manifest.json", "data"),
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Finished evaluations of one data set."""
    folder = tmp_path_factory.mktemp("made")
    for model in MODELS:
        evaluate("lab", model, out=folder, which=DataSettings(limit=LIMIT))
    return folder


@pytest.fixture
def runs(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "runs"))


def run_of(runs: Path, model: str) -> Path:
    return next(path.parent for path in runs.glob("*/summary.json") if f'"{model}"' in path.read_text())


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("name", [*ROWS, *MANIFESTS])
def test_readers_leave_a_damaged_run_out_and_go_on(name: str, runs: Path, tmp_path: Path) -> None:
    bad = run_of(runs, MODELS[0])
    {**ROWS, **MANIFESTS}[name](bad)
    found = load_runs([runs])
    assert sorted(run.summary["model"] for run in found.runs) == sorted(MODELS[1:])
    (line,) = found.left_out
    assert str(bad) in line
    assert "\n" not in line
    assert [str(bad) in note for note in diagnose([runs]).notes] == [True]
    assert len(load_in_python(str(runs))) == 2
    (board,) = read_boards([str(runs)])
    assert sorted(board.models) == sorted(MODELS[1:])
    assert any(str(bad) in note for note in board.notes)
    items = sorted({row.id for row in found.runs[0].rows})
    answers = tmp_path / "answers.csv"
    answers.write_text("item,annotator,label\n" + "".join(f"{item},{who},chosen\n" for item in items for who in "ab"))
    assert any(str(bad) in note for note in load_answers([answers], judge_runs=[runs]).notes)


@pytest.mark.parametrize("name", [*ROWS, *MANIFESTS])
def test_a_damaged_run_alone_is_refused_and_left_as_it_is(name: str, runs: Path) -> None:
    bad = run_of(runs, MODELS[0])
    {**ROWS, **MANIFESTS}[name](bad)
    before = content(bad)
    for read in (load_runs, diagnose, lambda paths: read_boards([str(paths[0])])):
        with pytest.raises(RunError, match=str(bad)):
            read([bad])
    with pytest.raises(RunError, match=str(bad)):
        evaluate("lab", MODELS[0], out=runs, which=DataSettings(limit=LIMIT))
    assert content(bad) == before


def test_a_row_of_an_item_that_is_not_in_the_data_is_refused(runs: Path) -> None:
    bad = run_of(runs, MODELS[0])
    in_row(id="nobody")(bad)
    before = content(bad)
    with pytest.raises(RunError, match=r"items\.jsonl:1: not a row of ours"):
        evaluate("lab", MODELS[0], out=runs, which=DataSettings(limit=LIMIT))
    assert content(bad) == before


def test_a_damaged_summary_leaves_a_run_off_the_boards_of_others(runs: Path) -> None:
    bad = run_of(runs, MODELS[0])
    (bad / "summary.json").write_text("{}")
    (board,) = read_boards([str(runs)])
    assert sorted(board.models) == sorted(MODELS[1:])
    with pytest.raises(RunError, match=r"summary\.json: its `run_id` is missing or damaged"):
        read_boards([str(bad)])
    assert len(load_runs([runs]).runs) == 3  # a report computes every figure anew


def test_damaged_figures_of_a_planner_are_left_out_and_its_run_stays(runs: Path) -> None:
    place = run_of(runs, MODELS[0]) / "planner"
    place.mkdir()
    (place / "summary.json").write_text("{}")
    found = load_runs([runs])
    assert len(found.runs) == 3
    (line,) = found.left_out
    assert line.endswith("The figures of its planner are left out.")


def test_rows_are_read_once_with_the_facts_that_were_asked_for(runs: Path) -> None:
    run = run_of(runs, MODELS[0])
    kept, every = load_runs([run]).runs[0].rows, load_runs([run], all_facts=True).runs[0].rows
    assert every == read_rows(run)
    assert {name for row in kept for name in row.groups} == {"majority"}


BON_ROW = {"id": "q", "user_id": "u", "model": "head:a", "values": {"1": 0.5}}


@pytest.mark.parametrize(
    "change",
    [{"model": None}, {"values": None}, {"values": {"1": "x"}}, {"user_id": 3}, {"id": 3}],
    ids=json.dumps,
)
def test_damaged_rows_of_best_of_n(tmp_path: Path, change: dict[str, Any]) -> None:
    for name, row in (("good", BON_ROW), ("bad", BON_ROW | change)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "manifest.json").write_text(json.dumps(RunConfig(config={"n": name}).manifest("bon")))
        figures = {"value_at": {"1": {"value": 0.5}}, "questions": 1}
        summary = {"n": 1, "sizes": [1], "models": {"head:a": figures}, "differences": []}
        (tmp_path / name / "summary.json").write_text(json.dumps(summary))
        (tmp_path / name / "items.jsonl").write_text(json.dumps(row) + "\n")
    (board,) = read_boards([str(tmp_path)])
    assert [note.endswith("Left out.") for note in board.notes if str(tmp_path / "bad") in note] == [True]
    with pytest.raises(RunError, match=str(tmp_path / "bad" / "items.jsonl")):
        read_boards([str(tmp_path / "bad")])


@pytest.mark.parametrize("text", ["{}", "[]", '{"n": 1, "models": {"head:a": 3}}', '{"n": "x", "models": {}}', DEEP])
def test_a_damaged_summary_of_best_of_n_is_one_line(tmp_path: Path, text: str) -> None:
    (tmp_path / "manifest.json").write_text(json.dumps(RunConfig(config={}).manifest("bon")))
    (tmp_path / "summary.json").write_text(text)
    with pytest.raises(RunError) as refused:
        read_boards([str(tmp_path)])
    assert "\n" not in str(refused.value)
