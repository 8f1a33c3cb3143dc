"""Best-of-N: the samples of a pool, their grades and scores, and the figures of everybody who picks."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.golden import extract_pipelines as ask
from tests.golden.conftest import Golden
from tests.support.scripted_server import ScriptedServer

Serve = Callable[..., ScriptedServer]
Trained = Callable[..., dict[str, Any]]


def test_controls_pick_from_the_pool_of_the_lab(golden: Golden, tmp_path: Path) -> None:
    models = ("control:overlap", "control:overlap?context=none", "control:longest", "fake:length?context=none")
    found = ask.bon(tmp_path, models=models, users=6, limit=16, n=8, group_by="category")
    golden("bon_controls", found)


def test_another_seed_and_more_posts(golden: Golden, tmp_path: Path) -> None:
    models = ("control:overlap", "control:shortest")
    golden("bon_seed", ask.bon(tmp_path, models=models, limit=8, n=8, seed=3, posts=30, rank="bm25"))


def test_heads_that_come_with_the_package(golden: Golden, tmp_path: Path) -> None:
    models = ("head:lab-user", "head:lab-average?context=none")
    golden("bon_heads", ask.bon(tmp_path, models=models, limit=2, n=3, posts=5), relative=1e-4)


def test_a_model_that_reads_labels_and_one_that_saw_the_rubric(
    golden: Golden, tmp_path: Path, world: Path, trained: Trained
) -> None:
    trained("fewshot", "fewshot", epochs=3, posts=5)
    spec = ask.spec_of(world, "fewshot", "fewshot")
    options = {"data": world / "lab", "split": "test", "limit": 10, "n": 8, "labels": world / "lab", "shots": 3}
    golden("bon_labels", ask.bon(tmp_path, models=(spec, "control:gold?context=oracle"), **options), relative=1e-4)


def test_a_tiny_policy_of_transformers(golden: Golden, tmp_path: Path, world: Path, tiny_policy: Path) -> None:
    options = {
        "data": world / "lab",
        "split": "test",
        "limit": 3,
        "n": 4,
        "max_new_tokens": 8,
        "policy_context": "profile",
    }
    found = ask.bon(tmp_path, models=("fake:length",), policy=f"hf:{tiny_policy}", posts=1, **options)
    golden("bon_hf_policy", found, relative=1e-4)


def test_a_tiny_policy_that_samples_likely_tokens_alone(
    golden: Golden, tmp_path: Path, one_subject: Path, tiny_policy: Path
) -> None:
    options = {"data": one_subject, "split": "train", "judge": "lab", "n": 4, "max_new_tokens": 8}
    options |= {"temperature": 0.7, "top_p": 0.8}
    found = ask.bon(tmp_path, models=("fake:length",), policy=f"hf:{tiny_policy}", **options)
    golden("bon_hf_policy_top_p", found, relative=1e-4)


ADVICE = ("Sow cheap seeds of thrift.", "Buy the finest pots.", "Wait for spring, then sow.", "Ask your neighbours.")


def advice(body: dict[str, Any]) -> str:
    """Two sentences, chosen by the prompt and the seed of the request."""
    key = hashlib.sha256(json.dumps([body["messages"], body.get("seed")]).encode()).digest()
    return f"{ADVICE[key[0] % 4]} {ADVICE[key[1] % 4]}"


def verdict(body: dict[str, Any]) -> str:
    """Two points for seeds, one for waiting, each with its quote."""
    prompt = body["messages"][-1]["content"]
    response = prompt[prompt.index("<response-") :]
    for score, quote in ((2, ADVICE[0]), (1, ADVICE[2])):
        if quote in response:
            return json.dumps({"verdicts": [{"number": 1, "evidence": quote, "reason": "said", "score": score}]})
    return json.dumps({"verdicts": [{"number": 1, "evidence": "", "reason": "none", "score": 0}]})


@pytest.mark.parametrize("policy_context", ["none", "profile", "oracle"])
def test_a_chat_policy_and_a_judge_of_rubrics(
    golden: Golden, tmp_path: Path, pairs: Path, serve: Serve, policy_context: str
) -> None:
    policy, judge = serve(advice), serve(verdict)
    found = ask.bon(
        tmp_path,
        models=("fake:length", "control:overlap", "fake:keyword=thrift?context=none"),
        policy=policy.spec,
        judge=judge.spec,
        data=pairs,
        n=8,
        limit=6,
        policy_context=policy_context,
    )
    asked = {
        "policy": ask.brief(sorted(ask.prompts_asked(policy.bodies.values()))),
        "judge": ask.brief(sorted(ask.prompts_asked(judge.bodies.values()))),
    }
    golden(f"bon_judge_{policy_context}", found | {"prompts": asked})


def short_quote(body: dict[str, Any]) -> str:
    """Two points, proved by the first words of the response: as many as the number of the question, up to four."""
    prompt = body["messages"][-1]["content"]
    said = next(text for text in ADVICE if text in prompt[prompt.index("<response-") :])
    words = 1 + int(prompt.partition("on balcony ")[2].partition("?")[0]) % 4
    quote = " ".join(said.split()[:words])
    return json.dumps({"verdicts": [{"number": 1, "evidence": quote, "reason": "said", "score": 2}]})


def test_a_judge_whose_quotes_are_short(golden: Golden, tmp_path: Path, pairs: Path, serve: Serve) -> None:
    policy, judge = serve(advice), serve(short_quote)
    options = {"data": pairs, "n": 2, "max_failed": 1.0}
    found = ask.bon(tmp_path, models=("fake:length",), policy=policy.spec, judge=judge.spec, **options)
    golden("bon_short_quotes", {name: found[name] for name in ("samples", "grades", "left_out")})


def test_models_without_scores_and_a_grader_that_cannot_tell(
    golden: Golden, tmp_path: Path, pairs: Path, serve: Serve
) -> None:
    judge = serve(lambda body: verdict(body) if "balcony 3" not in body["messages"][-1]["content"] else "No idea.")
    models = ("rating:fake:I cannot say.", "control:shortest")
    options = {"data": pairs, "n": 4, "max_failed": 1.0}
    golden("bon_left_out", ask.bon(tmp_path, models=models, policy=serve(advice).spec, judge=judge.spec, **options))


def test_a_plan_for_model_and_policy(golden: Golden, tmp_path: Path, world: Path, trained: Trained) -> None:
    trained("planner", "planner", epochs=2, criteria_epochs=1, topics=6, posts=5)
    spec = ask.spec_of(world, "planner", "planner")
    options = {"data": world / "lab", "split": "test", "limit": 6, "n": 4, "planner": world / "planner"}
    models = (spec, "control:overlap?context=plan")
    golden("bon_plan", ask.bon(tmp_path, models=models, policy_context="plan", **options), relative=1e-4)
