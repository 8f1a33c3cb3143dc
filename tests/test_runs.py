"""The store of a run: what is written stays, what is torn is cut, and nobody else writes."""

import json
from pathlib import Path

import pytest

from prbench.errors import RunError
from prbench.evaluation.run import LAYOUT
from prbench.runs import (
    ITEMS,
    Checkpoint,
    Layout,
    RowLog,
    RunConfig,
    RunStore,
    environment,
    is_retried,
    read_rows,
    to_record,
)
from prbench.runs.files import replacing
from prbench.schema import Probe, Problem, RatedRow, Row, Verdict

ASKED = RunConfig(config={"model": "fake"})
KEY = ("id", "probe")


def opened(folder: Path, config: RunConfig = ASKED, *, fresh: bool = False) -> RunStore:
    return RunStore.open(folder, LAYOUT, config, fresh=fresh)


def write(folder: Path, *rows: Row | RatedRow) -> None:
    with opened(folder) as store:
        store.rows(ITEMS, KEY).append(map(to_record, rows))


def completed(folder: Path) -> set[tuple[str, ...]]:
    with opened(folder) as store:
        return store.rows(ITEMS, KEY).completed(retry=is_retried)


def row(
    item: str, *, probe: Probe = Probe.OWN, verdict: Verdict = Verdict.CHOSEN, problem: Problem = Problem.NONE
) -> Row:
    return Row(
        id=item,
        probe=probe,
        user_id="u",
        category="c",
        verdict=verdict,
        score_chosen=1.5,
        score_rejected=-0.25,
        problem=problem,
        orders=({"order": "chosen_first", "pick": "first", "raw": "Result: A"},),
        groups={"majority": True},
    )


def test_rows_come_back_as_they_were_written(tmp_path: Path) -> None:
    rated = RatedRow(
        id="r", probe=Probe.SWAP, user_id="u", category="", rating=0.5, score=None, problem=Problem.NO_VERDICT
    )
    write(tmp_path / "run", row("a"), rated)
    assert read_rows(tmp_path / "run", replies=True) == [row("a"), rated]


def test_raw_replies_stay_on_disk_unless_asked_for(tmp_path: Path) -> None:
    write(tmp_path / "run", row("a"))
    assert read_rows(tmp_path / "run")[0].orders[0]["raw"] == ""  # type: ignore[union-attr]


def test_a_torn_last_line_is_cut_and_the_rest_kept(tmp_path: Path) -> None:
    write(tmp_path / "run", row("a"), row("b"))
    with (tmp_path / "run" / ITEMS).open("a") as file:
        file.write('{"id": "c", "probe": "ow')
    assert [one.id for one in read_rows(tmp_path / "run")] == ["a", "b"]  # as if it were still being written
    assert completed(tmp_path / "run") == {("a", "own"), ("b", "own")}
    write(tmp_path / "run", row("c"))
    assert [one.id for one in read_rows(tmp_path / "run")] == ["a", "b", "c"]


@pytest.mark.parametrize("length", [1, 65_535, 65_536, 65_537, 200_000])
def test_a_torn_line_of_any_length_is_cut(tmp_path: Path, length: int) -> None:
    write(tmp_path / "run", row("a"))
    path = tmp_path / "run" / ITEMS
    whole = path.read_bytes()
    path.write_bytes(whole + b"x" * length)
    with RowLog(path, KEY):
        assert path.read_bytes() == whole


def test_failed_rows_are_retried_and_the_last_row_wins(tmp_path: Path) -> None:
    failed = row("a", verdict=Verdict.UNREADABLE, problem=Problem.FAILED)
    unreadable = row("b", verdict=Verdict.UNREADABLE, problem=Problem.NO_VERDICT)
    write(tmp_path / "run", failed, unreadable)
    assert completed(tmp_path / "run") == {("b", "own")}
    write(tmp_path / "run", row("a"))
    assert completed(tmp_path / "run") == {("a", "own"), ("b", "own")}
    assert [one.problem for one in read_rows(tmp_path / "run")] == [Problem.NONE, Problem.NO_VERDICT]


