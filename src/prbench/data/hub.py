"""Rows of a dataset on the Hugging Face hub, or of a local folder laid out like one, by `datasets.load_dataset`."""

import logging
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import yaml

from prbench.data.rows import RawRow
from prbench.errors import DataError, UsageError, needs
from prbench.schema import Json

OURS = "prbench"  # the key of a dataset card under which our own facts stand
_HEADER = re.compile(r"---\s*\n(.*?)\n---", re.DOTALL)


def _header(folder: Path) -> str:
    """The YAML at the head of a folder's dataset card, `""` where there is none."""
    card = folder / "README.md"
    found = _HEADER.match(card.read_text(encoding="utf-8", errors="replace")) if card.is_file() else None
    return found[1] if found else ""


def declares_configs(folder: Path) -> bool:
    """Does the folder's dataset card say which files belong to which config?"""
    # Searched, not parsed: a damaged header goes to `datasets`, whose message says what is wrong with it.
    return re.search(r"^configs\s*:", _header(folder), re.MULTILINE) is not None


def judge_of(folder: Path) -> str:
    """Return the judge that the folder's dataset card names, `""` where it names none."""
    try:
        said = yaml.safe_load(_header(folder))
    except yaml.YAMLError:
        return ""  # reading the rows says what is wrong with it
    ours = said.get(OURS) if isinstance(said, dict) else None
    return str(ours.get("judge") or "") if isinstance(ours, dict) else ""


def read_dataset(path: str, subset: str | None, split: str | None, revision: str | None) -> Iterator[RawRow]:
    """Yield the rows of one config, or of all of them, one after the other."""
    datasets = _library(path)
    with _quiet(datasets), _explained(datasets, path):
        for config in _configs(datasets, path, subset, revision):
            chosen = _choose_split(datasets.get_dataset_split_names(path, config, revision=revision), split, path)
            with _explained(datasets, path, place=f"{path} ({config}, {chosen})"):
                yield from _read_config(datasets, path, config, chosen, revision)


def split_names(path: str, subset: str | None, revision: str | None) -> tuple[str, ...]:
    """The splits of one config, or of all of them, in the order in which they are declared."""
    datasets = _library(path)
    with _quiet(datasets), _explained(datasets, path):
        names: dict[str, None] = {}
        for config in _configs(datasets, path, subset, revision):
            names |= dict.fromkeys(datasets.get_dataset_split_names(path, config, revision=revision))
    return tuple(names)


def _library(path: str) -> Json:
    with needs("hf", f"{path}: reading a hub dataset"):
        import datasets
    return datasets


@contextmanager
def _explained(datasets: Json, path: str, *, place: str = "") -> Iterator[None]:
    """Turn the library's errors into one line that names the place."""
    try:
        yield
    except ConnectionError as error:
        raise DataError(
            f"{path}: there is no such file, and the hub cannot be reached. Check the name and the network, "
            "or download the dataset elsewhere and pass its folder."
        ) from error
    except (OSError, ValueError, yaml.YAMLError, datasets.exceptions.DatasetsError) as error:
        fact = " ".join(str(error).split()).rstrip(".") or type(error).__name__
        raise DataError(f"{place or path}: {fact}. Check the name, the files and the card.") from error


def _read_config(datasets: Json, path: str, config: str, split: str, revision: str | None) -> Iterator[RawRow]:
    # `datasets` does not notice that a local file has changed and would serve the rows of an earlier call from its
    # cache. Streaming reads the files themselves; hub files are cached by commit, which is safe.
    is_local = Path(path).is_dir()
    try:
        rows = datasets.load_dataset(path, name=config, split=split, revision=revision, streaming=is_local)
    except StopIteration:  # a file without a single row
        return
    number = 0
    # With several configs, the config is the category of rows that do not say.
    category = config if config != "default" else ""
    try:
        for number, row in enumerate(rows, 1):
            value = {**row, "category": category} if category and row.get("category") is None else row
            yield RawRow(where=f"{path} ({config}, {split}):{number}", value=value)
    except UnicodeDecodeError as error:
        where = f"{path} ({config}, {split}):{number + 1}"
        fact = "row: holds text that is not UTF-8. Save the file as UTF-8, or pass the file itself to see the line"
        raise DataError(f"{where}: {fact}.") from error


def _configs(datasets: Json, path: str, subset: str | None, revision: str | None) -> Sequence[str]:
    names: list[str] = datasets.get_dataset_config_names(path, revision=revision)
    if subset is None:
        return names
    if subset not in names:
        raise UsageError(f"{path}: has no subset {subset!r}. It has: {', '.join(names)}.")
    return [subset]


def _choose_split(names: Sequence[str], split: str | None, path: str) -> str:
    if split is None:
        if "test" in names:
            return "test"
        if len(names) == 1:
            return names[0]
        raise UsageError(f"{path}: has the splits {', '.join(names)}. Choose one with --split.")
    if split not in names:
        raise UsageError(f"{path}: has no split {split!r}. It has: {', '.join(names)}.")
    return split


@contextmanager
def _quiet(datasets: Json) -> Iterator[None]:
    """Keep the library's own progress bars and retry notes off the terminal."""
    logger = logging.getLogger("huggingface_hub")
    level, shows_bars = logger.level, not datasets.are_progress_bars_disabled()
    logger.setLevel(logging.ERROR)
    datasets.disable_progress_bars()
    try:
        yield
    finally:
        logger.setLevel(level)
        if shows_bars:
            datasets.enable_progress_bars()
