"""Judges of other makes, from end to end: a server answers in the form of each, and `prbench eval` reads it."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.golden.stand_in import Body, Reply, chat, stand_in
from tests.support.command_line import prbench
from tests.support.preset_forms import SAID

__all__ = ["prbench"]  # a fixture

pytest.importorskip("openai")
Command = Callable[..., Any]
PAIR = re.compile(r"Take (tea|coffee) at ([0-9]+)\.")


def write_pairs(path: Path, count: int) -> str:
    rows = [
        {
            "id": f"row-{number}",
            "user_id": f"user-{number}",
            "question": f"What to drink, number {number}?",
            "profile": [{"id": "p", "category": "c", "text": f"I drink at {number}."}],
            "rubric_aspects": [{"aspect": "tea", "evidence": "e", "reason": "r"}],
            "chosen": f"Take tea at {number}.",
            "rejected": f"Take coffee at {number}.",
            "category": "c",
        }
        for number in range(count)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def judge(name: str) -> Callable[[str, Body], Reply]:
    """Prefer tea; of six, once coffee, and once say nothing that could be read. Weigh it in prose first."""

    def answer(prompt: str, body: Body) -> Reply:
        (first, number), _ = PAIR.findall(prompt)
        if int(number) % 6 == 1:
            return "Response A and Response B both have merits, and I cannot say more.", "stop"
        prefers_first = (first == "tea") is (int(number) % 6 != 0)
        verdict = SAID[name][0 if prefers_first else 1]
        return f"<think>{SAID[name][1]}.</think>The first says that one should take {first}.\n\n{verdict}", "stop"

    return answer


@pytest.mark.parametrize("name", SAID)
def test_a_judge_is_read_in_its_own_form(name: str, prbench: Command, tmp_path: Path) -> None:
    data = write_pairs(tmp_path / "pairs.jsonl", 12)
    with stand_in(chat(judge(name))) as server:
        model = f"judge:{server.chat}?template={name}"
        ended = prbench("eval", "--model", model, "--data", data, "--probes", "own", "--json")
    assert ended.code == 0, ended.err
    # Of twelve, two are lost and two unreadable.
    assert ended.json["coverage"]["value"] == pytest.approx(10 / 12, abs=1e-6)
    assert ended.json["accuracy"]["value"] == pytest.approx(8 / 12, abs=1e-6)
    assert ended.json["accuracy_readable"]["value"] == pytest.approx(0.8, abs=1e-6)
    assert ended.json["order"]["position_bias"]["value"] == 0.0
    assert ended.json["unreadable"] == {"no_verdict": 2}
    assert "cannot be read" not in ended.err


@pytest.mark.parametrize("name", SAID)
def test_a_wrong_preset_says_so_within_20_items_and_fails(name: str, prbench: Command, tmp_path: Path) -> None:
    data = write_pairs(tmp_path / "pairs.jsonl", 24)
    wrong = "llmbar" if name == "autoj" else "autoj"
    with stand_in(chat(judge(name))) as server:
        model = f"judge:{server.chat}?template={wrong}"
        ended = prbench("eval", "--model", model, "--data", data, "--probes", "own")
    assert ended.code == 1
    during, at_end = ended.err.splitlines()
    unread, seen = map(
        int, re.findall(r"([0-9]+) of the first ([0-9]+) items cannot be read \(no_verdict\)", during)[0]
    )
    assert unread == seen <= 20
    assert len(during) < 700
    assert f"?template={name}" in during
    assert "e.g. the reply '" in during
    assert "none of the 24 items could be read, so there is no number" in at_end
    assert "'no_verdict'" in at_end


def test_an_absolute_grader_rates(prbench: Command, tmp_path: Path) -> None:
    def grade(prompt: str, body: Body) -> Reply:
        ((drink, number),) = PAIR.findall(prompt)
        if int(number) % 6 == 1:
            return "[RESULT] 6", "stop"
        score = 2 if int(number) % 6 == 2 else 4 if (drink == "tea") is (int(number) % 6 != 0) else 3
        return f"Feedback: It is about {drink}. [RESULT] {score}", "stop"

    data = write_pairs(tmp_path / "pairs.jsonl", 12)
    with stand_in(chat(grade)) as server:
        model = f"rating:{server.chat}?template=prometheus2_absolute"
        right = prbench("eval", "--model", model, "--data", data, "--probes", "own", "--json")
        wrong = prbench("eval", "--model", f"rating:{server.chat}", "--data", data, "--probes", "own")
    assert right.code == 0, right.err
    # Of twelve: six right, two equal (half a point each), two lost, two out of range.
    assert right.json["coverage"]["value"] == pytest.approx(10 / 12, abs=1e-6)
    assert right.json["accuracy"]["value"] == pytest.approx(7 / 12, abs=1e-6)
    assert right.json["tie_rate"]["value"] > 0
    assert wrong.code == 1
    assert "?template=prometheus2_absolute" in wrong.err


def test_equal_scores_of_a_pair_are_a_tie(prbench: Command, tmp_path: Path) -> None:
    data = write_pairs(tmp_path / "pairs.jsonl", 4)
    model = f"judge:fake:{SAID['judgelrm'][2]}?template=judgelrm"
    ended = prbench("eval", "--model", model, "--data", data, "--probes", "own", "--json")
    assert (ended.json["accuracy"]["value"], ended.json["tie_rate"]["value"]) == (0.5, 1.0)


def test_a_template_says_how_long_a_reply_may_be_unless_the_user_does(prbench: Command, tmp_path: Path) -> None:
    data = write_pairs(tmp_path / "pairs.jsonl", 1)
    asked = {}
    for options in ("", "?template=rmr1", "?template=rmr1&max_tokens=99"):
        with stand_in(chat(judge("rmr1"))) as server:
            prbench("eval", "--model", f"judge:{server.chat}{options}", "--data", data, "--probes", "own")
            asked[options] = {body.get("max_tokens") or body["max_completion_tokens"] for body in server.prompts()}
    assert asked == {"": {512}, "?template=rmr1": {4096}, "?template=rmr1&max_tokens=99": {99}}


def test_a_judge_that_is_read_now_and_then_warns_and_ends_well(prbench: Command, tmp_path: Path) -> None:
    def answer(prompt: str, body: Body) -> Reply:
        _, (_, number) = PAIR.findall(prompt)
        return ("Result: A" if int(number) % 3 == 0 else "My choice is [[A]]."), "stop"

    data = write_pairs(tmp_path / "pairs.jsonl", 9)
    with stand_in(chat(answer)) as server:
        ended = prbench("eval", "--model", f"judge:{server.chat}", "--data", data, "--probes", "own", "--json")
    assert ended.code == 0
    assert ended.json["coverage"]["value"] == pytest.approx(1 / 3, abs=1e-6)
    assert "6 of the first 9 items cannot be read (no_verdict), e.g. the reply 'My choice is [[A]].'" in ended.err
    assert "?template=arena" in ended.err


def test_letters_are_not_looked_for_where_the_template_asks_for_another_form(prbench: Command) -> None:
    ended = prbench("eval", "--model", "judge:fake:A?template=llmbar&mode=logits", "--limit", "2")
    assert (ended.code, ended.err.count("\n")) == (2, 1)
    assert "Use mode=parse" in ended.err


def test_failed_requests_are_named_as_such(prbench: Command, tmp_path: Path) -> None:
    def fail(prompt: str, body: Body) -> Reply:
        return "the server is not in the mood", "error"

    data = write_pairs(tmp_path / "pairs.jsonl", 3)
    with stand_in(chat(fail)) as server:
        ended = prbench("eval", "--model", f"judge:{server.chat}", "--data", data, "--probes", "own")
    assert ended.code == 1
    assert "3 of the first 3 items cannot be read (failed)" in ended.err
    assert "reply format" not in ended.err
