"""The one door for models of others: what `transformers` and `peft` load, without running the code that comes with it.

Left alone, transformers asks on the terminal whether to run such code, and takes whatever stdin holds for the answer.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

from prbench.errors import UsageError


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
