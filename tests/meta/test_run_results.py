"""Results of our own commands: runs with their rows, Best-of-N with its pool, policies at a KL."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from prbench.errors import DataError, RunError
from prbench.evaluation import EvalSettings, evaluate
from prbench.insight.meta.read import read_boards
from prbench.runs import RunConfig
from prbench.schema import Probe

Rows = Callable[[int], list[dict[str, Any]]]


@pytest.fixture
def runs(tmp_path: Path, rows: Rows) -> Path:
    """Three runs on 24 pairs; one of them saw the rubric."""
    data = tmp_path / "pairs.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows(24)))
    probes = (Probe.OWN, Probe.SWAP)
    for model, context in (("control:overlap", "profile"), ("control:longest", "none"), ("control:overlap", "oracle")):
        evaluate(data, model, context, out=tmp_path / "runs", settings=EvalSettings(context=context, probes=probes))
    return tmp_path / "runs"


def estimate(value: float) -> dict[str, float]:
    return {"value": value, "low": value - 0.1, "high": value + 0.1, "n": 4}


def bon_summary(**values: float) -> dict[str, Any]:
    models = {
        spec: {
            "context": "none" if "none" in spec else "profile",
            "questions": 2,
            "value_at": {"1": estimate(0), "2": estimate(value)},
            "captured_headroom": estimate(value / 2),
        }
        for spec, value in values.items()
    }
    return {"n": 2, "sizes": [1, 2], "models": models, "differences": [], "run_id": "x"}


def test_runs_are_one_board_with_items(runs: Path) -> None:
    (board,) = read_boards([str(runs)])
    assert sorted(board.models) == ["control:longest?context=none", "control:overlap"]
    assert board.notes[0].endswith("1 runs that saw the gold rubric are left out.")
    assert board.items is not None
    assert len(board.items.ids) == 24
    summaries = [json.loads((folder / "summary.json").read_text()) for folder in runs.iterdir()]
    known = {each["model"]: each["accuracy"]["value"] for each in summaries if each["context"] != "oracle"}
    assert dict(zip(board.models, board.scores, strict=True)) == {
        "control:longest?context=none": known["control:longest"],
        "control:overlap": known["control:overlap"],
    }


def test_a_figure_of_a_run(runs: Path) -> None:
    (gap,) = read_boards([f"gap={runs}#swap.gap"])
    assert dict(zip(gap.models, gap.scores, strict=True))["control:longest?context=none"] == 0.0
    (least,) = read_boards([f"{runs}#min_category_accuracy"])
    assert len(least.models) == 2
    assert least.items is None
    with pytest.raises(DataError, match="has no such figure"):
        read_boards([f"{runs}#nonsense"])


def test_a_summary_file_and_a_list_of_them(runs: Path, save_json) -> None:
    folder = next(each for each in sorted(runs.iterdir()) if '"oracle"' not in (each / "summary.json").read_text())
    (board,) = read_boards([str(folder / "summary.json")])
    assert board.items is not None  # the rows lie beside it
    content = json.loads((folder / "summary.json").read_text())
    (alone,) = read_boards([str(save_json("copied.json", [content]))])
    assert alone.items is None
    assert alone.scores.tolist() == board.scores.tolist()


def test_the_same_run_twice_is_refused(runs: Path) -> None:
    with pytest.raises(DataError, match="is there twice"):
        read_boards([f"b={runs}", f"b={runs}"])


def test_only_ceilings_cannot_be_ranked(runs: Path) -> None:
    oracle = next(
        each for each in runs.iterdir() if json.loads((each / "summary.json").read_text())["context"] == "oracle"
    )
    with pytest.raises(DataError, match="none is ranked"):
        read_boards([str(oracle)])


def test_best_of_n_without_its_rows(save_json) -> None:
    content = bon_summary(**{"head:a": 0.4, "head:a?context=none": 0.2, "random": 0.0, "oracle": 1.0})
    path = save_json("bon.json", content)
    (board,) = read_boards([str(path)])
    assert (board.name, board.models, board.scores.tolist()) == (
        "best of 2",
        ("head:a", "head:a?context=none"),
        [0.4, 0.2],
    )
    assert board.low.tolist() == pytest.approx([0.3, 0.1])
    (first,) = read_boards([f"{path}#value_at.1"])
    assert first.scores.tolist() == [0.0, 0.0]
    (headroom,) = read_boards([f"{path}#captured_headroom"])
    assert headroom.scores.tolist() == [0.2, 0.1]


def test_best_of_n_with_its_rows_has_items(tmp_path: Path, save_json) -> None:
    config = {"pool": "p", "grades": "g", "scores": {"head:a": "s"}}
    save_json("run/manifest.json", RunConfig(config=config).manifest("bon"))
    save_json("run/summary.json", bon_summary(**{"head:a": 0.75, "oracle": 1.0}))
    worth = [(0.0, 0.5), (0.5, 1.0)]
    lines = [
        {"id": f"q{n}", "user_id": f"u{n}", "model": "head:a", "values": {"1": one, "2": two}}
        for n, (one, two) in enumerate(worth)
    ]
    (tmp_path / "run" / "items.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (board,) = read_boards([str(tmp_path / "run")])
    assert board.items is not None
    assert board.items.values[:, 0].tolist() == pytest.approx([0.5, 1.0])
    assert board.scores.tolist() == pytest.approx([0.75])


def policy(tmp_path: Path, name: str, reward: str, golds: list[float]) -> Path:
    folder = tmp_path / name
    folder.mkdir()
    settings = {"reward": reward, "context": "profile", "reward_context": "", "policy": "p"}
    manifest = RunConfig(config={"settings": settings}).manifest("ppo")
    (folder / "manifest.json").write_text(json.dumps(manifest))
    (folder / "summary.json").write_text("{}")
    policies = [{"step": 10 * n, "kl": float(n), "gold": estimate(gold)} for n, gold in enumerate(golds)]
    (folder / "evaluation.json").write_text(json.dumps({"policies": policies}))
    lines = [
        {"step": 10 * n, "id": f"q{q}", "user_id": f"u{q}", "majority": q == 0, "gold": gold + (0.1 if q else -0.1)}
        for n, gold in enumerate(golds)
        for q in range(2)
    ]
    (folder / "evaluation.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def test_policies_at_the_end_or_at_a_kl_and_seeds_averaged(tmp_path: Path) -> None:
    folders = [
        policy(tmp_path, "one", "head:a", [0.0, 0.4]),
        policy(tmp_path, "two", "head:a", [0.0, 0.6]),
        policy(tmp_path, "three", "head:b", [0.0, 0.1, 0.9]),
    ]
    (last,) = read_boards([str(folder) for folder in folders])
    assert dict(zip(last.models, last.scores, strict=True)) == pytest.approx({"head:a": 0.5, "head:b": 0.9})
    assert last.notes == ("PPO gold at the end: head:a is the mean of 2 runs.",)
    (equal,) = read_boards([str(folder) for folder in folders], at_kl=1.0)
    assert dict(zip(equal.models, equal.scores, strict=True)) == pytest.approx({"head:a": 0.5, "head:b": 0.1})
    assert equal.items is not None


def test_what_ppo_prints(tmp_path: Path, save_json) -> None:
    printed = {
        "out": "x",
        "summary": {"reward_model": "head:a"},
        "evaluation": {"policies": [{"step": 1, "kl": 1.0, "gold": estimate(0.5)}]},
    }
    (board,) = read_boards([str(save_json("ppo.json", printed))])
    assert (board.models, board.scores.tolist()) == (("head:a",), [0.5])
    folder = policy(tmp_path, "run", "head:b", [0.3])
    compared = {
        "kl": 2.0,
        "questions": 2,
        "runs": [{"run": str(folder), "gold": estimate(0.3)}, {"run": "gone", "gold": estimate(0.2)}],
    }
    (two,) = read_boards([str(save_json("compared.json", compared))])
    assert (two.name, two.models) == ("PPO gold at 2 nats", ("head:b", "gone"))


def test_runs_that_cannot_be_used(tmp_path: Path, save_json) -> None:
    folder = policy(tmp_path, "run", "head:a", [0.3])
    (folder / "evaluation.jsonl").write_text("{\n")
    with pytest.raises(RunError, match="not a row of ours"):
        read_boards([str(folder)])
    (folder / "evaluation.json").unlink()
    with pytest.raises(RunError, match="was not evaluated yet"):
        read_boards([str(folder)])
    printed = {"summary": {"reward_model": "a"}, "evaluation": None}
    with pytest.raises(RunError, match="has no evaluated policies"):
        read_boards([str(save_json("ppo.json", printed))])


def test_families_of_runs_by_their_kind(runs: Path) -> None:
    (board,) = read_boards([str(runs)], family_by="kind")
    assert dict(board.families) == {"control:longest?context=none": "control", "control:overlap": "control"}
    (by_name,) = read_boards([str(runs)], family_by="name")
    assert set(by_name.families.values()) == {"control:longest", "control:overlap"}
    assert dict(read_boards([str(runs)])[0].families) == {}
