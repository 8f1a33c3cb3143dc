"""Sets as their authors ship them: files, folders and archives in the original layout, with text of our own."""

import csv
import gzip
import io
import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.data import test_importers as fixtures
from tests.support.command_line import Ended, prbench

from prbench.data import load_dataset, open_examples
from prbench.data.importers import IMPORTERS, find_importer
from prbench.errors import DataError
from prbench.schema import Example

__all__ = ["prbench"]  # a fixture

Command = Callable[..., Ended]
Files = Mapping[str, Any]  # by path: text, or rows
MADE_ID = re.compile("row-[0-9a-f]{16}")  # of a row without one

ASK = {"role": "user", "content": "How do I cool a room?"}
FAN = {"role": "assistant", "content": "Set a fan at the window after dark."}
ICE = {"role": "assistant", "content": "Leave the fridge open."}

OPTIONS = [
    "(a) Sow beans, since you said that frost worries you.",
    "(b) You've never grown anything.",
    "(c) Buy a pond.",
]
PERSONAMEM = {
    "persona_id": "4",
    "question_id": "q-7",
    "question_type": "recall",
    "topic": "garden",
    "user_question_or_message": "What shall I sow, and when?",
    "correct_answer": "(a)",
    "all_options": repr(OPTIONS),  # as Python writes a list: with either quote
    "shared_context_id": "c0ffee00dead",
    "end_index_in_shared_context": "4",
}
TURNS = [
    {"role": "system", "content": "This person has a garden."},
    {"role": "user", "content": "User: Frost took my tomatoes in May."},
    {"role": "assistant", "content": "Assistant: That is a pity."},
    {"role": "user", "content": "User: I dig in the evening."},
    {"role": "user", "content": "User: This comes after the question."},
]
WANT = {
    "preference": "I never take a plane.",
    "question": "How do I get to the coast?",
    "explanation": "Flights are the usual advice.",
}
WAYS = ["Take the night train.", "Take the first flight.", "Charter a jet.", "Fly with a friend."]
CHOICE = {
    **WANT,
    "implicit_query": "How do people travel?",
    "options": WAYS,
    "conversation": {
        "query": "How do people travel?",
        "assistant_options": "By train or by plane.",
        "user_selection": "By train, as I stay on the ground.",
        "assistant_acknowledgment": "Good.",
    },
    "aligned_op": WAYS[0],
}
PERSONA = {
    **WANT,
    "persona": "a bell founder",
    "conversation": {
        "0": {"user": "I cast a bell today.", "assistant": "How did it ring?"},
        "1": {"user": "Well. I came home by train, as ever.", "assistant": "Fine."},
    },
}
HELPSTEER3 = {
    "domain": "general",
    "language": "english",
    "context": [ASK],
    "response1": FAN["content"],
    "response2": ICE["content"],
    "overall_preference": -2,
    "individual_preference": [
        {"score": -2, "reasoning": "The fridge heats the room.", "feedback1": "Works.", "feedback2": "Does not."}
    ],
}
PKU = {
    "prompt": ASK["content"],
    "response_0": ICE["content"],
    "response_1": FAN["content"],
    "is_response_0_safe": True,
    "is_response_1_safe": True,
    "better_response_id": 1,
    "safer_response_id": 0,
}
ULTRAFEEDBACK = {
    "source": "heat",
    "instruction": ASK["content"],
    "models": ["m1", "m2", "m3", "m4"],
    "completions": [
        {"model": "m1", "response": "Open all doors.", "fine-grained_score": 3.5, "overall_score": 9.0},
        {"model": "m2", "response": FAN["content"], "fine-grained_score": 4.75, "overall_score": 7.0},
        {"model": "m3", "response": "A fan at the window.", "fine-grained_score": 4.75, "overall_score": 7.0},
        {"model": "m4", "response": ICE["content"], "fine-grained_score": 1.0, "overall_score": 10.0},
    ],
    "correct_answers": ["None"],
}
BINARIZED = {
    "prompt": ASK["content"],
    "prompt_id": "p1",
    "chosen": [ASK, FAN],
    "rejected": [ASK, ICE],
    "messages": [ASK, FAN],
    "score_chosen": 8.0,
    "score_rejected": 2.0,
}
SKYWORK = {"chosen": [ASK, FAN], "rejected": [ASK, ICE], "source": "heat"}
TEXT_PAIR = {
    "id": 3,
    "subset": "hep-go",
    "text_chosen": "\n\nHuman: Why?\n\nAssistant: So.",
    "text_rejected": "\n\nHuman: Why?\n\nAssistant: No.",
}
PSOUPS = {"user_input": ASK["content"], "completion_a": FAN["content"], "completion_b": ICE["content"]}
LLMBAR = {"input": "Name a color.", "output_1": "Tea.", "output_2": "Red.", "label": 2}
RM_BENCH_PART = {name: value for name, value in fixtures.RM_BENCH.items() if name != "domain"}


