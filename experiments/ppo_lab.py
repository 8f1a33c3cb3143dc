"""PPO on the lab: a policy that writes like the lab, rewarded by several reward models, measured by gold.

    python experiments/ppo_lab.py --policy models/sft --rewards rewards.json --seeds 0 1 2 --out results/ppo \
        --set context=oracle --set posts=30
    python experiments/ppo_lab.py --policy TINY --rewards rewards.json --tiny --out scratch/rehearsal

docs/how-to/ppo.md ("A policy to start from") has the commands for `models/sft`. `rewards.json` maps names to
`{"spec": …, "context": …}`, or seeds to such maps, as the `models.json` of `meta_models.py` does; `{seed}` in a spec
is the run's; `"labels": 30` shows the model so many pairs that the user compared before, about questions of the lab's
`train`. The truth, `oracle`, is always among them. Questions of `--split` are asked in training; those of
`validation` are none that the reward models learned from. Every kept policy is measured on users and questions of the
downstream half of the lab's test texts (`lab_halves.py`), one question each. Written to `--out` per reward and seed:
the run's settings and summary as JSON, and every step and every held-out question as `.csv.gz`. What is there already
is not run again, so that a machine lent by the minute can be used. The policies themselves are removed once they are
measured, unless `--keep`.
"""

import argparse
import gc
import json
import shlex
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any

import torch
from kept_rows import write_table
from lab_halves import DOWNSTREAM, one_each, rows_of_half

from prbench.context import Labels
from prbench.data import DataSettings
from prbench.downstream.ppo.evaluate import HeldOutSettings, evaluate_run
from prbench.downstream.ppo.loop import read_steps
from prbench.downstream.ppo.settings import PpoSettings, read_settings
from prbench.downstream.ppo.training import train_policy
from prbench.evaluation import open_labels
from prbench.judging import LabJudge
from prbench.lab import DEFAULT_SIZES, LABEL_SPLITS, SEED, make_labels, make_split
from prbench.runs.files import EVALUATION_ROWS
from prbench.schema import Example

ORACLE = {"oracle": {"spec": "control:gold", "context": "profile"}}
OTHERS = 7  # people of their own
HELD_OUT = 200  # users, one question each
SAMPLES = 4  # answers to each
TINY = ("rollout_batch=8", "max_new_tokens=8", "minibatches=2", "steps=2", "posts=2", "checkpoint_every=1")


def main() -> None:
    """Train and measure what is not there yet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--policy", required=True)
    parser.add_argument("--rewards", type=Path, required=True)
    parser.add_argument("--only", nargs="+", help="names of some rewards")
    parser.add_argument("--leave-out", nargs="+", default=[], help="names of rewards that are too slow")
    parser.add_argument("--split", default="validation", help="of the lab, whose questions the policy learns from")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--out", type=Path, default=Path("results/ppo"))
    parser.add_argument("--work", type=Path, default=Path("runs/ppo"), help="folder for policies")
    parser.add_argument("--keep", action="store_true", help="leave the policies in --work")
    parser.add_argument("--tiny", action="store_true")
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    listed = json.loads(asked.rewards.read_text(encoding="utf-8"))
    train = list(make_split(asked.split, DEFAULT_SIZES["train"], seed=SEED + OTHERS))
    held_out = one_each(rows_of_half("test", DOWNSTREAM), 4 if asked.tiny else HELD_OUT)
    for seed in asked.seeds:
        for name, reward in (ORACLE | listed.get(str(seed), listed)).items():
            if name in asked.leave_out or (asked.only and name not in asked.only):
                continue
            if not (asked.out / f"{name}-{seed}.json").exists():
                settings = settings_for(reward, seed, asked)
                labels = labels_for(reward, asked)
                run(f"{name}-{seed}", settings, labels, train, held_out, asked)


def labels_for(reward: Mapping[str, Any], asked: argparse.Namespace) -> Labels | None:
    """Return pairs that the people of the split compared before, where the reward model is to see some."""
    if not (shots := reward.get("labels")):
        return None
    split, users = f"{asked.split}_labels", DEFAULT_SIZES["train"].users
    if split not in LABEL_SPLITS:
        raise SystemExit(
            f"--split {asked.split}: its people have no labels. Use one of {', '.join(LABEL_SPLITS.values())}."
        )
    rows = list(make_labels(split, users, per_user=shots, seed=SEED + OTHERS))
    return open_labels(rows, DataSettings(split=asked.split), shots=shots)


def settings_for(reward: Mapping[str, Any], seed: int, asked: argparse.Namespace) -> PpoSettings:
    """Return the settings of one run."""
    spec = reward["spec"].replace("{seed}", str(seed))
    given = {"policy": asked.policy, "reward": spec, "reward_context": reward["context"], "seed": seed}
    return read_settings([*(TINY if asked.tiny else ()), *asked.set], **given)


def run(
    name: str,
    settings: PpoSettings,
    labels: Labels | None,
    train: Sequence[Example],
    held_out: Sequence[Example],
    asked: argparse.Namespace,
) -> None:
    """Train one policy, measure it, and write its files."""
    folder = asked.work / name
    started = time.monotonic()
    summary = train_policy(
        train, settings, folder, labels=labels, judge=LabJudge(), on_step=lambda row: say(name, row, started)
    )
    trained = time.monotonic()
    evaluation = evaluate_run(folder, held_out, HeldOutSettings(samples=SAMPLES, seed=0))
    record = {
        "name": name,
        "command": shlex.join(["python", "experiments/ppo_lab.py", *sys.argv[1:]]),
        "split": asked.split,
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu",
        "settings": asdict(settings),
        "seconds": {"training": round(trained - started, 1), "evaluation": round(time.monotonic() - trained, 1)},
        "summary": summary,
        "evaluation": evaluation["policies"],
    }
    steps = read_steps(folder)
    rates = [row["rollout_tokens_per_second"] for row in steps[1:] if row.get("rollout_tokens_per_second")]
    record["rollout_tokens_per_second"] = median(rates) if rates else None  # without the first step, which captures
    write_lines(asked.out / f"{name}-steps.csv.gz", steps)
    rows = [json.loads(line) for line in (folder / EVALUATION_ROWS).read_text(encoding="utf-8").splitlines()]
    write_lines(asked.out / f"{name}-held-out.csv.gz", rows)
    (asked.out / f"{name}.json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    golds = ", ".join(
        f"{each['step']}: {each['gold']['value']:.3f} at {each['kl']:.1f}" for each in record["evaluation"]
    )
    if not asked.keep:
        shutil.rmtree(folder)
    print(f"{name}: held-out gold by step {golds} in {time.monotonic() - started:.0f} s", flush=True)
    gc.collect()  # modules refer to themselves; the next run needs their memory
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def say(name: str, row: Mapping[str, Any], started: float) -> None:
    """Print a line now and then."""
    if row["step"] % 5 == 0:
        shown = {
            key: row.get(key) for key in ("reward", "gold", "kl", "length", "rollout_tokens_per_second", "seconds")
        }
        print(f"{name} {row['step']}: {shown} {time.monotonic() - started:.0f} s", flush=True)


def write_lines(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write rows as a table; a value that a row lacks is empty."""
    columns = list(dict.fromkeys(name for row in rows for name in row))
    write_table(path, columns, [[row.get(name, "") for name in columns] for row in rows])


if __name__ == "__main__":
    main()
