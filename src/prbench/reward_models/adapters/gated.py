"""Several objectives, weighed by a gate that reads the end of the user's turn: the head of ArmoRM and QRM.

ArmoRM: 19 objectives over Llama 3. Source: model card and modeling code of RLHFlow/ArmoRM-Llama3-8B-v0.1
(https://huggingface.co/RLHFlow); Wang et al., 2024, "Interpretable Preferences via Multi-Objective Reward Modeling and
Mixture-of-Experts", arXiv 2406.12845. Weights, with d = 4096: regression_layer.weight (19, d); reward_transform_matrix
(19, 19), which takes verbosity out of the objectives; gating.layers.{0,1,2}.{weight,bias} of width 1024,
gating.layers.3.{weight,bias} (19, 1024); gating.logit_scale (1). Config: num_objectives, gating_temperature.

QRM: quantiles of several objectives over Llama 3 or Gemma 2; the score is their mean. Source: model cards and modeling
code of nicolinho/QRM-Llama3-8B, QRM-Llama3.1-8B, QRM-Llama3.1-8B-v2 and QRM-Gemma-2-27B
(https://huggingface.co/nicolinho, https://github.com/Nicolinho/QRM); Dorka, 2024, "Quantile Regression for
Distributional Reward Models in RLHF", arXiv 2409.10164. Weights, with k objectives and q quantiles:
regression_layer.weight (k · q, d), the quantiles of one objective side by side; reward_transform_matrix (k, k), not
with Gemma; gating.layers: three linear layers without bias, each followed by ReLU and a batch norm (numbers 0, 3, 6
and 2, 5, 8; with dropout in between 0, 4, 8 and 2, 6, 10), and a last linear layer with bias; gating.logit_scale (1).
Config: num_objectives, num_quantiles, gating_temperature.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from prbench.backends.shared_prefix.batching import Tokens
from prbench.errors import UsageError
from prbench.reward_models.adapters.parts import (
    HeadWeights,
    Parts,
    build_stack,
    load_backbone,
    on_device,
    read_head,
    width_of,
)
from prbench.reward_models.base import ModelSettings
from prbench.reward_models.chat import CannotEncodeError

# What stands between the two turns, by the backbone's kind. The gate reads the first token of it.
BETWEEN_TURNS = {
    "llama": "<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n",
    "gemma2": "<end_of_turn>\n<start_of_turn>model\n",
}


class GatedHead(nn.Module):
    """score = Σ over objectives of gate · reward; gate = softmax(network(end of prompt) / temperature) · scale."""

    def __init__(
        self,
        weights: HeadWeights,
        width: int,
        *,
        objectives: int,
        quantiles: int,
        temperature: float,
        transformed: bool,  # by a saved matrix, before the gate
    ) -> None:
        super().__init__()
        self._temperature = temperature
        rewards = weights.take("regression_layer.weight", objectives * quantiles, width)
        # The quantiles of one objective stand side by side, and the mean of linear layers is a linear layer.
        self._rewards = nn.Parameter(rewards.reshape(objectives, quantiles, width).mean(1), requires_grad=False)
        transform = (
            weights.take("reward_transform_matrix", objectives, objectives) if transformed else torch.eye(objectives)
        )
        self._transform = nn.Parameter(transform, requires_grad=False)
        self._network = build_stack(weights, "gating.layers.", width, nn.ReLU, outputs=objectives)
        self._scale = nn.Parameter(weights.take("gating.logit_scale", 1), requires_grad=False)

    def forward(self, hidden: Tensor) -> Tensor:
        """Score hidden states (inputs, 2, width): at the last token, and at the end of the user's turn."""
        last, prompt = hidden.float().unbind(1)
        rewards = last @ self._rewards.T @ self._transform  # (inputs, objectives)
        gate = (self._network(prompt) / self._temperature).softmax(-1) * self._scale
        score: Tensor = (gate * rewards).sum(-1)
        return score


def load_gated(source: str, settings: ModelSettings, device: str, *, quantiles: bool) -> Parts:
    """Load a gated model; with `quantiles`, each objective is the mean of the quantiles that its config counts."""
    loaded = load_backbone(source, settings, device)
    config = loaded.model.config
    if config.model_type not in BETWEEN_TURNS:
        known = ", ".join(BETWEEN_TURNS)
        raise UsageError(f"{source} has a {config.model_type} backbone; gated heads are known on {known}.")
    counts = ("num_objectives", "num_quantiles") if quantiles else ("num_objectives",)
    for name in counts:
        if not isinstance(getattr(config, name, None), int):
            raise UsageError(f"{source}: its config.json has no {name}, which this adapter needs. Add the number.")
    weights = read_head(source, settings, "regression_layer.", "reward_transform_matrix", "gating.")
    # Some quantile models were published without the matrix; ArmoRM always has it.
    transformed = not quantiles or weights.find("reward_transform_matrix") is not None
    head = GatedHead(
        weights,
        width_of(loaded),
        objectives=config.num_objectives,
        quantiles=config.num_quantiles if quantiles else 1,
        temperature=_temperature(source, config, transformed),
        transformed=transformed,
    )
    marks = loaded.tokenizer(BETWEEN_TURNS[config.model_type], add_special_tokens=False)["input_ids"]
    return Parts(loaded=loaded, head=on_device(head, loaded), read_at=_last_and_prompt_end(tuple(marks)))


def _temperature(source: str, config: Any, transformed: bool) -> float:
    """Return the config's temperature; where it is left out, the default of the class that was published."""
    given = getattr(config, "gating_temperature", None)
    if given is not None:
        return float(given)
    if transformed:
        return 10.0
    if config.model_type == "gemma2":
        return 1.0
    raise UsageError(f"{source}: its config.json has no gating_temperature, which this adapter needs. Add the number.")


def _last_and_prompt_end(marks: tuple[int, ...]) -> Callable[[Tokens], tuple[int, ...]]:
    def read_at(tokens: Tokens) -> tuple[int, ...]:
        for place in range(len(tokens.ids) - len(marks), -1, -1):
            if tokens.ids[place : place + len(marks)] == marks:
                return len(tokens.ids) - 1, place
        raise CannotEncodeError(
            "the marks between the user's and the assistant's turn are not in the input, and the gate of this model "
            "reads there; use the model's own chat template"
        )

    return read_at
