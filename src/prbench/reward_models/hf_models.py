"""Loads Hugging Face models and tokenizers, with errors that say what to do."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prbench.backends.hf import (
    SMOLLM2,
    adapter_config,
    adapter_over,
    fingerprint,
    from_pretrained,
    one_line_errors,
    quiet_loading,
    smollm2_folder,
)
from prbench.backends.shared_prefix.batching import (
    Forward,
    TokenCount,
    Tokens,
    compute_each_once,
    memory_errors,
    rope_border,
)
from prbench.errors import UsageError
from prbench.reward_models.base import DTYPES, ModelSettings, as_score
from prbench.reward_models.chat import Chat
from prbench.schema import Json, Score

if TYPE_CHECKING:
    from prbench.backends.shared_prefix.packed import ReadPack


# Where classifiers keep their last layer; its first dimension is the number of logits.
_HEADS = ("score.weight", "classifier.weight", "classifier.out_proj.weight", "classifier.dense.weight")
_IN_ADAPTER = "base_model.model."
_PROMPT_ADAPTERS = ("PROMPT_TUNING", "P_TUNING", "MULTITASK_PROMPT_TUNING")


@dataclass(frozen=True, kw_only=True)
class HfModel:
    """A model ready to run, with its tokenizer and what tells it from others."""

    model: Any
    tokenizer: Any
    identity: Mapping[str, Json]
    device: Any  # where the model runs
    vocabulary: int  # token ids that the model knows


def load_hf_model(source: str, auto_class: str, settings: ModelSettings, *, device: str = "auto") -> HfModel:
    """Load a model by hub id or folder, in full: a model with weights that were not saved is refused.

    `auto_class` names the transformers class, e.g. `AutoModelForSequenceClassification`. A folder with an
    `adapter_config.json` is loaded as a PEFT adapter on its base model.
    """
    missing = [name for name in ("torch", "transformers") if find_spec(name) is None]
    if missing:
        raise UsageError(f"This model needs {' and '.join(missing)}. Install with: pip install 'prbench[hf]'")
    place = _place(source)
    if settings.dtype not in DTYPES:
        raise UsageError(f"--dtype {settings.dtype} is not known. Use one of: {', '.join(DTYPES)}.")
    remedy = "Check the name, that its files are complete, and that the hub can be reached (or give a local folder)."
    if isinstance(place, str):
        remedy = f"There is no folder {source} here, so the hub was asked. {remedy}"
    with one_line_errors(source, remedy), quiet_loading():
        if isinstance(place, str):
            from huggingface_hub import snapshot_download
            from transformers.utils import find_adapter_config_file

            # Transformers would load an adapter of the hub without saying what its files lack.
            if find_adapter_config_file(place, revision=settings.revision):
                place = Path(snapshot_download(place, revision=settings.revision))
        if isinstance(place, Path) and (place / "adapter_config.json").is_file():
            model, identity = _load_adapter(place, auto_class, settings)
        else:
            model, gaps = _load_with_gaps(place, auto_class, settings, revision=settings.revision, num_labels=None)
            _check_weights_complete(str(place), gaps)
            identity = _identity(place, settings.revision)
        tokenizer = _load_tokenizer(place, settings)
    model = model.to(_pick_device(device)).eval()
    weights = next(model.parameters())
    vocabulary = int(model.get_input_embeddings().weight.shape[0])
    if len(tokenizer) > vocabulary:
        raise UsageError(
            f"{source}: the tokenizer knows {len(tokenizer)} tokens and the model {vocabulary}, so they do not "
            "belong together. Save both in one folder."
        )
    return HfModel(
        model=model,
        tokenizer=tokenizer,
        identity={**identity, "dtype": str(weights.dtype).removeprefix("torch.")},
        device=weights.device,
        vocabulary=vocabulary,
    )


def load_layout(source: str, settings: ModelSettings) -> tuple[Any, Any]:
    """Return config and tokenizer of a model that computes elsewhere."""
    if find_spec("transformers") is None:
        raise UsageError("?tokenizer= needs transformers. Install with: pip install 'prbench[hf]'")
    place = _place(source)
    remedy = "Name the folder or hub id that the server loads: ?tokenizer=FOLDER_OR_ID."
    options = {"revision": settings.revision} if settings.revision else {}
    with one_line_errors(source, remedy), quiet_loading():
        config = from_pretrained("AutoConfig", str(place), trust_remote_code=settings.trust_remote_code, **options)
        return config, _load_tokenizer(place, settings)


def run(loaded: HfModel, batch: Sequence[Tokens], pad_id: int, **options: Any) -> Any:
    """Return the model's output for the batch, padded on the right."""
    import torch

    longest = max(len(each.ids) for each in batch)
    rows = {
        "input_ids": [[*each.ids, *[pad_id] * (longest - len(each.ids))] for each in batch],
        "attention_mask": [[1] * len(each.ids) + [0] * (longest - len(each.ids)) for each in batch],
    }
    if batch[0].types:
        rows["token_type_ids"] = [[*each.types, *[0] * (longest - len(each.types))] for each in batch]
    tensors = {name: torch.tensor(values, device=loaded.device) for name, values in rows.items()}  # (batch, tokens)
    with torch.inference_mode(), memory_errors():
        return loaded.model(**tensors, **options)


