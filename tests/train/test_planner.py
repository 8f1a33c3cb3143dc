"""Training a planner and its scorer: losses and thresholds by hand, and a tiny population that can be learned."""

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.support.contexts import profile

from prbench.context import make_context
from prbench.context.aspect_planner import AspectPlanner, BankAspect
from prbench.context.posts import Ask
from prbench.errors import DataError, UsageError
from prbench.reward_models import ModelSettings, load_reward_model
from prbench.reward_models.planner import CriteriaScorer, PlannerReward
from prbench.runs import Checkpoint
from prbench.schema import Aspect, Example, Post, RewardInput, User
from prbench.training import planner as planner_module
from prbench.training.criteria import Criteria, CriteriaConfig, train_criteria
from prbench.training.data import make_training_data
from prbench.training.folder import no_progress
from prbench.training.loop import aspects_by_question, rubric_loss
from prbench.training.methods import load_method, make_config, run_method
from prbench.training.planner import (
    LearnedPlanner,
    PlannerConfig,
    choose_thresholds,
    learn_planner,
    make_bank,
    user_cases,
)

WORDS = ("cheap", "quick", "money", "hurry", "walk", "tea", "sea", "book")
SMALL = PlannerConfig(topics=4, members=2, epochs=25, patience=25, batch_size=16, dropout=0.0, criteria_rank=4)


class Words:
    """An encoder that counts eight words, so that a test knows every vector."""

    name = "words"
    identity = {"name": "words"}  # noqa: RUF012

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        counts = np.array([[text.lower().count(word) for word in WORDS] for text in texts], dtype=np.float32)
        counts = counts.reshape(len(texts), len(WORDS))
        return counts / np.maximum(np.linalg.norm(counts, axis=1, keepdims=True), 1)


def example(number: int, *, thrifty: bool, split: str) -> Example:
    wanted, other = ("cheap", "quick") if thrifty else ("quick", "cheap")
    post = "I count my money." if thrifty else "I am in a hurry."
    return Example(
        id=f"{split}-{number}",
        user=User(
            id=f"{split}-{number}",
            profile=(Post(id="p", text=post), Post(id="n", text=f"A walk by the sea, {split} {number}.")),
        ),
        question="What now?",
        chosen=f"Take the {wanted} tea. Read a book.",
        rejected=f"Take the {other} tea. Read a book.",
        rubric=(Aspect(aspect=wanted),),
    )


def population(count: int, split: str) -> list[Example]:
    return [example(number, thrifty=number % 2 == 0, split=split) for number in range(count)]


@pytest.fixture(scope="module")
def learned(tmp_path_factory: pytest.TempPathFactory) -> LearnedPlanner:
    data = make_training_data(population(64, "train"), population(32, "validation"))
    return learn_planner(data, SMALL, Words(), tmp_path_factory.mktemp("planner"), no_progress)


def planner_of(learned: LearnedPlanner) -> AspectPlanner:
    return AspectPlanner(learned.planner.weights, learned.planner.bank, Words())


def test_the_rubric_loss_counts_real_aspects_only_and_averages_members() -> None:
    logits = torch.tensor([[[0.0, 2.0, 9.0]], [[1.0, 0.0, 9.0]]])  # two members, one case, three aspects
    wanted, mask = torch.tensor([[1.0, 0.0, 1.0]]), torch.tensor([[1.0, 1.0, 0.0]])
    each = [math.log(2), math.log(1 + math.exp(2)), math.log(1 + math.exp(-1)), math.log(2)]
    assert float(rubric_loss(logits, wanted, mask)) == pytest.approx(sum(each) / 4)


def test_the_module_covers_what_the_numpy_scorer_covers() -> None:
    torch.manual_seed(0)
    module = Criteria(8, 3, 0.5).eval()
    with torch.no_grad():
        module.sharpness.fill_(1.5)
        module.none.fill_(0.3)
    texts, response = ["cheap", "quick money"], "Take the cheap tea. A quick walk by the sea."
    expected = CriteriaScorer(module.weights(), Words()).covered([texts], [response])[0]
    criteria = torch.from_numpy(Words().encode([*texts, "padding"]))[None]
    parts = torch.from_numpy(Words().encode(["Take the cheap tea.", "A quick walk by the sea.", "book"]))[None]
    found = module.covered(criteria, torch.tensor([[1.0, 1.0, 0.0]]), parts, torch.tensor([[1.0, 1.0, 0.0]]))
    assert found[0, :2].tolist() == pytest.approx(expected.tolist(), abs=1e-6)


