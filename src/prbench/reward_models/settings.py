"""How to run a model, whatever its kind; the command line fills this from its flags."""

from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Annotated, Literal

from prbench.specs import AtLeast, option

AUTO = 0  # as a batch size: as much as the memory holds
DTYPES = ("auto", "float32", "bfloat16", "float16")
PADDED = 16  # sequences in a padded forward pass, unless a batch size is given


@dataclass(frozen=True, kw_only=True)
class ModelSettings:
    """What the flags say about the model; an option in the spec (`?key=value`) overrides its field."""

    batch_size: int = AUTO  # sequences in one forward pass
    max_length: int | None = None  # tokens; `None`: the model's own limit
    dtype: str = "auto"  # auto (as saved), float32, bfloat16 or float16
    chat_template: Path | None = None  # a Jinja file in place of the tokenizer's own
    trust_remote_code: bool = False
    revision: str | None = None
    seed: int = 0
    template: str | Path | None = None  # a prompt template in place of the kind's own
    cache: Path | None = None  # replies of language models, for `judge` and `rating`
    share_prefixes: bool = True  # compute what inputs have in common once; `False`: padded batches
    keep_prefixes: int = 0  # bytes of keys and values to keep for later calls; for servers
    compile: bool = False  # run decoders through torch.compile
    is_disturbed: bool = False  # by `noise=` or `fail=`, which draw by the seed whatever the model does with it

    @property
    def padded_batch(self) -> int:
        """Return how many sequences a padded forward pass takes."""
        return self.batch_size or PADDED


@dataclass(frozen=True, kw_only=True)
class HfOptions:
    """Options of every kind that runs a Hugging Face model. All but `device` and `bos` stand for a setting."""

    batch_size: Annotated[int, AtLeast(1)] | Literal["auto"] | None = option(None, "sequences in a forward pass")
    max_length: Annotated[int, AtLeast(1)] | None = option(None, "window in tokens; posts beyond it are dropped")
    dtype: str | None = option(None, "auto, float32, bfloat16 or float16")
    chat_template: Path | None = option(None, "Jinja file in place of the tokenizer's own")
    trust_remote_code: bool | None = option(None, "run code that comes with the model")
    revision: str | None = option(None, "of the hub")
    template: str | None = option(None, "prompt template in place of the kind's own")
    share_prefixes: bool | None = option(None, "compute what inputs have in common once")
    compile: bool | None = option(None, "run decoders through torch.compile")
    device: str = option("auto", "auto, cpu, cuda, mps")
    bos: Literal["one", "none"] = option("one", "whether a text begins with the tokenizer's first token")


@dataclass(frozen=True, kw_only=True)
class EncoderOptions:
    """Options of a model that reads with a sentence encoder."""

    encoder: str | None = option(None, "folder or hub id; default: the one that it was trained on")


def override(settings: ModelSettings, options: object) -> ModelSettings:
    """Return the settings with the options of one model put in, where they are given and mean the same."""
    changes: dict[str, object] = {}
    for its in fields(ModelSettings):
        value = getattr(options, its.name, None)
        if value is not None and its.name != "cache":  # that of a spec is a file of summaries
            changes[its.name] = AUTO if value == "auto" and its.name == "batch_size" else value
    return replace(settings, **changes)  # type: ignore[arg-type]
