"""Inside inspect_ai: the same prompts, replies and scores give the figures that prbench itself gives."""

import json
import subprocess
import sys
from collections import defaultdict
from hashlib import sha256
from math import sqrt
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("inspect_ai", reason="needs inspect_ai: `make test-harness`")

import inspect_ai
from inspect_ai import Task, score, task
from inspect_ai.dataset import Sample
from inspect_ai.log import EvalLog, read_eval_log
from inspect_ai.model import Model, ModelOutput, ModelUsage, get_model
from inspect_ai.solver import generate

import prbench
from prbench.backends.llm.client import ChatRequest, Finish, Reply
from prbench.backends.llm.fake import FakeLLM
from prbench.data import load_dataset
from prbench.downstream.harness.inspect_tasks import pairs, prefers, reward, verdict
from prbench.errors import UsageError
from prbench.prompts import load_template
from prbench.reward_models.generative import JudgeModel

pytestmark = pytest.mark.harness

PLANTED = ("Result: A", "Result: B", "It suits them.\nResult: A", "Both are fine.", "Result: B")
ALL = ["own", "none", "swap"]


def planted(prompt: str) -> tuple[str, bool]:
    """Return what the model says to a prompt, and whether it was cut off; it hangs on the prompt alone."""
    draw = sha256(prompt.encode()).digest()[0]
    return PLANTED[draw % len(PLANTED)], draw % 11 == 0


def planted_reply(request: ChatRequest) -> Reply:
    text, is_cut = planted(request.messages[-1].content)
    return Reply(text=text, finish=Finish.LENGTH if is_cut else Finish.STOP)


def mock_model() -> Model:
    def answer(messages: list[Any], *_: Any) -> ModelOutput:
        text, is_cut = planted(messages[-1].text)
        output = ModelOutput.from_content("mockllm", text, stop_reason="max_tokens" if is_cut else "stop")
        output.usage = ModelUsage(input_tokens=1, output_tokens=1, total_tokens=2)
        return output

    return get_model("mockllm/model", custom_outputs=answer, memoize=False)


def run(what: Any, folder: Path, **options: Any) -> EvalLog:
    (log,) = inspect_ai.eval(what, log_dir=str(folder), display="none", log_level="error", **options)
    assert log.status == "success", log.error
    return log


def figures_of(log: EvalLog) -> dict[str, float]:
    assert log.results is not None
    (scores,) = log.results.scores
    return {name: metric.value for name, metric in scores.metrics.items()}


def same_as_ours(found: dict[str, float], summary: Any, accuracy: str = "accuracy") -> None:
    assert found[accuracy] == pytest.approx(summary["accuracy"]["value"], abs=1e-6)  # a summary has six digits
    assert found["coverage"] == pytest.approx(summary["coverage"]["value"], abs=1e-6)
    for end in ("low", "high"):
        assert found[f"accuracy_{end}"] == pytest.approx(summary["accuracy"][end], abs=1e-6)


def exact_accuracy(found: prbench.Run, probe: str = "own") -> float:
    rows = found.rows(probe=probe)
    points = {"chosen": 1.0, "tie": 0.5, "rejected": 0.0, "unreadable": 0.0}
    return sum(points[row.verdict] for row in rows) / len(rows)  # type: ignore[union-attr]


def test_a_judge_gets_the_accuracy_gain_and_swap_gap_of_prbench_eval(pairs_file: Path, tmp_path: Path) -> None:
    judge = JudgeModel(FakeLLM(planted_reply), load_template("judge_pair"))
    ours = prbench.evaluate(str(pairs_file), judge)
    arguments = {"data": str(pairs_file), "probes": ALL}
    log = run("prbench/pairs", tmp_path, model=mock_model(), task_args=arguments)
    found = figures_of(log)
    same_as_ours(found, ours.summary, "accuracy_own")
    for probe in ALL:
        assert found[f"accuracy_{probe}"] == pytest.approx(exact_accuracy(ours, probe), abs=1e-9)
    assert 0 < exact_accuracy(ours) < 1
    assert 0 < found["coverage"] < 1
    gap, gain = ours.summary["swap"]["gap"], ours.summary["personalization_gain"]
    for name, estimate in (("gain", gain), ("swap_gap", gap)):
        assert found[name] == pytest.approx(estimate["value"], abs=1e-6)
        assert found[f"{name}_low"] == pytest.approx(estimate["low"], abs=1e-6)
    # Row by row: the verdict and both orders with their replies.
    assert log.samples is not None
    theirs = {(row["id"], row["probe"]): row for row in (_row(sample) for sample in log.samples)}
    assert len(theirs) == len(ours.items) == 60
    for row in ours.items:
        other = theirs[(row.id, row.probe.value)]
        assert other["verdict"] == row.verdict  # type: ignore[union-attr]
        assert other["orders"] == [dict(order) for order in row.orders]  # type: ignore[union-attr]


