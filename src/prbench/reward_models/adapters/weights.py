"""Reads the weights of a head by their published names."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from prbench.errors import UsageError

# As transformers writes them; the first that is there is read.
_FILES = ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin", "pytorch_model.bin.index.json")


class HeadWeights:
    """The weights of a checkpoint whose names begin with one of `prefixes`, in float32."""

    def __init__(self, source: str, revision: str | None, prefixes: tuple[str, ...]) -> None:
        self._source = source
        self._found: dict[str, Any] = {}
        for path in _shards(source, revision, prefixes):
            self._found.update({name: weight.float() for name, weight in _read(path, prefixes)})

    def take(self, name: str, *shape: int) -> Any:
        """Return one weight; `-1` in the shape stands for any size."""
        weight = self.find(name)
        if weight is None:
            raise UsageError(
                f"{self._source}: {name} is not among the saved weights, so this adapter cannot read its head. Say "
                "?adapter=none for a plain classifier, or give the published files."
            )
        fits = weight.ndim == len(shape) and all(
            want in (-1, size) for want, size in zip(shape, weight.shape, strict=True)
        )
        if not fits:
            raise UsageError(
                f"{self._source}: {name} has the shape {tuple(weight.shape)} and not {shape}, so its head is not the "
                "one that this adapter reads. Say ?adapter=none for a plain classifier."
            )
        return weight

    def find(self, name: str) -> Any:
        """Return one weight, or `None` where it was not saved."""
        return self._found.get(name)

    def indices(self, prefix: str) -> list[int]:
        """Return the numbers that follow `prefix` in the names, in order: the layers of a stack."""
        parts = {name.removeprefix(prefix).partition(".")[0] for name in self._found if name.startswith(prefix)}
        return sorted(int(part) for part in parts if part.isdecimal())


def _shards(source: str, revision: str | None, prefixes: tuple[str, ...]) -> list[Path]:
    for name in _FILES:
        path = _file(source, revision, name)
        if path is None:
            continue
        if path.suffix != ".json":
            return [path]
        placed: Mapping[str, str] = json.loads(path.read_text(encoding="utf-8"))["weight_map"]
        shards = sorted({shard for weight, shard in placed.items() if weight.startswith(prefixes)})
        found = {shard: _file(source, revision, shard) for shard in shards}
        missing = [shard for shard, file in found.items() if file is None]
        if missing:
            raise UsageError(f"{source}: {missing[0]}, which {name} names, is not there. Get the file.")
        return [file for file in found.values() if file is not None]
    raise UsageError(f"{source} holds no weights ({', '.join(_FILES[::2])}). Check that its files are complete.")


def _file(source: str, revision: str | None, name: str) -> Path | None:
    """Return a file of a folder, or of the hub's cache, into which the backbone was just loaded."""
    from transformers.utils import cached_file

    quiet = {"_raise_exceptions_for_missing_entries": False, "_raise_exceptions_for_connection_errors": False}
    found = cached_file(source, name, revision=revision, **quiet)
    return None if found is None else Path(found)


def _read(path: Path, prefixes: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    if path.suffix == ".safetensors":
        from safetensors import safe_open

        with safe_open(str(path), framework="pt") as file:
            yield from ((name, file.get_tensor(name)) for name in file.keys() if name.startswith(prefixes))  # noqa: SIM118
    else:
        import torch

        saved = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
        yield from ((name, weight) for name, weight in saved.items() if name.startswith(prefixes))
