"""Our side of each contract in the partner's own hands: OpenRLHF, verl, vLLM's records and verifiers, on a CPU.

They run in the environment of `make trainers-env`: `PRBENCH_VERL_PYTHON`, or the folder `.venv-verl`.
"""

import json
import os
import shlex
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.ppo.verl.conftest import BUILT, make_examples, serving
from tests.ppo.verl.test_with_verl import PYTHON, own_prompts

import prbench
from prbench.backends.hf import smollm2_folder
from prbench.downstream.ppo.openrlhf import export_openrlhf

HERE = Path(__file__).resolve().parent
VLLM_FORMS = PYTHON.parents[1] / "vllm-forms"
MODEL = "control:overlap"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.trainers,
    pytest.mark.skipif(
        not VLLM_FORMS.exists(),
        reason="needs the trainers' own code: run `make trainers-env`, or set PRBENCH_VERL_PYTHON to its python",
    ),
]


def run_inside(script: str, *arguments: object, scratch: Path, path: str = "") -> Any:
    """Run a script in the trainers' environment, and return what it prints last."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "HF_DATASETS_CACHE": str(scratch)}
    environment.pop("PYTHONPATH", None)
    if path:
        environment["PYTHONPATH"] = path
    done = subprocess.run(
        [PYTHON, HERE / "inside" / script, *map(str, arguments)],
        env=environment,
        cwd=scratch,
        capture_output=True,
        text=True,
        timeout=250,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-6000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with serving("--model", MODEL) as url:
        yield url


def test_openrlhf_runs_the_export(server: str, tmp_path: Path) -> None:
    folder = tmp_path / "export"
    examples = make_examples(range(20))
    settings = replace(BUILT, algorithm="grpo", group_size=4)
    export_openrlhf(folder, data=examples, validation=make_examples(range(20, 26)), settings=settings, server=server)
    flags = shlex.split((folder / "launch.sh").read_text().partition("train_ppo_ray")[2].replace("\\\n", " "))
    given = [word.replace("$here", str(folder)) for word in flags if word != "$@"]
    found = run_inside("openrlhf_run.py", server, *given, scratch=tmp_path)
    # Prompts are those of our own loop, token by token.
    assert found["ids"] == own_prompts(examples, settings)
    # The reward is the score of an evaluation, through the function and, not scaled, through the server.
    reward = prbench.reward_function(MODEL, posts=BUILT.posts)
    asked = examples[:3]
    scores = reward(
        [each.question for each in asked],
        [found["answer"]] * 3,
        profile=[[{"id": post.id, "text": post.text} for post in each.user.profile] for each in asked],
    )
    facts = json.loads((folder / "export.json").read_text())
    assert found["server"]["rewards"] == found["server"]["scores"] == pytest.approx(scores, abs=1e-6)
    assert found["function"]["raw"] == pytest.approx(scores, abs=1e-6)
    scaled = [(score - facts["center"]) / facts["spread"] for score in scores if score is not None]
    assert found["function"]["rewards"] == pytest.approx(scaled, abs=1e-5)
    assert found["down"] is None
    assert found["arguments"] == {
        "estimator": "group_norm",
        "clip": [-1e6, 1e6],
        "batch": 16,
        "learning_rate": 1e-6,
        "evaluation": str(folder / "validation.jsonl"),
    }


def test_verls_reward_loop_asks_our_server_to_classify(server: str, tmp_path: Path) -> None:
    user = {"kind": "profile", "posts": ["I save coins and plant beans."]}
    messages = [
        {"role": "system", "content": "Answer briefly."},
        {"role": "user", "content": "Someone saves coins. What to plant?", "question": "What to plant?", "user": user},
        {"role": "assistant", "content": "Plant beans, and save your coins."},
    ]
    found = run_inside("verl_classify.py", smollm2_folder(), server, json.dumps(messages), scratch=tmp_path)
    (score,) = prbench.reward_function(MODEL)(
        ["What to plant?"], [messages[2]["content"]], profile=[[{"text": text} for text in user["posts"]]]
    )
    assert found == {"reward_score": score}
    assert score


def test_vllms_own_records_make_the_requests_and_read_the_replies(tmp_path: Path) -> None:
    with serving("--model", "control:longest") as url:
        found = run_inside("vllm_forms.py", VLLM_FORMS, url, scratch=tmp_path)
    longer = [[0, 5.0], [1, 15.0]]
    assert {name: rows for name, rows in found.items() if name.endswith("/score")} == {
        f"{name} {path}": longer for name in ("queries", "text", "data") for path in ("/score", "/v1/score")
    }
    assert found["rerank"] == [[1, "parks and beans", 15.0]]
    assert found["classify"] == [[0, [5.0], 1]]


def test_verifiers_scores_answers_by_our_taskset(tmp_path: Path) -> None:
    path = os.pathsep.join(str(HERE.parents[1] / name) for name in ("src", "examples"))
    answer = next(iter(prbench.load_dataset("lab", split="train", limit=4))).chosen
    found = run_inside("verifiers_score.py", MODEL, answer, scratch=tmp_path, path=path)
    rows = prbench.prompt_rows("lab", split="train", limit=4)
    assert found["prompts"] == [row["prompt"][-1]["content"] for row in rows]
    assert found["ids"] == [row["id"] for row in rows]
    scores = prbench.reward_function(MODEL, posts=3)(
        [row["prompt"] for row in rows],
        [answer] * 4,
        question=[row["question"] for row in rows],
        profile=[row["profile"] for row in rows],
        user_id=[row["user_id"] for row in rows],
    )
    assert [each["reward"] for each in found["scored"]] == scores
    assert len(set(scores)) > 1
    assert found["failed"]["rewards"] == {"worth_to_user": None}
    assert "gave no score" in found["failed"]["error"]


def test_the_command_line_of_the_page_names_what_verifiers_knows(tmp_path: Path) -> None:
    page = (HERE.parents[1] / "docs" / "how-to" / "trainers.md").read_text(encoding="utf-8")
    (line,) = [each for each in page.splitlines() if each.startswith("vf-eval ")]
    path = os.pathsep.join(str(HERE.parents[1] / name) for name in ("src", "examples"))
    done = subprocess.run(
        [PYTHON.parent / "vf-eval", *shlex.split(line)[1:], "--dry-run"],
        env={**os.environ, "PYTHONPATH": path},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    (config,) = tmp_path.rglob("eval.json")
    assert json.loads(config.read_text())["env"]["taskset"]["task"]["reward_model"] == "head:lab-user"
