"""Code that comes with a checkpoint runs only where the user asked for it, even if stdin says yes to everything."""

import ast
import io
import json
import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import make_row
from tests.support.command_line import Ended, prbench
from tests.support.tiny_llama import save_tiny_llama

pytest.importorskip("torch", reason="needs pip install 'prbench[hf]'")

__all__ = ["prbench"]  # a fixture

REFUSED = "the checkpoint holds code of its own, which was not run"
FLAG = "--trust-remote-code"
EVAL = ("eval", "--data", "pairs.jsonl", "--limit", "2", "--model")
TRAIN = ("train", "--limit", "40", "--out", "made")
HAVE_THE_FLAG = {
    "classifier": (*EVAL, "classifier:own"),
    "classifier-auto": (*EVAL, "classifier:own?loader=auto"),
    "classifier-adapter": (*EVAL, "classifier:adapter"),
    "implicit": (*EVAL, "implicit:own,tiny"),
    "implicit-reference": (*EVAL, "implicit:tiny,own"),
    "pmi": (*EVAL, "pmi:own"),
    "serve": ("serve", "--model", "classifier:own", "--port", "0"),
}
HAVE_NONE = {
    "judge-hf": (*EVAL, "judge:hf:own"),
    "judge-hf-logits": (*EVAL, "judge:hf:own?mode=logits"),
    "judge-hf-adapter": (*EVAL, "judge:hf:adapter"),
    "rating-hf": (*EVAL, "rating:hf:own"),
    "control-embed": (*EVAL, "control:embed?encoder=own"),
    "rank-dense": (*EVAL, "control:overlap", "--rank", "dense", "--encoder", "own"),
    "planner-hf": (*EVAL, "control:overlap", "--context", "plan", "--planner", "hf:own"),
    "planner-folder": (*EVAL, "control:overlap", "--context", "plan", "--planner", "own"),
    "head-encoder": (*EVAL, "head:lab-user?encoder=own"),
    "bon-policy": ("bon", "--data", "pairs.jsonl", "--policy", "hf:own", "--model", "control:overlap", "--n", "2"),
    "ppo-policy": ("ppo", "--data", "pairs.jsonl", "--policy", "own", "--model", "fake:length", "--out", "made"),
    "train-bt": (*TRAIN, "--method", "bt", "--backbone", "own"),
    "train-bt-profile": (*TRAIN, "--method", "bt-profile", "--backbone", "own"),
    "train-sft": (*TRAIN, "--method", "sft", "--backbone", "own"),
    "train-sft-adapter": (*TRAIN, "--method", "sft", "--backbone", "adapter"),
    "train-lm-planner": (*TRAIN, "--method", "lm-planner", "--backbone", "own"),
    "train-head-encoder": (*TRAIN, "--method", "head", "--set", "encoder=own"),
    "train-encoder": (*TRAIN, "--method", "encoder", "--set", "encoder=own"),
    "build-generator": (
        *("build", "--users", "2", "--private", "--out", "made", "--generator", "hf:own"),
        *("--judge", "fake:yes", "--quality-judge", "fake:yes"),
    ),
    "build-judge": (
        *("build", "--users", "2", "--private", "--out", "made", "--generator", "fake:yes"),
        *("--judge", "hf:own", "--quality-judge", "fake:yes"),
    ),
    "planner-evaluation": (
        *("eval-planner", "--data", "pairs.jsonl", "--planner", "hf:own", "--judge", "fake:yes", "--out", "made"),
    ),
    "planner-evaluation-judge": (
        *("eval-planner", "--data", "pairs.jsonl", "--planner", "fake:yes", "--judge", "hf:own", "--out", "made"),
    ),
}


