"""Leaks between splits, in a folder of two files, in a file's own column, and in rows from Python."""

import json
from pathlib import Path

import pytest

from prbench.construction.check.finding import BAD, GOOD, LOOK
from prbench.construction.check.splits import check_splits
from prbench.data import DataSettings, open_data, split_names

SENTENCE = "This very sentence stands in both splits."


def write(path: Path, rows) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def check(source: Path | None, rows=None, **settings):
    which = DataSettings(source=str(source) if source else "", **settings)
    with open_data(which, rows) as store:
        return check_splits(store, which)


@pytest.fixture
def folder(tmp_path: Path, pair):
    """Write `train` and `test` of ten rows each; the changes go into the first row of `test`."""

    def make(second: str = "test", **changes) -> Path:
        write(tmp_path / "data" / "train.jsonl", [pair(n) for n in range(10)])
        write(tmp_path / "data" / f"{second}.jsonl", [pair(10, **changes), *(pair(n) for n in range(11, 20))])
        return tmp_path / "data"

    return make


def test_splits_without_anything_in_common_are_good(folder) -> None:
    finding = check(folder())
    assert (finding.verdict, finding.remedy) == (GOOD, "")
    assert finding.figure == "nothing shared that should not be, between test, train (checked: test)"
    assert finding.values["splits"]["train"] == {
        "users": 10, "questions": 10, "posts": 10, "responses": 20, "sentences": 20
    }  # fmt: skip


@pytest.mark.parametrize(
    "changes,kind,share",
    [
        ({"user_id": "USER-3"}, "users", 0.1),
        ({"question": "What  about QUESTION3?"}, "questions", 0.1),
        ({"profile": [{"id": "x", "text": "I wrote post3."}]}, "posts", 0.1),
        ({"chosen": "take alpha3 and beta3 together."}, "responses", 0.05),
    ],
)
def test_each_kind_of_leak_is_found_whatever_space_and_case(folder, changes, kind: str, share: float) -> None:
    finding = check(folder(**changes))
    (shared,) = finding.values["shared"]
    assert (finding.verdict, shared[kind], shared["shares"][kind]) == (BAD, 1, share)
    assert f"test and train share 1 {kind}" in finding.figure
    assert finding.samples


def test_a_sentence_inside_other_responses_is_found(tmp_path: Path, pair) -> None:
    write(tmp_path / "train.jsonl", [pair(0, chosen=f"{SENTENCE} Yes.")])
    write(tmp_path / "test.jsonl", [pair(1, rejected=f"First this. {SENTENCE.upper()} Yes.")])
    finding = check(tmp_path)
    (shared,) = finding.values["shared"]
    assert finding.verdict == BAD
    assert (shared["sentences"], shared["responses"]) == (1, 0)  # "Yes." is too short to count
    assert [sample.texts for sample in finding.samples] == [(("sentence", SENTENCE),)]


def test_one_question_in_a_hundred_is_worth_a_look(tmp_path: Path, pair) -> None:
    write(tmp_path / "train.jsonl", [pair(n) for n in range(100)])
    write(tmp_path / "test.jsonl", [pair(n, question=f"What about question{n - 1}?") for n in range(100, 200)])
    assert check(tmp_path).verdict == LOOK


def test_two_tests_may_share_questions_and_sentences_but_no_users(tmp_path: Path, pair) -> None:
    first = [pair(n, split="test") for n in range(3)]
    second = [
        row | {"id": f"p{row['id']}", "user_id": f"p{row['user_id']}", "split": "test_population"} for row in first
    ]
    assert check(write(tmp_path / "two.jsonl", first + second)).verdict == GOOD
    second[0]["user_id"] = first[0]["user_id"]
    finding = check(write(tmp_path / "two.jsonl", first + second))
    assert finding.verdict == BAD
    assert "share 1 users" in finding.figure
    assert "questions" not in finding.figure


def test_two_training_splits_may_share_everything(tmp_path: Path, pair) -> None:
    rows = [pair(0, split="train"), pair(0, id="b", split="train_extra")]
    assert check(write(tmp_path / "a.jsonl", rows)).verdict == GOOD


def test_names_that_say_nothing_are_at_most_worth_a_look(tmp_path: Path, pair) -> None:
    rows = [pair(0, split="raw"), pair(0, id="b", split="filtered")]
    assert check(write(tmp_path / "a.jsonl", rows)).verdict == LOOK


def test_one_split_has_nothing_to_compare(tmp_path: Path, pair) -> None:
    for finding in (
        check(write(tmp_path / "one.jsonl", [pair(0), pair(1)])),
        check(write(tmp_path / "folder" / "test.jsonl", [pair(0)]).parent),
        check(write(tmp_path / "named.jsonl", [pair(0, split="test")]), split="test"),
    ):
        assert finding.verdict == GOOD
        assert finding.figure.startswith("one split only; nothing to compare (checked: ")


@pytest.mark.parametrize("split,checked", [(None, "all rows"), ("test", "test")])
def test_a_file_is_divided_by_its_own_column(tmp_path: Path, pair, split: str | None, checked: str) -> None:
    rows = [pair(0, split="train"), pair(1, split="test", user_id="user-0")]
    finding = check(write(tmp_path / "a.jsonl", rows), split=split)
    assert (finding.verdict, finding.values["shared"][0]["users"]) == (BAD, 1)
    assert finding.figure.endswith(f"(checked: {checked})")


def test_rows_from_python_are_divided_too(pair) -> None:
    finding = check(None, [pair(0, split="train"), pair(1, split="test", user_id="user-0")])
    assert (finding.verdict, finding.values["shared"][0]["users"]) == (BAD, 1)


def test_user_ids_that_were_made_up_from_row_ids_are_nobody(tmp_path: Path, pair) -> None:
    rows = [{key: value for key, value in pair(n, profile=[]).items() if key != "user_id"} for n in range(2)]
    write(tmp_path / "train.jsonl", [rows[0]])
    write(tmp_path / "test.jsonl", [rows[1] | {"id": rows[0]["id"]}])
    assert check(tmp_path).verdict == GOOD


def test_a_split_that_cannot_be_read_is_named_and_does_not_end_the_audit(folder) -> None:
    place = folder()
    (place / "train.jsonl").write_text('{"question": "no responses"}\n')
    finding = check(place)
    assert finding.verdict == LOOK
    assert "train was not compared" in finding.remedy
    assert "train.jsonl:1" in finding.remedy


def test_a_limit_is_stated(folder) -> None:
    assert "between the first 2 rows of each of test, train" in check(folder(), limit=2).figure


def test_split_names_of_files_folders_and_cards(folder, tmp_path: Path, pair) -> None:
    from prbench.data import write_dataset
    from prbench.data.rows import to_example

    assert split_names(folder()) == ("test", "train")
    assert split_names(folder() / "train.jsonl") == ()
    pytest.importorskip("datasets")
    examples = [to_example(pair(n, category="Art", split=("train", "test")[n % 2]), "here") for n in range(4)]
    write_dataset(examples, tmp_path / "card")
    assert sorted(split_names(tmp_path / "card")) == ["test", "train"]
    finding = check(tmp_path / "card")
    assert (finding.verdict, sorted(finding.values["splits"])) == (GOOD, ["test", "train"])
