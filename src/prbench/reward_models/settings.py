"""How to run a model, whatever its kind; the command line fills this from its flags."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class ModelSettings:
    """What the flags say about the model; an option in the spec (`?key=value`) overrides its field."""

    batch_size: int = 16
    max_length: int | None = None  # tokens; `None`: the model's own limit
    dtype: str = "auto"  # auto (as saved), float32, bfloat16 or float16
    chat_template: Path | None = None  # a Jinja file in place of the tokenizer's own
    trust_remote_code: bool = False
    revision: str | None = None
    seed: int = 0
    template: str | Path | None = None  # a prompt template in place of the kind's own
    cache: Path | None = None  # replies of language models, for `judge` and `rating`
