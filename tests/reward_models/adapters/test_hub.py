"""A model of the hub, from a cache laid out like the hub's own, read offline in a process of its own."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs pip install 'prbench[hf]'")

import torch
from safetensors.torch import load_file, save_file

COMMIT = "0123456789abcdef0123456789abcdef01234567"
SCRIPT = """
import json
from prbench.reward_models import ModelSettings, load_reward_model
from prbench.schema import RewardInput

loaded = load_reward_model("classifier:org/tiny?device=cpu", ModelSettings())
(score,) = loaded.model.score([RewardInput(question="Why?", response="Because.")])
print(json.dumps({"score": score.value, "head": loaded.identity["head"], "commit": loaded.identity["commit"]}))
"""


def split_in_two(folder: Path) -> None:
    """Shard the weights: the decoder in one file, the head in the other."""
    weights = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    placed = {name: "decoder.safetensors" if name.startswith("model.") else "head.safetensors" for name in weights}
    for shard in sorted(set(placed.values())):
        part = {name: weight for name, weight in weights.items() if placed[name] == shard}
        save_file(part, folder / shard, {"format": "pt"})
    index = {"metadata": {"total_size": 1}, "weight_map": placed}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


@pytest.mark.slow
def test_sharded_hub_model_is_known_by_its_config_and_scored_offline(tiny: Any, tmp_path: Path) -> None:
    decoder, tokenizer = tiny.decoder("LlamaConfig"), tiny.tokenizer("llama")
    head = {"v_head.summary.weight": torch.randn(1, 32), "v_head.summary.bias": torch.randn(1)}
    folder = tiny.save_decoder(decoder, head, tokenizer, "GRewardModel")
    split_in_two(folder)
    repository = tmp_path / "hub" / "models--org--tiny"
    shutil.copytree(folder, repository / "snapshots" / COMMIT)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(COMMIT)
    environment = {**os.environ, "HF_HUB_CACHE": str(tmp_path / "hub"), "HF_HUB_OFFLINE": "1"}
    done = subprocess.run([sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    messages = [{"role": "user", "content": "Why?"}, {"role": "assistant", "content": "Because."}]
    ids = tokenizer.apply_chat_template(messages, return_dict=True)["input_ids"]
    last = tiny.hidden(decoder, ids)[-1]
    expected = float(head["v_head.summary.weight"] @ last + head["v_head.summary.bias"])
    assert found["score"] == pytest.approx(expected, abs=1e-4)
    assert (found["head"], found["commit"]) == ("grm", COMMIT)