def table(*rows: Mapping[str, str], delimiter: str = ",") -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(rows[0]), delimiter=delimiter)
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


# For each format the files as their authors name them, what `--data` is given, and the ids that come of them.
SHIPPED: Mapping[str, tuple[Files, str, list[str]]] = {
    "judgebench": (
        {"data/dataset=judgebench,response_model=m.jsonl": [fixtures.JUDGEBENCH]},
        "data/dataset=judgebench,response_model=m.jsonl",
        ["p1"],
    ),
    "llmbar": (
        {
            "LLMBar/Natural/dataset.json": [LLMBAR],
            "LLMBar/Natural/evaluators/GPT-4/CoT/result.json": [{"winner": "1"}],
            "LLMBar/Adversarial/GPTOut/dataset.json": [{**LLMBAR, "label": 1}],
        },
        "LLMBar",
        ["GPTOut/row", "Natural/row"],
    ),
    "personamem": (
        {
            "questions_32k.csv": table(PERSONAMEM),
            "shared_contexts_32k.jsonl": [{"c0ffee00dead": TURNS}, {"other": TURNS[:2]}],
        },
        ".",
        ["q-7#b", "q-7#c"],
    ),
    "prefeval": (
        {"benchmark_dataset/mcq_options/travel.json": [{**WANT, "classification_task_options": WAYS}]},
        "benchmark_dataset/mcq_options",
        [f"explicit/row#{place}" for place in (1, 2, 3)],
    ),
    "psoups": ({"rm_training/P1A.json": [PSOUPS]}, "rm_training", ["P1A/row"]),
    "helpsteer3": ({"preference/train.jsonl.gz": [HELPSTEER3]}, "preference", ["row"]),
    "pku_saferlhf": ({"data/Alpaca-7B/test.jsonl": [PKU]}, "data/Alpaca-7B", ["row"]),
    "ultrafeedback": (
        {"evol_instruct.jsonl": [ULTRAFEEDBACK]},
        "evol_instruct.jsonl",
        ["row#1-0", "row#1-3"],
    ),
    "rewardbench2": (
        {"data/test.json": [fixtures.REWARDBENCH2]},
        "data",
        [f"Math/12#{i}-{j}" for i in (0, 1) for j in (0, 1, 2)],
    ),
    "rm_bench": (
        {"data/chat_filtered.json": [RM_BENCH_PART], "data/safety-refuse_filtered.json": [RM_BENCH_PART]},
        "data",
        [f"{domain}/5#{i}-{j}" for domain in ("chat", "safety-refuse") for i in range(3) for j in range(3)],
    ),
    "synthesizeme": ({"test.jsonl": [fixtures.SYNTHESIZEME]}, "test.jsonl", ["row"]),
    "text_pairs": ({"filtered.json": [TEXT_PAIR]}, "filtered.json", ["hep-go/3"]),
    "rewardbench": ({"filtered.json": [fixtures.REWARDBENCH]}, "filtered.json", ["hep-go/3"]),
    "trl": ({"train_prefs.jsonl": [BINARIZED]}, "train_prefs.jsonl", ["row"]),
    "trl, implicit prompt": ({"skywork.jsonl": [SKYWORK]}, "skywork.jsonl", ["row"]),
}


