"""The folder of a trained model: what was asked, how far it got, what came out.

`training.json` says which method, settings and rows the folder is for, so that the same command goes on and another
one is refused. `checkpoint.pt` is the last finished epoch; it is removed at the end. `trained.json` is what the method
reported, `card.json` the model card for machines and `README.md` the one for people. The weights beside them are what
`--model` reads, and `encoder.json` names the encoder that they need, where they need one.

`--fresh` trains beside a finished model, in a hidden folder within, and puts the new one in its place at the end.
"""

import json
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

from prbench.arrays import ENCODER, keep_encoder, keep_own_encoder
from prbench.causal_models import weights_of
from prbench.errors import RunError
from prbench.folders import LOCK, read_json, replacing, take_lock, write_json
from prbench.reward_models.folder_spec import SpecParts, take_apart
from prbench.schema import NOTHING, Json
from prbench.train.data import TrainingData

TRAINING, CHECKPOINT, TRAINED = "training.json", "checkpoint.pt", "trained.json"
CARD, README = "card.json", "README.md"
TRAINER = ".trainer"  # checkpoints of a trainer that keeps its own; hidden, so that no fingerprint counts them
_NEW = ".fresh"  # a training that is to take the place of a finished one
_HERE = "{folder}"  # stands for the folder in specs that earlier versions stored
# Weights that methods write; a training that was killed, or of an earlier version, has kept no list of its files.
_ARRAYS = ("criteria", "fewshot", "head", "match", "planner", "summary")
_KNOWN = (*(f"{name}.npz" for name in _ARRAYS), "bank.json", "blend.json", "scorer.json", "summaries.jsonl")

Progress = Callable[[int, int, str], None]  # steps done, of steps, e.g. "validation 81.4 %"
Config = Any  # a frozen dataclass of plain values with a `seed`


def silent(done: int, total: int, text: str) -> None:
    """Show no progress."""


@dataclass(frozen=True, kw_only=True)
class Trained:
    """What a method leaves behind, beside its files."""

    spec: str  # what `--model` takes, e.g. `head:DIR`; of a policy, what `--policy` takes
    context: str = "profile"  # the context it was trained for
    shots: int = 0  # labelled pairs of the same user that it was trained to read
    is_policy: bool = False  # it writes answers and scores none
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
        try:
            with replacing(self.path) as scratch:
                torch.save({**state, "key": self.key}, scratch)
        except RuntimeError as error:  # what torch makes of a write that fails
            message = (
                f"{self.path}: cannot be written. Is the disk full? The same command goes on from the last epoch."
            )
            raise RunError(message) from error


def home_of(place: Path) -> Path:
    """Return where a model that is trained in `place` will lie in the end."""
    return place.parent if place.name == _NEW else place


def checkpoint_in(folder: Path, config: Config, data: TrainingData, name: str = CHECKPOINT) -> Checkpoint:
    """Return the place of a method's checkpoint; a method with several parts gives each a name."""
    return Checkpoint(path=folder / name, key=training_key(config, data))


def training_key(config: Config, data: TrainingData) -> str:
    """Return a hash of all that decides the final weights."""
    content = [type(config).__name__, asdict(config), data.digest]
    if start := weights_named_by(config):
        content.append(start)
    return sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


