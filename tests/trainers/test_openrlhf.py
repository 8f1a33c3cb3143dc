"""The export for OpenRLHF: rows that say who asks, the server's score as the reward, and a launcher."""

import importlib.util
import json
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from tests.ppo.verl.conftest import BUILT, MARKER, Reply, Scripted, make_examples, serving
from tests.support.command_line import Ended

from prbench.context import Ask, fit_for, make_context
from prbench.downstream.ppo.openrlhf import export_openrlhf
from prbench.errors import DataError, UsageError
from prbench.reward_models import ModelSettings, load_reward_model
from prbench.schema import Example, RewardInput

MODEL = "control:overlap"


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with serving("--model", MODEL) as url:
        yield url


def export(folder: Path, server: str, train: list[Example] | None = None, **changes: Any) -> Path:
    export_openrlhf(
        folder,
        data=make_examples(range(20)) if train is None else train,
        validation=make_examples(range(20, 26)),
        settings=replace(BUILT, **changes),
        server=server,
    )
    return folder


@pytest.fixture(scope="module")
def exported(server: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return export(tmp_path_factory.mktemp("openrlhf") / "export", server)


def load_reward(folder: Path) -> ModuleType:
    """Load `reward.py` as OpenRLHF does: from its path."""
    spec = importlib.util.spec_from_file_location("reward_func", folder / "reward.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "dont_write_bytecode", True)
        spec.loader.exec_module(module)
    return module


def rows_of(folder: Path, name: str = "train.jsonl") -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / name).read_text(encoding="utf-8").splitlines()]


def test_the_reward_is_the_models_score_of_what_the_policy_wrote(exported: Path) -> None:
    """The answer ends where the policy's does, and the model is told of the user what an evaluation tells it."""
    reward, facts = load_reward(exported), json.loads((exported / "export.json").read_text())
    loaded = load_reward_model(MODEL, ModelSettings())
    examples = make_examples(range(20))
    asks = [Ask(user=each.user, question=each.question) for each in examples]
    contexts = make_context("profile", BUILT.posts).contexts(asks)
    prompt = "<|im_start|>user\nwhatever<|im_end|>\n<|im_start|>assistant\n"
    for row, example, user in zip(rows_of(exported), examples, contexts, strict=True):
        query = f"{prompt} {example.chosen} <|im_end|>"
        found = reward.reward_func([query], [prompt], [row["label"]])
        known = fit_for(loaded, user, question=example.question, responses=[example.chosen])
        (score,) = loaded.model.score([RewardInput(question=example.question, user=known, response=example.chosen)])  # type: ignore[union-attr]
        assert found["extra_logs"] == {"raw_score": [score.value]}
        assert found["rewards"] == found["scores"] == [(score.value - facts["center"]) / facts["spread"]]


def test_rows_hold_prompts_and_labels_and_nothing_hidden(exported: Path) -> None:
    rows = rows_of(exported)
    assert len(rows) == 20
    assert len(rows_of(exported, "validation.jsonl")) == 6
    for row, example in zip(rows, make_examples(range(20)), strict=True):
        assert row["prompt"][-1]["content"].endswith(f"Question: {example.question}")
        label = json.loads(row["label"])
        assert label["user"]["posts"] == [post.text for post in example.user.profile[::-1][:3]]
        assert "<|im_end|>" in label["ends"]
    assert not [path.name for path in exported.iterdir() if MARKER in path.read_text(encoding="utf-8")]
    assert {path.name for path in exported.iterdir()} == {
        *("train.jsonl", "validation.jsonl", "reward.py", "launch.sh", "export.json"),
    }


def test_the_launcher_says_every_setting(exported: Path, server: str, tmp_path: Path) -> None:
    def flags(folder: Path) -> dict[str, str]:
        words = shlex.split((folder / "launch.sh").read_text().partition("train_ppo_ray")[2].replace("\\\n", " "))
        named = [(word, after) for word, after in zip(words, [*words[1:], ""], strict=True) if word.startswith("--")]
        return dict(named)

    ours = flags(exported)
    assert ours["--data.prompt_dataset"] == "$here/train.jsonl"
    assert ours["--reward.remote_url"] == "$here/reward.py"
    assert ours["--train.num_episodes"] == "3"  # 5 steps of 8 prompts: two steps in a pass over 20 rows
    assert ours["--train.batch_size"] == "4"
    assert (ours["--algo.advantage.estimator"], ours["--rollout.n_samples_per_prompt"]) == ("gae", "1")
    grouped = flags(export(tmp_path / "grouped", server, algorithm="grpo", group_size=4))
    assert (grouped["--algo.advantage.estimator"], grouped["--rollout.n_samples_per_prompt"]) == ("group_norm", "4")
    assert subprocess.run(["bash", "-n", exported / "launch.sh"], check=False).returncode == 0


