"""Logging by `--log-to`, with a tracker of another package; the real ones are in test_with_others.py."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from prbench.backends.trackers import Trackers, active_trackers, figures_of, tracking
from prbench.errors import UsageError
from prbench.registry import TRACKERS

NOTES = """
from prbench.registry import Kind

class Notes:
    report_to = ""
    all = []
    def __init__(self, target, name, config):
        self.target, self.name, self.config, self.steps, self.is_closed = target, name, config, [], False
        Notes.all.append(self)
    def log(self, figures, step=None):
        self.steps.append((step, figures))
    def trainer_arguments(self):
        return {}
    def close(self):
        self.is_closed = True

def load(spec, options, name, config):
    print("opened, which is no result of ours")
    return Notes(spec.target, name, config)

kind = Kind(name="notes", example="notes:PLACE", summary="keeps them", load="toy_notes:load")
"""


@pytest.fixture
def notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], list[Any]]]:
    """Install a package with a tracker; return what reads its runs."""
    place = tmp_path / "packages"
    (place / "toy_notes-1.0.dist-info").mkdir(parents=True)
    (place / "toy_notes.py").write_text(NOTES)
    (place / "toy_notes-1.0.dist-info" / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: toy-notes\nVersion: 1.0\n"
    )
    (place / "toy_notes-1.0.dist-info" / "entry_points.txt").write_text("[prbench.trackers]\nnotes = toy_notes:kind\n")
    monkeypatch.syspath_prepend(str(place))
    yield lambda: list(sys.modules["toy_notes"].Notes.all) if "toy_notes" in sys.modules else []
    sys.modules.pop("toy_notes", None)


def test_an_evaluation_is_one_run_with_every_figure(
    prbench: Callable[..., Any], made: Path, notes: Callable[[], list[Any]]
) -> None:
    data = str(made / "pairs.jsonl")
    ended = prbench("eval", "--model", "control:overlap", "--data", data, "--log-to", "notes:here", "--json")
    assert ended.code == 0, ended.err
    (run,) = notes()
    ((step, figures),) = run.steps
    summary = ended.json
    assert (step, run.target, run.is_closed) == (None, "here", True)
    assert run.name == f"control:overlap profile {summary['run_id']}"
    assert run.config["data"]["hash"] == summary["data"]["hash"]
    assert figures["accuracy"] == summary["accuracy"]["value"]
    assert figures["swap/gap/low"] == summary["swap"]["gap"]["low"]
    assert "opened" in ended.err


def test_a_training_is_logged_epoch_by_epoch_and_its_result_does_not_change(
    prbench: Callable[..., Any], notes: Callable[[], list[Any]]
) -> None:
    pytest.importorskip("torch", reason="needs pip install 'prbench[train]'")
    small = ("--method", "head", "--limit", "12", "--set", "epochs=2", "--set", "posts=1", "--json")
    rows = ("--data", "small.jsonl", "--train-split", "test", "--hold-out", "0.5")
    assert prbench("data", "convert", "jsonl:small.jsonl", "--data", "lab", "--limit", "24").code == 0
    logged = prbench("train", *small, *rows, "--out", "one", "--log-to", "notes:here")
    assert logged.code == 0, logged.err
    plain = prbench("train", *small, *rows, "--out", "two")
    assert logged.json["validation"] == plain.json["validation"]
    (run,) = notes()
    assert [step for step, _ in run.steps] == [1, 2, None, None]
    assert set(run.steps[0][1]) == {"train/validation_accuracy"}
    assert run.steps[2][1]["held_out/accuracy"] == logged.json["validation"]["accuracy"]["value"]
    assert run.config["epochs"] == 2


def test_without_a_tracker_nothing_is_logged_and_trainers_report_to_nobody() -> None:
    assert active_trackers() == Trackers()
    assert active_trackers().trainer_arguments() == {"report_to": "none"}
    active_trackers().log({"accuracy": 0.5})


class Known:
    """Stands for a tracker that trainers know."""

    report_to = "wandb"

    def __init__(self) -> None:
        self.steps: list[tuple[int | None, dict[str, float]]] = []

    def log(self, figures: Any, step: int | None = None) -> None:
        self.steps.append((step, dict(figures)))

    def trainer_arguments(self) -> dict[str, Any]:
        return {"run_name": "ours"}

    def close(self) -> None:
        pass


def test_trainers_report_to_the_trackers_that_they_know() -> None:
    found = Trackers((Known(),)).trainer_arguments(every_steps=3)
    assert found == {
        "report_to": ["wandb"],
        "logging_strategy": "steps",
        "logging_steps": 3,
        "run_name": "ours",
    }


def test_what_is_no_number_is_not_logged_as_one() -> None:
    tracker = Known()
    Trackers((tracker,)).log({"a": 1, "b": float("nan"), "c": None, "d": True, "e": "text"}, step=2)
    Trackers((tracker,)).log({"b": float("inf")})
    assert tracker.steps == [(2, {"a": 1.0})]


def test_figures_of_a_summary_are_named_by_their_paths() -> None:
    summary = {"accuracy": {"value": 0.5, "low": 0.4, "high": 0.6, "n": 9}, "swap": {"gap": None}, "model": "m"}
    assert figures_of(summary) == {"accuracy": 0.5, "accuracy/low": 0.4, "accuracy/high": 0.6, "accuracy/n": 9.0}
    assert figures_of({"value": 1}, "train") == {"train": 1.0}


@pytest.mark.parametrize(
    "target, line",
    [
        ("tensorbord:logs", "Unknown kind 'tensorbord' of experiment tracker"),
        ("tensorboard", "'tensorboard' names no experiment tracker. Write tensorboard:<target>"),
        ("wandb:project?mode=loud", "mode=loud cannot be used. Give one of: offline, online."),
    ],
)
def test_a_wrong_tracker_is_refused_before_the_work(
    prbench: Callable[..., Any], made: Path, target: str, line: str
) -> None:
    ended = prbench("eval", "--model", "control:longest", "--data", str(made / "pairs.jsonl"), "--log-to", target)
    assert (ended.code, ended.err.count("\n")) == (2, 1)
    assert line in ended.err
    assert not Path("runs").exists()


def test_a_tracker_that_is_not_installed_is_named_with_its_extra(
    prbench: Callable[..., Any], made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("prbench.cli.options.find_spec", lambda name: None)
    ended = prbench("eval", "--model", "control:longest", "--data", str(made / "pairs.jsonl"), "--log-to", "trackio:p")
    assert ended.err == "prbench: --log-to trackio:p: needs trackio. Install it with: pip install 'prbench[log]'\n"
    assert TRACKERS.find("trackio").extra == "log"


def test_a_tracker_that_lacks_a_part_is_refused(
    notes: Callable[[], list[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    import toy_notes  # type: ignore[import-not-found]

    monkeypatch.delattr(toy_notes.Notes, "trainer_arguments")
    with pytest.raises(UsageError, match="without trainer_arguments"), tracking(["notes:here"], "name"):
        pass
