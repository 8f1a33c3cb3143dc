"""Train reward models of graded quality: what a benchmark is asked to put in order.

    python experiments/meta_models.py --models models/meta --seeds 0 1 2

Heads, planners and others on all rows of the lab's `train` and on fewer, on rows whose labels are flipped by
chance, on the general set, without users; and mixtures of one that knows users with one that knows only good from bad.
Every folder that is finished is left alone, so that those of `train_table.py` may be put in their places; what takes a
GPU (`encoder`, `bt`, `bt-profile`) is listed for the seeds whose folders are there, and not trained here. Beside the
folders, `models.json` says for each seed which spec and context every model has; controls, which are not trained, are
listed too.
"""

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

import numpy as np

from prbench.lab import DEFAULT_SIZES, SEED, make_split
from prbench.reward_models import ModelSettings, load_reward_model
from prbench.reward_models.blend import describe_member, write_members
from prbench.schema import Example
from prbench.training.blend import margins_of
from prbench.training.data import TrainingData, hold_out, make_training_data
from prbench.training.folder import Trained, read_trained
from prbench.training.methods import load_method, make_config, run_method

CONTROLS = ("random", "longest", "shortest", "overlap", "embed")
PAIRS_ONLY = ("rubric_weight=0",)  # rubrics would tell what turned labels hide
POSTS = 30


@dataclass(frozen=True)
class Recipe:
    """One reward model to be."""

    name: str
    method: str = "head"
    settings: tuple[str, ...] = ()
    rows: int | None = None  # of `train`, at most; whole users
    turned: float = 0.0  # share of the pairs whose label is wrong
    general: bool = False  # learns good from bad instead
    gpu: bool = False  # not trained here, but by `prbench train`


RECIPES = (
    *(Recipe(f"head-{rows}", rows=rows) for rows in (100, 300, 1000, 3000)),
    Recipe("head"),
    *(Recipe(f"head-turned-{share}", settings=PAIRS_ONLY, turned=share / 100) for share in (20, 35, 45)),
    *(Recipe(f"planner-{rows}", "planner", rows=rows) for rows in (300, 1000)),
    Recipe("planner", "planner"),
    Recipe("summary", "summary"),
    Recipe("rubric-chain", "rubric-chain"),
    Recipe("no-users", settings=("knows_users=false",)),
    Recipe("general", settings=("knows_users=false", *PAIRS_ONLY), general=True),
    Recipe("general-users", settings=PAIRS_ONLY, general=True),
    Recipe("encoder", gpu=True),
    Recipe("bt", gpu=True),
    Recipe("bt-profile", gpu=True),
)
MIXTURES = {"mixture-25": 0.25, "mixture-50": 0.5, "mixture-75": 0.75}  # share of the head; the rest is `general`


@dataclass(frozen=True)
class Rows:
    """All rows that models may learn from."""

    train: list[Example]
    validation: list[Example]
    general: TrainingData


def main() -> None:
    """Train what is not there yet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=Path, required=True)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--only", nargs="+", help="names of some recipes")
    asked = parser.parse_args()
    rows = make_rows()
    listed = json.loads((asked.models / "models.json").read_text()) if (asked.models / "models.json").exists() else {}
    for seed in asked.seeds:
        models = {f"control-{name}": {"spec": f"control:{name}", "context": "profile"} for name in CONTROLS}
        for recipe in RECIPES:
            folder = asked.models / f"{recipe.name}-{seed}"
            if (not asked.only or recipe.name in asked.only) and (folder.exists() or not recipe.gpu):
                models[recipe.name] = as_listed(
                    read_trained(folder) if recipe.gpu else cook(recipe, rows, seed, folder)
                )
        if not asked.only:
            models |= mix(rows, seed, asked.models)
        listed[str(seed)] = listed.get(str(seed), {}) | models
        asked.models.mkdir(parents=True, exist_ok=True)
        (asked.models / "models.json").write_text(json.dumps(listed, indent=1) + "\n", encoding="utf-8")


def make_rows() -> Rows:
    """Draw the rows of the default lab."""
    drawn = {name: list(make_split(name, DEFAULT_SIZES[name], seed=SEED)) for name in
             ("train", "validation", "train_general")}  # fmt: skip
    learn, stop = hold_out(drawn["train_general"], 0.2, by="user")
    return Rows(drawn["train"], drawn["validation"], make_training_data(learn, stop, name="lab, general"))


def cook(recipe: Recipe, rows: Rows, seed: int, folder: Path) -> Trained:
    """Train one model, or read it back."""
    started = time.monotonic()
    data = rows.general if recipe.general else training_data(recipe, rows, seed)
    method = load_method(recipe.method)
    trained = run_method(method, data, make_config(method, recipe.settings, seed=seed), folder)
    print(
        f"{folder.name}: {trained.facts.get('validation_accuracy')} in {time.monotonic() - started:.0f} s", flush=True
    )
    return trained


def training_data(recipe: Recipe, rows: Rows, seed: int) -> TrainingData:
    """Return all rows, or so many of whole users, some of them with the wrong label."""
    if recipe.rows is None and not recipe.turned:
        return make_training_data(rows.train, rows.validation, name="lab")
    dice = Random(f"{recipe.rows}/{recipe.turned}/{seed}")
    users = sorted({row.user.id for row in rows.train})
    dice.shuffle(users)
    kept: list[Example] = []
    by_user: dict[str, list[Example]] = {}
    for row in rows.train:
        by_user.setdefault(row.user.id, []).append(row)
    for user in users:
        if recipe.rows is None or len(kept) + len(by_user[user]) <= recipe.rows:
            kept += by_user[user]
    learned = [turned(row) if dice.random() < recipe.turned else row for row in kept]
    return make_training_data(learned, rows.validation, name="lab")


def turned(row: Example) -> Example:
    """Return the pair with the wrong label."""
    return replace(row, chosen=row.rejected, rejected=row.chosen, rubric=())


def mix(rows: Rows, seed: int, models: Path) -> dict[str, dict[str, str]]:
    """Write blends of the head and the general model, in shares of the spread of their margins."""
    places = [models / f"{name}-{seed}" for name in ("head", "general")]
    members = [read_trained(place) for place in places]
    spreads = [spread(member, rows.validation, seed) for member in members]
    made = {}
    for name, share in MIXTURES.items():
        folder = models / f"{name}-{seed}"
        folder.mkdir(parents=True, exist_ok=True)
        weights = (share / spreads[0], (1 - share) / spreads[1])
        write_members(
            folder,
            [
                describe_member(member.spec, place, folder, reads_user=member.context != "none", weights=(weight,) * 2)
                for member, place, weight in zip(members, places, weights, strict=True)
            ],
        )
        made[name] = {"spec": f"blend:{folder}", "context": "profile"}
    return made


def spread(member: Trained, rows: Sequence[Example], seed: int) -> float:
    """Return the root mean square of a model's margins."""
    loaded = load_reward_model(member.spec, ModelSettings(seed=seed))
    margins = margins_of(loaded, rows, 0 if member.context == "none" else POSTS)
    return float(np.sqrt((margins**2).mean()))


def as_listed(trained: Trained) -> dict[str, str]:
    """Return how a trained model is asked."""
    return {"spec": trained.spec, "context": trained.context}


if __name__ == "__main__":
    main()
