"""The loop learns what it is paid for, stays where it must, masks what failed, and goes on exactly."""

import json
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from tests.ppo.conftest import ShareOfRed, failing_red
from tests.support.tiny_llama import save_tiny_llama

from prbench.data import DataSettings
from prbench.downstream.ppo.loop import STEPS, TIMING, kept_policies, read_steps
from prbench.downstream.ppo.rollout import RewardCandidate, RewardsFailedError
from prbench.downstream.ppo.settings import PpoSettings
from prbench.downstream.ppo.training import train_policy
from prbench.errors import DataError, RunError, UsageError
from prbench.evaluation import open_labels
from prbench.judging import LabJudge
from prbench.lab import LabSize, make_split
from prbench.pages.ppo import page_of_run
from prbench.runs.files import read_json
from prbench.schema import Example, Json, LabeledPair, Score

Make = Callable[..., PpoSettings]


def train(examples: list[Example], settings: PpoSettings, out: Path, reward: Any = None) -> dict[str, Json]:
    return train_policy(examples, settings, out, reward=reward or ShareOfRed())


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "model.safetensors")


@pytest.mark.slow
def test_reward_rises_with_every_seed(questions: list[Example], settings: Make, tmp_path: Path) -> None:
    """From about 0.07 (one word of seventeen) to more than 0.6, which no seed comes near by chance."""
    for seed in range(3):
        out = tmp_path / str(seed)
        train(questions, settings(seed=seed, steps=12), out)
        rewards = [row["reward"] for row in read_steps(out)]
        before, after = rewards[:2], rewards[-4:]
        noise = read_steps(out)[0]["reward_deviation"] / 64**0.5  # standard error of one step's mean
        assert fmean(before) < 0.3
        assert fmean(after) > 0.6
        assert fmean(after) - fmean(before) > 10 * noise
        assert stdev(after) < 0.2


def test_a_learning_rate_of_zero_changes_nothing(
    questions: list[Example], settings: Make, tmp_path: Path, tiny_policy: Path
) -> None:
    train(questions, settings(steps=2, learning_rate=0.0, value_learning_rate=0.0), tmp_path / "run")
    before, after = weights(tiny_policy), weights(tmp_path / "run" / "policy")
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert [row["kl"] for row in read_steps(tmp_path / "run")] == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("price", ["kl_coefficient", "kl_loss_coefficient"])
def test_a_huge_price_of_distance_keeps_the_policy_in_place(
    questions: list[Example], settings: Make, tmp_path: Path, price: str
) -> None:
    free = train(questions, settings(learning_rate=3e-3), tmp_path / "free")
    held = train(questions, settings(learning_rate=3e-3, **{price: 1000.0}), tmp_path / "held")
    assert free["last"]["kl"] > 1.0
    assert abs(held["last"]["kl"]) < 0.5
    assert held["last"]["reward"] < 0.5 * free["last"]["reward"]


def test_a_policy_beyond_the_budget_is_taken_back(questions: list[Example], settings: Make, tmp_path: Path) -> None:
    out = tmp_path / "run"
    summary = train(questions, settings(kl_budget=4.0, steps=20, checkpoint_every=1), out)
    rows = read_steps(out)
    assert summary["ended"] == "kl_budget"
    assert rows[-1]["beyond_budget"]
    assert rows[-1]["kl"] > 4.0
    assert all(row["kl"] <= 4.0 for row in rows[:-1])
    assert summary["updates"] == rows[-2]["step"]
    assert summary["last"]["kl"] == rows[-2]["kl"]
    assert max(kept_policies(out)) == summary["updates"]
    kept, final = weights(kept_policies(out)[summary["updates"]]), weights(out / "policy")
    assert all(torch.equal(kept[name], final[name]) for name in final)


def test_failures_are_masked_and_counted_and_it_still_learns(
    questions: list[Example], settings: Make, tmp_path: Path
) -> None:
    reward = failing_red(0.05)
    summary = train(questions, settings(), tmp_path / "run", reward)
    rows = read_steps(tmp_path / "run")
    assert 0 < summary["rewards_failed"] < 0.15 * summary["rewards_asked"]
    assert all(row["masked"] == row["failed"] for row in rows[:-1])
    assert all(row["failure_rate"] == pytest.approx(row["failed"] / row["rewards"], abs=1e-5) for row in rows)
    assert all(row["rewards"] == 64 - round(64 * row["empty"]) for row in rows)
    assert summary["rewards_asked"] == sum(row["rewards"] for row in rows) < 64 * len(rows)
    assert summary["last"]["reward"] > summary["first"]["reward"] + 0.2