def _row(sample: Any) -> dict[str, Any]:
    ((_, found),) = sample.scores.items()
    row: dict[str, Any] = found.metadata["row"]
    return row


def test_the_standard_error_is_clustered_by_users(pairs_file: Path, tmp_path: Path) -> None:
    log = run("prbench/pairs", tmp_path, model=mock_model(), task_args={"data": str(pairs_file)})
    found = figures_of(log)
    assert log.samples is not None
    points = [(sample.metadata["user_id"], next(iter(sample.scores.values())).as_float()) for sample in log.samples]
    mean = sum(value for _, value in points) / len(points)
    assert found["accuracy"] == pytest.approx(mean, abs=1e-9)
    by_user: dict[str, float] = defaultdict(float)
    for user, value in points:
        by_user[user] += value - mean
    assert len(by_user) == 6
    expected = sqrt(sum(each**2 for each in by_user.values()) * 6 / 5) / len(points)
    assert found["stderr"] == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("model", ["control:overlap", "head:lab-user"])
def test_a_reward_model_gets_the_accuracy_of_prbench_eval(model: str, tmp_path: Path) -> None:
    ours = prbench.evaluate("lab", model, limit=40)
    arguments = {"data": "lab", "limit": 40, "probes": ALL, "reward_model": model}
    found = figures_of(run("prbench/pairs", tmp_path, model="none", task_args=arguments))
    same_as_ours(found, ours.summary, "accuracy_own")
    for probe in ALL:
        assert found[f"accuracy_{probe}"] == pytest.approx(exact_accuracy(ours, probe), abs=1e-9)
    assert found["swap_gap"] == pytest.approx(ours.summary["swap"]["gap"]["value"], abs=1e-6)


@pytest.mark.parametrize("orders", ["both", "one"])
def test_a_judge_of_ours_is_asked_in_as_many_orders_as_in_prbench_eval(
    orders: str, pairs_file: Path, tmp_path: Path
) -> None:
    ours = prbench.evaluate(str(pairs_file), "judge:fake:Result: A", orders=orders)
    arguments = {"data": str(pairs_file), "orders": orders, "reward_model": "judge:fake:Result: A"}
    found = figures_of(run("prbench/pairs", tmp_path, model="none", task_args=arguments))
    assert found["accuracy"] == pytest.approx(exact_accuracy(ours), abs=1e-9)
    assert (found["accuracy"] == 0.5) == (orders == "both")


