"""GGUF files as plain model folders: dequantised once, into a folder that every Hugging Face loader takes."""

import hashlib
import io
import os
import struct
from collections.abc import Collection, Iterator
from contextlib import contextmanager, redirect_stderr
from pathlib import Path
from typing import Any

from prbench.backends.packaged_weights import smollm2_gguf
from prbench.backends.pretrained import from_pretrained
from prbench.backends.quiet_loading import quiet_loading
from prbench.errors import UsageError
from prbench.runs.files import replacing

SMOLLM2 = "smollm2"  # the packaged GGUF, wherever a model's folder is asked for
RULE = 2  # of writing such a folder: one that another rule wrote is not used
_NOT_OURS = ("quantization_config", "_name_or_path")  # of a GGUF's config


def smollm2_folder() -> Path:
    """The folder of the packaged SmolLM2-135M-Instruct, made at the first call."""
    return dequantised(smollm2_gguf())


def cache_folder() -> Path:
    """Where dequantised models are kept: `prbench/backbones` in the user's cache."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "prbench" / "backbones"


def dequantised(gguf: Path) -> Path:
    """Return the folder of the file's weights in float32, made at the first call; there whole or not at all."""
    with gguf.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    folder = cache_folder() / f"{gguf.stem}-{digest[:12]}-{RULE}"
    if (folder / "config.json").is_file():
        return folder
    with replacing(folder) as scratch:
        _write_dequantised(gguf, scratch)
    return folder


def _write_dequantised(gguf: Path, folder: Path) -> None:
    import torch
    import transformers

    source: dict[str, Any] = {"gguf_file": gguf.name}
    if hasattr(transformers, "GgufConfig"):  # releases that could leave the weights in their blocks
        source["quantization_config"] = transformers.GgufConfig(gguf_file=gguf.name, dequantize=True)
    bars = io.StringIO()  # the reader's bar asks nobody whether to show itself
    with one_line_errors(str(gguf)), quiet_loading(), redirect_stderr(bars):
        tokenizer = from_pretrained("AutoTokenizer", str(gguf.parent), gguf_file=gguf.name)
        read = from_pretrained("AutoModelForCausalLM", str(gguf.parent), dtype=torch.float32, **source)
    # What was read still calls itself quantised and would not be saved: its numbers go into a model that never was.
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
def one_line_errors(name: str) -> Iterator[None]:
    """Turn what the libraries raise for a backbone that cannot be had into one line."""
    known: tuple[type[Exception], ...] = (OSError, ValueError, RuntimeError, ImportError, KeyError, struct.error)
    try:
        yield
    except known + _of_damaged_weights() as error:
        fact = " ".join(str(error).split())[:300].rstrip(".")
        raise UsageError(f"--backbone {name} cannot be loaded: {fact}. Give smollm2, a folder or a hub id.") from error


def _of_damaged_weights() -> tuple[type[Exception], ...]:
    """Return what safetensors raises, which is of no kind of Python's own; nothing where it is not installed."""
    try:
        from safetensors import SafetensorError
    except ImportError:
        return ()
    return (SafetensorError,)
