"""`prbench ppo` on the command line: one line for what is wrong, JSON for machines, the same run continued."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs pip install 'prbench[hf]'")

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
    assert {"reward", "kl", "entropy", "length", "failure_rate", "tokens_per_second"} <= rows[0].keys()
    assert (out / "policy" / "model.safetensors").exists()
    assert "<svg" in (out / "report.html").read_text()
    assert prbench(*command).json["summary"] == summary
    refused = prbench(*command[:-1], "--seed", "1")
    assert refused.code == 2
    assert "another seed" in refused.err


def test_the_finished_policy_learns_on(prbench: Callable[..., Any], pairs: Path, policy: Path) -> None:
    common = ("--model", "fake:length", "--data", str(pairs), *QUICK, "--json")
    assert prbench("ppo", "--policy", str(policy), "--out", "one", *common).code == 0
    again = prbench("ppo", "--policy", "one/policy", "--out", "two", *common)
    assert again.code == 0, again.err


def test_failures_beyond_the_threshold_exit_with_one(prbench: Callable[..., Any], pairs: Path, policy: Path) -> None:
    common = ("ppo", "--policy", str(policy), "--data", str(pairs), *QUICK, "--out", "run")
    ended = prbench(*common, "--model", "fake:length+fail=0.6")
    assert ended.code == 1
    assert "rewards failed" in ended.err
    assert ended.err.strip().count("\n") == 0


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--model", "fake:length"), "Name a policy with --policy"),
        (("--policy", "p"), "Name what pays with --model"),
        (("--policy", "p", "--model", "fake:length"), "Name a folder for the run with --out"),
        (("--policy", "p", "--model", "m", "--set", "clips=1"), "Did you mean clip?"),
        (("--policy", "p", "--model", "m", "--algorithm", "dpo"), "use one of ppo, grpo, rloo"),
        (("--policy", "p", "--model", "m", "--export", "trl", "d"), "Use --export verl DIR"),
        (("--policy", "p", "--model", "m", "--export", "verl", "d"), "needs a reward server"),
        (("--policy", "p", "--model", "m", "--eval-split", "train", "--out", "run"), "Hold other users out"),
        (("--compare", "a"), "needs --at-kl"),
        (("--compare", "a", "--at-kl", "2"), "was not evaluated yet"),
        (("--policy", "./nowhere", "--model", "fake:length", "--out", "run"), "no such folder"),
        (("--policy", "p", "--model", "judge:fake:A", "--out", "run"), "only compares"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(prbench: Callable[..., Any], arguments: tuple[str, ...], says: str) -> None:
    ended = prbench("ppo", *arguments)
    assert ended.code == 2
    assert says in ended.err
    assert ended.err.count("\n") == 1
