"""Reward models behind HTTP: our own server and its client, and vLLM's endpoints for classifiers."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from tests.golden.conftest import Golden
from tests.golden.extract import eval_cli, results_of, server_scores, serving
from tests.golden.people import population, write
from tests.golden.stand_in import stand_in, vllm, vllm_of_pairs
from tests.golden.tiny_models import classifier

from prbench.reward_models.dialects import TRIAL

NEURAL = 1e-5  # float32 sums depend on how a batch was cut


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return classifier(tmp_path_factory.mktemp("served"))


@pytest.fixture(scope="module")
def address(tiny: Path) -> Iterator[str]:
    with serving(f"classifier:{tiny}", "--max-length", "60") as url:
        yield url


@pytest.fixture
def pairs(tmp_path: Path) -> Path:
    return write(tmp_path / "pairs.jsonl", population(6))


def test_a_served_classifier_scores_as_it_does_here(golden: Golden, tiny: Path, address: str, pairs: Path) -> None:
    served = eval_cli(pairs.parent / "served", f"server:{address}", "--data", pairs, "--limit", "6")
    here = eval_cli(pairs.parent / "here", f"classifier:{tiny}", "--data", pairs, "--limit", "6", "--max-length", "60")
    golden("server_prbench", results_of(served), relative=NEURAL)
    for one, other in zip(served.rows, here.rows, strict=True):
        assert one["scores"] == pytest.approx(other["scores"], rel=1e-4, abs=1e-5)
        assert (one["verdict"], one["posts"]) == (other["verdict"], other["posts"])


def test_what_post_score_answers(golden: Golden, address: str) -> None:
    question = "What should I grow on my balcony?"
    inputs = [
        {"question": question, "context": "", "response": "Begin with two pots."},
        {"question": question, "context": "- I count my coins before I buy.", "response": "Begin with two pots."},
        {"question": question, "context": "- I count my coins before I buy.", "response": "Get up at eight."},
        {"question": question, "context": "words " * 80, "response": "Begin with two pots."},
        {"question": "緑茶?", "context": "", "response": "<|end|> Tee"},
    ]
    with httpx.Client(base_url=address, trust_env=False, timeout=60) as client:
        many = client.post("/score", json={"inputs": inputs}).json()
        one = client.post("/score", json=inputs[0]).json()
        fits = client.post("/fits", json={"inputs": inputs}).json()["fits"]
        texts = [each["response"] for each in inputs[:3]]
        pairs = client.post("/v1/score", json={"text_1": question, "text_2": texts}).json()["data"]
        ranked = client.post("/v1/rerank", json={"query": question, "documents": texts, "top_n": 2}).json()["results"]
        wrong = client.post("/score", json={"question": question, "response": "No context."}).status_code
    found = {
        "many": server_scores(many),
        "one": server_scores(one),
        "fits": fits,
        "pairs": [row["score"] for row in pairs],
        "ranked": [[row["index"], row["relevance_score"]] for row in ranked],
        "wrong": wrong,
    }
    golden("serve_score", found, relative=NEURAL)


@pytest.mark.parametrize("api", ["classify", "pooling", "score"])
def test_a_classifier_behind_vllm(golden: Golden, pairs: Path, api: str) -> None:
    with stand_in(vllm_of_pairs if api == "score" else vllm) as server:
        spec = f"server:{server.url}?api={api}{'' if api == 'score' else '&logit=1'}"
        run = eval_cli(pairs.parent, spec, "--data", pairs, "--limit", "6")
    sent = [body for body in server.bodies(f"/{api}") if body.get("text_2") != TRIAL.response]
    golden(f"server_{api}", {**results_of(run), "sent": len(sent), "some": sent[:2]})
