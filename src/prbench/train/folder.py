"""The folder of a trained model: what was asked, how far it got, what came out.

`training.json` says which method, settings and rows the folder is for, so that the same command goes on and another
one is refused. `checkpoint.pt` is the last finished epoch; it is removed at the end. `trained.json` is what the method
reported, `card.json` the model card for machines and `README.md` the one for people. The weights beside them are what
`--model` reads.
"""

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

from prbench.errors import RunError
from prbench.folders import LOCK, read_json, take_lock, write_json
from prbench.schema import NOTHING, Json
from prbench.train.data import TrainingData

TRAINING, CHECKPOINT, TRAINED = "training.json", "checkpoint.pt", "trained.json"
CARD, README = "card.json", "README.md"
_HERE = "{folder}"  # stands for the folder in a stored spec, so that the folder may be moved

Progress = Callable[[int, int, str], None]  # steps done, of steps, e.g. "validation 81.4 %"
Config = Any  # a frozen dataclass of plain values with a `seed`


def silent(done: int, total: int, text: str) -> None:
    """Show no progress."""


@dataclass(frozen=True, kw_only=True)
class Trained:
    """What a method leaves behind, beside its files."""

    spec: str  # what `--model` takes, e.g. `head:DIR`
    context: str = "profile"  # the context it was trained for
    shots: int = 0  # labelled pairs of the same user that it was trained to read
    facts: Mapping[str, Json] = field(default_factory=lambda: NOTHING)  # for the card: rows, epochs, seconds, …


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """One file that holds all that training needs to go on exactly; `key` ties it to settings and rows."""

    path: Path
    key: str

    def load(self) -> dict[str, Any] | None:
        """Return the last state, or nothing where there is none; one of other settings or rows is refused."""
        import torch

        if not self.path.exists():
            return None
        try:
            state: dict[str, Any] = torch.load(self.path, weights_only=True)
        except (RuntimeError, ValueError, EOFError, UnpicklingError) as error:
            raise RunError(f"{self.path}: is damaged, or no checkpoint of ours. Remove it to start over.") from error
        if state["key"] != self.key:
            raise RunError(f"{self.path}: is of other settings or rows. Use another --out, or --fresh.")
        return state

    def save(self, state: Mapping[str, Any]) -> None:
        """Write a state, whole or not at all."""
        import torch

        self.path.parent.mkdir(parents=True, exist_ok=True)
        scratch = self.path.with_name(f"{self.path.name}.{os.getpid()}.tmp")
        torch.save({**state, "key": self.key}, scratch)
        scratch.replace(self.path)


def checkpoint_in(folder: Path, config: Config, data: TrainingData, name: str = CHECKPOINT) -> Checkpoint:
    """Return the place of a method's checkpoint; a method with several parts gives each a name."""
    return Checkpoint(path=folder / name, key=training_key(config, data))


def training_key(config: Config, data: TrainingData) -> str:
    """Return a hash of all that decides the final weights."""
    text = json.dumps([type(config).__name__, asdict(config), data.digest], sort_keys=True)
    return sha256(text.encode()).hexdigest()[:16]


@contextmanager
def claimed(
    folder: Path, method: str, config: Config, data: TrainingData, *, fresh: bool = False
) -> Iterator[Trained | None]:
    """Lock the folder for this training, and give what it came to if it had ended before.

    A folder that holds another training is refused.
    """
    asked = {
        "method": method,
        "config": asdict(config),
        "data": {"name": data.name, "digest": data.digest},
        "key": training_key(config, data),
    }
    folder.mkdir(parents=True, exist_ok=True)
    with take_lock(folder, "model"):
        if fresh and (folder / TRAINING).exists():
            start_over(folder)
        elif (folder / TRAINING).exists():
            _refuse_other(folder, asked)
        else:
            _refuse_foreign(folder)
        write_json(folder / TRAINING, asked)
        yield read_trained(folder) if (folder / TRAINED).exists() else None


def start_over(folder: Path) -> None:
    """Forget what was trained here; the method writes its weights anew."""
    for name in (TRAINING, TRAINED, CARD, README):
        (folder / name).unlink(missing_ok=True)
    drop_checkpoints(folder)


def drop_checkpoints(folder: Path) -> None:
    """Remove what only an unfinished training needs."""
    for path in folder.glob("checkpoint*.pt*"):
        path.unlink()


def write_trained(folder: Path, trained: Trained) -> None:
    """Keep what a method reported."""
    spec = trained.spec.replace(str(folder), _HERE)
    kept = {"spec": spec, "context": trained.context, "shots": trained.shots, "facts": dict(trained.facts)}
    write_json(folder / TRAINED, kept)


def read_trained(folder: Path) -> Trained:
    """Return what a method reported, with its spec pointing to where the folder is now."""
    kept = read_json(folder / TRAINED, "model")
    spec = kept["spec"].replace(_HERE, str(folder))
    return Trained(spec=spec, context=kept["context"], shots=kept["shots"], facts=kept["facts"])


def _refuse_foreign(folder: Path) -> None:
    """Write into an empty folder only: a name that was mistyped must not scatter files over somebody's work."""
    foreign = sorted(path.name for path in folder.iterdir() if not path.name.startswith((LOCK, TRAINING)))
    if foreign:
        raise RunError(f"{folder}: holds {foreign[0]!r} and no training of ours. Use an empty folder for --out.")


def _refuse_other(folder: Path, asked: Mapping[str, Json]) -> None:
    there = read_json(folder / TRAINING, "model")
    if there.get("key") == asked["key"] and there.get("method") == asked["method"]:
        return
    raise RunError(f"{folder}: is for {_difference(there, asked)}. Use another --out, or --fresh to start over.")


def _difference(there: Mapping[str, Json], asked: Mapping[str, Json]) -> str:
    if there.get("method") != asked["method"]:
        return f"method {there.get('method')}"
    before, now = there.get("config", {}), asked["config"]
    changed = [f"{name}={before[name]}" for name in sorted(before) if name in now and before[name] != now[name]]
    return ", ".join(changed) or f"other rows ({there.get('data', {}).get('name')})"
