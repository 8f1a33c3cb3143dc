"""From run folders to a diagnosis: fields that a dataset offers, the hard slice as data, and what is refused."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from prbench.data import DataSettings, open_examples
from prbench.errors import UsageError
from prbench.evaluation import EvalSettings, evaluate
from prbench.insight.diagnose import Diagnosis, diagnose, disagreements, named, weakest, write_hard, write_label_next
from prbench.insight.diagnose.run_table import RunTable
from prbench.insight.diagnose.slices import SliceFinding, find_fields, measure
from prbench.lab import LabSize, make_split
from prbench.pages.diagnose import limits_text
from prbench.schema import Probe, Row, Verdict
from prbench.training.data import load_training_data

Rows = list[dict[str, Any]]


def small_lab(split: str = "validation") -> list[Any]:
    return list(make_split(split, LabSize(users=40, pairs=120), seed=3))


def people(count: int = 30, *, split: str = "train", odd: str = "hard") -> Rows:
    """Pairs of which the longer response is right, but for every pair of the kind `odd`."""
    rows = []
    for n in range(count):
        kind = odd if n % 3 == 0 else "easy"
        sides = ["One two three four five.", f"Six {n}."]
        chosen, rejected = sides if kind == "easy" else sides[::-1]
        rows.append(
            {
                "id": f"i{n:03d}",
                "user_id": f"u{n:03d}",
                "question": "What " + "now " * (n % 12 + 1) + "?",
                "profile": [{"id": f"p{n}-{i}", "text": f"Post {i} of {n}."} for i in range(n % 4)],
                "chosen": chosen,
                "rejected": rejected,
                "category": ("a", "b")[n % 2],
                "split": split,
                "meta": {"kind": kind, "number": n, "tags": ["x", "y"] if n % 2 else ["x"]},
            }
        )
    return rows


@pytest.fixture
def run_on(tmp_path: Path) -> Callable[..., Path]:
    """Ask a control about rows in a file, and return the run's folder."""

    def ask(rows: Rows, model: str = "control:longest", name: str = "pairs.jsonl", **settings: Any) -> Path:
        path = tmp_path / name
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        run = evaluate(path, model, settings=EvalSettings(**settings), out=tmp_path / "runs")
        assert run.folder is not None
        return run.folder

    return ask


def field(found: Diagnosis, name: str) -> dict[str, int]:
    return {each.value: len(each.items) for each in found.slices if each.field == name}


def test_the_lab_is_cut_by_its_truth(tmp_path: Path) -> None:
    rows = small_lab()
    run = evaluate(rows, "control:longest", out=tmp_path)
    without = diagnose([run.folder])
    names = [each.name for each in without.fields]
    assert {"category", "subject", "level", "informative_posts", "aspects_differ", "minority", "posts seen"} <= set(
        names
    )
    assert not {"trait", "pair", "split"} & set(names)  # lists need the data; a name per pair is no slice
    assert "given in Python" in without.run_table.notes[0]
    assert field(without, "minority") == {
        "no": sum(row.meta["majority"] for row in rows),
        "yes": sum(not row.meta["majority"] for row in rows),
    }


def test_traits_come_from_the_gold_aspects_that_differ(run_on: Callable[..., Path], tmp_path: Path) -> None:
    from prbench.data.rows import as_row

    rows = small_lab()
    found = diagnose([run_on([as_row(row) for row in rows])], by=["trait", "wanted"])
    expected = {
        trait: sum(trait in (*row.meta["gold"]["chosen"], *row.meta["gold"]["rejected"]) for row in rows)
        for trait in ("thrift", "beauty")
    }
    assert {trait: field(found, "trait")[trait] for trait in expected} == expected
    assert field(found, "wanted")["thrift"] == sum("thrift" in row.meta["wanted"] for row in rows)
    assert {each.field for each in found.slices} == {"trait", "wanted"}


