"""The objective of PPO, from the scores of answers to the losses. Pure functions, in the order in which they are used.

Tensors are (rows, tokens): a row is one answer, and a mask says which of its tokens count.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from prbench.errors import PrbenchError
from prbench.schema import Problem, Score

LARGEST_LOG_RATIO = 20.0  # beyond it exp may be infinite, and the gradient of what clipping discards 0 times that


class RewardsFailedError(PrbenchError):
    """Too many rewards failed for the step to mean anything."""

    exit_code = 1


def check_failure_rate(scores: Sequence[Score | None], step: int, *, most: float) -> None:
    """Stop the run where more than this share of the rewards that were asked for failed."""
    asked = [score for score in scores if score is not None]
    failed = [score for score in asked if score.value is None]
    if not failed or len(failed) <= most * len(asked):
        return
    last = failed[-1]
    reason = last.detail or (last.problem if last.problem is not Problem.NONE else "no score")
    raise RewardsFailedError(
        f"step {step}: {len(failed)} of {len(asked)} rewards failed ({len(failed) / len(asked):.0%}), more than "
        f"--max-failed {most:g} allows; the last: {reason}. Mend the reward model, and run the same command again."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningMoments:
    """Mean and variance of all that was seen so far; batches are merged as Chan, Golub and LeVeque (1983) do."""

    count: int = 0
    mean: float = 0.0
    squares: float = 0.0  # sum of squared distances from the mean

    @property
    def deviation(self) -> float:
        """The standard deviation; 1 where nothing varied yet, so that one may always divide by it."""
        spread = (self.squares / self.count) ** 0.5 if self.count else 0.0
        return spread if spread > 1e-8 else 1.0

    def with_values(self, values: Sequence[float]) -> "RunningMoments":
        """Return the moments with a further batch in them."""
        if not values:
            return self
        mean = sum(values) / len(values)
        squares = sum((value - mean) ** 2 for value in values)
        count = self.count + len(values)
        distance = mean - self.mean
        return RunningMoments(
            count=count,
            mean=self.mean + distance * len(values) / count,
            squares=self.squares + squares + distance**2 * self.count * len(values) / count,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapedRewards:
    """The rewards of the answers of one step; `None` masks an answer out."""

    rewards: tuple[float | None, ...]
    asked: int  # empty answers are not sent
    failed: int
    empty: int
    truncated: int
    moments: RunningMoments


def shape_rewards(
    scores: Sequence[Score | None],
    is_truncated: Sequence[bool],
    moments: RunningMoments,
    *,
    truncated: str,
    penalty: float,
    whiten: bool,
) -> ShapedRewards:
    """Return the rewards of a step; `None` among the scores is an empty answer, which was not asked about.

    - A failed score is no reward. Its answer is masked out of the batch, and counted.
    - An empty answer gets the lowest score that was read in its batch.
    - A truncated answer is scored as it stands and loses a penalty (`penalize`), or does not (`score`), or is masked
      out and counted apart (`mask`).
    """
    read = [score.value for score in scores if score is not None and score.value is not None]
    updated = moments.with_values(read)
    center, spread = (updated.mean, updated.deviation) if whiten else (0.0, 1.0)
    rewards: list[float | None] = []
    for score, cut in zip(scores, is_truncated, strict=True):
        value = min(read, default=None) if score is None else score.value
        if value is None or (cut and truncated == "mask"):
            rewards.append(None)
            continue
        reward = (value - center) / spread
        if cut and truncated == "penalize":
            reward -= penalty * (1.0 if whiten else updated.deviation)
        rewards.append(reward)
    return ShapedRewards(
        rewards=tuple(rewards),
        asked=sum(score is not None for score in scores),
        failed=sum(score is not None and score.value is None for score in scores),
        empty=sum(score is None for score in scores),
        truncated=sum(is_truncated),
        moments=updated,
    )


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


def kl_k1(policy: Tensor, reference: Tensor) -> Tensor:
    """Return log p − log q at tokens drawn from p: unbiased for KL(p ‖ q), and negative at times (Schulman 2020)."""
    return policy - reference


def kl_k2(policy: Tensor, reference: Tensor) -> Tensor:
    """Return half the squared log-ratio: as a loss at tokens drawn from p, it has the gradient of KL(p ‖ q).

    It prices a token's own distance alone, nothing at all where p and q agree (Liu et al. 2025, arXiv 2510.01555). A
    price in the reward (`token_rewards`) also charges a token for later distances that it changes, with their noise.
    """
    return 0.5 * (policy - reference) ** 2


def kl_k3(policy: Tensor, reference: Tensor) -> Tensor:
    """Return q/p − 1 − log(q/p) at tokens drawn from p: unbiased as well, and never negative (Schulman 2020)."""
    log_ratio = reference - policy
    return log_ratio.expm1() - log_ratio


def token_rewards(scores: Tensor, new: Tensor, reference: Tensor, mask: Tensor, *, kl_coefficient: float) -> Tensor:
    """Return r_t = −β (log p_t − log q_t), plus the answer's score at its last token (Ziegler et al. 2019, section 2).

    The scores are (rows,); all else is (rows, tokens).
    """
    rewards = -kl_coefficient * kl_k1(new, reference) * mask
    last = mask.sum(1).long().clamp(min=1) - 1  # (rows,)
    return rewards.scatter_add(1, last.unsqueeze(1), scores.unsqueeze(1))


def advantages_and_returns(
    rewards: Tensor, values: Tensor, mask: Tensor, *, gamma: float, lam: float
) -> tuple[Tensor, Tensor]:
    """Return generalized advantage estimates (Schulman et al. 2016, equation 16) and what the values should be.

        δ_t = r_t + γ V_{t+1} − V_t        A_t = δ_t + γλ A_{t+1}        R_t = A_t + V_t

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


