"""What a build may remove or overwrite, and what it must leave alone."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from prbench.backends.llm import FakeLLM
from prbench.construction.build import BuildSettings, BuildStage, build
from prbench.construction.build.run import LAYOUT
from prbench.errors import RunError, UsageError
from prbench.runs import RunStore

Models = Callable[..., dict[str, FakeLLM]]
Settings = Callable[..., BuildSettings]


def contents(folder: Path) -> dict[str, bytes]:
    files = (path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != "lock")
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


@pytest.mark.parametrize("changes", [{"data": "typo.jsonl", "users": None}, {"judge": "opnai:m"}])
def test_a_slip_in_a_fresh_command_loses_nothing(
    tmp_path: Path, scripted: Models, lab_settings: Settings, changes: dict[str, object]
) -> None:
    build(lab_settings(), tmp_path, last=BuildStage.GENERATE, models=scripted())
    before = contents(tmp_path)
    assert before["replies.sqlite"]
    with pytest.raises(UsageError):
        build(lab_settings(**changes), tmp_path, last=BuildStage.GENERATE, fresh=True)
    assert contents(tmp_path) == before


def test_fresh_removes_what_a_build_made_and_nothing_else(
    tmp_path: Path, scripted: Models, lab_settings: Settings
) -> None:
    build(lab_settings(), tmp_path, last=BuildStage.GENERATE, models=scripted())
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "dataset").mkdir()
    again = scripted()
    build(lab_settings(), tmp_path, last=BuildStage.GENERATE, models=again, fresh=True)
    assert again["generator"].requests  # the replies were gone
    assert not (tmp_path / "dataset").exists()
    assert (tmp_path / "notes.txt").read_text() == "mine"


@pytest.mark.parametrize("fresh", [True, False])
@pytest.mark.parametrize("name", ["dataset/mine.txt", "pairs.jsonl", "rejects.jsonl", "0_draw.jsonl", "summary.json"])
def test_a_folder_that_no_build_made_is_left_as_it_is(
    tmp_path: Path, scripted: Models, lab_settings: Settings, fresh: bool, name: str
) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("precious")
    with pytest.raises(RunError, match=f"holds {name.split('/')[0]}, but no build of ours made it"):
        build(lab_settings(), tmp_path, last=BuildStage.RANK, models=scripted(), fresh=fresh)
    assert contents(tmp_path) == {name: b"precious"}


def test_another_programs_manifest_is_no_build(tmp_path: Path, scripted: Models, lab_settings: Settings) -> None:
    (tmp_path / "manifest.json").write_text('{"scripts": {}}')
    with pytest.raises(RunError, match="was not written by prbench"):
        build(lab_settings(), tmp_path, last=BuildStage.RANK, models=scripted(), fresh=True)
    assert contents(tmp_path) == {"manifest.json": b'{"scripts": {}}'}


def test_a_build_whose_description_is_damaged_can_begin_anew(
    tmp_path: Path, scripted: Models, lab_settings: Settings
) -> None:
    build(lab_settings(), tmp_path, last=BuildStage.RANK, models=scripted())
    (tmp_path / "manifest.json").write_text("{")
    with pytest.raises(RunError, match="--fresh"):
        build(lab_settings(), tmp_path, last=BuildStage.RANK, models=scripted())
    built = build(lab_settings(), tmp_path, last=BuildStage.RANK, models=scripted(), fresh=True)
    assert built.manifest["data"]["rows"] == 6


def test_only_scratch_files_of_our_own_are_removed(tmp_path: Path) -> None:
    kept = ["notes.tmp", "pairs.jsonl.tmp", "pairs.jsonl.old.tmp", "mine.jsonl.12.tmp"]
    for name in (*kept, "pairs.jsonl.12.tmp", "manifest.json.7.tmp"):
        (tmp_path / name).write_text("x")
    with RunStore(tmp_path, LAYOUT):
        assert sorted(path.name for path in tmp_path.glob("*.tmp")) == sorted(kept)


@pytest.mark.parametrize("data", ["pairs.jsonl", "dataset", "dataset/books/test.jsonl", "rejects.jsonl", "."])
def test_what_a_build_writes_cannot_be_its_data(
    tmp_path: Path, scripted: Models, lab_settings: Settings, data: str
) -> None:
    path = tmp_path / data
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix:
        path.write_text("{}\n")
    before = contents(tmp_path)
    with pytest.raises(UsageError, match="that is where this build writes"):
        build(lab_settings(data=str(path), users=None), tmp_path, last=BuildStage.RANK, models=scripted())
    assert contents(tmp_path) == before


def test_data_may_lie_beside_what_a_build_writes(
    tmp_path: Path, scripted: Models, lab_settings: Settings, posts_file: Callable[[int], Path]
) -> None:
    data = posts_file(2)
    before = data.read_bytes()
    built = build(lab_settings(data=str(data), users=None), data.parent, last=BuildStage.DRAW, models=scripted())
    assert built.manifest["data"]["rows"] == 2
    assert data.read_bytes() == before


def test_the_count_of_forgotten_items_outlives_the_next_build(
    tmp_path: Path, scripted: Models, lab_settings: Settings
) -> None:
    first = build(lab_settings(), tmp_path, last=BuildStage.RANK, models=scripted())
    assert "forgotten" not in first.manifest
    (tmp_path / "summary.json").write_text(json.dumps({**first.manifest, "forgotten": 3}))
    second = build(lab_settings(), tmp_path, last=BuildStage.RANK, models=scripted())
    assert list(second.manifest)[-1] == "forgotten"
    assert second.manifest["forgotten"] == 3
    assert json.loads((tmp_path / "summary.json").read_text()) == second.manifest
    assert (
        "forgotten"
        not in build(lab_settings(), tmp_path, last=BuildStage.RANK, models=scripted(), fresh=True).manifest
    )
