import json
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="needs pip install 'prbench[hf]'")

import torch
from safetensors.torch import save_file

from prbench.errors import UsageError
from prbench.reward_models.decoders import HeadWeights

HEAD = {"score.0.weight": torch.eye(2, dtype=torch.bfloat16), "score.2.weight": torch.ones(1, 2)}
OTHER = {"model.norm.weight": torch.ones(2)}


def write_index(folder: Path, name: str, shards: dict[str, dict[str, torch.Tensor]]) -> None:
    placed = {weight: shard for shard, weights in shards.items() for weight in weights}
    (folder / name).write_text(json.dumps({"weight_map": placed}))


def write(folder: Path, layout: str) -> None:
    if layout == "safetensors":
        save_file({**HEAD, **OTHER}, folder / "model.safetensors")
    elif layout == "bin":
        torch.save({**HEAD, **OTHER}, folder / "pytorch_model.bin")
    elif layout == "sharded":
        shards = {"a.safetensors": OTHER, "b.safetensors": HEAD}
        write_index(folder, "model.safetensors.index.json", shards)
        save_file(HEAD, folder / "b.safetensors")  # the shard without head weights need not be read
    else:
        write_index(folder, "pytorch_model.bin.index.json", {"a.bin": OTHER, "b.bin": HEAD})
        torch.save(HEAD, folder / "b.bin")


@pytest.mark.parametrize("layout", ["safetensors", "bin", "sharded", "sharded bin"])
def test_weights_are_read_by_name_in_float32_from_every_layout(tmp_path: Path, layout: str) -> None:
    write(tmp_path, layout)
    weights = HeadWeights(str(tmp_path), None, ("score.",))
    assert torch.equal(weights.take("score.0.weight", 2, 2), torch.eye(2))
    assert weights.take("score.2.weight", 1, -1).dtype is torch.float32
    assert weights.indices("score.") == [0, 2]
    assert weights.find("model.norm.weight") is None


def test_missing_shard_and_missing_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"holds no weights \(model\.safetensors, pytorch_model\.bin\)"):
        HeadWeights(str(tmp_path), None, ("score.",))
    write(tmp_path, "sharded")
    (tmp_path / "b.safetensors").unlink()
    with pytest.raises(UsageError, match=r"b\.safetensors, which model\.safetensors\.index\.json names, is not there"):
        HeadWeights(str(tmp_path), None, ("score.",))
