"""Reward models whose heads differ: one file per family, each with its source. No code of a checkpoint is run."""

from typing import TYPE_CHECKING, Any, Literal, Protocol, get_args

from prbench.backends.shared_prefix.batching import Tokens
from prbench.reward_models.adapters.choose import choose_adapter
from prbench.reward_models.settings import ModelSettings

if TYPE_CHECKING:
    from prbench.reward_models.adapters.pairrm import PairRm
    from prbench.reward_models.adapters.parts import Parts
    from prbench.reward_models.adapters.reward import AdaptedReward

__all__ = ["ADAPTERS", "AdapterName", "BackboneAndHead", "choose_adapter", "load_adapted"]

AdapterName = Literal["armorm", "grm", "internlm2", "mlp", "pairrm", "qrm", "urm"]
ADAPTERS: tuple[str, ...] = get_args(AdapterName)


class BackboneAndHead(Protocol):
    """A decoder reward model taken apart, for engines that run the backbone in a way of their own."""

    @property
    def backbone(self) -> Any:
        """Called with input_ids, attention_mask and position_ids, it gives `last_hidden_state`."""
        ...

    def read_at(self, tokens: Tokens) -> tuple[int, ...]:
        """Return the places whose hidden states the head reads, counted from the first token of the input.

        Every input of one model has the same number of places. `CannotEncodeError` where an input lacks one.
        """
        ...

    def head(self, hidden: Any) -> Any:
        """Turn hidden states (inputs, places, width) into scores (inputs), in float32."""
        ...


def load_adapted(
    adapter: str, source: str, settings: ModelSettings, *, device: str = "auto", bos: str = "one"
) -> "AdaptedReward | PairRm":
    """Load a published reward model, by hub id or folder, through the adapter of its family."""
    if adapter == "pairrm":
        from prbench.reward_models.adapters.pairrm import PairRm

        return PairRm(source, settings, device=device)
    from prbench.reward_models.adapters.reward import AdaptedReward

    return AdaptedReward(source, settings, adapter, _load_parts(adapter, source, settings, device), bos=bos)


def _load_parts(adapter: str, source: str, settings: ModelSettings, device: str) -> "Parts":
    match adapter:
        case "armorm":
            from prbench.reward_models.adapters.armorm import load_armorm as load
        case "grm":
            from prbench.reward_models.adapters.grm import load_grm as load
        case "internlm2":
            from prbench.reward_models.adapters.internlm2 import load_internlm2 as load
        case "mlp":
            from prbench.reward_models.adapters.mlp import load_mlp as load
        case "qrm":
            from prbench.reward_models.adapters.qrm import load_qrm as load
        case "urm":
            from prbench.reward_models.adapters.urm import load_urm as load
        case _:
            raise AssertionError(f"the adapter {adapter!r} is not in ADAPTERS")
    return load(source, settings, device)
