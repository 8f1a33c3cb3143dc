"""Training by name: `prbench.registry` lists the methods, and here one is loaded, told `--set name=value`, and run.

`train` does all of it in Python, with options as keyword arguments.
"""

import dataclasses
import resource
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from prbench.errors import UsageError
from prbench.registry import METHODS
from prbench.runs import SUMMARY
from prbench.schema import Json
from prbench.specs import bind, check_at_least, known_names, parse_settings
from prbench.training.data import TrainingData, load_training_data
from prbench.training.folder import (
    Config,
    ProgressCallback,
    Trained,
    files_in,
    finish_training,
    no_progress,
    open_training,
    read_trained,
)

_SEEDS = 2**63  # how many numpy and torch both take


@dataclass(frozen=True, kw_only=True)
class Method:
    """One way to train."""

    name: str
    config: type[Config]  # a frozen dataclass of plain values
    train: Callable[[TrainingData, Config, Path, ProgressCallback], Trained]


def load_method(name: str) -> Method:
    """Return the method of that name; what it needs is imported only now."""
    kind = METHODS.get(name)
    if kind is None:
        raise UsageError(f"--method {name}: unknown. {known_names('methods', name, METHODS.names)}")
    config = kind.options_type()
    assert config is not None, "the table refuses a method without a seed among its options"
    return Method(name=name, config=config, train=kind.loader())


def run_method(
    method: Method,
    data: TrainingData,
    config: Config,
    folder: Path,
    progress: ProgressCallback = no_progress,
    *,
    fresh: bool = False,
) -> Trained:
    """Train into a folder; the same call resumes where it was interrupted, and a finished one is only read back."""
    with open_training(folder, method.name, config, data, fresh=fresh) as run:
        if (run.folder / SUMMARY).exists():
            return read_trained(run.folder)
        before = files_in(run.folder)
        started = time.monotonic()
        trained: object = method.train(data, config, run.folder, progress)
        if not isinstance(trained, Trained):  # a method of another package
            what = f"its training returned a {type(trained).__name__}"
            raise UsageError(f"--method {method.name}: {what} where a Trained belongs. Mend its package.")
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # in KiB on Linux, in bytes on macOS
        facts: dict[str, Json] = {
            "train_pairs": len(data.train),
            "train_users": len({example.user.id for example in data.train}),
            "validation_pairs": len(data.validation),
            "validation_users": len({example.user.id for example in data.validation}),
            **trained.facts,
            "seconds": round(time.monotonic() - started, 2),
            "peak_memory_mib": round(peak / (1 << 20 if sys.platform == "darwin" else 1 << 10)),
        }
        return finish_training(run, dataclasses.replace(trained, facts=facts), before)


def make_config(method: Method, settings: Sequence[str], **given: Json) -> Config:
    """Return the method's defaults with `name=value` settings put in, and `given` ones, which win."""
    known = [each.name for each in dataclasses.fields(method.config)]
    for name, value in given.items():
        if name not in known:
            raise UsageError(
                f"--{name} {value}: method {method.name} has no {name}. Its settings: {', '.join(known)}."
            )
    config = bind(method.config, parse_settings(settings, where="--set"), where="--set", given=given)
    if type(config.seed) is not int or not 0 <= config.seed < _SEEDS:
        raise UsageError(f"seed={config.seed}: not a seed. Give a whole number from 0 to {_SEEDS - 1}.")
    return config


@dataclass(frozen=True, kw_only=True)
class TrainedModel:
    """A model that was trained: `spec` is what every other function takes, and `--model` on the command line."""

    spec: str
    folder: Path
    facts: Mapping[str, Json] = field(repr=False)


def train(
    method: str,
    data: str,
    *,
    out: str | Path,
    train_split: str | None = None,
    validation_split: str | None = None,
    subset: str | None = None,
    limit: int | None = None,
    hold_out: float | None = None,
    fresh: bool = False,
    **settings: Any,
) -> TrainedModel:
    """Train a reward model by one of the methods of `prbench train`, into a folder that can be continued.

        model = prbench.train("match", "lab", out="my-match", limit=200)
        prbench.evaluate("lab", model.spec, limit=50)

    `settings` are those of the method (`prbench train --method match --help` lists them).
    """
    code = load_method(method)
    config = make_config(code, [], **settings)
    check_at_least(1, limit=limit)
    rows = load_training_data(
        data,
        train_split=train_split,
        validation_split=validation_split,
        subset=subset,
        limit=limit,
        held_out=hold_out,
    )
    trained = run_method(code, rows, config, Path(out), fresh=fresh)
    return TrainedModel(spec=trained.spec, folder=Path(out), facts=trained.facts)
