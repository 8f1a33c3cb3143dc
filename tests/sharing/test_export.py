"""Exports say what the run says, in the form of those who read them."""

import csv
import json
import re
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import yaml

from prbench.registry import RUN_EXPORTERS

SCORED, JUDGED = "control:overlap", "judge:fake:Result: A"


def summary(run: Path) -> Any:
    return json.loads((run / "summary.json").read_text())


def own_rows(run: Path) -> list[dict[str, Any]]:
    rows = [json.loads(line) for line in (run / "items.jsonl").read_text().splitlines()]
    return sorted((row for row in rows if row["probe"] == "own"), key=lambda row: str(row["id"]))


def test_every_eval_ever_has_every_figure_with_its_interval_and_a_line_a_pair(
    prbench: Callable[..., Any], run_of: Callable[[str], Path]
) -> None:
    run = run_of(SCORED)
    ended = prbench("export", str(run), "--to", "every-eval-ever?model=org/name", "--json")
    assert ended.code == 0, ended.err
    lines, record = (Path(path) for path in ended.json["files"])
    assert re.fullmatch(r"exports/data/prbench/org/name/[0-9a-f-]{36}\.json", record.as_posix())
    found = json.loads(record.read_text())
    figures = {each["metric_config"]["metric_name"]: each["score_details"] for each in found["evaluation_results"]}
    assert figures["accuracy"]["score"] == summary(run)["accuracy"]["value"]
    interval = figures["swap gap"]["uncertainty"]["confidence_interval"]
    assert (interval["lower"], interval["upper"]) == tuple(summary(run)["swap"]["gap"][end] for end in ("low", "high"))
    assert found["model_info"]["id"] == "org/name"
    assert found["detailed_evaluation_results"]["file_path"] == lines.relative_to("exports").as_posix()
    samples = [json.loads(line) for line in lines.read_text().splitlines()]
    assert [each["evaluation"]["is_correct"] for each in samples] == [
        row["verdict"] == "chosen" for row in own_rows(run)
    ]
    assert {each["evaluation_id"] for each in samples} == {found["evaluation_id"]}
    again = prbench("export", str(run), "--to", "every-eval-ever?model=org/name", "--json")
    assert again.json["files"] == ended.json["files"], "an export takes the place of the former one"


def test_the_hubs_eval_results_are_read_by_its_own_client(
    prbench: Callable[..., Any], run_of: Callable[[str], Path]
) -> None:
    hub = pytest.importorskip("huggingface_hub", reason="needs pip install 'prbench[hf]'")
    run = run_of(SCORED)
    target = "hf-eval-results?dataset=org/pairs&source=https://example.org/rows"
    (path,) = prbench("export", str(run), "--to", target, "--json").json["files"]
    assert path == f"exports/{run.name}/.eval_results/prbench-org-pairs.yaml"
    entries = hub.parse_eval_result_entries(yaml.safe_load(Path(path).read_text()))
    by_category = summary(run)["accuracy_by_category"]
    assert {entry.task_id: entry.value for entry in entries} == {
        category: round(100 * figure["value"], 2) for category, figure in by_category.items()
    }
    assert {entry.dataset_id for entry in entries} == {"org/pairs"}
    assert hub.eval_result_entries_to_yaml(entries) == yaml.safe_load(Path(path).read_text())
    (path,) = prbench("export", str(run), "--to", f"{target}&task=all", "--json").json["files"]
    (entry,) = hub.parse_eval_result_entries(yaml.safe_load(Path(path).read_text()))
    assert (entry.task_id, entry.value) == ("all", round(100 * summary(run)["accuracy"]["value"], 2))


def test_a_dataset_that_is_on_no_hub_has_to_be_named(
    prbench: Callable[..., Any], run_of: Callable[[str], Path]
) -> None:
    ended = prbench("export", str(run_of(SCORED)), "--to", "hf-eval-results")
    assert (ended.code, ended.err.count("\n")) == (2, 1)
    assert "is on no hub. Name the dataset's id: --to 'hf-eval-results?dataset=org/name'." in ended.err


