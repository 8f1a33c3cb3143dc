"""Reward models whose heads differ, each family with its source. No code of a checkpoint is run."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from prbench.reward_models.base import ModelSettings

if TYPE_CHECKING:
    from prbench.reward_models.adapters.decoders import AdaptedReward
    from prbench.reward_models.adapters.pairrm import PairRm

AdapterName = Literal["armorm", "grm", "internlm2", "mlp", "pairrm", "qrm", "urm"]
ADAPTERS: tuple[str, ...] = get_args(AdapterName)


def load_adapted(
    adapter: str, source: str, settings: ModelSettings, *, device: str = "auto", bos: str = "one"
) -> "AdaptedReward | PairRm":
    """Load a published reward model, by hub id or folder, through the adapter of its family."""
    if adapter == "pairrm":
        from prbench.reward_models.adapters.pairrm import PairRm

        return PairRm(source, settings, device=device)
    from prbench.reward_models.adapters.decoders import AdaptedReward, load_parts

    return AdaptedReward(source, settings, adapter, load_parts(adapter, source, settings, device), bos=bos)


# By the class that the checkpoint was saved from: `architectures`, or the last part of an `auto_map` entry.
BY_CLASS: Mapping[str, str] = {
    "DebertaV2PairRM": "pairrm",
    "GRewardModel": "grm",
    "Gemma2ForQuantileSequenceClassification": "qrm",
    "INFORMForSequenceClassification": "mlp",
    "InternLM2ForRewardModel": "internlm2",
    "LlamaForRewardModelWithGating": "armorm",
    "LlamaForRewardModelWithGating3": "qrm",
    "LlamaForRewardModelWithGating31": "qrm",
    "LlamaForSequenceClassificationWithNormal_Weights": "urm",
    "Qwen2ForRewardModel": "mlp",
}
# Hub ids, in lower case, of models whose config may name another class.
BY_HUB_ID: Mapping[str, str] = {
    "infly/inf-orm-llama3.1-70b": "mlp",
    "llm-blender/pairrm-hf": "pairrm",
    "nicolinho/qrm-gemma-2-27b": "qrm",
    "nicolinho/qrm-llama3-8b": "qrm",
    "nicolinho/qrm-llama3.1-8b": "qrm",
    "nicolinho/qrm-llama3.1-8b-v2": "qrm",
    "ray2333/grm-gemma-2b-sftreg": "grm",
    "ray2333/grm-gemma2-2b-sftreg": "grm",
    "ray2333/grm-llama3-8b-sftreg": "grm",
    "ray2333/grm-llama3.2-3b-sftreg": "grm",
}


def choose_adapter(source: str, revision: str | None = None) -> str:
    """Return the adapter for a hub id or a folder; `none` where a plain classifier will do."""
    known = BY_HUB_ID.get(source.lower())
    if known and not Path(source).expanduser().is_dir():
        return known
    config = _config(source, revision)
    mapped = [reference for reference in (config.get("auto_map") or {}).values() if isinstance(reference, str)]
    classes = [*(config.get("architectures") or ()), *(reference.rpartition(".")[2] for reference in mapped)]
    found = next((BY_CLASS[name] for name in classes if name in BY_CLASS), "none")
    # Quantile models were also published under the class name of the model that they extend.
    return "qrm" if found == "armorm" and "num_quantiles" in config else found


def _config(source: str, revision: str | None) -> Mapping[str, Any]:
    """Return config.json, or nothing where it cannot be had: the plain loader then says what is wrong, in one line."""
    path: str | Path = Path(source).expanduser() / "config.json"
    try:
        if not Path(source).expanduser().is_dir():
            from huggingface_hub import hf_hub_download, try_to_load_from_cache

            # What is at hand will do: a new revision of a model is not a model of another class.
            cached = try_to_load_from_cache(source, "config.json", revision=revision)
            path = cached if isinstance(cached, str) else hf_hub_download(source, "config.json", revision=revision)
        config = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError, ImportError):
        return {}
    return config if isinstance(config, dict) else {}