def test_aspects_of_other_users_with_the_same_question_are_rivals() -> None:
    assert aspects_by_question(population(3, "t")) == {"What now?": ["cheap.", "quick."]}


def test_the_scorer_learns_from_pairs_and_rubrics(tmp_path: Path) -> None:
    data = make_training_data(population(64, "train"), population(32, "validation"))
    config = CriteriaConfig(rank=4, epochs=4, batch_size=16, learning_rate=1e-2)
    weights, best = train_criteria(data, Words(), config, Checkpoint(path=tmp_path / "scorer", key="scorer"))
    assert best.accuracy == 1.0
    shares = CriteriaScorer(weights, Words()).covered([["cheap.", "quick."]], ["Take the quick tea."])[0]
    assert shares[1] > shares[0]


def test_the_bank_knows_how_many_of_those_who_ask_look_for_what() -> None:
    rows = population(5, "t")  # three thrifty, two hasty
    bank = make_bank(rows, Words())
    assert bank.aspects == (BankAspect("cheap"), BankAspect("quick"))
    assert bank.shares.tolist() == [[pytest.approx((3 + 1) / (5 + 2)), pytest.approx((2 + 1) / (5 + 2))]]


def test_how_common_an_aspect_is_is_told_by_others_alone() -> None:
    rows = population(5, "t")  # three thrifty, two hasty
    cases, _ = user_cases(rows, make_bank(rows, Words()), Words(), SMALL)
    thrifty = [math.log((2 + 1) / (4 + 2) / (1 - (2 + 1) / (4 + 2))), 0.0]  # two of four others, and two of four
    hasty = [math.log((3 + 1) / 6 / (1 - (3 + 1) / 6)), math.log((1 + 1) / 6 / (1 - (1 + 1) / 6))]
    np.testing.assert_allclose(cases.prior[:2].numpy(), [thrifty, hasty], atol=1e-6)
    assert cases.wanted[:2].tolist() == [[1, 0], [0, 1]]


def test_questions_that_are_asked_once_borrow_what_is_unwanted_from_near_ones() -> None:
    rows = [replace(row, question=f"What tea, {number}?") for number, row in enumerate(population(4, "t"))]
    cases, _ = user_cases(rows, make_bank(rows, Words()), Words(), SMALL)
    assert cases.wanted[0].tolist() == [1, 0]
    assert cases.aspects.mask.sum() == 8
    np.testing.assert_allclose(cases.prior.numpy(), math.log(2), atol=1e-6)  # as common as elsewhere: tells nothing


def test_thresholds_are_chosen_by_precision_and_by_f1() -> None:
    probabilities = torch.tensor([0.9, 0.8, 0.7, 0.6, 0.5, 0.4])
    wanted = torch.tensor([1.0, 1.0, 0.0, 1.0, 0.0, 0.0])
    # Precision down the list: 1, 1, 2/3, 3/4, 3/5, 1/2; F1: 1/2, 4/5, 2/3, 6/7, 3/4, 2/3. Half-way to the next below.
    assert choose_thresholds(probabilities, wanted) == pytest.approx((0.75, 0.55, 0.55))


def test_a_precision_that_cannot_be_had_is_out_of_reach() -> None:
    essential, important, optional = choose_thresholds(torch.tensor([0.9, 0.8]), torch.tensor([0.0, 1.0]))
    assert (essential, important, optional) == pytest.approx((2.0, 2.0, 0.8))


def test_a_planner_learns_who_looks_for_what(learned: LearnedPlanner) -> None:
    assert learned.facts["validation_accuracy"] == 1.0
    thrifty, hasty = planner_of(learned).predict([["Money!", "The sea."], ["A hurry, again."]], ["What now?"] * 2)
    assert (thrifty[0].aspect.aspect, hasty[0].aspect.aspect) == ("cheap", "quick")
    assert thrifty[0].tag == "essential"
    assert thrifty[1].tag == ""


def test_its_plans_are_a_context_for_any_model(learned: LearnedPlanner) -> None:
    maker = make_context("plan", planner=planner_of(learned))
    (plan,) = maker.contexts([Ask(user=population(1, "test")[0].user, question="And now, what?")])
    assert plan.segments == ("cheap",)


def test_a_plan_becomes_a_score(learned: LearnedPlanner) -> None:
    model = PlannerReward(planner_of(learned), CriteriaScorer(learned.criteria, Words()))
    user = profile("I count my money.", "A walk by the sea.")
    inputs = [
        RewardInput(question="What now?", user=user, response=f"Take the {kind} tea.") for kind in ("cheap", "quick")
    ]
    cheap, quick = (score.value for score in model.score(inputs))
    assert cheap is not None
    assert quick is not None
    assert cheap > quick
    assert [model.score([one])[0].value for one in inputs] == [cheap, quick]


