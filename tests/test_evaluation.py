"""The walk end to end, with small models whose answers are known."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

import prbench
from prbench.errors import UsageError
from prbench.evaluation import EvalSettings, evaluate
from prbench.evaluation.summary import KEYS
from prbench.reward_models.base import LoadedModel
from prbench.schema import Comparison, PairInput, Pick, Probe, Problem, RewardInput, Score

Rows = Callable[[int], list[dict[str, Any]]]


class KnowsTheUser:
    """Likes a response that says `thrift`, but only when it is told about somebody."""

    name = "knows"

    def __init__(self) -> None:
        self.seen: list[RewardInput] = []

    def score(self, inputs: Sequence[RewardInput]) -> list[float]:
        self.seen.extend(inputs)
        return [float("thrift" in one.response) if one.context else 0.0 for one in inputs]


class Judge:
    """Answers by a rule that sees one pair at a time."""

    def __init__(self, rule: Callable[[PairInput], Comparison]) -> None:
        self.rule = rule

    def prefer(self, pairs: Sequence[PairInput]) -> list[Comparison]:
        return [self.rule(pair) for pair in pairs]


def test_a_model_that_uses_the_user_gains_from_the_profile(rows: Rows) -> None:
    summary = evaluate(rows(12), KnowsTheUser()).summary
    assert summary["accuracy"]["value"] == 1.0
    assert summary["personalization_gain"]["value"] == 0.5  # without a profile every pair is a tie
    assert summary["swap"]["gap"]["value"] == 0.0  # every user of these rows writes about thrift


def test_the_summary_has_every_contracted_key_and_null_where_it_does_not_apply(rows: Rows) -> None:
    summary = evaluate(rows(6), KnowsTheUser()).summary
    assert tuple(summary) == KEYS
    assert summary["order"] is None
    assert summary["ratings"] is None


def test_python_in_five_lines(rows: Rows) -> None:
    run = prbench.evaluate(rows(4), "control:longest", context="profile")
    assert run.summary["model"] == "control:longest"
    assert len(run.items) == 12  # four pairs, three probes


def test_no_input_is_scored_twice_when_a_probe_changes_nothing(rows: Rows) -> None:
    model = KnowsTheUser()
    run = evaluate(rows(5), model, context="none")
    assert len(model.seen) == 10  # own, none and swap are the same question
    assert run.summary["swap"]["gap"]["value"] == 0.0


def test_the_swap_probe_shows_another_users_posts_of_the_same_category(rows: Rows) -> None:
    data = rows(12)
    model = KnowsTheUser()
    evaluate(data, model, settings=EvalSettings(probes=(Probe.OWN, Probe.SWAP)))
    for row in data:
        contexts = {one.context for one in model.seen if one.question == row["question"]}
        own = row["user_id"].replace("user-", "User ")
        assert len(contexts) == 2
        assert sum(own in context for context in contexts) == 1


def test_a_judge_that_always_answers_first_scores_half_with_full_position_bias(rows: Rows) -> None:
    summary = evaluate(rows(10), Judge(lambda _: Comparison(pick=Pick.FIRST, raw="Result: A"))).summary
    assert summary["accuracy"]["value"] == 0.5
    assert summary["order"]["position_bias"]["value"] == 1.0
    assert summary["order"]["flip_rate"]["value"] == 1.0
    assert summary["coverage"]["value"] == 1.0


def test_a_judge_that_answers_prose_has_no_coverage_and_no_accuracy(rows: Rows) -> None:
    summary = evaluate(rows(10), "judge:fake:prose").summary
    assert summary["coverage"]["value"] == 0.0
    assert summary["accuracy"] is None
    assert summary["accuracy_missing"] == {
        "reason": "no_verdict", "detail": "", "items": 10, "of": 10
    }  # fmt: skip
    assert summary["swap"] is None
    assert summary["unreadable"] == {"no_verdict": 10}
    assert summary["accuracy_readable"] is None


def test_a_reasoning_judge_that_runs_out_of_tokens_is_counted_apart(rows: Rows) -> None:
    summary = evaluate(rows(10), "judge:fake:thinking").summary
    assert summary["unreadable"] == {"out_of_tokens": 10}


def test_unparsed_verdicts_never_count_as_the_first_answer(rows: Rows) -> None:
    """The paper's code scores an unreadable reply as "A", which adds half the failure rate to accuracy."""
    summary = evaluate(rows(10), "judge:fake:Response A is very good and so is B").summary
    assert summary["accuracy"] is None
    assert summary["unreadable"] == {"no_verdict": 10}


