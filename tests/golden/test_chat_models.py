"""Reward models and planners made of a chat model: what they are asked, and what is made of their replies."""

from pathlib import Path

import pytest
from tests.golden.conftest import Golden
from tests.golden.extract import eval_cli, results_of
from tests.golden.people import odd, population, write
from tests.golden.stand_in import chat, judge, plan, rate, rubrics, stand_in

ABOUT = ("Begin with two pots. Swap seeds", "Get up at eight. Walk to the lake")  # responses of a few items
TRIED = "?timeout=20"


@pytest.fixture
def pairs(tmp_path: Path) -> Path:
    return write(tmp_path / "pairs.jsonl", population(6))


@pytest.mark.parametrize("orders", ["both", "one"])
def test_a_judge_that_states_its_verdict(golden: Golden, pairs: Path, orders: str) -> None:
    with stand_in(chat(judge)) as server:
        run = eval_cli(pairs.parent, f"judge:{server.chat}{TRIED}", "--data", pairs, "--orders", orders)
    golden(f"judge_{orders}", results_of(run))
    golden(f"judge_{orders}_prompts", {"sent": len(server.prompts()), "some": server.prompts(ABOUT[:1])[:6]})


def test_a_judge_by_its_letters(golden: Golden, pairs: Path) -> None:
    with stand_in(chat(lambda prompt, body: ("A", "length"))) as server:
        run = eval_cli(pairs.parent, f"judge:{server.chat}?mode=logits", "--data", pairs)
    golden("judge_logits", results_of(run))
    golden("judge_logits_prompts", {"sent": len(server.prompts()), "some": server.prompts(ABOUT[:1])[:2]})


def test_a_judge_reads_odd_rows(golden: Golden, tmp_path: Path) -> None:
    data = write(tmp_path / "odd.jsonl", odd())
    with stand_in(chat(judge)) as server:
        run = eval_cli(tmp_path, f"judge:{server.chat}", "--data", data, "--probes", "own", "--orders", "one")
    golden("judge_odd", {**results_of(run), "prompts": server.prompts()})


def test_a_judge_with_a_window_that_drops_posts(golden: Golden, pairs: Path) -> None:
    options = ["--data", pairs, "--limit", "4"]
    with stand_in(chat(judge)) as server:
        run = eval_cli(pairs.parent, f"judge:{server.chat}?window=1330&max_tokens=60", *options)
    golden("judge_window", results_of(run))


def test_a_rating_model(golden: Golden, pairs: Path) -> None:
    with stand_in(chat(rate)) as server:
        run = eval_cli(pairs.parent, f"rating:{server.chat}", "--data", pairs)
    golden("rating", results_of(run))
    golden("rating_prompts", {"sent": len(server.prompts()), "some": server.prompts(ABOUT)[:6]})


def test_a_chain_of_rubrics(golden: Golden, pairs: Path) -> None:
    with stand_in(chat(rubrics)) as server:
        run = eval_cli(pairs.parent, f"rubric-chain:{server.chat}?samples=3", "--data", pairs, "--limit", "6")
    golden("rubric_chain", results_of(run))
    scored = server.prompts(ABOUT[:1])
    written = [body for body in server.prompts() if "importance" in str(body["response_format"])]
    golden("rubric_chain_prompts", {"sent": len(server.prompts()), "first": written[:3], "second": scored[:2]})


def test_a_plan_by_a_chat_model_as_context(golden: Golden, pairs: Path) -> None:
    options = ["--data", pairs, "--context", "plan", "--posts", "5"]
    with stand_in(chat(plan)) as server:
        run = eval_cli(pairs.parent, "control:overlap", *options, "--planner", server.chat)
    golden("plan_chat", results_of(run))
    golden("plan_chat_prompts", {"sent": len(server.prompts()), "some": server.prompts()[:3]})


def test_a_plan_read_by_a_judge(golden: Golden, pairs: Path) -> None:
    with stand_in(chat(plan)) as planner, stand_in(chat(judge)) as server:
        options = ["--data", pairs, "--limit", "4", "--context", "plan", "--planner", planner.chat]
        run = eval_cli(pairs.parent, f"judge:{server.chat}", *options)
    golden("judge_plan", results_of(run))


def test_a_cached_reply_is_not_asked_for_again(pairs: Path) -> None:
    with stand_in(chat(rate)) as server:
        first = eval_cli(pairs.parent, f"rating:{server.chat}", "--data", pairs, "--limit", "4")
        sent = len(server.prompts())
        again = eval_cli(pairs.parent, f"rating:{server.chat}", "--data", pairs, "--limit", "4", "--fresh")
        cut = sum(row.get("problem") == "out_of_tokens" for row in first.rows)
        assert 0 < len(server.prompts()) - sent <= 2 * cut  # those alone whose replies were cut off
    assert results_of(again) == results_of(first)


@pytest.mark.slow
def test_the_packaged_language_model(golden: Golden, pairs: Path) -> None:
    options = ["--data", pairs, "--limit", "1", "--probes", "own"]
    run = eval_cli(pairs.parent, "judge:local:smollm2?mode=logits", *options)
    # Quantised weights: llama.cpp sums in another order on other processors.
    golden("judge_smollm2", [row["orders"] for row in run.rows], relative=2e-2)
