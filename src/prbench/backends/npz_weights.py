"""The arrays of a trained model, in .npz files, and the encoder whose vectors they are for.

A file is there whole or not at all, and one that cannot be read gives one line. `encoder.json` beside it names the
encoder that the arrays were trained on: numbers of the right size from another one would give scores without a sense.
"""

import json
import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from hashlib import sha256
from pathlib import Path
from typing import Any, Self
from zipfile import BadZipFile

import numpy as np
from numpy.lib.npyio import NpzFile
from numpy.typing import NDArray

from prbench.backends.encoders import Doubles, Encoder, load_encoder
from prbench.errors import UsageError
from prbench.runs.files import read_json, replacing, write_json
from prbench.schema import Json

ENCODER = "encoder.json"
_DAMAGED = (OSError, ValueError, KeyError, EOFError, BadZipFile, NotImplementedError, struct.error, zlib.error)


@dataclass(frozen=True, kw_only=True)
class NpzRecord:
    """The weights of one model: a field for each array (or text) of the file `FILE` in the model's folder."""

    FILE = ""  # without a type, so that it is no field

    @property
    def arrays(self) -> dict[str, NDArray[Any]]:
        """The arrays by name, in the order of the fields; texts are left out."""
        found = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: array for name, array in found.items() if not isinstance(array, str)}

    @property
    def hash(self) -> str:
        """Twelve digits that change with any number of the arrays."""
        return sha256(b"".join(array.tobytes() for array in self.arrays.values())).hexdigest()[:12]

    def save(self, folder: Path) -> None:
        """Write the file; a reader never sees half of it."""
        write_arrays(folder / self.FILE, {field.name: getattr(self, field.name) for field in fields(self)})

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Read the file; one without an array that the record has a field for is refused."""
        path = folder / cls.FILE
        arrays = read_arrays(path)
        names = [field.name for field in fields(cls)]
        missing = sorted(set(names) - set(arrays))
        if missing:
            raise UsageError(f"{path}: has no {missing[0]!r}, so it is no model of ours. Train it again.")
        return cls(**{name: arrays[name] if arrays[name].dtype.kind != "U" else str(arrays[name]) for name in names})


def write_arrays(path: Path, arrays: Mapping[str, Any]) -> None:
    """Write arrays by name; a reader never sees half of them."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as scratch, scratch.open("wb") as file:
        np.savez(file, **arrays)


def read_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """Return all arrays of a file by name."""
    if not path.is_file():
        if not path.parent.is_dir():
            raise UsageError(f"{path.parent}: there is no such folder. Give one that `prbench train` wrote.")
        raise UsageError(f"{path.parent}: there is no {path.name} in that folder. Was it trained by another method?")
    try:
        opened = np.load(path, allow_pickle=False)
        if not isinstance(opened, NpzFile):
            raise ValueError("one array without a name")
        with opened:
            return {name: opened[name] for name in opened.files}
    except _DAMAGED as error:
        raise UsageError(f"{path}: is damaged, or no file of ours. Train the model again.") from error


def embed(encoder: Encoder, texts: Sequence[str], size: int, *, model: str) -> Doubles:
    """Return the vectors of texts, (texts, size), in float64."""
    vectors: Doubles = encoder.encode(texts).astype(np.float64)
    check_size(vectors, size, encoder, model=model)
    return vectors


def check_size(vectors: Doubles, size: int, encoder: Encoder, *, model: str) -> None:
    """Refuse vectors of another size than a model was trained on."""
    if vectors.shape[1] != size:
        raise UsageError(
            f"{model} was trained on embeddings of {size} numbers, and {encoder.name} gives {vectors.shape[1]}. "
            "Use the encoder that it was trained on."
        )


def keep_encoder(folder: Path, identity: Mapping[str, Json]) -> None:
    """Record the encoder that the weights in a folder were trained on."""
    name = str(identity["name"])
    # A folder is named so that it is found from anywhere.
    name = str(Path(name).resolve()) if Path(name).is_dir() else name
    write_json(folder / ENCODER, {"name": name, "digest": _digest(identity)})


def keep_own_encoder(folder: Path, inside: str) -> None:
    """Record that the encoder lies in the folder itself, at the path `inside`."""
    write_json(folder / ENCODER, {"inside": inside})


def open_encoder(folder: Path, asked: str | None = None, *, otherwise: str = "minilm") -> Encoder:
    """Load the encoder that the weights in a folder were trained on; if another is asked for, it is refused.

    A folder without a record (of an earlier version, or shipped) takes what is asked for, or `otherwise`.
    """
    if not (folder / ENCODER).is_file():
        return load_encoder(asked or otherwise)
    kept = read_json(folder / ENCODER, "model")
    if "inside" in kept:
        own = folder / str(kept["inside"])
        if asked is not None and Path(asked).resolve() != own.resolve():
            raise UsageError(
                f"{folder}: was trained with its own encoder, {own}, not with {asked}. Leave encoder out."
            )
        return load_encoder(asked or str(own))
    if not kept.keys() >= {"name", "digest"}:
        raise UsageError(f"{folder / ENCODER}: names no encoder. Train the model again.")
    encoder = load_encoder(asked or str(kept["name"]))
    given = _digest(encoder.identity)
    if given != kept["digest"]:
        raise UsageError(
            f"{folder}: was trained on the encoder {kept['name']} ({kept['digest']}), and {encoder.name} ({given}) is "
            "another. Use the one that it was trained on, or train again."
        )
    return encoder


def _digest(identity: Mapping[str, Json]) -> str:
    """Twelve digits that change with anything that changes vectors: the name alone does not, a folder may be moved."""
    rest = {name: value for name, value in identity.items() if name != "name"}
    return sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()[:12]