@pytest.mark.parametrize("problem", Problem)
def test_only_what_is_worth_another_try_is_not_finished(tmp_path: Path, problem: Problem) -> None:
    retried = {"failed", "wrong_model", "out_of_tokens"}
    write(tmp_path / "run", row("a", problem=problem))
    assert bool(completed(tmp_path / "run")) == (problem.value not in retried)


def test_rows_are_sorted_and_only_the_latest_of_a_key_stays(tmp_path: Path) -> None:
    failed = row("a", verdict=Verdict.UNREADABLE, problem=Problem.FAILED)
    with opened(tmp_path / "run") as store:
        log = store.rows(ITEMS, KEY)
        log.append(map(to_record, (row("c"), failed, row("b"), row("a"))))
        log.compact(lambda key: "abcd".index(key[0]))
        log.append([to_record(row("d"))])
        assert log.completed() == {(item, "own") for item in "abcd"}
    records = [json.loads(line) for line in (tmp_path / "run" / ITEMS).read_text().splitlines()]
    assert [(one["id"], one["reason"]) for one in records] == [("a", ""), ("b", ""), ("c", ""), ("d", "")]
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == ["items.jsonl", "lock", "manifest.json"]


def test_rows_without_a_place_stay_where_they_are(tmp_path: Path) -> None:
    with RowLog(tmp_path / "rows.jsonl") as log:
        log.append([{"id": name} for name in "dxcya"])
        log.compact(lambda key: None if key[0] in "xy" else "abcd".index(key[0]))
        assert list(log.read()) == [("a",), ("x",), ("c",), ("y",), ("d",)]


def test_half_a_surrogate_pair_is_escaped(tmp_path: Path) -> None:
    with RowLog(tmp_path / "rows.jsonl") as log:
        log.append([{"id": "a", "text": "\ud83d"}])
        assert log.read() == {("a",): {"id": "a", "text": "\ud83d"}}


def test_a_second_writer_is_refused_in_one_line(tmp_path: Path) -> None:
    with opened(tmp_path / "run"), pytest.raises(RunError, match="another process is writing this run"):
        opened(tmp_path / "run")
    opened(tmp_path / "run").close()


def test_a_folder_of_another_configuration_is_refused_with_the_key_that_differs(tmp_path: Path) -> None:
    other = RunConfig(config={"model": "other", "settings": {"seed": 1}})
    with opened(tmp_path / "run", other) as store:
        store.rows(ITEMS, KEY).append([to_record(row("a"))])
    asked = RunConfig(config={"model": "other", "settings": {"seed": 2}})
    with pytest.raises(
        RunError, match=r"holds a run with another settings\.seed \(1\)\. Use another --out, or --fresh"
    ):
        opened(tmp_path / "run", asked)
    with opened(tmp_path / "run", asked, fresh=True) as store:
        assert store.rows(ITEMS, KEY).completed() == set()


def test_a_run_that_left_nothing_but_its_manifest_is_in_nobodys_way(tmp_path: Path) -> None:
    opened(tmp_path / "run").close()
    opened(tmp_path / "run", RunConfig(config={"model": "other"})).close()


@pytest.mark.parametrize("fresh", [True, False])
@pytest.mark.parametrize(
    "name, content, told",
    [
        ("items.jsonl", "mine", "holds items.jsonl, but no run of ours made it"),
        ("manifest.json", '{"name": "an extension"}', "was not written by prbench"),
        ("manifest.json", '{"kind": "ppo", "config": {}}', "was made by `prbench ppo`"),
        ("manifest.json", "{", "was not written by prbench"),
    ],
)
def test_what_others_wrote_is_refused_and_kept(
    tmp_path: Path, name: str, content: str, told: str, fresh: bool
) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(RunError, match=told):
        opened(tmp_path, fresh=fresh)
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [(name, content)]


def test_what_a_killed_process_was_writing_goes_and_other_files_stay(tmp_path: Path) -> None:
    for name in ("summary.json.12.tmp", "notes.tmp", "notes.txt.12.tmp"):
        (tmp_path / name).write_text("x")
    opened(tmp_path).close()
    assert sorted(path.name for path in tmp_path.glob("*.tmp")) == ["notes.tmp", "notes.txt.12.tmp"]


