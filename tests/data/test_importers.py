"""Other benchmarks' rows: found by their columns, turned into pairs, with nothing lost."""

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import pytest

from prbench.data import (
    judgebench,
    llmbar,
    open_examples,
    rewardbench,
    rewardbench2,
    rm_bench,
    synthesizeme,
    trl_preference,
)
from prbench.data.export import to_trl_row
from prbench.data.importers import IMPORTERS, find_importer
from prbench.data.importing import read_with
from prbench.data.rows import to_example
from prbench.errors import DataError
from prbench.schema import Example

USER = {"role": "user", "content": "Name a colour."}
RED, BLUE = {"role": "assistant", "content": "Red."}, {"role": "assistant", "content": "Blue."}
CHAT = [USER, RED, {"role": "user", "content": "Another?"}]

REWARDBENCH = {"prompt": "Why?", "chosen": "So.", "rejected": "No.", "subset": "hep-go", "id": 3, "chosen_model": "m"}
REWARDBENCH2 = {
    "id": "12",
    "prompt": "Why?",
    "chosen": ["right a", "right b"],
    "rejected": ["wrong a", "wrong b", "wrong c"],
    "num_correct": 2,
    "num_incorrect": 3,
    "total_completions": 5,
    "models": ["m1", "m2"],
    "subset": "Math",
}
RM_BENCH = {
    "id": 5,
    "prompt": "Why?",
    "chosen": ["r0", "r1", "r2"],
    "rejected": ["w0", "w1", "w2"],
    "domain": "chat",
}
SYNTHESIZEME = {
    "context": CHAT,
    "chosen": {"role": "model", "content": "Green."},
    "rejected": {"role": "model", "content": "Grey."},
    "user_id": "user7",
    "split": "test",
}
JUDGEBENCH = {
    "pair_id": "p1",
    "original_id": "44",
    "source": "mmlu-pro-law",
    "question": "Why?",
    "response_model": "m",
    "response_A": "first",
    "response_B": "second",
    "label": "B>A",
}
LLMBAR = {"input": "Name a color.", "output_1": "Tea.", "output_2": "Red.", "label": 2}
TRL = {"prompt": [USER], "chosen": [RED], "rejected": [BLUE], "margin": 0.5}


@pytest.mark.parametrize(
    "raw,importer",
    [
        (REWARDBENCH, rewardbench),
        (REWARDBENCH2, rewardbench2),
        (RM_BENCH, rm_bench),
        (SYNTHESIZEME, synthesizeme),
        (JUDGEBENCH, judgebench),
        (LLMBAR, llmbar),
        (TRL, trl_preference),
        ({"chosen": [USER, RED], "rejected": [USER, BLUE]}, trl_preference),
        ({"chosen": "The sky is blue.", "rejected": "The sky is green."}, trl_preference),
        ({"prompt": "Why?", "chosen": "So.", "rejected": "No."}, trl_preference),
    ],
)
def test_importer_is_found_by_the_columns(raw: dict[str, Any], importer: Any) -> None:
    found = find_importer(raw)
    assert found is not None
    assert found.to_rows is importer.to_rows


@pytest.mark.parametrize("missing", ["question", "profile", "rubric_aspects", "narrative", "id"])
def test_official_row_with_a_missing_column_is_not_taken_for_another_format(make_row: Any, missing: str) -> None:
    row = make_row()
    del row[missing]
    assert find_importer(row) is None
    assert find_importer({**make_row(), "prompt": "x", "context": "y", "subset": "z"}) is None


@pytest.mark.parametrize(
    "importer,raw,count",
    [
        (rewardbench, REWARDBENCH, 1),
        (rewardbench2, REWARDBENCH2, 6),
        (rm_bench, RM_BENCH, 9),
        (synthesizeme, SYNTHESIZEME, 1),
        (judgebench, JUDGEBENCH, 1),
        (llmbar, LLMBAR, 1),
        (trl_preference, TRL, 1),
    ],
)
def test_file_just_works(tmp_path: Path, importer: Any, raw: dict[str, Any], count: int) -> None:
    path = tmp_path / "set.json"
    path.write_text(json.dumps([raw]))
    with open_examples(path) as store:
        assert list(store) == [to_example(row, "x") for row in read_with(importer.to_rows, path)]
        assert len(store) == count
        assert all(item.user.profile == () for item in store)


def only(rows: list[dict[str, Any]]) -> Example:
    (row,) = rows
    return to_example(row, "x")


def test_rewardbench_ids_are_told_apart_by_subset() -> None:
    pair = only(rewardbench.to_rows(REWARDBENCH, "x"))
    assert (pair.id, pair.category, pair.question, pair.chosen, pair.rejected) == (
        "hep-go/3",
        "hep-go",
        "Why?",
        "So.",
        "No.",
    )
    assert pair.meta == {"chosen_model": "m", "counted_as": "rewardbench"}


