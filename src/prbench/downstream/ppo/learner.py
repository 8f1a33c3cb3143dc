"""PPO's objective as pure functions; the policy with its value head, and how a step changes it.

Tensors are (rows, tokens): a row is one answer, and a mask says which of its tokens count.
"""

import copy
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor, nn

from prbench.backends.hf import hidden_states, logits_of
from prbench.downstream.ppo.rollout import sample_seed
from prbench.downstream.ppo.settings import PpoSettings
from prbench.errors import UsageError

LARGEST_GAP = 1e-3  # of log-probabilities in float32, between two ways to the same one
_PROBE = 8  # tokens
_LARGEST_SEED = 2**63
LARGEST_LOG_RATIO = 20.0  # beyond it exp may be infinite, and the gradient of what clipping discards 0 times that


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


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenBatch:
    """Prompts, each followed by its answer, padded on the right."""

    ids: Tensor  # (rows, prompt + answer)
    starts: Tensor  # (rows,) where the answers begin
    answer: Tensor  # (rows, answer) tokens of the answers
    counts: Tensor  # (rows, answer) 1.0 at tokens of the answers, with the one that ended them

    def __len__(self) -> int:
        return len(self.ids)

    def by_length(self, places: Tensor) -> Tensor:
        """Return the same rows, the shortest first: passes over rows of like length read little padding."""
        lengths = self.starts[places] + self.counts[places].sum(dim=1).long()
        return places[lengths.argsort(stable=True)]

    def rows(self, places: Tensor) -> "TokenBatch":
        """Return some of the rows, without columns that are padding in all of them."""
        starts, lengths = self.starts[places], self.counts[places].sum(dim=1).long()
        width = int(lengths.max())
        return TokenBatch(
            ids=self.ids[places, : int((starts + lengths).max())],
            starts=starts,
            answer=self.answer[places, :width],
            counts=self.counts[places, :width],
        )