def test_any_dataset_offers_what_its_rows_hold(run_on: Callable[..., Path]) -> None:
    found = diagnose([run_on(people(48), posts=2)])
    assert field(found, "category") == {"a": 24, "b": 24}
    assert field(found, "kind") == {"easy": 32, "hard": 16}
    assert field(found, "tags") == {"x": 48, "y": 24}
    assert field(found, "posts") == {"0": 12, "1": 12, "2": 12, "3": 12}
    assert field(found, "posts seen") == {"0": 12, "1": 12, "2": 24}
    # 2 to 13 words, each in four questions: quarters of three numbers.
    assert field(found, "words of the question") == {"3–5": 12, "6–8": 12, "9–11": 12, "12–14": 12}
    assert field(found, "number") == {"0–11": 12, "12–23": 12, "24–35": 12, "36–47": 12}


def test_without_facts_the_minority_is_where_the_run_is_wrong_without_a_profile(run_on: Callable[..., Path]) -> None:
    rows = people(12)
    for n, row in enumerate(rows):  # overlap with the profile decides for the first six, and nothing for the others
        row["profile"] = [{"id": "p", "text": row["rejected"]}] if n < 6 else []
    found = diagnose([run_on(rows, "control:overlap")])
    alone = found.run_table.alone[0]
    right = sum(alone[row["id"]].verdict.value == "chosen" for row in rows)
    wrong = sum(alone[row["id"]].verdict.value == "rejected" for row in rows)
    expected = {name: count for name, count in (("no", right), ("yes", wrong)) if count}
    assert field(found, "minority") == (expected if len(expected) > 1 else {})
    assert all(each.by_outcome == (each.name == "minority") for each in found.fields)
    # A rule that ignores the profile is right exactly where it is right without one: that says nothing.
    assert field(diagnose([run_on(rows)]), "minority") == {}


def test_the_weakest_slice_is_found_and_written_as_data_to_train_on(
    run_on: Callable[..., Path], tmp_path: Path
) -> None:
    found = diagnose([run_on(people(90))])
    slice_ = weakest(found.slices)
    assert slice_.name == "kind=hard"
    assert slice_.cells[0].accuracy.value == 0.0
    assert slice_.cells[0].extra_errors == pytest.approx(30.0)
    assert found.weak[0] is slice_
    counts = write_hard(found.run_table, [slice_], tmp_path / "hard")
    assert sum(counts.values()) == 30
    users = {}
    for split in ("train", "validation"):
        with open_examples(tmp_path / "hard", split=split) as store:
            assert len(store) == counts[split]
            assert {row.meta["kind"] for row in store} == {"hard"}
            users[split] = {row.user.id for row in store}
    assert not users["train"] & users["validation"]
    card = (tmp_path / "hard" / "README.md").read_text()
    assert "`kind=hard`" in card
    assert "0.0 % of 30 pairs" in card
    assert "on all 90 pairs 66.7 %" in card
    assert found.run_table.runs[0].folder.name in card


def test_slices_can_be_named_crossed_and_cut_to_errors(run_on: Callable[..., Path], tmp_path: Path) -> None:
    found = diagnose([run_on(people(90))])
    both = named(found.slices, ["kind=hard", "category=a"])
    assert sum(write_hard(found.run_table, both, tmp_path / "both").values()) == 15
    category = named(found.slices, ["category=b"])
    counts = write_hard(found.run_table, category, tmp_path / "errors", errors_only=True)
    assert sum(counts.values()) == 15
    with pytest.raises(UsageError, match=r"no such slice. There are: kind=easy, kind=hard"):
        named(found.slices, ["kind=odd"])
    with pytest.raises(UsageError, match="No item is left"):
        write_hard(found.run_table, named(found.slices, ["kind=easy"]), tmp_path / "none", errors_only=True)