def test_judges_see_both_orders_and_both_replies_are_kept(rows: Rows, tmp_path: Path) -> None:
    run = evaluate(rows(4), Judge(lambda _: Comparison(pick=Pick.SECOND, raw="B it is")), out=tmp_path)
    assert run.folder is not None
    records = [json.loads(line) for line in (run.folder / "items.jsonl").read_text().splitlines()]
    assert all({order["order"] for order in one["orders"]} == {"chosen_first", "rejected_first"} for one in records)
    assert all(order["raw"] == "B it is" for one in records for order in one["orders"])


def test_margins_of_both_orders_are_averaged(rows: Rows) -> None:
    def rule(pair: PairInput) -> Comparison:
        # Leans to the first place by 1, and to thrift by 2: the mean over the orders is 2 for the chosen one.
        margin = 3.0 if "thrift" in pair.first else -1.0
        return Comparison(pick=Pick.FIRST if margin > 0 else Pick.SECOND, margin=margin)

    run = evaluate(rows(4), Judge(rule))
    assert {(row.score_chosen, row.score_rejected) for row in run.items} == {(1.0, -1.0)}  # type: ignore[union-attr]
    assert run.summary["accuracy"]["value"] == 1.0


def test_one_order_uses_a_fixed_coin_per_item(rows: Rows) -> None:
    asked: list[PairInput] = []

    def rule(pair: PairInput) -> Comparison:
        asked.append(pair)
        return Comparison(pick=Pick.FIRST)

    settings = EvalSettings(orders="one", probes=(Probe.OWN,))
    evaluate(rows(40), Judge(rule), settings=settings)
    firsts = {pair.question: "thrift" in pair.first for pair in asked}
    assert 10 < sum(firsts.values()) < 30
    asked.clear()
    evaluate(rows(40)[::-1][:20], Judge(rule), settings=settings)
    assert all(firsts[pair.question] == ("thrift" in pair.first) for pair in asked)


def test_ties_score_one_half_and_are_shown(rows: Rows) -> None:
    summary = evaluate(rows(6), "fake:constant").summary
    assert summary["accuracy"]["value"] == 0.5
    assert summary["tie_rate"]["value"] == 1.0


def test_missing_scores_lower_coverage_and_carry_their_reason(rows: Rows) -> None:
    class Patchy:
        def score(self, inputs: Sequence[RewardInput]) -> list[Score]:
            broken = Score(value=None, problem=Problem.FAILED, detail="timeout")
            return [broken if "number 0." in one.response else Score(value=float(len(one.response))) for one in inputs]

    summary = evaluate(rows(4), Patchy()).summary
    assert summary["coverage"]["value"] == 0.75
    assert summary["unreadable"] == {"failed": 1}


def test_posts_beyond_the_window_are_dropped_and_counted_but_the_response_is_never_cut(rows: Rows) -> None:
    data = rows(3)
    data[0]["profile"] = [{"id": f"p{i}", "category": "", "text": f"post {i} " + "x" * 1000} for i in range(50)]
    seen: list[RewardInput] = []

    class Small:
        def score(self, inputs: Sequence[RewardInput]) -> list[Score]:
            seen.extend(inputs)
            return [Score(value=float(len(one.response))) for one in inputs]

    def fits(one: RewardInput | PairInput) -> bool:
        assert isinstance(one, RewardInput)
        return len(one.question) + len(one.context) + len(one.response) <= 4000

    loaded = LoadedModel(spec="small", kind="custom", model=Small(), fits=fits)
    run = evaluate(data, loaded, settings=EvalSettings(posts=40, probes=(Probe.OWN,)))
    assert run.summary["truncated_items"] == 1
    row = next(row for row in run.items if row.id == "item-000")
    assert row.posts_used == 3  # three posts of 1,008 characters fit beside heading, question and response
    assert run.summary["dropped_posts"] == 40 - row.posts_used
    assert all(one.response in (data[i]["chosen"], data[i]["rejected"]) for i in range(1) for one in seen[:2])
    assert "post 49" in seen[0].context
    assert "post 45" not in seen[0].context


