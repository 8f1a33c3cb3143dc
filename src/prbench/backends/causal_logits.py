"""Logits of a causal language model from its hidden states, so that only those that are needed are computed.

Padding stands on the right, where no token that counts can see it. So no mask is needed, which attention has its
fastest ways without; and no row of padding is left with nothing to attend to, whose gradients may be no numbers.
"""

from typing import Any

import torch
from torch import Tensor, nn


def hidden_states(lm: Any, ids: Tensor) -> Tensor:
    """Return the last hidden states of rows that are padded on the right, (rows, tokens, hidden)."""
    states: Tensor = lm.get_decoder()(input_ids=ids, use_cache=False).last_hidden_state
    return states


def logits_of(lm: Any, hidden: Tensor) -> Tensor:
    """Return logits in float32, whatever the precision of the layers below: log-ratios are small."""
    with torch.autocast(hidden.device.type, enabled=False):
        head = lm.get_output_embeddings()
        bias = None if head.bias is None else head.bias.float()
        return _finished(nn.functional.linear(hidden.float(), head.weight.float(), bias), lm.config.get_text_config())


def _finished(logits: Tensor, config: Any) -> Tensor:
    """Return the logits as the model gives them out: some families scale or cap what the output embedding says."""
    if scale := getattr(config, "logit_scale", None):  # Cohere
        logits = logits * scale
    if divisor := getattr(config, "logits_scaling", None):  # Granite
        logits = logits / divisor
    if cap := getattr(config, "final_logit_softcapping", None):  # Gemma 2
        logits = torch.tanh(logits / cap) * cap
    return logits
