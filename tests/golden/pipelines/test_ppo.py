"""PPO on a tiny policy: every figure of every step, what the policy then says, and what its users get."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.golden import extract_pipelines as ask
from tests.golden.conftest import Golden

pytest.importorskip("peft", reason="needs pip install 'prbench[train]'")

Trained = Callable[..., dict[str, Any]]
LOOSE = 1e-4  # sums of a training differ in their last digits between processors
QUICK: dict[str, object] = {"minibatches": 2, "epochs": 2, "microbatch": 4, "value_learning_rate": 1e-2}


@pytest.fixture(scope="module")
def questions(world: Path) -> Path:
    """Questions of the population without its truth, which takes long to measure."""
    rows = [{**row, "meta": None, "split": None} for row in ask.lab_rows_as_written(world / "lab", "train")]
    return ask.write_rows(world / "questions.jsonl", rows)


def quick(data: Path, **changes: object) -> dict[str, Any]:
    """Two updates on eight answers of ten tokens to eight questions."""
    small = {"data": data, "limit": 8, "posts": 1, "steps": 2, "rollout_batch": 8}
    learning = {"max_new_tokens": 10, "learning_rate": 1e-2, "kl_coefficient": 0.1, "checkpoint_every": 1}
    return {**small, **learning, "settings": {**QUICK, "truncated": "score"}, **changes}


def test_rows_of_steps_and_what_the_policy_then_says(
    golden: Golden, tmp_path: Path, one_subject: Path, questions: Path, tiny_policy: Path
) -> None:
    found = ask.ppo(tmp_path, tiny_policy, model="fake:length", **quick(questions, steps=3))
    policy = f"hf:{ask.trained_policy(tmp_path)}"
    asked = {"data": one_subject, "split": "test", "judge": "lab", "limit": 2, "n": 3, "max_new_tokens": 8}
    said = ask.bon(tmp_path, models=("fake:length",), policy=policy, **asked)
    kept = ("samples", "first sample", "ends", "grades")
    golden("ppo_rows", found | {"says": {name: said[name] for name in kept}}, relative=LOOSE)


def test_gold_of_held_out_users(golden: Golden, tmp_path: Path, one_subject: Path, tiny_policy: Path) -> None:
    held_out = {"split": "train", "eval_split": "test", "eval_samples": 3, "judge": "lab"}
    found = ask.ppo(tmp_path, tiny_policy, model="control:longest", **quick(one_subject, **held_out))
    changes: dict[str, Any] = {"reward_context": "none", "settings": {**QUICK, "entropy_coefficient": 0.01}}
    ask.ppo(tmp_path, tiny_policy, model="fake:length", out="other", **quick(one_subject, **held_out, **changes))
    compared = ask.compared_policies(tmp_path, ("ppo", "other"), 1.0)
    golden("ppo_held_out", found | {"compared": compared}, relative=LOOSE)


def test_the_truth_with_noise_and_failures(
    golden: Golden, tmp_path: Path, one_subject: Path, tiny_policy: Path
) -> None:
    asked = quick(one_subject, split="train", max_failed=0.9)
    found = ask.ppo(tmp_path, tiny_policy, model="control:gold?noise=0.5&fail=0.3", judge="lab", **asked)
    golden("ppo_oracle", found, relative=LOOSE)


def test_every_term_of_the_loss(golden: Golden, tmp_path: Path, questions: Path, tiny_policy: Path) -> None:
    terms: dict[str, object] = {
        "entropy_coefficient": 0.02,
        "kl_loss_coefficient": 0.05,
        "value_moves_policy": "true",
        "value_coefficient": 0.5,
        "gamma": 0.98,
        "lam": 0.8,
        "weight_decay": 0.01,
        "warmup_steps": 2,
        "temperature": 0.9,
        "truncated": "penalize",
        "truncation_penalty": 0.5,
    }
    asked = quick(questions, context="none", settings={**QUICK, **terms, "epochs": 3})
    golden("ppo_terms", ask.ppo(tmp_path, tiny_policy, model="fake:length", **asked), relative=LOOSE)


def test_nothing_is_whitened_and_cut_answers_teach_nothing(
    golden: Golden, tmp_path: Path, questions: Path, tiny_policy: Path
) -> None:
    plain: dict[str, object] = {"whiten_rewards": "false", "whiten_advantages": "false", "truncated": "mask"}
    asked = quick(questions, context="none", settings={**QUICK, **plain})
    golden("ppo_plain", ask.ppo(tmp_path, tiny_policy, model="fake:length", **asked), relative=LOOSE)


def test_a_budget_of_distance(golden: Golden, tmp_path: Path, questions: Path, tiny_policy: Path) -> None:
    asked = quick(questions, context="none", steps=6, kl_budget=2.0)
    golden("ppo_budget", ask.ppo(tmp_path, tiny_policy, model="fake:length", **asked), relative=LOOSE)


def test_an_adapter(golden: Golden, tmp_path: Path, questions: Path, tiny_policy: Path) -> None:
    asked = quick(questions, context="none", lora_rank=2, learning_rate=3e-2)
    golden("ppo_lora", ask.ppo(tmp_path, tiny_policy, model="fake:length", **asked), relative=LOOSE)


def test_a_reward_model_that_reads_labels(
    golden: Golden, tmp_path: Path, world: Path, questions: Path, tiny_policy: Path, trained: Trained
) -> None:
    trained("fewshot", "fewshot", epochs=3, posts=5)
    asked = quick(questions, labels=questions, shots=2)
    found = ask.ppo(tmp_path, tiny_policy, model=ask.spec_of(world, "fewshot", "fewshot"), **asked)
    golden("ppo_labels", found, relative=LOOSE)


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["grpo", "rloo"])
def test_algorithms_of_groups(
    golden: Golden, tmp_path: Path, questions: Path, tiny_policy: Path, algorithm: str
) -> None:
    pytest.importorskip("trl", reason="needs pip install 'prbench[train]'")
    grouped = {"group_size": 4, "microbatch": 8, "minibatches": 4, "epochs": 1, "truncated": "score"}
    asked = quick(questions, context="none", rollout_batch=16, algorithm=algorithm, settings=grouped)
    golden(f"ppo_{algorithm}", ask.ppo(tmp_path, tiny_policy, model="fake:length", **asked), relative=LOOSE)


def test_what_verl_is_given(golden: Golden, tmp_path: Path, world: Path, tiny_policy: Path) -> None:
    pytest.importorskip("fastapi", reason="needs pip install 'prbench[serve]'")
    with ask.served(tmp_path, "control:overlap") as server:
        asked = quick(
            world / "lab",
            split="train",
            posts=2,
            context="none",
            reward_context="profile",
            eval_split="validation",
            eval_limit=3,
        )
        golden("ppo_verl", ask.verl_export(tmp_path, tiny_policy, model=server, **asked), relative=LOOSE)