def make_batch(
    prompts: Sequence[Sequence[int]], answers: Sequence[Sequence[int]], pad: int, device: Any
) -> TokenBatch:
    """Lay prompts and answers out; every answer has a token at least."""
    longest = max(map(len, answers))
    whole = [[*prompt, *answer] for prompt, answer in zip(prompts, answers, strict=True)]
    width = max(map(len, whole))
    return TokenBatch(
        ids=torch.tensor([[*row, *[pad] * (width - len(row))] for row in whole], device=device),
        starts=torch.tensor([len(prompt) for prompt in prompts], device=device),
        answer=torch.tensor([[*each, *[pad] * (longest - len(each))] for each in answers], device=device),
        counts=torch.tensor([[1.0] * len(each) + [0.0] * (longest - len(each)) for each in answers], device=device),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyOutput:
    """What a policy says at every token of the answers, (rows, answer)."""

    logprobs: Tensor
    entropy: Tensor
    values: Tensor


class ActorCritic(nn.Module):
    """A causal language model and a value of every state: a linear head on the last hidden state, 0 at the start."""

    def __init__(self, lm: Any, settings: PpoSettings) -> None:
        super().__init__()
        _check_head(lm, settings.policy)
        self.temperature = settings.temperature
        self._value_moves_policy = settings.value_moves_policy
        self.adapted: Any = None  # the model as peft wraps it
        if (lora := lora_config(settings)) is not None:
            from peft import get_peft_model

            torch.manual_seed(settings.seed)
            self.adapted = get_peft_model(lm, lora)
        self.lm = lm  # with LoRA, its layers hold the adapter
        self.value_head = nn.Linear(lm.config.hidden_size, 1)
        nn.init.zeros_(self.value_head.weight)
        nn.init.zeros_(self.value_head.bias)
        self.value_head.to(next(lm.parameters()).device)
        # Dropout would make the policy that learns another one than the policy that sampled.
        self.eval()
        # With LoRA, the reference is the policy without its adapter. In a list it is no part of this module.
        self._reference = [copy.deepcopy(lm).requires_grad_(False).eval()] if self.adapted is None else []

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.value_head.weight.device

    def read(self, batch: TokenBatch, *, with_entropy: bool = True) -> PolicyOutput:
        """Return what the policy says of the answers, with gradients where they are on."""
        hidden = _hidden(self.lm, batch)  # (rows, answer, hidden)
        logits = logits_of(self.lm, hidden) / self.temperature  # (rows, answer, vocabulary)
        states = hidden if self._value_moves_policy else hidden.detach()
        return PolicyOutput(
            logprobs=token_logprobs(logits, batch.answer) * batch.counts,
            entropy=token_entropy(logits) * batch.counts if with_entropy else torch.zeros_like(batch.counts),
            values=self.value_head(states.float()).squeeze(-1) * batch.counts,
        )

    def reference_logprobs(self, batch: TokenBatch) -> Tensor:
        """Return the log-probabilities that the policy gave to the answers before it learned anything."""
        with nullcontext() if self.adapted is None else self.adapted.disable_adapter():
            return answer_logprobs(self._reference[0] if self._reference else self.lm, batch, self.temperature)

    def trained(self) -> dict[str, Tensor]:
        """Return the weights that learn, by name; the rest never changes."""
        return {name: weight for name, weight in self.named_parameters() if weight.requires_grad}

    def copy_of_trained(self) -> dict[str, Tensor]:
        """Return a copy of the weights that learn."""
        return {name: weight.detach().clone() for name, weight in self.trained().items()}

    def restore(self, weights: Mapping[str, Tensor]) -> None:
        """Take weights of `copy_of_trained` over."""
        with torch.no_grad():
            for name, weight in self.trained().items():
                weight.copy_(weights[name])

    def merged(self) -> Any:
        """Return a plain language model with the weights as they are now; do not train it."""
        return self.lm if self.adapted is None else copy.deepcopy(self.adapted).merge_and_unload()


def lora_config(settings: PpoSettings) -> Any:
    """Return the adapter that the settings ask for, as peft configures it; `None` where all weights are trained."""
    if not settings.lora_rank:
        return None
    try:
        from peft import LoraConfig
    except ImportError as error:
        raise UsageError(
            "LoRA needs peft. Install it with: pip install 'prbench[hf]', or use --lora-rank 0."
        ) from error
    return LoraConfig(
        r=settings.lora_rank, lora_alpha=settings.lora_alpha, target_modules="all-linear", task_type="CAUSAL_LM"
    )


def answer_logprobs(lm: Any, batch: TokenBatch, temperature: float) -> Tensor:
    """Return the log-probabilities that a language model gives to the tokens of the answers, without gradients."""
    with torch.no_grad():
        logits = logits_of(lm, _hidden(lm, batch)) / temperature
        return token_logprobs(logits, batch.answer) * batch.counts


def _hidden(lm: Any, batch: TokenBatch) -> Tensor:
    """Return the states from which the answers' tokens were drawn, (rows, answer, hidden)."""
    states = hidden_states(lm, batch.ids)  # (rows, prompt + answer, hidden)
    # The state at a place predicts the token behind it.
    places = batch.starts.unsqueeze(1) - 1 + torch.arange(batch.answer.shape[1], device=states.device)
    places = places.clamp(max=states.shape[1] - 1)  # of padding; it does not count
    return states.gather(1, places.unsqueeze(-1).expand(-1, -1, states.shape[-1]))


def _check_head(lm: Any, name: str) -> None:
    """Refuse a model that samples from other logits than those it would learn by."""
    ids = torch.arange(min(_PROBE, lm.config.vocab_size), device=next(lm.parameters()).device).unsqueeze(0)
    before = lm.training
    with torch.no_grad():
        lm.eval()
        own = lm(input_ids=ids, use_cache=False).logits.float().log_softmax(-1)
        ours = logits_of(lm, hidden_states(lm, ids)).log_softmax(-1)
        lm.train(before)
    gap = float((own - ours).abs().max())
    if not gap <= LARGEST_GAP:
        raise UsageError(
            f"--policy {name}: {type(lm).__name__} changes its logits in a way that is not known here "
            f"(log-probabilities are off by up to {gap:.2g}), so its ratios and KL would be wrong. Use another model."
        )


def half_precision(device: torch.device, dtype: torch.dtype) -> torch.autocast:
    """Return a context of forward passes in the asked precision; weights, losses, head's logits stay in float32."""
    return torch.autocast(device.type, dtype=dtype, enabled=dtype != torch.float32)


def chosen_dtype(name: str, device: torch.device) -> torch.dtype:
    """Return the precision of forward passes that the settings name."""
    if name == "auto":
        return torch.bfloat16 if device.type == "cuda" else torch.float32
    found: torch.dtype = getattr(torch, name)
    return found


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What the policy that wrote the answers, and the reference, say of them, (rows, answer)."""

    batch: TokenBatch
    logprobs: Tensor
    reference: Tensor
    entropy: Tensor
    values: Tensor

    def rows(self, places: Tensor) -> Self:
        """Return some of the rows, without columns that are padding in all of them."""
        batch = self.batch.rows(places)
        width = batch.answer.shape[1]
        tensors = {name: value[places, :width] for name, value in vars(self).items() if name != "batch"}
        return type(self)(batch=batch, **tensors)

    def facts(self) -> dict[str, float]:
        """Return figures over all answers: distances are in nats per answer."""
        counts = self.batch.counts
        return {
            "kl": float((kl_k1(self.logprobs, self.reference) * counts).sum(1).mean()),
            "kl_k3": float((kl_k3(self.logprobs, self.reference) * counts).sum(1).mean()),
            "entropy": float(masked_mean(self.entropy, counts)),
            "length": float(counts.sum(1).mean()),
        }


def measure(policy: ActorCritic, batch: TokenBatch, *, microbatch: int, dtype: torch.dtype) -> Measured:
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


@dataclass(frozen=True, kw_only=True)
class Experience(Measured):
    """What there is to learn from, (rows, answer): rows whose reward is known."""

    advantages: Tensor
    returns: Tensor


def experience_of(measured: Measured, rewards: Sequence[float | None], settings: PpoSettings) -> Experience | None:
    """Return what can be learned: rows without a reward are left out, and nothing remains where all are."""
    kept = [place for place, reward in enumerate(rewards) if reward is not None]
    if not kept:
        return None
    device = measured.logprobs.device
    scores = torch.tensor([reward for reward in rewards if reward is not None], device=device, dtype=torch.float32)
    some = measured.rows(torch.tensor(kept, device=device))
    counts = some.batch.counts
    rewarded = token_rewards(scores, some.logprobs, some.reference, counts, kl_coefficient=settings.kl_coefficient)
    advantages, returns = advantages_and_returns(rewarded, some.values, counts, gamma=settings.gamma, lam=settings.lam)
    if settings.whiten_advantages:
        advantages = whitened(advantages, counts)
    return Experience(**vars(some), advantages=advantages, returns=returns)


def make_optimizer(policy: ActorCritic, settings: PpoSettings) -> torch.optim.AdamW:
    """Return AdamW with a rate of its own for the value head."""
    head = {id(weight) for weight in policy.value_head.parameters()}
    trained = list(policy.trained().values())
    groups = [
        {"params": [weight for weight in trained if id(weight) not in head], "lr": settings.learning_rate},
        {"params": [weight for weight in trained if id(weight) in head], "lr": settings.value_learning_rate},
    ]
    return torch.optim.AdamW(groups, weight_decay=settings.weight_decay, betas=(0.9, 0.95))


def learn(
    policy: ActorCritic,
    optimizer: torch.optim.Optimizer,
    experience: Experience,
    settings: PpoSettings,
    step: int,
    dtype: torch.dtype,
) -> dict[str, float]:
    """Change the policy by some epochs over the experience, and return the figures of its minibatches, averaged."""
    warmed = min(1.0, (step + 1) / settings.warmup_steps) if settings.warmup_steps else 1.0
    rates = (settings.learning_rate, settings.value_learning_rate)
    for group, rate in zip(optimizer.param_groups, rates, strict=True):
        group["lr"] = warmed * rate
    noted: dict[str, list[Tensor]] = defaultdict(list)
    for epoch in range(settings.epochs):
        dice = torch.Generator().manual_seed(sample_seed("order", settings.seed, step, epoch) % _LARGEST_SEED)
        order = torch.randperm(len(experience.batch), generator=dice)
        for places in order.tensor_split(min(settings.minibatches, len(order))):
            for name, value in _learn_minibatch(policy, optimizer, experience, places, settings, dtype).items():
                noted[name].append(value)
    facts = {name: float(torch.stack(values).mean()) for name, values in noted.items()}
    counts = experience.batch.counts
    facts["explained_variance"] = float(explained_variance(experience.values, experience.returns, counts))
    return facts


def _learn_minibatch(
    policy: ActorCritic,
    optimizer: torch.optim.Optimizer,
    experience: Experience,
    places: Tensor,
    settings: PpoSettings,
    dtype: torch.dtype,
) -> Mapping[str, Tensor]:
    """Take one step of the optimizer; the tokens of all its rows weigh the same, however it is cut into passes."""
    optimizer.zero_grad()
    noted: dict[str, Tensor] = defaultdict(lambda: torch.zeros((), device=policy.device))
    total = experience.batch.counts[places].sum()
    for some in torch.split(experience.batch.by_length(places.to(policy.device)), settings.microbatch):
        part = experience.rows(some)
        share = part.batch.counts.sum() / total
        loss, facts = _loss(policy, part, settings, dtype)
        (share * loss).backward()  # type: ignore[no-untyped-call]
        for name, value in facts.items():
            noted[name] = noted[name] + share * value.detach()
    limit = settings.max_grad_norm or torch.inf
    # Each group by itself: a value head that is far off must not make the policy's steps smaller.
    norms = [nn.utils.clip_grad_norm_(group["params"], limit).detach() for group in optimizer.param_groups]
    noted["gradient_norm"], noted["value_gradient_norm"] = norms
    optimizer.step()
    return noted


def _loss(
    policy: ActorCritic, part: Experience, settings: PpoSettings, dtype: torch.dtype
) -> tuple[Tensor, Mapping[str, Tensor]]:
    """Return the loss of some rows, averaged over their tokens, and its parts."""
    counts = part.batch.counts
    with half_precision(policy.device, dtype):
        now = policy.read(part.batch, with_entropy=settings.entropy_coefficient != 0)
    surrogate = clipped_policy_loss(now.logprobs, part.logprobs, part.advantages, counts, clip=settings.clip)
    value = clipped_value_loss(now.values, part.values, part.returns, counts, clip=settings.value_clip)
    loss = surrogate.loss + settings.value_coefficient * value.loss
    if settings.kl_loss_coefficient:
        loss = loss + settings.kl_loss_coefficient * masked_mean(kl_k2(now.logprobs, part.reference), counts)
    if settings.entropy_coefficient:
        loss = loss - settings.entropy_coefficient * masked_mean(now.entropy, counts)
    return loss, {
        "policy_loss": surrogate.loss,
        "clip_fraction": surrogate.clipped,
        "value_loss": value.loss,
        "value_clip_fraction": value.clipped,
        "update_kl": masked_mean(kl_k3(part.logprobs, now.logprobs), counts),  # old against new, per token
    }
