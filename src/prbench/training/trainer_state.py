"""Where a trainer that keeps its own checkpoints stopped."""

import json
import shutil
from pathlib import Path

from prbench.schema import Json

_STATE = "trainer_state.json"  # what transformers writes last into a checkpoint


def last_state(folder: Path) -> tuple[dict[str, Json] | None, Path | None]:
    """Return the state and the folder of the last checkpoint that was written whole; remove those that were not."""
    found: dict[int, tuple[dict[str, Json], Path]] = {}
    for checkpoint in folder.glob("checkpoint-*"):
        try:
            state = json.loads((checkpoint / _STATE).read_text(encoding="utf-8"))
        except (FileNotFoundError, ValueError):
            shutil.rmtree(checkpoint)
        else:
            found[state["global_step"]] = (state, checkpoint)
    return found[max(found)] if found else (None, None)
