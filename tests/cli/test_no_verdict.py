"""Replies that are no verdict, end to end: cut off, or of another model. The next run asks for them again."""

import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support.scripted_server import Said, ScriptedServer, body_hash, scripted_server, share

pytest.importorskip("openai", reason="the OpenAI client is not installed: pip install 'prbench[llm]'")

Body = dict[str, Any]
BAD: dict[str, Callable[[str], Said]] = {
    "out_of_tokens": lambda text: Said(text=f"{text}\nbut then again", finish="length"),
    "wrong_model": lambda text: Said(text=text, model="totally-other-model"),
}


def order_of(body: Body) -> tuple[str, str]:
    """The verdicts for the chosen and for the rejected response, in the order of the prompt."""
    prompt = body["messages"][-1]["content"]
    return ("A", "B") if prompt.index("Sow cheap seeds") < prompt.index("Buy the finest") else ("B", "A")


def right(body: Body) -> str:
    return f"Result: {order_of(body)[0]}"


def wrong(body: Body) -> str:
    return f"Result: {order_of(body)[1]}"


def is_bad(body: Body) -> bool:
    return share(body_hash(body)) < 0.3


def faulty(kind: str) -> Callable[[Body], str | Said]:
    """Some replies state the opposite, in a way that must not count."""
    return lambda body: BAD[kind](wrong(body)) if is_bad(body) else right(body)