@pytest.mark.parametrize(
    ("replies", "says"),
    [
        ([Reply({"model": "other#1", "template_hash": "t", "rewards": [1.0]})], "this run learns from"),
        ([Reply({"error": "x"}, status=422)], "HTTP 422"),
        ([Reply(b"<html>")], "the reply is not JSON"),
        ([Reply({"error": "x"}, status=503)], "given up after 0.3 seconds: HTTP 503"),
        ([None], "1 answers"),
    ],
)
def test_what_is_no_reward_raises(exported: Path, tmp_path: Path, replies: list[Any], says: str) -> None:
    facts = json.loads((exported / "export.json").read_text())
    sender = {key: facts[key] for key in ("model", "template_hash")}
    bad = Reply({**sender, "rewards": [None]})
    scripted = Scripted(lambda number, path, body: replies[0] or bad)
    try:
        changed = {**facts, "server": scripted.url, "patience_seconds": 0.3}
        (tmp_path / "export.json").write_text(json.dumps(changed))
        (tmp_path / "reward.py").write_bytes((exported / "reward.py").read_bytes())
        reward = load_reward(tmp_path)
        reward.FIRST_WAIT_SECONDS = 0.05
        with pytest.raises(RuntimeError, match=says):
            reward.reward_func(["Q A"], ["Q"], ["{}"])
    finally:
        scripted.stop()


def test_a_busy_server_is_asked_again_with_the_token(
    exported: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = json.loads((exported / "export.json").read_text())
    good = {key: facts[key] for key in ("model", "template_hash")} | {"rewards": [0.5]}
    scripted = Scripted(lambda number, path, body: Reply(good) if number else Reply({}, status=503))
    try:
        monkeypatch.setenv("PRBENCH_SERVER_URL", scripted.url)
        monkeypatch.setenv("PRBENCH_SERVER_TOKEN", "s3cret")
        reward = load_reward(exported)
        reward.FIRST_WAIT_SECONDS = 0.01
        assert reward.reward_func(["Q A"], ["Q"], ["{}"])["extra_logs"] == {"raw_score": [0.5]}
        assert [each["Authorization"] for each in scripted.headers] == ["Bearer s3cret"] * 2
        assert scripted.bodies == [{"query": ["Q A"], "prompts": ["Q"], "labels": ["{}"]}] * 2
    finally:
        scripted.stop()


def test_the_start_is_refused_where_another_model_is_served(exported: Path) -> None:
    with serving("--model", "control:longest") as url:
        done = subprocess.run(
            [sys.executable, exported / "reward.py"],
            env={"PRBENCH_SERVER_URL": url},
            capture_output=True,
            text=True,
            check=False,
        )
    assert (done.returncode, "this run learns from" in done.stderr, done.stderr.count("\n")) == (1, True, 1)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"kl_budget": 1.0}, "--set kl_budget: OpenRLHF has nothing like it"),
        ({"max_failed": 0.5}, "--set max_failed: OpenRLHF has nothing like it"),
        ({"truncated": "mask"}, "masks no answers"),
        ({"context": "oracle"}, "no exported file may hold"),
    ],
)
def test_what_openrlhf_cannot_do_is_refused(tmp_path: Path, server: str, changes: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        export(tmp_path / "run", server, **changes)
    assert not (tmp_path / "run").exists()


def test_a_text_that_openrlhf_takes_for_a_picture_is_refused(tmp_path: Path, server: str) -> None:
    with pytest.raises(DataError, match="Example item-000: its prompt holds <image>"):
        export(tmp_path / "run", server, [replace(each, question="<image>?") for each in make_examples(range(20))])


def test_the_command_takes_the_folder_behind_a_name(
    server: str, tmp_path: Path, prbench: Callable[..., Ended]
) -> None:
    def run(*arguments: str) -> Any:
        learning = ("--policy", "smollm2", "--model", f"server:{server}", "--rollout-batch", "4", "--limit", "8")
        return prbench("ppo", "export", *arguments, "--data", "lab", *learning, "--max-new-tokens", "16")

    done = run(f"openrlhf:{tmp_path / 'run'}")
    assert done.code == 0, done.err
    assert "launch.sh" in done.out
    assert len(rows_of(tmp_path / "run")) == 8
    for arguments in (("openrlhf",), (f"openrlhf:{tmp_path / 'a'}", str(tmp_path / "b"))):
        refused = run(*arguments)
        assert (refused.code, "Name one folder to write" in refused.err) == (2, True)