def test_the_command_line_finds_the_task_by_its_entry_point(pairs_file: Path, tmp_path: Path) -> None:
    command = [Path(sys.executable).with_name("inspect"), "eval", "prbench/pairs", "--model", "none"]
    command += ["-T", f"data={pairs_file}", "-T", "reward_model=control:longest", "-T", "probes=own,none"]
    command += ["--log-dir", str(tmp_path / "logs"), "--display", "none"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    (path,) = (tmp_path / "logs").glob("*.eval")
    log = read_eval_log(str(path))
    ours = prbench.evaluate(str(pairs_file), "control:longest")
    assert figures_of(log)["accuracy_own"] == pytest.approx(exact_accuracy(ours), abs=1e-9)
    assert figures_of(log)["gain"] == 0.0


def test_a_log_can_be_scored_again_without_asking(pairs_file: Path, tmp_path: Path) -> None:
    log = run("prbench/pairs", tmp_path, model=mock_model(), task_args={"data": str(pairs_file)})
    again = score(read_eval_log(log.location), verdict(), action="overwrite", display="none")
    assert figures_of(again)["accuracy"] == figures_of(log)["accuracy"]
    other = score(read_eval_log(log.location), prefers("control:overlap"), action="overwrite", display="none")
    ours = prbench.evaluate(str(pairs_file), "control:overlap")
    assert figures_of(other)["accuracy"] == pytest.approx(exact_accuracy(ours), abs=1e-9)


def test_no_sample_holds_what_the_user_looks_for(pairs_file: Path, marker: str) -> None:
    assert marker in pairs_file.read_text(encoding="utf-8")
    made = pairs(data=str(pairs_file), probes=ALL)
    told = [sample.model_dump_json() for sample in made.dataset]
    assert len(told) == 60
    assert marker not in "".join(told)


def test_a_judge_is_not_told_which_response_is_the_chosen(pairs_file: Path) -> None:
    samples = list(pairs(data=str(pairs_file)).dataset)
    first = [sample.metadata["prompts"][0]["chosen_first"] for sample in samples]  # type: ignore[index]
    assert 0 < sum(first) < 20, "the order is mixed"
    assert "chosen" not in "".join(str(message) for sample in samples for message in sample.input).lower()


def test_figures_are_left_out_where_epochs_were_averaged(pairs_file: Path, tmp_path: Path) -> None:
    replies = iter(range(10**6))

    def moody(messages: list[Any], *_: Any) -> ModelOutput:
        output = ModelOutput.from_content("mockllm", f"Result: {'AB'[(next(replies) // 3) % 2]}")
        output.usage = ModelUsage(input_tokens=1, output_tokens=1, total_tokens=2)
        return output

    model = get_model("mockllm/model", custom_outputs=moody, memoize=False)
    found = figures_of(run("prbench/pairs", tmp_path, model=model, task_args={"data": str(pairs_file)}, epochs=2))
    assert {"accuracy", "stderr"} <= set(found)
    assert "accuracy_low" not in found


@task
def answers() -> Task:
    posts = [{"text": "I count every coin."}]
    samples = [
        Sample(input="How do I spend a Saturday?", id=1, metadata={"profile": posts}),
        Sample(input="What shall I cook?", id=2, metadata={}),
    ]
    return Task(dataset=samples, solver=generate(), scorer=reward("control:overlap"))


def test_a_completion_of_any_task_gets_the_score_of_reward_function(tmp_path: Path) -> None:
    said = "Walk, and count every coin."
    output = ModelOutput.from_content("mockllm", said)
    output.usage = ModelUsage(input_tokens=1, output_tokens=1, total_tokens=2)
    log = run(answers(), tmp_path, model=get_model("mockllm/model", custom_outputs=[output] * 2, memoize=False))
    ours = prbench.reward_function("control:overlap")(
        ["How do I spend a Saturday?", "What shall I cook?"],
        [said, said],
        profile=[[{"text": "I count every coin."}], []],
    )
    assert log.samples is not None
    found = {sample.id: next(iter(sample.scores.values())).as_float() for sample in log.samples}
    assert found == {1: ours[0], 2: ours[1]}
    assert found[1] > found[2]


@pytest.mark.parametrize(
    "options,fact",
    [
        ({"data": "nowhere.jsonl"}, "nowhere.jsonl"),
        ({"probes": "own,twin"}, "'twin' is unknown"),
        ({"context": "horoscope"}, "horoscope"),
        ({"orders": "three"}, "orders='three'"),
        ({"posts": "ten"}, "posts: Input should be a valid integer"),
        ({"template": "rate"}, "has the slots"),
        ({"template": "judge_pair", "reward_model": "control:longest"}, "Drop one"),
        ({"reward_model": "control:overlap?labels=x.jsonl"}, "no labeled pairs"),
    ],
)
def test_a_wrong_option_is_one_line(pairs_file: Path, options: dict[str, Any], fact: str) -> None:
    with pytest.raises(prbench.errors.PrbenchError, match=fact) as error:
        pairs(**{"data": str(pairs_file), **options})
    assert "\n" not in str(error.value)


def test_a_scorer_of_pairs_refuses_other_samples(tmp_path: Path) -> None:
    wrong = Task(dataset=[Sample(input="Hello", id=1)], solver=[], scorer=prefers("control:longest"))
    (log,) = inspect_ai.eval(wrong, model="none", log_dir=str(tmp_path), display="none", log_level="error")
    assert log.status == "error"
    assert log.error is not None
    assert "prbench/reward" in log.error.message
    with pytest.raises(UsageError, match="only compares"):
        reward("judge:fake:A")


def test_a_model_that_is_to_be_shown_something_else_is_not_scored_on_these_samples(
    pairs_file: Path, tmp_path: Path
) -> None:
    arguments = {"data": str(pairs_file), "reward_model": "control:overlap?context=none"}
    log = run("prbench/pairs", tmp_path / "none", model="none", task_args=arguments)
    assert figures_of(log)["accuracy"] == pytest.approx(
        exact_accuracy(prbench.evaluate(str(pairs_file), "control:overlap", context="none")), abs=1e-9
    )
    shown = run("prbench/pairs", tmp_path / "all", model=mock_model(), task_args={"data": str(pairs_file)})
    with pytest.raises(UsageError, match="made with context profile"):
        score(read_eval_log(shown.location), prefers("control:overlap?context=none"), display="none")


def test_the_pairs_are_those_of_the_file(pairs_file: Path) -> None:
    known = {example.id: example for example in load_dataset(str(pairs_file))}
    for sample in pairs(data=str(pairs_file)).dataset:
        assert sample.metadata is not None
        example = known[str(sample.id)]
        assert (sample.metadata["chosen"], sample.metadata["rejected"]) == (example.chosen, example.rejected)  # type: ignore[union-attr]
        assert json.dumps(sample.metadata["context"]["segments"]).count("on beans") == 3
