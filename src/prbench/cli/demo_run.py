"""The main job on the lab: every control and small model in every context, one board, one page."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from prbench.evaluation import DataSettings, EvalSettings, Run, as_loaded, evaluate_store, open_data
from prbench.lab import LAB
from prbench.reward_models import ModelSettings
from prbench.schema import Progress


@dataclass(frozen=True)
class Entry:
    """One line of the demo's board."""

    model: str
    context: str


ENTRIES = (
    Entry("control:random", "profile"),
    Entry("control:longest", "profile"),
    Entry("control:shortest", "profile"),
    Entry("control:question", "profile"),
    Entry("control:overlap", "profile"),
    Entry("control:embed", "profile"),
    Entry("head:lab-average", "profile"),  # trained on the same pairs, knows no users
    Entry("head:lab-user", "none"),
    Entry("head:lab-user", "profile"),
    Entry("control:overlap", "oracle"),
    Entry("control:embed", "oracle"),
    Entry("head:lab-user", "oracle"),
    Entry("control:gold", "oracle"),
)
POSTS = 30  # the whole profile of every user of the lab


def run_demo(
    out: Path, *, limit: int | None = None, seed: int = 0, watch: Callable[[Entry], Progress | None] = lambda _: None
) -> list[Run]:
    """Evaluate the entries on the lab, into run folders under `out`; finished ones are only read back."""
    which = DataSettings(source=LAB, limit=limit)
    runs = []
    with open_data(which) as store:
        for entry in ENTRIES:
            loaded = as_loaded(entry.model, ModelSettings(seed=seed))
            settings = EvalSettings(context=entry.context, posts=POSTS, seed=seed)
            command = f"prbench eval --model {entry.model} --context {entry.context} --posts {POSTS} --seed {seed}"
            runs.append(
                evaluate_store(store, loaded, settings, which, out=out, command=command, progress=watch(entry))
            )
    return runs
