"""The terms of the objective, as pure functions of tensors (rows, tokens) with a mask of the tokens that count."""

from typing import NamedTuple

import torch
from torch import Tensor

LARGEST_LOG_RATIO = 20.0  # beyond it exp may be infinite, and the gradient of what clipping discards 0 times that


class Clipped(NamedTuple):
    """A loss, and the share of tokens at which the clipping decided."""

    loss: Tensor
    clipped: Tensor


def token_logprobs(logits: Tensor, tokens: Tensor) -> Tensor:
    """Return the log-probability of each taken token: logits (rows, tokens, vocabulary), tokens (rows, tokens)."""
    taken = logits.gather(-1, tokens.unsqueeze(-1)).squeeze(-1)
    return taken - logits.logsumexp(-1)


def token_entropy(logits: Tensor) -> Tensor:
    """Return the entropy of each next-token distribution, in nats."""
    logprobs = logits.log_softmax(-1)
    return -(logprobs.exp() * logprobs).sum(-1)


def masked_mean(values: Tensor, mask: Tensor) -> Tensor:
    """Return the mean over the tokens that count; 0 where none does."""
    return (values * mask).sum() / mask.sum().clamp(min=1)


def clipped_policy_loss(new: Tensor, old: Tensor, advantages: Tensor, mask: Tensor, *, clip: float) -> Clipped:
    """Return PPO's clipped surrogate with its sign turned (Schulman et al. 2017, equation 7), averaged over tokens."""
    ratio = (new - old).clamp(max=LARGEST_LOG_RATIO).exp()
    plain = -advantages * ratio
    bounded = -advantages * ratio.clamp(1 - clip, 1 + clip)
    loss = masked_mean(torch.maximum(plain, bounded), mask)
    return Clipped(loss, masked_mean((bounded > plain).float(), mask).detach())


def clipped_value_loss(new: Tensor, old: Tensor, returns: Tensor, mask: Tensor, *, clip: float) -> Clipped:
    """Return half the squared error of values that move at most `clip` from the old ones, or the worse of the two."""
    bounded = old + (new - old).clamp(-clip, clip)
    plain_error, bounded_error = (new - returns) ** 2, (bounded - returns) ** 2
    loss = 0.5 * masked_mean(torch.maximum(plain_error, bounded_error), mask)
    return Clipped(loss, masked_mean((bounded_error > plain_error).float(), mask).detach())


def advantages_and_returns(
    rewards: Tensor, values: Tensor, mask: Tensor, *, gamma: float, lam: float
) -> tuple[Tensor, Tensor]:
    """Return generalised advantage estimates (Schulman et al. 2016, equation 16) and what the values should be.

    The tokens of a row that count are its first ones; after the last of them nothing is worth anything.
    """
    advantages = torch.zeros_like(rewards)
    running = torch.zeros_like(rewards[:, 0])
    next_value = torch.zeros_like(rewards[:, 0])
    for place in reversed(range(rewards.shape[1])):
        counts = mask[:, place]
        error = rewards[:, place] + gamma * next_value - values[:, place]
        running = (error + gamma * lam * running) * counts
        advantages[:, place] = running
        next_value = values[:, place] * counts
    return advantages, (advantages + values) * mask


def shaped_rewards(scores: Tensor, new: Tensor, reference: Tensor, mask: Tensor, *, kl_coefficient: float) -> Tensor:
    """Return a reward per token: what the distance from the reference costs, and the answer's score at its end."""
    rewards = -kl_coefficient * kl_k1(new, reference) * mask
    last = mask.sum(1).long().clamp(min=1) - 1
    return rewards.scatter_add(1, last.unsqueeze(1), scores.unsqueeze(1))


def kl_k1(policy: Tensor, reference: Tensor) -> Tensor:
    """Return log p − log q at tokens drawn from p: unbiased for KL(p ‖ q), and negative at times (Schulman 2020)."""
    return policy - reference


def kl_k2(policy: Tensor, reference: Tensor) -> Tensor:
    """Return half the squared log-ratio: as a loss at tokens drawn from p, it has the gradient of KL(p ‖ q).

    It prices a token's own distance alone, nothing at all where p and q agree (Liu et al. 2025, arXiv 2510.01555). A
    price in the reward (`shaped_rewards`) also charges a token for later distances that it changes, with their noise.
    """
    return 0.5 * (policy - reference) ** 2


def kl_k3(policy: Tensor, reference: Tensor) -> Tensor:
    """Return q/p − 1 − log(q/p) at tokens drawn from p: unbiased as well, and never negative (Schulman 2020)."""
    log_ratio = reference - policy
    return log_ratio.expm1() - log_ratio


def whitened(values: Tensor, mask: Tensor) -> Tensor:
    """Return the values with mean 0 and variance 1 over the tokens that count; 0 elsewhere."""
    mean = masked_mean(values, mask)
    variance = masked_mean((values - mean) ** 2, mask)
    return (values - mean) * torch.rsqrt(variance + 1e-8) * mask


def explained_variance(values: Tensor, returns: Tensor, mask: Tensor) -> Tensor:
    """Return the share of the returns' variance that the values explain; 0 where the returns do not vary."""

    def variance(of: Tensor) -> Tensor:
        return masked_mean((of - masked_mean(of, mask)) ** 2, mask)

    total = variance(returns)
    return torch.where(total > 1e-12, 1 - variance(returns - values) / total.clamp(min=1e-12), torch.zeros_like(total))