def inner_model(model: Any) -> Any:
    """Return the model itself, or the one inside an adapter."""
    return model.get_base_model() if hasattr(model, "get_base_model") else model


def _place(source: str) -> Path | str:
    if source == SMOLLM2:
        return smollm2_folder()
    path = Path(source).expanduser()
    if path.is_dir():
        return path
    if path.is_file():
        raise UsageError(f"{source} is a file; give the folder that holds the model.")
    if source.startswith(("/", ".", "~")) or source.count("/") > 1:
        raise UsageError(f"{source}: there is no such folder. Give a model's folder or its hub id (org/name).")
    return source


def _load_adapter(folder: Path, auto_class: str, settings: ModelSettings) -> tuple[Any, dict[str, Json]]:
    """Load base and adapter. What the base lacks (a score head, as a rule) must be among the adapter's own weights."""
    import torch

    try:
        from peft.utils.save_and_load import load_peft_weights
    except ImportError as error:
        raise UsageError(f"{folder} is a PEFT adapter. Install with: pip install 'prbench[hf]'") from error
    config = adapter_config(folder)
    kind, revision = config.get("peft_type"), config.get("revision")
    if kind in _PROMPT_ADAPTERS:
        raise UsageError(
            f"{folder} is a {kind} adapter: it puts vectors before the text, and the end of a padded text is lost. "
            "Merge it, or use LoRA."
        )
    base = _place(config["base_model_name_or_path"])
    weights = load_peft_weights(str(folder), device="cpu")
    saved = {key.removeprefix(_IN_ADAPTER): weight for key, weight in weights.items()}
    heads = [weight.shape[0] for key, weight in saved.items() if key.endswith(_HEADS)]
    model, missing = _load_with_gaps(
        base, auto_class, settings, revision=revision, num_labels=heads[0] if heads else None
    )
    _check_weights_complete(str(folder), missing - saved.keys())
    adapted = adapter_over(model, str(folder))
    if kind == "LORA" and model.dtype == torch.float32 and _merges_exactly(adapted):
        adapted = adapted.merge_and_unload()  # as fast as a plain model
    return adapted, {"adapter": fingerprint(folder), "base": _identity(base, revision)}


def _merges_exactly(adapted: Any) -> bool:
    """Tell whether an adapter in float32 may be added to the weights of its base without changing what it says.

    It may not where two layers share those weights: embeddings that are tied to the output, and layers used twice.
    """
    from peft.tuners.tuners_utils import BaseTunerLayer

    lora, inner = adapted.peft_config["default"], adapted.get_base_model()
    if getattr(lora, "layer_replication", None) or getattr(lora, "alora_invocation_tokens", None):
        return False
    ends = (inner.get_input_embeddings(), inner.get_output_embeddings())
    return not any(isinstance(end, BaseTunerLayer) for end in ends)


def _load_with_gaps(
    place: Path | str, auto_class: str, settings: ModelSettings, *, revision: str | None, num_labels: int | None
) -> tuple[Any, set[str]]:
    """Return the model and the names of the weights that its files did not hold."""
    options: dict[str, Any] = {"revision": revision} if revision else {}
    if num_labels is not None:
        options["num_labels"] = num_labels
    model, report = from_pretrained(
        auto_class,
        str(place),
        dtype=settings.dtype,
        trust_remote_code=settings.trust_remote_code,
        output_loading_info=True,
        **options,
    )
    return model, set(report["missing_keys"]) | {key[0] for key in report["mismatched_keys"]}


def _check_weights_complete(source: str, missing: set[str]) -> None:
    if missing:
        names = ", ".join(sorted(missing)[:3]) + (", …" if len(missing) > 3 else "")
        raise UsageError(
            f"{source}: {names} is not among the saved weights and would start at random, so its scores would mean "
            "nothing. Give a trained reward model; an adapter must be saved with modules_to_save=['score']."
        )


