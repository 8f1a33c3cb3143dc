"""Blends: weights by another solver, scores by hand, members that are gone, changed or unfit."""

import json
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import minimize
from tests.support.contexts import profile

from prbench.errors import DataError, UsageError
from prbench.reward_models import ModelSettings, load_reward_model
from prbench.reward_models.base import LoadedModel
from prbench.reward_models.blend import BlendReward, EnsembleMember
from prbench.runs import SUMMARY
from prbench.schema import Example, Post, Problem, RewardInput, Score, User
from prbench.training import blend as blend_method
from prbench.training.blend import BlendConfig, fit_weights, margins_of, train_blend
from prbench.training.data import TrainingData, make_training_data
from prbench.training.folder import no_progress
from prbench.training.methods import load_method, make_config, run_method

POSTS = ("I love trains.", "A walk by the sea.")


class Says:
    """A model that gives every response one number, and remembers what it was shown."""

    def __init__(self, value: float | None, problem: Problem = Problem.FAILED) -> None:
        self.value, self.problem = value, problem
        self.seen: list[RewardInput] = []

    def score(self, inputs: Sequence[RewardInput]) -> list[Score]:
        self.seen += inputs
        if self.value is None:
            return [Score(value=None, problem=self.problem, detail="no answer")] * len(inputs)
        return [Score(value=self.value)] * len(inputs)


def voice(model: Says, weight: float, alone: float, *, reads_user: bool = True) -> EnsembleMember:
    loaded = LoadedModel(spec="says", kind="custom", model=model)
    return EnsembleMember(loaded=loaded, reads_user=reads_user, weight=weight, weight_without_posts=alone)


def asked(*posts: str) -> RewardInput:
    return RewardInput(question="Which way?", user=profile(*posts), response="Take trains.")


def test_scores_are_added_by_weight_and_other_weights_hold_without_posts() -> None:
    blend = BlendReward([voice(Says(2.0), 0.5, 0.0), voice(Says(3.0), 1.0, 4.0)])
    with_posts, without = blend.score([asked(*POSTS), asked()])
    assert with_posts.value == 0.5 * 2 + 1.0 * 3
    assert without.value == 4.0 * 3


def test_a_member_without_users_sees_none_and_one_without_weight_is_not_asked() -> None:
    blind, reader, unused = Says(1.0), Says(1.0), Says(1.0)
    voices = [voice(blind, 1, 1, reads_user=False), voice(reader, 1, 1), voice(unused, 0, 0)]
    BlendReward(voices).score([asked(*POSTS)])
    assert [one.context for one in blind.seen] == [""]
    assert [one.user for one in reader.seen] == [profile(*POSTS)]
    assert not unused.seen


def test_where_one_cannot_tell_there_is_no_score() -> None:
    for order in ((None, 1.0), (1.0, None)):
        (score,) = BlendReward([voice(Says(value), 1, 1) for value in order]).score([asked(*POSTS)])
        assert (score.value, score.problem, score.detail) == (None, Problem.FAILED, "no answer")
    for problems in ((Problem.NO_VERDICT, Problem.FAILED), (Problem.FAILED, Problem.NO_VERDICT)):
        (score,) = BlendReward([voice(Says(None, problem), 1, 1) for problem in problems]).score([asked(*POSTS)])
        assert (score.value, score.problem) == (None, Problem.FAILED), "what is asked again counts for more"


def test_a_blend_fits_where_all_members_fit() -> None:
    def short(one: object) -> bool:
        assert isinstance(one, RewardInput)
        return len(one.context) < 30

    with_window = EnsembleMember(
        loaded=LoadedModel(spec="says", kind="custom", model=Says(1.0), fits=short),
        reads_user=True, weight=1.0, weight_without_posts=1.0,
    )  # fmt: skip
    fits = BlendReward([with_window, voice(Says(1.0), 1, 1)]).fits
    assert fits is not None
    assert fits(asked())
    assert not fits(asked(*POSTS))
    assert BlendReward([voice(Says(1.0), 1, 1)]).fits is None


