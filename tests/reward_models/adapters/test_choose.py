import json
from pathlib import Path
from typing import Any

import pytest

from prbench.errors import UsageError
from prbench.reward_models import ModelSettings, load_reward_model
from prbench.reward_models.classifier import ADAPTERS, BY_CLASS, BY_HUB_ID, choose_adapter


def folder_with(tmp_path: Path, config: Any) -> str:
    (tmp_path / "config.json").write_text(config if isinstance(config, str) else json.dumps(config))
    return str(tmp_path)


@pytest.mark.parametrize(
    ("config", "adapter"),
    [
        ({"architectures": ["LlamaForSequenceClassification"]}, "none"),
        ({"architectures": ["LlamaForRewardModelWithGating"], "num_objectives": 19}, "armorm"),
        ({"architectures": ["LlamaForRewardModelWithGating"], "num_quantiles": 19}, "qrm"),
        ({"architectures": ["Gemma2ForQuantileSequenceClassification"]}, "qrm"),
        ({"architectures": ["InternLM2ForRewardModel"], "model_type": "internlm2"}, "internlm2"),
        ({"architectures": None, "auto_map": {"AutoModel": "modeling_grm.GRewardModel"}}, "grm"),
        ({"auto_map": {"AutoModel": "org/name--modeling_qwen2_rm.Qwen2ForRewardModel"}}, "mlp"),
        ({"auto_map": {"AutoTokenizer": ["slow", None]}}, "none"),
        ({}, "none"),
        ("[1]", "none"),
        ("{broken", "none"),
    ],
)
def test_adapter_is_told_from_the_config(tmp_path: Path, config: Any, adapter: str) -> None:
    assert choose_adapter(folder_with(tmp_path, config)) == adapter


def test_known_hub_ids_need_no_config() -> None:
    assert choose_adapter("Ray2333/GRM-llama3-8B-sftreg") == "grm"
    assert choose_adapter("llm-blender/PairRM-hf") == "pairrm"


def test_every_rule_names_an_adapter() -> None:
    assert {*BY_CLASS.values(), *BY_HUB_ID.values()} == set(ADAPTERS)
    assert all(name == name.lower() for name in BY_HUB_ID)


def test_folder_without_a_config_is_left_to_the_plain_loader(tmp_path: Path) -> None:
    assert choose_adapter(str(tmp_path)) == "none"


def test_unknown_adapter_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UsageError, match=r"adapter=armor cannot be used.*armorm, grm"):
        load_reward_model("classifier:org/name?adapter=armor", ModelSettings())


@pytest.mark.parametrize("rule", ["logit=0", "head=score", "loader=auto"])
def test_rules_of_plain_classifiers_and_adapters_exclude_each_other(rule: str) -> None:
    with pytest.raises(UsageError, match="is for plain classifiers"):
        load_reward_model(f"classifier:org/name?adapter=armorm&{rule}", ModelSettings())


def test_rule_in_the_spec_or_adapter_none_means_a_plain_classifier(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="needs pip install 'prbench[hf]'")
    folder = folder_with(tmp_path, {"architectures": ["GRewardModel"], "model_type": "llama"})
    for option in ("adapter=none", "logit=0"):
        with pytest.raises(UsageError, match="cannot be loaded"):
            load_reward_model(f"classifier:{folder}?{option}", ModelSettings())
