"""`--log-to tensorboard:FOLDER`: event files that `tensorboard --logdir FOLDER` shows."""

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from prbench.errors import needs
from prbench.schema import Json
from prbench.specs import Spec

_FOLDER = "TENSORBOARD_LOGGING_DIR"  # where the trainers of transformers write


def load(spec: Spec, options: None, name: str, config: Mapping[str, Json]) -> "TensorboardRun":
    """Open a run below the folder that a spec names."""
    with needs("log", spec.text):
        from tensorboard.summary import Writer
    folder = Path(spec.target) / re.sub(r"[^\w.-]+", "-", name)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(dict(config), indent=1, default=str), encoding="utf-8")
    return TensorboardRun(Writer(str(folder)), folder)


class TensorboardRun:
    """One folder of event files; figures of a whole run are at step 0."""

    report_to = "tensorboard"

    def __init__(self, writer: Any, folder: Path) -> None:
        self._writer = writer
        self._before = os.environ.get(_FOLDER)
        os.environ[_FOLDER] = str(folder)

    def log(self, figures: Mapping[str, float], step: int | None = None) -> None:
        """Write one point for each figure."""
        for figure, value in figures.items():
            self._writer.add_scalar(figure, value, step or 0)

    def trainer_arguments(self) -> dict[str, Json]:
        """Return nothing: trainers read the folder from the environment."""
        return {}

    def close(self) -> None:
        """End the file."""
        self._writer.close()
        if self._before is None:
            os.environ.pop(_FOLDER, None)
        else:
            os.environ[_FOLDER] = self._before
