"""PairRM: a DeBERTa that reads the question and both responses at once, and says which is better.

Source: model card of llm-blender/PairRM-hf (https://huggingface.co/llm-blender/PairRM-hf,
https://github.com/yuchenlin/LLM-Blender); Jiang et al., 2023, "LLM-Blender", arXiv 2306.02561.

Input: <|source|> question, <|candidate1|> first, <|candidate2|> second, each between the tokenizer's CLS and SEP.
Weights, with d the width: pretrained_model.* (DeBERTa-v2's names), head_layer.1.{weight,bias} (d, 2d) and
head_layer.4.{weight,bias} (n_tasks, d), with tanh between. Each candidate's score comes from the hidden states at
<|source|> and at the candidate's own mark; their difference is the log-odds of the first. Config: n_tasks,
source_prefix_id, cand1_prefix_id, cand2_prefix_id. It was trained on at most 1,224 tokens of source and 2,048 in all.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoModelForNextSentencePrediction, DebertaV2Config, DebertaV2Model, DebertaV2PreTrainedModel

from prbench.backends.shared_prefix.batching import TokenCount, Tokens, compute_each_once
from prbench.errors import UsageError
from prbench.prompts import load_template
from prbench.reward_models.base import ModelSettings, as_score
from prbench.reward_models.hf_models import load_hf_model, run
from prbench.schema import Comparison, Json, PairInput, Pick, Problem, RewardInput

LONGEST_SOURCE = 1224
LONGEST_INPUT = 2048
_MARKS = ("source_prefix_id", "cand1_prefix_id", "cand2_prefix_id")


class PairRmModel(DebertaV2PreTrainedModel):  # type: ignore[misc]  # transformers ships no types
    """DeBERTa with PairRM's head; its output is the log-odds of the first candidate."""

    base_model_prefix = "pretrained_model"

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        width = config.hidden_size
        self.pretrained_model = DebertaV2Model(config)
        self.head_layer = nn.Sequential(
            nn.Identity(), nn.Linear(2 * width, width), nn.Tanh(), nn.Identity(), nn.Linear(width, config.n_tasks)
        )
        self.post_init()

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Return one number per input (batch)."""
        hidden = self.pretrained_model(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        # The hidden state at each row's one mark of a kind: (batch, width).
        source, first, second = (
            hidden[(input_ids == getattr(self.config, mark)).nonzero(as_tuple=True)] for mark in _MARKS
        )
        scores = [self.head_layer(torch.cat([source, each], -1)) for each in (first, second)]  # (batch, tasks) each
        margin: Tensor = (scores[0] - scores[1]).mean(-1)
        return margin


class PairRm:
    """Compares two responses; the margin is the model's own log-odds."""

    def __init__(self, source: str, settings: ModelSettings, *, device: str = "auto") -> None:
        # The one auto class for two texts that transformers does not fill for DeBERTa.
        AutoModelForNextSentencePrediction.register(DebertaV2Config, PairRmModel, exist_ok=True)
        plain = replace(settings, trust_remote_code=False)
        self._loaded = load_hf_model(source, "AutoModelForNextSentencePrediction", plain, device=device)
        self.name = source
        self._turn = load_template(settings.template or "turn").require("question", "context", answer="text")
        if self._turn.system:
            raise UsageError(f"Template {self._turn.name!r} has a system part, for which PairRM has no place.")
        self._marks = _marks(source, self._loaded)
        self._controls = [token.content for token in self._loaded.tokenizer.added_tokens_decoder.values()]
        self._limit = min(settings.max_length or LONGEST_INPUT, LONGEST_INPUT)
        self._batch_size = settings.padded_batch
        self.note = ""
        self.template_hash = self._turn.hash
        self.identity: Mapping[str, Json] = {
            **self._loaded.identity,
            "head": "pairrm",
            "turn": self._turn.hash,
            "max_length": self._limit,
        }
        self._count = TokenCount()
        self.tokens = self._count.as_mapping

    def prefer(self, pairs: Sequence[PairInput]) -> list[Comparison]:
        encoded = [self._encode(pair) for pair in pairs]
        good = [each for each in encoded if isinstance(each, Tokens)]
        margins = iter(compute_each_once(good, self._batch_size, self._forward, self._count))
        found = []
        for each in encoded:
            if isinstance(each, Comparison):  # it was too long
                found.append(each)
                continue
            score = as_score(next(margins))
            if score.value is None:
                found.append(Comparison(pick=Pick.UNREADABLE, problem=score.problem, detail=score.detail))
            else:
                pick = Pick.TIE if score.value == 0 else (Pick.FIRST if score.value > 0 else Pick.SECOND)
                found.append(Comparison(pick=pick, margin=score.value))
        return found

    def fits(self, pair: RewardInput | PairInput) -> bool:
        """Does the model's window hold this pair?"""
        if not isinstance(pair, PairInput):
            raise TypeError("PairRM compares pairs; ask with a PairInput")
        return isinstance(self._encode(pair), Tokens)

    def _encode(self, pair: PairInput) -> Tokens | Comparison:
        turn = self._turn.fill(question=pair.question, context=pair.context)[0][1]
        source, first, second = (
            self._segment(mark, text) for mark, text in zip(self._marks, (turn, pair.first, pair.second), strict=True)
        )
        total = len(source) + len(first) + len(second)
        if len(source) > LONGEST_SOURCE:
            return _too_long(f"{len(source)} tokens of question and context, and PairRM reads {LONGEST_SOURCE}")
        if total > self._limit:
            return _too_long(f"{total} tokens, and the window holds {self._limit}")
        return Tokens(ids=(*source, *first, *second), prompt=len(source))

    def _segment(self, mark: str, text: str) -> list[int]:
        """Return CLS, the mark, the text and SEP; marks inside the text are encoded as the text that they are."""
        tokenizer = self._loaded.tokenizer
        if not any(control in text for control in self._controls):
            whole: list[int] = tokenizer(mark + text)["input_ids"]
            return whole
        begun: list[int] = tokenizer(mark)["input_ids"][:-1]
        inside: list[int] = tokenizer(text, add_special_tokens=False, split_special_tokens=True)["input_ids"]
        return [*begun, *inside, tokenizer.sep_token_id]

    def _forward(self, batch: Sequence[Tokens]) -> list[float]:
        values: list[float] = run(self._loaded, batch, self._loaded.tokenizer.pad_token_id).float().tolist()
        return values


def _marks(source: str, loaded: Any) -> tuple[str, ...]:
    """Return the three marks as texts; the tokenizer must know them by the ids that the config names."""
    marks = []
    for name in _MARKS:
        index = getattr(loaded.model.config, name, None)
        mark = loaded.tokenizer.added_tokens_decoder.get(index)
        if mark is None:
            raise UsageError(f"{source}: its tokenizer has no token for {name} {index}, so it is not PairRM's.")
        marks.append(mark.content)
    return tuple(marks)


def _too_long(detail: str) -> Comparison:
    return Comparison(pick=Pick.UNREADABLE, problem=Problem.TOO_LONG, detail=detail)