def test_rewardbench_prompt_may_be_a_chat() -> None:
    pair = only(rewardbench.to_rows({**REWARDBENCH, "prompt": CHAT, "chosen": [RED]}, "x"))
    assert pair.question == "User: Name a colour.\n\nAssistant: Red.\n\nUser: Another?"
    assert pair.chosen == "Red."
    assert pair.meta["original_messages"] == {"prompt": CHAT}


def test_rewardbench2_pairs_every_right_with_every_wrong_answer() -> None:
    pairs = [to_example(row, "x") for row in rewardbench2.to_rows(REWARDBENCH2, "x")]
    assert [(pair.chosen, pair.rejected) for pair in pairs] == [
        (right, wrong) for right in REWARDBENCH2["chosen"] for wrong in REWARDBENCH2["rejected"]
    ]
    assert pairs[4].id == "Math/12#1-1"
    assert pairs[4].meta == {
        "group": "Math/12",
        "chosen_index": 1,
        "rejected_index": 1,
        "pairs_of_prompt": 6,
        "counted_as": "rewardbench2",
        "num_correct": 2,
        "num_incorrect": 3,
        "total_completions": 5,
        "models": ["m1", "m2"],
    }
    assert {pair.user.id for pair in pairs} == {"Math/12"}


def test_rewardbench2_ties_are_joined_by_number() -> None:
    rows = rewardbench2.to_rows({**REWARDBENCH2, "subset": "Ties", "id": "tied:8"}, "x")
    assert {(row["ties_kind"], row["ties_prompt"]) for row in rows} == {("tied", 8)}
    with pytest.raises(DataError, match=r"^f:1: id: is '12', but ids of the Ties subset are ref:n or tied:n\. "):
        rewardbench2.to_rows({**REWARDBENCH2, "subset": "Ties"}, "f:1")


def test_rm_bench_difficulty_follows_the_style_matrix() -> None:
    pairs = [to_example(row, "x") for row in rm_bench.to_rows(RM_BENCH, "x")]
    assert Counter(pair.meta["difficulty"] for pair in pairs) == {"easy": 3, "normal": 3, "hard": 3}
    concise_against_markdown = next(pair for pair in pairs if (pair.chosen, pair.rejected) == ("r0", "w2"))
    assert concise_against_markdown.meta["difficulty"] == "hard"
    assert concise_against_markdown.id == "chat/5#0-2"
    with pytest.raises(DataError, match="chosen: holds 2 responses, but RM-Bench rows hold 3"):
        rm_bench.to_rows({**RM_BENCH, "chosen": ["a", "b"]}, "f:1")


def test_personal_rewardbench_keeps_users_and_makes_no_history_of_labels() -> None:
    pair = only(synthesizeme.to_rows(SYNTHESIZEME, "x"))
    assert (pair.user.id, pair.user.profile, pair.split, pair.chosen) == ("user7", (), "test", "Green.")
    assert pair.meta["original_messages"] == {
        "prompt": CHAT,
        "chosen": SYNTHESIZEME["chosen"],
        "rejected": SYNTHESIZEME["rejected"],
    }


def test_judgebench_label_decides_the_chosen_side() -> None:
    pair = only(judgebench.to_rows(JUDGEBENCH, "x"))
    assert (pair.id, pair.category, pair.chosen, pair.rejected) == ("p1", "mmlu-pro-law", "second", "first")
    assert pair.meta == {"original_id": "44", "response_model": "m", "label": "B>A", "counted_as": "judgebench"}
    assert only(judgebench.to_rows({**JUDGEBENCH, "label": "A>B"}, "x")).chosen == "first"
    with pytest.raises(DataError, match=r"label: is 'A=B', which names no preferred response\. Drop the row\.$"):
        judgebench.to_rows({**JUDGEBENCH, "label": "A=B"}, "f:1")


def test_llmbar_label_decides_the_chosen_side_and_the_path_names_the_subset() -> None:
    pair = only(llmbar.to_rows(LLMBAR, "LLMBar/Adversarial/GPTOut/dataset.json:7"))
    assert (pair.category, pair.question, pair.chosen, pair.rejected) == ("GPTOut", "Name a color.", "Red.", "Tea.")
    assert pair.id.startswith("GPTOut/row-")
    assert pair.meta == {"label": 2, "counted_as": "llmbar"}
    assert only(llmbar.to_rows({**LLMBAR, "label": 1}, "x")).chosen == "Tea."
    assert only(llmbar.to_rows({**LLMBAR, "subset": "Manual"}, "Natural/dataset.json:1")).category == "Manual"
    assert only(llmbar.to_rows(LLMBAR, "Manual/data/Natural.json:1")).category == "Natural"  # the nearest to the file
    assert only(llmbar.to_rows(LLMBAR, "dataset.json:1")).category == ""
    for label in (0, 3, "A", True, 1.0, None):
        with pytest.raises(DataError, match=r"^f:1: label: is .*, but LLMBar labels are 1 or 2\. Drop the row\.$"):
            llmbar.to_rows({**LLMBAR, "label": label}, "f:1")


