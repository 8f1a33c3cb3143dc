"""Inside lm-evaluation-harness: its tasks give the accuracy of the same log-probabilities in prbench."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from math import sqrt
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("lm_eval", reason="needs lm-eval: `make test-harness`")

import lm_eval
import torch
from lm_eval.tasks import TaskManager
from tests.support.tiny_llama import CHAT, save_tiny_llama
from transformers import AutoModelForCausalLM, AutoTokenizer

import prbench
from prbench.downstream.harness import lm_eval as tasks
from prbench.prompts import load_template
from prbench.schema import RewardInput

pytestmark = pytest.mark.harness

FOLDER = str(Path(tasks.__file__).parent)
PROBES = ("own", "none", "swap")


class LogProbability:
    """log p(response | prompt), by transformers alone; the prompt is the turn that reward models are shown."""

    def __init__(self, folder: Path, *, chat: bool = False) -> None:
        self._model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        self._tokenizer = AutoTokenizer.from_pretrained(folder)
        self._chat = chat

    def score(self, inputs: Sequence[RewardInput]) -> list[float]:
        return [self._score(each) for each in inputs]

    def _score(self, each: RewardInput) -> float:
        ((_, prompt),) = load_template("turn").fill(question=each.question, context=each.context)
        if self._chat:
            messages = [{"role": "user", "content": prompt}]
            begun = self._tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
        else:
            begun = f"{prompt}\n\n"
        ids = self._tokenizer(begun + each.response, add_special_tokens=False)["input_ids"]
        start = len(self._tokenizer(begun, add_special_tokens=False)["input_ids"])
        if not self._chat:  # the template writes the BOS itself
            ids, start = [self._tokenizer.bos_token_id, *ids], start + 1
        with torch.no_grad():
            predicted = self._model(torch.tensor([ids])).logits[0].log_softmax(-1)
        return float(sum(predicted[place - 1, ids[place]] for place in range(start, len(ids))))


@pytest.fixture(scope="module")
def language_model(pairs_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    rows = [json.loads(line) for line in pairs_file.read_text(encoding="utf-8").splitlines()]
    texts = [row[name] for row in rows for name in ("question", "chosen", "rejected")]
    texts += [post["text"] for row in rows for post in row["profile"]]
    folder = tmp_path_factory.mktemp("model") / "tiny"
    return save_tiny_llama(folder, texts, chat_template=CHAT, initializer_range=0.6)


def evaluate(data: Path, model: Path, group: str = "prbench", **options: Any) -> dict[str, Any]:
    manager = TaskManager(include_path=FOLDER, include_defaults=False, metadata={"prbench": {"data": str(data)}})
    arguments = {"pretrained": str(model), "dtype": "float32", "add_bos_token": True}
    found: dict[str, Any] = lm_eval.simple_evaluate(
        model="hf",
        model_args=arguments,
        tasks=[group],
        task_manager=manager,
        device="cpu",
        batch_size=4,
        bootstrap_iters=0,
        **options,
    )
    return found


@pytest.fixture(scope="module")
def results(pairs_file: Path, language_model: Path) -> dict[str, Any]:
    return evaluate(pairs_file, language_model)


def exact_accuracy(run: prbench.Run, probe: str) -> float:
    points = {"chosen": 1.0, "tie": 0.5, "rejected": 0.0, "unreadable": 0.0}
    found = [points[row.verdict] for row in run.rows(probe=probe)]  # type: ignore[union-attr]
    return sum(found) / len(found)


def test_each_probe_is_a_task_with_the_accuracy_of_the_same_log_probabilities(
    results: dict[str, Any], pairs_file: Path, language_model: Path
) -> None:
    ours = prbench.evaluate(str(pairs_file), LogProbability(language_model))
    accuracies = {probe: results["results"][f"prbench_{probe}"]["acc,none"] for probe in PROBES}
    assert accuracies == pytest.approx({probe: exact_accuracy(ours, probe) for probe in PROBES}, abs=1e-9)
    assert 0 < accuracies["own"] < 1
    assert len(set(accuracies.values())) > 1, "the context has a say"


def test_the_log_probabilities_are_those_of_transformers(
    results: dict[str, Any], pairs_file: Path, language_model: Path
) -> None:
    ours = prbench.evaluate(str(pairs_file), LogProbability(language_model), probes=("own",))
    scores = {row.id: (row.score_chosen, row.score_rejected) for row in ours.items}  # type: ignore[union-attr]
    samples = results["samples"]["prbench_own"]
    assert len(samples) == 20
    for sample in samples:
        likelihoods, gold = [value for value, _ in sample["filtered_resps"]], sample["doc"]["gold"]
        assert (likelihoods[gold], likelihoods[1 - gold]) == pytest.approx(scores[sample["doc"]["id"]], abs=1e-4)
    assert 0 < sum(sample["doc"]["gold"] for sample in samples) < 20, "the order is mixed"


def test_with_a_chat_template_the_prompt_is_the_users_turn(pairs_file: Path, language_model: Path) -> None:
    found = evaluate(pairs_file, language_model, group="prbench_own", apply_chat_template=True)
    ours = prbench.evaluate(str(pairs_file), LogProbability(language_model, chat=True), probes=("own",))
    assert found["results"]["prbench_own"]["acc,none"] == pytest.approx(exact_accuracy(ours, "own"), abs=1e-9)


def test_the_error_is_clustered_by_users_and_that_of_lm_eval_is_not(results: dict[str, Any]) -> None:
    samples = results["samples"]["prbench_own"]
    mean = sum(sample["acc"] for sample in samples) / len(samples)
    sums: dict[str, list[float]] = {}
    for sample in samples:
        sums.setdefault(sample["doc"]["user_id"], []).append(sample["acc"] - mean)
    # The jackknife over users (MacKinnon and White 1985), by leaving each one out.
    everyone = [value for values in sums.values() for value in values]
    left_out = [(sum(everyone) - sum(values)) / (len(everyone) - len(values)) for values in sums.values()]
    users = len(left_out)
    expected = sqrt((users - 1) / users * sum(each**2 for each in left_out))
    assert results["results"]["prbench_own"]["error_by_user,none"] == pytest.approx(expected, abs=1e-9)


def test_no_task_holds_what_the_user_looks_for(results: dict[str, Any], marker: str) -> None:
    assert marker not in json.dumps(results["samples"], default=str)


def test_the_command_line_finds_the_tasks(pairs_file: Path, language_model: Path, tmp_path: Path) -> None:
    where = subprocess.run(
        [sys.executable, "-m", "prbench.downstream.harness.lm_eval"], capture_output=True, text=True, check=True
    )
    options = json.dumps({"prbench": {"data": str(pairs_file), "limit": 8}})
    command = [Path(sys.executable).with_name("lm-eval"), "run", "--tasks", "prbench", "--device", "cpu"]
    command += ["--model", "hf", "--model_args", f"pretrained={language_model},dtype=float32,add_bos_token=True"]
    command += ["--include_path", where.stdout.strip(), "--metadata", options, "--output_path", str(tmp_path / "out")]
    environment = os.environ | {"HF_HUB_OFFLINE": "1"}
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=280, env=environment)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    (path,) = (tmp_path / "out").rglob("results_*.json")
    found = json.loads(path.read_text(encoding="utf-8"))["results"]
    ours = prbench.evaluate(str(pairs_file), LogProbability(language_model), limit=8)
    for probe in PROBES:
        assert found[f"prbench_{probe}"]["acc,none"] == pytest.approx(exact_accuracy(ours, probe), abs=1e-9)