def hard_without_a_minority(make_row: Callable[..., Row], pairs: int = 600) -> RunTable:
    """A run on pairs of differing difficulty, for which the profile changes chance and nothing else."""
    dice = np.random.default_rng(0)
    difficulty = dice.normal(0.6, 1.0, size=pairs)
    sides = {
        probe: [
            make_row(f"i{n}", f"u{n}", Verdict.CHOSEN if margin > 0 else Verdict.REJECTED, probe=probe)
            for n, margin in enumerate(difficulty + dice.normal(size=pairs))
        ]
        for probe in (Probe.OWN, Probe.NONE)
    }
    return RunTable(
        runs=(),
        rows=(tuple(sides[Probe.OWN]),),
        alone=({row.id: row for row in sides[Probe.NONE]},),
        examples={},
        sources=(),
        splits=(),
        notes=(),
    )


def test_slices_by_the_impersonal_answer_are_shown_but_never_tested_or_exported(
    make_row: Callable[..., Row],
) -> None:
    run_table = hard_without_a_minority(make_row)
    slices = measure(run_table.rows, find_fields(run_table))
    cells = {each.name: each.cells[0] for each in slices}
    # What was hard without a profile is hard with one; that says nothing of minorities.
    wrong, right = (cells[f"without a profile={answer}"] for answer in ("wrong", "right"))
    assert wrong.accuracy.value < right.accuracy.value - 0.2
    assert {cell.finding for cell in cells.values()} == {SliceFinding.NOT_TESTED}
    with pytest.raises(UsageError, match="no hard slice to export"):
        weakest(slices)


def test_a_minority_that_the_data_states_is_tested(run_on: Callable[..., Path]) -> None:
    rows = people(90)
    for row in rows:
        row["meta"] = {"majority": row["meta"]["kind"] == "easy"}
    found = diagnose([run_on(rows)])
    assert weakest(found.slices).name == "minority=yes"
    assert "Not tested" not in limits_text(found)


@pytest.mark.parametrize("telling", ["minority", "without a profile"])
def test_items_to_label_are_not_spread_over_what_tells_the_label(run_on: Callable[..., Path], telling: str) -> None:
    rows = people(30)
    for row in rows:
        row["meta"] |= {"majority": row["meta"]["kind"] == "easy"} if telling == "minority" else {}
    folder = run_on(rows)
    found = diagnose([folder], by=[telling, "category"], label_next=6)
    assert found.label_next == diagnose([folder], by=["category"], label_next=6).label_next
    assert found.notes == (f"--by {telling}: tells the label, so the items to label are not spread over it.",)
    assert diagnose([folder], by=[telling]).notes == ()


@pytest.mark.parametrize("users", [4, 5, 9, 30])
def test_a_hard_slice_can_be_trained_on_however_few_users_a_category_has(
    run_on: Callable[..., Path], tmp_path: Path, users: int
) -> None:
    rows = people(3 * users)
    for n, row in enumerate(rows):
        row["category"] = f"only {n}"
    found = diagnose([run_on(rows)], by=["kind"])
    counts = write_hard(found.run_table, named(found.slices, ["kind=hard"]), tmp_path / "hard")
    data = load_training_data(str(tmp_path / "hard"))
    assert (len(data.train), len(data.validation)) == (counts["train"], counts["validation"])
    assert {row.category for row in (*data.train, *data.validation)} == {f"only {n}" for n in range(0, 3 * users, 3)}
    assert counts["train"] + counts["validation"] == users
    assert min(counts.values()) >= 2


def test_ids_with_the_same_posts_are_held_out_together(run_on: Callable[..., Path], tmp_path: Path) -> None:
    rows = people(90)
    for n, row in enumerate(rows):
        row["profile"] = [{"id": f"{n}", "text": f"Post of {n // 6}."}]  # two of the hard pairs have the same
    found = diagnose([run_on(rows)], by=["kind"])
    write_hard(found.run_table, named(found.slices, ["kind=hard"]), tmp_path / "hard")
    data = load_training_data(str(tmp_path / "hard"))
    texts = [{row.user.profile[0].text for row in side} for side in (data.train, data.validation)]
    assert not texts[0] & texts[1]


