"""The folder of a PPO run.

`steps.jsonl` has one row per measured policy, `step` being the updates behind it; it is only ever appended to, and of
several rows of one step the latest counts. `checkpoint.pt` is where to go on from; `policies/step-000010` are policies
that were kept, `policy` is the last one, and `summary.json` what came out: the same bytes whether the run was
interrupted or not.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from prbench.runs import MANIFEST, SUMMARY, Checkpoint, Layout, RowLog, RunConfig, RunStore, read_latest
from prbench.runs.files import read_json
from prbench.runs.names import EVALUATION, EVALUATION_ROWS, PPO
from prbench.schema import Json

STEPS, CHECKPOINT = "steps.jsonl", "checkpoint.pt"
POLICY, POLICIES = "policy", "policies"
TRAINER = ".trainer"  # checkpoints of a trainer that keeps its own
LAYOUT = Layout(
    kind=PPO,
    made=(
        STEPS,
        SUMMARY,
        CHECKPOINT,
        EVALUATION,
        EVALUATION_ROWS,
        POLICY,
        POLICIES,
        TRAINER,
        "*.svg",
        "*.html",
    ),
    is_alone=True,
)
_STEP = "step-"


@dataclass(frozen=True, kw_only=True)
class PpoFolder:
    """A run's folder, locked against a second writer."""

    run: RunStore
    steps: RowLog

    @property
    def path(self) -> Path:
        """Where it is."""
        return self.run.folder

    @property
    def run_id(self) -> str:
        """The name of the run."""
        return self.run.run_id

    @property
    def checkpoint(self) -> Checkpoint:
        """Where to go on from."""
        return self.run.checkpoint(CHECKPOINT)

    def append(self, row: Mapping[str, Json]) -> None:
        """Write a row; when this returns, killing the process cannot lose it."""
        self.steps.append([row])

    def finish(self, summary: Mapping[str, Json]) -> None:
        """Write the summary, and drop what was only needed to go on."""
        self.run.finish(summary)


@contextmanager
def opened(path: Path, config: RunConfig, *, fresh: bool) -> Iterator[PpoFolder]:
    """Lock a folder for the run of this configuration, made at the first time."""
    with RunStore.open(path, LAYOUT, config, fresh=fresh) as run:
        yield PpoFolder(run=run, steps=run.rows(STEPS, key=("step",)))


def read_steps(path: Path) -> list[dict[str, Json]]:
    """Return the latest row of every step, in order; a line that is still being written is left out."""
    rows = read_latest(path / STEPS, key=("step",))
    return [rows[step] for step in sorted(rows)]


def labels_shown(path: Path) -> int:
    """Return how many labelled pairs of a user the reward model of a run may see."""
    context = read_json(path / MANIFEST)["config"].get("reward_context", {})
    return int(context.get("labels", {}).get("shots", 0))


def kept_policies(path: Path) -> dict[int, Path]:
    """Return the policies that were kept, by the updates behind them."""
    found = {}
    for folder in (path / POLICIES).glob(f"{_STEP}*"):
        if folder.name.removeprefix(_STEP).isdecimal() and (folder / "config.json").exists():
            found[int(folder.name.removeprefix(_STEP))] = folder
    return dict(sorted(found.items()))


def place_of_policy(path: Path, step: int) -> Path:
    """Return where the policy after so many updates is kept."""
    return path / POLICIES / f"{_STEP}{step:06d}"
