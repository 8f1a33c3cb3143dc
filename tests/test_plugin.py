"""A kind of reward model from another package: one file and an entry point there, and no edit here.

`tests/plugin` is that package, as an installer would lay it out. The same object works without an entry point by
`python:package.module:Factory?key=value`, as do policies and datasets.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.command_line import prbench

from prbench.errors import UsageError
from prbench.registry import MODELS
from prbench.reward_models import ModelSettings, load_reward_model

__all__ = ["prbench"]  # a fixture

PLUGIN = Path(__file__).parent / "plugin"
SPECS = ("toy:tea?times=2", "python:toy_rewards:ToyReward?word=tea&times=2")


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.syspath_prepend(str(PLUGIN))
    yield
    sys.modules.pop("toy_rewards", None)


@pytest.fixture
def pairs(tmp_path: Path) -> Path:
    rows = [
        {
            "id": f"row-{number}",
            "user_id": f"user-{number % 4}",
            "question": f"What to drink, number {number}?",
            "profile": [{"id": "p", "category": "c", "text": f"I drink at {number % 4}."}],
            "rubric_aspects": [{"aspect": "tea", "evidence": "e", "reason": "r"}],
            "chosen": "Take some tea, tea I say.",
            "rejected": f"Take coffee at {number}.",
            "category": "c",
        }
        for number in range(8)
    ]
    path = tmp_path / "pairs.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_it_is_listed_with_its_options(prbench: Callable[..., Any]) -> None:
    assert "toy:WORD?times=2" in prbench("models").out
    (line,) = prbench("models", "toy", "--json").json
    assert line["kind"] == "toy"
    assert [option["name"] for option in line["options"]][:2] == ["times", "context"]
    assert "toy" in MODELS.names


@pytest.mark.parametrize("spec", SPECS)
def test_eval_scores_with_it(spec: str, prbench: Callable[..., Any], pairs: Path) -> None:
    ended = prbench("eval", "--model", spec, "--data", str(pairs), "--json")
    assert ended.json["model"] == spec
    assert ended.json["accuracy"]["value"] == 1.0
    rows = [
        json.loads(line) for line in (Path("runs") / ended.json["run_id"] / "items.jsonl").read_text().splitlines()
    ]
    assert {(row["score_chosen"], row["score_rejected"]) for row in rows} == {(4.0, 0.0)}


def test_a_judge_is_read_in_its_reply_format(prbench: Callable[..., Any], pairs: Path, tmp_path: Path) -> None:
    lines = {line["kind"]: line for line in prbench("models", "--of", "replies", "--json").json}
    assert lines["shout"]["what"] == "FIRST! or SECOND!"
    template = tmp_path / "shout.md"
    header = "slots: question, context, first, second\nanswer: pick\nreply: shout"
    template.write_text(f"---\n{header}\n---\n## user\n{{question}} {{context}} {{first}} {{second}}\n")
    told = prbench("eval", "--model", "judge:fake:It is the SECOND!", "--data", str(pairs))
    assert told.code == 1
    assert "The reply format shout reads it. Ask with a template that says `reply: shout`." in told.err
    spec = f"judge:fake:It is the SECOND!?template={template}"
    ended = prbench("eval", "--model", spec, "--data", str(pairs), "--json")
    assert (ended.code, ended.json["coverage"]["value"]) == (0, 1.0)


@pytest.mark.parametrize("spec", SPECS)
def test_best_of_n_and_meta_know_it(spec: str, prbench: Callable[..., Any]) -> None:
    models = (spec, f"{spec}&context=none", "control:longest", "control:random", "control:gold")
    asked = [part for model in models for part in ("--model", model)]
    picked = prbench("bon", *asked, "--users", "4", "--limit", "8", "--n", "2", "--out", "bon", "--json")
    assert {*models} < picked.json["models"].keys()
    assert picked.json["models"]["control:gold"]["context"] == "oracle"
    runs = [prbench("eval", "--model", model, "--limit", "8", "--json").json["run_id"] for model in models]
    benchmark = [part for run in runs for part in ("--benchmark", f"runs/{run}")]
    told = prbench("meta", *benchmark, "--downstream", f"bon/{picked.json['run_id']}", "--json")
    found = json.dumps(told.json)
    assert spec in found
    assert f"{spec}&context=none" in found


def test_a_policy_of_ones_own_answers(prbench: Callable[..., Any]) -> None:
    policy = "python:toy_rewards:Parrot?times=2"
    ended = prbench(
        "bon", "--model", SPECS[0], "--policy", policy, "--users", "2", "--limit", "2", "--n", "2", "--json"
    )
    assert (ended.json["policy"], ended.json["questions"]) == (policy, 2)


def test_a_server_serves_it(pairs: Path) -> None:
    pytest.importorskip("fastapi")
    code = "from prbench.cli import main; main()"
    server = subprocess.Popen(
        [sys.executable, "-c", code, "serve", "--model", SPECS[0], "--port", "0", "--json"],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(PLUGIN), os.environ.get("PYTHONPATH", "")])},
    )
    try:
        assert server.stdout is not None
        ready = json.loads(server.stdout.readline())
        assert ready["model"].startswith("toy:tea?times=2#")
        loaded = load_reward_model(f"server:{ready['url']}", ModelSettings())
        from prbench.schema import RewardInput

        (score,) = loaded.model.score([RewardInput(question="Q", response="tea")])  # type: ignore[union-attr]
        assert score.value == 2.0
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(timeout=30)


@pytest.mark.parametrize("spec", SPECS)
def test_ppo_is_paid_by_it(spec: str, prbench: Callable[..., Any], pairs: Path, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    from tests.support.tiny_llama import save_tiny_llama

    policy = save_tiny_llama(tmp_path / "policy", ["tea", "coffee", "Take"], max_position_embeddings=256)
    ended = prbench(
        "ppo", "--policy", str(policy), "--model", spec, "--data", str(pairs), "--steps", "1", "--rollout-batch", "8",
        "--max-new-tokens", "4", "--set", "minibatches=1", "--set", "epochs=1", "--out", "ppo", "--json",
    )  # fmt: skip
    assert ended.json["summary"]["reward_model"] == spec


def test_rows_may_come_from_a_function(prbench: Callable[..., Any]) -> None:
    ended = prbench("eval", "--model", SPECS[0], "--data", "python:toy_rewards:rows?users=3", "--json")
    assert (ended.json["n_items"], ended.json["accuracy"]["value"]) == (3, 1.0)


@pytest.mark.parametrize(
    "spec,part",
    [
        ("tyo:tea", "Did you mean 'toy'"),
        ("toy:tea?tims=2", "Did you mean 'times'"),
        ("toy:tea?times=x", "Give a whole number"),
        ("python:toy_rewards", "write python:package.module:Factory"),
        ("python:toy_reward:ToyReward", "there is no module toy_reward"),
        ("python:toy_rewards:ToyRewards", "Check the name"),
        ("python:toy_rewards:NOT_CALLABLE", "is a int, and cannot be called"),
        ("python:toy_rewards:ToyReward", "word is missing, and has no default"),
        ("python:toy_rewards:ToyReward?word=a&tims=2", "Did you mean 'times'"),
        ("python:toy_rewards:ToyReward?word=a&times=x", "Give a whole number"),
        ("python:toy_rewards:rows", "neither score"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(spec: str, part: str) -> None:
    with pytest.raises(UsageError, match=part) as caught:
        load_reward_model(spec, ModelSettings())
    assert "\n" not in str(caught.value)


Install = Callable[..., None]
BROKEN = """
from dataclasses import dataclass