@pytest.fixture
def marker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Path:
    """A file that would be there if code had run; beside it checkpoints with such code, and a stdin that says yes."""
    marker = tmp_path / "it-ran"
    save_with_code(tmp_path / "own", marker)
    save_adapter(tmp_path / "adapter", base=tmp_path / "own")
    save_tiny_llama(tmp_path / "tiny", ["red green blue thrift seeds"])
    rows = [make_row(number) for number in range(12)]
    (tmp_path / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n" * 100))
    capsys.readouterr()  # the writer's bar
    return marker


def save_with_code(folder: Path, marker: Path) -> None:
    """Save a checkpoint of a family that transformers does not know, with the code that it would need."""
    folder.mkdir()
    models = ("AutoModel", "AutoModelForCausalLM", "AutoModelForSequenceClassification")
    auto_map: dict[str, Any] = {"AutoConfig": "modeling_own.OwnConfig"} | dict.fromkeys(
        models, "modeling_own.OwnModel"
    )
    config = {"model_type": "prbench_unheard_of", "architectures": ["OwnModel"], "auto_map": auto_map}
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    tokenizer = {"tokenizer_class": "OwnTokenizer", "auto_map": {"AutoTokenizer": ["modeling_own.OwnTokenizer", None]}}
    (folder / "tokenizer_config.json").write_text(json.dumps(tokenizer), encoding="utf-8")
    (folder / "modeling_own.py").write_text(f"open({str(marker)!r}, 'w').close()\n", encoding="utf-8")


def save_adapter(folder: Path, *, base: Path) -> None:
    """Save an adapter over a base; it needs no weights, as the base cannot be loaded."""
    import torch
    from safetensors.torch import save_file

    folder.mkdir()
    config = {"peft_type": "LORA", "base_model_name_or_path": str(base), "r": 2, "task_type": "CAUSAL_LM"}
    (folder / "adapter_config.json").write_text(json.dumps(config), encoding="utf-8")
    save_file({"base_model.model.score.weight": torch.zeros(1, 2)}, folder / "adapter_model.safetensors")
    for name in ("tokenizer_config.json", "modeling_own.py"):
        (folder / name).write_text((base / name).read_text(encoding="utf-8"), encoding="utf-8")


def assert_refused(ended: Ended, marker: Path) -> None:
    assert not marker.exists()
    assert ended.code == 2, ended.err
    assert REFUSED in ended.err
    assert [line for line in ended.err.splitlines() if line.startswith("prbench: ")] == ended.err.splitlines()[-1:]
    assert "y/N" not in ended.out + ended.err


@pytest.mark.parametrize("arguments", HAVE_THE_FLAG.values(), ids=HAVE_THE_FLAG)
def test_route_with_the_flag_names_it(prbench: Callable[..., Ended], marker: Path, arguments: tuple[str, ...]) -> None:
    ended = prbench(*arguments)
    assert_refused(ended, marker)
    assert FLAG in ended.err


@pytest.mark.parametrize("arguments", HAVE_NONE.values(), ids=HAVE_NONE)
def test_route_without_the_flag_runs_no_code(
    prbench: Callable[..., Ended], marker: Path, arguments: tuple[str, ...]
) -> None:
    ended = prbench(*arguments)
    assert_refused(ended, marker)
    assert FLAG not in ended.err


def test_a_known_family_needs_none_of_the_code_beside_it(prbench: Callable[..., Ended], marker: Path) -> None:
    config = json.loads(Path("tiny/config.json").read_text())
    auto_map = json.loads(Path("own/config.json").read_text())["auto_map"]
    Path("tiny/config.json").write_text(json.dumps(config | {"auto_map": auto_map}))
    Path("tiny/modeling_own.py").write_text(Path("own/modeling_own.py").read_text())
    ended = prbench(*EVAL, "pmi:tiny")
    assert ended.code == 0, ended.err
    assert not marker.exists()


def test_an_adapter_cannot_bring_a_model_whose_code_is_run(prbench: Callable[..., Ended], marker: Path) -> None:
    """Peft loads what a shadow adapter names beside its base, and would let transformers ask about its code."""
    if not hasattr(pytest.importorskip("peft").PeftType, "SHADOW"):
        pytest.skip("this release of peft has no adapters that name further models")
    described = {"peft_type": "SHADOW", "shadow_model": "own", "task_type": "CAUSAL_LM"}
    described |= {"base_model_name_or_path": str(Path("tiny").resolve())}
    Path("adapter/adapter_config.json").write_text(json.dumps(described), encoding="utf-8")
    for name in ("tokenizer_config.json", "tokenizer.json"):
        Path("adapter", name).write_text(Path("tiny", name).read_text(encoding="utf-8"), encoding="utf-8")
    ended = prbench(*TRAIN, "--method", "sft", "--backbone", "adapter")
    assert_refused(ended, marker)
    assert FLAG not in ended.err


class Harmful:
    """What a pickle does when it is read."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return open, (str(self.marker), "w")


@pytest.mark.parametrize("route", ["classifier", "judge-hf", "train-sft", "control-embed"])
def test_pickled_weights_are_refused_in_one_line(prbench: Callable[..., Ended], marker: Path, route: str) -> None:
    Path("tiny/model.safetensors").unlink()
    with Path("tiny/pytorch_model.bin").open("wb") as stream:
        pickle.dump(Harmful(marker), stream)
    ended = prbench(*(each.replace("own", "tiny") for each in (HAVE_THE_FLAG | HAVE_NONE)[route]))
    assert not marker.exists()
    assert ended.code == 2, ended.err
    assert "Save them as safetensors" in ended.err


def test_models_of_others_come_in_by_one_door() -> None:
    """Only `prbench.backends.hf` loads what is not ours: there, whether code may run is never left out."""
    loaders = {"from_pretrained", "from_config", "pipeline", "load_dataset_builder", "SentenceTransformer"}
    root = Path(__file__).parents[1] / "src" / "prbench"
    calls = [
        (path.relative_to(root).as_posix(), call)
        for path in sorted(root.rglob("*.py"))
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr in loaders
        if call.func.attr != "from_config" or ast.unparse(call.func.value).startswith(("Auto", "transformers."))
    ]
    silent = [path for path, call in calls if "trust_remote_code" not in {keyword.arg for keyword in call.keywords}]
    # peft's, which takes no such argument; `adapter_over` says how it is refused
    assert silent == ["backends/hf.py"]
    assert {path for path, _ in calls} == {"backends/hf.py"}