def put(folder: Path, files: Files) -> Path:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        text = content
        if not isinstance(content, str):
            rows = [json.dumps(row) for row in content]
            text = f"[{', '.join(rows)}]" if name.endswith(".json") else "".join(row + "\n" for row in rows)
        path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    return folder


def test_every_importer_has_a_fixture_in_the_original_layout() -> None:
    assert set(SHIPPED) == {importer.name for importer in IMPORTERS}


@pytest.mark.parametrize("name", SHIPPED)
def test_original_files_are_read_exported_and_read_again_without_loss(
    prbench: Command, tmp_path: Path, name: str
) -> None:
    files, data, ids = SHIPPED[name]
    put(tmp_path / "theirs", files)
    source = str(tmp_path / "theirs" / data)
    with open_examples(source) as store:
        examples, content = list(store), store.content_hash
    assert [MADE_ID.sub("row", example.id) for example in examples] == ids
    for target, path in (("jsonl:ours.jsonl", "ours.jsonl"), ("parquet:ours.parquet", "ours.parquet")):
        assert prbench("data", "convert", target, "--data", source).code == 0
        with open_examples(path) as again:
            assert list(again) == examples
            assert again.content_hash == content
    checked = prbench("data", "check", "--data", source, "--audit-encoder", "none", "--json")
    assert checked.code in (0, 1), checked.err  # a set without users is bad for personalization, and says so
    assert {"rows", "duplicates"} <= {finding["check"] for finding in checked.json}


def only(data: Path, **how: Any) -> Example:
    (found,) = load_dataset(data, **how)
    assert isinstance(found, Example)
    return found


def test_personamem_joins_the_conversation_up_to_the_question(tmp_path: Path) -> None:
    put(tmp_path, SHIPPED["personamem"][0])
    first, second = load_dataset(tmp_path)
    assert isinstance(first, Example)
    assert isinstance(second, Example)
    assert (first.user.id, first.category, first.question) == ("persona-4", "garden", "What shall I sow, and when?")
    assert (first.chosen, first.rejected) == (
        "Sow beans, since you said that frost worries you.",
        "You've never grown anything.",
    )
    assert [(post.id, post.text) for post in first.user.profile] == [
        ("c0ffee00-1", "Frost took my tomatoes in May."),
        ("c0ffee00-3", "I dig in the evening."),
    ]
    assert second.user == first.user
    assert only(tmp_path / "questions_32k.csv", limit=1) == first
    (tmp_path / "shared_contexts_32k.jsonl").unlink()
    line = (
        r"questions_32k\.csv:2: shared_context_id: names a conversation, and shared_contexts_32k\.jsonl is not there\."
    )
    with pytest.raises(DataError, match=line):
        load_dataset(tmp_path)


def test_personamem_rows_that_do_not_fit_are_named(tmp_path: Path) -> None:
    for changes, line in (
        ({"correct_answer": "(d)"}, r"correct_answer: is '\(d\)', which is none of the options a, b, c"),
        ({"all_options": "__import__('os')"}, "all_options: is .*, which is no list of options"),
        ({"end_index_in_shared_context": "soon"}, "end_index_in_shared_context: is 'soon', not a whole number"),
        ({"shared_context_id": "beef"}, "shared_context_id: 'beef' is not in shared_contexts_32k.jsonl"),
    ):
        put(tmp_path, {**SHIPPED["personamem"][0], "questions_32k.csv": table({**PERSONAMEM, **changes})})
        with pytest.raises(DataError, match=f"questions_32k.csv:2: {line}"):
            load_dataset(tmp_path)


