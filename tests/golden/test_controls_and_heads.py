"""Rules and shipped heads on the lab: rows and figures."""

from pathlib import Path

import pytest
from tests.golden.conftest import Golden
from tests.golden.extract import eval_cli, results_of
from tests.golden.people import odd, write

LAB = ("--data", "lab", "--limit", "6")


@pytest.mark.parametrize("control", ["random", "longest", "shortest", "question", "overlap", "embed"])
def test_a_control_on_the_lab(golden: Golden, tmp_path: Path, control: str) -> None:
    run = eval_cli(tmp_path, f"control:{control}", *LAB, "--posts", "4", "--group-by", "level")
    golden(f"control_{control}", results_of(run))


@pytest.mark.parametrize("control", ["overlap", "embed"])
def test_a_control_on_odd_rows(golden: Golden, tmp_path: Path, control: str) -> None:
    data = write(tmp_path / "odd.jsonl", odd())
    run = eval_cli(tmp_path, f"control:{control}", "--data", data, "--rank", "bm25", "--posts", "3")
    golden(f"control_{control}_odd", results_of(run))


def test_the_gold_control_reads_the_rubric_of_the_lab(golden: Golden, tmp_path: Path) -> None:
    golden("control_gold", results_of(eval_cli(tmp_path, "control:gold", *LAB, "--context", "oracle")))


@pytest.mark.parametrize("head", ["lab-user", "lab-average"])
def test_a_shipped_head_on_the_lab(golden: Golden, tmp_path: Path, head: str) -> None:
    run = eval_cli(tmp_path, f"head:{head}", *LAB, "--posts", "4")
    golden(f"head_{head}", results_of(run), relative=1e-5)  # float32 sums
