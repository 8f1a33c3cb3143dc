"""Method `blend`: how much of each of several trained models to believe, found on held-out users.

A model without users that was tuned on many words and a small one that reads posts know different things. Their scores
are added with weights that are never negative: a logistic regression on the margins of the held-out pairs, which no
member learned from, though some stopped on them. Pairs are asked with and without posts, and each gets weights of its
own. It is convex, so nothing is drawn; and a margin of the blend is a log-odds. It stays because that of `bt` and
`match` alone beats `bt` on text of others.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from prbench.context import Ask, fit_for, make_context
from prbench.errors import DataError, UsageError
from prbench.metrics.calibration import accuracy_of
from prbench.metrics.estimate import user_folds
from prbench.reward_models import ModelSettings, load_reward_model
from prbench.reward_models.base import LoadedModel, require_scores
from prbench.reward_models.blend import describe_member, write_members
from prbench.runs import MANIFEST, SUMMARY, Keys
from prbench.runs.files import FRESH, read_json
from prbench.schema import Example, Json, RewardInput
from prbench.specs import Count, NotNegative
from prbench.training.data import TrainingData, check_training_data, inputs_of
from prbench.training.folder import MethodConfig, ProgressCallback, Trained, read_trained

Doubles = NDArray[np.float64]
RECENT = "recent"  # how a blend ranks posts
_SHOWN = ("none", "profile")  # contexts that members may have been trained for


@dataclass(frozen=True, kw_only=True)
class BlendConfig(MethodConfig):
    """What to blend."""

    models: str = ""  # folders that `prbench train` wrote, with commas between them
    posts: Count = 30  # of each profile, the newest
    # Per squared weight, in spreads of its member's margins, against the loss of 1,000 pairs.
    penalty: NotNegative = 1.0
    seed: int = 0  # nothing is drawn: every seed gives the same weights

    KEYS: ClassVar[Keys] = Keys(models="", posts=30, penalty=1.0, seed=0)

    def __post_init__(self) -> None:
        """Refuse what cannot be blended."""
        super().__post_init__()
        if len(self.folders) < 2 or len(set(self.folders)) < len(self.folders):
            raise UsageError("--set models=DIR,DIR,…: give at least two folders of trained models, each once.")

    @property
    def folders(self) -> list[Path]:
        """Where the members are."""
        return [Path(name.strip()).expanduser() for name in self.models.split(",") if name.strip()]


def train_blend(data: TrainingData, config: BlendConfig, folder: Path, progress: ProgressCallback) -> Trained:
    """Weigh the members into a folder that `--model blend:FOLDER` takes."""
    check_training_data(data)
    members = [_read_member(place, data, config) for place in config.folders]
    known, alone = [], []
    for number, member in enumerate(members):
        progress(number, len(members), f"asking {config.folders[number].name}")
        loaded = load_reward_model(member.spec, ModelSettings(seed=config.seed))
        alone.append(margins_of(loaded, data.validation, posts=0))
        known.append(alone[-1] if member.context == "none" else margins_of(loaded, data.validation, config.posts))
    margins, margins_alone = np.array(known).T, np.array(alone).T  # (pairs, members)
    weights, weights_alone = fit_weights(margins, config.penalty), fit_weights(margins_alone, config.penalty)
    if not weights.any():
        raise DataError(f"{data.name}: no member tells what held-out users choose, so there is nothing to blend.")
    progress(len(members), len(members), "weighed")
    home = folder.parent if folder.name == FRESH else folder  # where the blend will lie in the end
    write_members(
        folder,
        [
            describe_member(member.spec, place, home, reads_user=member.context != "none", weights=pair)
            for member, place, pair in zip(
                members, config.folders, zip(weights.tolist(), weights_alone.tolist(), strict=True), strict=True
            )
        ],
    )
    # Each fifth of the users by the weights of the others, so that the accuracy is not of what was fitted.
    folds = user_folds([example.user.id for example in data.validation])
    blended = np.empty(len(margins))
    for fold in sorted(set(folds.tolist())):
        blended[folds == fold] = margins[folds == fold] @ fit_weights(margins[folds != fold], config.penalty)
    facts: dict[str, Json] = {
        "members": [str(place) for place in config.folders],
        "weights": [round(weight, 4) for weight in weights.tolist()],
        "weights_without_posts": [round(weight, 4) for weight in weights_alone.tolist()],
        "validation_accuracy": round(accuracy_of(blended), 4),
    }
    reads_user = any(member.context != "none" for member in members)
    return Trained(spec=f"blend:{folder}", context="profile" if reads_user else "none", facts=facts)


def _read_member(place: Path, data: TrainingData, config: BlendConfig) -> Trained:
    """Read a finished training; the blend is weighed on users that it must not have learned from."""
    if not (place / SUMMARY).is_file():
        raise UsageError(f"{place}: no finished model of ours is there. Train it first with prbench train.")
    member = read_trained(place)
    if member.is_policy:
        raise UsageError(f"{place}: writes answers and scores none, so it cannot be blended. Leave it out.")
    if member.shots:
        raise UsageError(f"{place}: reads labeled pairs of its user, and a blend has none to show. Leave it out.")
    if member.context not in _SHOWN:
        raise UsageError(f"{place}: reads the context {member.context!r}. A blend takes: {', '.join(_SHOWN)}.")
    asked = read_json(place / MANIFEST, "model")
    told = asked["facts"]["settings"]
    shown = (told.get("posts", config.posts), told.get("rank", RECENT))
    if member.context != "none" and shown != (config.posts, RECENT):
        raise UsageError(
            f"{place}: was trained on {shown[0]} {shown[1]} posts, and this blend shows {config.posts} recent ones. "
            "Train its members alike, or --set posts."
        )
    if asked["config"]["data"] != data.digest:
        raise DataError(f"{place}: was trained on other rows, maybe on those to be weighed by. Use the same --data.")
    return member


def margins_of(loaded: LoadedModel, examples: Sequence[Example], posts: int) -> Doubles:
    """Return score(chosen) - score(rejected) of every pair, as an evaluation would ask for them.

    As many posts are shown as the model's window holds.
    """
    model = require_scores(loaded, "a blend")
    maker = make_context("profile", posts=posts) if posts else make_context("none")
    contexts = maker.contexts([Ask(user=example.user, question=example.question) for example in examples])
    inputs: list[RewardInput] = []
    for example, told in zip(examples, contexts, strict=True):
        user = fit_for(loaded, told, question=example.question, responses=(example.chosen, example.rejected))
        if user.problem:
            raise DataError(f"{loaded.spec}: example {example.id} does not fit its window even without posts.")
        inputs += inputs_of(example, user)
    values: list[float] = []
    step = 2 * loaded.items_per_step
    for start in range(0, len(inputs), step):
        for score in model.score(inputs[start : start + step]):
            if score.value is None:
                raise DataError(f"{loaded.spec}: gives a held-out pair no score ({score.detail or score.problem}).")
            values.append(score.value)
    margins: Doubles = np.array(values[::2]) - np.array(values[1::2])
    return margins


def fit_weights(margins: Doubles, penalty: float) -> Doubles:
    """Return the weights w >= 0 that minimize 1000 mean log(1 + exp(-w.m)) + penalty / 2 sum (spread w)^2."""
    spread = np.sqrt((margins**2).mean(axis=0))
    used = spread > 0
    scaled = margins[:, used] / spread[used]

    def loss(weights: Doubles) -> tuple[float, Doubles]:
        total = scaled @ weights
        wrong = np.exp(-np.logaddexp(0, total))  # 1 - sigmoid
        value = 1000 * np.logaddexp(0, -total).mean() + penalty / 2 * weights @ weights
        return float(value), -1000 * (wrong @ scaled) / len(scaled) + penalty * weights

    weights = np.zeros(margins.shape[1])
    if used.any():  # else nobody tells anything
        start = np.full(int(used.sum()), 1 / used.sum())
        found = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=[(0, None)] * len(start), tol=1e-10)
        weights[used] = found.x / spread[used]
    return weights