def test_the_manifest_has_one_shape_and_says_what_computed_the_run(tmp_path: Path) -> None:
    import numpy

    told = {"server": "vllm", "served_model": "m"}
    asked = RunConfig(config={"model": "fake"}, data={"source": "lab"}, command="prbench eval", environment=told)
    opened(tmp_path / "run", asked).close()
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text())
    assert list(manifest) == ["kind", "run_id", "config", "facts", "data", "command", "started", "environment"]
    found = manifest["environment"]
    assert {"prbench", "python", "system", "processor", "device"} <= found.keys()
    assert (found["numpy"], found["server"], found["served_model"]) == (numpy.__version__, "vllm", "m")


def test_the_commit_of_the_working_folder_is_read_without_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "repo" / ".git" / "refs").mkdir(parents=True)
    (tmp_path / "repo" / "deep").mkdir()
    (tmp_path / "repo" / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    (tmp_path / "repo" / ".git" / "packed-refs").write_text("# pack-refs\nabc123 refs/heads/main\n")
    monkeypatch.chdir(tmp_path / "repo" / "deep")
    assert environment()["git"] == "abc123"
    monkeypatch.chdir(tmp_path)
    assert "git" not in environment() or len(environment()["git"]) == 40


def test_rows_that_moved_are_noted_and_name_no_other_run(tmp_path: Path) -> None:
    first, moved = ({"source": place} for place in ("a.jsonl", "b.jsonl"))
    opened(tmp_path / "run", RunConfig(config={"model": "m"}, data=first)).close()
    with opened(tmp_path / "run", RunConfig(config={"model": "m"}, data=moved)) as store:
        assert store.manifest["data"] == moved


def test_a_folder_takes_the_place_of_another_whole(tmp_path: Path) -> None:
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "stale").write_text("old")
    with pytest.raises(FileNotFoundError), replacing(tmp_path / "set") as scratch:
        (scratch / "new").write_text("there is no such folder")
    assert [path.name for path in tmp_path.rglob("*")] == ["set", "stale"]
    with replacing(tmp_path / "set") as scratch:
        scratch.mkdir()
        (scratch / "new").write_text("new")
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["new", "set"]


def test_a_damaged_line_names_file_and_line(tmp_path: Path) -> None:
    write(tmp_path / "run", row("a"))
    with (tmp_path / "run" / ITEMS).open("a") as file:
        file.write("not json\n")
    with pytest.raises(RunError, match=r"items\.jsonl:2: not a row of ours"):
        read_rows(tmp_path / "run")


def test_every_line_is_one_json_object_with_the_contracted_keys(tmp_path: Path) -> None:
    write(tmp_path / "run", row("a"))
    record = json.loads((tmp_path / "run" / ITEMS).read_text())
    assert {"id", "probe", "score_chosen", "score_rejected", "verdict", "reason", "orders"} <= set(record)


POOL = Layout(kind="pool", made=("samples.jsonl",))
MODEL = Layout(kind="train", made=("x.npz",), swaps=True, is_alone=True, what="model")


def change_manifest(folder: Path, **change: object) -> None:
    path = folder / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))


@pytest.mark.parametrize(
    "change, told",
    [
        ({"run_id": None}, "its `run_id` is missing or damaged"),
        ({"run_id": "x"}, "its config is not the one that its run_id names"),
        ({"config": {"model": "another"}}, "its config is not the one that its run_id names"),
        ({"config": []}, "its `config` is missing or damaged"),
        ({"facts": None}, "its `facts` is missing or damaged"),
    ],
)
def test_a_damaged_manifest_is_refused_and_fresh_starts_over(
    tmp_path: Path, change: dict[str, object], told: str
) -> None:
    write(tmp_path / "run", row("a"))
    change_manifest(tmp_path / "run", **change)
    before = (tmp_path / "run" / "manifest.json").read_bytes()
    with pytest.raises(RunError, match=told):
        opened(tmp_path / "run")
    assert (tmp_path / "run" / "manifest.json").read_bytes() == before
    with opened(tmp_path / "run", fresh=True) as store:
        assert store.run_id == ASKED.id


