"""URM: five attributes over Llama 3.1, each a normal distribution; the score is the weighted sum of their means.

Source: model card of LxzGordon/URM-LLaMa-3.1-8B (https://huggingface.co/LxzGordon); Lou et al., 2024,
"Uncertainty-aware Reward Model", arXiv 2410.00847; SGLang's LlamaForSequenceClassificationWithNormal_Weights
(https://github.com/sgl-project/sglang, python/sglang/srt/models/llama_reward.py).

Weights, with a attributes: score.weight (2a, d), whose even rows are means and odd rows spreads;
weights.fc.{0,2}.{weight,bias} (d, d) and weights.fc.4.{weight,bias} (a, d), with SELU between, which give the
attributes' weights. Both read the last token.
"""

from torch import Tensor, nn

from prbench.reward_models.adapters.layers import build_linear, build_stack
from prbench.reward_models.adapters.parts import Parts, load_backbone, on_device, read_head, width_of
from prbench.reward_models.adapters.weights import HeadWeights
from prbench.reward_models.settings import ModelSettings


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
