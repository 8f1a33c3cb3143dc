"""Backbones: the pretrained models that training starts from, by folder, hub id or GGUF file.

A GGUF file is dequantized once, into a folder that every Hugging Face loader takes. Adapters name that folder as their
base, except for the packaged one, which is called `smollm2` on every machine.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prbench.backends.hf import (
    SMOLLM2,
    base_named_by,
    dequantized,
    from_pretrained,
    is_adapter,
    load_adapter,
    load_causal,
    one_line_errors,
    quiet_loading,
    smollm2_folder,
)
from prbench.errors import UsageError
from prbench.runs.files import write_json

LANGUAGE_MODEL, CLASSIFIER = "AutoModelForCausalLM", "AutoModelForSequenceClassification"
# A score head is new in every backbone; nothing else may start at random.
_NEW_HEADS = ("score.", "classifier.", "pre_classifier.", "pooler.")
_MANY = 4  # missing weights that an error names


@dataclass(frozen=True, kw_only=True)
class Backbone:
    """A pretrained model with its tokenizer."""

    place: str  # folder or hub id
    base: str  # what an adapter names as its base: the place, or `smollm2`
    model: Any
    tokenizer: Any


def load_backbone(name: str, auto_class: str, *, seed: int = 0, dtype: str = "float32") -> Backbone:
    """Load `smollm2`, a folder, a GGUF file or a hub id; a classifier gets one logit, drawn by the seed."""
    import torch

    place = backbone_place(name)
    if auto_class == CLASSIFIER and is_adapter(place):
        raise UsageError(f"--backbone {name}: is an adapter; a classifier starts from a whole model. Name its base.")
    options: dict[str, Any] = {"num_labels": 1} if auto_class == CLASSIFIER else {}
    with one_line_errors(name), quiet_loading():
        tokenizer = from_pretrained("AutoTokenizer", place)
        if auto_class == LANGUAGE_MODEL and is_adapter(place):
            return Backbone(place=place, base=place, model=load_causal(place, dtype=dtype), tokenizer=tokenizer)
        torch.manual_seed(seed)
        model, report = from_pretrained(auto_class, place, dtype=dtype, output_loading_info=True, **options)
    missing = {key for key in report["missing_keys"] if not key.startswith(_NEW_HEADS)}
    missing |= {key for key in report["missing_keys"] if auto_class != CLASSIFIER}
    if missing:
        named = ", ".join(sorted(missing)[:_MANY])
        raise UsageError(f"{name}: lacks {named}, which would start at random. Give a backbone that is complete.")
    return Backbone(place=place, base=name if name == SMOLLM2 else place, model=model, tokenizer=tokenizer)


def load_learning_adapter(name: str) -> Backbone | None:
    """Load an adapter over a language model such that it learns on; none where the name is of something else."""
    place = backbone_place(name)
    if not is_adapter(place):
        return None
    with one_line_errors(name), quiet_loading():
        tokenizer = from_pretrained("AutoTokenizer", place)
        model = load_adapter(place, learns=True, dtype="float32")
    return Backbone(place=place, base=base_named_by(place), model=model, tokenizer=tokenizer)


def name_base(folder: Path, backbone: Backbone) -> None:
    """Let the adapter in a folder, if there is one, name its base so that it is found on any machine."""
    path = folder / "adapter_config.json"
    if path.is_file():
        described = json.loads(path.read_text(encoding="utf-8"))
        write_json(path, {**described, "base_model_name_or_path": backbone.base})


def backbone_place(name: str) -> str:
    """Return the folder or hub id to load from; a GGUF file is dequantized into the cache first."""
    if not name.strip():
        raise UsageError("--backbone is empty. Give smollm2, a folder or a hub id (org/name).")
    if name == SMOLLM2:
        return str(smollm2_folder())
    path = Path(name).expanduser()
    if path.suffix == ".gguf" and path.is_file():
        return str(dequantized(path))
    if path.is_dir():
        files = sorted(path.glob("*.gguf"))
        if (path / "config.json").is_file() or not files:
            return str(path.resolve())
        if len(files) > 1:
            raise UsageError(f"{name}: holds {len(files)} GGUF files. Name one of them, e.g. {files[0]}.")
        return str(dequantized(files[0]))
    if name.startswith(("/", ".", "~")) or name.count("/") != 1:
        raise UsageError(f"--backbone {name}: there is no such folder. Give smollm2, a folder or a hub id (org/name).")
    return name
