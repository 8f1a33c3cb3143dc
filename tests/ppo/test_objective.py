"""Every term of the objective against numbers worked out by hand."""

import math
from statistics import fmean, pstdev

import pytest
import torch

from prbench.downstream.ppo.learner import (
    advantages_and_returns,
    clipped_policy_loss,
    clipped_value_loss,
    explained_variance,
    kl_k1,
    kl_k2,
    kl_k3,
    masked_mean,
    token_entropy,
    token_logprobs,
    token_rewards,
    whitened,
)
from prbench.downstream.ppo.rollout import RewardsFailedError, RunningMoments, check_failure_rate, shape_rewards
from prbench.reward_models.base import failed
from prbench.schema import Score

ALL = torch.ones(1, 2)


def test_logprobs_and_entropy_of_one_half_one_quarter_one_quarter() -> None:
    logits = torch.tensor([[[0.5, 0.25, 0.25]]]).log() + 7  # a constant changes nothing
    assert token_logprobs(logits, torch.tensor([[1]])).item() == pytest.approx(math.log(0.25))
    assert token_entropy(logits).item() == pytest.approx(1.5 * math.log(2))


def test_masked_mean_leaves_padding_out() -> None:
    assert masked_mean(torch.tensor([[1.0, 3.0, 99.0]]), torch.tensor([[1.0, 1.0, 0.0]])).item() == 2.0
    assert masked_mean(torch.tensor([[5.0]]), torch.zeros(1, 1)).item() == 0.0


def test_policy_loss_clips_what_would_go_too_far() -> None:
    old, new = torch.zeros(1, 2), torch.tensor([[1.5, 0.5]]).log()
    # Ratio 1.5 with a gain is held at 1.2; ratio 0.5 with a loss of 2 is held at 0.8: -(1.2 · 1) and -(0.8 · -2).
    found = clipped_policy_loss(new, old, torch.tensor([[1.0, -2.0]]), ALL, clip=0.2)
    assert found.loss.item() == pytest.approx((-1.2 + 1.6) / 2)
    assert found.clipped.item() == 1.0
    # On the other side of 1 the worse, unclipped term counts: -(0.5 · 1) and -(1.5 · -2).
    found = clipped_policy_loss(new.flip(1), old, torch.tensor([[1.0, -2.0]]), ALL, clip=0.2)
    assert found.loss.item() == pytest.approx((-0.5 + 3.0) / 2)
    assert found.clipped.item() == 0.0


def test_a_clipped_token_has_no_gradient() -> None:
    new = torch.tensor([[1.5]]).log().requires_grad_()
    clipped_policy_loss(new, torch.zeros(1, 1), torch.ones(1, 1), torch.ones(1, 1), clip=0.2).loss.backward()
    assert new.grad is not None
    assert new.grad.item() == 0.0


def test_a_ratio_beyond_all_numbers_leaves_the_gradient_a_number() -> None:
    new = torch.tensor([[200.0]], requires_grad=True)
    found = clipped_policy_loss(new, torch.zeros(1, 1), torch.ones(1, 1), torch.ones(1, 1), clip=0.2)
    found.loss.backward()
    assert found.loss.item() == pytest.approx(-1.2)
    assert new.grad is not None
    assert new.grad.item() == 0.0


def test_value_loss_takes_the_worse_of_moved_and_clipped() -> None:
    old, new, returns = torch.zeros(1, 2), torch.tensor([[1.0, 0.1]]), torch.tensor([[1.0, 1.0]])
    # First: clipped to 0.2, error 0.64 against 0; second: within the clip, error 0.81 both ways.
    found = clipped_value_loss(new, old, returns, ALL, clip=0.2)
    assert found.loss.item() == pytest.approx(0.5 * (0.64 + 0.81) / 2)
    assert found.clipped.item() == 0.5


def test_advantages_by_hand() -> None:
    rewards, values = torch.tensor([[0.0, 1.0, 9.0]]), torch.tensor([[0.5, 0.4, 9.0]])
    mask = torch.tensor([[1.0, 1.0, 0.0]])
    # Errors: 1 - 0.4 = 0.6 at the last token; 0 + 0.9 · 0.4 - 0.5 = -0.14 before; 0.9 · 0.5 · 0.6 = 0.27 flows back.
    advantages, returns = advantages_and_returns(rewards, values, mask, gamma=0.9, lam=0.5)
    assert advantages[0].tolist() == pytest.approx([0.13, 0.6, 0.0])
    assert returns[0].tolist() == pytest.approx([0.63, 1.0, 0.0])


@pytest.mark.parametrize(("gamma", "lam"), [(1.0, 0.95), (0.9, 0.5), (1.0, 1.0), (0.97, 0.0)])
def test_advantages_are_the_discounted_sum_of_errors(gamma: float, lam: float) -> None:
    dice = torch.Generator().manual_seed(1)
    rewards, values = torch.randn(5, 7, generator=dice), torch.randn(5, 7, generator=dice)
    lengths = torch.tensor([7, 1, 3, 5, 2])
    mask = (torch.arange(7) < lengths[:, None]).float()
    found, _ = advantages_and_returns(rewards, values, mask, gamma=gamma, lam=lam)
    for row, length in enumerate(lengths.tolist()):
        worth = [*values[row, :length].tolist(), 0.0]
        errors = [float(rewards[row, t]) + gamma * worth[t + 1] - worth[t] for t in range(length)]
        for t in range(length):
            expected = sum((gamma * lam) ** (later - t) * errors[later] for later in range(t, length))
            assert found[row, t].item() == pytest.approx(expected, abs=1e-5)
    assert bool((found[mask == 0] == 0).all())