def test_a_slice_of_too_few_users_to_train_on_is_refused(run_on: Callable[..., Path], tmp_path: Path) -> None:
    found = diagnose([run_on(people(9))], by=["kind"])
    with pytest.raises(UsageError, match=r"The 3 pairs to export are of 3 users .* 2 to learn from and 2 held out"):
        write_hard(found.run_table, named(found.slices, ["kind=hard"]), tmp_path / "hard")
    assert not (tmp_path / "hard").exists()


def test_a_folder_that_exists_is_not_exported_into(run_on: Callable[..., Path], tmp_path: Path) -> None:
    found = diagnose([run_on(people(90))])
    (tmp_path / "hard").mkdir()
    (tmp_path / "hard" / "mine.txt").write_text("kept")
    with pytest.raises(UsageError, match="exists already"):
        write_hard(found.run_table, [weakest(found.slices)], tmp_path / "hard")
    assert [each.name for each in (tmp_path / "hard").iterdir()] == ["mine.txt"]


def test_without_a_weak_slice_nothing_is_called_hard(run_on: Callable[..., Path]) -> None:
    found = diagnose([run_on(people(60, odd="easy"))])
    assert found.weak == []
    with pytest.raises(UsageError, match="no hard slice to export"):
        weakest(found.slices)


@pytest.mark.parametrize(
    "split,name", [("test", "pairs.jsonl"), ("test_population", "pairs.jsonl"), ("", "test.jsonl")]
)
def test_a_test_split_does_not_become_training_data(
    run_on: Callable[..., Path], tmp_path: Path, split: str, name: str
) -> None:
    found = diagnose([run_on(people(90, split=split), name=name)])
    with pytest.raises(UsageError, match="would spoil that test"):
        write_hard(found.run_table, [weakest(found.slices)], tmp_path / "hard")
    assert not (tmp_path / "hard").exists()
    assert write_hard(found.run_table, [weakest(found.slices)], tmp_path / "hard", allow_test=True)


def test_the_lab_without_a_split_is_its_test(tmp_path: Path) -> None:
    which = DataSettings(limit=20)
    run = evaluate("lab", "control:longest", which=which, settings=EvalSettings(), out=tmp_path)
    assert diagnose([run.folder]).run_table.splits == ("test",)


def test_items_to_label_are_rows_that_can_be_opened_again(run_on: Callable[..., Path], tmp_path: Path) -> None:
    found = diagnose([run_on(people(30))], label_next=7)
    assert write_label_next(found, tmp_path / "next.jsonl") == 7
    with open_examples(tmp_path / "next.jsonl") as store:
        assert [row.id for row in store] == [each.id for each in found.label_next]
        assert [row.meta["label_next"] for row in store] == [{"rank": n, "of": 7} for n in range(1, 8)]


@pytest.mark.parametrize("name", ["next.jsonl", "next.jsonl.gz"])
def test_a_label_file_replaces_a_label_file(run_on: Callable[..., Path], tmp_path: Path, name: str) -> None:
    folder = run_on(people(30))
    for count in (7, 5):
        assert write_label_next(diagnose([folder], label_next=count), tmp_path / name) == count
    with open_examples(tmp_path / name) as store:
        assert len(store) == 5


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda ours: "\n".join(json.dumps(row) for row in people(3)).encode(), id="other rows"),
        pytest.param(lambda ours: b"\n".join(ours[:-1]), id="some rows of a label file"),
        pytest.param(lambda ours: b"\n".join([*ours, json.dumps(people(1)[0]).encode()]), id="a row was added"),
        pytest.param(lambda ours: b"Dear diary,\n", id="text"),
        pytest.param(lambda ours: b"\x1f\x8b\x00\xff", id="damaged"),
        pytest.param(lambda ours: b"[1, 2", id="half an array"),
        pytest.param(lambda ours: b"", id="empty"),
    ],
)
def test_no_other_file_is_overwritten_by_items_to_label(
    run_on: Callable[..., Path], tmp_path: Path, make: Callable[[list[bytes]], bytes]
) -> None:
    found = diagnose([run_on(people(30))], label_next=5)
    place = tmp_path / "next.jsonl"
    write_label_next(found, place)
    content = make(place.read_bytes().splitlines())
    place.write_bytes(content)
    with pytest.raises(UsageError, match="exists already, and --label-next did not write it"):
        write_label_next(found, place)
    assert place.read_bytes() == content


