import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs pip install 'prbench[hf]'")

import torch

from prbench.errors import UsageError
from prbench.reward_models import ModelSettings, load_reward_model
from prbench.schema import RewardInput

REWARD_TOKEN = 269
RENAMED = {
    "embed_tokens": "tok_embeddings",
    "self_attn.o_proj": "attention.wo",
    "mlp.gate_proj": "feed_forward.w1",
    "mlp.up_proj": "feed_forward.w3",
    "mlp.down_proj": "feed_forward.w2",
    "input_layernorm": "attention_norm",
    "post_attention_layernorm": "ffn_norm",
}


def fused(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, heads: int, groups: int, size: int) -> torch.Tensor:
    """wqkv, row block by row block: the queries of a key-value head, then its key, then its value."""
    rows = []
    for group in range(groups):
        for head in range(heads // groups):
            start = (group * (heads // groups) + head) * size
            rows.append(q[start : start + size])
        rows += [k[group * size : (group + 1) * size], v[group * size : (group + 1) * size]]
    return torch.cat(rows)


def as_internlm2(decoder: Any) -> dict[str, torch.Tensor]:
    """A Llama decoder's weights in the published layout."""
    weights, found = {}, decoder.state_dict()
    for name, weight in found.items():
        if "q_proj" in name:
            parts = [found[name.replace("q_proj", part)] for part in ("q_proj", "k_proj", "v_proj")]
            new = name.replace("self_attn.q_proj", "attention.wqkv")
            weights[f"model.{new}"] = fused(*parts, heads=8, groups=2, size=4)
        elif "k_proj" not in name and "v_proj" not in name:
            for ours, theirs in RENAMED.items():
                name = name.replace(ours, theirs)  # noqa: PLW2901
            weights[f"model.{name}"] = weight
    return weights


def save(tiny: Any, **changes: Any) -> tuple[Path, Any, Any, torch.Tensor]:
    """A checkpoint as the hub holds it: another model type, code of its own, and a tokenizer with code of its own."""
    decoder, tokenizer = (
        tiny.decoder("LlamaConfig", rope_theta=1000000.0, num_attention_heads=8, head_dim=4),
        tiny.tokenizer("internlm"),
    )
    v_head = torch.randn(1, 32)
    config = {
        "architectures": ["InternLM2ForRewardModel"],
        "auto_map": {
            "AutoConfig": "configuration_internlm2.InternLM2Config",
            "AutoModel": "modeling_internlm2.InternLM2ForRewardModel",
        },
        "attn_implementation": "flash_attention_2",
        "bias": False,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "hidden_act": "silu",
        "hidden_size": 32,
        "initializer_range": 0.02,
        "intermediate_size": 48,
        "max_position_embeddings": 512,
        "model_type": "internlm2",
        "num_attention_heads": 8,
        "num_hidden_layers": 2,
        "num_key_value_heads": 2,
        "pad_token_id": 2,
        "reward_token_id": REWARD_TOKEN,
        "rms_norm_eps": 1e-06,
        "rope_scaling": {"factor": 2.0, "type": "dynamic"},
        "rope_theta": 1000000.0,
        "tie_word_embeddings": False,
        "torch_dtype": "float32",
        "use_cache": True,
        "vocab_size": 270,
        **changes,
    }
    folder = tiny.save(config, {**as_internlm2(decoder), "v_head.weight": v_head}, tokenizer)
    described = json.loads((folder / "tokenizer_config.json").read_text())
    code = ["tokenization_internlm2.InternLM2Tokenizer", "tokenization_internlm2_fast.InternLM2TokenizerFast"]
    described |= {"tokenizer_class": "InternLM2Tokenizer", "auto_map": {"AutoTokenizer": code}}
    (folder / "tokenizer_config.json").write_text(json.dumps(described))
    return folder, decoder, tokenizer, v_head


def test_score_is_v_head_at_the_reward_token_that_ends_the_input(tiny: Any) -> None:
    folder, decoder, tokenizer, v_head = save(tiny)

    def expected(each: RewardInput) -> float:
        ids = [*tiny.token_ids(tokenizer, each), REWARD_TOKEN]
        return float(v_head @ tiny.hidden(decoder, ids)[-1])

    tiny.check(folder, "internlm2", expected)


def test_long_inputs_use_the_published_positions(tiny: Any) -> None:
    folder, *_ = save(tiny)
    loaded = load_reward_model(f"classifier:{folder}?device=cpu", ModelSettings())
    rope = loaded.model.parts.backbone.config.rope_parameters
    assert (rope["rope_type"], rope["factor"], rope["rope_theta"]) == ("dynamic", 2.0, 1000000.0)
    assert not loaded.fits(RewardInput(question="Q?", response="x" * 600))


@pytest.mark.parametrize("reward_token_id", [None, 270])
def test_config_without_a_usable_reward_token_is_refused(tiny: Any, reward_token_id: int | None) -> None:
    folder, *_ = save(tiny, reward_token_id=reward_token_id)
    with pytest.raises(UsageError, match="no usable reward_token_id"):
        load_reward_model(f"classifier:{folder}?device=cpu", ModelSettings())


def test_another_model_forced_through_the_adapter_is_refused_in_one_line(tiny: Any) -> None:
    folder = tiny.save_decoder(tiny.decoder("LlamaConfig"), {}, tiny.tokenizer("llama"), "LlamaForCausalLM")
    with pytest.raises(UsageError, match="not an InternLM2 model") as caught:
        load_reward_model(f"classifier:{folder}?device=cpu&adapter=internlm2", ModelSettings())
    assert "\n" not in str(caught.value)