def test_the_score_stands_at_the_last_token_and_distance_costs_at_each() -> None:
    new, reference = torch.tensor([[-1.0, -2.0, -5.0]]), torch.tensor([[-1.5, -1.0, -1.0]])
    mask = torch.tensor([[1.0, 1.0, 0.0]])
    found = token_rewards(torch.tensor([3.0]), new, reference, mask, kl_coefficient=0.1)
    assert found[0].tolist() == pytest.approx([-0.05, 3.1, 0.0])


def test_distance_estimators_agree_on_average() -> None:
    p, q = torch.tensor([0.7, 0.2, 0.1]), torch.tensor([0.3, 0.3, 0.4])
    exact = float((p * (p / q).log()).sum())
    assert float((p * kl_k1(p.log(), q.log())).sum()) == pytest.approx(exact)
    assert float((p * kl_k3(p.log(), q.log())).sum()) == pytest.approx(exact)
    assert bool((kl_k3(p.log(), q.log()) >= 0).all())
    assert bool((kl_k1(p.log(), q.log()) < 0).any())


def test_half_the_squared_log_ratio_has_the_gradient_of_the_distance() -> None:
    logits, reference = (
        torch.tensor([0.5, -1.0, 0.2], requires_grad=True),
        torch.tensor([0.1, 0.3, -0.4]).log_softmax(-1),
    )
    logprobs = logits.log_softmax(-1)
    (exact,) = torch.autograd.grad((logprobs.exp() * (logprobs - reference)).sum(), logits, retain_graph=True)
    drawn = logprobs.exp().detach()  # tokens are drawn first, then the loss is differentiated
    (found,) = torch.autograd.grad((drawn * kl_k2(logprobs, reference)).sum(), logits)
    torch.testing.assert_close(found, exact)


def test_whitened_by_hand() -> None:
    values, mask = torch.tensor([[1.0, 3.0, 50.0]]), torch.tensor([[1.0, 1.0, 0.0]])
    assert whitened(values, mask)[0].tolist() == pytest.approx([-1.0, 1.0, 0.0])


def test_explained_variance() -> None:
    returns = torch.tensor([[1.0, 3.0]])
    assert explained_variance(returns, returns, ALL).item() == 1.0
    assert explained_variance(torch.zeros(1, 2), returns, ALL).item() == 0.0
    assert explained_variance(torch.tensor([[1.5, 2.5]]), returns, ALL).item() == pytest.approx(0.75)
    assert explained_variance(returns, torch.ones(1, 2), ALL).item() == 0.0


PLAIN = {"truncated": "score", "penalty": 1.0, "whiten": False}


def scores(*values: float | None) -> list[Score | None]:
    return [Score(value=value) for value in values]


def test_moments_of_batches_are_those_of_all_values() -> None:
    moments = RunningMoments().with_values([1.0, 2.0]).with_values([]).with_values([10.0, -3.0, 4.0])
    assert moments.mean == pytest.approx(fmean([1, 2, 10, -3, 4]))
    assert moments.deviation == pytest.approx(pstdev([1, 2, 10, -3, 4]))
    assert RunningMoments().with_values([2.0, 2.0]).deviation == 1.0


def test_a_failure_is_masked_and_counted_and_does_not_move_the_moments() -> None:
    found = shape_rewards(
        [*scores(0.0, 2.0), failed("timeout")], [False] * 3, RunningMoments(), **{**PLAIN, "whiten": True}
    )
    assert found.rewards == (-1.0, 1.0, None)
    assert (found.failed, found.moments.count) == (1, 2)


def test_an_empty_answer_earns_the_lowest_score_of_its_batch() -> None:
    found = shape_rewards([None, *scores(0.5, -0.5)], [False] * 3, RunningMoments(), **PLAIN)
    assert found.rewards == (-0.5, 0.5, -0.5)
    assert (found.empty, found.failed, found.asked) == (1, 0, 2)
    assert shape_rewards([None, failed("down")], [False] * 2, RunningMoments(), **PLAIN).rewards == (None, None)


@pytest.mark.parametrize(("rule", "expected"), [("score", 2.0), ("penalize", 1.0), ("mask", None)])
def test_an_answer_that_was_cut_off(rule: str, expected: float | None) -> None:
    found = shape_rewards(scores(0.0, 2.0), [False, True], RunningMoments(), truncated=rule, penalty=1.0, whiten=False)
    assert found.rewards == (0.0, expected)
    assert found.truncated == 1


def test_too_many_failures_stop_the_run_with_one_line() -> None:
    check_failure_rate([*scores(1.0, 1.0, 1.0), failed("HTTP 503")], 4, most=0.25)
    with pytest.raises(RewardsFailedError, match=r"step 4: 2 of 4 rewards failed \(50%\).*HTTP 503") as stopped:
        check_failure_rate([*scores(1.0, 1.0), failed("HTTP 500"), failed("HTTP 503")], 4, most=0.25)
    assert stopped.value.exit_code == 1


def test_empty_answers_are_not_among_the_rewards_that_were_asked_for() -> None:
    with pytest.raises(RewardsFailedError, match=r"1 of 2 rewards failed \(50%\)"):
        check_failure_rate([None, None, *scores(1.0), failed("HTTP 503")], 4, most=0.25)
    check_failure_rate([None, None], 4, most=0.0)
