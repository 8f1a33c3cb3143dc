"""GRM: a value head on the last token of Llama 3 or Gemma, trained beside the language-model head.

Source: model cards of Ray2333/GRM-llama3-8B-sftreg, GRM-Llama3.2-3B-sftreg, GRM-Gemma-2B-sftreg and
GRM-Gemma2-2B-sftreg (https://huggingface.co/Ray2333, https://github.com/YangRui2015/Generalizable-Reward-Model);
Yang et al., 2024, "Regularizing Hidden States Enables Learning Generalizable Reward Model for LLMs", arXiv 2406.10216.
The "distill" and "rewardmodel-ft" models of the series are plain classifiers.

Weights: v_head.summary.0.{weight,bias} (1024, d) and v_head.summary.2.{weight,bias} (1, 1024), with ReLU between; or,
with `vhead_layer_type` "linear" in the config, v_head.summary.{weight,bias} (1, d).
"""

from torch import nn

from prbench.reward_models.adapters.layers import LastTokenHead, build_linear, build_stack
from prbench.reward_models.adapters.parts import Parts, load_backbone, on_device, read_head, width_of
from prbench.reward_models.settings import ModelSettings


def load_grm(source: str, settings: ModelSettings, device: str) -> Parts:
    """Load a GRM model with its value head, of one layer or several."""
    loaded = load_backbone(source, settings, device)
    weights, width = read_head(source, settings, "v_head."), width_of(loaded)
    network: nn.Module
    if weights.find("v_head.summary.weight") is not None:
        network = build_linear(weights.take("v_head.summary.weight", 1, width), weights.find("v_head.summary.bias"))
    else:
        network = build_stack(weights, "v_head.summary.", width, nn.ReLU, outputs=1)
    return Parts(loaded=loaded, head=on_device(LastTokenHead(network), loaded))
