"""`reward.py` against a real server, and against servers that misbehave: a failure is never a number."""

import asyncio
import json
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx
import pytest
import yaml

EXPECTED = {"model": "m#1", "template_hash": "t", "max_failed": 0.2, "patience_seconds": 0.5, "timeout_seconds": 5.0}
USER = {"kind": "profile", "posts": ["I count my coins."], "labels": []}
ASKED = {"id": "item-000", "user_id": "u", "question": "Which beans?", "user": json.dumps(USER)}


def call(reward: ModuleType, url: str, response: str = "Runner beans.", **changes: Any) -> dict[str, float]:
    """Ask as verl's reward manager does."""
    asked = reward.compute_score(
        data_source="prbench",
        solution_str=response,
        ground_truth="item-000",
        extra_info=dict(ASKED),
        server=url,
        **EXPECTED | changes,
    )
    result: dict[str, float] = asyncio.run(asked)
    return result


def kwargs_of(folder: Path) -> dict[str, Any]:
    """Return what the configuration passes, with its references filled in."""
    config = yaml.safe_load((folder / "config.yaml").read_text())
    given: dict[str, Any] = config["reward"]["custom_reward_function"]["reward_kwargs"]
    ours = {f"${{prbench.{key}}}": value for key, value in config["prbench"].items()}
    return {key: ours.get(value, value) if isinstance(value, str) else value for key, value in given.items()}


# --- a server that works


def test_the_score_is_the_servers_own_scaled_as_the_export_measured(exported: Path, reward: ModuleType) -> None:
    given = kwargs_of(exported)
    row = {"question": ASKED["question"], "user": USER, "response": "Runner beans for few coins."}
    raw = httpx.post(f"{given['server']}/score", json=row, trust_env=False).json()["scores"][0]["value"]
    asked = reward.compute_score("prbench", "Runner beans for few coins.\n", "item-000", dict(ASKED), **given)
    assert asyncio.run(asked) == {"score": (raw - given["center"]) / given["spread"], "raw_score": raw}


def test_the_answer_is_what_is_scored(exported: Path, reward: ModuleType) -> None:
    """Defect 1: the template had no slot for the answer, so all answers earned the same."""
    given = kwargs_of(exported)

    async def scores() -> list[float]:
        return [
            (await reward.compute_score("prbench", answer, "item-000", dict(ASKED), **given))["raw_score"]
            for answer in ("Count your coins, then count them again.", "Zebras.")
        ]

    first, second = asyncio.run(scores())
    assert first > second == 0.0


def test_the_server_sees_question_context_and_answer_and_nothing_else(
    reward: ModuleType, scripted: Any, good: Any
) -> None:
    server = scripted(good())
    assert call(reward, server.url, " Runner beans. ") == {"score": 1.5, "raw_score": 1.5}
    assert server.bodies == [{"question": "Which beans?", "user": USER, "response": "Runner beans."}]


def test_there_is_no_metric_in_which_a_failure_would_count_as_0(reward: ModuleType, scripted: Any, good: Any) -> None:
    assert "acc" not in call(reward, scripted(good()).url)