def test_a_label_file_that_a_run_is_about_is_not_overwritten(run_on: Callable[..., Path], tmp_path: Path) -> None:
    place = tmp_path / "next.jsonl"
    write_label_next(diagnose([run_on(people(30))], label_next=9), place)
    second = evaluate(place, "control:longest", settings=EvalSettings(), out=tmp_path / "runs")
    assert second.folder is not None
    found = diagnose([second.folder], label_next=3)
    with pytest.raises(UsageError, match="holds data of these runs"):
        write_label_next(found, place)
    assert len(place.read_text().splitlines()) == 9
    assert write_label_next(found, tmp_path / "after.jsonl") == 3


def test_an_unlabeled_pool_gets_no_accuracy(run_on: Callable[..., Path]) -> None:
    found = diagnose([run_on(people(30))], label_next=5, labeled=False)
    assert found.slices == ()
    assert len(found.label_next) == 5
    assert found.as_json()["runs"][0]["accuracy"] is None


def test_two_runs_stand_side_by_side(run_on: Callable[..., Path]) -> None:
    rows = people(60)
    folders = [run_on(rows), run_on(rows, "control:shortest")]
    found = diagnose(folders, by=["kind"])
    assert disagreements(found.run_table) == {"all right": 0, "at odds": 60, "all wrong": 0}
    (difference,) = found.as_json()["differences"]
    assert difference["difference"]["value"] == pytest.approx(20 / 60 - 40 / 60, abs=1e-6)
    assert [cell.accuracy.value for cell in found.slices[0].cells] == [1.0, 0.0]


def test_runs_on_different_data_are_refused(run_on: Callable[..., Path]) -> None:
    folders = [run_on(people(20)), run_on(people(24), name="other.jsonl")]
    with pytest.raises(UsageError, match="are about different data"):
        diagnose(folders)


def test_more_runs_than_letters_are_refused(run_on: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    folders = [run_on(people(6)), run_on(people(6), "control:shortest")]
    monkeypatch.setattr("prbench.insight.diagnose.run_table.MOST_RUNS", 1)
    with pytest.raises(UsageError, match="2 runs are too many to stand side by side"):
        diagnose(folders)


def test_runs_on_ratings_are_refused(tmp_path: Path) -> None:
    rated = {"user_id": "u", "question": "q?", "profile": [], "response": "w", "rating": 0.5}
    run = evaluate([rated | {"id": f"{n}"} for n in range(4)], "control:longest", out=tmp_path)
    with pytest.raises(UsageError, match="a run on ratings"):
        diagnose([run.folder])


def test_data_that_moved_can_be_named_and_other_data_is_refused(run_on: Callable[..., Path], tmp_path: Path) -> None:
    folder = run_on(people(30))
    (tmp_path / "pairs.jsonl").rename(tmp_path / "moved.jsonl")
    found = diagnose([folder])
    assert "cannot be opened" in found.run_table.notes[0]
    assert "kind" in [each.name for each in found.fields]  # the rows carry it
    with pytest.raises(UsageError, match="--export needs the texts"):
        write_hard(found.run_table, [found.slices[0]], tmp_path / "hard")
    assert diagnose([folder], data=str(tmp_path / "moved.jsonl")).run_table.notes == ()
    other = tmp_path / "other.jsonl"
    other.write_text("".join(json.dumps(row) + "\n" for row in people(29)))
    with pytest.raises(UsageError, match="not the rows"):
        diagnose([folder], data=str(other))


def test_an_unknown_field_is_refused_with_those_that_there_are(run_on: Callable[..., Path]) -> None:
    with pytest.raises(
        UsageError, match=r"--by trait: .* Known here: category, kind, number, .*'words of the question'"
    ):
        diagnose([run_on(people(30))], by=["trait"])
