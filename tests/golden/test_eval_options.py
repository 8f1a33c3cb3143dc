"""Probes, groups, limits, seeds, bad rows and rated rows: what each option does to rows and figures."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.golden.conftest import Golden
from tests.golden.extract import Recorder, eval_cli, evaluate, interrupt, results_of
from tests.golden.people import population, rated, write
from tests.golden.stand_in import pick


@pytest.fixture
def pairs(tmp_path: Path) -> Path:
    return write(tmp_path / "pairs.jsonl", population(9))


@pytest.mark.parametrize("probes", ["own", "own,none", "swap,own"])
def test_probes(golden: Golden, pairs: Path, probes: str) -> None:
    run = eval_cli(pairs.parent, "control:overlap", "--data", pairs, "--probes", probes, "--limit", "12")
    golden(f"probes_{probes.replace(',', '_')}", results_of(run))


def test_groups(golden: Golden, pairs: Path) -> None:
    fields = ("category", "user_id", "level", "wanted", "majority")
    options = [part for field in fields for part in ("--group-by", field)]
    run = eval_cli(pairs.parent, "control:overlap", "--data", pairs, *options)
    golden("groups", run.figures)


def test_another_seed_draws_other_donors_and_intervals(golden: Golden, pairs: Path) -> None:
    run = eval_cli(pairs.parent, "control:overlap", "--data", pairs, "--seed", "7", "--limit", "12")
    golden("seed", results_of(run))


def test_bad_rows_are_skipped_and_the_limit_counts_good_ones(golden: Golden, pairs: Path) -> None:
    lines = pairs.read_text(encoding="utf-8").splitlines()
    lines[1] = json.dumps(json.loads(lines[1]) | {"chosen": ""})
    lines[3] = "{broken"
    pairs.write_text("\n".join(lines) + "\n", encoding="utf-8")
    options = ["--data", pairs, "--skip-bad-rows", "2", "--limit", "6"]
    golden("skip_bad_rows", results_of(eval_cli(pairs.parent, "control:longest", *options)))


def test_an_interrupted_run_ends_with_the_same_rows(pairs: Path) -> None:
    whole = eval_cli(pairs.parent / "whole", "control:overlap", "--data", pairs)
    eval_cli(pairs.parent / "twice", "control:overlap", "--data", pairs)
    interrupt(pairs.parent / "twice", keep=20)
    assert results_of(eval_cli(pairs.parent / "twice", "control:overlap", "--data", pairs)) == results_of(whole)


@pytest.mark.parametrize("control", ["overlap", "longest", "random"])
def test_rated_rows(golden: Golden, tmp_path: Path, control: str) -> None:
    data = write(tmp_path / "rated.jsonl", rated(6))
    golden(f"rated_{control}", results_of(eval_cli(tmp_path, f"control:{control}", "--data", data)))


def test_rated_rows_and_a_model_in_python(golden: Golden) -> None:
    model = Recorder(window=160)
    run = evaluate(rated(3), model, "profile", posts=4)
    golden("rated_python", {"shown": model.contexts, **results_of(run)})


def test_people_who_rated_little(golden: Golden) -> None:
    rows = [row for number, row in enumerate(rated(6)) if number % 4 < 2 + number // 8]  # 2, 3 or 4 of each
    golden("rated_little", results_of(evaluate(rows, Recorder(), "profile", posts=2)))


def test_the_worst_of_many_users(golden: Golden) -> None:
    run = evaluate(population(20), Recorder(), "none", probes=["own"])
    golden("worst_users", run.figures)


class Odd:
    """Scores of every kind that a model in Python may give."""

    def score(self, inputs: list[object]) -> list[float | None]:
        values = (1.5, None, float("nan"), -2.0, 0.0, float("inf"), 0.1 + 0.2)
        return [values[index % len(values)] for index, _ in enumerate(inputs)]


def test_scores_that_are_no_numbers(golden: Golden) -> None:
    golden("python_scores", results_of(evaluate(population(6), Odd(), "profile")))


class Wavering:
    """A reward model in Python whose margins move by a few percent of their spread with what it is told."""

    def score(self, inputs: Sequence[Any]) -> list[float]:
        """Return the number of characters of each response, and a little by chance."""
        return [len(each.response) + pick(each.response, each.context) % 1000 / 5000 for each in inputs]


def test_margins_that_hardly_move(golden: Golden) -> None:
    golden("margins_that_hardly_move", results_of(evaluate(population(12, (0, 1, 2)), Wavering(), "profile")))
