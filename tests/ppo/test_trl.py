"""GRPO and RLOO by TRL, with our reward: they learn, and failures are masked, counted and bounded as in PPO."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.ppo.conftest import ShareOfRed, failing_red

from prbench.downstream.ppo.loop import kept_policies, read_steps
from prbench.downstream.ppo.rollout import RewardsFailedError
from prbench.downstream.ppo.settings import PpoSettings
from prbench.downstream.ppo.training import train_policy
from prbench.errors import RunError, UsageError
from prbench.schema import Example

pytest.importorskip("trl")
Make = Callable[..., PpoSettings]
GROUPED: dict[str, Any] = {
    "group_size": 8,
    "microbatch": 32,
    "rollout_batch": 64,
    "epochs": 1,
    "kl_coefficient": 0.001,
    "minibatches": 4,
    "value_learning_rate": 1e-4,
}


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["grpo", "rloo"])
def test_reward_rises_and_failures_are_counted(
    questions: list[Example], settings: Make, tmp_path: Path, algorithm: str
) -> None:
    reward = failing_red(0.05)
    wanted = settings(algorithm=algorithm, steps=8, learning_rate=1e-2, checkpoint_every=4, **GROUPED)
    summary = train_policy(questions, wanted, tmp_path / "run", reward=reward)
    rows = read_steps(tmp_path / "run")
    assert [row["step"] for row in rows] == list(range(8))
    assert summary["last"]["reward"] > summary["first"]["reward"] + 0.2
    assert 0 < summary["rewards_failed"] < 0.15 * summary["rewards_asked"]
    assert summary["rewards_asked"] == sum(64 - round(64 * row["empty"]) for row in rows)
    assert list(kept_policies(tmp_path / "run")) == [4, 8]
    assert train_policy(questions, wanted, tmp_path / "run", reward=reward) == summary


@pytest.mark.slow
def test_steps_are_batches_of_answers_however_often_each_is_gone_over(
    questions: list[Example], settings: Make, tmp_path: Path
) -> None:
    wanted = settings(algorithm="grpo", steps=4, checkpoint_every=2, **{**GROUPED, "epochs": 2})
    summary = train_policy(questions, wanted, tmp_path / "run", reward=ShareOfRed())
    rows = read_steps(tmp_path / "run")
    assert [row["step"] for row in rows] == [0, 1, 2, 3]
    assert len({row["reward"] for row in rows}) == 4
    assert summary["rewards_asked"] == sum(row["rewards"] for row in rows)
    assert all(row["rewards"] == 64 - round(64 * row["empty"]) for row in rows)
    assert list(kept_policies(tmp_path / "run")) == [2, 4]


def test_a_policy_that_diverges_ends_in_one_line(questions: list[Example], settings: Make, tmp_path: Path) -> None:
    wanted = settings(algorithm="grpo", learning_rate=1e30, **{**GROUPED, "epochs": 2})
    with pytest.raises(RunError, match="The policy diverged"):
        train_policy(questions, wanted, tmp_path / "run", reward=ShareOfRed())


def test_many_failures_stop_it(questions: list[Example], settings: Make, tmp_path: Path) -> None:
    reward = failing_red(0.6)
    with pytest.raises(RewardsFailedError, match="rewards failed"):
        train_policy(questions, settings(algorithm="grpo", **GROUPED), tmp_path / "run", reward=reward)


@pytest.mark.parametrize(
    "changes", [{"kl_budget": 1.0}, {"truncated": "penalize"}, {"group_size": 7}, {"lam": 0.9}, {"minibatches": 2}]
)
def test_what_trl_cannot_do_is_refused(
    questions: list[Example], settings: Make, tmp_path: Path, changes: dict[str, Any]
) -> None:
    with pytest.raises(UsageError):
        train_policy(
            questions, settings(algorithm="rloo", **{**GROUPED, **changes}), tmp_path / "run", reward=ShareOfRed()
        )
