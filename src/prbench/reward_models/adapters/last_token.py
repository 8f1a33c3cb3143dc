"""Heads that read the last token alone: those of GRM, of Qwen's and INF's reward models, and of URM.

GRM: a value head on Llama 3 or Gemma, trained beside the language-model head. Source: model cards of
Ray2333/GRM-llama3-8B-sftreg, GRM-Llama3.2-3B-sftreg, GRM-Gemma-2B-sftreg and GRM-Gemma2-2B-sftreg
(https://huggingface.co/Ray2333, https://github.com/YangRui2015/Generalizable-Reward-Model); Yang et al., 2024,
"Regularizing Hidden States Enables Learning Generalizable Reward Model for LLMs", arXiv 2406.10216. The "distill" and
"rewardmodel-ft" models of the series are plain classifiers. Weights: v_head.summary.0.{weight,bias} (1024, d) and
v_head.summary.2.{weight,bias} (1, 1024), with ReLU between; or, with `vhead_layer_type` "linear" in the config,
v_head.summary.{weight,bias} (1, d).

Qwen and INF: a small network in place of the linear score layer. Source: Qwen/Qwen2.5-Math-RM-72B and Qwen/WorldPM-72B
(class Qwen2ForRewardModel, https://huggingface.co/Qwen); infly/INF-ORM-Llama3.1-70B (class
INFORMForSequenceClassification, https://huggingface.co/infly; also rewardbench/models/inform.py of
https://github.com/allenai/reward-bench). Weights: score.0.{weight,bias} (d, d) and score.2.{weight,bias} (1, d), with
ReLU between.

URM: five attributes over Llama 3.1, each a normal distribution; the score is the weighted sum of their means. Source:
model card of LxzGordon/URM-LLaMa-3.1-8B (https://huggingface.co/LxzGordon); Lou et al., 2024, "Uncertainty-aware
Reward Model", arXiv 2410.00847; SGLang's LlamaForSequenceClassificationWithNormal_Weights
(https://github.com/sgl-project/sglang, python/sglang/srt/models/llama_reward.py). Weights, with a attributes:
score.weight (2a, d), whose even rows are means and odd rows spreads; weights.fc.{0,2}.{weight,bias} (d, d) and
weights.fc.4.{weight,bias} (a, d), with SELU between, which give the attributes' weights.
"""

from torch import Tensor, nn

from prbench.reward_models.adapters.parts import (
    HeadWeights,
    LastTokenHead,
    Parts,
    build_linear,
    build_stack,
    load_backbone,
    on_device,
    read_head,
    width_of,
)
from prbench.reward_models.base import ModelSettings


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


def load_mlp(source: str, settings: ModelSettings, device: str) -> Parts:
    """Load a model whose `score` is a stack of layers."""
    loaded = load_backbone(source, settings, device)
    network = build_stack(read_head(source, settings, "score."), "score.", width_of(loaded), nn.ReLU, outputs=1)
    return Parts(loaded=loaded, head=on_device(LastTokenHead(network), loaded))


class UrmHead(nn.Module):
    """score = Σ over attributes of weight · mean."""

    def __init__(self, weights: HeadWeights, width: int) -> None:
        super().__init__()
        self._means = build_linear(weights.take("score.weight", -1, width)[::2])
        self._weigh = build_stack(weights, "weights.fc.", width, nn.SELU, outputs=self._means.out_features)

    def forward(self, hidden: Tensor) -> Tensor:
        """Score hidden states (inputs, 1, width)."""
        last = hidden.float()[:, 0]
        weighed: Tensor = self._weigh(last) * self._means(last)
        return weighed.sum(-1)


def load_urm(source: str, settings: ModelSettings, device: str) -> Parts:
    """Load a URM model with learned attribute weights."""
    loaded = load_backbone(source, settings, device)
    head = UrmHead(read_head(source, settings, "score.", "weights."), width_of(loaded))
    return Parts(loaded=loaded, head=on_device(head, loaded))
