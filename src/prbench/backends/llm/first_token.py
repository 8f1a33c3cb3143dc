"""The candidates for a reply's first token: noted while `generate` runs, or read in one pass over many prompts."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from prbench.backends.shared_prefix.batching import TokenCount, Tokens
from prbench.backends.shared_prefix.packed import compute_packed, find_runner
from prbench.backends.shared_prefix.prefixes import Pack
from prbench.schema import NOTHING

ROWS = 64  # prompts whose logits are in memory together


@dataclass(frozen=True, slots=True)
class Candidates:
    """The likeliest first tokens after one prompt, and which of them greedy decoding takes."""

    taken: int
    tokens: Sequence[int]  # likeliest first
    values: Sequence[float]  # their log-probabilities

    def texts(self, count: int, tokenizer: Any) -> Mapping[str, float]:
        """Return text -> log-probability of the best candidates, summed where two tokens read alike."""
        if not count:
            return NOTHING
        found: dict[str, float] = {}
        for token, value in zip(self.tokens[:count], self.values[:count], strict=True):
            text = tokenizer.decode([token])
            found[text] = float(np.logaddexp(found.get(text, -math.inf), value))
        return found


def read_candidates(logits: Tensor, count: int) -> list[Candidates]:
    """Return the best candidates of each row: (rows, vocabulary) in."""
    best = logits.float().log_softmax(dim=-1).topk(min(count, logits.shape[-1]), dim=-1)
    rows = zip(logits.argmax(dim=-1).tolist(), best.indices.tolist(), best.values.tolist(), strict=True)
    return [Candidates(taken, tokens, values) for taken, tokens, values in rows]


class NoteFirstStep:
    """Keeps the first step's best candidates while `generate` runs, and nothing of the other steps.

    (Asking `generate` for all its logits would hold steps x batch x vocabulary numbers in memory.)
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self.candidates: list[Candidates] = []

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """Note the candidates at the first call; hand the scores on unchanged."""
        if not self.candidates:
            self.candidates = read_candidates(scores, self._count)
        return scores


class FirstTokens:
    """Reads the first token's candidates in one forward pass in which prompts that begin alike share the work.

    Both orders of a pair begin alike, and so do the prompts about one user. `note` says why where a model cannot do
    that; it is tried out on `trial`, a few short prompts.
    """

    def __init__(self, model: Any, trial: Sequence[Sequence[int]]) -> None:
        self._model = model
        self._count = TokenCount()
        prompts = [Tokens(tuple(ids)) for ids in trial]
        backbone = getattr(model, model.base_model_prefix, None)
        self._runner, reason = find_runner(backbone, prompts, self._alone, self._surest, compiled=False)
        self._budget = self._runner.budget(None) if self._runner else None
        self.note = f"prefixes are not shared: {reason}" if reason else ""

    def tokens(self) -> Mapping[str, int]:
        """Return how many prompt tokens were asked for and how many were computed."""
        return self._count.as_mapping()

    def read(self, prompts: Sequence[Sequence[int]], count: int) -> list[Candidates | MemoryError]:
        """Return the best `count` candidates after each prompt, in order."""
        assert self._runner is not None, "callers look at `note` first"
        assert self._budget is not None
        sequences = [Tokens(tuple(ids)) for ids in prompts]

        def read(hidden: Tensor, pack: Pack) -> list[Candidates]:
            places = [each.last for each in pack.places()]
            parts = [places[start : start + ROWS] for start in range(0, len(places), ROWS)]
            return [each for part in parts for each in read_candidates(self._logits(hidden[part]), count)]

        return compute_packed(sequences, self._budget, self._runner, read, self._count)

    def _logits(self, hidden: Tensor) -> Tensor:
        """Return logits as the model's own forward pass makes them of hidden states."""
        logits: Tensor = self._model.get_output_embeddings()(hidden)
        cap = getattr(self._model.config.get_text_config(), "final_logit_softcapping", None)
        return logits if cap is None else cap * (logits / cap).tanh()

    def _surest(self, hidden: Tensor, pack: Pack) -> list[float]:
        logits = self._logits(hidden[[each.last for each in pack.places()]])
        return _largest_log_probability(logits)

    def _alone(self, prompts: Sequence[Tokens]) -> list[float]:
        """Return what `_surest` must give, by the model's own forward pass, one prompt at a time."""
        import torch

        with torch.inference_mode():
            rows = [torch.tensor([each.ids], device=self._model.device) for each in prompts]
            return _largest_log_probability(torch.stack([self._model(row).logits[0, -1] for row in rows]))


def _largest_log_probability(logits: Tensor) -> list[float]:
    values: list[float] = logits.float().log_softmax(dim=-1).amax(dim=-1).tolist()
    return values
