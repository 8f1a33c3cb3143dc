"""Models of every method that trains in a second, and what each says about people whom it has not seen."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.golden.conftest import Golden
from tests.golden.extract import eval_cli, results_of, train_cli
from tests.golden.people import population, write
from tests.golden.tiny_models import one_thread

TRAINED = 1e-3  # rounding differences grow over the steps of a training
TEST = population(12)[12:]

Train = Callable[[str], str]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with pairs to train on, to test on, and labelled pairs of those under test."""
    folder = tmp_path_factory.mktemp("data")
    write(folder / "train.jsonl", population(36, start=100))
    write(folder / "test.jsonl", TEST)
    write(folder / "labels.jsonl", population(12, (2,)))
    return folder


@pytest.fixture(scope="module")
def train(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Train]:
    """Train each method once, when it is first needed; return its spec."""
    home = tmp_path_factory.mktemp("trained")
    settings = {
        "head": {"topics": 6, "epochs": 3},
        "match": {},
        "planner": {"topics": 6, "members": 2, "epochs": 3, "criteria_rank": 4, "criteria_epochs": 2},
        "summary": {"rounds": 1, "samples": 4, "epochs": 3},
        "rubric-chain": {"loss_samples": 2, "epochs": 2},
        "fewshot": {"topics": 6, "directions": 3, "epochs": 4, "reads_posts": "true"},
        "blend": {"models": f"{home / 'match'},{home / 'planner'}"},
    }
    specs: dict[str, str] = {}

    def once(method: str) -> str:
        if method == "blend":
            once("match")
            once("planner")
        if method not in specs:
            specs[method] = train_cli(method, data / "train.jsonl", home / method, **settings[method])
        return specs[method]

    with one_thread():
        yield once


@pytest.mark.parametrize("method", ["head", "match", "planner", "summary", "rubric-chain", "blend"])
def test_a_trained_model(golden: Golden, train: Train, data: Path, tmp_path: Path, method: str) -> None:
    run = eval_cli(tmp_path, train(method), "--data", data / "test.jsonl")
    golden(f"trained_{method}", results_of(run), relative=TRAINED)


@pytest.mark.parametrize("context", ["none", "profile"])
def test_a_model_that_adapts_to_labels(golden: Golden, train: Train, data: Path, tmp_path: Path, context: str) -> None:
    options = ["--data", data / "test.jsonl", "--context", context, "--labels", data / "labels.jsonl", "--shots", "3"]
    run = eval_cli(tmp_path, train("fewshot"), *options)
    golden(f"trained_fewshot_{context}", results_of(run), relative=TRAINED)


def test_the_plans_of_a_trained_planner(golden: Golden, train: Train, data: Path, tmp_path: Path) -> None:
    folder = train("planner").removeprefix("planner:")
    options = ["--data", data / "test.jsonl", "--context", "plan", "--planner", folder]
    run = eval_cli(tmp_path, "control:overlap", *options)
    golden("context_plan_trained_scores", results_of(run))
