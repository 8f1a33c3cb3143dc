"""The policy with its value head, what it and its reference say of the answers, and how a step changes it."""

import copy
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor, nn

from prbench.backends.hf import hidden_states, logits_of
from prbench.downstream.ppo.objective import (
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
from prbench.downstream.ppo.rollout import sample_seed
from prbench.downstream.ppo.settings import PpoSettings
from prbench.errors import UsageError

LARGEST_GAP = 1e-3  # of log-probabilities in float32, between two ways to the same one
_PROBE = 8  # tokens
_LARGEST_SEED = 2**63


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
