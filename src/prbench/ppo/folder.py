"""The folder of a PPO run.

`manifest.json` says what was asked; another configuration in the same folder is refused. `steps.jsonl` has one row per
measured policy, `step` being the updates behind it; it is only ever appended to, and of several rows of one step the
latest counts. `checkpoint.pt` is where to go on from; `policies/step-000010` are policies that were kept, `policy` is
the last one, and `summary.json` what came out: the same bytes whether the run was interrupted or not.
"""

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from prbench.errors import RunError
from prbench.folders import LOCK, read_json, take_lock, write_json
from prbench.runs import run_id
from prbench.runs.names import PPO
from prbench.schema import Json
from prbench.train.folder import Checkpoint

MANIFEST, STEPS, SUMMARY, CHECKPOINT = "manifest.json", "steps.jsonl", "summary.json", "checkpoint.pt"
POLICY, POLICIES, EVALUATION = "policy", "policies", "evaluation.json"
TRAINER = ".trainer"  # checkpoints of a trainer that keeps its own
_STEP = "step-"


@dataclass(frozen=True, kw_only=True)
class PpoFolder:
    """A run's folder, locked against a second writer."""

    path: Path
    run_id: str

    @property
    def checkpoint(self) -> Checkpoint:
        """Where to go on from."""
        return Checkpoint(path=self.path / CHECKPOINT, key=self.run_id)

    @property
    def summary(self) -> dict[str, Json] | None:
        """What came out; nothing as long as the run has not ended."""
        return read_json(self.path / SUMMARY) if (self.path / SUMMARY).exists() else None

    def append(self, row: Mapping[str, Json]) -> None:
        """Write a row; when this returns, killing the process cannot lose it."""
        with (self.path / STEPS).open("a", encoding="utf-8") as file:
            file.write(json.dumps(row, allow_nan=False) + "\n")

    def finish(self, summary: Mapping[str, Json]) -> None:
        """Write the summary, and drop what was only needed to go on."""
        write_json(self.path / SUMMARY, summary)
        (self.path / CHECKPOINT).unlink(missing_ok=True)


@contextmanager
def opened(path: Path, config: Mapping[str, Json], facts: Mapping[str, Json], *, fresh: bool) -> Iterator[PpoFolder]:
    """Lock a folder for the run of this configuration, made at the first time."""
    plain = json.loads(json.dumps(config))
    path.mkdir(parents=True, exist_ok=True)
    with take_lock(path):
        if fresh:
            _clear(path)
        if _begun(path, plain):
            _refuse_another(path, plain)
        else:
            _refuse_foreign(path)
            write_json(path / MANIFEST, {"kind": PPO, "run_id": run_id(plain), "config": plain, **facts})
        _cut_torn_line(path / STEPS)
        yield PpoFolder(path=path, run_id=run_id(plain))


def read_steps(path: Path) -> list[dict[str, Json]]:
    """Return the latest row of every step, in order; a line that is still being written is left out."""
    rows: dict[int, dict[str, Json]] = {}
    file = path / STEPS
    if not file.exists():
        return []
    for number, line in enumerate(file.read_bytes().split(b"\n")[:-1], start=1):
        try:
            row = json.loads(line)
            rows[int(row["step"])] = row
        except (ValueError, KeyError, TypeError):
            raise RunError(f"{file}:{number}: is no row of ours. Restore the file, or use --fresh.") from None
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


def _begun(path: Path, config: Mapping[str, Json]) -> bool:
    """Whether there is more than a manifest like ours, all that a run leaves which stops before its first row."""
    if not (path / MANIFEST).exists():
        return False
    left = (STEPS, SUMMARY, CHECKPOINT, TRAINER, POLICIES, POLICY)
    like_ours = read_json(path / MANIFEST).get("config", {}).keys() == config.keys()
    return not like_ours or any((path / name).exists() for name in left)


def _refuse_another(path: Path, config: Mapping[str, Json]) -> None:
    old = read_json(path / MANIFEST)
    if old.get("config") == config:
        return
    before = old.get("config") or {}
    changed = sorted(key for key in {*before, *config} if before.get(key) != config.get(key))
    named = ", ".join(_changed_settings(before, config) or changed)
    raise RunError(f"{path}: holds a run of another configuration (another {named}). Use another --out, or --fresh.")


def _changed_settings(before: Mapping[str, Json], config: Mapping[str, Json]) -> list[str]:
    old, new = before.get("settings", {}), config.get("settings", {})
    return sorted(name for name in {*old, *new} if old.get(name) != new.get(name))


def _refuse_foreign(path: Path) -> None:
    """Refuse to write among files that no run of ours left."""
    ours = {LOCK, MANIFEST, "cache"}  # a planner keeps its replies in the cache
    others = sorted(each.name for each in path.iterdir() if each.name not in ours and not each.name.endswith(".tmp"))
    if others:
        raise RunError(f"{path}: holds {others[0]}, and is no run of ours. Use another --out.")


def _clear(path: Path) -> None:
    if not (path / MANIFEST).exists():
        return
    for name in (STEPS, SUMMARY, CHECKPOINT, EVALUATION, MANIFEST):
        (path / name).unlink(missing_ok=True)
    for name in (POLICY, POLICIES, TRAINER):
        shutil.rmtree(path / name, ignore_errors=True)
    for made in (*path.glob("*.svg"), *path.glob("*.html")):
        made.unlink()


def _cut_torn_line(path: Path) -> None:
    """Drop an unfinished last line, which is all that a kill in the middle of a write can leave behind."""
    if path.exists() and not (content := path.read_bytes()).endswith(b"\n"):
        os.truncate(path, content.rfind(b"\n") + 1)
