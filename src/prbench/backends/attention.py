"""Attention for sampling token by token, where several heads of queries share the keys of one head.

`transformers` copies the keys and values once for every head that shares them, as long as there is a mask; at one
token a step, these copies take longer than all the rest together. Here the queries that share keys are asked together
instead, as if they were several tokens of one head, which comes to the same: a step has one position, so they all may
see the same.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

PLAIN = "sdpa"
_UNUSUAL = ("position_bias", "softcap", "cache")  # arguments that only the plain way knows


def shared_key_attention(
    module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **options: Any
) -> tuple[Tensor, None]:
    """Return what `sdpa` returns, (rows, tokens, heads, width); prompts are read by `sdpa` itself."""
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    rows, heads, tokens, width = query.shape
    own = heads // key.shape[1]  # queries to each head of keys
    by_head = attention_mask is not None and attention_mask.shape[1] > 1
    if tokens > 1 or own == 1 or by_head or any(options.get(name) is not None for name in _UNUSUAL):
        found: tuple[Tensor, None] = sdpa_attention_forward(module, query, key, value, attention_mask, **options)
        return found
    together = query.reshape(rows, heads // own, own, width)
    told = scaled_dot_product_attention(
        together,
        key,
        value,
        attn_mask=attention_mask,
        scale=options.get("scaling"),
        dropout_p=options.get("dropout", 0.0),
    )
    return told.reshape(rows, 1, heads, value.shape[-1]), None


@contextmanager
def shared_keys(model: Any) -> Iterator[None]:
    """Let a model attend so; one that attends in another way than `sdpa` goes on as it does.

    The model keeps the name `sdpa`, by which some choose what else to do, such as the form of their masks.
    """
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    if model.config.get_text_config(decoder=True)._attn_implementation != PLAIN:
        yield
        return
    before = ALL_ATTENTION_FUNCTIONS[PLAIN]
    ALL_ATTENTION_FUNCTIONS[PLAIN] = shared_key_attention
    try:
        yield
    finally:
        ALL_ATTENTION_FUNCTIONS[PLAIN] = before
