"""Reward models under test. `prbench.registry` lists their kinds; each is loaded by the module of its name."""

from dataclasses import replace
from typing import Any

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
from prbench.specs import check_at_least

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


def load_model(
    spec: str, *, seed: int = 0, batch_size: int | None = None, max_length: int | None = None, dtype: str = "auto"
) -> LoadedModel:
    """Return the reward model that a spec names, ready to score; `.model.score(inputs)` asks it.

        model = prbench.load_model("control:overlap")
        run = prbench.evaluate("lab", model, limit=50)

    Options of one kind stand in its spec, as on the command line: `classifier:my-model?max_length=4096`.
    """
    return load_reward_model(check_is_spec(spec, "load_model"), model_settings(seed, batch_size, max_length, dtype))


def model_settings(seed: int, batch_size: int | None, max_length: int | None, dtype: str) -> ModelSettings:
    """Return the settings that keyword arguments give."""
    check_at_least(1, batch_size=batch_size, max_length=max_length)
    if dtype not in DTYPES:
        raise UsageError(f"dtype={dtype!r}: unknown. Use one of: {', '.join(DTYPES)}.")
    return ModelSettings(seed=seed, batch_size=batch_size or 0, max_length=max_length, dtype=dtype)


def check_is_spec(model: Any, who: str) -> str:
    """Return a model that must be named by a text."""
    if not isinstance(model, str):
        raise UsageError(f"{who} takes a spec, e.g. control:overlap or python:package.module:Factory, not {model!r}.")
    return model