def test_importers_are_loaded_when_a_row_of_theirs_comes() -> None:
    code = "import sys, prbench.data.store; print(*(n for n in sys.modules if n.startswith('prbench.data.')))"
    loaded = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()
    foreign = {importer.load.partition(":")[0] for importer in IMPORTERS}
    assert "prbench.data.importers" in loaded
    assert not foreign & set(loaded)
    assert all(callable(resolve_name(importer.load)) for importer in IMPORTERS)


@pytest.mark.parametrize(
    "raw",
    [
        TRL,
        {"prompt": "Name a colour.", "chosen": "Red.", "rejected": "Blue."},
        {"prompt": "Name a colour.", "chosen": [USER, RED], "rejected": [USER, BLUE]},
        {"prompt": [USER], "chosen": [USER, RED], "rejected": [USER, BLUE]},
        {"chosen": [USER, RED], "rejected": [USER, BLUE]},
    ],
)
def test_trl_forms_give_the_same_pair(raw: dict[str, Any]) -> None:
    pair = only(trl_preference.to_rows(raw, "x"))
    assert (pair.question, pair.chosen, pair.rejected) == ("Name a colour.", "Red.", "Blue.")
    assert "original_messages" not in pair.meta
    assert to_trl_row(pair) == {"id": pair.id, "prompt": [USER], "chosen": [RED], "rejected": [BLUE]}


def test_trl_text_with_an_implicit_prompt_is_cut_between_words() -> None:
    pair = only(trl_preference.to_rows({"chosen": "The sky is blue.", "rejected": "The sky is black."}, "x"))
    assert (pair.question, pair.chosen, pair.rejected) == ("The sky is", " blue.", " black.")


def test_trl_dialogue_text_is_cut_where_the_assistant_speaks() -> None:
    start = "\n\nHuman: Hi\n\nAssistant: Yes?\n\nHuman: Name a colour.\n\nAssistant:"
    pair = only(trl_preference.to_rows({"chosen": f"{start} I say red.", "rejected": f"{start} I say blue."}, "x"))
    assert (pair.question, pair.chosen, pair.rejected) == (start, " I say red.", " I say blue.")


def test_trl_conversation_beats_a_prompt_column_that_repeats_one_turn() -> None:
    raw = {"prompt": "Another?", "chosen": [*CHAT, RED], "rejected": [*CHAT, BLUE]}
    pair = only(trl_preference.to_rows(raw, "x"))
    assert pair.question.startswith("User: Name a colour.")
    assert pair.meta == {"original_messages": {"prompt": CHAT}, "prompt": "Another?"}
    assert to_trl_row(pair)["prompt"] == CHAT


def test_trl_rows_without_any_prompt_are_refused() -> None:
    for chosen, rejected in (("Red.", "Blue."), ([RED], [BLUE])):
        with pytest.raises(DataError) as error:
            trl_preference.to_rows({"chosen": chosen, "rejected": rejected}, "f:1")
        assert str(error.value) == (
            "f:1: prompt: is missing, and chosen and rejected do not begin alike. Add a prompt column."
        )


def test_trl_row_may_bring_its_user() -> None:
    raw = {**TRL, "user_id": "u", "profile": [{"id": "a", "text": "I paint."}], "id": "mine"}
    pair = only(trl_preference.to_rows(raw, "x"))
    assert (pair.id, pair.user.id, pair.user.profile[0].text, pair.meta) == ("mine", "u", "I paint.", {"margin": 0.5})


def test_rows_without_ids_get_one_from_their_content() -> None:
    first, again = (only(trl_preference.to_rows(TRL, where)).id for where in ("f:1", "f:9"))
    other = only(trl_preference.to_rows({**TRL, "chosen": [BLUE], "rejected": [RED]}, "f:1")).id
    assert first == again != other


def test_images_in_a_chat_are_refused() -> None:
    turn = {"role": "user", "content": [{"type": "image", "url": "x"}]}
    with pytest.raises(DataError, match=r"^f:1: prompt: has a turn whose content is not text\. Drop the row\.$"):
        trl_preference.to_rows({**TRL, "prompt": [turn]}, "f:1")
    parts = {"role": "user", "content": [{"type": "text", "text": "Name a colour."}]}
    assert only(trl_preference.to_rows({**TRL, "prompt": [parts]}, "x")).question == "Name a colour."


def test_column_that_an_importer_would_overwrite_is_refused() -> None:
    with pytest.raises(DataError, match=r"difficulty: the importer needs the name 'difficulty'"):
        rm_bench.to_rows({**RM_BENCH, "difficulty": 3}, "f:1")


def test_foreign_file_given_to_an_importer_names_the_missing_column(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(json.dumps(TRL))
    with pytest.raises(DataError, match=r"a\.jsonl:1: subset: is missing\. Check that this is the file you meant\.$"):
        list(read_with(rewardbench.to_rows, tmp_path / "a.jsonl"))