def test_one_member_gets_the_weight_of_its_temperature() -> None:
    # Three of four pairs are right by the same margin m: the likelihood is best where sigmoid(w m) = 3/4.
    margins = np.array([[2.0], [2.0], [2.0], [-2.0]])
    assert fit_weights(margins, 0.0)[0] == pytest.approx(math.log(3) / 2, abs=1e-4)


def test_weights_are_those_of_another_solver_and_never_negative() -> None:
    dice = np.random.default_rng(3)
    truth = dice.normal(size=400)
    margins = np.stack([truth + dice.normal(size=400) + 0.5, 0.1 * truth + 0.3, -truth], axis=1)
    found = fit_weights(margins, 5.0)
    spread = np.sqrt((margins**2).mean(axis=0))

    def loss(weights: np.ndarray) -> float:
        penalty = 2.5 * float(((spread * weights) ** 2).sum())
        return 1000 * float(np.log1p(np.exp(-(margins @ weights))).mean()) + penalty

    other = minimize(loss, np.ones(3), method="SLSQP", bounds=[(0, None)] * 3, options={"ftol": 1e-12}).x
    assert found == pytest.approx(other, abs=2e-3)
    assert loss(found) <= loss(other) + 1e-6
    assert (found >= 0).all()
    assert fit_weights(np.zeros((4, 2)), 1.0).tolist() == [0.0, 0.0]  # members that never tell


def test_members_that_mislead_are_no_blend(
    data: TrainingData, models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blend_method, "margins_of", lambda loaded, examples, posts: -np.ones(len(examples)))
    with pytest.raises(DataError, match="nothing to blend"):
        train_blend(data, BlendConfig(models=f"{models / 'reads'},{models / 'blind'}"), tmp_path, no_progress)