from prbench.registry import Kind
from prbench.specs import option


def kind(name, load="broken_kinds:load", options="", **more):
    return Kind(name=name, example=f"{name}:x", summary="broken", load=load, options=options, **more)


@dataclass(frozen=True, kw_only=True)
class Plain:
    size: int = 1


@dataclass(frozen=True, kw_only=True)
class Hiding:
    noise: int = 1


@dataclass(frozen=True, kw_only=True)
class Unknown:
    size: "Thing" = 1


def load(*given):
    return ["no model"]


def raises(*given):
    raise ValueError("in the loader")


WRONG_LOAD = kind("wrong-load", load="broken_kinds:gone")
NO_FUNCTION = kind("no-function", load="broken_kinds:BROKEN")
BROKEN = 3
WRONG_OPTIONS = kind("wrong-options", options="broken_kinds:gone")
NO_RECORD = kind("no-record", options="broken_kinds:load")
UNKNOWN = kind("unknown", options="broken_kinds:Unknown")
HIDING = kind("hiding", options="broken_kinds:Hiding")
LIST = kind("list")
RAISES = kind("raises", load="broken_kinds:raises")
CONTROL = kind("control")
PLAIN = kind("plain", options="broken_kinds:Plain")
NO_OPTIONS = kind("no-options")
OPENAI = kind("openai")
ROWS = kind("rows")
HELD = kind("held", judge="python:toy_rewards:NOT_CALLABLE", load="broken_kinds:rows", takes_target=False)