def test_an_item_that_does_not_fit_even_without_context_is_unreadable_and_says_so(rows: Rows) -> None:
    loaded = LoadedModel(spec="tiny", kind="custom", model=KnowsTheUser(), fits=lambda _: False)
    summary = evaluate(rows(3), loaded).summary
    assert summary["unreadable"] == {"too_long": 3}


def test_groups_have_their_own_accuracy_and_a_gap(rows: Rows) -> None:
    data = [row | {"meta": {"tier": "easy" if i < 6 else "hard"}} for i, row in enumerate(rows(12))]
    for row in data[6:]:
        row["chosen"], row["rejected"] = row["rejected"], row["chosen"]
    summary = evaluate(data, KnowsTheUser(), group_by=("tier",)).summary
    tiers = summary["groups"]["tier"]
    assert (tiers["groups"]["easy"]["value"], tiers["groups"]["hard"]["value"]) == (1.0, 0.0)
    assert (tiers["best"], tiers["worst"], tiers["gap"]["value"]) == ("easy", "hard", 1.0)


def test_an_unknown_group_names_the_known_ones(rows: Rows) -> None:
    with pytest.raises(UsageError, match=r"--group-by colour: no row has such a field\. Known here: category"):
        evaluate(rows(3), KnowsTheUser(), group_by=("colour",))


def test_oracle_context_has_no_swap_probe(rows: Rows) -> None:
    run = evaluate(rows(4), "control:overlap", context="oracle")
    assert {row.probe for row in run.items} == {Probe.OWN, Probe.NONE}
    assert run.summary["swap"] is None


def test_wrong_number_of_answers_is_refused(rows: Rows) -> None:
    class Forgetful:
        def score(self, inputs: Sequence[RewardInput]) -> list[float]:
            return [1.0]

    with pytest.raises(UsageError, match="1"):
        evaluate(rows(3), Forgetful())


def test_rated_rows_are_evaluated_per_user() -> None:
    data = [
        {
            "id": f"r{user}-{i}",
            "user_id": f"user-{user}",
            "question": "What now?",
            "profile": [{"id": f"p{user}", "category": "", "text": f"I am user {user} and like long answers."}],
            "response": "word " * (i + 1),
            "rating": i / 4,
        }
        for user in range(10)
        for i in range(5)
    ]
    summary = evaluate(data, "control:longest").summary
    assert summary["n_items"] == 50
    assert summary["ratings"]["spearman"]["value"] == 1.0
    assert summary["ratings"]["alignment"]["value"] == 1.0  # a monotone map fitted on other users is exact here
    assert summary["ratings"]["gain"]["alignment"]["value"] == 0.0
    assert summary["accuracy"] is None


def test_a_judge_cannot_rate_single_responses() -> None:
    data = [{"id": "r", "user_id": "u", "question": "q?", "profile": [], "response": "a", "rating": 0.5}]
    with pytest.raises(UsageError, match=r"only compares.*rating:"):
        evaluate(data, "judge:fake:A")


def test_the_same_command_continues_and_gives_the_same_bytes(rows: Rows, tmp_path: Path) -> None:
    first = evaluate(rows(8), "control:longest", out=tmp_path)
    assert first.folder is not None
    before = (first.folder / "summary.json").read_bytes()
    again = evaluate(rows(8), "control:longest", out=tmp_path)
    assert again.folder == first.folder
    assert (first.folder / "summary.json").read_bytes() == before
    assert len((first.folder / "items.jsonl").read_text().splitlines()) == 24


def test_another_configuration_is_another_run(rows: Rows, tmp_path: Path) -> None:
    data = rows(4)
    folders = {
        evaluate(data, "control:longest", out=tmp_path).folder,
        evaluate(data, "control:shortest", out=tmp_path).folder,
        evaluate(data[:3], "control:longest", out=tmp_path).folder,
        evaluate(data, "control:longest", context="none", out=tmp_path).folder,
        evaluate(data, "control:longest", settings=EvalSettings(seed=1), out=tmp_path).folder,
        evaluate(data, "control:longest", settings=EvalSettings(posts=3), out=tmp_path).folder,
    }
    assert len(folders) == 6


