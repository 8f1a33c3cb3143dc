"""How to run a model, whatever its kind; the command line fills this from its flags."""

from dataclasses import dataclass
from pathlib import Path

AUTO = 0  # as a batch size: as much as the memory holds
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

    @property
    def padded_batch(self) -> int:
        """Return how many sequences a padded forward pass takes."""
        return self.batch_size or PADDED
