"""QRM: quantiles of several objectives over Llama 3 or Gemma 2, mixed by a gating network; the score is their mean.

Source: model cards and modeling code of nicolinho/QRM-Llama3-8B, QRM-Llama3.1-8B, QRM-Llama3.1-8B-v2 and
QRM-Gemma-2-27B (https://huggingface.co/nicolinho, https://github.com/Nicolinho/QRM); Dorka, 2024, "Quantile Regression
for Distributional Reward Models in RLHF", arXiv 2409.10164.

Weights, with k objectives and q quantiles: regression_layer.weight (k · q, d), the quantiles of one objective side by
side; reward_transform_matrix (k, k), not with Gemma; gating.layers: three linear layers without bias, each
followed by ReLU and a batch norm (numbers 0, 3, 6 and 2, 5, 8; with dropout in between 0, 4, 8 and 2, 6, 10), and a
last linear layer with bias; gating.logit_scale (1). Config: num_objectives, num_quantiles, gating_temperature.
"""

from prbench.reward_models.adapters.gated import load_gated
from prbench.reward_models.adapters.parts import Parts
from prbench.reward_models.settings import ModelSettings


def load_qrm(source: str, settings: ModelSettings, device: str) -> Parts:
    """Load a QRM model: the score is the gated sum of the objectives' expectations."""
    return load_gated(source, settings, device, quantiles=True)
