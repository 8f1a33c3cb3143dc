"""`import prbench` gives the public names, and loads what is behind them when they are used."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support.tiny_llama import save_tiny_llama

import prbench
from prbench.errors import UsageError


def test_every_public_name_is_there() -> None:
    for name in prbench.__all__:
        assert getattr(prbench, name).__name__ == name
    assert set(prbench.__all__) <= set(dir(prbench))


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'prbench' has no attribute 'evalute'"):
        _ = prbench.evalute


def test_the_import_loads_nothing_else() -> None:
    code = (
        "import sys, prbench; loaded = {name.split('.')[0] for name in sys.modules}; "
        "print(len([name for name in sys.modules if name.startswith('prbench')]), loaded & {'numpy', 'pydantic'}); "
        "prbench.Example; print('prbench.evaluation' in sys.modules); prbench.evaluate"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["1 set()", "False"]


@pytest.fixture(scope="module")
def run() -> "prbench.Run":
    return prbench.evaluate("lab", "control:longest", limit=12, probes=("own", "swap"))


def test_options_are_keyword_arguments_and_rows_can_be_picked(run: "prbench.Run") -> None:
    assert len(run.rows()) == len(run.items) == 24
    own = run.rows(probe="own")
    assert {row.probe for row in own} == {"own"}
    lost = run.rows(probe="own", verdict="rejected")
    assert [row.id for row in lost] == [row.id for row in own if row.verdict == "rejected"]  # type: ignore[union-attr]
    with pytest.raises(UsageError, match="verdict='lost': unknown"):
        run.rows(verdict="lost")
    with pytest.raises(UsageError, match="'own' is missing"):
        prbench.evaluate("lab", "control:longest", limit=2, probes=("none",))


def test_a_run_says_in_one_line_what_it_is(run: "prbench.Run") -> None:
    shown = repr(run)
    assert "\n" not in shown
    value = run.summary["accuracy"]["value"]
    assert shown.startswith(f"<Run control:longest · profile on lab: accuracy {value:.3f} [")
    assert shown.endswith("], 12 items>")


def test_rows_become_a_table(run: "prbench.Run") -> None:
    pytest.importorskip("pandas")
    table = run.to_pandas()
    assert len(table) == 24
    assert list(table["id"]) == [row.id for row in run.items]
    assert {"probe", "verdict", "score_chosen", "majority"} <= set(table.columns)


def test_runs_are_loaded_back_with_the_same_figures(run: "prbench.Run", tmp_path: Path) -> None:
    kept = prbench.evaluate("lab", "control:longest", limit=12, probes=("own", "swap"), out=tmp_path)
    (loaded,) = prbench.load_runs(tmp_path)
    assert loaded.summary == kept.summary == run.summary
    assert [(row.id, row.probe) for row in loaded.items] == [(row.id, row.probe) for row in run.items]
    assert loaded.folder == kept.folder


def test_data_and_models_are_opened_by_name() -> None:
    pairs = prbench.load_dataset("lab", limit=3)
    assert [example.id for example in pairs] == ["test-00000a", "test-00000b", "test-00001a"]
    model = prbench.load_model("control:longest")
    scores = model.model.score([prbench.RewardInput(question="Q", response="four")])  # type: ignore[union-attr]
    assert scores == [prbench.Score(value=4.0)]


def test_best_of_n_training_and_a_policy_from_python(
    rows: Callable[[int], list[dict[str, Any]]], tmp_path: Path
) -> None:
    found = prbench.best_of_n("lab", "lab", "control:longest", n=2, users=2, limit=4, out=tmp_path / "bon")
    assert found.summary["n"] == 2
    assert found.folder.is_dir()
    data = tmp_path / "pairs.jsonl"
    people = [f"user-{number % 6}" for number in range(24)]
    profiles = [[{"id": "p", "category": "garden", "text": f"I am {name}, and I like thrift."}] for name in people]
    pairs = [
        row | {"split": "train", "user_id": name, "profile": profile}
        for row, name, profile in zip(rows(24), people, profiles, strict=True)
    ]
    data.write_text("".join(json.dumps(row) + "\n" for row in pairs), encoding="utf-8")
    trained = prbench.train("head", str(data), out=tmp_path / "head", hold_out=0.5, epochs=1)
    assert trained.spec == f"head:{tmp_path / 'head'}"
    assert isinstance(prbench.evaluate("lab", trained.spec, limit=4).summary["accuracy"]["value"], float)
    words = "I save coins. The bus is late. How do I save?"
    policy = save_tiny_llama(tmp_path / "policy", [words], max_position_embeddings=512)
    learned = prbench.optimize_policy(
        list(prbench.load_dataset("lab", limit=2)),
        str(policy),
        "fake:length",
        out=tmp_path / "ppo",
        steps=1,
        rollout_batch=2,
        minibatches=1,
        posts=1,
        max_new_tokens=4,
    )
    assert learned.summary["updates"] == 1
    assert learned.policy == f"hf:{tmp_path / 'ppo' / 'policy'}"


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda out: prbench.load_model(None), "load_model takes a spec"),
        (lambda out: prbench.load_model("control:longest", batch_size="auto"), "batch_size='auto'"),
        (lambda out: prbench.load_model("control:longest", dtype="float99"), "dtype='float99': unknown"),
        (lambda out: prbench.load_dataset(7), "data of type int cannot be read"),
        (lambda out: prbench.load_dataset({"id": "a"}), "data of type dict cannot be read"),
        (lambda out: prbench.load_dataset("lab", limit=0), "limit=0: give a whole number of at least 1"),
        (lambda out: prbench.evaluate("lab", "control:longest", orders="bogus", limit=1), "orders='bogus': unknown"),
        (lambda out: prbench.evaluate("lab", "control:longest", seed=-1, limit=1), "seed=-1"),
        (lambda out: prbench.evaluate("lab", "control:longest", shots=0, limit=1), "shots=0"),
        (lambda out: prbench.evaluate("lab", "control:longest", probes="owm", limit=1), "probes: 'owm' is unknown"),
        (lambda out: prbench.evaluate("lab", dict, limit=1), "dict is a class. Give an object"),
        (lambda out: prbench.best_of_n("lab", "lab", "control:longest", n=2, limit=0, out=out), "limit=0"),
        (lambda out: prbench.train("head", "lab", out=out, epochs="x"), "epochs='x' cannot be used"),
        (lambda out: prbench.train("head", "lab", out=out, epoch=1), "no epoch"),
        (lambda out: prbench.optimize_policy("lab", "p", "fake:length", out=out, nope=1), "unknown option 'nope'"),
        (lambda out: prbench.optimize_policy("lab", "p", "fake:length", out=out, steps="x"), "steps='x'"),
        (lambda out: prbench.optimize_policy("lab", "p", object(), out=out), "optimize_policy takes a spec"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(call: Callable[[Path], Any], says: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        call(tmp_path / "out")
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "call,line",
    [
        (lambda: prbench.load_dataset(""), "The name of the data is empty"),
        (lambda: prbench.load_dataset(None), "data of type NoneType cannot be read"),  # type: ignore[arg-type]
        (lambda: prbench.evaluate(" ", "fake:length"), "The name of the data is empty"),
        (lambda: prbench.evaluate("lab", "fake:length", labels="", limit=2), "The name of the data is empty"),
        (lambda: prbench.train("head", "", out="t"), "The name of the data is empty"),
        (lambda: prbench.load_model(""), "The name of the reward model is empty"),
        (lambda: prbench.evaluate("lab", "", limit=2), "The name of the reward model is empty"),
        (lambda: prbench.best_of_n("lab", "", "fake:length", n=2), "The name of the policy is empty"),
        (lambda: prbench.optimize_policy("lab", "", "fake:length", out="p", limit=2), "--policy is empty"),
    ],
)
def test_an_empty_name_is_refused_and_never_the_current_folder(
    call: Callable[[], Any], line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "rows.jsonl").write_text("{}\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=line):
        call()


def test_data_whose_own_judge_cannot_measure_trains_without_gold(
    tmp_path: Path, rows: Callable[[int], list[dict[str, Any]]], caplog: pytest.LogCaptureFixture
) -> None:
    folder, policy = tmp_path / "data", save_tiny_llama(tmp_path / "tiny", ["red green"], max_position_embeddings=256)
    folder.mkdir()
    (folder / "README.md").write_text("---\nprbench: {judge: 'fake:x'}\n---\n")
    (folder / "test.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows(8)))
    quick = {"steps": 1, "rollout_batch": 8, "max_new_tokens": 4, "minibatches": 2, "context": "none"}
    run = prbench.optimize_policy(str(folder), str(policy), "fake:length", out=tmp_path / "run", **quick)
    assert run.summary["last"]["gold"] is None
    assert [record.message for record in caplog.records if "no gold" in record.message] == [
        f"{folder}: no gold on the way: the data's own judge is 'fake:x', not the lab's"
    ]
