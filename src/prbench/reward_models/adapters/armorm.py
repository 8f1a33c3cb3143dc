"""ArmoRM: 19 objectives over Llama 3, mixed by a gating network that reads the prompt.

Source: model card and modeling code of RLHFlow/ArmoRM-Llama3-8B-v0.1 (https://huggingface.co/RLHFlow); Wang et al.,
2024, "Interpretable Preferences via Multi-Objective Reward Modeling and Mixture-of-Experts", arXiv 2406.12845.

Weights, with d = 4096: regression_layer.weight (19, d); reward_transform_matrix (19, 19), which takes verbosity out
of the objectives; gating.layers.{0,1,2}.{weight,bias} of width 1024, gating.layers.3.{weight,bias} (19, 1024);
gating.logit_scale (1). Config: num_objectives, gating_temperature.
"""

from prbench.reward_models.adapters.gated import load_gated
from prbench.reward_models.adapters.parts import Parts
from prbench.reward_models.settings import ModelSettings


def load_armorm(source: str, settings: ModelSettings, device: str) -> Parts:
    """Load an ArmoRM model: the score is the gated sum of the transformed objectives."""
    return load_gated(source, settings, device, quantiles=False)