def test_grouping_by_a_field_changes_no_other_figure(rows: Rows) -> None:
    data = [row | {"meta": {"majority": i % 2 == 0}} for i, row in enumerate(rows(12))]
    plain = evaluate(data, "control:longest").summary
    grouped = evaluate(data, "control:longest", group_by=("majority",)).summary
    assert grouped["minority_accuracy"] == plain["minority_accuracy"] is not None
    assert set(grouped["groups"]["majority"]["groups"]) == {"True", "False"}


def test_grouping_neither_makes_another_run_nor_needs_the_field_in_every_row(rows: Rows, tmp_path: Path) -> None:
    data = [row | {"meta": {"lang": "en"}} for row in rows(6)]
    data[5]["meta"] = {}
    first = evaluate(data, "control:longest", out=tmp_path)
    second = evaluate(data, "control:longest", group_by=("lang",), out=tmp_path)
    assert first.folder == second.folder
    assert second.summary["groups"]["lang"]["groups"]["en"]["n"] == 5


def test_without_known_facts_a_model_that_ignores_the_user_has_no_minority(rows: Rows) -> None:
    """Its own `none` probe would put every wrong pair into the minority: 0 and 1 by construction, not a finding."""
    summary = evaluate(rows(12), "control:longest").summary
    assert summary["minority_accuracy"] is None


def test_the_context_argument_wins_over_the_settings(rows: Rows) -> None:
    run = evaluate(rows(4), "control:overlap", context="oracle", settings=EvalSettings(seed=1))
    assert (run.summary["context"], run.summary["seed"]) == ("oracle", 1)


def test_posts_that_the_planner_could_not_read_are_counted(rows: Rows) -> None:
    data = rows(3)
    for row in data:
        row["profile"].insert(0, {"id": "long", "category": "", "text": "word " * 20_000})
    settings = EvalSettings(context="plan", planner="local:smollm2", probes=(Probe.OWN,))
    summary = evaluate(data[:1], "control:overlap", settings=settings).summary
    assert summary["dropped_posts"] == 1
    assert summary["truncated_items"] == 1


def test_half_a_surrogate_pair_in_a_reply_loses_nothing(rows: Rows, tmp_path: Path) -> None:
    judge = Judge(lambda _: Comparison(pick=Pick.FIRST, raw="bad \ud800 reply"))
    run = evaluate(rows(2), judge, out=tmp_path)
    assert run.folder is not None
    record = json.loads((run.folder / "items.jsonl").read_text().splitlines()[0])
    assert record["orders"][0]["raw"] == "bad \ud800 reply"


def test_scores_too_far_apart_for_a_float_still_give_a_verdict(rows: Rows) -> None:
    class Extreme:
        def score(self, inputs: Sequence[RewardInput]) -> list[float]:
            return [1.7e308 if "thrift" in one.response else -1.7e308 for one in inputs]

    summary = evaluate(rows(6), Extreme()).summary
    assert summary["accuracy"]["value"] == 1.0
    assert summary["calibration"] is None


def test_many_groups_stay_small(rows: Rows) -> None:
    data = [row | {"user_id": f"user-{i}", "meta": {"n": i}} for i, row in enumerate(rows(100))]
    groups = evaluate(data, "control:longest", group_by=("user_id", "n")).summary["groups"]
    assert len(groups["user_id"]["groups"]) == len(groups["n"]["groups"]) == 100


def test_of_a_few_questions_nothing_is_said_of_new_ones(rows: Rows) -> None:
    found = {}
    for count in (1, 4, 5):
        asked = rows(10)
        for place, row in enumerate(asked):
            row["question"] = f"What about {place % count}?"
        found[count] = evaluate(asked, KnowsTheUser(), over="users,questions").summary["population"]
    assert {found[count]["of"] for count in (1, 4)} == {"new users with these questions"}
    assert (found[5]["of"], found[5]["questions"]) == ("new users and new questions", 5)
    assert found[5]["these_questions"]["accuracy"]["value"] == 1.0
