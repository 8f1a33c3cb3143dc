"""A policy with a value head, the reference that it must not leave far behind, and the copy that samples."""

import copy
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from prbench.backends.causal_logits import hidden_states, logits_of
from prbench.backends.generation import Sampler
from prbench.downstream.ppo.losses import token_entropy, token_logprobs
from prbench.downstream.ppo.settings import PpoSettings
from prbench.errors import UsageError

LORA_TARGETS = "all-linear"
LARGEST_GAP = 1e-3  # of log-probabilities in float32, between two ways to the same one
_PROBE = 8  # tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
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

    def rows(self, places: Tensor) -> "Batch":
        """Return some of the rows, without columns that are padding in all of them."""
        starts, lengths = self.starts[places], self.counts[places].sum(dim=1).long()
        width = int(lengths.max())
        return Batch(
            ids=self.ids[places, : int((starts + lengths).max())],
            starts=starts,
            answer=self.answer[places, :width],
            counts=self.counts[places, :width],
        )


def make_batch(prompts: Sequence[Sequence[int]], answers: Sequence[Sequence[int]], pad: int, device: Any) -> Batch:
    """Lay prompts and answers out; every answer has a token at least."""
    longest = max(map(len, answers))
    whole = [[*prompt, *answer] for prompt, answer in zip(prompts, answers, strict=True)]
    width = max(map(len, whole))
    return Batch(
        ids=torch.tensor([[*row, *[pad] * (width - len(row))] for row in whole], device=device),
        starts=torch.tensor([len(prompt) for prompt in prompts], device=device),
        answer=torch.tensor([[*each, *[pad] * (longest - len(each))] for each in answers], device=device),
        counts=torch.tensor([[1.0] * len(each) + [0.0] * (longest - len(each)) for each in answers], device=device),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """What a policy says at every token of the answers, (rows, answer)."""

    logprobs: Tensor
    entropy: Tensor
    values: Tensor


class Policy(nn.Module):
    """A causal language model and a value of every state: a linear head on the last hidden state, 0 at the start."""

    def __init__(self, lm: Any, settings: PpoSettings) -> None:
        super().__init__()
        _check_head(lm, settings.policy)
        self.temperature = settings.temperature
        self._value_moves_policy = settings.value_moves_policy
        self.adapted = _with_adapter(lm, settings) if settings.lora_rank else None
        self.lm = lm  # with LoRA, its layers hold the adapter
        self.value_head = nn.Linear(lm.config.hidden_size, 1)
        nn.init.zeros_(self.value_head.weight)
        nn.init.zeros_(self.value_head.bias)
        self.value_head.to(next(lm.parameters()).device)
        # Dropout would make the policy that learns another one than the policy that sampled.
        self.eval()
        # With LoRA, the reference is the policy without its adapter.
        self._reference = None if self.adapted else [_frozen(copy.deepcopy(lm))]  # in a list: no part of this module

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.value_head.weight.device

    def read(self, batch: Batch, *, with_entropy: bool = True) -> Read:
        """Return what the policy says of the answers, with gradients where they are on."""
        hidden = _hidden(self.lm, batch)
        logits = logits_of(self.lm, hidden) / self.temperature
        seen = hidden if self._value_moves_policy else hidden.detach()
        return Read(
            logprobs=token_logprobs(logits, batch.answer) * batch.counts,
            entropy=token_entropy(logits) * batch.counts if with_entropy else torch.zeros_like(batch.counts),
            values=self.value_head(seen.float()).squeeze(-1) * batch.counts,
        )

    def reference_logprobs(self, batch: Batch) -> Tensor:
        """Return the log-probabilities that the policy gave to the answers before it learned anything."""
        if self._reference is not None:
            return answer_logprobs(self._reference[0], batch, self.temperature)
        with self._without_adapter():
            return answer_logprobs(self.lm, batch, self.temperature)

    def _without_adapter(self) -> AbstractContextManager[None]:
        assert self.adapted is not None, "only an adapter can be switched off"
        off: AbstractContextManager[None] = self.adapted.disable_adapter()
        return off

    def trained(self) -> dict[str, Tensor]:
        """Return the weights that learn, by name; the rest never changes."""
        return {name: weight for name, weight in self.named_parameters() if weight.requires_grad}

    def copy_of_trained(self) -> dict[str, Tensor]:
        """Return a copy of the weights that learn."""
        return {name: weight.detach().clone() for name, weight in self.trained().items()}

    def restore(self, weights: dict[str, Tensor]) -> None:
        """Take weights of `copy_of_trained` over."""
        with torch.no_grad():
            for name, weight in self.trained().items():
                weight.copy_(weights[name])

    def merged(self) -> Any:
        """Return a plain language model with the weights as they are now; do not train it."""
        if self.adapted is None:
            return self.lm
        return copy.deepcopy(self.adapted).merge_and_unload()


def answer_logprobs(lm: Any, batch: Batch, temperature: float) -> Tensor:
    """Return the log-probabilities that a language model gives to the tokens of the answers, without gradients."""
    with torch.no_grad():
        logits = logits_of(lm, _hidden(lm, batch)) / temperature
        return token_logprobs(logits, batch.answer) * batch.counts


class SamplingCopy:
    """The language model that samples: the policy itself, or a copy in half precision that follows it."""

    def __init__(self, policy: Policy, dtype: torch.dtype, *, eos_ids: Sequence[int], pad_id: int) -> None:
        self._policy = policy
        own = next(policy.lm.parameters()).dtype
        self._copy = (
            None if dtype == own and policy.adapted is None else _frozen(copy.deepcopy(policy.merged()).to(dtype))
        )
        lm = policy.lm if self._copy is None else self._copy
        self.sampler = Sampler(lm, eos_ids=eos_ids, pad_id=pad_id, captured=policy.device.type == "cuda")

    def follow(self) -> Sampler:
        """Take the policy's weights over, in place, so that captured steps stay valid."""
        if self._copy is not None:
            with torch.no_grad():
                new = dict(self._policy.merged().named_parameters())
                for name, weight in self._copy.named_parameters():
                    weight.copy_(new[name])
        return self.sampler


@contextmanager
def half_precision(device: torch.device, dtype: torch.dtype) -> Iterator[None]:
    """Run forward passes in the asked precision; weights, losses and the head's logits stay in float32."""
    if dtype == torch.float32:
        yield
        return
    with torch.autocast(device.type, dtype=dtype):
        yield


def chosen_dtype(name: str, device: torch.device) -> torch.dtype:
    """Return the precision of forward passes that the settings name."""
    if name == "auto":
        return torch.bfloat16 if device.type == "cuda" else torch.float32
    found: torch.dtype = getattr(torch, name)
    return found


def _hidden(lm: Any, batch: Batch) -> Tensor:
    """Return the states from which the answers' tokens were drawn, (rows, answer, hidden)."""
    states = hidden_states(lm, batch.ids)
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


def _frozen(model: Any) -> Any:
    return model.requires_grad_(False).eval()


def _with_adapter(lm: Any, settings: PpoSettings) -> Any:
    try:
        from peft import LoraConfig, get_peft_model
    except ImportError as error:
        raise UsageError(
            "LoRA needs peft. Install it with: pip install 'prbench[hf]', or use --lora-rank 0."
        ) from error
    torch.manual_seed(settings.seed)
    lora = LoraConfig(
        r=settings.lora_rank, lora_alpha=settings.lora_alpha, target_modules=LORA_TARGETS, task_type="CAUSAL_LM"
    )
    return get_peft_model(lm, lora)
