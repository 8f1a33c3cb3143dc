"""The one door for models of others: what `transformers` and `peft` load, without running the code that comes with it.

Left alone, transformers asks on the terminal whether to run such code, and takes whatever stdin holds for the answer.
"""

import io
import json
import os
import struct
import warnings
from collections.abc import Collection, Iterator
from contextlib import contextmanager, redirect_stderr, suppress
from hashlib import file_digest, sha256
from pathlib import Path
from pickle import UnpicklingError
from textwrap import shorten
from typing import TYPE_CHECKING, Any

from prbench.backends.packaged_weights import smollm2_gguf
from prbench.errors import UsageError
from prbench.runs.files import replacing

if TYPE_CHECKING:
    from torch import Tensor

ADAPTER = "adapter_config.json"
SMOLLM2 = "smollm2"  # the packaged GGUF, wherever a model's folder is asked for
RULE = 2  # of writing a dequantized folder: one that another rule wrote is not used
_NOT_OURS = ("quantization_config", "_name_or_path")  # of a GGUF's config
_SMALL = 4 * 2**20  # files up to this size are read whole for a fingerprint
_BLOCK = 64 * 2**10
_BLOCKS = 64


def from_pretrained(
    auto_class: str, place: str | Path, *, trust_remote_code: bool | None = None, **options: Any
) -> Any:
    """Return what a class of transformers, e.g. `AutoTokenizer`, loads from a folder or hub id.

    `trust_remote_code` is what the user said, or `None` where no option lets the user say it: then no code is run.
    """
    import transformers

    with _code_refused(place, trust_remote_code):
        loader = getattr(transformers, auto_class)
        return loader.from_pretrained(place, trust_remote_code=trust_remote_code is True, **options)


def adapter_over(base: Any, folder: str, *, learns: bool = False) -> Any:
    """Return the PEFT adapter in a folder over its base. Some kinds load further models, of which nobody knows."""
    from peft import PeftModel

    with _code_refused(folder, None):
        return PeftModel.from_pretrained(base, folder, is_trainable=learns)


@contextmanager
def _code_refused(place: str | Path, trust_remote_code: bool | None) -> Iterator[None]:
    """Let transformers ask nobody, and say in one line that there is code, in a checkpoint or in pickled weights."""
    from transformers import dynamic_module_utils as asking

    patience, asking.TIME_OUT_REMOTE_CODE = asking.TIME_OUT_REMOTE_CODE, 0
    try:
        yield
    except ValueError as error:
        if trust_remote_code or "trust_remote_code" not in str(error):
            raise
        remedy = "To run it, pass --trust-remote-code"
        if trust_remote_code is None:
            remedy = "Give one that works without it"
        raise UsageError(f"{place}: the checkpoint holds code of its own, which was not run. {remedy}.") from error
    except UnpicklingError as error:
        raise UsageError(
            f"{place}: its weights are a pickle that is damaged or holds more than numbers; it was not run. "
            "Save them as safetensors."
        ) from error
    finally:
        asking.TIME_OUT_REMOTE_CODE = patience


@contextmanager
def quiet_loading() -> Iterator[None]:
    """Silence transformers for a while: what matters in its loading report is an error here."""
    from transformers.utils import logging

    verbosity, shows_bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # peft calls what transformers is about to rename
            yield
    finally:
        logging.set_verbosity(verbosity)
        if shows_bars:
            logging.enable_progress_bar()


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
    return str(adapter_config(Path(place))["base_model_name_or_path"])


def adapter_config(folder: Path) -> dict[str, Any]:
    """Return the configuration of an adapter; one that is damaged or names no base is refused."""
    path = folder / ADAPTER
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        raise UsageError(f"{path}: is not JSON. Restore the file, or train the adapter again.") from None
    if not isinstance(config, dict):
        raise UsageError(f"{path}: is no JSON object. Restore the file, or train the adapter again.")
    if not config.get("base_model_name_or_path"):
        raise UsageError(f"{path}: names no base. Fill in base_model_name_or_path, or train the adapter again.")
    return config


def weights_of(place: str) -> str:
    """Return a hash of a folder's files, and for an adapter of its base's too; "" for a hub id."""
    if not Path(place).is_dir():
        return ""
    own = fingerprint(Path(place))
    if not is_adapter(place):
        return own
    base = base_of(place)
    return f"{own} over {weights_of(base) or base}"


def smollm2_folder() -> Path:
    """The folder of the packaged SmolLM2-135M-Instruct, made at the first call."""
    return dequantized(smollm2_gguf())


def dequantized(gguf: Path) -> Path:
    """Return the folder of the file's weights in float32, made at the first call; there whole or not at all."""
    with gguf.open("rb") as stream:
        digest = file_digest(stream, "sha256").hexdigest()
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "prbench" / "backbones"
    folder = cache / f"{gguf.stem}-{digest[:12]}-{RULE}"
    if (folder / "config.json").is_file():
        return folder
    with replacing(folder) as scratch:
        _write_dequantized(gguf, scratch)
    return folder


