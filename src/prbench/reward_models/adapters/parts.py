"""A reward model in its parts: the backbone that transformers loads, and a head of our own."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from prbench.backends.shared_prefix.batching import Tokens
from prbench.reward_models.adapters.weights import HeadWeights
from prbench.reward_models.hf_models import HfModel, load_hf_model
from prbench.reward_models.settings import ModelSettings


def last_token(tokens: Tokens) -> tuple[int, ...]:
    """Read the hidden state at the last token."""
    return (len(tokens.ids) - 1,)


@dataclass(frozen=True, kw_only=True)
class Parts:
    """What a family's loader gives; it fits `BackboneAndHead`."""

    loaded: HfModel
    head: Callable[[Any], Any]
    read_at: Callable[[Tokens], tuple[int, ...]] = last_token
    end_id: int | None = None  # a token of its own that must end the input

    @property
    def backbone(self) -> Any:
        """The decoder without any head."""
        return self.loaded.model


def load_backbone(source: str, settings: ModelSettings, device: str) -> HfModel:
    """Load the decoder alone, with transformers' own class for it; the weights of the head are left where they are."""
    return load_hf_model(source, "AutoModel", replace(settings, trust_remote_code=False), device=device)


def read_head(source: str, settings: ModelSettings, *prefixes: str) -> HeadWeights:
    """Read the weights of the head, by the beginnings of their names."""
    return HeadWeights(source, settings.revision, prefixes)


def width_of(loaded: HfModel) -> int:
    """Return the size of a hidden state."""
    return int(loaded.model.config.get_text_config().hidden_size)


def on_device(head: Any, loaded: HfModel) -> Any:
    """Return the head, ready to score, where the backbone is. It stays in float32: it costs next to nothing."""
    return head.to(loaded.device).eval()
