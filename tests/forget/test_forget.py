"""Forgetting: all of one person goes, nothing of anybody else does, and the search finds what is left."""

import bz2
import gzip
import io
import json
import os
import shutil
import sqlite3
import zipfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.build.lab_script import Rates, body_of, reply

from prbench.backends.llm import FakeLLM
from prbench.construction.build import BuildSettings, PublishSettings, build
from prbench.construction.privacy.pseudonyms import KEY_VARIABLE, Pseudonyms
from prbench.data import open_examples
from prbench.data.export import write_parquet
from prbench.data.rows import as_row
from prbench.errors import RunError, UsageError
from prbench.evaluation import evaluate
from prbench.evaluation.summary import load_runs
from prbench.lab import LabSize, make_split
from prbench.people.annotate import store as annotations
from prbench.people.annotate.records import Mode
from prbench.people.forget import forget
from prbench.people.forget.person import Person, find_ids, grams_of, words_of
from prbench.reward_models.summaries import Statement, Summary, as_line
from prbench.runs import RunConfig
from prbench.runs.files import KINDS, lock_folder

ROLES = ("generator", "judge", "quality_judge")
DIARY = (
    'On the ninth of May I dropped grandmother\'s "blue" kettle\ninto the harbour of Ullapool — twice, in the rain.'
)
SHARED = "I have been to the market and I bought six apples and a loaf."
KEY = "a key that is only for these tests"


@pytest.fixture(autouse=True)
def _no_key_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(KEY_VARIABLE, raising=False)


def source_rows() -> list[dict[str, Any]]:
    """One question of each of eight people; all wrote the same shopping note, and each a diary entry of their own."""
    rows, seen = [], set[str]()
    for example in make_split("validation", LabSize(users=16, pairs=64)):
        if example.user.id in seen or len(seen) == 8:
            continue
        name = f"person_{len(seen)}"
        seen.add(example.user.id)
        row = {key: value for key, value in as_row(example).items() if key in ("question", "narrative", "category")}
        row |= {"id": f"{name}-q", "user_id": name, "rubric_aspects": as_row(example)["rubric_aspects"]}
        diary = (
            DIARY if name == "person_3" else f"{name} keeps {len(seen)} hens, a goat and a very long list of names."
        )
        posts = [post.text for post in example.user.profile[:5]] + [SHARED, diary]
        row["profile"] = [{"id": f"{name}/{n}", "text": text, "category": ""} for n, text in enumerate(posts)]
        rows.append(row)
    return rows


def models() -> dict[str, FakeLLM]:
    """Models that serve everybody well but one, whose responses all miss an aspect and are rejected."""

    def answer(request: Any) -> str:
        return reply(body_of(request), Rates(violations=1.0) if request.owner == pseudonym("person_6") else Rates())

    return {role: FakeLLM(answer, name=f"fake:{role}") for role in ROLES}


def settings(source: Path) -> BuildSettings:
    return BuildSettings(data=str(source), words=65, retries=1, **dict.fromkeys(ROLES, "fake:x"))


def run_build(folder: Path, llms: dict[str, FakeLLM]) -> Any:
    how = settings(folder / "source.jsonl")
    return build(how, folder / "built", publishing=PublishSettings(private=True), models=llms, audit_encoder="none")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A world with everything in it: source, build, dataset, cache, copies, a run, and an annotation project."""
    os.environ.pop(KEY_VARIABLE, None)
    world = tmp_path_factory.mktemp("made") / "world"
    world.mkdir()
    (world / "source.jsonl").write_text("".join(json.dumps(row) + "\n" for row in source_rows()))
    (world / "built").mkdir()
    (world / "built" / "pseudonym.key").write_text(KEY)
    (world / "built" / "pseudonym.key").chmod(0o600)
    run_build(world, models())
    with open_examples(world / "built" / "pairs.jsonl") as store:
        examples = list(store)
    assert pseudonym("person_3") in {example.user.id for example in examples}
    assert pseudonym("person_6") in {row["user_id"] for row in rows(world / "built" / "rejects.jsonl")}
    write_parquet(examples, world / "copy.parquet")
    lines = (world / "built" / "pairs.jsonl").read_bytes()
    (world / "copy.jsonl.gz").write_bytes(gzip.compress(lines, mtime=0))
    (world / "copy.json").write_text(json.dumps([json.loads(line) for line in lines.splitlines()]))
    plan = annotations.Plan(mode=Mode.VALIDATE, annotators=["ann", "bob"], overlap=2)
    annotations.create(world / "project.db", examples, plan)
    return world


@pytest.fixture
def world(made: Path, tmp_path: Path) -> Path:
    """A copy of that world, with a run on its own data."""
    place = tmp_path / "world"
    shutil.copytree(made, place)
    config = json.loads((place / "built" / "manifest.json").read_text())
    config["data"]["source"] = str(place / "source.jsonl")
    (place / "built" / "manifest.json").write_text(json.dumps(config, indent=1) + "\n")
    evaluate(place / "copy.json", "control:overlap", "profile", out=place / "runs")
    return place


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def pseudonym(user: str) -> str:
    return Pseudonyms(KEY.encode()).name(user)


def all_text(world: Path) -> str:
    """Every byte of the world, unpacked in ways of the test's own."""
    parts = []
    for path in sorted(world.rglob("*")):
        if not path.is_file():
            continue
        content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        parts.append(content.decode("utf-8", errors="replace"))
        if path.suffix == ".parquet":
            import pyarrow.parquet as pq

            parts.append(str(pq.read_table(path).to_pylist()))
        if path.suffix in (".sqlite", ".db"):
            parts.append(dump(path))
    return "\n".join(parts)


