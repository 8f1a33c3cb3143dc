"""A small network in place of the linear score layer: Qwen's and INF's reward models.

Source: Qwen/Qwen2.5-Math-RM-72B and Qwen/WorldPM-72B (class Qwen2ForRewardModel, https://huggingface.co/Qwen);
infly/INF-ORM-Llama3.1-70B (class INFORMForSequenceClassification, https://huggingface.co/infly; also
rewardbench/models/inform.py of https://github.com/allenai/reward-bench).

Weights: score.0.{weight,bias} (d, d) and score.2.{weight,bias} (1, d), with ReLU between, at the last token.
"""

from torch import nn

from prbench.reward_models.adapters.layers import LastTokenHead, build_stack
from prbench.reward_models.adapters.parts import Parts, load_backbone, on_device, read_head, width_of
from prbench.reward_models.settings import ModelSettings


def load_mlp(source: str, settings: ModelSettings, device: str) -> Parts:
    """Load a model whose `score` is a stack of layers."""
    loaded = load_backbone(source, settings, device)
    network = build_stack(read_head(source, settings, "score."), "score.", width_of(loaded), nn.ReLU, outputs=1)
    return Parts(loaded=loaded, head=on_device(LastTokenHead(network), loaded))