@pytest.mark.parametrize("layout", [POOL, MODEL])
@pytest.mark.parametrize("is_finished", [True, False])
def test_fresh_mends_a_damaged_manifest_though_the_run_made_no_file_of_its_kind(
    tmp_path: Path, layout: Layout, is_finished: bool
) -> None:
    with RunStore.open(tmp_path, layout, ASKED) as store:
        if is_finished:
            store.finish({"files": []})
    (tmp_path / "manifest.json").write_text('{"kind":')
    with pytest.raises(RunError, match=r"not valid JSON\. Run the command again with --fresh"):
        RunStore.open(tmp_path, layout, ASKED)
    RunStore.open(tmp_path, layout, ASKED, fresh=True).close()


@pytest.mark.parametrize("name", ["manifest.json", "items.jsonl", "lock"])
def test_a_folder_where_a_file_should_be_is_one_line_and_stays(tmp_path: Path, name: str) -> None:
    write(tmp_path / "run", row("a"))
    (tmp_path / "run" / name).unlink()
    (tmp_path / "run" / name).mkdir()
    for fresh in (False, True) if name != "items.jsonl" else (False,):
        with pytest.raises(RunError, match=name), opened(tmp_path / "run", fresh=fresh) as store:
            store.rows(ITEMS, KEY)
    assert (tmp_path / "run" / name).is_dir()


@pytest.mark.parametrize("text", ["{}", '{"files": 3}', '{"files": [1]}', '{"files": ["../../mine"]}', "[" * 100_000])
def test_a_damaged_list_of_files_takes_no_place_and_removes_nothing_of_others(tmp_path: Path, text: str) -> None:
    folder = tmp_path / "at" / "model"
    with RunStore.open(folder, MODEL, ASKED) as store:
        store.finish({"files": []})
    (tmp_path / "mine").write_text("mine")
    (folder / ".fresh").mkdir()
    (folder / ".fresh" / "summary.json").write_text(text)
    with pytest.raises(RunError, match=r"\.fresh/summary\.json"):
        RunStore.open(folder, MODEL, ASKED)
    (folder / ".fresh" / "summary.json").unlink()
    (folder / "summary.json").write_text(text)
    with RunStore.open(folder, MODEL, ASKED, fresh=True) as store:
        store.finish({"files": []})
    assert (tmp_path / "mine").read_text() == "mine"


def test_what_is_no_checkpoint_of_ours_is_refused_in_one_line(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    path = tmp_path / "checkpoint.pt"
    checkpoint = Checkpoint(path=path, key="k")
    checkpoint.save({"epoch": 1})
    saved = path.read_bytes()
    for content in (b"", b"junkjunk", b"\x80\x02}", saved[:100], [1], {"epoch": 1}, None):
        if isinstance(content, bytes):
            path.write_bytes(content)
        else:
            torch.save(content, path)
        with pytest.raises(RunError, match="no checkpoint of ours"):
            checkpoint.load()
    path.write_bytes(saved)
    assert checkpoint.load() == {"epoch": 1, "key": "k"}


def test_columns_that_are_known_at_the_end_are_filled_in_and_nothing_else_changes(tmp_path: Path) -> None:
    write(tmp_path, row("a"), row("b"))
    path = tmp_path / ITEMS
    path.chmod(0o640)
    plain = path.read_text().splitlines()
    with opened(tmp_path) as store:
        log = store.rows(ITEMS, KEY)
        log.fill({("b", "own"): {"category": "d"}})
        filled = path.stat()
        log.fill({("b", "own"): {"category": "d"}})  # there is nothing to do
        assert path.stat().st_ino == filled.st_ino
        log.append([to_record(row("c"))])  # into the new file
    lines = path.read_text().splitlines()
    assert lines == [plain[0], plain[1].replace('"category": "c"', '"category": "d"'), json.dumps(to_record(row("c")))]
    assert filled.st_mode & 0o777 == 0o640