def dump(path: Path) -> str:
    """A database as text."""
    with closing(sqlite3.connect(path)) as database:
        return "\n".join(database.iterdump())


def test_a_person_goes_from_everything_and_the_search_says_so(world: Path) -> None:
    new = pseudonym("person_3")
    before = all_text(world)
    assert all(text in before for text in ("person_3", new, "harbour of Ullapool"))
    report = forget("person_3", [world])
    assert report.is_gone
    assert report.person.ids == {"person_3", new}
    after = all_text(world)
    assert not any(text in after for text in ("person_3", new, "harbour of Ullapool", "dropped grandmother"))
    names = {Path(path).name for path in report.removed}
    assert {"source.jsonl", "replies.sqlite", "1_rank.jsonl", "3_generate.jsonl", "project.db"} <= names
    assert {"pairs.jsonl", "copy.parquet", "copy.jsonl.gz", "copy.json", "items.jsonl"} <= names
    assert report.search is not None
    assert report.search.files["parquet"] == 1
    assert report.search.files["sqlite"] == 2


def test_nobody_else_loses_a_byte(world: Path) -> None:
    new = pseudonym("person_3")
    kept = {
        path: [line for line in path.read_bytes().splitlines() if new.encode() not in line and b"person_3" not in line]
        for path in world.rglob("*.jsonl")
        if path.name != "items.jsonl"
    }
    assert len(kept) >= 8
    forget("person_3", [world])
    for path, lines in kept.items():
        assert path.read_bytes().splitlines() == lines, path
    assert [row["user_id"] for row in rows(world / "source.jsonl")] == [f"person_{n}" for n in (0, 1, 2, 4, 5, 6, 7)]
    assert "I bought six apples" in all_text(world)  # theirs as well


def test_a_pseudonym_leads_to_the_person_where_the_key_is_at_hand(world: Path) -> None:
    report = forget(pseudonym("person_3"), [world])
    assert report.is_gone
    assert "person_3" not in all_text(world)


