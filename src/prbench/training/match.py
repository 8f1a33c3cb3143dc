"""Train a model of what responses touch in a user's posts (`prbench.reward_models.match` has the formula).

Two logistic regressions on differences of features, chosen less rejected: one on all features, one on those that know
no users, for people without posts. Both are convex and start from nothing, so nothing is drawn and nothing can be
interrupted half-way. Features are divided by their spread first; how strongly weights are drawn to 0 is chosen by the
likelihood of held-out users' pairs. The few features that are no coordinates of an embedding are drawn a hundredth as
strongly.

It stays because on text of others it is as good as a fine-tuned backbone (`bt`), and gains from posts.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from prbench.backends.encoders import load_encoder
from prbench.metrics.calibration import accuracy_of, calibrate_margins
from prbench.reward_models.match import USER_FEATURES, Matcher, MatchWeights, score_features
from prbench.runs import Keys
from prbench.schema import Json
from prbench.specs import Count, NotNegative
from prbench.training.data import PROFILES, TrainingData, check_training_data, pair_inputs
from prbench.training.folder import MethodConfig, ProgressCallback, Trained, spec_with_encoder

PENALTIES = (1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0)  # per squared weight, against the loss of 1,000 pairs
LIGHT = 0.01  # share of the penalty on what is no coordinate of an embedding: few features, each with a meaning
_STEPS = 1000  # of the solver, at most

Doubles = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class MatchConfig(MethodConfig):
    """How to train."""

    encoder: str = "minilm"
    posts: Count = 30  # of each profile, the newest
    knows_users: bool = True
    penalty: NotNegative = 0.0  # 0: the one of PENALTIES that suits held-out users best
    seed: int = 0  # nothing is drawn: every seed gives the same model

    KEYS: ClassVar[Keys] = Keys(encoder="minilm", posts=30, knows_users=True, penalty=0.0, seed=0)


def train_match(data: TrainingData, config: MatchConfig, folder: Path, progress: ProgressCallback) -> Trained:
    """Train into a folder that `--model match:FOLDER` takes."""
    check_training_data(data, needs=(PROFILES,) if config.knows_users else ())
    encoder = load_encoder(config.encoder)
    matcher, posts, steps = Matcher(encoder), config.posts if config.knows_users else 0, 4
    progress(0, steps, "features of training users")
    # One row per pair, chosen less rejected: of features that know no users, and of those that do.
    features = matcher.features(pair_inputs(data.train, posts=posts))
    train, train_user = (each[::2] - each[1::2] for each in (features.free, features.user))  # (pairs, features)
    progress(1, steps, "features of held-out users")
    features = matcher.features(pair_inputs(data.validation, posts=posts))
    held_out, held_out_user = (each[::2] - each[1::2] for each in (features.free, features.user))
    progress(2, steps, "weights without users")
    size = train.shape[1]
    alone, penalty_alone = _fit(train, held_out, size - 1, config.penalty)
    progress(3, steps, "weights")
    known, penalty, user = alone, penalty_alone, np.zeros(len(USER_FEATURES))
    if config.knows_users:
        known, penalty = _fit(
            np.concatenate([train, train_user], axis=1),
            np.concatenate([held_out, held_out_user], axis=1),
            size - 1,
            config.penalty,
        )
        user = known[size:]

    def weights(temperature: float) -> MatchWeights:
        arrays = (np.asarray(each, dtype=np.float32) for each in (alone, known[:size], user, 1 / temperature))
        return MatchWeights(**dict(zip(MatchWeights.__dataclass_fields__, arrays, strict=True)))

    scores = score_features(weights(1.0), features)
    margins = scores[::2] - scores[1::2]
    calibrated = calibrate_margins(margins, [example.user.id for example in data.validation])
    weights(calibrated.temperature).save(folder)
    worth = user * np.sqrt((train_user**2).mean(axis=0))  # of one spread of each feature
    facts: dict[str, Json] = {
        "encoder": dict(encoder.identity),
        "parameters": known.size + alone.size,
        "penalty": penalty,
        "penalty_without_users": penalty_alone,
        "validation_accuracy": round(accuracy_of(margins), 4),
        **calibrated.facts,
        "weights": {name: round(float(value), 3) for name, value in zip(USER_FEATURES, worth, strict=True)},
    }
    spec = spec_with_encoder("match", folder, config.encoder)
    return Trained(spec=spec, context="profile" if config.knows_users else "none", facts=facts)


def _fit(train: Doubles, held_out: Doubles, coordinates: int, penalty: float) -> tuple[Doubles, float]:
    """Return the weights that suit held-out users best, and their penalty."""
    tries = [(fit_pairs(train, coordinates, each), each) for each in ((penalty,) if penalty else PENALTIES)]
    return min(tries, key=lambda one: pair_loss(held_out @ one[0]))


def fit_pairs(differences: Doubles, coordinates: int, penalty: float) -> Doubles:
    """Return the weights w that minimize 1000 mean log(1 + exp(-w.d)) + penalty / 2 sum (share spread^2 w^2).

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
