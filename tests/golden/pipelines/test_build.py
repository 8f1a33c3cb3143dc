"""A build by a script that lives in the lab: rows, rejects, prompts, spending, and what it was expected to take."""

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.build.conftest import user_row
from tests.build.lab_script import Rates, answer, erring, reply
from tests.golden import extract_pipelines as ask
from tests.golden.conftest import Golden
from tests.support.scripted_server import ScriptedServer

Serve = Callable[..., ScriptedServer]
LAB = {"users": 4, "words": 65, "concurrency": 1, "audit_encoder": "none"}
PUBLIC = {"license": "cc-by-4.0", "consent": "They were asked.", "title": "A set", "date": "2026-05-01"}


def prompts_of(server: ScriptedServer, *, shown: int) -> dict[str, object]:
    """The first prompts in full, and what stands for all of them."""
    prompts = sorted(ask.prompts_asked(server.bodies.values()))
    kinds: dict[str, str] = {}
    for prompt in prompts:
        kinds.setdefault(prompt[:60], prompt)
    return {"kinds": list(kinds.values())[:shown], **ask.brief(prompts)}


def test_pairs_of_the_lab(golden: Golden, tmp_path: Path, serve: Serve) -> None:
    server = serve(answer)
    prices = {"price_input": 1, "price_output": 2}
    found = ask.build(tmp_path, spec=server.spec, **LAB, **PUBLIC, **prices, split_by_user="train=0.5,test=0.5")
    sent = {"answers": sum(server.answered.values()), "tokens": dict(sorted(server.usage.items()))}
    golden("build_lab", found | {"prompts": prompts_of(server, shown=8), "sent": sent})


def test_mistakes_are_rejected_with_their_reasons(golden: Golden, tmp_path: Path, serve: Serve) -> None:
    often = Rates(violations=0.3, wrong_verdicts=0.05, unquoted=0.1, unequal=0.3)
    server = serve(lambda body: reply(body, often))
    found = ask.build(tmp_path, spec=server.spec, **{**LAB, "users": 12}, private=True, retries=1)
    golden("build_mistakes", found)


def test_all_aspects_in_one_request(golden: Golden, tmp_path: Path, serve: Serve) -> None:
    server = serve(erring)
    asked = {**LAB, "batched_verification": True, "private": True, "seed": 3, "rank": "recent", "posts": 4}
    found = ask.build(tmp_path, spec=server.spec, **asked)
    golden("build_batched", found | {"prompts": prompts_of(server, shown=0)})


def test_pairs_from_posts_alone(golden: Golden, tmp_path: Path, serve: Serve) -> None:
    server = serve(answer)
    source = ask.write_rows(tmp_path / "posts.jsonl", [user_row(number) for number in range(3)])
    asked = {**LAB, "users": None, "data": source, "aspects": 2, "questions_per_user": 2, "redact": True}
    found = ask.build(tmp_path, spec=server.spec, **asked, private=True)
    golden("build_posts", found | {"prompts": prompts_of(server, shown=2)})


@pytest.mark.parametrize("batched", [False, True])
def test_what_a_build_is_expected_to_take(golden: Golden, tmp_path: Path, serve: Serve, batched: bool) -> None:
    asked = {**LAB, "batched_verification": batched or None, "price_input": 1, "price_output": 2, "private": True}
    golden(
        f"build_forecast_{'batched' if batched else 'single'}", ask.build_forecast(tmp_path, spec="fake:x", **asked)
    )
