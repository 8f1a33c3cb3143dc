"""`launch.sh`: what it checks before a run starts, how it names the run, and when it lets verl resume."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

# Takes the place of verl's trainer: keeps its arguments, and ends as told.
STUB = """
import json, os, sys, time
from pathlib import Path

with Path(os.environ["STUB_LOG"]).open("a") as log:
    log.write(json.dumps({"pid": os.getpid(), "arguments": sys.argv[1:]}) + "\\n")
time.sleep(float(os.environ.get("STUB_SECONDS", "0")))
sys.exit(int(os.environ.get("STUB_EXIT", "0")))
"""


class Launcher:
    """Runs the launcher of an export with a stub in verl's place."""

    def __init__(self, folder: Path, scratch: Path) -> None:
        self.folder = folder
        self.log = scratch / "calls.jsonl"
        package = scratch / "stub" / "verl" / "trainer"
        package.mkdir(parents=True)
        for path in (package.parent / "__init__.py", package / "__init__.py"):
            path.touch()
        (package / "main_ppo.py").write_text(STUB)
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("PRBENCH_")},
            "PYTHON": sys.executable,
            "PYTHONPATH": str(scratch / "stub"),
            "STUB_LOG": str(self.log),
        }

    def start(self, *overrides: str, **variables: str) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [str(self.folder / "launch.sh"), *overrides],
            env={**self.environment, **variables},
            cwd=self.folder.parent,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def __call__(self, *overrides: str, **variables: str) -> tuple[int, str]:
        process = self.start(*overrides, **variables)
        _, error = process.communicate(timeout=60)
        return process.returncode, error

    @property
    def calls(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.log.read_text().splitlines()] if self.log.exists() else []

    @property
    def last(self) -> dict[str, str]:
        """The overrides of the latest start."""
        given = [each for each in self.calls[-1]["arguments"] if "=" in each]
        return {name: value.strip("'") for name, _, value in (each.partition("=") for each in given)}

    @property
    def runs(self) -> list[Path]:
        return sorted((self.folder / "runs").glob("*")) if (self.folder / "runs").exists() else []


@pytest.fixture
def launch(exported: Path, tmp_path: Path) -> Launcher:
    shutil.copytree(exported, tmp_path / "an export")  # with a blank in its name
    return Launcher(tmp_path / "an export", tmp_path)


def test_it_starts_verl_with_the_exports_configuration(launch: Launcher, server: str) -> None:
    code, said = launch()
    assert (code, "starting" in said) == (0, True)
    folder = launch.folder
    assert launch.calls[0]["arguments"][:4] == ["--config-dir", str(folder), "--config-name", "config"]
    (run,) = launch.runs
    assert launch.last["prbench.folder"] == str(folder)
    assert launch.last["prbench.run"] == run.name
    assert launch.last["prbench.server"] == server
    assert run.name.startswith("ppo-smollm2-control-overlap-")
    assert launch.last["+ray_kwargs.ray_init.runtime_env.env_vars.TENSORBOARD_DIR"] == str(run / "tensorboard")


def test_overrides_reach_verl(launch: Launcher) -> None:
    launch("trainer.n_gpus_per_node=4", "prbench.policy=/elsewhere")
    assert launch.calls[0]["arguments"][-2:] == ["trainer.n_gpus_per_node=4", "prbench.policy=/elsewhere"]


# --- resuming


def test_the_same_command_goes_on_and_any_other_starts_anew(launch: Launcher) -> None:
    """Defect 8: verl resumes whatever lies in the folder, and the folder was the same for every reward model."""
    launch()
    assert launch.last["trainer.resume_mode"] == "disable"
    launch()
    assert launch.last["trainer.resume_mode"] == "auto"
    assert len(launch.runs) == 1
    launch("actor_rollout_ref.actor.optim.lr=1e-5")
    assert launch.last["trainer.resume_mode"] == "disable"
    assert len(launch.runs) == 2


@pytest.mark.parametrize("name", ["config.yaml", "reward.py", "sampler.py", "train.parquet", "validation.parquet"])
def test_a_changed_file_is_another_run(launch: Launcher, name: str) -> None:
    launch()
    with (launch.folder / name).open("ab") as file:
        file.write(b"\n")
    launch()
    assert launch.last["trainer.resume_mode"] == "disable"
    assert len(launch.runs) == 2


def test_a_server_that_has_moved_does_not_change_the_run(launch: Launcher, serve: Callable[..., Any]) -> None:
    launch()
    with serve("--model", "control:overlap") as url:
        launch(PRBENCH_SERVER_URL=url)
    assert launch.last["prbench.server"] == url
    assert launch.last["trainer.resume_mode"] == "auto"


def test_a_folder_with_another_hash_is_refused(launch: Launcher) -> None:
    launch()
    record = launch.runs[0] / "run.json"
    record.write_text(json.dumps(json.loads(record.read_text()) | {"hash": "0" * 64}))
    code, said = launch()
    assert (code, "is of another configuration" in said, len(launch.calls)) == (2, True, 1)


