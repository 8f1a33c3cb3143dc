"""Queries that share keys, asked together, are told what they are told one by one."""

from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs pip install 'prbench[hf]'")

import torch
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from prbench.backends.generation import PLAIN_ATTENTION, shared_key_attention, shared_keys

ROWS, HEADS, OWN, LENGTH, WIDTH = 3, 6, 3, 7, 4


def parts(tokens: int, mask_heads: int = 1) -> tuple[Any, ...]:
    dice = torch.Generator().manual_seed(0)
    query = torch.randn(ROWS, HEADS, tokens, WIDTH, generator=dice)
    key, value = (torch.randn(ROWS, HEADS // OWN, LENGTH, WIDTH, generator=dice) for _ in range(2))
    mask = torch.rand(ROWS, mask_heads, tokens, LENGTH, generator=dice) > 0.3
    mask[..., 0] = True
    return SimpleNamespace(num_key_value_groups=OWN, is_causal=True), query, key, value, mask


@pytest.mark.parametrize("tokens", [1, 2])
@pytest.mark.parametrize("mask_heads", [1, HEADS])
def test_it_is_what_sdpa_gives(tokens: int, mask_heads: int) -> None:
    given = parts(tokens, mask_heads)
    ours, _ = shared_key_attention(*given, scaling=0.3, dropout=0.0)
    theirs, _ = sdpa_attention_forward(*given, scaling=0.3, dropout=0.0)
    assert ours.shape == theirs.shape == (ROWS, tokens, HEADS, WIDTH)
    assert torch.allclose(ours, theirs, atol=1e-6)


def test_one_token_without_a_mask_sees_everything() -> None:
    module, query, key, value, _ = parts(1)
    ours, _ = shared_key_attention(module, query, key, value, None, scaling=0.3, dropout=0.0)
    theirs, _ = sdpa_attention_forward(module, query, key, value, None, scaling=0.3, dropout=0.0)
    assert torch.allclose(ours, theirs, atol=1e-6)


def llama(**changes: Any) -> Any:
    sizes = {"hidden_size": 24, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": HEADS}
    return LlamaForCausalLM(LlamaConfig(vocab_size=11, num_key_value_heads=2, **sizes, **changes)).eval()


def attends_plainly() -> bool:
    return ALL_ATTENTION_FUNCTIONS[PLAIN_ATTENTION] is sdpa_attention_forward


def test_a_model_attends_so_only_while_it_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    model = llama()
    copied: list[int] = []
    kept = sdpa_attention_forward

    def counted(module: Any, query: Any, *rest: Any, **options: Any) -> Any:
        copied.append(query.shape[2])
        return kept(module, query, *rest, **options)

    monkeypatch.setattr("transformers.integrations.sdpa_attention.sdpa_attention_forward", counted)
    prompt = torch.tensor([[3, 4, 5]])
    with torch.no_grad(), shared_keys(model):
        read = model(prompt, use_cache=True)
        one = model(torch.tensor([[6]]), past_key_values=read.past_key_values).logits[:, -1]
    assert copied == [3]  # the prompt, and not the token after it
    assert attends_plainly()
    with torch.no_grad():
        whole = model(torch.tensor([[3, 4, 5, 6]])).logits[:, -1]
    assert torch.allclose(one, whole, atol=1e-5)


def test_a_failure_leaves_attention_as_it_was() -> None:
    def fail() -> None:
        with shared_keys(llama()):
            raise RuntimeError("plain" if attends_plainly() else "shared")

    with pytest.raises(RuntimeError, match="shared"):
        fail()
    assert attends_plainly()


def test_a_model_that_attends_in_another_way_goes_on_so() -> None:
    with shared_keys(llama(attn_implementation="eager")):
        assert attends_plainly()