def rows(spec, options, split):
    from toy_rewards import rows

    return rows(4)


MADE = kind("made", load="broken_kinds:rows", makes_records=True, takes_target=False)
SPLITS = kind("splits", load="broken_kinds:rows", splits="broken_kinds:BROKEN", takes_target=False)
"""


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Install a package whose entry points these are, by group."""

    def put(package: str = "broken", **groups: str) -> None:
        place = tmp_path / package
        folder = place / f"{package}-1.0.dist-info"
        folder.mkdir(parents=True)
        (place / "broken_kinds.py").write_text(BROKEN)
        (place / "raising_kinds.py").write_text("raise RuntimeError('no luck')\n")
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        lines = [f"[prbench.{group}]\n{points}\n" for group, points in groups.items()]
        (folder / "entry_points.txt").write_text("".join(lines))
        monkeypatch.syspath_prepend(str(place))

    yield put
    for name in ("broken_kinds", "raising_kinds"):
        sys.modules.pop(name, None)


FAULTY = {
    "gone = no_such_module:KIND": "cannot be loaded: ModuleNotFoundError: No module named 'no_such_module'",
    "raising = raising_kinds:KIND": "cannot be loaded: RuntimeError: no luck (raising_kinds.py:1)",
    "number = broken_kinds:BROKEN": "is no prbench.registry.Kind named 'number'",
    "wrong-load = broken_kinds:WRONG_LOAD": "importing broken_kinds:gone raised AttributeError",
    "no-function = broken_kinds:NO_FUNCTION": "its load, broken_kinds:BROKEN, is no function",
    "wrong-options = broken_kinds:WRONG_OPTIONS": "importing broken_kinds:gone raised AttributeError",
    "no-record = broken_kinds:NO_RECORD": "its options, broken_kinds:load, are no dataclass",
    "unknown = broken_kinds:UNKNOWN": "its options cannot be read: NameError: name 'Thing' is not defined",
    "hiding = broken_kinds:HIDING": "its option noise is one that every reward model has",
    "control = broken_kinds:CONTROL": "is named by prbench itself and by the entry point control",
}


