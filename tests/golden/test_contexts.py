"""The text about a user, exactly as a model gets it."""

from pathlib import Path
from typing import Any

import pytest
from tests.golden.conftest import Golden
from tests.golden.extract import PairRecorder, Recorder, evaluate, results_of
from tests.golden.people import odd, population, write
from tests.golden.stand_in import chat, plan, stand_in


@pytest.mark.parametrize(
    "name,settings",
    [
        ("recent", {"posts": 30}),
        ("recent_few", {"posts": 2}),
        ("bm25", {"rank": "bm25", "posts": 3}),
        ("dense", {"rank": "dense", "posts": 3}),
    ],
)
def test_posts_of_odd_rows(golden: Golden, name: str, settings: dict[str, Any]) -> None:
    model = Recorder()
    run = evaluate(odd(), model, "profile", **settings)
    golden(f"context_profile_{name}", {"shown": model.contexts, **results_of(run)})


def test_nothing_is_shown_without_a_context(golden: Golden) -> None:
    model = Recorder()
    run = evaluate(odd(), model, "none")
    assert {context for _, context in model.contexts} == {""}
    golden("context_none", results_of(run))


def test_the_rubric_as_a_ceiling(golden: Golden) -> None:
    model = Recorder()
    run = evaluate(odd(), model, "oracle")
    golden("context_oracle", {"shown": model.contexts, **results_of(run)})


def test_a_plan(golden: Golden) -> None:
    model = Recorder()
    with stand_in(chat(plan)) as server:
        run = evaluate(population(6, (0,)), model, "plan", planner=server.chat, posts=3)
    golden("context_plan", {"shown": model.contexts, **results_of(run)})


def test_a_plan_of_many_aspects(golden: Golden) -> None:
    model = Recorder()
    long = "\n".join(f"{place}. Aspect number {place}: because of {place}" for place in range(1, 9))
    with stand_in(chat(lambda prompt, body: (long, "stop"))) as server:
        run = evaluate(population(2, (0,)), model, "plan", planner=server.chat)
    golden("context_plan_long", {"shown": model.contexts, **results_of(run)})


@pytest.mark.parametrize("context", ["none", "profile", "plan"])
def test_labelled_pairs_before_the_rest(golden: Golden, tmp_path: Path, context: str) -> None:
    labels = write(tmp_path / "labels.jsonl", population(5, (2, 1)))
    model = Recorder()
    with stand_in(chat(plan)) as server:
        planner = {"planner": server.chat} if context == "plan" else {}
        run = evaluate(population(6), model, context, labels=labels, shots=2, limit=6, posts=2, **planner)
    golden(f"context_labels_{context}", {"shown": model.contexts, **results_of(run)})


def test_labels_with_several_lines_and_of_people_with_odd_posts(golden: Golden, tmp_path: Path) -> None:
    lines = [row | {"id": f"l-{row['id']}", "question": "Two lines?\n\nPreferred: both", "split": ""} for row in odd()]
    labels = write(tmp_path / "labels.jsonl", lines)
    model = Recorder()
    evaluate(odd(), model, "profile", labels=labels, posts=4)
    golden("context_labels_odd", {"shown": model.contexts})


@pytest.mark.parametrize("window", [130, 200, 400])
def test_what_does_not_fit_is_dropped_from_the_end(golden: Golden, window: int) -> None:
    model = Recorder(window=window)
    run = evaluate(odd(), model, "profile")
    golden(f"context_window_{window}", {"shown": model.contexts, **results_of(run)})


def test_labels_are_dropped_after_posts(golden: Golden, tmp_path: Path) -> None:
    labels = write(tmp_path / "labels.jsonl", population(3, (2,)))
    model = Recorder(window=420)
    run = evaluate(population(3), model, "profile", labels=labels)
    golden("context_labels_window", {"shown": model.contexts, **results_of(run)})


def test_the_lab_as_a_model_sees_it(golden: Golden) -> None:
    model = Recorder()
    run = evaluate("lab", model, "profile", limit=3, posts=3)
    golden("context_lab", {"shown": model.contexts, **results_of(run)})


@pytest.mark.parametrize("orders", ["both", "one"])
@pytest.mark.parametrize("seed", [0, 1])
def test_a_judge_in_python_sees_the_orders_of_a_coin(golden: Golden, orders: str, seed: int) -> None:
    judge = PairRecorder()
    run = evaluate(odd(), judge, "none", orders=orders, seed=seed, probes=["own"])
    golden(f"python_judge_{orders}_{seed}", {"shown": judge.shown, **results_of(run)})
