"""The folder of a trained model: what was asked, how far it got, what came out, and its cards.

`manifest.json` says which method, settings and rows the folder is for, so that the same command resumes it and another
one is refused. `checkpoint.pt` is the last finished epoch; it is removed at the end. `summary.json` is what the method
reported, `card.json` the model card for machines and `README.md` the one for people. The weights beside them are what
`--model` reads, and `encoder.json` names the encoder that they need, where they need one.

`--fresh` trains beside a finished model, in a hidden folder within, and puts the new one in its place at the end.
"""

import platform
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

from prbench.backends.hf import weights_of
from prbench.backends.npz_weights import ENCODER, keep_encoder, keep_own_encoder
from prbench.metrics.number_format import PERCENT
from prbench.registry import METHODS
from prbench.reward_models.view import SpecParts, take_apart
from prbench.runs import MANIFEST, SUMMARY, Checkpoint, Keyed, Layout, RunConfig, RunStore, run_id
from prbench.runs.files import FRESH, LOCK, TRAIN, read_json, write_json, write_text
from prbench.schema import NOTHING, Json
from prbench.specs import check_fields, kind_of
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

POSTS, RECENT = 30, "recent"  # how a method that has no settings for it is asked
# What the card takes of a run's summary, and how it is called there.
FIGURES = {
    "accuracy": "accuracy",
    "macro_user_accuracy": "by user",
    "worst_decile_accuracy": "worst decile",
    "minority_accuracy": "minority",
    "majority_accuracy": "majority",
    "swap": "swap gap",
    "personalization_gain": "gain",
    "calibration": "calibration error (ECE)",
}

ProgressCallback = Callable[[int, int, str], None]  # steps done, of steps, e.g. "validation 81.4 %"
Config = Any  # a `MethodConfig`, or what another package has in its place


def no_progress(done: int, total: int, text: str) -> None:
    """Show no progress."""


class MethodConfig(Keyed):
    """Base of the settings of a method: frozen dataclasses of plain values, a `seed` among them."""

    def __post_init__(self) -> None:
        """Refuse what cannot be trained."""
        check_fields(self)


@dataclass(frozen=True, kw_only=True)
class Trained:
    """What a method leaves behind, beside its files."""

    spec: str  # what `--model` takes, e.g. `head:DIR`; of a policy, what `--policy` takes
    context: str = "profile"  # the context it was trained for
    shots: int = 0  # labeled pairs of the same user that it was trained to read
    is_policy: bool = False  # it writes answers and scores none
    facts: Mapping[str, Json] = field(default_factory=lambda: NOTHING)  # for the card: rows, epochs, seconds, …


def spec_with_encoder(kind: str, folder: Path, encoder: str) -> str:
    """Return the spec of a model in a folder, with the encoder that it was trained on unless that is the usual one."""
    return f"{kind}:{folder}" + ("" if encoder == "minilm" else f"?encoder={encoder}")


def checkpoint_in(folder: Path, config: Config, data: TrainingData, name: str = CHECKPOINT) -> Checkpoint:
    """Return the place of a method's checkpoint; a method with several parts gives each a name."""
    decides = {"settings": config.to_config(), "data": data.digest, "weights": weights_named_by(config)}
    return Checkpoint(path=folder / name, key=run_id(decides))


def weights_named_by(config: Config) -> dict[str, str]:
    """Return hashes of the folders that settings name: trained anew, a backbone at the same path is another one."""
    named = {name: value for name, value in config.KEYS.values(config).items() if isinstance(value, str) and value}
    folders = {name: str(Path(value).expanduser()) for name, value in named.items()}
    return {name: weights_of(folder) for name, folder in folders.items() if Path(folder).is_dir()}


@contextmanager
def open_training(
    folder: Path, method: str, config: Config, data: TrainingData, *, fresh: bool = False
) -> Iterator[RunStore]:
    """Lock the folder for this training; a folder that holds another one is refused.

    A fresh training that fails with nothing to resume from is forgotten.
    """
    asked = RunConfig(
        config={
            "method": method,
            "settings": config.to_config(),
            "data": data.digest,
            "weights": weights_named_by(config),
        },
        facts={"settings": config.KEYS.values(config)},  # defaults too, for whoever reads the model
        data={"name": data.name},
    )
    with RunStore.open(folder, LAYOUT, asked, fresh=fresh) as run:
        try:
            yield run
        except BaseException:
            run.discard()
            raise


def finish_training(run: RunStore, trained: Trained, before: frozenset[str]) -> Trained:
    """Keep what a method reported, and which files it wrote beside those of `before`; return it as it is read back."""
    # The encoder that the weights need: the one in the folder, or else the one that the method reports.
    own, reported = take_apart(trained.spec, run.folder).inside.get("encoder"), trained.facts.get("encoder")
    if own is not None:
        keep_own_encoder(run.folder, own)
    elif isinstance(reported, Mapping):
        keep_encoder(run.folder, reported)
    shutil.rmtree(run.folder / TRAINER, ignore_errors=True)
    run.finish(summary_of(run.folder, trained, sorted(files_in(run.folder) - before)))
    return read_trained(run.home)