def test_the_token_is_sent_and_needed(
    exported: Path, reward: ModuleType, serve: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    given = kwargs_of(exported)
    with serve("--model", "control:overlap", PRBENCH_SERVER_TOKEN="open-sesame-to-the-tests") as url:
        with pytest.raises(RuntimeError, match="HTTP 401"):
            call(reward, url, model=given["model"], template_hash="")
        monkeypatch.setenv("PRBENCH_SERVER_TOKEN", "open-sesame-to-the-tests")
        assert call(reward, url, model=given["model"], template_hash="")["raw_score"] >= 0


def test_half_a_surrogate_pair_can_be_scored(reward: ModuleType, scripted: Any, good: Any) -> None:
    assert call(reward, scripted(good()).url, "beans \ud83c")["score"] == 1.5


def test_no_more_requests_are_under_way_than_allowed(reward: ModuleType, scripted: Any, good: Any, reply: Any) -> None:
    server = scripted(lambda number, path, body: reply(good().body, after_seconds=0.02))

    async def many() -> list[dict[str, float]]:
        kwargs = EXPECTED | {"server": server.url, "concurrency": 4}
        return await asyncio.gather(
            *(reward.compute_score("prbench", f"Answer {i}.", "id", dict(ASKED), **kwargs) for i in range(24))
        )

    assert len(asyncio.run(many())) == 24
    assert server.most_at_once <= 4


def test_it_needs_no_prbench(exported: Path) -> None:
    code = f"""
import runpy, sys
sys.modules["prbench"] = None  # any import of it fails now
runpy.run_path({str(exported / "reward.py")!r})
runpy.run_path({str(exported / "preflight.py")!r})
"""
    subprocess.run([sys.executable, "-c", code], check=True)


# --- servers that fail


def test_a_server_that_is_down_gives_no_number(reward: ModuleType) -> None:
    """Defect 3: it gave 0.5."""
    with pytest.raises(RuntimeError, match=r"No score for item-000: given up after 0\.5 seconds: ConnectError"):
        call(reward, "http://127.0.0.1:9")
    assert reward.worker.counts == {"unreachable": 1}


@pytest.mark.parametrize("status", [429, 502, 503, 504])
def test_a_busy_server_is_asked_again(reward: ModuleType, scripted: Any, good: Any, reply: Any, status: int) -> None:
    busy = reply({"error": {}}, status=status, headers={"Retry-After": "0"})
    server = scripted(busy, busy, good())
    assert call(reward, server.url)["score"] == 1.5
    assert len(server.bodies) == 3
    assert reward.worker.counts == {"scored": 1}


def test_it_waits_as_long_as_the_server_asks(reward: ModuleType, scripted: Any, good: Any, reply: Any) -> None:
    server = scripted(reply({}, status=429, headers={"Retry-After": "30"}), good())
    with pytest.raises(RuntimeError, match="given up"):  # 30 seconds are more than its patience
        call(reward, server.url)
    assert len(server.bodies) == 1


def test_a_server_that_stays_busy_is_given_up(reward: ModuleType, scripted: Any, reply: Any) -> None:
    server = scripted(reply({}, status=429))
    with pytest.raises(RuntimeError, match="HTTP 429"):
        call(reward, server.url)
    assert len(server.bodies) > 2


@pytest.mark.parametrize("status", [400, 401, 404, 413, 422, 500])
def test_what_would_fail_again_is_not_asked_again(reward: ModuleType, scripted: Any, reply: Any, status: int) -> None:
    server = scripted(reply({"error": {"message": "no"}}, status=status))
    with pytest.raises(RuntimeError, match=f"HTTP {status}"):
        call(reward, server.url)
    assert len(server.bodies) == 1


def test_a_server_that_does_not_answer_in_time_gives_no_number(
    reward: ModuleType, scripted: Any, good: Any, reply: Any
) -> None:
    server = scripted(lambda number, path, body: reply(good().body, after_seconds=1.0))
    with pytest.raises(RuntimeError, match="Timeout"):
        call(reward, server.url, timeout_seconds=0.1, patience_seconds=0.3)


GARBAGE = [
    b"",
    b"not json",
    b"\xff\xfe",
    b"[1.5]",
    b"1.5",
    b"null",
    b"{}",
    b'{"model": "m#1", "template_hash": "t"}',
    b'{"model": "m#1", "template_hash": "t", "scores": []}',
    b'{"model": "m#1", "template_hash": "t", "scores": [{"value": 1}, {"value": 2}]}',
    b'{"model": "m#1", "template_hash": "t", "scores": [1.5]}',
    b'{"model": "m#1", "template_hash": "t", "scores": [{}]}',
    b'{"model": "m#1", "template_hash": "t", "scores": [{"value": "1.5"}]}',
    b'{"model": "m#1", "template_hash": "t", "scores": [{"value": true}]}',
    b'{"model": "m#1", "template_hash": "t", "scores": [{"value": NaN}]}',
    b'{"model": "m#1", "template_hash": "t", "scores": [{"value": Infinity}]}',
    b'{"model": "m#1", "template_hash": "t", "scores": {"value": 1.5}}',
]


@pytest.mark.parametrize("body", GARBAGE)
def test_garbage_is_no_number(reward: ModuleType, scripted: Any, reply: Any, body: bytes) -> None:
    with pytest.raises(RuntimeError, match="No score"):
        call(reward, scripted(reply(body)).url)
    assert reward.worker.counts == {"unreadable": 1}


def test_a_score_that_the_model_did_not_give_is_no_number(reward: ModuleType, scripted: Any, good: Any) -> None:
    missing = good(scores=[{"value": None, "problem": "too_long", "detail": "beyond the window"}])
    with pytest.raises(RuntimeError, match="too_long beyond the window"):
        call(reward, scripted(missing).url)
    assert reward.worker.counts == {"too_long": 1}


# --- another model


def test_a_chat_model_that_another_one_answered_for_costs_one_score(
    reward: ModuleType, scripted: Any, good: Any
) -> None:
    """The reward server is the right one, and its next score may be had."""
    missing = good(scores=[{"value": None, "problem": "wrong_model", "detail": "asked for 'm', but 'n' answered"}])
    server = scripted(missing, good())
    with pytest.raises(RuntimeError, match="but 'n' answered"):
        call(reward, server.url)
    assert call(reward, server.url)["raw_score"] == 1.5


@pytest.mark.parametrize("change", [{"model": "m#2"}, {"template_hash": "other"}])
def test_a_score_of_another_model_is_refused_and_the_worker_stops(
    reward: ModuleType, scripted: Any, good: Any, change: dict[str, str]
) -> None:
    """Defect 16: a stale server of another run passed, and PPO learned from the wrong model."""
    server = scripted(good(**change), good())
    with pytest.raises(RuntimeError, match="this run learns from"):
        call(reward, server.url)
    with pytest.raises(RuntimeError, match="has stopped"):
        call(reward, server.url)
    assert len(server.bodies) == 1


# --- too many failures


def test_a_worker_that_fails_too_often_stops(reward: ModuleType, scripted: Any, good: Any, reply: Any) -> None:
    failing = reply({}, status=500)
    server = scripted(*[good()] * 3, *[failing] * 21, good())
    for _ in range(3):
        call(reward, server.url)
    for _ in range(21):  # of the latest 100 answers, 20 may fail
        with pytest.raises(RuntimeError, match="HTTP 500"):
            call(reward, server.url)
    with pytest.raises(RuntimeError, match=r"stopped: 21 of the latest 24 answers got no score .*'refused': 21"):
        call(reward, server.url)
    assert len(server.bodies) == 24


def test_failures_now_and_then_are_tolerated(reward: ModuleType, scripted: Any, good: Any, reply: Any) -> None:
    server = scripted(lambda number, path, body: reply({}, status=500) if number % 10 == 0 else good())
    kwargs = EXPECTED | {"server": server.url, "concurrency": 8, "patience_seconds": 20.0}

    async def many() -> list[Any]:
        asked = (reward.compute_score("prbench", "Beans.", "id", dict(ASKED), **kwargs) for _ in range(150))
        return await asyncio.gather(*asked, return_exceptions=True)

    results = asyncio.run(many())
    assert [type(each) for each in results].count(RuntimeError) == 15
    assert dict(reward.worker.counts) == {"refused": 15, "scored": 135}


def test_the_error_can_go_to_another_process(reward: ModuleType) -> None:
    with pytest.raises(RuntimeError) as caught:
        call(reward, "http://127.0.0.1:9", patience_seconds=0.0)
    assert type(pickle.loads(pickle.dumps(caught.value))) is RuntimeError
    assert caught.value.__cause__ is None