def weights_named_by(config: Config) -> dict[str, str]:
    """Return hashes of the folders that settings name: trained anew, a backbone at the same path is another one."""
    named = {name: value for name, value in asdict(config).items() if isinstance(value, str) and value}
    folders = {name: str(Path(value).expanduser()) for name, value in named.items()}
    return {name: weights_of(folder) for name, folder in folders.items() if Path(folder).is_dir()}


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A folder that is locked for one training."""

    folder: Path
    place: Path  # where to train: the folder, or one within it where a finished model stays until the end
    done: Trained | None  # what the training came to, if it had ended before
    before: frozenset[str]  # files that were there

    def finish(self, trained: Trained) -> Trained:
        """Keep what a method reported, and return it as it is read back."""
        _keep_encoder(self.place, trained)
        write_trained(self.place, trained, sorted(_files(self.place) - self.before))
        drop_checkpoints(self.place)
        if self.place != self.folder:
            _take_place(self.place, self.folder)
        return read_trained(self.folder)


@contextmanager
def claimed(folder: Path, method: str, config: Config, data: TrainingData, *, fresh: bool = False) -> Iterator[Claim]:
    """Lock the folder for this training; a folder that holds another one is refused.

    A fresh training that fails with nothing to go on from is forgotten.
    """
    asked = {
        "method": method,
        "config": asdict(config),
        "data": {"name": data.name, "digest": data.digest},
        "weights": weights_named_by(config),
        "key": training_key(config, data),
    }
    folder.mkdir(parents=True, exist_ok=True)
    with take_lock(folder, "model"):
        place = _place(folder, asked, fresh=fresh)
        write_json(place / TRAINING, asked)
        done = read_trained(place) if (place / TRAINED).exists() else None
        try:
            yield Claim(folder=folder, place=place, done=done, before=_files(place))
        except BaseException:
            if place != folder and not any(place.glob("checkpoint*.pt")) and not (place / TRAINED).exists():
                shutil.rmtree(place, ignore_errors=True)
            raise


def _place(folder: Path, asked: Mapping[str, Json], *, fresh: bool) -> Path:
    """Return where to train; what must not be trained over is refused."""
    new = folder / _NEW
    if (new / TRAINED).exists():  # it was killed while it took the place of the former one
        _take_place(new, folder)
    if not (folder / TRAINING).exists():
        _refuse_foreign(folder)
        return folder
    if not fresh:
        if (new / TRAINING).exists() and _is_for(read_json(new / TRAINING, "model"), asked):
            return new
        _refuse_other(folder, asked)
        return folder
    if (folder / TRAINED).exists():
        shutil.rmtree(new, ignore_errors=True)
        new.mkdir()
        return new
    _remove(folder, _written(folder))
    drop_checkpoints(folder)
    return folder


def _take_place(new: Path, folder: Path) -> None:
    """Put a finished training in the place of the former one; killed half-way and called again, it goes on."""
    files = read_json(new / TRAINED, "model")["files"]
    _remove(folder, _written(folder) - set(files))
    for name in (*files, TRAINING, TRAINED):  # the last one ends it
        if (new / name).exists():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (new / name).replace(folder / name)
    shutil.rmtree(new)


def _written(folder: Path) -> set[str]:
    """Return the files that a training wrote into a folder, weights and card; other files are not ours to remove."""
    try:
        listed = read_json(folder / TRAINED, "model")["files"]
    except (RunError, KeyError):  # unfinished, damaged, or of an earlier version
        listed = []
    inside = (name for name in listed if not Path(name).is_absolute() and ".." not in Path(name).parts)
    return {CARD, README, ENCODER, *_KNOWN, *inside}


def _remove(folder: Path, names: Iterable[str]) -> None:
    """Remove files, and the folders that are left empty."""
    for name in names:
        (folder / name).unlink(missing_ok=True)
        for parent in (folder / name).relative_to(folder).parents[:-1]:
            if (folder / parent).is_dir() and not any((folder / parent).iterdir()):
                (folder / parent).rmdir()


def _files(folder: Path) -> frozenset[str]:
    """Return the files in a folder, but for those that this module keeps itself."""
    found = (path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    own = (LOCK, TRAINING, TRAINED, CARD, README)
    return frozenset(
        path.as_posix()
        for path in found
        if path.parts[0] not in (*own, _NEW, TRAINER) and not path.match("checkpoint*.pt*")
    )


def drop_checkpoints(folder: Path) -> None:
    """Remove what only an unfinished training needs."""
    for path in folder.glob("checkpoint*.pt*"):
        path.unlink()
    shutil.rmtree(folder / TRAINER, ignore_errors=True)


def _keep_encoder(folder: Path, trained: Trained) -> None:
    """Record the encoder that the weights need: the one in the folder, or else the one that the method reports."""
    own, reported = take_apart(trained.spec, folder).inside.get("encoder"), trained.facts.get("encoder")
    if own is not None:
        keep_own_encoder(folder, own)
    elif isinstance(reported, Mapping):
        keep_encoder(folder, reported)


def write_trained(folder: Path, trained: Trained, files: Sequence[str] = ()) -> None:
    """Keep what a method reported, and which files it wrote."""
    parts = take_apart(trained.spec, folder)
    reported = {name: getattr(trained, name) for name in ("context", "shots", "is_policy")}
    reported["facts"] = dict(trained.facts)
    write_json(folder / TRAINED, {**asdict(parts), **reported, "files": list(files)})


def read_trained(folder: Path) -> Trained:
    """Return what a method reported, with its spec pointing to where the folder is now."""
    kept = read_json(folder / TRAINED, "model")
    if "kind" in kept:
        spec = SpecParts(kind=kept["kind"], options=kept["options"], inside=kept["inside"]).at(folder)
    else:
        spec = kept["spec"].replace(_HERE, str(folder))
    is_policy = kept.get("is_policy", False)  # earlier versions trained none
    return Trained(spec=spec, context=kept["context"], shots=kept["shots"], is_policy=is_policy, facts=kept["facts"])


def _refuse_foreign(folder: Path) -> None:
    """Write into an empty folder only: a name that was mistyped must not scatter files over somebody's work."""
    foreign = sorted(path.name for path in folder.iterdir() if not path.name.startswith((LOCK, TRAINING)))
    if foreign:
        raise RunError(f"{folder}: holds {foreign[0]!r} and no training of ours. Use an empty folder for --out.")


def _refuse_other(folder: Path, asked: Mapping[str, Json]) -> None:
    there = read_json(folder / TRAINING, "model")
    if not _is_for(there, asked):
        raise RunError(f"{folder}: is for {_difference(there, asked)}. Use another --out, or --fresh to start over.")


def _is_for(there: Mapping[str, Json], asked: Mapping[str, Json]) -> bool:
    return bool(there.get("key") == asked["key"] and there.get("method") == asked["method"])


def _difference(there: Mapping[str, Json], asked: Mapping[str, Json]) -> str:
    if there.get("method") != asked["method"]:
        return f"method {there.get('method')}"
    before, now = there.get("config", {}), asked["config"]
    changed = [f"{name}={before[name]}" for name in sorted(before) if name in now and before[name] != now[name]]
    changed += [f"another version of prbench, without or with {name}" for name in sorted(set(before) ^ set(now))]
    weights = there.get("weights", {})
    changed += [f"other weights in {now[name]}" for name, own in asked["weights"].items() if weights.get(name) != own]
    return ", ".join(changed) or f"other rows ({there.get('data', {}).get('name')})"