def rows_of(run: dict[str, Any]) -> dict[tuple[str, str], dict[str, Any]]:
    lines = (Path("runs") / run["run_id"] / "items.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    return {(row["id"], row["probe"]): row for row in rows}  # the latest of each


def kept_ends() -> set[str]:
    with sqlite3.connect("runs/cache/llm.sqlite") as database:
        return {json.loads(reply)["finish"] for (reply,) in database.execute("SELECT reply FROM replies")}


def ask(prbench: Callable[..., Any], server: ScriptedServer, pairs: Path, *options: str) -> dict[str, Any]:
    model = f"judge:{server.spec}"
    ended = prbench("eval", "--model", model, "--data", str(pairs), "--probes", "own,none", "--json", *options)
    summary: dict[str, Any] = ended.json
    return summary


@pytest.mark.parametrize("kind", BAD)
def test_bad_replies_count_for_nothing_and_are_asked_again(
    prbench: Callable[..., Any], pairs: Path, kind: str
) -> None:
    with scripted_server(faulty(kind)) as server:
        first = ask(prbench, server, pairs)
        bad = {key for key, body in server.bodies.items() if is_bad(body)}
        rows = rows_of(first)
        affected = {key for key, row in rows.items() if row["reason"] == kind}
        assert 0 < len(bad) < len(server.bodies)
        assert 0 < len(affected) < len(rows)
        assert {row["verdict"] for key, row in rows.items() if key in affected} == {"unreadable"}
        assert {row["verdict"] for key, row in rows.items() if key not in affected} == {"chosen"}
        assert first["coverage"]["value"] < 1
        assert set(first["unreadable"]) == {kind}
        assert kept_ends() == {"stop"}
        if kind == "wrong_model":
            detail = rows[min(affected)]["detail"]
            assert "asked for 'scripted', but 'totally-other-model' answered" in detail
            assert "?answers_as=totally-other-model" in detail

        before = server.attempts.copy()
        server.answer = right
        second = ask(prbench, server, pairs)
        assert set(server.attempts - before) == bad, "these are asked again, and nothing else"
        assert {row["verdict"] for row in rows_of(second).values()} == {"chosen"}
        assert (second["accuracy"]["value"], second["coverage"]["value"]) == (1.0, 1.0)
        before = server.attempts.copy()
        assert ask(prbench, server, pairs) == second
        assert server.attempts == before


@pytest.mark.parametrize("kind", BAD)
def test_a_fresh_run_against_a_healthy_server_finds_no_bad_reply(
    prbench: Callable[..., Any], pairs: Path, kind: str
) -> None:
    with scripted_server(lambda body: BAD[kind](wrong(body))) as server:
        first = ask(prbench, server, pairs)
        assert (first["accuracy"], first["coverage"]["value"]) == (None, 0.0)
        server.answer = right
        second = ask(prbench, server, pairs, "--fresh")
    assert (second["accuracy"]["value"], second["coverage"]["value"]) == (1.0, 1.0)


def test_requests_that_another_model_answered_count_as_failed(
    prbench: Callable[..., Any], pairs: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with scripted_server(lambda body: BAD["wrong_model"](right(body))) as server:
        ended = prbench("eval", "--model", f"judge:{server.spec}", "--data", str(pairs), "--json")
        assert ended.code == 1
        assert "'totally-other-model' answered" in caplog.text
        spec = f"judge:{server.spec}?answers_as=totally-other-model"
        known = prbench("eval", "--model", spec, "--data", str(pairs), "--json")
        assert (known.code, known.json["accuracy"]["value"]) == (0, 1.0)


def test_failed_requests_are_never_silently_wrong(prbench: Callable[..., Any], pairs: Path) -> None:
    with scripted_server(faulty("wrong_model")) as server:
        command = ("eval", "--model", f"judge:{server.spec}", "--data", str(pairs), "--probes", "own,none")
        some = prbench(*command)
        summary = prbench(*command, "--json").json
        pending = summary["to_ask_again"]
        assert 0 < pending < 6
        assert summary["accuracy"]["value"] == pytest.approx(1 - pending / 12)
        line = f"{pending} items failed on the way, to be asked again, and count as wrong until then: prbench"
        assert line in some.out
        assert f"--model judge:{server.spec}" in some.out
        assert line in prbench("report", "runs").out
        # Beyond what may fail there is no figure at all, in the terminal and on the board.
        strict = prbench(*command, "--max-failed", "0.01")
        assert strict.code == 1
        assert "no accuracy:" in strict.out
        assert "most often for the reason 'wrong_model'" in strict.out
        board = next(line for line in prbench("report", "runs").out.splitlines() if " profile  " in line)
        assert "–" in board
        assert "[" not in board
        assert prbench("eval", *command[1:], "--max-failed", "0.01", "--json").json["accuracy"] is None


UNREAD = "I would rather not say."
SIDES = {"chosen": "Sow cheap seeds", "rejected": "Buy the finest"}


def rates(bad: str, kind: str) -> Callable[[Body], str | Said]:
    """One response gets a reply of a bad kind, and the other one that cannot be read."""
    return lambda body: BAD[kind]("Score: 5") if SIDES[bad] in body["messages"][-1]["content"] else UNREAD


def judges(bad_order: tuple[str, str], kind: str) -> Callable[[Body], str | Said]:
    """One order gets a reply of a bad kind, and the other one that cannot be read."""
    return lambda body: BAD[kind](right(body)) if order_of(body) == bad_order else UNREAD


@pytest.mark.parametrize("kind", BAD)
@pytest.mark.parametrize(
    "model,script,good",
    [
        ("rating", lambda kind: rates("chosen", kind), lambda body: "Score: 9"),
        ("rating", lambda kind: rates("rejected", kind), lambda body: "Score: 9"),
        ("judge", lambda kind: judges(("A", "B"), kind), right),
        ("judge", lambda kind: judges(("B", "A"), kind), right),
    ],
)
def test_a_reply_that_cannot_be_read_does_not_hide_the_one_beside_it_that_is_asked_again(
    prbench: Callable[..., Any], pairs: Path, kind: str, model: str, script: Any, good: Any
) -> None:
    with scripted_server(script(kind)) as server:
        asked = ("eval", "--model", f"{model}:{server.spec}", "--data", str(pairs), "--probes", "own", "--json")
        first = prbench(*asked)
        assert first.json["unreadable"] == {kind: 12}
        assert first.code == 1, "no item could be read"
        before = server.attempts.copy()
        server.answer = good
        second = prbench(*asked)
        assert (second.code, second.json["run_id"]) == (1, first.json["run_id"])
        assert len(server.attempts - before) == 12, "the bad replies are asked again, and nothing else"
        # An unreadable reply is kept: asked once more, it would come out the same.
        assert second.json["unreadable"] == {"no_verdict": 12}


def test_a_plan_that_was_cut_off_is_asked_again(prbench: Callable[..., Any], pairs: Path) -> None:
    with scripted_server(lambda body: Said(text="- low cost: x\n- pla", finish="length")) as server:
        options = ("--data", str(pairs), "--context", "plan", "--probes", "own", "--planner", server.spec, "--json")
        first = prbench("eval", "--model", "control:longest", *options)
        assert first.json["unreadable"] == {"out_of_tokens": 12}
        server.answer = lambda body: "- low cost: x\n- plain words"
        second = prbench("eval", "--model", "control:longest", *options)
        assert (second.json["run_id"], second.json["unreadable"]) == (first.json["run_id"], {})
        asked = sum(server.attempts.values())
        prbench("eval", "--model", "control:shortest", *options)
        assert sum(server.attempts.values()) == asked, "a whole plan is kept"


def test_a_plan_that_has_all_that_is_read_of_it_is_kept_though_it_was_cut_off(
    prbench: Callable[..., Any], pairs: Path
) -> None:
    plan = Said(text="".join(f"- aspect {number}: x\n" for number in range(5)) + "- pla", finish="length")
    with scripted_server(lambda body: plan) as server:
        options = ("--data", str(pairs), "--context", "plan", "--probes", "own", "--planner", server.spec, "--json")
        assert prbench("eval", "--model", "control:longest", *options).json["unreadable"] == {}
        asked = sum(server.attempts.values())
        prbench("eval", "--model", "control:shortest", *options)
        assert sum(server.attempts.values()) == asked
