"""Reward models under test. `prbench.registry` lists their kinds; each is loaded by the module of its name."""

from dataclasses import replace

from prbench.errors import UsageError
from prbench.registry import MODELS
from prbench.reward_models.base import (
    AUTO,
    DTYPES,
    LoadedModel,
    ModelSettings,
    PairJudge,
    RewardModel,
    override,
    require_scores,
)
from prbench.reward_models.custom import wrap
from prbench.reward_models.view import ModelRef, View, check_not_gold, check_view_empty, disturbed, read_ref

__all__ = [
    "DTYPES",
    "LoadedModel",
    "ModelRef",
    "ModelSettings",
    "PairJudge",
    "RewardModel",
    "View",
    "check_not_gold",
    "check_view_empty",
    "load_ref",
    "load_reward_model",
    "read_ref",
    "require_scores",
    "wrap",
]


def load_reward_model(spec: str, settings: ModelSettings) -> LoadedModel:
    """Build the model named by a spec, e.g. `classifier:org/name?dtype=float32`; options override the settings.

    What the model is shown (`?context=` and the like) is for those who make contexts: they `read_ref` first.
    """
    ref = read_ref(spec)
    check_view_empty(ref)
    return load_ref(ref, settings)


def load_ref(ref: ModelRef, settings: ModelSettings) -> LoadedModel:
    """Build a model whose spec was read before."""
    kind = MODELS.find(ref.spec.kind)
    options = kind.read_options(ref.spec)
    settings = replace(override(settings, options), is_disturbed=ref.view.disturbs)
    if settings.batch_size < AUTO:
        raise UsageError(f"--batch-size {settings.batch_size} scores nothing. Give a number above 0.")
    loaded: LoadedModel = kind.make(ref.spec, options, settings, needs=LoadedModel)
    if not isinstance(loaded.model, RewardModel | PairJudge):
        raise UsageError(f"{ref.name}: its model has neither score(inputs) nor prefer(pairs), so it cannot be tested.")
    return replace(disturbed(loaded, ref.view, settings.seed), spec=ref.text)