def whitened(values: Tensor, mask: Tensor) -> Tensor:
    """Return the values with mean 0 and variance 1 over the tokens that count; 0 elsewhere."""
    mean = masked_mean(values, mask)
    variance = masked_mean((values - mean) ** 2, mask)
    return (values - mean) * torch.rsqrt(variance + 1e-8) * mask


class ClippedLoss(NamedTuple):
    """A loss, and the share of tokens at which the clipping decided."""

    loss: Tensor
    clipped: Tensor


def clipped_policy_loss(new: Tensor, old: Tensor, advantages: Tensor, mask: Tensor, *, clip: float) -> ClippedLoss:
    """Return PPO's clipped surrogate with its sign turned, averaged over tokens (Schulman et al. 2017, equation 7).

    −min(ρ_t A_t, clip(ρ_t, 1 − ε, 1 + ε) A_t) with the ratio ρ_t = p_new / p_old
    """
    ratio = (new - old).clamp(max=LARGEST_LOG_RATIO).exp()
    plain = -advantages * ratio
    bounded = -advantages * ratio.clamp(1 - clip, 1 + clip)
    loss = masked_mean(torch.maximum(plain, bounded), mask)
    return ClippedLoss(loss, masked_mean((bounded > plain).float(), mask).detach())


def clipped_value_loss(new: Tensor, old: Tensor, returns: Tensor, mask: Tensor, *, clip: float) -> ClippedLoss:
    """Return half the squared error of values that move at most `clip` from the old ones, or the worse of the two."""
    bounded = old + (new - old).clamp(-clip, clip)
    plain_error, bounded_error = (new - returns) ** 2, (bounded - returns) ** 2
    loss = 0.5 * masked_mean(torch.maximum(plain_error, bounded_error), mask)
    return ClippedLoss(loss, masked_mean((bounded_error > plain_error).float(), mask).detach())


def explained_variance(values: Tensor, returns: Tensor, mask: Tensor) -> Tensor:
    """Return the share of the returns' variance that the values explain; 0 where the returns do not vary."""

    def variance(of: Tensor) -> Tensor:
        return masked_mean((of - masked_mean(of, mask)) ** 2, mask)

    total = variance(returns)
    return torch.where(total > 1e-12, 1 - variance(returns - values) / total.clamp(min=1e-12), torch.zeros_like(total))
