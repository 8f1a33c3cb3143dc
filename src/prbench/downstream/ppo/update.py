"""One step of learning: from answers with rewards to changed weights."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from prbench.downstream.ppo.losses import (
    advantages_and_returns,
    clipped_policy_loss,
    clipped_value_loss,
    explained_variance,
    kl_k1,
    kl_k2,
    kl_k3,
    masked_mean,
    shaped_rewards,
    whitened,
)
from prbench.downstream.ppo.model import Batch, Policy, half_precision
from prbench.downstream.ppo.rollout import sample_seed
from prbench.downstream.ppo.settings import PpoSettings

_LARGEST_SEED = 2**63


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What the policy that wrote the answers, and the reference, say of them, (rows, answer)."""

    batch: Batch
    logprobs: Tensor
    reference: Tensor
    entropy: Tensor
    values: Tensor

    def facts(self) -> dict[str, float]:
        """Return figures over all answers: distances are in nats per answer."""
        counts = self.batch.counts
        return {
            "kl": float((kl_k1(self.logprobs, self.reference) * counts).sum(1).mean()),
            "kl_k3": float((kl_k3(self.logprobs, self.reference) * counts).sum(1).mean()),
            "entropy": float(masked_mean(self.entropy, counts)),
            "length": float(counts.sum(1).mean()),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Experience:
    """What there is to learn from: rows whose reward is known."""

    batch: Batch
    logprobs: Tensor
    reference: Tensor
    values: Tensor
    advantages: Tensor
    returns: Tensor

    def rows(self, places: Tensor) -> "Experience":
        """Return some of the rows."""
        batch = self.batch.rows(places)
        width = batch.answer.shape[1]
        return Experience(
            batch=batch,
            logprobs=self.logprobs[places, :width],
            reference=self.reference[places, :width],
            values=self.values[places, :width],
            advantages=self.advantages[places, :width],
            returns=self.returns[places, :width],
        )


def measure(policy: Policy, batch: Batch, *, microbatch: int, dtype: torch.dtype) -> Measured:
    """Read all answers with the policy and with the reference."""
    parts: dict[str, list[Tensor]] = defaultdict(list)
    order = batch.by_length(torch.arange(len(batch), device=batch.ids.device))
    for places in torch.split(order, microbatch):
        part = batch.rows(places)
        with torch.no_grad(), half_precision(policy.device, dtype):
            read = policy.read(part)
            found = {
                "logprobs": read.logprobs,
                "reference": policy.reference_logprobs(part),
                "entropy": read.entropy,
                "values": read.values,
            }
        missing = batch.answer.shape[1] - part.answer.shape[1]
        for name, value in found.items():
            parts[name].append(nn.functional.pad(value, (0, missing)))
    back = order.argsort()
    return Measured(batch=batch, **{name: torch.cat(values)[back] for name, values in parts.items()})


def experience_of(measured: Measured, rewards: Sequence[float | None], settings: PpoSettings) -> Experience | None:
    """Return what can be learned: rows without a reward are left out, and nothing remains where all are."""
    kept = [place for place, reward in enumerate(rewards) if reward is not None]
    if not kept:
        return None
    device = measured.logprobs.device
    places = torch.tensor(kept, device=device)
    scores = torch.tensor([reward for reward in rewards if reward is not None], device=device, dtype=torch.float32)
    batch = measured.batch.rows(places)
    width = batch.answer.shape[1]
    logprobs, reference, values = (
        tensor[places, :width] for tensor in (measured.logprobs, measured.reference, measured.values)
    )
    per_token = shaped_rewards(scores, logprobs, reference, batch.counts, kl_coefficient=settings.kl_coefficient)
    advantages, returns = advantages_and_returns(
        per_token, values, batch.counts, gamma=settings.gamma, lam=settings.lam
    )
    if settings.whiten_advantages:
        advantages = whitened(advantages, batch.counts)
    return Experience(
        batch=batch, logprobs=logprobs, reference=reference, values=values, advantages=advantages, returns=returns
    )


def make_optimiser(policy: Policy, settings: PpoSettings) -> torch.optim.AdamW:
    """Return AdamW with a rate of its own for the value head."""
    head = {id(weight) for weight in policy.value_head.parameters()}
    trained = list(policy.trained().values())
    groups = [
        {"params": [weight for weight in trained if id(weight) not in head], "lr": settings.learning_rate},
        {"params": [weight for weight in trained if id(weight) in head], "lr": settings.value_learning_rate},
    ]
    return torch.optim.AdamW(groups, weight_decay=settings.weight_decay, betas=(0.9, 0.95))


def learn(
    policy: Policy,
    optimiser: torch.optim.Optimizer,
    experience: Experience,
    settings: PpoSettings,
    step: int,
    dtype: torch.dtype,
) -> dict[str, float]:
    """Change the policy by some epochs over the experience, and return what was seen on the way, averaged."""
    _set_rates(optimiser, settings, step)
    noted: dict[str, list[Tensor]] = defaultdict(list)
    for epoch in range(settings.epochs):
        dice = torch.Generator().manual_seed(sample_seed("order", settings.seed, step, epoch) % _LARGEST_SEED)
        order = torch.randperm(len(experience.batch), generator=dice)
        for places in order.tensor_split(min(settings.minibatches, len(order))):
            for name, value in _minibatch(policy, optimiser, experience, places, settings, dtype).items():
                noted[name].append(value)
    facts = {name: float(torch.stack(values).mean()) for name, values in noted.items()}
    counts = experience.batch.counts
    facts["explained_variance"] = float(explained_variance(experience.values, experience.returns, counts))
    return facts


def _minibatch(
    policy: Policy,
    optimiser: torch.optim.Optimizer,
    experience: Experience,
    places: Tensor,
    settings: PpoSettings,
    dtype: torch.dtype,
) -> Mapping[str, Tensor]:
    """Take one step of the optimiser; the tokens of all its rows weigh the same, however it is cut into passes."""
    optimiser.zero_grad()
    noted: dict[str, Tensor] = defaultdict(lambda: torch.zeros((), device=policy.device))
    total = experience.batch.counts[places].sum()
    for some in torch.split(experience.batch.by_length(places.to(policy.device)), settings.microbatch):
        part = experience.rows(some)
        share = part.batch.counts.sum() / total
        loss, facts = _objective(policy, part, settings, dtype)
        (share * loss).backward()  # type: ignore[no-untyped-call]
        for name, value in facts.items():
            noted[name] = noted[name] + share * value.detach()
    limit = settings.max_grad_norm or torch.inf
    # Each group by itself: a value head that is far off must not make the policy's steps smaller.
    norms = [nn.utils.clip_grad_norm_(group["params"], limit).detach() for group in optimiser.param_groups]
    noted["gradient_norm"], noted["value_gradient_norm"] = norms
    optimiser.step()
    return noted


def _objective(
    policy: Policy, part: Experience, settings: PpoSettings, dtype: torch.dtype
) -> tuple[Tensor, Mapping[str, Tensor]]:
    """Return the loss of some rows, averaged over their tokens, and its parts."""
    counts = part.batch.counts
    with half_precision(policy.device, dtype):
        now = policy.read(part.batch, with_entropy=settings.entropy_coefficient != 0)
    step = clipped_policy_loss(now.logprobs, part.logprobs, part.advantages, counts, clip=settings.clip)
    value = clipped_value_loss(now.values, part.values, part.returns, counts, clip=settings.value_clip)
    loss = step.loss + settings.value_coefficient * value.loss
    if settings.kl_loss_coefficient:
        loss = loss + settings.kl_loss_coefficient * masked_mean(kl_k2(now.logprobs, part.reference), counts)
    if settings.entropy_coefficient:
        loss = loss - settings.entropy_coefficient * masked_mean(now.entropy, counts)
    return loss, {
        "policy_loss": step.loss,
        "clip_fraction": step.clipped,
        "value_loss": value.loss,
        "value_clip_fraction": value.clipped,
        "update_kl": masked_mean(kl_k3(part.logprobs, now.logprobs), counts),  # old against new, per token
    }


def _set_rates(optimiser: torch.optim.Optimizer, settings: PpoSettings, step: int) -> None:
    share = min(1.0, (step + 1) / settings.warmup_steps) if settings.warmup_steps else 1.0
    rates = (settings.learning_rate, settings.value_learning_rate)
    for group, rate in zip(optimiser.param_groups, rates, strict=True):
        group["lr"] = share * rate
