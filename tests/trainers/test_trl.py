"""TRL's own trainers by the scripts of examples/: two steps of GRPO, and a reward model that comes back."""

import json
import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support.tiny_llama import save_tiny_llama

import prbench

pytest.importorskip("trl", reason="needs pip install 'prbench[train]'")
EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def words() -> list[str]:
    examples = prbench.load_dataset("lab", split="train", limit=8)
    template = (
        "You answer a question for one person. Say only what helps this person, in a few plain sentences. Question:"
    )
    return [template, *(text for each in examples for text in (each.question, each.chosen, each.rejected))]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., str]:
    """Run a script of examples/ and return the last line that it prints."""
    monkeypatch.chdir(tmp_path)

    def call(script: str, *arguments: object) -> str:
        monkeypatch.setattr(sys, "argv", [script, *map(str, arguments)])
        runpy.run_path(str(EXAMPLES / script), run_name="__main__")
        return capsys.readouterr().out.splitlines()[-1]

    return call


@pytest.mark.slow
def test_grpo_is_paid_by_a_reward_model_that_knows_the_user(tmp_path: Path, run: Callable[..., str]) -> None:
    policy = save_tiny_llama(tmp_path / "policy", words())
    options: tuple[Any, ...] = ("--steps", 2, "--limit", 4, "--answers", 4, "--tokens", 6)
    printed = run("trl_grpo.py", "--policy", policy, *options, "--out", tmp_path / "out")
    steps = json.loads(printed)
    assert [row["step"] for row in steps] == [1, 2]
    assert len({row["reward"] for row in steps}) == 2
    assert (tmp_path / "out" / "model.safetensors").exists()


@pytest.mark.slow
def test_a_reward_model_of_trl_comes_back_as_a_classifier(tmp_path: Path, run: Callable[..., str]) -> None:
    backbone = save_tiny_llama(tmp_path / "backbone", words(), max_position_embeddings=1024)
    options: tuple[Any, ...] = ("--steps", 2, "--limit", 8, "--batch", 2, "--posts", 2)
    printed = run("trl_reward_trainer.py", "--backbone", backbone, *options, "--out", tmp_path / "out")
    assert "profile on lab: accuracy" in printed
    run_of = prbench.evaluate("lab", f"classifier:{tmp_path / 'out'}", posts=2, split="test", limit=8, probes="own")
    assert run_of.summary["coverage"]["value"] == 1.0
    assert len({row.score_chosen for row in run_of.rows()}) > 4