def test_tags_can_weigh_instead_of_probabilities(learned: LearnedPlanner) -> None:
    scorer = CriteriaScorer(learned.criteria, Words())
    by_tag = PlannerReward(planner_of(learned), scorer, weighing="tags")
    covered = scorer.covered([["cheap.", "quick."]], ["Take the cheap tea."])[0][0]
    asked = RewardInput(question="What now?", user=profile("Money!", "The sea."), response="Take the cheap tea.")
    assert by_tag.score([asked])[0].value == pytest.approx(scorer.scale * covered, rel=1e-5)  # essential: 1
    assert by_tag.identity != PlannerReward(planner_of(learned), scorer).identity


def test_the_same_seed_gives_the_same_weights_also_after_a_stop(tmp_path: Path) -> None:
    data = make_training_data(population(16, "train"), population(8, "validation"))
    config = PlannerConfig(topics=3, members=2, epochs=4, batch_size=8, criteria_rank=3, criteria_epochs=2)

    class KilledError(Exception):
        pass

    def stop(done: int, total: int, text: str) -> None:
        if done == 4:
            raise KilledError

    whole = learn_planner(data, config, Words(), tmp_path / "whole", no_progress)
    with pytest.raises(KilledError):
        learn_planner(data, config, Words(), tmp_path / "cut", stop)
    again = learn_planner(data, config, Words(), tmp_path / "cut", no_progress)
    assert planner_of(whole).identity == planner_of(again).identity
    assert whole.criteria.hash == again.criteria.hash


def test_the_command_line_method_leaves_a_folder_that_model_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("prbench.backends.encoders._load_once", lambda name: Words())
    method = load_method("planner")
    config = make_config(method, ["topics=3", "members=1", "epochs=2", "criteria_epochs=2", "criteria_rank=2"])
    data = make_training_data(population(16, "train"), population(8, "validation"))
    trained = run_method(method, data, config, tmp_path / "model")
    assert trained.spec == f"planner:{tmp_path / 'model'}"
    loaded = load_reward_model(f"{trained.spec}?weights=tags", ModelSettings())
    assert loaded.identity["weights"] == "tags"
    with pytest.raises(UsageError, match="weights=guess cannot be used"):
        load_reward_model(f"{trained.spec}?weights=guess", ModelSettings())


def test_rows_without_rubrics_or_posts_are_refused(tmp_path: Path) -> None:
    rows = population(4, "train"), population(4, "validation")
    bare = [[Example(**{**_fields(one), "rubric": ()}) for one in split] for split in rows]
    with pytest.raises(DataError, match="no row of the train split has a rubric"):
        planner_module.train_planner(make_training_data(*bare), SMALL, tmp_path, no_progress)
    silent_users = [[Example(**{**_fields(one), "user": User(id=one.user.id)}) for one in split] for split in rows]
    with pytest.raises(DataError, match="no row of the train split has a post"):
        planner_module.train_planner(make_training_data(*silent_users), SMALL, tmp_path, no_progress)


@pytest.mark.parametrize("split", ["train", "validation"])
def test_a_split_may_hold_nobody_with_posts_and_a_rubric(split: str, tmp_path: Path) -> None:
    rows = {each: population(8, each) for each in ("train", "validation")}
    rows[split] = [replace(one, user=User(id=one.user.id)) for one in rows[split]]
    rows["train"].append(replace(example(8, thrifty=True, split="train"), rubric=()))
    data = make_training_data(rows["train"], rows["validation"])
    found = learn_planner(data, replace(SMALL, epochs=1, criteria_epochs=1), Words(), tmp_path, no_progress)
    assert "validation_accuracy" in found.facts


@pytest.mark.parametrize("setting", ["topics=0", "members=0", "dropout=1"])
def test_settings_that_train_nothing_are_refused(setting: str) -> None:
    with pytest.raises(UsageError):
        make_config(load_method("planner"), [setting])


def _fields(one: Example) -> dict[str, object]:
    return {name: getattr(one, name) for name in Example.__dataclass_fields__}


def test_aspects_have_the_order_of_the_rubric_in_every_process() -> None:
    aspects = [Aspect(aspect=word, reason="r", evidence="") for word in (*WORDS, *WORDS)]
    many = replace(example(0, thrifty=True, split="train"), rubric=tuple(aspects))
    assert [one.aspect for one in planner_module._rubric(many)] == list(WORDS)