def files_in(folder: Path) -> frozenset[str]:
    """Return the files in a folder, but for those that this module keeps itself."""
    found = (path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    own = (LOCK, MANIFEST, SUMMARY, CARD, README)
    return frozenset(
        path.as_posix()
        for path in found
        if path.parts[0] not in (*own, FRESH, TRAINER) and not path.match("checkpoint*.pt*")
    )


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


def held_out_figures(summary: Mapping[str, Json]) -> dict[str, Json]:
    """Return the part of a run's summary that a card shows."""
    figures = {name: summary[name] for name in FIGURES}
    if figures["calibration"]:
        named = ("ece", "ece_as_scored", "brier", "temperature")
        figures["calibration"] = {name: figures["calibration"][name] for name in named}
    return {"pairs": summary["n_items"], "users": summary["data"]["users"], **figures}


def write_card(
    folder: Path,
    method: str,
    config: Config,
    data: TrainingData,
    trained: Trained,
    figures: Mapping[str, Json] | None = None,
) -> dict[str, Json]:
    """Write both cards, and return the one for machines; a policy is not measured by pairs and has no figures."""
    card: dict[str, Json] = {
        "method": method,
        "kind": "policy" if trained.is_policy else kind_of(trained.spec),
        "context": trained.context,
        "config": asdict(config),
        "data": {"name": data.name, "digest": data.digest},
        "weights": weights_named_by(config),
        **trained.facts,
        "versions": {"prbench": version("prbench"), "python": platform.python_version()},
    }
    if figures is not None:
        card["validation"] = dict(figures)
    write_json(folder / CARD, card)
    spec = take_apart(trained.spec, folder).at(Path(folder.resolve().name))
    write_text(folder / README, _readme(card, f"{spec} {usage(trained, config)}", trained.facts))
    return card


def usage(trained: Trained, config: Config) -> str:
    """Return the options under which a model was measured, or a policy was trained, and should be asked."""
    if trained.is_policy:
        posts = f" --posts {config.posts}" if trained.context in ("profile", "plan") else ""
        planner = " --planner DIR" if trained.context == "plan" else ""
        return f"--policy-context {trained.context}{posts}{planner}"
    options = [f"--context {trained.context}"]
    if trained.context == "profile":
        options.append(f"--posts {getattr(config, 'posts', POSTS)}")
        options += [f"--rank {config.rank}"] if getattr(config, "rank", RECENT) != RECENT else []
    options += [f"--labels FILE --shots {trained.shots}"] if trained.shots else []
    return " ".join(options)


def figure_lines(figures: Mapping[str, Json]) -> list[tuple[str, str]]:
    """Return the figures with their names, as a card or a terminal shows them, without those that do not apply."""
    lines = []
    for name, label in FIGURES.items():
        found = figures[name]
        if found is None:
            continue
        if name == "calibration":
            lines.append((label, f"{found['ece_as_scored']:.3f}"))
            continue
        estimate = found["gap"] if name == "swap" else found
        lines.append((label, PERCENT.estimate(estimate)))
    return lines


def _readme(card: Mapping[str, Json], asked_as: str, facts: Mapping[str, Json]) -> str:
    settings = "\n".join(f"- `{name}`: {value}" for name, value in card["config"].items())
    found = "\n".join(f"- {name.replace('_', ' ')}: {value}" for name, value in facts.items())
    how_made = f"## How it was made\n\n{settings}\n\n{found}"
    if card["kind"] == "policy":
        return f"""# A policy trained by `prbench train --method {card["method"]}`

It writes answers to a person like those of `{card["data"]["name"]}`; it scores none. Use it, from this folder's
parent, as

    prbench bon --policy {asked_as} --model ...

{how_made}

## What it is not

It repeats how the answers in the training rows are written, and has no idea whether what it says is true or safe.
"""
    figures = card["validation"]
    table = "\n".join(f"| {label} | {value} |" for label, value in figure_lines(figures))
    return f"""# A reward model trained by `prbench train --method {card["method"]}`

It scores responses to a person; a higher score means that this person would like the response more. It was trained for
the context `{card["context"]}`. Use it, from this folder's parent, as

    prbench eval --model {asked_as}

## Held-out users

{figures["pairs"]} pairs of {figures["users"]} users of `{card["data"]["name"]}` who are not in the training rows.
Points of 100 with a 95 % interval, clustered by users. The best epoch and the temperature were chosen on the same
users, so expect a little less on new ones.

| figure | value |
| --- | --- |
{table}

{how_made}

## What it is not

It knows people only by the texts that it is shown, repeats what the training rows prefer, and has no idea whether a
response is true or safe. Do not decide about people with it.
"""