def test_many_failures_stop_the_run_and_the_same_command_goes_on(
    questions: list[Example], settings: Make, tmp_path: Path
) -> None:
    class Server:
        """Works, then is down for a while."""

        identity = ShareOfRed.identity
        calls = 0

        def score(self, candidates: list[RewardCandidate]) -> list[Score]:
            self.calls += 1
            return (failing_red(0.6) if self.calls == 3 else ShareOfRed()).score(candidates)

    out, server = tmp_path / "run", Server()
    with pytest.raises(RewardsFailedError, match=r"step 2: \d+ of 63 rewards failed .*--max-failed 0.2"):
        train(questions, settings(steps=4), out, server)
    stopped = train(questions, settings(steps=4), out, server)
    calm = train(questions, settings(steps=4), tmp_path / "calm")
    assert stopped == calm


def test_answers_that_all_failed_teach_nothing(questions: list[Example], settings: Make, tmp_path: Path) -> None:
    broken = failing_red(1.0)
    summary = train(questions, settings(steps=1, max_failed=1.0), tmp_path / "run", broken)
    assert summary["last"]["kl"] == 0.0
    assert summary["rewards_failed"] >= 100
    assert summary["first"]["reward"] is None
    assert all(row["reward"] is None and row["reward_deviation"] is None for row in read_steps(tmp_path / "run"))


@pytest.mark.parametrize("every", [0, 100])
def test_the_policy_that_a_budget_ends_with_has_its_gold(settings: Make, tmp_path: Path, every: int) -> None:
    lab = list(make_split("train", LabSize(users=30, pairs=8)))
    words = " ".join(example.chosen for example in lab)
    policy = save_tiny_llama(tmp_path / "policy", [words], max_position_embeddings=512)
    wanted = settings(
        policy=str(policy), steps=20, rollout_batch=16, learning_rate=1e-3, kl_budget=0.5, gold_every=every
    )
    summary = train_policy(lab, wanted, tmp_path / "run", reward=LongWords(), judge=LabJudge())
    assert (summary["ended"], summary["updates"] > 0) == ("kl_budget", True)
    assert isinstance(summary["last"]["gold"], float)
    always = train_policy(
        lab, replace(wanted, gold_every=1), tmp_path / "always", reward=LongWords(), judge=LabJudge()
    )
    assert summary["last"] == always["last"]  # measured on the same answers


class LongWords:
    """Pays the letters per word."""

    identity: Mapping[str, Json] = {"spec": "long words"}

    def score(self, candidates: Sequence[RewardCandidate]) -> list[Score]:
        return [Score(value=fmean(map(len, candidate.response.split()))) for candidate in candidates]


def test_a_policy_that_diverges_ends_in_one_line_and_leaves_no_row_of_it(
    questions: list[Example], settings: Make, tmp_path: Path
) -> None:
    with pytest.raises(RunError, match=r"^step \d+: \w+ is (nan|inf)\. The policy diverged.*--learning-rate"):
        train(questions, settings(learning_rate=1e30, checkpoint_every=1), tmp_path / "run")
    assert not (tmp_path / "run" / "checkpoint.pt").exists()
    assert read_steps(tmp_path / "run") == []


def test_a_reward_that_is_not_finite_ends_in_one_line(
    questions: list[Example], settings: Make, tmp_path: Path
) -> None:
    class Overflowing(ShareOfRed):
        def score(self, candidates: Sequence[RewardCandidate]) -> list[Score]:
            return [Score(value=float("inf")) for _ in candidates]

    with pytest.raises(RunError, match="Mend the reward model"):
        train(questions, settings(steps=1), tmp_path / "run", Overflowing())


def test_the_summary_says_what_policy_and_reward_model_were_told(
    questions: list[Example], settings: Make, tmp_path: Path
) -> None:
    summary = train(questions, settings(steps=1, context="profile", reward_context="none"), tmp_path / "run")
    assert (summary["context"], summary["reward_context"]) == ("profile", "none")
    facts = page_of_run(tmp_path / "run", {**summary, "context": "oracle"})["facts"]
    assert facts["context of policy / reward model"] == "oracle (a ceiling) / none"


