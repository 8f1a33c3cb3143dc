"""The figures from end to end, on pools whose best answers are known."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.bon.conftest import ByWords, Counting, worth

from prbench.backends.llm import FakeLLM
from prbench.backends.policy import Prompt, Sample
from prbench.data import DataSettings
from prbench.downstream.best_of_n.run import BonRun, BonSettings, best_of_n
from prbench.downstream.best_of_n.summary import best_of_each
from prbench.errors import RunError, UsageError
from prbench.evaluation import EvalSettings
from prbench.judging import RubricJudge
from prbench.reward_models.base import LoadedModel
from prbench.reward_models.fake import FakeReward
from prbench.schema import Example, Problem, RewardInput, Score

Rows = Callable[[int], list[dict[str, Any]]]


def loaded(name: str, function: Callable[[RewardInput], float | None]) -> LoadedModel:
    return LoadedModel(spec=name, kind="custom", model=FakeReward(function, name=name), identity={"fake": name})


def knowing(each: RewardInput) -> float:
    """Right for users 0 and 1; the worst answer for user 2, whoever asks."""
    return -worth(each.response) if "User 2 wrote" in each.context else worth(each.response)


def run(rows: list[dict[str, Any]], models: Sequence[Any], out: Path, **more: Any) -> BonRun:
    settings = BonSettings(n=4, context=EvalSettings(posts=2))
    return best_of_n(rows, more.pop("policy", Counting()), models, settings, out=out, judge=ByWords(), **more)


def test_the_figures_by_hand(rows: Rows, tmp_path: Path) -> None:
    # Every pool is worth 0, 1, 2, 3: one answer 1.5, the best of four 3, the worst 0.
    models = run(rows(12), [loaded("right", lambda each: worth(each.response)), loaded("some", knowing)], tmp_path)
    right, some, oracle = (models.summary["models"][name] for name in ("right", "some", "oracle"))
    by_n = best_of_each([0, 1, 2, 3], [0, 1, 2, 3])
    assert [right["value_at"][n]["value"] for n in ("1", "2", "4")] == pytest.approx(by_n[[0, 1, 3]])
    assert right["captured_headroom"]["value"] == pytest.approx(1.0)
    assert right["regret"]["value"] == 0
    assert right["win_rate"]["value"] == pytest.approx(3.5 / 4)
    assert right["swap"]["drop"]["value"] == 0
    assert right["proxy_gold_gap"]["value"] == pytest.approx(0.0)
    # Two users of three get 3, the third gets 0: the mean is 2, and a third of 1.5 / 1.5 is captured.
    assert some["value_at"]["4"]["value"] == pytest.approx(2.0)
    assert some["captured_headroom"]["value"] == pytest.approx((2.0 - 1.5) / (3.0 - 1.5))
    assert some["regret"]["value"] == pytest.approx(1.0)
    assert some["value_at"]["4"]["low"] < 2.0 < some["value_at"]["4"]["high"]
    assert oracle["captured_headroom"] == {"value": 1.0, "low": 1.0, "high": 1.0, "n": 12}
    assert oracle["swap"] is None
    assert models.summary["users"] == 3
    assert models.summary["questions"] == 12


def test_another_users_profile_moves_what_depends_on_it(rows: Rows, tmp_path: Path) -> None:
    figures = run(rows(12), [loaded("some", knowing)], tmp_path).summary["models"]["some"]
    own, swapped, drop = (figures["swap"][name]["value"] for name in ("own", "value", "drop"))
    donors_of_user_2 = (3.0 - swapped) / 3.0  # the share of questions for which user 2's profile was shown
    assert own == pytest.approx(2.0)
    assert drop == pytest.approx(own - swapped)
    assert 0 < donors_of_user_2 < 1


def test_who_has_no_counterpart_is_left_out_of_the_swap_alone(rows: Rows, tmp_path: Path) -> None:
    # User 2 is alone in a category of their own, so nobody's profile can stand in for theirs.
    alone = [row | ({"category": "alone"} if row["user_id"] == "user-2" else {}) for row in rows(12)]
    figures = run(alone, [loaded("some", knowing)], tmp_path).summary["models"]["some"]
    assert figures["value_at"]["4"]["value"] == pytest.approx(2.0)
    assert {name: (each["value"], each["n"]) for name, each in figures["swap"].items()} == {
        "own": (3.0, 8),
        "value": (3.0, 8),
        "drop": (0.0, 8),
        "captured_headroom": (1.0, 8),
    }


def test_a_constant_reward_is_worth_one_answer_at_every_n_and_reported_as_tied(rows: Rows, tmp_path: Path) -> None:
    figures = run(rows(12), [loaded("same", lambda each: 0.0)], tmp_path).summary["models"]["same"]
    assert figures["curve"] == pytest.approx([1.5] * 4)
    assert figures["captured_headroom"]["value"] == pytest.approx(0.0)
    assert figures["ties"] == {"pools": 1.0, "consequential": 1.0, "size": 4.0}
    assert figures["proxy_gold_gap"] is None
    assert figures["win_rate"]["value"] == pytest.approx(0.5)


def test_questions_without_scores_are_left_out_of_that_model_alone(rows: Rows, tmp_path: Path) -> None:
    class Breaking:
        def score(self, inputs: Sequence[RewardInput]) -> list[Score]:
            bad = Score(value=None, problem=Problem.FAILED, detail="time-out")
            return [bad if "item-002" in each.response else Score(value=worth(each.response)) for each in inputs]

    broken = LoadedModel(spec="broken", kind="custom", model=Breaking(), identity={"b": 1})
    models = run(rows(12), [broken, loaded("right", lambda each: worth(each.response))], tmp_path).summary["models"]
    assert (models["broken"]["questions"], models["broken"]["left_out"]) == (11, {"failed": 1})
    assert models["broken"]["captured_headroom"]["value"] == pytest.approx(1.0)  # a failure costs nothing
    assert models["right"]["questions"] == 12


def test_a_model_without_any_score_has_no_figures(rows: Rows, tmp_path: Path) -> None:
    figures = run(rows(12), [loaded("mute", lambda each: None)], tmp_path).summary["models"]["mute"]
    assert figures["questions"] == 0
    assert figures["left_out"] == {"no_verdict": 12}
    assert figures["captured_headroom"] is None
    assert figures["value_at"] == {"1": None, "2": None, "4": None}
    assert figures["curve"] is None


def test_failed_samples_leave_their_question_out_for_all(rows: Rows, tmp_path: Path) -> None:
    models = [loaded("right", lambda each: worth(each.response))]
    summary = run(rows(12), models, tmp_path, policy=Counting(failing=["item-001"])).summary
    assert summary["left_out"] == {"sampling": 1, "grading": 0}
    assert summary["questions"] == 11
    everything = [f"item-{number:03d}" for number in range(12)]
    with pytest.raises(RunError, match=r"0 of 12 questions .* The first reason: HTTP 500"):
        run(rows(12), models, tmp_path / "none", policy=Counting(failing=everything))


def test_differences_between_models_are_paired(rows: Rows, tmp_path: Path) -> None:
    right = loaded("right", lambda each: worth(each.response))
    half = loaded("half", lambda each: worth(each.response) / 2 - 7)
    found = {
        (each["first"], each["second"]): each["difference"]
        for each in run(rows(12), [right, half, loaded("some", knowing)], tmp_path).summary["differences"]
    }
    # Two models that pick alike cannot differ, whichever users are drawn.
    assert found["right", "half"] == {"value": 0.0, "low": 0.0, "high": 0.0, "n": 12}
    assert found["right", "some"]["value"] == pytest.approx(1.0)
    assert ("right", "random") in found
    assert not any("oracle" in pair for pair in found)


def test_p_values_of_differences_are_adjusted_for_all_pairs(rows: Rows, tmp_path: Path) -> None:
    right = loaded("right", lambda each: worth(each.response))
    alike = loaded("alike", lambda each: 2 * worth(each.response))
    alone = run(rows(12), [right], tmp_path).summary["differences"]
    among = run(rows(12), [right, alike, loaded("some", knowing)], tmp_path).summary["differences"]
    (raw,) = (each["holm_p"] for each in alone)
    found = {(each["first"], each["second"]): each["holm_p"] for each in among}
    assert 0 < raw < 0.1
    assert found["right", "alike"] == 1
    # The smallest of six, which Holm counts in full; other draws of users.
    assert found["right", "random"] == pytest.approx(6 * raw, rel=0.05)
    assert found["right", "some"] >= found["right", "random"]


class Untouched(Counting):
    """A policy that must not be asked: what is wrong is known before."""

    def sample(self, prompts: Sequence[Prompt], *, n: int, seed: int) -> list[list[Sample]]:
        raise AssertionError("sampled before the models were checked")


@pytest.mark.parametrize(
    "spec,line",
    [
        ("nope:x", "Unknown kind 'nope'"),
        ("fake:length?colour=red", "colour"),
        ("head:{}/nowhere", "nowhere"),
        ("planner:{}/nowhere", "there is no .*nowhere"),
        ("blend:nowhere", "there is no nowhere"),
        ("classifier:{}/nowhere?context=none", "there is no .*nowhere"),
        ("rating:hf:{}/nowhere", "there is no .*nowhere"),
        ("implicit:org/policy,{}/nowhere", "there is no .*nowhere"),
        ("fake:length?context=plan", "needs a planner"),
        ("control:nothing", "nothing"),
    ],
)
def test_a_model_that_cannot_be_is_refused_before_sampling(rows: Rows, tmp_path: Path, spec: str, line: str) -> None:
    with pytest.raises(UsageError, match=line):
        run(rows(12), ["fake:length", spec.format(tmp_path)], tmp_path / "out", policy=Untouched())
    assert not (tmp_path / "out" / "pools").exists()


def test_what_a_judge_cannot_grade_is_refused_before_sampling(rows: Rows, tmp_path: Path) -> None:
    class ByRubric(ByWords):
        def check(self, examples: Sequence[Example]) -> None:
            RubricJudge(FakeLLM("")).check(examples)

    bare = [row | ({"rubric_aspects": []} if row["id"] == "item-007" else {}) for row in rows(12)]
    with pytest.raises(UsageError, match="item-007: has no rubric"):
        best_of_n(bare, Untouched(), ["fake:length"], BonSettings(n=4), out=tmp_path, judge=ByRubric())


def test_headroom_by_group(rows: Rows, tmp_path: Path) -> None:
    marked = [row | {"meta": {"posts": 16 if row["user_id"] == "user-2" else 8}} for row in rows(12)]
    both = [row | {"meta": {"posts": 8}} if row["id"] == "item-002" else row for row in marked]
    summary = run(both, [loaded("some", knowing)], tmp_path, group_by=["posts", "category"]).summary
    few, many = summary["groups"]["posts"]
    assert [(each["group"], each["questions"]) for each in (few, many)] == [("8", 9), ("16", 3)]
    # Eight questions are answered best and one worst: 8 * 1.5 - 1.5 of 9 * 1.5.
    assert few["captured_headroom"]["some"]["value"] == pytest.approx(7 / 9)
    assert many["captured_headroom"]["some"] is None  # one user has no interval over users
    assert len(summary["groups"]["category"]) == 2
    crossed = run(both, [loaded("some", knowing)], tmp_path, group_by=["posts,category"]).summary["groups"]
    counted = {group["group"]: group["questions"] for group in crossed["posts,category"]}
    assert sum(counted[f"posts=8, category={each['group']}"] for each in summary["groups"]["category"]) == 9
    assert sum(counted.values()) == 12
    with pytest.raises(UsageError, match=r"--group-by height: no row .* Known here: category, posts"):
        run(both, [loaded("some", knowing)], tmp_path, group_by=["height"])


def test_the_same_command_again_computes_nothing_and_writes_the_same_bytes(rows: Rows, tmp_path: Path) -> None:
    policy = Counting()
    model = loaded("some", knowing)
    first = run(rows(12), [model], tmp_path, policy=policy)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.json*") if path.name != "timing.json"}
    calls = model.model.calls  # type: ignore[union-attr]
    second = run(rows(12), [model], tmp_path, policy=policy)
    assert second.summary == first.summary
    assert len(policy.asked) == 12
    assert model.model.calls == calls  # type: ignore[union-attr]
    assert {path: path.read_bytes() for path in before} == before


def test_a_second_model_does_not_overwrite_the_first(rows: Rows, tmp_path: Path) -> None:
    policy = Counting()
    one = run(rows(12), [loaded("some", knowing)], tmp_path, policy=policy)
    two = run(rows(12), [loaded("same", lambda each: 0.0)], tmp_path, policy=policy)
    assert one.folder != two.folder
    assert one.summary["pool"] == two.summary["pool"]
    assert len(policy.asked) == 12
    assert set(json.loads((one.folder / "summary.json").read_text())["models"]) == {"some", "random", "oracle"}
    assert set(json.loads((two.folder / "summary.json").read_text())["models"]) == {"same", "random", "oracle"}


def test_what_cannot_be_asked_is_refused_before_anything_is_sampled(rows: Rows, tmp_path: Path) -> None:
    policy = Counting()
    for models, line in (
        ([], "no reward model"),
        (["judge:fake:Result: A"], "only compares"),
        (["control:overlap?context=some"], "one of: none, profile"),
    ):
        with pytest.raises(UsageError, match=line):
            run(rows(12), models, tmp_path, policy=policy)
    with pytest.raises(UsageError, match="names no judge that knows"):
        best_of_n(rows(12), policy, ["control:overlap"], BonSettings(n=4), out=tmp_path)
    with pytest.raises(UsageError, match="--policy-context plan needs a planner"):
        best_of_n("lab", policy, ["control:overlap"], BonSettings(n=4, policy_context="plan"), out=tmp_path)
    assert not policy.asked


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> BonRun:
    settings = BonSettings(n=16, users=100, context=EvalSettings(posts=30))
    models = ["control:gold?context=oracle", "control:overlap", "control:longest?context=none"]
    return best_of_n("lab", "lab", models, settings, out=tmp_path_factory.mktemp("lab"), which=DataSettings())


def test_in_the_lab_chance_captures_nothing_and_the_truth_everything(lab: BonRun) -> None:
    models = lab.summary["models"]
    for name in ("random", "control:longest?context=none"):
        assert models[name]["captured_headroom"]["low"] <= 0 <= models[name]["captured_headroom"]["high"]
    assert models["control:gold?context=oracle"]["captured_headroom"]["value"] == pytest.approx(1.0)
    assert models["control:gold?context=oracle"]["swap"] is None
    assert models["control:overlap"]["swap"] is not None
    assert models["control:longest?context=none"]["context"] == "none"


def test_in_the_lab_every_sampled_answer_is_on_the_subject(lab: BonRun) -> None:
    quality = lab.summary["models"]["control:overlap"]["quality_at"]
    assert [quality[n]["value"] for n in quality] == pytest.approx([1.0] * 5)


def test_curves_rise_for_the_oracle_and_meet_at_one_answer(lab: BonRun) -> None:
    models = lab.summary["models"]
    assert np.all(np.diff(models["oracle"]["curve"]) > 0)
    assert len({round(figures["curve"][0], 12) for figures in models.values()}) == 1
    assert models["oracle"]["best_n"] == 16
    assert models["oracle"]["kl_bound_at"]["16"] == pytest.approx(np.log(16) - 15 / 16)
