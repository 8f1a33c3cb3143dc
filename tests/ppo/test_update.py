"""Learning does not depend on how a step is cut into passes."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from prbench.downstream.ppo.learner import ActorCritic, experience_of, learn, make_batch, make_optimizer, measure
from prbench.downstream.ppo.settings import PpoSettings
from prbench.downstream.ppo.training import load_policy_backbone

Make = Callable[..., PpoSettings]
PROMPTS = [[3, 4, 5, 6, 7], [8], [9, 3, 4, 5], [6], [4, 4], [7, 3, 9]]
ANSWERS = [[4, 2], [5, 6, 7, 2], [3, 4, 2], [7, 2], [9, 9, 9, 9, 2], [2]]
REWARDS = [1.0, -2.0, 0.5, 3.0, -1.0, 0.25]


def learned(settings: PpoSettings) -> tuple[dict[str, torch.Tensor], dict[str, float]]:
    """Take one step of plain gradient descent, whose size tells of the gradient's."""
    policy = ActorCritic(load_policy_backbone(settings.policy).model, settings)
    batch = make_batch(PROMPTS, ANSWERS, 0, "cpu")
    experience = experience_of(measure(policy, batch, microbatch=6, dtype=torch.float32), REWARDS, settings)
    assert experience is not None
    descent = torch.optim.SGD(make_optimizer(policy, settings).param_groups, lr=0.1)
    facts = learn(policy, descent, experience, settings, 0, torch.float32)
    return policy.copy_of_trained(), facts


@pytest.mark.parametrize("microbatch", [1, 2, 4])
def test_however_a_step_is_cut_into_passes_it_changes_the_weights_alike(
    settings: Make, tiny_policy: Path, microbatch: int
) -> None:
    how = {"rollout_batch": 6, "minibatches": 1, "epochs": 1, "learning_rate": 0.1, "max_grad_norm": 0.0}
    start = ActorCritic(load_policy_backbone(str(tiny_policy)).model, settings()).copy_of_trained()
    whole, seen = learned(settings(**how, microbatch=6))
    cut, seen_in_parts = learned(settings(**how, microbatch=microbatch))
    moved = max(float((whole[name] - start[name]).abs().max()) for name in start)
    assert moved > 1e-3
    for name, weight in whole.items():
        assert torch.allclose(cut[name], weight, atol=1e-4 * moved), name
    assert seen_in_parts == pytest.approx(seen, abs=1e-5)