def test_where_pseudonyms_cannot_be_made_nothing_is_claimed(world: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (world / "built" / "pseudonym.key").unlink()
    for place in (world / "built", world / "built" / "dataset", world):
        with pytest.raises(UsageError, match="go by pseudonyms"):
            forget("person_3", [place])
    monkeypatch.setenv(KEY_VARIABLE, "the key of quite another build")
    with pytest.raises(UsageError, match="key is not at hand"):
        forget("person_3", [world])
    monkeypatch.setenv(KEY_VARIABLE, KEY)
    assert forget("person_3", [world]).is_gone
    assert pseudonym("person_3") not in all_text(world)


def test_the_counts_of_the_build_still_add_up(world: Path) -> None:
    old = json.loads((world / "built" / "summary.json").read_text())
    for user in ("person_3", "person_5"):
        forget(user, [world])
    manifest = json.loads((world / "built" / "summary.json").read_text())
    assert old["stages"]["rank"]["in"] == 8
    assert (manifest["forgotten"], manifest["data"]["rows"], manifest["stages"]["rank"]["in"]) == (2, 6, 6)
    entered = 6
    for stage in manifest["stages"].values():
        assert stage["in"] == entered
        assert stage["in"] == stage["out"] + sum(stage["rejected"].values()) + stage["failed"]
        entered = stage["out"]
    assert manifest["pairs"] == entered == len(rows(world / "built" / "pairs.jsonl"))
    assert not (world / "built" / "audit.json").exists()


def test_the_build_goes_on_without_them_and_pays_for_nothing(world: Path) -> None:
    forget("person_3", [world])
    kept = {name: (world / "built" / name).read_bytes() for name in ("pairs.jsonl", "rejects.jsonl", "5_parity.jsonl")}
    again = models()
    built = run_build(world, again)
    assert sum(len(llm.requests) for llm in again.values()) == 0
    assert {name: (world / "built" / name).read_bytes() for name in kept} == kept
    assert built.dataset is not None
    assert json.loads((world / "built" / "summary.json").read_text())["forgotten"] == 1
    assert forget("person_3", [world]).is_gone


def test_the_dataset_and_its_card_say_what_is_left(world: Path) -> None:
    from datasets import load_dataset

    dataset = world / "built" / "dataset"
    forget("person_3", [world])
    text = (dataset / "README.md").read_text()
    left = len(rows(world / "built" / "pairs.jsonl"))
    assert f"| pairs | {left} |" in text
    assert "People were forgotten since this set was made" in text
    with open_examples(dataset) as store:
        assert len(store) == left
        configs = {example.category for example in store}
    loaded = [row for config in configs for row in load_dataset(str(dataset), config, split="test", streaming=True)]
    assert len(loaded) == left


def test_a_category_that_nobody_is_left_in_goes_from_the_card(world: Path) -> None:
    dataset = world / "built" / "dataset"
    with open_examples(dataset) as store:
        everybody = [(example.user.id, example.category) for example in store]
    gone = everybody[0][1]
    for user, category in everybody:
        if category == gone:
            assert forget(user, [dataset]).is_gone
    with open_examples(dataset) as store:
        assert {example.category for example in store} == {category for _, category in everybody} - {gone}
    assert gone not in (dataset / "README.md").read_text().split("---")[1]


def test_a_run_is_summed_up_again(world: Path) -> None:
    (run,) = (world / "runs").iterdir()
    old = json.loads((run / "summary.json").read_text())
    forget("person_3", [world])
    new = json.loads((run / "summary.json").read_text())
    fresh = evaluate(world / "copy.json", "control:overlap", "profile").summary
    assert new["n_items"] == old["n_items"] - 1
    assert new["forgotten_items"] == 1
    for figure in ("accuracy", "coverage", "n_items", "personalization_gain"):
        assert new[figure] == fresh[figure]
    (reported,) = load_runs([run]).runs  # and not left out as unfinished
    assert reported.summary["n_items"] == new["n_items"]


def test_items_of_others_that_were_asked_with_the_profile_are_listed_and_their_rows_go(world: Path) -> None:
    (run,) = (world / "runs").iterdir()
    with open_examples(world / "copy.json") as store:
        donors = {store[n].id: store.donor(n, 0) for n in range(len(store))}
    lent: dict[str, list[str]] = {}
    for item, donor in donors.items():
        if donor is not None:
            lent.setdefault(donor.id, []).append(item)
    user, items = next(iter(lent.items()))
    report = forget(user, [world])
    assert report.swapped == {str(run): sorted(items)}
    left = [(row["id"], row["probe"]) for row in rows(run / "items.jsonl")]
    assert not any((item, "swap") in left for item in items)
    assert all((item, "own") in left for item in items)


def test_a_run_whose_data_has_changed_is_noted(world: Path) -> None:
    (world / "copy.json").write_text("[]")
    report = forget(pseudonym("person_3"), [world / "runs"])
    assert any("nobody can tell which swap rows" in note for note in report.notes)


def test_a_dry_run_changes_nothing_and_shows_the_same(world: Path) -> None:
    before = final(world)
    shown = forget("person_3", [world], dry_run=True)
    assert shown.search is None
    assert final(world) == before
    done = forget("person_3", [world])
    assert (shown.removed, shown.swapped) == (done.removed, done.swapped)


def test_what_we_cannot_mend_is_found_and_named(world: Path) -> None:
    (world / "notes.md").write_text("I asked person_3 about it.\n")
    (world / "page.html").write_text("<p>into the <b>harbour</b> of Ullapool &mdash; twice, in the rain</p>")
    escaped = json.dumps({"reply": json.dumps({"text": DIARY})})
    (world / "log.txt").write_text(f"2026 {escaped}\n")
    with gzip.open(world / "old.txt.gz", "wt") as file:
        file.write("quoted: INTO THE HARBOUR OF ULLAPOOL TWICE IN THE RAIN")
    (world / "person_3.bin").write_bytes(b"\0\1")
    report = forget("person_3", [world])
    assert report.search is not None
    found = {(Path(trace.path).name, trace.what.partition(":")[0]) for trace in report.search.traces}
    assert found == {
        ("notes.md", "id"),
        ("page.html", "text"),
        ("log.txt", "text"),
        ("old.txt.gz", "text"),
        ("person_3.bin", "id"),
    }
    assert not report.is_gone


def test_a_reply_without_an_owner_goes_if_it_quotes_or_names_the_person(world: Path) -> None:
    with sqlite3.connect(world / "built" / "replies.sqlite") as database:
        reply_text = json.dumps({"text": f"They said: {DIARY}"})
        database.execute("INSERT INTO replies VALUES ('quote', ?)", (reply_text,))
        database.execute("INSERT INTO replies VALUES ('name', ?)", (json.dumps({"text": "person_3, probably"}),))
        database.execute("INSERT INTO replies VALUES ('other', ?)", (json.dumps({"text": SHARED}),))
    assert forget("person_3", [world]).is_gone
    with sqlite3.connect(world / "built" / "replies.sqlite") as database:
        keys = {key for (key,) in database.execute("SELECT key FROM replies")}
    assert "other" in keys
    assert not {"quote", "name"} & keys


def test_a_mention_in_somebody_elses_row_is_struck_out(world: Path) -> None:
    path = world / "built" / "rejects.jsonl"
    others = {"id": "person_1-q", "user_id": "person_1", "stage": "parity", "reason": "near_duplicate", "detail": ""}
    with path.open("a") as file:
        file.write(json.dumps(others | {"detail": "repeats person_3-q, not person_33-q"}) + "\n")
    report = forget("person_3", [world])
    assert report.is_gone
    assert report.mentions == {str(path): 1}
    assert rows(path)[-1]["detail"] == "repeats [forgotten]-q, not person_33-q"


class KilledError(BaseException):
    """Stands for kill -9: nothing in the program expects it."""


def killed_after(steps: int, monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """Kill the process at the n-th renaming of a file; return how often files were renamed."""
    real, calls = os.replace, [0]

    def replace(*args: Any, **kwargs: Any) -> None:
        calls[0] += 1
        if calls[0] == steps:
            raise KilledError
        real(*args, **kwargs)

    monkeypatch.setattr(os, "replace", replace)
    return lambda: calls[0]


def final(world: Path) -> dict[str, bytes | str]:
    """What counts in the end: every file but databases, whose contents are compared as text."""
    content: dict[str, bytes | str] = {}
    for path in sorted(world.rglob("*")):
        name = str(path.relative_to(world))
        if path.suffix in (".sqlite", ".db"):
            content[name] = dump(path)
        elif path.is_file() and not name.endswith(("-wal", "-shm", "lock")):
            content[name] = path.read_bytes()
    return content


@pytest.mark.slow
def test_killed_at_any_renaming_the_same_command_finishes(
    world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = tmp_path / "undisturbed" / "world"
    shutil.copytree(world, whole)
    with monkeypatch.context() as patch:
        count = killed_after(0, patch)
        forget("person_3", [whole])
        renamings = count()
    assert renamings >= 10
    wanted = final(whole)
    wanted.pop("built/manifest.json")  # holds the path of the source
    for step in range(1, renamings + 1):
        place = tmp_path / f"killed-{step}" / "world"
        shutil.copytree(world, place)
        with monkeypatch.context() as patch:
            killed_after(step, patch)
            with pytest.raises(KilledError):
                forget("person_3", [place])
        assert forget("person_3", [place]).is_gone, step
        result = final(place)
        result.pop("built/manifest.json")
        assert result == wanted, step


def test_what_a_killed_forgetting_left_half_written_goes(world: Path) -> None:
    (world / "source.jsonl.forgetting.1.tmp").write_text(DIARY)
    assert forget("person_3", [world]).is_gone


def test_a_folder_that_is_being_written_is_left_alone(world: Path) -> None:
    with lock_folder(world / "built"), pytest.raises(RunError, match="another process"):
        forget("person_3", [world])
    assert "person_3" in (world / "source.jsonl").read_text()


def test_texts_from_elsewhere_are_searched_for(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "log.txt").write_text(f"reply: {DIARY}")
    (tmp_path / "export.jsonl").write_text(json.dumps({"user_id": "person_3", "text": DIARY}) + "\n")
    assert forget("person_3", [tmp_path / "in"]).is_gone  # nobody knows what they wrote
    report = forget("person_3", [tmp_path / "in"], texts=[tmp_path / "export.jsonl"])
    assert not report.is_gone
    assert (tmp_path / "export.jsonl").exists()


def test_a_person_nobody_knows_is_no_proof_but_for_the_id(world: Path, shell: Any) -> None:
    report = forget("nobody_99", [world])
    assert (report.removed, report.is_known, report.is_gone) == ({}, False, True)
    code, out = shell("data", "forget", "nobody_99", "--in", str(world / "source.jsonl"))
    assert code == 0  # the same command again after a forgetting
    assert "nobody here has this id" in out
    assert "nothing of this person was found" not in out


@pytest.mark.parametrize("user", ["7", "1234", "abc"])
def test_where_nothing_can_be_looked_for_nothing_is_claimed(user: str, tmp_path: Path, shell: Any) -> None:
    (tmp_path / "rows.jsonl").write_text(json.dumps({"user_id": "person_4", "text": SHARED}) + "\n")
    code, out = shell("data", "forget", user, "--in", str(tmp_path))
    assert code == 1
    assert "nobody to search for" in out


ROW = {"user_id": "48213377", "text": "The quick brown fox jumps over the lazy dog again today"}
LINE = json.dumps(ROW).encode() + b"\n"


@pytest.mark.parametrize("start", [b"\xef\xbb\xbf", b"\n", b"  \n\n", b"\xef\xbb\xbf\n", b"{broken\n"])
def test_rows_after_a_byte_order_mark_or_blank_or_damaged_lines_go(start: bytes, tmp_path: Path) -> None:
    other = json.dumps({"user_id": "9911", "text": SHARED}).encode() + b"\n"
    (tmp_path / "rows.jsonl").write_bytes(start + LINE + other)
    report = forget("48213377", [tmp_path])
    assert (report.removed, report.is_gone) == ({str(tmp_path / "rows.jsonl"): 1}, True)
    left = (tmp_path / "rows.jsonl").read_bytes()
    assert b"48213377" not in left
    assert left.endswith(other)


def zipped(name: str, content: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED)  # dated 1980: the same bytes
    return file.getvalue()


TABLE = f'user_id;text\n48213377;"{ROW["text"]}"\n'


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("rows.csv", TABLE.encode()),
        ("rows.tsv", TABLE.replace(";", "\t").encode("utf-16")),
        ("rows.zip", zipped("rows.jsonl", LINE)),
        ("rows.zip", zipped("inner.zip", zipped("rows.csv.gz", gzip.compress(TABLE.encode(), mtime=0)))),
        ("rows.jsonl.bz2", bz2.compress(LINE)),
        ("rows.json", json.dumps({"rows": [ROW]}, indent=1).encode()),
        ("rows.json", json.dumps({"rows": [ROW]}).encode()),
        ("rows.json", json.dumps([[ROW]]).encode()),
        ("rows.jsonl", json.dumps({"user_id": "bob_the", "thread": [ROW]}).encode()),
    ],
)
def test_rows_that_we_cannot_take_out_are_named_and_stay_as_they_are(
    name: str, content: bytes, tmp_path: Path
) -> None:
    (tmp_path / name).write_bytes(content)
    report = forget("48213377", [tmp_path])
    assert report.search is not None
    assert {trace.what.partition(":")[0] for trace in report.search.traces} >= {"row", "id", "text"}
    assert not report.is_gone
    assert (tmp_path / name).read_bytes() == content


@pytest.mark.parametrize(
    "row", [{"author": "anna_k", "text": "Two words"}, {"user_id": ["anna_k"], "text": "Two words"}]
)
def test_an_id_stays_where_it_is_all_that_tells_whose_texts_these_are(row: Any, tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text(json.dumps(row) + "\n" + json.dumps({"user_id": "bob", "text": "hi"}) + "\n")
    before = (tmp_path / "rows.jsonl").read_bytes()
    report = forget("anna_k", [tmp_path])
    assert report.search is not None
    assert [trace.what for trace in report.search.traces] == ["id: anna_k"]
    assert (tmp_path / "rows.jsonl").read_bytes() == before


def test_a_number_is_found_as_a_word_and_struck_out_only_where_it_is_no_prose(tmp_path: Path) -> None:
    others = {"user_id": "bob_the", "text": "It cost 48213377 and 148213377.", "of": "48213377-q", "n": 0.48213377}
    (tmp_path / "rows.jsonl").write_bytes(LINE + json.dumps(others).encode() + b"\n")
    report = forget("48213377", [tmp_path])
    assert rows(tmp_path / "rows.jsonl") == [others | {"of": "[forgotten]-q"}]
    assert report.search is not None
    assert [trace.what for trace in report.search.traces] == ["id: 48213377"]
    (tmp_path / "rows.jsonl").write_text('{"user_id": "bob_the", "text": "148213377, 1.48213377"}\n')
    assert forget("48213377", [tmp_path]).is_gone


@pytest.mark.parametrize("is_ascii", [True, False])
@pytest.mark.parametrize("separators", [(", ", ": "), (",", ":")])
def test_escapes_and_capitals_hide_no_id(is_ascii: bool, separators: tuple[str, str], tmp_path: Path) -> None:
    mine = {"user_id": "żaneta_k", "text": DIARY}
    other = {"user_id": "bob_the", "text": "I agree with Żaneta_K, as in łódź.", "votes": {"ŻANETA_K": 1}}
    kept = {"user_id": "bob_the", "text": "żaneta_k2 is somebody else, in Łódź"}
    dumped = [json.dumps(row, ensure_ascii=is_ascii, separators=separators) for row in (mine, other, kept)]
    (tmp_path / "rows.jsonl").write_text("\n".join(dumped) + "\n", encoding="utf-8")
    assert forget("żaneta_k", [tmp_path]).is_gone
    struck = other | {"text": "I agree with [forgotten], as in łódź.", "votes": {"[forgotten]": 1}}
    wanted = [json.dumps(struck, ensure_ascii=is_ascii, separators=separators), dumped[2]]
    assert (tmp_path / "rows.jsonl").read_text(encoding="utf-8").splitlines() == wanted


def test_an_escaped_id_is_found_in_any_file(tmp_path: Path) -> None:
    (tmp_path / "log.txt").write_text("said " + json.dumps({"x": json.dumps("Żaneta_K")}))
    (tmp_path / "page.html").write_text("by &#380;aneta_k")
    report = forget("żaneta_k", [tmp_path])
    assert report.search is not None
    assert {Path(trace.path).name for trace in report.search.traces} == {"log.txt", "page.html"}


def test_an_id_that_differs_by_capitals_is_somebody_else_or_a_slip(tmp_path: Path) -> None:
    lines = [{"user_id": "Anna_K", "text": DIARY}, {"user_id": "anna_k", "text": SHARED}]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert forget("Anna_K", [tmp_path]).is_gone
    assert rows(tmp_path / "rows.jsonl") == lines[1:]
    report = forget("ANNA_K", [tmp_path])
    assert report.search is not None
    assert [trace.what for trace in report.search.traces] == [
        "capitals: of anna_k, which is the same id but for capitals"
    ]
    assert not report.is_gone


def foreign_database(path: Path) -> bytes:
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("CREATE TABLE replies (id, body)")
        database.execute("INSERT INTO replies VALUES (1, 'hello')")
    return path.read_bytes()


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("x.zip", b"PK\x03\x04garbage"),
        ("x.xz", b"\xfd7zXZ\0garbage"),
        ("x.bz2", b"BZhgarbage"),
        ("x.parquet", b"PAR1garbage"),
        ("x.db", b"SQLite format 3\0" + b"garbage" * 100),
        ("x.jsonl.gz", gzip.compress(b'{"user_id": "bob", "text": "x y z"}\n' * 100, mtime=0)[:60]),
        ("manifest.json", b'{"config": '),
    ],
)
def test_what_cannot_be_read_is_named_and_the_rest_goes_on(
    name: str, content: bytes, tmp_path: Path, shell: Any
) -> None:
    (tmp_path / name).write_bytes(content)
    (tmp_path / "rows.jsonl").write_bytes(LINE)
    code, out = shell("data", "forget", "48213377", "--in", str(tmp_path))
    assert code == 1
    assert out.count("  could not be read: ") == 1
    assert f"  could not be read: {tmp_path / name} (" in out
    assert "this is no proof" in out
    assert (tmp_path / "rows.jsonl").read_bytes() == b""
    assert (tmp_path / name).read_bytes() == content


