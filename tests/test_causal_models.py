"""Language models and adapters: merged into a base that is called the same on every machine."""

import shutil
from pathlib import Path

import pytest

pytest.importorskip("peft", reason="needs pip install 'prbench[hf]'")

import torch
from peft import LoraConfig, get_peft_model
from tests.support.tiny_llama import save_tiny_llama
from transformers import AutoModelForCausalLM, AutoTokenizer

from prbench.backends import hf
from prbench.backends.hf import base_of, is_adapter, load_causal, weights_of
from prbench.backends.llm.hf import TransformersLLM
from prbench.errors import UsageError
from prbench.training.backbones import LANGUAGE_MODEL, load_backbone


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_llama(tmp_path_factory.mktemp("tiny"), ["Take tea . What now ?"])


@pytest.fixture(scope="module")
def adapter(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An adapter that changes what the base says, and calls its base `smollm2`."""
    folder = tmp_path_factory.mktemp("adapter")
    lora = LoraConfig(task_type="CAUSAL_LM", r=2, target_modules="all-linear", init_lora_weights=False)
    torch.manual_seed(0)
    adapted = get_peft_model(AutoModelForCausalLM.from_pretrained(tiny), lora)
    adapted.save_pretrained(folder)
    AutoTokenizer.from_pretrained(tiny).save_pretrained(folder)
    config = folder / "adapter_config.json"
    config.write_text(config.read_text().replace(str(tiny), "smollm2"))
    return folder


@pytest.fixture(autouse=True)
def _packaged(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hf, "smollm2_folder", lambda: tiny)


def logits(model: torch.nn.Module) -> torch.Tensor:
    with torch.no_grad():
        found: torch.Tensor = model(torch.tensor([[3, 4, 5]])).logits
    return found


def test_an_adapter_is_merged_into_its_base(tiny: Path, adapter: Path) -> None:
    assert is_adapter(str(adapter))
    assert not is_adapter(str(tiny))
    base, merged = load_causal(str(tiny)), load_causal(str(adapter))
    assert not hasattr(merged, "peft_config") or not merged.peft_config
    weights = merged.state_dict()
    assert weights.keys() == base.state_dict().keys()
    assert not torch.allclose(logits(merged), logits(base), atol=1e-3)


def test_it_can_be_asked_and_trained_on(adapter: Path) -> None:
    merged = logits(load_causal(str(adapter), dtype="float32"))
    assert torch.equal(logits(TransformersLLM(str(adapter))._model), merged)
    backbone = load_backbone(str(adapter), LANGUAGE_MODEL).model
    assert torch.equal(logits(backbone), merged)
    # Frozen, as an adapter's base is, PPO would change nothing and say nothing.
    assert all(weight.requires_grad for weight in backbone.parameters())


@pytest.mark.parametrize(
    "config,line",
    [
        ("{}", "names no base"),
        ("[1]", "no JSON object"),
        ("null", "no JSON object"),
        ('{"base_model', "is not JSON"),
        ("", "is not JSON"),
    ],
)
def test_an_adapter_without_a_base_is_refused(tmp_path: Path, config: str, line: str) -> None:
    (tmp_path / "adapter_config.json").write_text(config)
    with pytest.raises(UsageError, match=line) as caught:
        base_of(str(tmp_path))
    assert "\n" not in str(caught.value)


def test_another_base_under_the_same_adapter_is_another_model(
    tiny: Path, adapter: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = weights_of(str(adapter))
    assert weights_of(str(adapter)) == before
    other = save_tiny_llama(tmp_path, ["Take tea . What now ?"], seed=7)
    monkeypatch.setattr(hf, "smollm2_folder", lambda: other)
    assert weights_of(str(adapter)) != before
    assert weights_of("org/on-the-hub") == ""


def test_damaged_weights_are_one_line(tiny: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(tiny, tmp_path / "damaged")
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:100])
    with pytest.raises(UsageError, match="cannot be loaded") as caught:
        TransformersLLM(str(folder))
    assert "\n" not in str(caught.value)
    with pytest.raises(UsageError, match="cannot be loaded"):
        load_backbone(str(folder), LANGUAGE_MODEL)
