"""Rewards that language models imply: the DPO log-ratio, and how much the context raises a response's probability."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from inspect import signature
from typing import TYPE_CHECKING, Annotated, Any

from prbench.backends.hf import output_logits
from prbench.backends.shared_prefix.batching import Tokens
from prbench.errors import UsageError
from prbench.reward_models.base import HfOptions, LoadedModel, ModelSettings, as_loaded, as_score
from prbench.reward_models.chat import Chat
from prbench.reward_models.hf_models import Scorer, inner_model, load_hf_model, run
from prbench.schema import Json, PairInput, RewardInput, Score, UserContext
from prbench.specs import Above, Spec, option

if TYPE_CHECKING:
    from prbench.backends.shared_prefix.prefixes import Pack


@dataclass(frozen=True, kw_only=True)
class PmiOptions(HfOptions):
    """Options of models that read probabilities."""

    per_token: bool = option(False, "the mean over a response's tokens in place of their sum")


@dataclass(frozen=True, kw_only=True)
class ImplicitOptions(PmiOptions):
    """Options of the log-ratio."""

    beta: Annotated[float, Above(0)] = option(1.0, "what the log-ratio is multiplied by")


def load_implicit(spec: Spec, options: ImplicitOptions, settings: ModelSettings) -> LoadedModel:
    """Return `implicit:POLICY,REFERENCE`."""
    policy, comma, reference = spec.target.partition(",")
    if not comma or not policy or not reference or "," in reference:
        raise UsageError(f"{spec.text}: write implicit:<policy>,<reference>, two models and one comma.")
    return as_loaded(spec, ImplicitReward(policy, reference, settings, options))


def load_pmi(spec: Spec, options: PmiOptions, settings: ModelSettings) -> LoadedModel:
    """Return `pmi:LANGUAGE_MODEL`."""
    return as_loaded(spec, PmiReward(spec.target, settings, options))


class ImplicitReward:
    """beta · (log π(y|x) − log ref(y|x)), as in DPO (Rafailov et al., 2023, eq. 5, without the term in x alone).

    Each model reads the text through its own tokenizer and chat template. The logs are summed over the tokens of the
    response, or averaged with `per_token`.
    """

    def __init__(self, policy: str, reference: str, settings: ModelSettings, options: ImplicitOptions) -> None:
        self.name = f"{policy},{reference}"
        self._beta = options.beta
        self._policy = ResponseProbability(policy, settings, options)
        self._reference = ResponseProbability(reference, settings, options)
        self.identity: Mapping[str, Json] = {
            "policy": self._policy.identity,
            "reference": self._reference.identity,
            "beta": options.beta,
        }
        self.template_hash = self._policy.template_hash
        self.note = self._policy.note or self._reference.note
        self.unknown_tokens = self._policy.unknown_tokens

    def fits(self, each: RewardInput | PairInput) -> bool:
        """Do both windows hold this input?"""
        return self._policy.fits(each) and self._reference.fits(each)

    def tokens(self) -> Mapping[str, int]:
        """Return the tokens that both models read."""
        policy, reference = self._policy.tokens(), self._reference.tokens()
        return {key: policy[key] + reference[key] for key in policy}

    def score(self, inputs: Sequence[RewardInput]) -> list[Score]:
        pairs = zip(self._policy.log_probabilities(inputs), self._reference.log_probabilities(inputs), strict=True)
        return [_difference(policy, reference, self._beta) for policy, reference in pairs]


class PmiReward:
    """log p(y | question, context) − log p(y | question): what the user's context adds to a response's probability.

    With an empty context every score is 0, and pairs tie.
    """

    def __init__(self, language_model: str, settings: ModelSettings, options: PmiOptions) -> None:
        self.name = language_model
        self._model = ResponseProbability(language_model, settings, options)
        self.note = self._model.note
        self.identity: Mapping[str, Json] = {"pmi": self._model.identity}
        self.template_hash = self._model.template_hash
        self.fits = self._model.fits
        self.unknown_tokens = self._model.unknown_tokens
        self.tokens = self._model.tokens

    def score(self, inputs: Sequence[RewardInput]) -> list[Score]:
        impersonal = [replace(each, user=UserContext()) for each in inputs]
        both = self._model.log_probabilities([*inputs, *impersonal])
        pairs = zip(both[: len(inputs)], both[len(inputs) :], strict=True)
        return [_difference(known, unknown, 1.0) for known, unknown in pairs]


class ResponseProbability:
    """How probable a causal language model finds a response: the log-probability of the response's own tokens.

    These are all tokens after the header that opens the assistant's turn, the end-of-turn marks of the chat template
    among them, as preference training counts them.
    """

    def __init__(self, source: str, settings: ModelSettings, options: PmiOptions) -> None:
        self._loaded = load_hf_model(source, "AutoModelForCausalLM", settings, device=options.device)
        inner = inner_model(self._loaded.model)
        self._chat = Chat(self._loaded.tokenizer, inner.config, settings, bos=options.bos, mark_response=True)
        self._per_token = options.per_token
        self._may_skip_logits = "logits_to_keep" in signature(inner.forward).parameters
        itself = {**self._loaded.identity, **self._chat.identity}
        self.identity: Mapping[str, Json] = {**itself, "per_token": options.per_token}
        self.template_hash = self._chat.template_hash
        self.fits = self._chat.fits
        self.unknown_tokens = self._chat.unknown_tokens
        backbone = getattr(inner, inner.base_model_prefix, None)
        self._scorer = Scorer(
            settings, self._chat, inner.config, backbone=backbone, padded=self._forward, read=self._read_pack
        )
        self.note = self._scorer.note
        self.tokens = self._scorer.tokens

    def log_probabilities(self, inputs: Sequence[RewardInput]) -> list[Score]:
        """Return log p(response | question, context) for each input, in order."""
        return self._scorer.scores(self._chat.try_encode_all(inputs))

    def _read_pack(self, hidden: Any, pack: "Pack") -> list[float]:
        totals = []
        for places, each in zip(pack.places(), pack.members, strict=True):
            first = _start(each) - 1  # the hidden state at a token tells of the next one
            read = [places.of(token) for token in range(first, len(each.ids) - 1)]
            logits = output_logits(inner_model(self._loaded.model), hidden[read])  # (response tokens, vocabulary)
            totals.append(self._total(logits, each, first))
        return totals

    def _forward(self, batch: Sequence[Tokens]) -> list[float]:
        # The logits at a place tell of the next token. Those of the prompt are not needed, and are most of the memory.
        first = min(_start(each) for each in batch) - 1
        longest = max(len(each.ids) for each in batch)
        options = {"logits_to_keep": longest - first} if self._may_skip_logits else {}
        # Causal attention never looks to the right, so any id will do for padding there.
        logits = run(self._loaded, batch, 0, **options).logits  # (batch, kept tokens, vocabulary)
        skipped = longest - logits.shape[1]
        return [self._total(logits[row], each, skipped) for row, each in enumerate(batch)]

    def _total(self, logits: Any, each: Tokens, skipped: int) -> float:
        import torch

        start, end = _start(each), len(each.ids)
        # One row at a time, in float32: a whole batch in float32 would be the largest tensor of all.
        predicted = logits[start - 1 - skipped : end - 1 - skipped].float().log_softmax(-1)
        tokens = torch.tensor(each.ids[start:end], device=logits.device)
        total = float(predicted.gather(-1, tokens[:, None]).sum())
        return total / max(end - start, 1) if self._per_token else total


def _start(each: Tokens) -> int:
    """Return the first token that counts; nothing predicts the very first of a sequence."""
    return max(each.prompt, 1)


def _difference(first: Score, second: Score, beta: float) -> Score:
    if first.value is None:
        return first
    if second.value is None:
        return second
    return as_score(beta * (first.value - second.value))
