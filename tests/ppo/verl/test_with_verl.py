"""The export in verl's own hands: its configuration, loaders, reward managers and one step of its trainer, on a CPU.

They run in an environment of verl's own (`make verl-env`): `PRBENCH_VERL_PYTHON`, or the folder `.venv-verl`.
"""

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from transformers import AutoConfig, AutoTokenizer

from prbench.backends.hf import smollm2_folder
from prbench.context import make_context
from prbench.downstream.ppo.rollout import PromptTokenizer, make_tasks
from prbench.downstream.ppo.settings import PpoSettings
from prbench.schema import Example

HERE = Path(__file__).resolve().parent
DEFAULT = HERE.parents[2] / ".venv-verl" / "bin" / "python"
PYTHON = Path(os.environ.get("PRBENCH_VERL_PYTHON") or DEFAULT)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.verl,
    pytest.mark.skipif(
        not PYTHON.exists(), reason="needs verl: run `make verl-env`, or set PRBENCH_VERL_PYTHON to its python"
    ),
]
Examples = Callable[..., list[Example]]


def run_inside(script: str, folder: Path, scratch: Path, *overrides: str, **variables: str) -> dict[str, Any]:
    """Run a script with the overrides that the launcher would give, and return what it prints last."""
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
        "HF_DATASETS_CACHE": str(scratch / "datasets"),
        "RAY_AUTH_MODE": "disabled",
        **variables,
    }
    environment.pop("PYTHONPATH", None)  # prbench is not there, as on a cluster
    plan = subprocess.run(
        [PYTHON, folder / "preflight.py"], env=environment, capture_output=True, text=True, check=True, timeout=60
    )
    command = [PYTHON, HERE / "inside" / script, "--config-dir", folder, "--config-name", "config"]
    done = subprocess.run(
        [*command, *plan.stdout.splitlines(), *overrides],
        env=environment,
        cwd=scratch,
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-6000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def own_prompts(examples: list[Example], settings: PpoSettings) -> list[list[int]]:
    """Return the tokens that our own loop asks the policy with."""
    place = smollm2_folder()
    own = PromptTokenizer(AutoTokenizer.from_pretrained(place), AutoConfig.from_pretrained(place), "smollm2")
    context = make_context(settings.context, settings.posts, settings.rank)
    tasks = make_tasks(examples, own, context, context, max_new_tokens=settings.max_new_tokens)
    return [list(task.prompt_ids) for task in tasks]


@pytest.fixture(scope="module")
def placed(exported: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the export, in which runs may leave their files."""
    return Path(shutil.copytree(exported, tmp_path_factory.mktemp("cluster") / "export"))


@pytest.fixture(scope="module")
def parts(placed: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return run_inside("parts.py", placed, tmp_path_factory.mktemp("parts"))


# --- configuration


def test_verl_composes_and_accepts_the_configuration(parts: dict[str, Any], placed: Path) -> None:
    config = parts["config"]
    assert config["data"]["train_files"] == str(placed / "train.parquet")
    assert config["data"]["val_files"] == str(placed / "validation.parquet")
    assert config["reward"]["custom_reward_function"]["path"] == str(placed / "reward.py")
    assert config["actor_rollout_ref"]["rollout"]["prompt_length"] == config["data"]["max_prompt_length"]
    assert config["trainer"]["default_local_dir"] == str(placed / "runs" / config["trainer"]["experiment_name"])
    assert config["actor_rollout_ref"]["actor"]["optim"]["lr"] == 1e-6
    assert (parts["critic"], parts["reference"]) == (True, True)  # so the KL has something to be measured against


def test_verl_knows_every_key_that_we_set(exported: Path) -> None:
    """A key that it does not know would be laid beside its own without a word."""
    (path,) = PYTHON.parents[1].glob("lib/python*/site-packages/verl/trainer/config/_generated_ppo_trainer.yaml")
    known = yaml.safe_load(path.read_text())
    ours = yaml.safe_load((exported / "config.yaml").read_text())
    added = {"defaults", "prbench", "reward.custom_reward_function.reward_kwargs"}
    assert set(unknown_keys(ours, known)) == added | {
        f"trainer.v1.sampler.sampler_kwargs.{key}" for key in ("max_failed", "answers_per_prompt")
    }


def unknown_keys(ours: dict[str, Any], theirs: dict[str, Any], place: str = "") -> list[str]:
    found: list[str] = []
    for key, value in ours.items():
        if key not in theirs:
            found.append(place + key)
        elif isinstance(value, dict):
            found += unknown_keys(value, theirs[key], f"{place}{key}.")
    return found


# --- data


def test_verls_dataset_reads_every_row_and_lays_it_out_as_we_do(
    parts: dict[str, Any], examples: Examples, settings: PpoSettings
) -> None:
    for name, numbers in (("train_files", range(20)), ("val_files", range(20, 26))):
        rows = parts["rows"][name]
        expected = examples(numbers)
        assert [row["ids"] for row in rows] == own_prompts(expected, settings)
        assert [row["extra_info"]["id"] for row in rows] == [example.id for example in expected]
        assert [row["extra_info"]["question"] for row in rows] == [example.question for example in expected]
        assert {row["data_source"] for row in rows} == {"prbench"}


def test_verl_would_drop_prompts_and_finds_none_to_drop(parts: dict[str, Any]) -> None:
    """Defect 14: its filter says nothing of users that it drops, so no prompt may be over the limit."""
    assert parts["short"] < 20
    assert parts["filtered"] == 20


# --- rewards


def test_verls_reward_worker_gets_the_servers_scores(parts: dict[str, Any], exported: Path, server: str) -> None:
    reward = parts["reward"]
    assert (reward["function"], reward["manager"], reward["is_async"]) == ("compute_score", "NaiveRewardManager", True)
    extra = parts["rows"]["train_files"][0]["extra_info"]
    inputs = [
        {"question": extra["question"], "user": json.loads(extra["user"]), "response": response}
        for response in ("User 0 wrote about thrift and beans.", "Zebras.")
    ]
    reply = httpx.post(f"{server}/score", json={"inputs": inputs}, trust_env=False).json()
    raw = [score["value"] for score in reply["scores"]]
    assert raw[0] > raw[1]
    moments = json.loads((exported / "export.json").read_text())["reward_moments"]
    scaled = [(value - moments["center"]) / moments["spread"] for value in raw]
    assert reward["raw"] == raw
    assert reward["scores"] == pytest.approx(scaled)
    assert reward["sums"] == pytest.approx(scaled, rel=1e-5)
    assert reward["extra"] == [["raw_score", "score"]] * 2


def test_verls_naive_manager_lets_a_failure_through_and_the_other_one_would_pay_it(parts: dict[str, Any]) -> None:
    """Defect 3. This is why the configuration pins the manager, and the launcher refuses to change it."""
    assert "No score for item-000" in parts["down"]["naive"]["raised"]
    assert parts["down"]["rate_limited"] == {"paid": 0.0}


def test_a_validation_answer_without_a_score_is_not_counted_as_0(parts: dict[str, Any]) -> None:
    ours, bare = parts["validation"]["ours"], parts["validation"]["bare"]
    assert (ours["reward"]["mean@1"], ours["raw_score"]["mean@1"]) == (3.0, 7.0)
    assert bare["acc"]["mean@1"] == 1.5  # what a bare number would have brought


# --- a step


@pytest.fixture(scope="module")
def faulty(exported: Path) -> Callable[[int, str, Any], tuple[int, Any]]:
    """A reward server that fails for one answer of the first eight, and for three of the next eight."""
    export = json.loads((exported / "export.json").read_text())
    sender = {"model": export["model"], "template_hash": export["template_hash"]}
    asked: list[Any] = []

    def answer(number: int, path: str, body: Any) -> tuple[int, Any]:
        if path == "/ready" or body["question"] == "Is anybody there?":
            return 200, sender | {"scores": [{"value": 1.0}]}
        asked.append(body)
        if len(asked) in (3, 9, 11, 13):
            return 500, {"error": {"message": "the model raised an error"}}
        return 200, sender | {"scores": [{"value": 1.0 + len(body["response"]), "problem": "", "detail": ""}]}

    return answer


@pytest.fixture(scope="module")
def steps(
    placed: Path, faulty: Callable[..., tuple[int, Any]], tmp_path_factory: pytest.TempPathFactory, scripting: Any
) -> dict[str, Any]:
    with scripting(faulty) as url:
        return run_inside(
            "step.py",
            placed,
            tmp_path_factory.mktemp("step"),
            "reward.num_workers=1",
            "transfer_queue.backend.SimpleStorage.num_data_storage_units=1",
            PRBENCH_SERVER_URL=url,
        )


def test_an_answer_without_a_score_is_masked_and_not_paid(steps: dict[str, Any]) -> None:
    """Defect 3: verl leaves it out, and fills the minibatch with a row that counts for nothing."""
    first = steps["steps"][0]
    assert (first["real"], first["rows"]) == (7, 8)
    (padded,) = [place for place, is_padding in enumerate(first["is_padding"]) if is_padding]
    assert (first["tokens"][padded], first["scores"][padded], first["in_loss"][padded]) == (0, 0.0, 0.0)
    for place in set(range(8)) - {padded}:
        assert first["tokens"][place] > 0
        assert first["in_loss"][place] > 0
    assert len({round(score, 3) for place, score in enumerate(first["scores"]) if place != padded}) > 1


def test_failures_are_counted_in_verls_own_metrics(steps: dict[str, Any]) -> None:
    assert steps["buffer"] == "StoppingReplayBuffer"
    metrics = steps["steps"][0]["metrics"]
    assert (metrics["training/no_score/answers"], metrics["training/no_score/share"]) == (1.0, 0.125)


def test_too_many_failures_end_the_run(steps: dict[str, Any]) -> None:
    assert len(steps["steps"]) == 1
    assert "3 of 8 answers have no score, and at most 20% may" in steps["ended"]


def test_the_rollout_is_asked_with_our_prompts(
    steps: dict[str, Any], examples: Examples, settings: PpoSettings
) -> None:
    ours = own_prompts(examples(range(20)), settings)
    assert len(steps["prompts"]) == 16
    assert all(prompt in ours for prompt in steps["prompts"])