def rows(split: str, number: int) -> list[Example]:
    wanted = ["trains", "planes"] * (number // 2)
    return [
        Example(
            id=f"{split}-{place}",
            user=User(
                id=f"{split}-{place}",
                profile=(Post(id="a", text=f"I love {want}."), Post(id="b", text=f"Day {place} of {split}.")),
            ),
            question="Which way?",
            chosen=f"Take {want} to Rome.",
            rejected=f"Take {'planes' if want == 'trains' else 'trains'} to Rome.",
        )
        for place, want in enumerate(wanted)
    ]


@pytest.fixture(scope="module")
def data() -> TrainingData:
    return make_training_data(rows("train", 24), rows("validation", 12))


@pytest.fixture(scope="module")
def models(data: TrainingData, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two trained members: one that reads posts, one that does not."""
    folder = tmp_path_factory.mktemp("models")
    for name, settings in (("reads", []), ("blind", ["knows_users=false"])):
        run_method(load_method("match"), data, make_config(load_method("match"), settings), folder / name)
    return folder


def test_a_trained_blend_adds_its_members_and_can_be_moved_with_them(
    data: TrainingData, models: Path, tmp_path: Path
) -> None:
    method = load_method("blend")
    config = make_config(method, [f"models={models / 'reads'},{models / 'blind'}"])
    trained = run_method(method, data, config, models / "both")
    assert trained.context == "profile"
    assert trained.facts["validation_accuracy"] == 1.0
    kept = json.loads((models / "both" / "blend.json").read_text())["members"]
    assert [(member["folder"], member["reads_user"]) for member in kept] == [("../reads", True), ("../blind", False)]
    models.rename(tmp_path / "elsewhere")
    try:
        blend = load_reward_model(f"blend:{tmp_path / 'elsewhere' / 'both'}", ModelSettings()).model
        parts = [load_reward_model(f"match:{tmp_path / 'elsewhere' / name}", ModelSettings()).model for name in
                 ("reads", "blind")]  # fmt: skip
        one, nobody = asked(*POSTS), asked()
        weights = [(member["weight"], member["weight_without_posts"]) for member in kept]
        said = parts[0].score([one])[0].value, parts[1].score([nobody])[0].value  # type: ignore[union-attr]
        assert blend.score([one])[0].value == pytest.approx(weights[0][0] * said[0] + weights[1][0] * said[1])  # type: ignore
        assert blend.score([nobody])[0].value == pytest.approx(
            weights[0][1] * parts[0].score([nobody])[0].value + weights[1][1] * said[1]  # type: ignore
        )
    finally:
        (tmp_path / "elsewhere").rename(models)


def test_a_blend_that_is_trained_anew_finds_its_members(data: TrainingData, models: Path, tmp_path: Path) -> None:
    method = load_method("blend")
    config = make_config(method, [f"models={models / 'reads'},{models / 'blind'}"])
    for fresh in (False, True):
        trained = run_method(method, data, config, tmp_path / "blend", fresh=fresh)
        (score,) = load_reward_model(trained.spec, ModelSettings()).model.score([asked(*POSTS)])  # type: ignore
        assert score.value is not None


def test_margins_are_those_of_an_evaluation(data: TrainingData, models: Path) -> None:
    from prbench.evaluation import evaluate

    loaded = load_reward_model(f"match:{models / 'reads'}", ModelSettings())
    run = evaluate(list(data.validation), f"match:{models / 'reads'}", "profile")
    own = {row.id: row.score_chosen - row.score_rejected for row in run.items if row.probe == "own"}  # type: ignore
    assert margins_of(loaded, data.validation, posts=10).tolist() == pytest.approx(
        [own[example.id] for example in data.validation]
    )


def test_members_that_are_gone_or_changed_are_refused(data: TrainingData, models: Path, tmp_path: Path) -> None:
    config = BlendConfig(models=f"{models / 'reads'},{models / 'blind'}")
    folder = tmp_path / "blend"
    folder.mkdir()
    train_blend(data, config, folder, no_progress)
    card = models / "blind" / "card.json"
    card.write_text("{}")
    try:
        with pytest.raises(UsageError, match="has changed since"):
            load_reward_model(f"blend:{folder}", ModelSettings())
    finally:
        card.unlink()
    load_reward_model(f"blend:{folder}", ModelSettings())
    kept = json.loads((folder / "blend.json").read_text())
    kept["members"][0]["folder"] = "../nowhere"
    (folder / "blend.json").write_text(json.dumps(kept))
    with pytest.raises(UsageError, match="is not there"):
        load_reward_model(f"blend:{folder}", ModelSettings())
    with pytest.raises(UsageError, match="no blend was trained there"):
        load_reward_model(f"blend:{tmp_path}", ModelSettings())
    (folder / "blend.json").write_text('{"members": [{"folder": "x"}]}')
    with pytest.raises(UsageError, match="is damaged"):
        load_reward_model(f"blend:{folder}", ModelSettings())


def test_what_cannot_be_weighed_is_refused(data: TrainingData, models: Path, tmp_path: Path) -> None:
    both = f"{models / 'reads'},{models / 'blind'}"
    with pytest.raises(UsageError, match="at least two folders"):
        BlendConfig(models=str(models / "reads"))
    with pytest.raises(UsageError, match="each once"):
        BlendConfig(models=f"{models / 'reads'},{models / 'reads'}")
    with pytest.raises(UsageError, match="no finished model"):
        train_blend(data, BlendConfig(models=f"{both},{tmp_path}"), tmp_path, no_progress)
    other = make_training_data(rows("train", 24), rows("others", 12))
    with pytest.raises(DataError, match="was trained on other rows"):
        train_blend(other, BlendConfig(models=both), tmp_path, no_progress)
    with pytest.raises(UsageError, match="was trained on 30 recent posts, and this blend shows 10 recent ones"):
        train_blend(data, BlendConfig(models=both, posts=10), tmp_path, no_progress)
    trained = models / "blind" / SUMMARY
    before = trained.read_text()
    try:
        trained.write_text(before.replace('"shots": 0', '"shots": 10'))
        with pytest.raises(UsageError, match="reads labeled pairs"):
            train_blend(data, BlendConfig(models=both), tmp_path, no_progress)
    finally:
        trained.write_text(before)