def _load_tokenizer(place: Path | str, settings: ModelSettings) -> Any:
    revision = settings.revision
    if isinstance(place, Path) and not (place / "tokenizer_config.json").is_file():
        if not (place / "adapter_config.json").is_file():
            raise UsageError(f"{place} holds no tokenizer (tokenizer_config.json). Save it beside the model.")
        config = adapter_config(place)
        place, revision = _place(config["base_model_name_or_path"]), config.get("revision")
    options = {"revision": revision} if revision else {}
    return from_pretrained("AutoTokenizer", str(place), trust_remote_code=settings.trust_remote_code, **options)


def _identity(place: Path | str, revision: str | None) -> dict[str, Json]:
    """Return what tells these weights from others: their fingerprint, or their commit on the hub."""
    if isinstance(place, Path):
        return {"weights": fingerprint(place)}
    from huggingface_hub import try_to_load_from_cache

    # The hub's cache keeps each commit in a folder of its name.
    config = try_to_load_from_cache(place, "config.json", revision=revision)
    if not isinstance(config, str):
        raise UsageError(f"{place}: its commit is not known. Download the model to a folder and give that.")
    return {"hub": place, "commit": Path(config).parent.name}


def _pick_device(name: str) -> Any:
    import torch

    if name != "auto":
        try:
            device = torch.device(name)
        except RuntimeError as error:
            raise UsageError(f"device={name} is not known. Use cpu, cuda, cuda:1 or mps.") from error
        if (device.type == "cuda" and not torch.cuda.is_available()) or (
            device.type == "mps" and not torch.backends.mps.is_available()
        ):
            raise UsageError(f"device={name} is not there. Use device=cpu, or leave it out.")
        return device
    if torch.cuda.is_available():
        return torch.device("cuda")
    return torch.device("mps" if torch.backends.mps.is_available() else "cpu")


class Scorer:
    """Computes one number per sequence, each distinct sequence once.

    `padded` runs a padded batch. `read` takes the numbers off the hidden states of a pack; `backbone` is the decoder
    that gives those, or `None` where there is no prefix to share, as in encoders, whose tokens see what follows them.
    Whether packing works is tried out on a few inputs, and `note` says why where it does not. Prefixes are only kept
    for later calls where it is known at which token the number is read (`read_at`): the states of a kept prefix are
    gone.
    """

    def __init__(
        self,
        settings: ModelSettings,
        chat: Chat,
        model_config: Any,
        *,
        backbone: Any,
        padded: Forward,
        read: "ReadPack[float]",
        read_at: Callable[[Tokens], int] | None = None,
    ) -> None:
        # Longer texts change the positions of the others in their call, so they go alone.
        self._border = rope_border(model_config.get_text_config())
        self._count = TokenCount()
        self._compute: Callable[[Sequence[Tokens]], list[float | MemoryError]] = lambda sequences: compute_each_once(
            sequences, settings.padded_batch, padded, self._count
        )
        self.tokens = self._count.as_mapping
        self.note = ""
        if backbone is None or not settings.share_prefixes:
            return
        from prbench.backends.shared_prefix.packed import compute_packed, find_runner, find_store

        trial = chat.trial()
        runner, reason = find_runner(backbone, trial, padded, read, compiled=settings.compile)
        if runner is None:
            self.note = f"prefixes are not shared: {reason}"
            return
        budget = runner.budget(settings.batch_size or None)
        kept = None
        if settings.keep_prefixes:
            reason = "where its score is read is not known"
            if read_at is not None:
                kept, reason = find_store(runner, settings.keep_prefixes, trial, read, read_at)
            self.note = "" if kept is not None else f"prompts are not kept between calls: {reason}"
        self._compute = lambda sequences: compute_packed(sequences, budget, runner, read, self._count, kept)

    def scores(self, encoded: Sequence[Tokens | Score]) -> list[Score]:
        """Return one score per input; one that could not be encoded keeps the score that says why."""
        sequences = [each for each in encoded if isinstance(each, Tokens)]
        short = [each for each in sequences if self._border is None or len(each.ids) <= self._border]
        found = dict(zip(short, self._compute(short), strict=True)) if short else {}
        for each in sequences:
            if each not in found:
                (found[each],) = self._compute([each])
        return [as_score(found[each]) if isinstance(each, Tokens) else each for each in encoded]
