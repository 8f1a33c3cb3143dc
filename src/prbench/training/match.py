"""Train a model of what responses touch in a user's posts (`prbench.reward_models.match` has the formula).

Two logistic regressions on differences of features, chosen less rejected: one on all features, one on those that know
no users, for people without posts. Both are convex and start from nothing, so nothing is drawn and nothing can be
interrupted half-way. Features are divided by their spread first; how strongly weights are drawn to 0 is chosen by the
likelihood of held-out users' pairs. The few features that are no coordinates of an embedding are drawn a hundredth as
strongly.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from prbench.backends.encoders import load_encoder
from prbench.errors import UsageError
from prbench.reward_models.match import USER_FEATURES, Features, Matcher, MatchWeights, score_features
from prbench.runs.manifest import Keys
from prbench.schema import Example, Json
from prbench.training.calibrate import calibrate_margins
from prbench.training.data import PROFILES, TrainingData, check_training_data
from prbench.training.folder import Progress, Trained
from prbench.training.inputs import pair_inputs

PENALTIES = (1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0)  # per squared weight, against the loss of 1,000 pairs
LIGHT = 0.01  # share of the penalty on what is no coordinate of an embedding: few features, each with a meaning
_STEPS = 1000  # of the solver, at most

Doubles = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class MatchConfig:
    """How to train."""

    encoder: str = "minilm"
    posts: int = 30  # of each profile, the newest
    knows_users: bool = True
    penalty: float = 0.0  # 0: the one of PENALTIES that suits held-out users best
    seed: int = 0  # nothing is drawn: every seed gives the same model

    KEYS: ClassVar[Keys] = Keys(encoder="minilm", posts=30, knows_users=True, penalty=0.0, seed=0)

    def to_config(self) -> dict[str, Json]:
        """Return what takes part in the identity of a run."""
        return self.KEYS.write(self)

    def __post_init__(self) -> None:
        """Refuse what cannot be trained."""
        if self.posts < 1:
            raise UsageError(f"posts={self.posts} trains nothing. Give a whole number above 0.")
        if self.penalty < 0:
            raise UsageError(f"penalty={self.penalty} would reward large weights. Give 0 or more.")


@dataclass(frozen=True)
class Differences:
    """Features of chosen less those of rejected, one row per pair."""

    free: Doubles
    user: Doubles

    @property
    def all(self) -> Doubles:
        """Every feature."""
        return np.concatenate([self.free, self.user], axis=1)


def train_match(data: TrainingData, config: MatchConfig, folder: Path, say: Progress) -> Trained:
    """Train into a folder that `--model match:FOLDER` takes."""
    check_training_data(data, needs=(PROFILES,) if config.knows_users else ())
    encoder = load_encoder(config.encoder)
    matcher = Matcher(encoder)
    steps = 4
    say(0, steps, "features of training users")
    train = _differences(_features(matcher, data.train, config))
    say(1, steps, "features of held-out users")
    measured = _features(matcher, data.validation, config)
    held_out = _differences(measured)
    say(2, steps, "weights without users")
    size = train.free.shape[1]
    alone = _fit(train.free, held_out.free, size - 1, config.penalty)
    say(3, steps, "weights")
    known = _fit(train.all, held_out.all, size - 1, config.penalty) if config.knows_users else alone
    user = known.weights[size:] if config.knows_users else np.zeros(len(USER_FEATURES))
    weights = _as_arrays(alone.weights, known.weights[:size], user, 1.0)
    margins = _margins(weights, measured)
    calibrated = calibrate_margins(margins, [example.user.id for example in data.validation])
    _as_arrays(alone.weights, known.weights[:size], user, 1 / calibrated.temperature).save(folder)
    facts: dict[str, Json] = {
        "encoder": dict(encoder.identity),
        "parameters": known.weights.size + alone.weights.size,
        "penalty": known.penalty,
        "penalty_without_users": alone.penalty,
        "validation_accuracy": round(float(np.mean(np.sign(margins) + 1) / 2), 4),
        **calibrated.facts,
        "weights": _by_name(user, train.user),
    }
    spec = f"match:{folder}" + ("" if config.encoder == "minilm" else f"?encoder={config.encoder}")
    return Trained(spec=spec, context="profile" if config.knows_users else "none", facts=facts)


@dataclass(frozen=True)
class _Fitted:
    weights: Doubles  # of features as they are
    penalty: float


def _fit(train: Doubles, held_out: Doubles, coordinates: int, penalty: float) -> _Fitted:
    tries = [_Fitted(fit_pairs(train, coordinates, each), each) for each in ((penalty,) if penalty else PENALTIES)]
    return min(tries, key=lambda one: pair_loss(held_out @ one.weights))


def fit_pairs(differences: Doubles, coordinates: int, penalty: float) -> Doubles:
    """Return the weights w that minimise 1000 mean log(1 + exp(-w.d)) + penalty / 2 sum (share spread^2 w^2).

    The share is 1 for the first so many features and LIGHT for the others.
    """
    from sklearn.linear_model import LogisticRegression

    spread = np.sqrt((differences**2).mean(axis=0))
    spread[coordinates:] *= LIGHT**0.5
    used = spread > 0
    scaled = differences[:, used] / spread[used]
    # Each pair both ways round, at half its weight: the same loss, and both classes that the library asks for.
    both, labels = np.concatenate([scaled, -scaled]), np.repeat([1, 0], len(scaled))
    model = LogisticRegression(C=1 / penalty, fit_intercept=False, max_iter=_STEPS, tol=1e-8)
    model.fit(both, labels, sample_weight=np.full(len(both), 500 / len(scaled)))
    weights = np.zeros(differences.shape[1])
    weights[used] = model.coef_[0] / spread[used]
    return weights


def pair_loss(margins: Doubles) -> float:
    """Return the Bradley-Terry loss, -log sigmoid(margin), averaged."""
    return float(np.logaddexp(0, -margins).mean())


def _features(matcher: Matcher, examples: Sequence[Example], config: MatchConfig) -> Features:
    return matcher.features(pair_inputs(examples, posts=config.posts if config.knows_users else 0))


def _differences(features: Features) -> Differences:
    return Differences(free=features.free[::2] - features.free[1::2], user=features.user[::2] - features.user[1::2])


def _margins(weights: MatchWeights, features: Features) -> Doubles:
    scores = score_features(weights, features)
    margins: Doubles = scores[::2] - scores[1::2]
    return margins


def _as_arrays(alone: Doubles, known_free: Doubles, known_user: Doubles, scale: float) -> MatchWeights:
    arrays = (np.asarray(each, dtype=np.float32) for each in (alone, known_free, known_user, scale))
    return MatchWeights(**dict(zip(MatchWeights.__dataclass_fields__, arrays, strict=True)))


def _by_name(user: Doubles, differences: Doubles) -> Json:
    """What one spread of each feature is worth, for the card."""
    spread = np.sqrt((differences**2).mean(axis=0))
    return {name: round(float(value), 3) for name, value in zip(USER_FEATURES, user * spread, strict=True)}
