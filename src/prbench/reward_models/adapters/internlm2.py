"""InternLM2-Reward: a decoder of Llama's kind under names of its own, scored at a reward token that ends the input.

Source: model cards and modeling code of internlm/internlm2-1_8b-reward, internlm2-7b-reward and internlm2-20b-reward
(https://huggingface.co/internlm); Cai et al., 2024, "InternLM2 Technical Report", arXiv 2403.17297.

Weights, with d the width, h heads of size s and g key-value heads: model.tok_embeddings.weight; in every layer
attention.wqkv.weight ((h + 2g) · s, d), which holds for each key-value head its h / g query heads, its key and its
value, one after the other; attention.wo.weight; feed_forward.w1 (gate), w3 (up) and w2 (down); attention_norm and
ffn_norm; model.norm.weight; v_head.weight (1, d). Config: reward_token_id, which is put at the end and read.
"""

from typing import Any

from transformers import AutoConfig, AutoModel, AutoTokenizer, LlamaConfig, LlamaModel, PreTrainedTokenizerFast
from transformers.conversion_mapping import register_checkpoint_conversion_mapping
from transformers.core_model_loading import ConversionOps, WeightConverter, WeightRenaming

from prbench.errors import UsageError
from prbench.reward_models.adapters.parts import (
    LastTokenHead,
    Parts,
    build_linear,
    load_backbone,
    on_device,
    read_head,
    width_of,
)
from prbench.reward_models.base import ModelSettings

_PROJECTIONS = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")


class InternLM2Config(LlamaConfig):  # type: ignore[misc]  # transformers ships no types
    """Llama's config under InternLM2's name."""

    model_type = "internlm2"

    @classmethod
    def from_dict(cls, config_dict: dict[str, Any], **kwargs: Any) -> Any:
        """Read the config, except for the attention kernel of the machine that it was saved on."""
        kept = {name: value for name, value in config_dict.items() if name != "attn_implementation"}
        return super().from_dict(kept, **kwargs)


class InternLM2Backbone(LlamaModel):  # type: ignore[misc]
    """Llama's decoder, loaded from InternLM2's weight names."""

    config_class = InternLM2Config


class SplitGroups(ConversionOps):  # type: ignore[misc]
    """Takes wqkv apart: per key-value head its query heads, its key, its value."""

    def convert(
        self, input_dict: dict[str, Any], source_patterns: list[str], target_patterns: list[str], **kwargs: Any
    ) -> dict[str, Any]:
        """Return the three projections under the names of `target_patterns`."""
        import torch

        config = kwargs["config"]
        (found,) = input_dict.values()
        fused = found[0] if isinstance(found, list) else found
        groups = fused.unflatten(0, (config.num_key_value_heads, -1, config.head_dim))
        queries, keys, values = torch.split(groups, [groups.shape[1] - 2, 1, 1], dim=1)
        parts = [part.flatten(0, 2).contiguous() for part in (queries, keys, values)]
        return dict(zip(target_patterns, parts, strict=True))


_NAMES = [
    WeightRenaming("tok_embeddings", "embed_tokens"),
    WeightRenaming(r"attention\.wo", "self_attn.o_proj"),
    WeightRenaming(r"feed_forward\.w1", "mlp.gate_proj"),
    WeightRenaming(r"feed_forward\.w3", "mlp.up_proj"),
    WeightRenaming(r"feed_forward\.w2", "mlp.down_proj"),
    WeightRenaming("attention_norm", "input_layernorm"),
    WeightRenaming("ffn_norm", "post_attention_layernorm"),
    WeightConverter(r"attention\.wqkv", list(_PROJECTIONS), operations=[SplitGroups()]),
]


def load_internlm2(source: str, settings: ModelSettings, device: str) -> Parts:
    """Load an InternLM2 reward model: `v_head` at the reward token."""
    _register()
    loaded = load_backbone(source, settings, device)
    config = loaded.model.config
    if not isinstance(config, InternLM2Config) or getattr(config, "bias", False):
        raise UsageError(f"{source} is not an InternLM2 model without biases, which this adapter reads.")
    end_id = getattr(config, "reward_token_id", None)
    if not isinstance(end_id, int) or not 0 <= end_id < loaded.vocabulary:
        raise UsageError(f"{source}: its config.json has no usable reward_token_id, at which the score is read.")
    weight = read_head(source, settings, "v_head.").take("v_head.weight", 1, width_of(loaded))
    return Parts(loaded=loaded, head=on_device(LastTokenHead(build_linear(weight)), loaded), end_id=end_id)


def _register() -> None:
    """Tell transformers' loaders about the family; its own code, which they would ask for, is then not needed."""
    AutoConfig.register("internlm2", InternLM2Config, exist_ok=True)
    AutoModel.register(InternLM2Config, InternLM2Backbone, exist_ok=True)
    AutoTokenizer.register(InternLM2Config, fast_tokenizer_class=PreTrainedTokenizerFast, exist_ok=True)
    register_checkpoint_conversion_mapping("internlm2", _NAMES, overwrite=True)