class Listening(ShareOfRed):
    """Keeps what a reward model was told."""

    def __init__(self) -> None:
        self.heard: list[RewardCandidate] = []

    def score(self, candidates: Sequence[RewardCandidate]) -> list[Score]:
        self.heard.extend(candidates)
        return super().score(candidates)


def test_labelled_pairs_are_shown_to_the_reward_model_alone_and_never_the_pair_in_question(
    questions: list[Example], settings: Make, tmp_path: Path
) -> None:
    """Four people have four pairs each; with two shots, an own one is replaced by the next."""
    labels, reward, out = open_labels(questions, DataSettings(), shots=2), Listening(), tmp_path / "run"
    summary = train_policy(questions, settings(steps=1), out, reward=reward, labels=labels)
    for candidate in reward.heard:
        asked, told = candidate.example, candidate.user.labels
        others = [one for one in questions if one.user.id == asked.user.id and one.id != asked.id]
        assert told == tuple(LabeledPair(question=one.question, chosen="red", rejected="blue") for one in others[:2])
    assert summary["labels"] == 2
    facts = page_of_run(out, summary)["facts"]
    assert facts["context of policy / reward model"] == "none / none, 2 labels"
    silent = train(questions, settings(steps=1), tmp_path / "silent")
    assert (silent["labels"], silent["weights"]) == (0, summary["weights"])  # the policy saw the same
    with pytest.raises(RunError, match="another reward_context"):
        train(questions, settings(steps=1), out)


def test_labels_of_strangers_are_refused(questions: list[Example], settings: Make, tmp_path: Path) -> None:
    strangers = [replace(one, user=replace(one.user, id="nobody")) for one in questions]
    with pytest.raises(UsageError, match="none of its 1 users is in the data"):
        train_policy(questions, settings(), tmp_path / "run", labels=open_labels(strangers, DataSettings()))
    with pytest.raises(UsageError, match="the pair in question alone"):
        train_policy(questions[:4], settings(), tmp_path / "run", labels=open_labels(questions[:4], DataSettings()))


def test_truncated_answers_can_be_masked(questions: list[Example], settings: Make, tmp_path: Path) -> None:
    train(questions, settings(steps=1, truncated="mask"), tmp_path / "run")
    first = read_steps(tmp_path / "run")[0]
    assert first["masked"] == pytest.approx(64 * first["truncated"])
    assert 0 < first["masked"] < 64


