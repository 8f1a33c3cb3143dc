"""`prbench ppo` on the command line: one line for what is wrong, JSON for machines, the same run continued."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs pip install 'prbench[hf]'")

from tests.conftest import make_row
from tests.support.tiny_llama import save_tiny_llama

QUICK = (
    "--context",
    "none",
    "--steps",
    "1",
    "--rollout-batch",
    "8",
    "--max-new-tokens",
    "6",
    "--set",
    "minibatches=2",
)


@pytest.fixture
def policy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    folder = save_tiny_llama(tmp_path / "tiny", ["red green blue thrift seeds"], max_position_embeddings=256)
    capsys.readouterr()  # the writer's bar
    return folder


def test_a_run_leaves_rows_a_policy_and_a_page(prbench: Callable[..., Any], pairs: Path, policy: Path) -> None:
    asked = ("ppo", "--policy", str(policy), "--model", "fake:length", "--data", str(pairs))
    command = (*asked, *QUICK, "--out", "run", "--json")
    ended = prbench(*command)
    assert ended.code == 0, ended.err
    summary = ended.json["summary"]
    assert summary["updates"] == 1
    assert summary["reward_model"] == "fake:length"
    out = Path("run")
    rows = [json.loads(line) for line in (out / "steps.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == [0, 1]
    assert {
        "reward",
        "kl",
        "entropy",
        "length",
        "failure_rate",
        "tokens_per_second",
        "rollout_tokens_per_second",
    } <= rows[0].keys()
    assert (out / "policy" / "model.safetensors").exists()
    assert "<svg" in (out / "report.html").read_text()
    assert prbench(*command).json["summary"] == summary
    refused = prbench(*command[:-1], "--seed", "1")
    assert refused.code == 2
    assert "another settings.seed (its default)" in refused.err


def test_every_setting_may_be_given_either_way(prbench: Callable[..., Any], pairs: Path, policy: Path) -> None:
    asked = ("ppo", "--policy", f"hf:{policy}", "--model", "fake:length", "--data", str(pairs))
    by_set = [part for each in ("context=none", "seed=7", "posts=3", "steps=1") for part in ("--set", each)]
    by_set += ["--set", "rollout_batch=8", "--set", "max_new_tokens=6", "--set", "minibatches=2"]
    ended = prbench(*asked, *by_set, "--out", "run", "--json")
    assert ended.code == 0, ended.err
    settings = json.loads(Path("run/manifest.json").read_text())["config"]["settings"]
    assert (settings["context"], settings["seed"], settings["posts"]) == ("none", 7, 3)
    again = prbench(*asked, *QUICK, "--posts", "3", "--seed", "7", "--out", "run", "--json")
    assert again.code == 0, again.err  # the same run, so nothing was learned twice
    assert again.json["summary"] == ended.json["summary"]


def test_the_finished_policy_learns_on(prbench: Callable[..., Any], pairs: Path, policy: Path) -> None:
    common = ("--model", "fake:length", "--data", str(pairs), *QUICK, "--json")
    assert prbench("ppo", "--policy", str(policy), "--out", "one", *common).code == 0
    again = prbench("ppo", "--policy", "one/policy", "--out", "two", *common)
    assert again.code == 0, again.err


def test_labels_are_counted_and_need_no_shots(prbench: Callable[..., Any], pairs: Path, policy: Path) -> None:
    asked = ("ppo", "--policy", str(policy), "--model", "fake:length", "--data", str(pairs), *QUICK)
    ended = prbench(*asked, "--out", "run", "--labels", str(pairs))
    assert ended.code == 0, ended.err
    assert "context of policy / reward model: none / none, 10 labels" in ended.out
    lab = prbench("ppo", "--policy", str(policy), "--model", "fake:length", "--out", "lab", "--labels", "lab")
    assert lab.code == 2
    assert "--labels lab: there are none for the users of train" in lab.err
    asked_truth = ["ppo", "--policy", str(policy), "--model", "control:gold?noise=0.5", "--data", str(pairs)]
    truth = prbench(*asked_truth, "--out", "truth", "--labels", str(pairs))
    assert truth.code == 2
    assert "--model control:gold?noise=0.5 is shown none of them. Leave them out." in truth.err
    refused = prbench(*asked, "--out", "other", "--shots", "3")
    assert refused.code == 2
    assert "--shots 3: there are no labeled pairs to show" in refused.err


def test_failures_beyond_the_threshold_exit_with_one(prbench: Callable[..., Any], pairs: Path, policy: Path) -> None:
    common = ("ppo", "--policy", str(policy), "--data", str(pairs), *QUICK, "--out", "run")
    ended = prbench(*common, "--model", "fake:length?fail=0.6")
    assert ended.code == 1
    assert "rewards failed" in ended.err
    assert ended.err.strip().count("\n") == 0


def write_folder(folder: Path, judge: str) -> Path:
    """A data folder whose card names a judge."""
    folder.mkdir()
    (folder / "README.md").write_text(f"---\nprbench: {{judge: {json.dumps(judge)}}}\n---\n")
    (folder / "test.jsonl").write_text("".join(json.dumps(make_row(number)) + "\n" for number in range(12)))
    return folder


@pytest.mark.parametrize(
    "judge,note",
    [
        ("python:os:system?command=false", "the data's own judge is 'python:os:system?command=false', not the lab's"),
        ("lab", "has no 'subject', so its gold is not known"),
    ],
)
def test_a_judge_of_the_data_that_cannot_measure_on_the_way_leaves_no_gold(
    prbench: Callable[..., Any], policy: Path, tmp_path: Path, judge: str, note: str
) -> None:
    data = write_folder(tmp_path / "data", judge)
    command = ("ppo", "--policy", str(policy), "--model", "fake:length", "--data", str(data), *QUICK, "--out", "run")
    ended = prbench(*command)
    assert ended.code == 0, ended.err
    assert ended.err.count("note: no gold on the way: ") == 1
    assert note in ended.err
    assert all(json.loads(line).get("gold") is None for line in Path("run/steps.jsonl").read_text().splitlines())
    for typed, line in (("fake:x", "only the lab's judge measures on the way"), ("lab", "its gold is not known")):
        refused = prbench(*command[:-1], "other", "--judge", typed)
        assert (refused.code, refused.err.count("\n")) == (2, 1)
        assert line in refused.err


def write_splits(path: Path, *, users: str = "stranger", **meta: Any) -> Path:
    """Eight rows to learn from, and four to hold out."""
    kept = [make_row(number, split="train") for number in range(8)]
    held_out = [make_row(number, split="test", user_id=f"{users}-{number % 3}", meta=meta) for number in range(8, 12)]
    path.write_text("".join(json.dumps(row) + "\n" for row in [*kept, *held_out]))
    return path


def test_held_out_rows_are_checked_before_training(prbench: Callable[..., Any], policy: Path, tmp_path: Path) -> None:
    command = (
        "ppo",
        "--policy",
        str(policy),
        "--model",
        "fake:length",
        *QUICK,
        "--eval-split",
        "test",
        "--out",
        "run",
    )
    unknown = prbench(*command, "--data", str(write_splits(tmp_path / "unknown.jsonl")), "--split", "train")
    assert (unknown.code, "its gold is not known" in unknown.err) == (2, True)
    known = write_splits(tmp_path / "known.jsonl", subject="s", wanted=["w"])
    all_rows = prbench(*command, "--data", str(known))
    assert (all_rows.code, "User 'stranger-0' is among the training rows" in all_rows.err) == (2, True)
    same = write_splits(tmp_path / "same.jsonl", users="user", subject="s", wanted=["w"])
    same_users = prbench(*command, "--data", str(same), "--split", "train")
    assert (same_users.code, "User 'user-0' is among the training rows" in same_users.err) == (2, True)
    assert all(ended.err.count("\n") == 1 for ended in (unknown, all_rows, same_users))
    assert not Path("run").exists()


def test_gold_that_was_measured_at_the_end_alone_is_shown(prbench: Callable[..., Any], policy: Path) -> None:
    command = ("ppo", "--policy", str(policy), "--model", "fake:length", "--limit", "8", *QUICK, "--out", "run")
    ended = prbench(*command, "--set", "gold_every=0")
    assert ended.code == 0, ended.err
    assert "gold       ? → " in ended.out
    assert "context of policy / reward model: none / none" in ended.out


def test_compared_runs_say_what_they_were_told_and_how_far_off_they_are(
    prbench: Callable[..., Any], tmp_path: Path
) -> None:
    from prbench.downstream.ppo.evaluate import summarize

    run = tmp_path / "best"
    run.mkdir()
    facts = {"step": 3, "majority": None, "gold": 0.5, "kl": 1.0, "length": 9.0, "truncated": 0.0}
    rows = [{"id": f"i{number}", "user_id": f"u{number}", **facts} for number in range(4)]
    (run / "evaluation.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (run / "evaluation.json").write_text(json.dumps({"policies": summarize(rows)}))
    config = {"settings": {"policy": "p", "reward": "r", "context": "oracle"}}
    (run / "manifest.json").write_text(json.dumps({"kind": "ppo", "run_id": "x", "config": config}))
    ended = prbench("ppo", "compare", "best", "--at-kl", "4")
    assert ended.code == 0, ended.err
    assert "ceiling)" in ended.out
    assert "Warning: best: its nearest policy has a KL of 1.00, 3.00 nats off the asked 4." in ended.out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--model", "fake:length"), "Name a policy with --policy"),
        (("--policy", "p"), "Name what rewards its answers with --model"),
        (("--policy", "p", "--model", "fake:length"), "Name a folder for the run with --out"),
        (("--policy", "p", "--model", "m", "--set", "clips=1"), "Did you mean 'clip'?"),
        (("--policy", "p", "--model", "m", "--algorithm", "dpo"), "use one of ppo, grpo, rloo"),
        (
            ("export", "trl", "d", "--policy", "p", "--model", "m"),
            "Unknown kind 'trl' of trainer in 'ppo export trl'. Known kinds: verl, openrlhf.",
        ),
        (("export", "verl", "d", "--policy", "p", "--model", "fake:length"), "needs a reward server"),
        (("--policy", "p", "--model", "m", "--eval-split", "train", "--out", "run"), "Hold other users out"),
        (
            ("--policy", "p", "--model", "m", "--set", "temperature=0", "--out", "run"),
            "--set: temperature=0 cannot be used",
        ),
        (("--policy", "p", "--model", "control:gold?noise=1e999", "--out", "run"), "noise=1e999 cannot be used"),
        (("compare", "a"), "Name a distance with --at-kl"),
        (("compare", "a", "--at-kl", "2"), "was not evaluated yet"),
        (
            ("--policy", "./nowhere", "--model", "fake:length", "--out", "run"),
            "--policy ./nowhere: there is no such folder",
        ),
        (("--policy", "p", "--model", "judge:fake:A", "--out", "run"), "only compares"),
        (("--policy", "p", "--model", "m", "--set", "steps=1", "--steps", "2"), "steps is given as an option too"),
        (("--policy", "p", "--model", "m", "--set", "seed=1", "--seed", "0"), "seed is given as an option too"),
        (("--policy", "lab", "--model", "m"), "what learns is a language model in this process"),
        (("--policy", "hf:p?temperature=2", "--model", "m"), "what learns is a language model in this process"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(prbench: Callable[..., Any], arguments: tuple[str, ...], says: str) -> None:
    ended = prbench("ppo", *arguments)
    assert ended.code == 2
    assert says in ended.err
    assert ended.err.count("\n") == 1
