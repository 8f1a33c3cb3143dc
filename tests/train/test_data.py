"""What training refuses to learn from, each in one line."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from prbench.errors import DataError, UsageError
from prbench.schema import Aspect, Example, Post, User
from prbench.training.data import (
    PROFILES,
    RUBRICS,
    TrainingData,
    check_training_data,
    hold_out,
    load_training_data,
    make_training_data,
)


def row(number: int, user: str, *, posts: Sequence[str] | None = None, wants: str = "thrift") -> Example:
    texts = [f"{user} wrote this"] if posts is None else posts
    return Example(
        id=f"{user}-{number}",
        user=User(id=user, profile=tuple(Post(id=f"p{i}", text=text) for i, text in enumerate(texts))),
        question="What now?",
        chosen="Save.",
        rejected="Spend.",
        rubric=(Aspect(aspect=wants),) if wants else (),
    )


def data(train: Sequence[Example], validation: Sequence[Example]) -> TrainingData:
    return make_training_data(train, validation, name="rows.jsonl")


TRAIN, VALIDATION = [row(0, "ann"), row(0, "bob")], [row(0, "cai"), row(0, "dee")]


def test_sound_rows_pass() -> None:
    check_training_data(data(TRAIN, VALIDATION), needs=(PROFILES, RUBRICS))


def test_the_digest_changes_with_any_text_and_with_the_order() -> None:
    digest = data(TRAIN, VALIDATION).digest
    assert digest == data(list(TRAIN), list(VALIDATION)).digest
    assert digest != data(TRAIN[::-1], VALIDATION).digest
    assert digest != data([row(0, "ann", wants="time"), TRAIN[1]], VALIDATION).digest


def test_the_digest_says_where_training_rows_end() -> None:
    rows = [*TRAIN, *VALIDATION]
    assert data(rows[:2], rows[2:]).digest != data(rows[:3], rows[3:]).digest
    assert data(rows, []).digest != data([], rows).digest


@pytest.mark.parametrize(
    "train, validation, needs, told",
    [
        ([], VALIDATION, (), "rows.jsonl: the train split has no rows. "),
        (TRAIN, [], (), "rows.jsonl: the validation split has no rows. "),
        ([row(0, "ann"), row(1, "ann")], VALIDATION, (), "all 2 rows of the train split come from one user, 'ann'"),
        (TRAIN, [row(0, "cai")], (), "all 1 rows of the validation split come from one user, 'cai'"),
        (TRAIN, [row(1, "bob"), row(1, "cai")], (), "user 'bob' is in both train and validation. Split"),
        (TRAIN, [row(1, "bob"), row(1, "ann")], (), "user 'ann' is in both train and validation, as are 1 others."),
        (
            TRAIN,
            [row(0, "cai", posts=["bob wrote this"]), row(0, "dee")],
            (),
            "users 'bob' (train) and 'cai' (validation) have the same posts",
        ),
        (
            [row(0, "ann", posts=[]), row(0, "bob", posts=[])],
            VALIDATION,
            (PROFILES,),
            "no row of the train split has a post",
        ),
        (
            [row(0, "ann", wants=""), row(0, "bob", wants="")],
            VALIDATION,
            (RUBRICS,),
            "no row of the train split has a rubric",
        ),
    ],
)
def test_rows_that_teach_nothing_get_one_line(
    train: list[Example], validation: list[Example], needs: Sequence[str], told: str
) -> None:
    with pytest.raises(DataError) as refused:
        check_training_data(data(train, validation), needs=needs)
    assert told in str(refused.value)
    assert "\n" not in str(refused.value)


def test_empty_profiles_are_fine_for_a_method_that_reads_none() -> None:
    check_training_data(data([row(0, "ann", posts=[]), row(0, "bob", posts=[])], VALIDATION))


def write(path: Path, splits: Sequence[str], **changes: object) -> str:
    rows = [
        {
            "id": str(number),
            "user_id": f"user-{number}",
            "split": split,
            "question": "What now?",
            "profile": [{"id": "p", "category": "", "text": f"post {number}"}],
            "rubric_aspects": [],
            "narrative": "",
            "category": "",
            "chosen": "Save.",
            "rejected": "Spend.",
            **changes,
        }
        for number, split in enumerate(splits)
    ]
    path.write_text("".join(json.dumps(one) + "\n" for one in rows))
    return str(path)


def test_a_file_is_read_split_by_split(tmp_path: Path) -> None:
    file = write(tmp_path / "rows.jsonl", ["train", "train", "train", "dev", "dev"])
    loaded = load_training_data(file, validation_split="dev", limit=2)
    assert [example.id for example in loaded.train] == ["0", "1"]
    assert [example.id for example in loaded.validation] == ["3", "4"]
    assert loaded.name == file


def test_a_missing_split_names_those_that_are_there(tmp_path: Path) -> None:
    file = write(tmp_path / "rows.jsonl", ["train", "train", "dev"])
    with pytest.raises(DataError, match=r"no row has the wanted split. It has: train \(2 rows\), dev \(1 rows\)."):
        load_training_data(file)


def test_one_split_for_both_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="both splits are 'train', so nobody is held out"):
        load_training_data(write(tmp_path / "rows.jsonl", ["train"] * 4), validation_split="train")


def test_a_share_of_the_users_is_held_out_and_always_the_same_ones(tmp_path: Path) -> None:
    file = write(tmp_path / "rows.jsonl", [""] * 10)
    first, second = load_training_data(file, held_out=0.25), load_training_data(file, held_out=0.25)
    assert first == second
    assert (len(first.train), len(first.validation), first.measured_on) == (7, 3, "held-out user")
    assert {example.id for example in (*first.train, *first.validation)} == set(map(str, range(10)))


def test_users_are_held_out_of_the_training_rows_alone(tmp_path: Path) -> None:
    file = write(tmp_path / "rows.jsonl", ["train"] * 6 + ["test"] * 4)
    loaded = load_training_data(file, held_out=0.3)
    assert {example.split for example in (*loaded.train, *loaded.validation)} == {"train"}
    assert len(load_training_data(file, train_split="test", held_out=0.3).train) == 2
    (tmp_path / "set").mkdir()
    for split in ("train", "test"):
        write(tmp_path / "set" / f"{split}.jsonl", [""] * (6 if split == "train" else 4))
    loaded = load_training_data(str(tmp_path / "set"), held_out=0.3)
    assert len(loaded.train) + len(loaded.validation) == 6
    with pytest.raises(UsageError, match=r"has no split 'train'. Name one with --train-split: dev, test\."):
        load_training_data(write(tmp_path / "rows.jsonl", ["test", "dev"] * 3), held_out=0.3)


def test_categories_are_held_out_whole() -> None:
    rows = [replace(row(number, f"user-{number}"), category="abc"[number % 3]) for number in range(9)]
    train, aside = hold_out(rows, 0.2, by="category")
    assert len(aside) == 3
    assert len({example.category for example in aside}) == 1
    assert not {example.category for example in aside} & {example.category for example in train}


@pytest.mark.parametrize(
    "changes, told",
    [
        ({"held_out": 1.0}, "--hold-out 1.0: no share"),
        ({"held_out": 0.2, "held_out_by": "mood"}, "--hold-out-by mood: unknown. Use one of: user, category."),
        ({"held_out": 0.2, "validation_split": "dev"}, "--hold-out 0.2: takes rows from one split"),
    ],
)
def test_odd_ways_to_hold_out_get_one_line(tmp_path: Path, changes: dict[str, Any], told: str) -> None:
    with pytest.raises(UsageError, match=told):
        load_training_data(write(tmp_path / "rows.jsonl", ["train"] * 4), **changes)


def test_one_category_cannot_be_held_out(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="all rows have the same category, so none can be held out"):
        load_training_data(write(tmp_path / "rows.jsonl", ["train"] * 4), held_out=0.2, held_out_by="category")


def test_every_rejected_response_makes_a_pair_of_its_own_to_learn_from(tmp_path: Path) -> None:
    further = ["Spend.", "Borrow.", " ", "Save.", "Gamble.", "Borrow."]
    file = write(tmp_path / "rows.jsonl", ["train", "train", "validation", "validation"], rejected_all=further)
    loaded = load_training_data(file)
    pairs = [(example.id, example.rejected) for example in loaded.train]
    assert pairs[:3] == [("0", "Spend."), ("0#2", "Borrow."), ("0#3", "Gamble.")]
    assert [example.id for example in loaded.validation] == ["2", "3"]


def test_wrong_columns_name_the_line_and_the_field(tmp_path: Path) -> None:
    file = write(tmp_path / "rows.jsonl", ["train", "train", "validation"], chosen=7)
    with pytest.raises(DataError, match=r"rows.jsonl:1: chosen: "):
        load_training_data(file)


def test_rated_rows_are_no_pairs(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    rated = {"user_id": "u", "question": "?", "profile": [], "response": "Save.", "rating": 1.0, "split": "train"}
    path.write_text("".join(json.dumps({**rated, "id": str(number)}) + "\n" for number in range(2)))
    with pytest.raises(DataError, match="split 'train' has rated responses, and training takes pairs"):
        load_training_data(str(path))
