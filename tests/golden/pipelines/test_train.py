"""Training by every method: what is reported of the training and of held-out users, and scores of what came out."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.golden import extract_pipelines as ask
from tests.golden.conftest import Golden
from tests.golden.pipelines.conftest import LAB
from tests.support.tiny_llama import save_tiny_llama

Trained = Callable[..., dict[str, Any]]
LOOSE = 1e-4  # sums of a training differ in their last digits between processors
HEAD: dict[str, object] = {"epochs": 4, "posts": 5, "batch_size": 32, "learning_rate": 0.01}
ON_THE_ENCODER: dict[str, tuple[str, dict[str, object]]] = {
    "head": ("head", {**HEAD, "topics": 6}),
    "head_average": ("head", {**HEAD, "topics": 6, "knows_users": "false"}),
    "match": ("match", {"posts": 5}),
    "match_average": ("match", {"knows_users": "false", "penalty": 2.0}),
    "planner": ("planner", {"epochs": 2, "criteria_epochs": 1, "topics": 6, "posts": 5}),
    "summary": ("summary", {"epochs": 2, "posts": 5, "rounds": 1, "samples": 4}),
    "fewshot": ("fewshot", {"epochs": 3, "posts": 5}),
    "fewshot_posts": ("fewshot", {"epochs": 2, "posts": 5, "reads_posts": "true", "directions": 4}),
    "rubric_chain": ("rubric-chain", {"epochs": 1, "posts": 5, "loss_samples": 4}),
}


def asked(method: str, name: str) -> dict[str, object]:
    """What a model is shown when its scores are taken."""
    shown: dict[str, object] = {"context": "none" if "average" in name else "profile", "posts": 5}
    return shown | ({"labels": LAB, "shots": 4} if method == "fewshot" else {})


@pytest.mark.parametrize("name", list(ON_THE_ENCODER))
def test_methods_on_frozen_embeddings(golden: Golden, world: Path, trained: Trained, name: str) -> None:
    method, changes = ON_THE_ENCODER[name]
    found = trained(method, name, **changes)
    spec = ask.spec_of(world, name, ask.kind_of(method))
    scores = ask.scores_of_model(world, spec, LAB, split="validation", limit=3, **asked(method, name))
    golden(f"train_{name}", found | {"scores": scores}, relative=LOOSE)


def test_a_blend_of_two(golden: Golden, world: Path, trained: Trained) -> None:
    for name in ("head", "match"):
        method, changes = ON_THE_ENCODER[name]
        trained(method, name, **changes)
    found = ask.train(world, "blend", LAB, "blend", {"models": "head,match", "posts": 5})
    spec = ask.spec_of(world, "blend", "blend")
    scores = ask.scores_of_model(world, spec, LAB, split="validation", limit=3, posts=5)
    golden("train_blend", found | {"scores": scores}, relative=LOOSE)


def test_an_encoder_with_its_head(golden: Golden, world: Path, tiny_encoder: Path) -> None:
    changes = {"encoder": tiny_encoder, "topics": 6, "epochs": 2, "posts": 3, "batch_size": 32, "device": "cpu"}
    found = ask.train(world, "encoder", LAB, "tuned", changes, limit=40)
    spec = ask.spec_of(world, "tuned", ask.kind_of("encoder"))
    scores = ask.scores_of_model(world, spec, LAB, split="validation", limit=3, posts=3)
    golden("train_encoder", found | {"scores": scores}, relative=LOOSE)


def test_users_of_one_split_are_held_out(golden: Golden, world: Path, tiny_encoder: Path, one_file: str) -> None:
    changes = {"encoder": tiny_encoder, "topics": 4, "epochs": 2, "posts": 3}
    found = ask.train(world, "head", one_file, "held_out", changes, hold_out=0.3, seed=5)
    golden("train_hold_out", found, relative=LOOSE)


@pytest.fixture(scope="module")
def one_file(world: Path) -> str:
    """Rows of the training split in a file of their own."""
    rows = [{**row, "split": None} for row in ask.lab_rows_as_written(world / "lab", "train")]
    return str(ask.write_rows(world / "rows.jsonl", rows[:60]))


SMALL: dict[str, object] = {"lora_rank": 2, "learning_rate": 1e-2, "epochs": 2, "batch_size": 8}


@pytest.fixture(scope="module")
def few(world: Path) -> str:
    """A few rows of two splits, short enough for a tiny backbone."""
    rows = {split: ask.lab_rows_as_written(world / "lab", split) for split in ("train", "validation")}
    return str(ask.write_rows(world / "few.jsonl", [*rows["train"][:24], *rows["validation"][:8]]))


@pytest.fixture(scope="module")
def backbone(world: Path, few: str) -> Path:
    """A random Llama over the words of these rows."""
    texts = [text for row in ask.lines_of(Path(few)) for text in ask.row_texts(row)]
    return save_tiny_llama(world / "backbone", texts, max_position_embeddings=1024)


BACKBONES: dict[str, tuple[str, dict[str, object]]] = {
    "bt": ("bt", {"max_length": 256, "accumulate": 2}),
    "bt_margin": ("bt", {"max_length": 256, "accumulate": 1, "lora_rank": 0, "learning_rate": 1e-3, "margin": 0.5}),
    "bt_profile": ("bt-profile", {"max_length": 400, "accumulate": 2, "posts": 3, "drop_posts": 0.2}),
    "bt_profile_swap": ("bt-profile", {"max_length": 400, "accumulate": 1, "posts": 2, "swap_unknown": 0.3}),
}


@pytest.mark.parametrize("name", list(BACKBONES))
def test_methods_on_a_backbone(golden: Golden, world: Path, few: str, backbone: Path, name: str) -> None:
    pytest.importorskip("trl", reason="needs pip install 'prbench[train]'")
    method, changes = BACKBONES[name]
    found = ask.train(world, method, few, name, {"backbone": backbone, **SMALL, **changes})
    spec = ask.spec_of(world, name, ask.kind_of(method))
    shown: dict[str, object] = {"context": "none" if method == "bt" else "profile", "posts": changes.get("posts")}
    scores = ask.scores_of_model(world, spec, few, split="validation", limit=3, **shown)
    golden(f"train_{name}", found | {"scores": scores}, relative=LOOSE)


def planned(number: int, split: str) -> dict[str, Any]:
    """A row whose rubric is one word, which a tiny model learns to write."""
    cheap = number % 2 == 0
    wanted, other = ("cheap", "quick") if cheap else ("quick", "cheap")
    post = "I count money" if cheap else "I am in a hurry"
    return {
        "id": f"{split}-{number}",
        "user_id": f"{split}-{number}",
        "question": "What now ?",
        "profile": [{"id": "p", "category": "", "text": f"{post} {split} {number}"}],
        "rubric_aspects": [{"aspect": wanted, "evidence": "", "reason": ""}],
        "narrative": "",
        "category": "",
        "chosen": f"Take the {wanted} tea.",
        "rejected": f"Take the {other} tea.",
        "split": split,
    }


def test_a_language_model_that_plans(golden: Golden, tmp_path: Path, tiny_encoder: Path) -> None:
    pytest.importorskip("peft", reason="needs pip install 'prbench[train]'")
    rows = [planned(number, split) for split, count in (("train", 12), ("validation", 4)) for number in range(count)]
    data = str(ask.write_rows(tmp_path / "rows.jsonl", rows))
    words = [*(text for row in rows for text in ask.row_texts(row)), "- cheap quick"]
    backbone = save_tiny_llama(tmp_path / "backbone", words, max_position_embeddings=1024)
    learning = {"lora_rank": 8, "lora_dropout": 0.0, "learning_rate": 3e-2, "warmup": 0.0, "epochs": 4}
    changes = {"backbone": backbone, "encoder": tiny_encoder, "max_length": 400, "batch_size": 4, **learning}
    found = ask.train(tmp_path, "lm-planner", data, "planner", {**changes, "criteria_epochs": 2, "patience": 100})
    plans = ask.measure_planner(tmp_path, str(tmp_path / "planner"), data, split="validation", judge="fake:none")
    spec = ask.spec_of(tmp_path, "planner", ask.kind_of("lm-planner"))
    scores = ask.scores_of_model(tmp_path, spec, data, split="validation", limit=3)
    golden("train_lm_planner", found | {"scores": scores, "plans": plans["rows"]}, relative=LOOSE)


@pytest.mark.parametrize(
    "name,changes",
    [("sft", {"posts": 2}), ("sft_both", {"posts": 0, "answers": "both", "keep": "last"})],
)
def test_a_policy(
    golden: Golden,
    tmp_path: Path,
    world: Path,
    few: str,
    backbone: Path,
    one_subject: Path,
    name: str,
    changes: dict[str, object],
) -> None:
    pytest.importorskip("peft", reason="needs pip install 'prbench[train]'")
    found = ask.train(world, "sft", few, name, {"backbone": backbone, **SMALL, "max_length": 500, **changes})
    asked = {"data": one_subject, "split": "test", "judge": "lab", "limit": 2, "n": 2, "max_new_tokens": 8}
    said = ask.bon(tmp_path, models=("fake:length",), policy=f"hf:{world / name}", **asked)
    golden(f"train_{name}", found | {"says": [said["samples"], said["first sample"]]}, relative=LOOSE)