def _write_dequantized(gguf: Path, folder: Path) -> None:
    import torch
    import transformers

    source: dict[str, Any] = {"gguf_file": gguf.name}
    if hasattr(transformers, "GgufConfig"):  # releases that could leave the weights in their blocks
        source["quantization_config"] = transformers.GgufConfig(gguf_file=gguf.name, dequantize=True)
    bars = io.StringIO()  # the reader's bar asks nobody whether to show itself
    with one_line_errors(f"--backbone {gguf}"), quiet_loading(), redirect_stderr(bars):
        tokenizer = from_pretrained("AutoTokenizer", str(gguf.parent), gguf_file=gguf.name)
        read = from_pretrained("AutoModelForCausalLM", str(gguf.parent), dtype=torch.float32, **source)
    # What was read still calls itself quantized and would not be saved: its numbers go into a model that never was.
    config = type(read.config).from_dict(
        {key: value for key, value in read.config.to_dict().items() if key not in _NOT_OURS}
    )
    if config.eos_token_id is not None:  # transformers 5.17 takes the first token of a GGUF's tokenizer for its last
        tokenizer.eos_token = tokenizer.convert_ids_to_tokens(config.eos_token_id)
    tokenizer.pad_token = pad_token(config, tokenizer)
    config.pad_token_id = tokenizer.pad_token_id
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32, trust_remote_code=False)
    model.load_state_dict(read.state_dict())
    with quiet_loading():
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)


def pad_token(config: Any, tokenizer: Any, last: Collection[int] = ()) -> str:
    """Return a token that pads and ends no text; `last` are the tokens that are known to end some.

    Decoders read their score at the last token that is not the pad token. Where that is EOS, as GGUF files have it, a
    text that ends in EOS is read one token early.
    """
    ends = {tokenizer.eos_token_id, tokenizer.bos_token_id, None, *last}
    tokens = (tokenizer.pad_token, tokenizer.unk_token, *map(str, tokenizer.added_tokens_decoder.values()))
    ids = [tokenizer.convert_tokens_to_ids(token) for token in tokens if token]
    # Any token will do that is never read: where there is no control token to spare, the first that ends nothing.
    usable = [each for each in (*ids, *range(config.vocab_size)) if each not in ends and 0 <= each < config.vocab_size]
    return str(tokenizer.convert_ids_to_tokens(usable[0]))


@contextmanager
def one_line_errors(what: str, remedy: str = "Give smollm2, a folder or a hub id.") -> Iterator[None]:
    """Turn what the libraries raise for a model that cannot be had into one line: `what`, why, and the remedy."""
    known: tuple[type[Exception], ...] = (OSError, ValueError, RuntimeError, ImportError, KeyError)
    known = (*known, UnpicklingError, struct.error)
    with suppress(ImportError):
        from safetensors import SafetensorError  # of no kind of Python's own

        known = (*known, SafetensorError)
    try:
        yield
    except known as error:
        fact = shorten(str(error) or type(error).__name__, 300, placeholder="…").rstrip(".")
        raise UsageError(f"{what} cannot be loaded: {fact}. {remedy}") from error


def hidden_states(lm: Any, ids: "Tensor") -> "Tensor":
    """Return the last hidden states of rows that are padded on the right, (rows, tokens, hidden).

    There no token that counts can see the padding. So no mask is needed, which attention has its fastest ways without;
    and no row of padding is left with nothing to attend to, whose gradients may be no numbers.
    """
    states: Tensor = lm.get_decoder()(input_ids=ids, use_cache=False).last_hidden_state
    return states


def output_logits(lm: Any, hidden: "Tensor") -> "Tensor":
    """Return logits in the model's own precision, as its forward pass makes them of hidden states."""
    logits: Tensor = lm.get_output_embeddings()(hidden)
    cap = getattr(lm.config.get_text_config(), "final_logit_softcapping", None)
    return logits if cap is None else cap * (logits / cap).tanh()


def logits_of(lm: Any, hidden: "Tensor") -> "Tensor":
    """Return the logits of chosen hidden states, as the model itself would give them out.

    They are float32, whatever the precision of the layers below: log-ratios are small.
    """
    import torch

    config = lm.config.get_text_config()
    with torch.autocast(hidden.device.type, enabled=False):
        head = lm.get_output_embeddings()
        bias = None if head.bias is None else head.bias.float()
        logits = torch.nn.functional.linear(hidden.float(), head.weight.float(), bias)
        # Some families scale or cap what the output embedding says.
        if scale := getattr(config, "logit_scale", None):  # Cohere
            logits = logits * scale
        if divisor := getattr(config, "logits_scaling", None):  # Granite
            logits = logits / divisor
        if cap := getattr(config, "final_logit_softcapping", None):  # Gemma 2
            logits = torch.tanh(logits / cap) * cap
    return logits


def fingerprint(folder: Path) -> str:
    """Return a hash of the folder's files, 16 hex digits.

    Small files count whole. Of large ones (weights) the size and 64 evenly spaced blocks count, the first and the last
    among them: training moves every block, and reading all of a large model would take minutes.
    """
    total = sha256()
    for path in sorted(folder.rglob("*")):
        inside = path.relative_to(folder)
        # Checkpoints on the way, logs and caches: no loader reads them.
        if path.is_file() and not any(
            part == "runs" or part.startswith(("checkpoint-", ".")) for part in inside.parts
        ):
            size = path.stat().st_size
            content = sha256(f"{size}:".encode())
            with path.open("rb") as file:
                if size <= _SMALL:
                    content.update(file.read())
                else:
                    for block in range(_BLOCKS):
                        file.seek((size - _BLOCK) * block // (_BLOCKS - 1))
                        content.update(file.read(_BLOCK))
            total.update(f"{inside.as_posix()}:{content.hexdigest()}\n".encode())
    return total.hexdigest()[:16]
