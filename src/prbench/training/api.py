"""Train a reward model in Python: options are keyword arguments."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from prbench.schema import Json
from prbench.specs import check_at_least
from prbench.training.data import load_training_data
from prbench.training.methods import load_method, make_config
from prbench.training.methods import train as train_with


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
    trained = train_with(code, rows, config, Path(out), fresh=fresh)
    return TrainedModel(spec=trained.spec, folder=Path(out), facts=trained.facts)
