"""From run folders to a diagnosis: fields that a dataset offers, the hard slice as data, and what is refused."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from prbench.data import open_examples
from prbench.diagnose import Diagnosis, diagnose, disagreements, write_label_next
from prbench.diagnose.hard import named, weakest, write_hard
from prbench.errors import UsageError
from prbench.evaluation import DataSettings, EvalSettings, evaluate
from prbench.lab import LabSize, make_split

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
    assert "given in Python" in without.material.notes[0]
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
    alone = found.material.alone[0]
    right = sum(alone[row["id"]].verdict.value == "chosen" for row in rows)
    wrong = sum(alone[row["id"]].verdict.value == "rejected" for row in rows)
    expected = {name: count for name, count in (("no", right), ("yes", wrong)) if count}
    assert field(found, "minority") == (expected if len(expected) > 1 else {})
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
    counts = write_hard(found.material, [slice_], tmp_path / "hard")
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
    assert found.material.runs[0].folder.name in card


def test_slices_can_be_named_crossed_and_cut_to_errors(run_on: Callable[..., Path], tmp_path: Path) -> None:
    found = diagnose([run_on(people(90))])
    both = named(found.slices, ["kind=hard", "category=a"])
    assert sum(write_hard(found.material, both, tmp_path / "both").values()) == 15
    category = named(found.slices, ["category=b"])
    counts = write_hard(found.material, category, tmp_path / "errors", errors_only=True)
    assert sum(counts.values()) == 15
    with pytest.raises(UsageError, match=r"no such slice. There are: kind=easy, kind=hard"):
        named(found.slices, ["kind=odd"])
    with pytest.raises(UsageError, match="No item is left"):
        write_hard(found.material, named(found.slices, ["kind=easy"]), tmp_path / "none", errors_only=True)


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
        write_hard(found.material, [weakest(found.slices)], tmp_path / "hard")
    assert not (tmp_path / "hard").exists()
    assert write_hard(found.material, [weakest(found.slices)], tmp_path / "hard", allow_test=True)


def test_the_lab_without_a_split_is_its_test(tmp_path: Path) -> None:
    which = DataSettings(limit=20)
    run = evaluate("lab", "control:longest", which=which, settings=EvalSettings(), out=tmp_path)
    assert diagnose([run.folder]).material.splits == ("test",)


def test_items_to_label_are_rows_that_can_be_opened_again(run_on: Callable[..., Path], tmp_path: Path) -> None:
    found = diagnose([run_on(people(30))], label_next=7)
    assert write_label_next(found, tmp_path / "next.jsonl") == 7
    with open_examples(tmp_path / "next.jsonl") as store:
        assert [row.id for row in store] == [each.id for each in found.label_next]


def test_an_unlabelled_pool_gets_no_accuracy(run_on: Callable[..., Path]) -> None:
    found = diagnose([run_on(people(30))], label_next=5, labelled=False)
    assert found.slices == ()
    assert len(found.label_next) == 5
    assert found.as_json()["runs"][0]["accuracy"] is None


def test_two_runs_stand_side_by_side(run_on: Callable[..., Path]) -> None:
    rows = people(60)
    folders = [run_on(rows), run_on(rows, "control:shortest")]
    found = diagnose(folders, by=["kind"])
    assert disagreements(found.material) == {"all right": 0, "at odds": 60, "all wrong": 0}
    (difference,) = found.as_json()["differences"]
    assert difference["difference"]["value"] == pytest.approx(20 / 60 - 40 / 60, abs=1e-6)
    assert [cell.accuracy.value for cell in found.slices[0].cells] == [1.0, 0.0]


def test_runs_on_different_data_are_refused(run_on: Callable[..., Path]) -> None:
    folders = [run_on(people(20)), run_on(people(24), name="other.jsonl")]
    with pytest.raises(UsageError, match="are about different data"):
        diagnose(folders)


def test_more_runs_than_letters_are_refused(run_on: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    folders = [run_on(people(6)), run_on(people(6), "control:shortest")]
    monkeypatch.setattr("prbench.diagnose.material.MOST_RUNS", 1)
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
    assert "cannot be opened" in found.material.notes[0]
    assert "kind" in [each.name for each in found.fields]  # the rows carry it
    with pytest.raises(UsageError, match="--export needs the texts"):
        write_hard(found.material, [found.slices[0]], tmp_path / "hard")
    assert diagnose([folder], data=str(tmp_path / "moved.jsonl")).material.notes == ()
    other = tmp_path / "other.jsonl"
    other.write_text("".join(json.dumps(row) + "\n" for row in people(29)))
    with pytest.raises(UsageError, match="not the rows"):
        diagnose([folder], data=str(other))


def test_an_unknown_field_is_refused_with_those_that_there_are(run_on: Callable[..., Path]) -> None:
    with pytest.raises(
        UsageError, match=r"--by trait: .* Known here: category, kind, number, .*'words of the question'"
    ):
        diagnose([run_on(people(30))], by=["trait"])
