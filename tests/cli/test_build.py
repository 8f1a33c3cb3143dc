"""`prbench build` on the command line."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.build.lab_script import answer
from tests.support.scripted_server import ScriptedServer, scripted_server

Command = Callable[..., Any]


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with scripted_server(answer) as running:
        yield running


def models(spec: str) -> tuple[str, ...]:
    return ("--generator", spec, "--judge", spec, "--quality-judge", spec, "--users", "3", "--words", "65")


def test_a_build_says_what_became_of_every_stage(prbench: Command, server: ScriptedServer) -> None:
    done = prbench("build", "--out", "set", *models(server.spec), "--stage", "parity")
    assert done.code == 0, done.err
    stages = [line.split()[0] for line in done.err.splitlines()]
    assert stages == ["rank", "rubric", "generate", "verify", "parity"]
    assert done.out.splitlines()[0] == "3 pairs of 3 users, from 3 items"


def test_a_limit_is_one_line_and_exit_code_1(prbench: Command, server: ScriptedServer) -> None:
    command = ("build", "--out", "set", *models(server.spec), "--stage", "parity", "--json")
    stopped = prbench(*command, "--max-requests", "4")
    assert stopped.code == 1
    assert "max_requests = 4" in stopped.err.splitlines()[-1]
    assert sum(server.answered.values()) == 4
    done = prbench(*command)
    assert json.loads(done.out)["pairs"] == 3
    assert max(server.answered.values()) == 1


def test_a_dry_run_sends_and_writes_nothing(prbench: Command, tmp_path: Path, server: ScriptedServer) -> None:
    price = ("--price-input", "1", "--price-output", "2")
    done = prbench("build", "--out", "set", *models(server.spec), "--dry-run", "--json", *price)
    assert done.code == 0, done.err
    stages = {stage["stage"]: stage for stage in json.loads(done.out)}
    assert (stages["generate"]["requests"], stages["parity"]["requests"]) == (6, 6)
    assert stages["generate"]["cost_at_most"] == pytest.approx(
        (stages["generate"]["prompt_tokens"] + 2 * stages["generate"]["completion_tokens_at_most"]) / 1e6
    )
    assert not server.attempts
    assert not (tmp_path / "set").exists()


@pytest.mark.parametrize(
    "arguments,message",
    [
        (("--price-input", "1"), "Give --price-input and --price-output together"),
        (("--data", "nowhere.jsonl"), "nowhere.jsonl: there is no such file"),
        (("--judge", "opnai:x"), "Unknown kind 'opnai'"),
        (("--rank", "best"), "--rank 'best' is not known"),
        ((), "license"),
        (("--temperature", "inf"), "--temperature inf: give a number"),
        (("--temperature", "nan"), "Invalid value for '--temperature'"),
        (("--timeout", "nan"), "--timeout nan: give a number of seconds above 0"),
        (("--timeout", "0"), "--timeout 0.0: give a number of seconds above 0"),
        (("--max-cost", "inf"), "The limit max_cost is inf"),
        (("--max-cost", "nan"), "The limit max_cost is nan"),
        (("--price-input", "nan", "--price-output", "1"), "A price of nan is none"),
        (("--price-input", "1", "--price-output", "-2"), "A price of -2.0 is none"),
        (("--date", "2026-99-99"), "--date 2026-99-99: there is no such day"),
        (("--date", "2026-02-29"), "--date 2026-02-29: there is no such day"),
    ],
)
def test_what_a_user_can_mend_is_one_line(prbench: Command, arguments: tuple[str, ...], message: str) -> None:
    private = ("--private",) if arguments else ()
    done = prbench("build", "--out", "set", *models("fake:x"), *arguments, *private)
    assert done.code == 2
    assert message in done.err
    assert len(done.err.strip().splitlines()) == 1


@pytest.mark.parametrize("seconds", ["9" * 30, "253402300800", "soon", "-1", "١"])
def test_a_time_that_cannot_be_is_one_line_before_anything_is_done(
    prbench: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: str
) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", seconds)
    done = prbench("build", "--out", "set", *models("fake:x"), "--private")
    assert done.code == 2
    (line,) = done.err.strip().splitlines()
    assert "SOURCE_DATE_EPOCH=" in line
    assert not (tmp_path / "set").exists()


def test_no_pair_is_exit_code_1_with_the_place_to_look(prbench: Command, tmp_path: Path) -> None:
    done = prbench("build", "--out", "set", *models("fake:x"), "--retries", "0", "--private")
    assert done.code == 1
    assert "rejects.jsonl" in done.out
    rejects = (tmp_path / "set" / "rejects.jsonl").read_text().splitlines()
    assert {json.loads(line)["reason"] for line in rejects} == {"too_short"}
