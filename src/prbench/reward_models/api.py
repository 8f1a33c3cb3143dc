"""Load a reward model in Python; options are keyword arguments."""

from typing import Any

from prbench.errors import UsageError
from prbench.reward_models import DTYPES, LoadedModel, ModelSettings, load_reward_model
from prbench.specs import check_at_least


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