def test_other_peoples_files_with_our_names_are_searched_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_bytes(LINE)
    (tmp_path / "build.json").write_text("{}")
    (tmp_path / "manifest.json").write_text('{"name": "an extension"}')
    (tmp_path / "items.jsonl").write_text('{"user_id": "bob", "text": "caf\xe9"}\n', encoding="latin-1")
    foreign = foreign_database(tmp_path / "forum.db")
    report = forget("48213377", [tmp_path])
    assert (report.is_gone, report.unread) == (True, {})
    assert (tmp_path / "forum.db").read_bytes() == foreign
    assert b"caf\xe9" in (tmp_path / "items.jsonl").read_bytes()


def test_rows_without_a_persons_id_go_by_the_id_that_reading_gives_them(tmp_path: Path) -> None:
    row = {key: value for key, value in source_rows()[3].items() if key != "user_id"}
    pair = row | {"chosen": "Yes, do.", "rejected": "No, do not."}
    (tmp_path / "rows.jsonl").write_text(json.dumps(pair) + "\n" + json.dumps(source_rows()[4]) + "\n")
    with open_examples([pair]) as store:
        user = store[0].user.id
    assert user.startswith("profile-")
    assert forget(user, [tmp_path]).is_gone
    assert [one["id"] for one in rows(tmp_path / "rows.jsonl")] == ["person_4-q"]


