"""Neural reward models with random weights: classifiers, log-ratios of language models, and letters of a judge."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.golden.conftest import Golden
from tests.golden.extract import eval_cli, results_of
from tests.golden.people import odd, population, write
from tests.golden.tiny_models import FEW_WORDS, classifier, language_model, one_thread

NEURAL = 1e-5  # float32 sums depend on how a batch was cut


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("models")
    classifier(folder / "one")
    classifier(folder / "two", logits=2, seed=1)
    language_model(folder / "policy", seed=2)
    language_model(folder / "reference", seed=3)
    language_model(folder / "letters", FEW_WORDS, seed=5)
    with one_thread():
        yield folder


@pytest.fixture
def pairs(tmp_path: Path) -> Path:
    return write(tmp_path / "pairs.jsonl", population(6))


@pytest.mark.parametrize(
    "name,options",
    [
        ("shared_prefixes", []),
        ("padded", ["--no-share-prefixes", "--batch-size", "3"]),
        ("short_window", ["--max-length", "50"]),
        ("window_without_room", ["--max-length", "20"]),
    ],
)
def test_a_classifier(golden: Golden, models: Path, pairs: Path, name: str, options: list[str]) -> None:
    code = 1 if name == "window_without_room" else 0  # nothing can be read
    run = eval_cli(pairs.parent, f"classifier:{models / 'one'}", "--data", pairs, *options, code=code)
    golden(f"classifier_{name}", results_of(run), relative=NEURAL)


def test_shared_prefixes_and_padded_batches_agree(models: Path, pairs: Path) -> None:
    runs = [
        eval_cli(pairs.parent / name, f"classifier:{models / 'one'}", "--data", pairs, *options)
        for name, options in (("shared", []), ("padded", ["--no-share-prefixes"]))
    ]
    shared, padded = ([score for row in run.rows for score in row["scores"]] for run in runs)
    assert shared == pytest.approx(padded, rel=1e-4, abs=1e-5)


def test_one_of_two_logits(golden: Golden, models: Path, pairs: Path) -> None:
    run = eval_cli(pairs.parent, f"classifier:{models / 'two'}?logit=1", "--data", pairs, "--limit", "4")
    golden("classifier_logit", results_of(run), relative=NEURAL)


def test_a_classifier_reads_odd_rows(golden: Golden, models: Path, tmp_path: Path) -> None:
    data = write(tmp_path / "odd.jsonl", odd())
    run = eval_cli(tmp_path, f"classifier:{models / 'one'}", "--data", data)
    golden("classifier_odd", results_of(run), relative=NEURAL)


@pytest.mark.parametrize("options", ["", "?beta=0.1&per_token=true"])
def test_the_log_ratio_of_two_models(golden: Golden, models: Path, pairs: Path, options: str) -> None:
    run = eval_cli(pairs.parent, f"implicit:{models / 'policy'},{models / 'reference'}{options}", "--data", pairs)
    golden(f"implicit{'_per_token' if options else ''}", results_of(run), relative=1e-4)  # a difference of two sums


def test_what_the_context_adds_to_a_response(golden: Golden, models: Path, pairs: Path) -> None:
    run = eval_cli(pairs.parent, f"pmi:{models / 'policy'}", "--data", pairs)
    golden("pmi", results_of(run), relative=1e-4)  # a difference of two sums


def test_the_letters_of_a_judge_in_process(golden: Golden, models: Path, pairs: Path) -> None:
    run = eval_cli(pairs.parent, f"judge:hf:{models / 'letters'}?mode=logits", "--data", pairs, "--limit", "8")
    golden("judge_hf_logits", results_of(run), relative=1e-4)  # a difference of two log-probabilities