def test_prefeval_has_three_forms_of_one_preference(tmp_path: Path) -> None:
    put(
        tmp_path,
        {
            "mcq_options/travel.json": [{**WANT, "classification_task_options": WAYS}],
            "explicit_preference/travel.json": [WANT],
            "implicit_preference/choice-based/travel.json": [CHOICE],
            "implicit_preference/persona-driven/travel.json": [PERSONA],
        },
    )
    said = {
        "explicit_preference": ["I never take a plane."],
        "implicit_preference/choice-based": ["How do people travel?", "By train, as I stay on the ground."],
        "implicit_preference/persona-driven": ["I cast a bell today.", "Well. I came home by train, as ever."],
    }
    people = set()
    for folder, turns in said.items():
        pairs = [pair for pair in load_dataset(tmp_path / folder) if isinstance(pair, Example)]
        assert [(pair.chosen, pair.rejected) for pair in pairs] == [(WAYS[0], wrong) for wrong in WAYS[1:]]
        assert [post.text for post in pairs[0].user.profile] == turns
        assert (pairs[0].rubric[0].aspect, pairs[0].category) == (WANT["preference"], "travel")
        people |= {pair.user.id for pair in pairs}
    assert len(people) == 1
    (tmp_path / "mcq_options" / "travel.json").unlink()
    with pytest.raises(DataError, match=r"has no classification_task_options, and no folder mcq_options .* is near"):
        load_dataset(tmp_path / "explicit_preference")


def test_helpsteer3_prefers_by_the_sign_and_refuses_ties(tmp_path: Path) -> None:
    pair = only(put(tmp_path, {"a.jsonl": [HELPSTEER3]}))
    assert (pair.question, pair.chosen, pair.category) == (ASK["content"], FAN["content"], "general")
    assert pair.meta["individual_preference"][0]["score"] == -2
    assert only(put(tmp_path, {"a.jsonl": [{**HELPSTEER3, "overall_preference": 1}]})).chosen == ICE["content"]
    put(tmp_path, {"a.jsonl": [HELPSTEER3, {**HELPSTEER3, "overall_preference": 0}]})
    with pytest.raises(
        DataError, match=r"a\.jsonl:2: overall_preference: is 0, which prefers neither .*--skip-bad-rows"
    ):
        load_dataset(tmp_path)
    assert len(load_dataset(tmp_path, skip_bad_rows=1)) == 1
    for wrong in (4, 0.5, "2", True):
        put(tmp_path, {"a.jsonl": [{**HELPSTEER3, "overall_preference": wrong}]})
        with pytest.raises(DataError, match="preferences are whole numbers from -3 to 3"):
            load_dataset(tmp_path)


def test_pku_saferlhf_takes_the_better_one_and_says_where_safety_disagrees(tmp_path: Path) -> None:
    path = put(tmp_path, {"a.jsonl": [PKU]}) / "a.jsonl"
    pair = only(path)
    assert (pair.chosen, pair.rejected) == (FAN["content"], ICE["content"])
    assert (pair.meta["better_is_safer"], pair.meta["safer_response_id"]) == (False, 0)
    safer = only(path, columns="prompt=prompt,first=response_0,second=response_1,label=safer_response_id:0/1")
    assert (safer.chosen, safer.meta["safer_response_id"]) == (ICE["content"], 0)
    put(tmp_path, {"a.jsonl": [{**PKU, "better_response_id": 2}]})
    with pytest.raises(DataError, match="better_response_id: is 2, but it names response 0 or 1"):
        load_dataset(path)


