"""How well planners foresee: plans by a script and by training, judged by a script and by the truth of the lab."""

import json
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

from tests.golden import extract_pipelines as ask
from tests.golden.conftest import Golden
from tests.golden.pipelines.conftest import LAB
from tests.support.scripted_server import ScriptedServer

Serve = Callable[..., ScriptedServer]
Trained = Callable[..., dict[str, Any]]
GUESSES = ("Low cost: they count every penny", "Fast meals", "Birds, weather and woods", "A clear answer", "Safety")


def planner(body: dict[str, Any]) -> str:
    """Two of the guesses, chosen by the prompt; now and then none."""
    dice = sha256(json.dumps(body["messages"]).encode()).digest()
    return "I cannot tell." if dice[0] < 25 else f"- {GUESSES[dice[1] % 5]}\n- {GUESSES[dice[2] % 5]}"


def judge(body: dict[str, Any]) -> str:
    """Pair the first guess with the first aspect, for every other prompt; now and then nobody can read it."""
    dice = sha256(json.dumps(body["messages"]).encode()).digest()
    return "Yes." if dice[0] < 25 else json.dumps({"pairs": [{"guess": 1, "true": 1}] if dice[1] % 2 else []})


def test_plans_of_a_language_model(golden: Golden, tmp_path: Path, world: Path, serve: Serve) -> None:
    plans, verdicts = serve(planner), serve(judge)
    asked = {"split": "test", "limit": 16, "posts": 3, "judge": verdicts.spec, "seed": 1}
    found = ask.measure_planner(tmp_path, plans.spec, str(world / "lab"), **asked)
    prompts = {
        name: ask.brief(sorted(ask.prompts_asked(server.bodies.values())))
        for name, server in (("planner", plans), ("judge", verdicts))
    }
    golden("planner_scripted", found | {"prompts": prompts})


def test_plans_of_a_trained_planner(golden: Golden, world: Path, trained: Trained) -> None:
    trained("planner", "planner", epochs=2, criteria_epochs=1, topics=6, posts=5)
    found = ask.measure_planner(world, str(world / "planner"), LAB, split="validation", limit=8, posts=5)
    golden("planner_trained", found, relative=1e-4)
