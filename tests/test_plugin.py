"""A kind of reward model from another package: one file and an entry point there, and no edit here.

`tests/plugin` is that package, as an installer would lay it out. The same object works without an entry point by
`python:package.module:Factory?key=value`, as do policies and datasets.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.command_line import prbench

from prbench.errors import UsageError
from prbench.registry import MODELS
from prbench.reward_models import ModelSettings, load_reward_model

__all__ = ["prbench"]  # a fixture

PLUGIN = Path(__file__).parent / "plugin"
SPECS = ("toy:tea?times=2", "python:toy_rewards:ToyReward?word=tea&times=2")


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.syspath_prepend(str(PLUGIN))
    yield
    sys.modules.pop("toy_rewards", None)


@pytest.fixture
def pairs(tmp_path: Path) -> Path:
    rows = [
        {
            "id": f"row-{number}",
            "user_id": f"user-{number % 4}",
            "question": f"What to drink, number {number}?",
            "profile": [{"id": "p", "category": "c", "text": f"I drink at {number % 4}."}],
            "rubric_aspects": [{"aspect": "tea", "evidence": "e", "reason": "r"}],
            "chosen": "Take some tea, tea I say.",
            "rejected": f"Take coffee at {number}.",
            "category": "c",
        }
        for number in range(8)
    ]
    path = tmp_path / "pairs.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_it_is_listed_with_its_options(prbench: Callable[..., Any]) -> None:
    assert "toy:WORD?times=2" in prbench("models").out
    (line,) = prbench("models", "toy", "--json").json
    assert line["kind"] == "toy"
    assert [option["name"] for option in line["options"]][:2] == ["times", "context"]
    assert "toy" in MODELS.names


@pytest.mark.parametrize("spec", SPECS)
def test_eval_scores_with_it(spec: str, prbench: Callable[..., Any], pairs: Path) -> None:
    ended = prbench("eval", "--model", spec, "--data", str(pairs), "--json")
    assert ended.json["model"] == spec
    assert ended.json["accuracy"]["value"] == 1.0
    rows = [
        json.loads(line) for line in (Path("runs") / ended.json["run_id"] / "items.jsonl").read_text().splitlines()
    ]
    assert {(row["score_chosen"], row["score_rejected"]) for row in rows} == {(4.0, 0.0)}


@pytest.mark.parametrize("spec", SPECS)
def test_best_of_n_and_meta_know_it(spec: str, prbench: Callable[..., Any]) -> None:
    models = (spec, f"{spec}&context=none", "control:longest", "control:random", "control:gold")
    asked = [part for model in models for part in ("--model", model)]
    picked = prbench("bon", *asked, "--users", "4", "--limit", "8", "--n", "2", "--out", "bon", "--json")
    assert {*models} < picked.json["models"].keys()
    assert picked.json["models"]["control:gold"]["context"] == "oracle"
    runs = [prbench("eval", "--model", model, "--limit", "8", "--json").json["run_id"] for model in models]
    benchmark = [part for run in runs for part in ("--benchmark", f"runs/{run}")]
    told = prbench("meta", *benchmark, "--downstream", f"bon/{picked.json['run_id']}", "--json")
    found = json.dumps(told.json)
    assert spec in found
    assert f"{spec}&context=none" in found


def test_a_policy_of_ones_own_answers(prbench: Callable[..., Any]) -> None:
    policy = "python:toy_rewards:Parrot?times=2"
    ended = prbench(
        "bon", "--model", SPECS[0], "--policy", policy, "--users", "2", "--limit", "2", "--n", "2", "--json"
    )
    assert (ended.json["policy"], ended.json["questions"]) == (policy, 2)


def test_a_server_serves_it(pairs: Path) -> None:
    pytest.importorskip("fastapi")
    code = "from prbench.cli import main; main()"
    server = subprocess.Popen(
        [sys.executable, "-c", code, "serve", "--model", SPECS[0], "--port", "0", "--json"],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(PLUGIN), os.environ.get("PYTHONPATH", "")])},
    )
    try:
        assert server.stdout is not None
        ready = json.loads(server.stdout.readline())
        assert ready["model"].startswith("toy:tea?times=2#")
        loaded = load_reward_model(f"server:{ready['url']}", ModelSettings())
        from prbench.schema import RewardInput

        (score,) = loaded.model.score([RewardInput(question="Q", response="tea")])  # type: ignore[union-attr]
        assert score.value == 2.0
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(timeout=30)


@pytest.mark.parametrize("spec", SPECS)
def test_ppo_is_paid_by_it(spec: str, prbench: Callable[..., Any], pairs: Path, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    from tests.support.tiny_llama import save_tiny_llama

    policy = save_tiny_llama(tmp_path / "policy", ["tea", "coffee", "Take"], max_position_embeddings=256)
    ended = prbench(
        "ppo", "--policy", str(policy), "--model", spec, "--data", str(pairs), "--steps", "1", "--rollout-batch", "8",
        "--max-new-tokens", "4", "--set", "minibatches=1", "--set", "epochs=1", "--out", "ppo", "--json",
    )  # fmt: skip
    assert ended.json["summary"]["reward_model"] == spec


def test_rows_may_come_from_a_function(prbench: Callable[..., Any]) -> None:
    ended = prbench("eval", "--model", SPECS[0], "--data", "python:toy_rewards:rows?users=3", "--json")
    assert (ended.json["n_items"], ended.json["accuracy"]["value"]) == (3, 1.0)


@pytest.mark.parametrize(
    "spec,part",
    [
        ("tyo:tea", "Did you mean 'toy'"),
        ("toy:tea?tims=2", "Did you mean 'times'"),
        ("toy:tea?times=x", "Give a whole number"),
        ("python:toy_rewards", "write python:package.module:Factory"),
        ("python:toy_reward:ToyReward", "there is no module toy_reward"),
        ("python:toy_rewards:ToyRewards", "Check the name"),
        ("python:toy_rewards:NOT_CALLABLE", "is a int, and cannot be called"),
        ("python:toy_rewards:ToyReward", "word is missing, and has no default"),
        ("python:toy_rewards:ToyReward?word=a&tims=2", "Did you mean 'times'"),
        ("python:toy_rewards:ToyReward?word=a&times=x", "Give a whole number"),
        ("python:toy_rewards:rows", "neither score"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(spec: str, part: str) -> None:
    with pytest.raises(UsageError, match=part) as caught:
        load_reward_model(spec, ModelSettings())
    assert "\n" not in str(caught.value)


def test_a_package_that_is_broken_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "broken-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1.0\n")
    (folder / "entry_points.txt").write_text("[prbench.reward_models]\ngone = no_such_module:KIND\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(UsageError, match="entry point gone = no_such_module:KIND of broken cannot be loaded"):
        load_reward_model("gone:x", ModelSettings())
    assert load_reward_model("toy:tea", ModelSettings()).kind == "toy"