def test_ultrafeedback_sets_the_best_against_all_that_scored_lower(tmp_path: Path) -> None:
    pairs = [pair for pair in load_dataset(put(tmp_path, {"a.jsonl": [ULTRAFEEDBACK]})) if isinstance(pair, Example)]
    assert [(pair.chosen, pair.rejected) for pair in pairs] == [
        (FAN["content"], "Open all doors."),
        (FAN["content"], ICE["content"]),
    ]
    assert {pair.user.id for pair in pairs} == {pairs[0].meta["group"]}
    assert (pairs[1].meta["chosen_score"], pairs[1].meta["rejected_score"]) == (4.75, 1.0)
    old = [{key: one[key] for key in ("model", "response", "overall_score")} for one in ULTRAFEEDBACK["completions"]]  # type: ignore[attr-defined]
    pairs = [
        pair
        for pair in load_dataset(put(tmp_path, {"a.jsonl": [{**ULTRAFEEDBACK, "completions": old}]}))
        if isinstance(pair, Example)
    ]
    assert pairs[0].chosen == ICE["content"]  # where means of aspects are missing, the overall score counts
    for completions, line in (
        ([{"response": "a", "fine-grained_score": "N/A"}], "have no fine-grained_score or overall_score"),
        ([{"response": text, "overall_score": "3"} for text in "ab"], "all have the same score"),
    ):
        put(tmp_path, {"a.jsonl": [{**ULTRAFEEDBACK, "completions": completions}]})
        with pytest.raises(DataError, match=f"a.jsonl:1: completions: {line}"):
            load_dataset(tmp_path)


def test_rm_bench_reads_the_whole_set_once_where_its_parts_lie_beside_it(tmp_path: Path) -> None:
    whole = [{**fixtures.RM_BENCH, "domain": domain} for domain in ("chat", "math")]
    put(
        tmp_path,
        {"total_dataset.json": whole, "chat_filtered.json": whole[:1], "math_filtered.json": whole[1:]},
    )
    assert len(load_dataset(tmp_path)) == 18
    assert len(load_dataset(tmp_path / "chat_filtered.json")) == 9


def test_judgebench_row_of_two_identical_responses_is_named_with_what_leaves_it_out(
    prbench: Command, tmp_path: Path
) -> None:
    same = {**fixtures.JUDGEBENCH, "pair_id": "p2", "response_A": "second"}
    put(tmp_path, {"judge.jsonl": [fixtures.JUDGEBENCH, same]})
    ended = prbench("data", "check", "--data", "judge.jsonl", "--audit-encoder", "none")
    assert (ended.code, ended.err.strip().count("\n")) == (2, 0)
    assert "judge.jsonl:2: rejected: is the same text as chosen" in ended.err
    flag = ended.err.strip().rstrip(".").partition("leave it out with ")[2]
    assert flag == "--skip-bad-rows 1"
    ended = prbench("eval", "--model", "control:longest", "--data", "judge.jsonl", "--json", *flag.split())
    assert (ended.json["n_items"], ended.json["data"]["bad_rows"]) == (1, 1)


THEIRS = {"their_chosen": "So.", "their_rejected": "No."}


def test_row_that_two_formats_could_have_is_refused(tmp_path: Path) -> None:
    put(tmp_path, {"a.jsonl": [{**LLMBAR, "prompt": "Why?", "chosen": "So.", "rejected": "No."}]})
    with pytest.raises(DataError) as error:
        load_dataset(tmp_path / "a.jsonl")
    assert str(error.value) == (
        f"{tmp_path}/a.jsonl:1: row: has the columns of llmbar and of trl, so its format is ambiguous. "
        "Say which columns are meant, e.g. --columns 'prompt=…,chosen=…,rejected=…'."
    )
    pair = only(tmp_path / "a.jsonl", columns="prompt=input,chosen=output_2,rejected=output_1")
    assert (pair.chosen, pair.meta) == ("Red.", {"label": 2, "their_prompt": "Why?", **THEIRS})


def test_order_of_the_table_decides_only_between_formats_of_which_one_asks_for_more() -> None:
    for raw, name in ((fixtures.REWARDBENCH2, "rewardbench2"), (fixtures.RM_BENCH, "rm_bench"), (BINARIZED, "trl")):
        found = find_importer(raw)  # type: ignore[arg-type]
        assert found is not None
        assert found.name == name
