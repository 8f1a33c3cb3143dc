"""Held-out gold with intervals over users, and runs compared at equal distance from the reference."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.tiny_llama import save_tiny_llama

from prbench.downstream.ppo.evaluate import (
    HeldOutSettings,
    at_kl,
    check_users_disjoint,
    compare_at_kl,
    evaluate_run,
    summarize,
)
from prbench.downstream.ppo.loop import read_steps
from prbench.downstream.ppo.settings import PpoSettings
from prbench.downstream.ppo.training import train_policy
from prbench.errors import DataError, UsageError
from prbench.judging import LabJudge
from prbench.lab import LabSize, make_split
from prbench.pages.ppo import page_of_run
from prbench.schema import Example, Json


def row(step: int, item: int, gold: float, *, kl: float = 1.0, majority: bool | None = True) -> dict[str, Json]:
    return {
        "step": step,
        "id": f"i{item}",
        "user_id": f"u{item % 4}",
        "majority": majority,
        "gold": gold,
        "kl": kl,
        "length": 10.0,
        "truncated": 0.0,
    }


def test_gold_is_split_by_majority_and_minority() -> None:
    rows = [row(0, item, 0.5 if item < 6 else -0.25, majority=item < 6) for item in range(8)]
    (entry,) = summarize(rows)
    assert entry["gold"]["value"] == pytest.approx((6 * 0.5 - 2 * 0.25) / 8)
    assert (entry["gold_majority"]["value"], entry["gold_minority"]["value"]) == (0.5, -0.25)
    assert (entry["gold_majority"]["n"], entry["gold_minority"]["n"]) == (6, 2)
    assert entry["gold"]["low"] < entry["gold"]["value"] < entry["gold"]["high"]


def test_rows_without_sides_have_gold_alone() -> None:
    (entry,) = summarize([row(3, item, item / 10, majority=None) for item in range(6)])
    assert entry["gold_majority"] is None
    assert entry["step"] == 3


def evaluated(
    folder: Path, gains: dict[int, tuple[float, float]], *, seed: int = 0, weights: str = "w", context: str = "none"
) -> Path:
    """A run whose policies have these distances and golds."""
    rows = [row(step, item, gold + item / 100, kl=kl) for step, (kl, gold) in gains.items() for item in range(12)]
    folder.mkdir()
    (folder / "evaluation.jsonl").write_text("".join(json.dumps(each) + "\n" for each in rows))
    held_out = {"samples": 4, "seed": seed, "split": "test"}
    (folder / "evaluation.json").write_text(json.dumps({"held_out": held_out, "policies": summarize(rows)}))
    config = {"settings": {"policy": "p", "reward": "r", "context": context}, "policy_weights": weights}
    (folder / "manifest.json").write_text(json.dumps({"kind": "ppo", "run_id": "x", "config": config}))
    return folder


def test_runs_are_compared_where_their_distance_is_nearest_to_the_asked_one(tmp_path: Path) -> None:
    one = evaluated(tmp_path / "one", {0: (0.0, 0.1), 10: (2.1, 0.3), 20: (9.0, 0.8)})
    other = evaluated(tmp_path / "other", {0: (0.0, 0.1), 10: (1.0, 0.2), 20: (1.9, 0.5)})
    assert (at_kl(one, 2.0).step, at_kl(other, 2.0).step) == (10, 20)
    found = compare_at_kl([one, other], 2.0)
    assert found["runs"][0]["difference_from_first"] is None
    assert found["runs"][1]["difference_from_first"]["value"] == pytest.approx(0.2)
    with pytest.raises(UsageError, match="not evaluated yet"):
        compare_at_kl([one, tmp_path], 2.0)


def test_a_policy_far_from_the_asked_distance_is_named(tmp_path: Path) -> None:
    """A quarter of 4 nats is 1 nat; of 1 nat, half a nat is more."""
    one = evaluated(tmp_path / "one", {0: (0.0, 0.1), 10: (3.2, 0.3)})
    other = evaluated(tmp_path / "other", {0: (0.0, 0.1), 10: (1.4, 0.2)}, context="oracle")
    found = compare_at_kl([one, other], 4.0)
    assert [run["off_by"] for run in found["runs"]] == [pytest.approx(0.8), pytest.approx(2.6)]
    assert [run["context"] for run in found["runs"]] == ["none", "oracle"]
    (warning,) = found["warnings"]
    assert "other: its nearest policy has a KL of 1.40, 2.60 nats off the asked 4" in warning
    assert [run["off_by"] for run in compare_at_kl([other], 1.0)["runs"]] == [pytest.approx(0.4)]
    assert compare_at_kl([other], 1.0)["warnings"] == []


def test_runs_that_do_not_mean_the_same_are_not_compared(tmp_path: Path) -> None:
    gains = {0: (0.0, 0.1), 10: (2.0, 0.3)}
    one = evaluated(tmp_path / "one", gains)
    with pytest.raises(DataError, match="other held-out settings"):
        compare_at_kl([one, evaluated(tmp_path / "two", gains, seed=1)], 2.0)
    with pytest.raises(DataError, match="other reference weights"):
        compare_at_kl([one, evaluated(tmp_path / "three", gains, weights="v")], 2.0)


def test_held_out_users_are_others(questions: list[Example]) -> None:
    check_users_disjoint(questions[:1], questions[1:4])
    with pytest.raises(DataError, match=r"User 'user-0' is among .* \(1 such users\)"):
        check_users_disjoint(questions[:1], questions)


@pytest.mark.slow
def test_a_run_in_the_lab_is_measured_by_gold_on_other_users(
    settings: Callable[..., PpoSettings], tmp_path: Path, questions: list[Example]
) -> None:
    lab = list(make_split("train", LabSize(users=30, pairs=8)))
    held_out = list(make_split("test", LabSize(users=40, pairs=8)))
    words = " ".join(example.chosen for example in lab)
    policy = save_tiny_llama(tmp_path / "policy", [words], max_position_embeddings=512)
    wanted = settings(policy=str(policy), reward="fake:length", steps=2, rollout_batch=8, checkpoint_every=1)
    run = tmp_path / "run"
    summary = train_policy(lab, wanted, run, judge=LabJudge())
    assert all(isinstance(each["gold"], float) for each in read_steps(run))
    first = evaluate_run(run, held_out, HeldOutSettings(samples=2))
    assert [entry["step"] for entry in first["policies"]] == [0, 1, 2]
    assert first["policies"][0]["kl"] == pytest.approx(0.0, abs=1e-4)
    assert first["policies"][2]["kl"] > 0
    stamp = (run / "evaluation.jsonl").stat().st_mtime_ns
    assert evaluate_run(run, held_out, HeldOutSettings(samples=2)) == first
    assert (run / "evaluation.jsonl").stat().st_mtime_ns == stamp  # nothing was measured again
    reworded = [replace(held_out[0], question=f"{held_out[0].question} Really?"), *held_out[1:]]
    assert evaluate_run(run, reworded, HeldOutSettings(samples=2))["questions"] != first["questions"]
    assert (run / "evaluation.jsonl").stat().st_mtime_ns != stamp  # the same ids, but other rows
    assert page_of_run(run, summary, first)["held_out"] is not None
    assert page_of_run(run, summary)["held_out"] is None
    with pytest.raises(DataError, match="its gold is not known"):
        evaluate_run(run, questions, HeldOutSettings())
