"""How chat models are asked besides the words: room for the reply, temperature, seeds, the schema of the reply."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.build.lab_script import answer
from tests.golden import extract_pipelines as ask
from tests.golden.conftest import Golden
from tests.golden.pipelines.test_bon import advice, verdict
from tests.golden.pipelines.test_planner import judge, planner
from tests.support.scripted_server import ScriptedServer

Serve = Callable[..., ScriptedServer]
WORDS = ("messages", "model", "seed")


def asked(server: ScriptedServer) -> list[dict[str, Any]]:
    """Every way in which a server was asked: all of the body but its words, and what stands for the seeds."""
    seeds: dict[str, list[int | None]] = {}
    for body in server.bodies.values():
        way = json.dumps({name: value for name, value in body.items() if name not in WORDS}, sort_keys=True)
        seeds.setdefault(way, []).append(body.get("seed"))
    return [
        json.loads(way) | {"requests": len(some), "seeds": ask.digest(repr(sorted(map(repr, some))))}
        for way, some in sorted(seeds.items())
    ]


def test_a_measured_planner_and_its_judge(golden: Golden, tmp_path: Path, world: Path, serve: Serve) -> None:
    plans, verdicts = serve(planner), serve(judge)
    ask.measure_planner(tmp_path, plans.spec, str(world / "lab"), split="test", limit=8, posts=3, judge=verdicts.spec)
    golden("requests_planner", {"planner": asked(plans), "judge": asked(verdicts)})


def test_a_policy_and_the_judge_of_its_answers(golden: Golden, tmp_path: Path, pairs: Path, serve: Serve) -> None:
    policy, judge = serve(advice), serve(verdict)
    ask.bon(tmp_path, models=("fake:length",), policy=policy.spec, judge=judge.spec, data=pairs, n=2, limit=3, seed=5)
    golden("requests_bon", {"policy": asked(policy), "judge": asked(judge)})


@pytest.mark.parametrize("batched", [False, True])
def test_a_build(golden: Golden, tmp_path: Path, serve: Serve, batched: bool) -> None:
    server = serve(answer)
    options = {"users": 3, "words": 65, "concurrency": 1, "audit_encoder": "none", "private": True, "seed": 2}
    ask.build(tmp_path, spec=server.spec, batched_verification=batched or None, **options)
    golden(f"requests_build_{'batched' if batched else 'single'}", asked(server))