def test_rewardbench_counts_a_tie_as_wrong(prbench: Callable[..., Any], run_of: Callable[[str], Path]) -> None:
    run = run_of(SCORED)
    rows = own_rows(run)
    figures, scores = prbench("export", str(run), "--to", "rewardbench", "--json").json["files"]
    found = json.loads(Path(figures).read_text())
    assert found["accuracy"] == sum(row["score_chosen"] > row["score_rejected"] for row in rows) / len(rows)
    assert (found["num_prompts"], found["model"]) == (24, "local/control-overlap")
    assert set(found["extra_results"]) == {"Art_and_Entertainment", "Society_and_Culture"}
    assert [json.loads(line) for line in Path(scores).read_text().splitlines()] == [
        {"chosen": row["score_chosen"], "rejected": row["score_rejected"]} for row in rows
    ]
    refused = prbench("export", str(run_of(JUDGED)), "--to", "rewardbench")
    assert refused.code == 2
    assert "has no scores of two responses" in refused.err


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_tables_have_a_line_a_row_and_the_facts_as_columns(
    prbench: Callable[..., Any], run_of: Callable[[str], Path], form: str
) -> None:
    run = run_of(JUDGED)
    files = prbench("export", str(run), "--to", form, "--json").json["files"]
    if form == "csv":
        rows = list(csv.DictReader(StringIO(Path(files[0]).read_text())))
        (figures,) = csv.DictReader(StringIO(Path(files[1]).read_text()))
        assert float(figures["accuracy"]) == summary(run)["accuracy"]["value"]
    else:
        rows = pytest.importorskip("pyarrow.parquet").read_table(files[0]).to_pylist()
    assert len(rows) == 72
    assert {row["probe"] for row in rows} == {"own", "none", "swap"}
    assert {row["group_level"] for row in rows} == {"l0", "l1"}
    assert {row["run_id"] for row in rows} == {run.name}
    assert "orders" not in rows[0], "a judge's words stay in the run"


@pytest.mark.parametrize(
    "target, line",
    [
        ("trl", "--to trl: is a form of datasets, not of runs. Write: prbench data convert trl:FILE --data"),
        ("verl", "Write: prbench ppo export verl DIR --policy"),
        ("every-eval", "Unknown kind 'every-eval' of run export"),
        ("csv?sep=;", "there are no options here"),
    ],
)
def test_what_cannot_be_written_is_one_line_that_says_what_can(
    prbench: Callable[..., Any], run_of: Callable[[str], Path], target: str, line: str
) -> None:
    ended = prbench("export", str(run_of(SCORED)), "--to", target)
    assert (ended.code, ended.err.count("\n")) == (2, 1)
    assert line in ended.err
    assert not Path("exports").exists()


def test_every_form_has_a_test_here() -> None:
    assert set(RUN_EXPORTERS.names) == {"every-eval-ever", "hf-eval-results", "rewardbench", "csv", "parquet", "hub"}


def test_a_dataset_folder_says_that_it_is_a_benchmark(prbench: Callable[..., Any], made: Path) -> None:
    assert prbench("data", "convert", "folder:ours", "--data", str(made / "pairs.jsonl")).code == 0
    found = yaml.safe_load(Path("ours/eval.yaml").read_text())
    assert found["evaluation_framework"] == "prbench"
    assert [(task["id"], task["config"], task["split"]) for task in found["tasks"]] == [
        ("Art_and_Entertainment", "Art_and_Entertainment", "test"),
        ("Society_and_Culture", "Society_and_Culture", "test"),
    ]
    again = prbench("eval", "--model", SCORED, "--data", "ours", "--out", "again", "--json")
    assert again.json["n_items"] == 24, "the folder is read as before"
    folder = next(Path("again").glob("*/summary.json")).parent
    (path,) = prbench("export", str(folder), "--to", "hf-eval-results?dataset=org/pairs", "--json").json["files"]
    assert {each["dataset"]["task_id"] for each in yaml.safe_load(Path(path).read_text())} == {
        task["id"] for task in found["tasks"]
    }