def test_checkpoints_of_unknown_origin_are_refused(launch: Launcher) -> None:
    launch()
    (launch.runs[0] / "run.json").unlink()
    (launch.runs[0] / "global_step_10").mkdir()
    code, said = launch()
    assert (code, "unknown configuration" in said, len(launch.calls)) == (2, True, 1)


def test_metrics_of_an_earlier_start_are_not_emptied(launch: Launcher) -> None:
    variable = "+ray_kwargs.ray_init.runtime_env.env_vars.VERL_FILE_LOGGER_PATH"
    launch()
    first = Path(launch.last[variable])
    first.touch()
    launch()
    assert [first.name, Path(launch.last[variable]).name] == ["metrics-1.jsonl", "metrics-2.jsonl"]


# --- the server


def test_a_server_that_is_down_ends_it(launch: Launcher) -> None:
    code, said = launch(PRBENCH_SERVER_URL="http://127.0.0.1:9")
    assert (code, "cannot be read" in said, launch.calls) == (2, True, [])


def test_a_server_of_another_model_ends_it(launch: Launcher, serve: Callable[..., Any]) -> None:
    """Defect 16: readiness was any 200 on the port."""
    with serve("--model", "control:longest") as url:
        code, said = launch(PRBENCH_SERVER_URL=url)
    assert (code, "and this run learns from 'control:overlap#" in said, launch.calls) == (2, True, [])


def test_any_other_server_ends_it(launch: Launcher, scripted: Callable[..., Any], reply: Any) -> None:
    for body in (b"hello", {"status": "ok"}, [1]):
        code, said = launch(PRBENCH_SERVER_URL=scripted(reply(body)).url)
        assert (code, said.startswith("launch: "), launch.calls) == (2, True, [])


def test_a_server_that_is_ready_but_gives_no_score_ends_it(
    launch: Launcher, scripted: Callable[..., Any], reply: Any
) -> None:
    export = json.loads((launch.folder / "export.json").read_text())
    sender = {"model": export["model"], "template_hash": export["template_hash"]}
    server = scripted(
        lambda number, path, body: reply(sender if path == "/ready" else sender | {"scores": [{"value": None}]})
    )
    code, said = launch(PRBENCH_SERVER_URL=server.url)
    assert (code, "gives no score" in said, launch.calls) == (2, True, [])


def test_a_missing_token_is_asked_for(launch: Launcher, serve: Callable[..., Any]) -> None:
    with serve("--model", "control:overlap", PRBENCH_SERVER_TOKEN="open-sesame-to-the-tests") as url:
        code, said = launch(PRBENCH_SERVER_URL=url)
        assert (code, "Set PRBENCH_SERVER_TOKEN" in said) == (2, True)
        code, said = launch(PRBENCH_SERVER_URL=url, PRBENCH_SERVER_TOKEN="open-sesame-to-the-tests")
        assert code == 0
    assert "open-sesame-to-the-tests" not in json.dumps(launch.calls)
    kept = [path for path in launch.folder.rglob("*") if path.is_file()]
    assert not any(b"open-sesame-to-the-tests" in path.read_bytes() for path in kept)


# --- overrides that would undo the guards


@pytest.mark.parametrize(
    "override",
    [
        "reward.reward_manager.name=rate_limited",
        "++reward.custom_reward_function.path=other.py",
        "+custom_reward_function.path=other.py",
        "trainer.resume_mode=auto",
        "trainer.resume_from_path=/some/global_step_1",
        "trainer.default_local_dir=/elsewhere",
        "trainer.v1.sampler.custom_sampler.path=null",
        "trainer.use_v1=False",
        "~trainer.v1.sampler",
        "data.val_files=train.parquet",
        "prbench.model=other",
    ],
)
def test_the_guards_cannot_be_overridden(launch: Launcher, override: str) -> None:
    code, said = launch(override)
    assert (code, "belongs to the export" in said, launch.calls) == (2, True, [])


def test_many_machines_cannot_ask_one_machines_loopback(launch: Launcher) -> None:
    code, said = launch("trainer.nnodes=2")
    assert (code, "is this machine alone" in said, launch.calls) == (2, True, [])


# --- the end of it


def test_a_failed_trainer_is_a_failed_launch(launch: Launcher) -> None:
    assert launch(STUB_EXIT="3")[0] == 3


@pytest.fixture
def running(launch: Launcher) -> Iterator["subprocess.Popen[str]"]:
    process = launch.start(STUB_SECONDS="60")
    while not launch.calls and process.poll() is None:
        time.sleep(0.05)
    yield process
    if process.poll() is None:
        process.terminate()  # and not kill, which the trainer would survive
    process.communicate(timeout=30)


def test_a_signal_ends_the_trainer_too(launch: Launcher, running: "subprocess.Popen[str]") -> None:
    """Defect 16: there was no trap, and what was started went on."""
    running.send_signal(signal.SIGTERM)
    running.communicate(timeout=30)
    assert running.returncode == 143
    with pytest.raises(ProcessLookupError):
        os.kill(launch.calls[0]["pid"], 0)


def test_two_launches_of_one_run_are_refused(launch: Launcher, running: "subprocess.Popen[str]") -> None:
    code, said = launch()
    assert (code, "another process runs" in said, len(launch.calls)) == (2, True, 1)
    assert running.poll() is None