@pytest.mark.parametrize("point", FAULTY)
def test_a_broken_kind_is_refused_and_listed_and_the_others_go_on_working(
    install: Install, prbench: Callable[..., Any], point: str
) -> None:
    install(reward_models=point)
    kind, fault = point.partition(" = ")[0], FAULTY[point]
    target = "longest" if kind == "control" else "x"
    used = prbench("eval", "--limit", "2", "--model", f"{kind}:{target}")
    assert (used.code, used.err.count("\n")) == (2, 1)
    assert fault in used.err
    lines = {line["kind"]: line for line in prbench("models", "--json").json}
    assert fault in lines[kind]["error"]
    assert lines[kind]["example"] == ""
    assert {"toy", "judge", "head"} < {name for name, line in lines.items() if not line["error"]}
    shown = prbench("models")
    assert shown.code == 0
    assert "broken:" in shown.out
    found = {line["name"]: line for line in prbench("models", "--check", "--json").json}
    assert fault in found[f"prbench.reward_models: {kind}"]["for"]
    assert prbench("eval", "--limit", "2", "--model", "fake:length").code == 0
    assert load_reward_model("toy:tea", ModelSettings()).kind == "toy"


@pytest.mark.parametrize(
    "group,point,command,part",
    [
        (
            "reward_models",
            "list = broken_kinds:LIST",
            ("eval", "--model", "list:x"),
            "made a list where a LoadedModel belongs",
        ),
        (
            "reward_models",
            "raises = broken_kinds:RAISES",
            ("eval", "--model", "raises:x"),
            "its loader raised ValueError: in the loader (broken_kinds.py:",
        ),
        (
            "policies",
            "list = broken_kinds:LIST",
            ("bon", "--model", "fake:length", "--policy", "list:x"),
            "made a list without name",
        ),
        (
            "judges",
            "list = broken_kinds:LIST",
            ("bon", "--model", "fake:length", "--judge", "list:x"),
            "made a list without identity",
        ),
        ("llms", "list = broken_kinds:LIST", ("eval", "--model", "judge:list:x"), "made a list without name"),
        (
            "replies",
            "arena = broken_kinds:LIST",
            ("eval", "--model", "judge:fake:x?template=arena"),
            "The reply format 'arena' is named by prbench itself and by the entry point arena",
        ),
        (
            "policies",
            "openai = broken_kinds:OPENAI",
            ("bon", "--model", "fake:length", "--policy", "openai:m@http://127.0.0.1:9/v1"),
            "The policy 'openai' is named by prbench itself and by the entry point openai",
        ),
        (
            "datasets",
            "made = broken_kinds:MADE",
            ("eval", "--model", "fake:length", "--data", "made"),
            "made:1: row: is a dict, and its kind says that it makes records",
        ),
        (
            "datasets",
            "splits = broken_kinds:SPLITS",
            ("train", "--method", "head", "--data", "splits", "--hold-out", "0.5", "--out", "t"),
            "broken_kinds:BROKEN is an int, no list of names",
        ),
        (
            "methods",
            "plain = broken_kinds:PLAIN",
            ("train", "--method", "plain", "--out", "t"),
            "its options have no seed, and a training method needs one",
        ),
        (
            "methods",
            "no-options = broken_kinds:NO_OPTIONS",
            ("train", "--method", "no-options", "--out", "t"),
            "its options have no seed, and a training method needs one",
        ),
    ],
)
def test_what_a_kind_of_another_package_makes_is_checked(
    install: Install, prbench: Callable[..., Any], group: str, point: str, command: tuple[str, ...], part: str
) -> None:
    install(**{group: point})
    ended = prbench(*command)
    assert (ended.code, ended.err.count("\n")) == (2, 1), ended.err
    assert part in ended.err


def test_two_packages_that_name_the_same_kind_are_both_named(install: Install, prbench: Callable[..., Any]) -> None:
    install("first", reward_models="list = broken_kinds:LIST")
    install("second", reward_models="list = broken_kinds:LIST")
    ended = prbench("eval", "--model", "list:x")
    assert ended.code == 2
    assert "of first" in ended.err
    assert "of second" in ended.err


def test_rows_of_another_package_may_name_any_judge(install: Install, prbench: Callable[..., Any]) -> None:
    install(datasets="held = broken_kinds:HELD")
    ended = prbench("bon", "--model", "fake:length", "--policy", "fake:Tea.", "--data", "held", "--n", "2")
    assert ended.code == 2
    assert "NOT_CALLABLE is a int, and cannot be called" in ended.err
