"""The folder of a trained model: what was asked, how far it got, what came out.

`manifest.json` says which method, settings and rows the folder is for, so that the same command goes on and another
one is refused. `checkpoint.pt` is the last finished epoch; it is removed at the end. `summary.json` is what the method
reported, `card.json` the model card for machines and `README.md` the one for people. The weights beside them are what
`--model` reads, and `encoder.json` names the encoder that they need, where they need one.

`--fresh` trains beside a finished model, in a hidden folder within, and puts the new one in its place at the end.
"""

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from prbench.backends.hf import weights_of
from prbench.backends.npz_weights import ENCODER, keep_encoder, keep_own_encoder
from prbench.registry import METHODS
from prbench.reward_models.view import SpecParts, take_apart
from prbench.runs import MANIFEST, SUMMARY, Checkpoint, Layout, RunConfig, RunStore, run_id
from prbench.runs.files import FRESH, LOCK, TRAIN, read_json
from prbench.schema import NOTHING, Json
from prbench.training.data import TrainingData

CHECKPOINT = "checkpoint.pt"
CARD, README = "card.json", "README.md"
TRAINER = ".trainer"  # checkpoints of a trainer that keeps its own; hidden, so that no fingerprint counts them
# What methods write; a training that was killed has kept no list of its files.
_OF_METHODS = tuple(dict.fromkeys(name for method in METHODS.rows for name in method.makes))
LAYOUT = Layout(
    kind=TRAIN,
    made=(SUMMARY, CARD, README, ENCODER, *_OF_METHODS, "checkpoint*.pt*", TRAINER),
    is_alone=True,
    swaps=True,
    what="model",
)

Progress = Callable[[int, int, str], None]  # steps done, of steps, e.g. "validation 81.4 %"
Config = Any  # a frozen dataclass of plain values with a `seed`, `KEYS` and `to_config()`


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


def home_of(place: Path) -> Path:
    """Return where a model that is trained in `place` will lie in the end."""
    return place.parent if place.name == FRESH else place


def checkpoint_in(folder: Path, config: Config, data: TrainingData, name: str = CHECKPOINT) -> Checkpoint:
    """Return the place of a method's checkpoint; a method with several parts gives each a name."""
    return Checkpoint(path=folder / name, key=training_key(config, data))


def training_key(config: Config, data: TrainingData) -> str:
    """Return a hash of all that decides the final weights."""
    return run_id({"settings": config.to_config(), "data": data.digest, "weights": weights_named_by(config)})


def weights_named_by(config: Config) -> dict[str, str]:
    """Return hashes of the folders that settings name: trained anew, a backbone at the same path is another one."""
    named = {name: value for name, value in config.KEYS.values(config).items() if isinstance(value, str) and value}
    folders = {name: str(Path(value).expanduser()) for name, value in named.items()}
    return {name: weights_of(folder) for name, folder in folders.items() if Path(folder).is_dir()}


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A folder that is locked for one training."""

    run: RunStore
    before: frozenset[str]  # files that were there

    @property
    def place(self) -> Path:
        """Where to train: the folder, or one within it where a finished model stays until the end."""
        return self.run.folder

    @property
    def done(self) -> Trained | None:
        """What the training came to, if it had ended before."""
        return read_trained(self.place) if (self.place / SUMMARY).exists() else None

    def finish(self, trained: Trained) -> Trained:
        """Keep what a method reported, and return it as it is read back."""
        _keep_encoder(self.place, trained)
        shutil.rmtree(self.place / TRAINER, ignore_errors=True)
        self.run.finish(summary_of(self.place, trained, sorted(_files(self.place) - self.before)))
        return read_trained(self.run.home)


@contextmanager
def claimed(folder: Path, method: str, config: Config, data: TrainingData, *, fresh: bool = False) -> Iterator[Claim]:
    """Lock the folder for this training; a folder that holds another one is refused.

    A fresh training that fails with nothing to go on from is forgotten.
    """
    weights = weights_named_by(config)
    asked = RunConfig(
        config={"method": method, "settings": config.to_config(), "data": data.digest, "weights": weights},
        facts={"settings": config.KEYS.values(config)},  # defaults too, for whoever reads the model
        data={"name": data.name},
    )
    with RunStore.open(folder, LAYOUT, asked, fresh=fresh) as run:
        try:
            yield Claim(run=run, before=_files(run.folder))
        except BaseException:
            run.discard()
            raise


def _files(folder: Path) -> frozenset[str]:
    """Return the files in a folder, but for those that this module keeps itself."""
    found = (path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    own = (LOCK, MANIFEST, SUMMARY, CARD, README)
    return frozenset(
        path.as_posix()
        for path in found
        if path.parts[0] not in (*own, FRESH, TRAINER) and not path.match("checkpoint*.pt*")
    )


def _keep_encoder(folder: Path, trained: Trained) -> None:
    """Record the encoder that the weights need: the one in the folder, or else the one that the method reports."""
    own, reported = take_apart(trained.spec, folder).inside.get("encoder"), trained.facts.get("encoder")
    if own is not None:
        keep_own_encoder(folder, own)
    elif isinstance(reported, Mapping):
        keep_encoder(folder, reported)


def summary_of(folder: Path, trained: Trained, files: Sequence[str] = ()) -> dict[str, Json]:
    """Return what a method reported, and which files it wrote, as the folder's summary holds it."""
    parts = take_apart(trained.spec, folder)
    return {
        "kind": parts.kind,
        "options": parts.options,
        "inside": parts.inside,
        "context": trained.context,
        "shots": trained.shots,
        "is_policy": trained.is_policy,
        "facts": dict(trained.facts),
        "files": list(files),
    }


def read_trained(folder: Path) -> Trained:
    """Return what a method reported, with its spec pointing to where the folder is now."""
    kept = read_json(folder / SUMMARY, "model")
    spec = SpecParts(kind=kept["kind"], options=kept["options"], inside=kept["inside"]).at(folder)
    return Trained(
        spec=spec, context=kept["context"], shots=kept["shots"], is_policy=kept["is_policy"], facts=kept["facts"]
    )
