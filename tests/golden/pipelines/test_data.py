"""Rows of other benchmarks as they come in, rows in every format that goes out, and whose posts stand in for whose."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.data import test_importers as fixtures
from tests.golden import extract_pipelines as ask
from tests.golden.conftest import Golden

Rows = Callable[[int], list[dict[str, Any]]]
CHATS = {"prompt": fixtures.CHAT, "chosen": [fixtures.RED]}
RATED = {"id": "r", "user_id": "u", "question": "Why?", "profile": [], "response": "So.", "rating": 0.75}
FOREIGN: dict[str, list[dict[str, Any]]] = {
    "rewardbench": [fixtures.REWARDBENCH, {**fixtures.REWARDBENCH, **CHATS, "id": 4}],
    "rewardbench2": [fixtures.REWARDBENCH2, {**fixtures.REWARDBENCH2, "subset": "Ties", "id": "tied:8"}],
    "rm_bench": [fixtures.RM_BENCH],
    "synthesizeme": [fixtures.SYNTHESIZEME, {**fixtures.SYNTHESIZEME, "user_id": "user8", "split": "train"}],
    "judgebench": [fixtures.JUDGEBENCH, {**fixtures.JUDGEBENCH, "pair_id": "p2", "label": "A>B"}],
    "llmbar": [fixtures.LLMBAR, {**fixtures.LLMBAR, "label": 1, "id": 4, "subset": "GPTOut"}],
    "trl": [
        fixtures.TRL,
        {**fixtures.TRL, "id": "mine", "user_id": "u", "profile": [{"id": "a", "text": "I paint."}]},
    ],
    "trl_without_prompts": [
        {"chosen": [fixtures.USER, fixtures.RED], "rejected": [fixtures.USER, fixtures.BLUE]},
        {"chosen": [*fixtures.CHAT, fixtures.RED], "rejected": [*fixtures.CHAT, fixtures.BLUE]},
    ],
    "trl_texts": [
        {"chosen": "The sky is blue.", "rejected": "The sky is green."},
        {
            "chosen": "\n\nHuman: Hi\n\nAssistant: I say red.",
            "rejected": "\n\nHuman: Hi\n\nAssistant: I say blue.",
        },
    ],
    "rated": [
        RATED,
        {**RATED, "id": "s", "rating": 0.25, "response": "No.", "split": "train", "meta": {"k": [1, None]}},
    ],
}


@pytest.mark.parametrize("name", list(FOREIGN))
def test_rows_of_others(golden: Golden, tmp_path: Path, name: str) -> None:
    path = tmp_path / "set.json"
    path.write_text(json.dumps(FOREIGN[name]))
    golden(f"import_{name}", ask.read_examples(path))


@pytest.mark.parametrize("name", ["official", "judgebench", "rm_bench", "rated"])
def test_what_goes_out_comes_in_the_same(golden: Golden, tmp_path: Path, rows: Rows, name: str) -> None:
    content = [*rows(3), {**rows(4)[3], "split": "train", "meta": {"a": [1, "x"]}}] if name == "official" else None
    source = ask.write_rows(tmp_path / "source.jsonl", content or FOREIGN[name])
    before = ask.read_examples(source)
    written = ask.write_everywhere(source, tmp_path)
    alone = {form: path for form, path in written.items() if "folder" not in form}
    assert all(ask.read_examples(path) == before for path in alone.values())
    golden(f"export_{name}", {form: ask.read_examples(path) for form, path in written.items() if form not in alone})


@pytest.mark.parametrize("context", [None, "I count my coins."])
def test_rows_for_trl(golden: Golden, tmp_path: Path, rows: Rows, context: str | None) -> None:
    own = ask.write_rows(tmp_path / "own.jsonl", rows(2))
    foreign = ask.write_rows(tmp_path / "foreign.jsonl", FOREIGN["synthesizeme"])
    found = ask.trl_rows(own, context) + ask.trl_rows(foreign, context)
    golden(f"trl_rows_{'with' if context else 'without'}_context", found)


@pytest.mark.parametrize("seed", [0, 3])
def test_whose_posts_stand_in_for_whose(golden: Golden, world: Path, seed: int) -> None:
    rows = ask.lab_rows_as_written(world / "lab", "test")[:40]
    some = ask.write_rows(world / f"donors_{seed}.jsonl", [{**row, "split": None} for row in rows])
    golden(f"swap_donors_{seed}", ask.swap_donors(some, seed=seed))