def test_a_short_id_goes_from_its_fields_and_is_no_word_to_look_for(tmp_path: Path) -> None:
    lines = [{"user_id": 7, "text": DIARY}, {"user_id": 17, "text": "I have 7 hens and 7 goats in the yard."}]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    report = forget("7", [tmp_path])
    assert report.is_gone
    assert report.person.searchable_ids == []
    assert rows(tmp_path / "rows.jsonl") == lines[1:]


def test_a_link_leads_to_the_file_itself(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    (tmp_path / "in").mkdir()
    (tmp_path / "store" / "rows.jsonl").write_text(json.dumps({"user_id": "person_3", "text": DIARY}) + "\n")
    (tmp_path / "in" / "rows.jsonl").symlink_to(tmp_path / "store" / "rows.jsonl")
    assert forget("person_3", [tmp_path / "in"]).is_gone
    assert (tmp_path / "store" / "rows.jsonl").read_text() == ""


def test_a_path_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such file or folder"):
        forget("person_3", [tmp_path / "missing"])


def test_quotes_are_known_through_escapes_tags_and_capitals() -> None:
    plain = words_of('A "blue" kettle\nfell, twice: café')
    assert plain == ["a", "blue", "kettle", "fell", "twice", "café"]
    assert words_of(json.dumps('A "blue" kettle\nfell, twice: café')) == plain
    assert words_of(json.dumps(json.dumps('A "blue" kettle\nfell, twice: café'))) == plain
    assert words_of("<p>A &quot;blue&quot; <b>kettle</b> fell, TWICE: caf&eacute;</p>") == plain


def test_short_texts_are_quotes_as_a_whole_and_shorter_ones_none() -> None:
    assert list(grams_of("Too short this")) == []
    assert list(grams_of("Just four words here")) == [("just", "four", "words", "here")]
    assert len(list(grams_of("one two three four five six seven eight nine"))) == 2


def test_an_id_is_no_part_of_a_longer_one() -> None:
    person = Person(ids={"anna"}, other_ids={"anna-maria"})
    assert person.named_in("by anna.") == "anna"
    assert person.named_in("anna_1, anna-2") == "anna"
    assert person.named_in("annabel, hanna, anna-maria") == ""


def test_every_id_of_a_person_is_found_from_any_of_them() -> None:
    names = Pseudonyms(b"sixteen bytes ok")
    new = names.name("anna")
    assert find_ids("anna", [names], ["bob"]) == {"anna", new}
    assert find_ids(new, [names], ["bob", "anna"]) >= {"anna", new}
    with pytest.raises(UsageError, match="No user"):
        find_ids(" ", [], [])


def test_the_command_ends_with_0_when_the_person_is_gone_and_1_when_not(world: Path, shell: Any) -> None:
    code, out = shell("data", "forget", "person_3", "--in", str(world), "--json")
    content = json.loads(out)
    assert (code, content["gone"], content["search"]["found"]) == (0, True, [])
    (world / "notes.md").write_text("person_5 was here")
    code, out = shell("data", "forget", "person_5", "--in", str(world))
    assert code == 1
    assert "LEFT:" in out


def test_summaries_of_a_person_go_and_those_of_others_stay(tmp_path: Path) -> None:
    rows = source_rows()
    (tmp_path / "source.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    lines = {
        row["user_id"]: as_line(
            tuple(post["text"] for post in row["profile"]),
            Summary(statements=(Statement("things that last", 0.8),)),
            "x",
        )
        for row in rows
    }
    (tmp_path / "summaries.jsonl").write_text("".join(lines.values()))
    done = forget("person_3", [tmp_path])
    assert done.is_gone
    left = (tmp_path / "summaries.jsonl").read_text().splitlines(keepends=True)
    assert left == [line for user, line in lines.items() if user != "person_3"]


KINDS_OF_RUNS = ("eval", "bon", "ppo", "train", "build", "planner", "pool", "grades", "scores")


def folder_of(kind: str, folder: Path) -> Path:
    """A folder that a command of ours left, with one row of the person and one of somebody else."""
    folder.mkdir()
    (folder / "manifest.json").write_text(json.dumps(RunConfig(config={"model": "m"}).manifest(kind)))
    (folder / "samples.jsonl").write_text('{"user_id": "48213377"}\n{"user_id": "bob"}\n')
    return folder


@pytest.mark.parametrize("kind", KINDS_OF_RUNS)
def test_what_any_command_of_ours_is_writing_is_left_alone(kind: str, tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_bytes(LINE)
    folder = folder_of(kind, tmp_path / "run")
    (folder / "summary.json.12.tmp").write_text("half")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with lock_folder(folder), pytest.raises(RunError, match="another process"):
        forget("48213377", [tmp_path])
    assert {path: path.read_bytes() for path in before} == before
    assert forget("48213377", [tmp_path], dry_run=True).removed
    forget("48213377", [tmp_path])
    assert (folder / "samples.jsonl").read_text() == '{"user_id": "bob"}\n'


def test_every_kind_of_run_is_known_to_forgetting() -> None:
    assert set(KINDS_OF_RUNS) == set(KINDS)


def test_a_fresh_run_beside_a_finished_one_and_a_damaged_one_have_writers_too(tmp_path: Path) -> None:
    home = folder_of("train", tmp_path / "home")
    folder_of("train", home / ".fresh")
    with lock_folder(home), pytest.raises(RunError, match="another process"):
        forget("48213377", [home / ".fresh"])
    assert not (home / ".fresh" / "lock").exists()
    damaged = folder_of("pool", tmp_path / "damaged")
    (damaged / "manifest.json").write_text('{"kind":')
    with lock_folder(damaged), pytest.raises(RunError, match="another process"):
        forget("48213377", [damaged])


def test_a_writer_elsewhere_that_a_link_leads_to_is_left_alone(tmp_path: Path) -> None:
    folder = folder_of("pool", tmp_path / "pool")
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "rows.jsonl").symlink_to(folder / "samples.jsonl")
    with lock_folder(folder), pytest.raises(RunError, match="another process"):
        forget("48213377", [tmp_path / "links"])


@pytest.mark.parametrize("name, content", [("lock", None), ("manifest.json", None), ("manifest.json", "[" * 100_000)])
def test_a_damaged_run_stops_no_forgetting(world: Path, name: str, content: str | None) -> None:
    (run,) = (world / "runs").iterdir()
    (run / name).unlink()
    if content is None:
        (run / name).mkdir()
    else:
        (run / name).write_text(content)
    report = forget("person_3", [world])
    assert set(report.unread) <= {str(run / name)}
    assert '"person_3"' not in (world / "source.jsonl").read_text()


@pytest.mark.parametrize(
    "change",
    [{"data": None}, {"facts": None}, {"config": None}, {"facts": {}}, {"run_id": "x"}],
    ids=json.dumps,
)
def test_a_run_or_build_whose_manifest_is_damaged_is_named_and_the_rest_goes_on(
    world: Path, change: dict[str, Any]
) -> None:
    (run,) = (world / "runs").iterdir()
    for folder in (run, world / "built"):
        path = folder / "manifest.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | change))
    report = forget("person_3", [world])
    assert str(run) in report.unread
    assert not report.is_gone
    assert '"person_3"' not in (world / "source.jsonl").read_text()


def test_a_changed_file_keeps_its_mode(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_bytes(LINE + b'{"user_id": "bob"}\n')
    (tmp_path / "rows.jsonl").chmod(0o640)
    forget("48213377", [tmp_path])
    assert (tmp_path / "rows.jsonl").read_text() == '{"user_id": "bob"}\n'
    assert (tmp_path / "rows.jsonl").stat().st_mode & 0o777 == 0o640
    assert [path.name for path in tmp_path.iterdir()] == ["rows.jsonl"]