def test_another_configuration_in_the_same_folder_is_refused(
    questions: list[Example], settings: Make, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    first = train(questions, settings(steps=1), out)
    assert train(questions, settings(steps=1), out) == first
    with pytest.raises(RunError, match=r"another settings\.seed \(its default\)"):
        train(questions, settings(steps=1, seed=1), out)
    with pytest.raises(RunError, match="another reward"):
        train(questions, settings(steps=1), out, failing_red(0.0))
    with pytest.raises(RunError, match="another data_hash"):
        train(questions[1:], settings(steps=1), out)
    again = train_policy(questions, settings(steps=1, seed=1), out, reward=ShareOfRed(), fresh=True)
    assert again["run_id"] != first["run_id"]


def test_a_run_that_stopped_before_its_first_row_is_in_nobodys_way(
    questions: list[Example], settings: Make, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    with pytest.raises(DataError, match="Use a smaller --max-new-tokens"):
        train(questions, settings(max_new_tokens=10_000), out)
    summary = train(questions, settings(steps=1), out)
    assert summary == train(questions, settings(steps=1), tmp_path / "undisturbed")
    manifests = [read_json(folder / "manifest.json") for folder in (out, tmp_path / "undisturbed")]
    assert manifests[0] | {"started": ""} == manifests[1] | {"started": ""}


def test_a_manifest_that_is_not_ours_is_kept(questions: list[Example], settings: Make, tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text('{"config": {"mine": 1}}')
    with pytest.raises(RunError, match="was not written by prbench"):
        train(questions, settings(), tmp_path)
    assert (tmp_path / "manifest.json").read_text() == '{"config": {"mine": 1}}'


def test_a_folder_with_other_files_is_left_alone(questions: list[Example], settings: Make, tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(RunError, match="no run of ours"):
        train_policy(questions, settings(steps=1), tmp_path, reward=ShareOfRed(), fresh=True)


def test_lora_trains_the_adapter_alone_and_leaves_a_plain_policy(
    questions: list[Example], settings: Make, tmp_path: Path, tiny_policy: Path
) -> None:
    pytest.importorskip("peft")
    summary = train(questions, settings(lora_rank=4, steps=6, learning_rate=3e-2), tmp_path / "run")
    before, after = weights(tiny_policy), weights(tmp_path / "run" / "policy")
    assert before.keys() == after.keys()
    assert torch.equal(before["model.embed_tokens.weight"], after["model.embed_tokens.weight"])
    assert summary["first"]["kl"] == pytest.approx(0.0, abs=1e-5)
    assert summary["last"]["kl"] > 0.1
    assert summary["last"]["reward"] > summary["first"]["reward"]


def test_a_message_names_options_that_there_are(settings: Make, questions: list[Example], tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"^temperature=0\.0 cannot be used"):
        settings(temperature=0.0)
    with pytest.raises(UsageError, match=r"^--policy ./nowhere: there is no such folder"):
        train(questions, settings(policy="./nowhere"), tmp_path / "run")


def test_a_setting_that_cannot_be_is_one_line(settings: Make) -> None:
    for changes in (
        {"steps": 0},
        {"learning_rate": float("inf")},
        {"temperature": 0.0},
        {"lam": 1.5},
        {"algorithm": "dpo"},
        {"truncated": "drop"},
    ):
        with pytest.raises(UsageError):
            settings(**changes)


def without_timing(folder: Path) -> list[dict[str, Json]]:
    return [{key: value for key, value in row.items() if key not in TIMING} for row in read_steps(folder)]


SCRIPT = """
import json, os, signal, sys
from pathlib import Path
import torch
torch.set_num_threads(1)
from prbench.data import open_examples
from prbench.downstream.ppo.settings import PpoSettings
from prbench.downstream.ppo.training import train_policy
from tests.ppo.conftest import ShareOfRed

calls_to_live = int(sys.argv[4])

class Mortal(ShareOfRed):
    calls = 0
    def score(self, candidates):
        self.calls += 1
        if self.calls == calls_to_live:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().score(candidates)

with open_examples(sys.argv[1]) as store:
    rows = list(store)
train_policy(rows, PpoSettings(**json.loads(sys.argv[2])), Path(sys.argv[3]), reward=Mortal())
"""


@pytest.mark.slow
def test_killed_and_resumed_equals_undisturbed(settings: Make, rows: Any, tmp_path: Path) -> None:
    data = tmp_path / "pairs.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows(12)))
    wanted = replace(settings(steps=7, checkpoint_every=2, rollout_batch=16, kl_budget=1000.0))

    def run(out: Path, calls: int) -> int:
        asked = json.dumps(wanted.__dict__)
        command = [sys.executable, "-c", SCRIPT, str(data), asked, str(out), str(calls)]
        return subprocess.run(command, check=False, cwd=Path(__file__).parents[2]).returncode

    assert run(tmp_path / "calm", 0) == 0
    for calls in (1, 4, 2, 3):  # killed in the first step, behind a checkpoint, and again
        assert run(tmp_path / "killed", calls) == -9
    with (tmp_path / "killed" / STEPS).open("a") as file:
        file.write('{"step": 9, "rew')  # what a kill in the middle of a write leaves
    assert run(tmp_path / "killed", 0) == 0
    calm, killed = (tmp_path / name for name in ("calm", "killed"))
    assert (killed / "summary.json").read_bytes() == (calm / "summary.json").read_bytes()
    assert without_timing(killed) == without_timing(calm)
    assert (killed / "policy/model.safetensors").read_bytes() == (calm / "policy/model.safetensors").read_bytes()


def test_half_precision_samples_from_a_copy_that_follows(
    questions: list[Example], settings: Make, tmp_path: Path
) -> None:
    """What a GPU does by default: weights in float32, forward passes and the sampling copy in bfloat16."""
    summary = train(questions, settings(dtype="bfloat16", checkpoint_every=4), tmp_path / "run")
    rows = read_steps(tmp_path / "run")
    assert all(0 < row["sampling_gap"] < 0.1 for row in rows)  # the copy has the policy's weights at every step
    assert summary["last"]["reward"] > summary["first"]["reward"] + 0.2
    assert {each.dtype for each in weights(tmp_path / "run" / "policy").values()} == {torch.float32}
    kept = weights(kept_policies(tmp_path / "run")[8])
    assert {each.dtype for each in kept.values()} == {torch.bfloat16}
