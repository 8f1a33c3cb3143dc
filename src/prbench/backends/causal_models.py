"""Causal language models by folder or hub id, plain or as an adapter over a base, which `smollm2` may be."""

import json
from pathlib import Path
from typing import Any

from prbench.backends.fingerprint import fingerprint
from prbench.backends.gguf import SMOLLM2, smollm2_folder
from prbench.backends.pretrained import adapter_over, from_pretrained
from prbench.errors import UsageError

ADAPTER = "adapter_config.json"


def is_adapter(place: str) -> bool:
    """Tell whether a folder holds an adapter alone."""
    return (Path(place) / ADAPTER).is_file()


def load_causal(place: str, **options: Any) -> Any:
    """Return the model at a folder or hub id; an adapter is merged into its base. Options go to transformers."""
    if not is_adapter(place):
        return from_pretrained("AutoModelForCausalLM", place, **options)
    merged = load_adapter(place, **options).merge_and_unload()
    return merged.requires_grad_(True)  # as a plain model comes; an adapter's base is frozen


def load_adapter(place: str, *, learns: bool = False, **options: Any) -> Any:
    """Return the adapter in a folder over its base, which is frozen; the adapter is too unless it `learns`."""
    try:
        import peft  # noqa: F401
    except ImportError as error:
        raise UsageError(f"{place} is a PEFT adapter. Install with: pip install 'prbench[hf]'") from error
    return adapter_over(from_pretrained("AutoModelForCausalLM", base_of(place), **options), place, learns=learns)


def base_of(place: str) -> str:
    """Return where the base of an adapter is: on every machine, the packaged one is called `smollm2`."""
    named = base_named_by(place)
    return str(smollm2_folder()) if named == SMOLLM2 else named


def base_named_by(place: str) -> str:
    """Return the base as an adapter names it."""
    path = Path(place) / ADAPTER
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        raise UsageError(f"{path}: is not JSON. Restore the file, or train the adapter again.") from None
    if not isinstance(config, dict):
        raise UsageError(f"{path}: is no JSON object. Restore the file, or train the adapter again.")
    named = config.get("base_model_name_or_path")
    if not named:
        raise UsageError(f"{path}: names no base. Train the adapter again.")
    return str(named)


def weights_of(place: str) -> str:
    """Return a hash of a folder's files, and for an adapter of its base's too; "" for a hub id."""
    if not Path(place).is_dir():
        return ""
    own = fingerprint(Path(place))
    if not is_adapter(place):
        return own
    base = base_of(place)
    return f"{own} over {weights_of(base) or base}"
