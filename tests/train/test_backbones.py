"""Backbones: what is loaded, what is refused, and what becomes of a GGUF file."""

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("transformers", reason="needs pip install 'prbench[hf]'")

from tests.support.tiny_llama import save_tiny_llama, word_tokenizer

from prbench.backends.hf import dequantized, pad_token
from prbench.errors import UsageError
from prbench.training.backbones import CLASSIFIER, LANGUAGE_MODEL, Backbone, backbone_place, load_backbone, name_base


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_llama(tmp_path_factory.mktemp("tiny"), ["some words"])


def test_score_head_is_drawn_by_the_seed_and_all_else_is_the_backbones(tiny: Path) -> None:
    import torch

    one, again, other = (load_backbone(str(tiny), CLASSIFIER, seed=seed).model for seed in (1, 1, 2))
    language_model = load_backbone(str(tiny), LANGUAGE_MODEL).model
    assert torch.equal(one.score.weight, again.score.weight)
    assert not torch.equal(one.score.weight, other.score.weight)
    assert one.score.weight.shape == (1, 32)
    assert torch.equal(one.model.embed_tokens.weight, language_model.model.embed_tokens.weight)


def test_backbone_that_lacks_weights_is_refused(tiny: Path, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    weights = load_file(tiny / "model.safetensors")
    for path in tiny.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    kept = {name: value for name, value in weights.items() if "layers.1.mlp.up" not in name}
    save_file(kept, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(UsageError, match=r"layers\.1\.mlp\.up_proj\.weight, which would start at random"):
        load_backbone(str(tmp_path), CLASSIFIER)


@pytest.mark.parametrize("name", ["./not-there", "/not/there", "nothere", "a/b/c"])
def test_folder_that_is_not_there_is_refused_without_asking_the_hub(name: str) -> None:
    with pytest.raises(UsageError, match="there is no such folder"):
        backbone_place(name)


def test_hub_id_is_left_to_the_hub_and_a_folder_is_made_absolute(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tiny.parent)
    assert backbone_place("org/name") == "org/name"
    assert backbone_place(tiny.name) == str(tiny.resolve())


def test_folder_with_two_gguf_files_is_refused(tmp_path: Path) -> None:
    for name in ("a.gguf", "b.gguf"):
        (tmp_path / name).write_bytes(b"")
    with pytest.raises(UsageError, match="holds 2 GGUF files"):
        backbone_place(str(tmp_path))


def test_broken_gguf_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("gguf")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "broken.gguf").write_bytes(b"GGUF but no more")
    with pytest.raises(UsageError, match="cannot be loaded"):
        backbone_place(str(tmp_path / "broken.gguf"))
    assert list((tmp_path / "cache").rglob("*.tmp")) == []


def test_pad_token_ends_no_text() -> None:
    tokenizer = word_tokenizer(["some words"])
    config = type("Config", (), {"vocab_size": len(tokenizer)})()
    unknown = tokenizer.unk_token_id
    assert pad_token(config, tokenizer) == "<unk>"
    assert pad_token(config, tokenizer, {unknown}) == "<|user|>"
    words = set(range(len(tokenizer))) - set(tokenizer.convert_tokens_to_ids(["some", "words"]))
    assert pad_token(config, tokenizer, words) == "some"  # no control token is left
    tokenizer.pad_token = "</s>"  # EOS, as GGUF files have it
    assert pad_token(config, tokenizer) == "<unk>"


def write_gguf(path: Path) -> dict[str, Any]:
    """Write a Llama of one layer as llama.cpp does, one of its weights in blocks of 8 bits; return its arrays."""
    import gguf
    import numpy as np

    rng = np.random.default_rng(0)
    # Printable bytes as GPT-2 writes them, so that any ASCII text has tokens.
    tokens = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", *map(chr, range(33, 127)), "Ġ", "Ċ", "ab"]
    writer = gguf.GGUFWriter(str(path), "llama")
    writer.add_context_length(64)
    writer.add_embedding_length(32)
    writer.add_block_count(1)
    writer.add_feed_forward_length(64)
    writer.add_head_count(1)  # with one head, llama.cpp's order of rotary dimensions is still not transformers'
    writer.add_head_count_kv(1)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10000.0)
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(tokens)
    writer.add_token_types([3, 3, 3, *[1] * (len(tokens) - 3)])
    writer.add_token_merges(["a b"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_pad_token_id(2)
    shapes = {
        "token_embd": (len(tokens), 32),
        "blk.0.attn_q": (32, 32),
        "blk.0.attn_k": (32, 32),
        "blk.0.attn_v": (32, 32),
        "blk.0.attn_output": (32, 32),
        "blk.0.ffn_gate": (64, 32),
        "blk.0.ffn_up": (64, 32),
        "blk.0.ffn_down": (32, 64),
    }
    arrays = {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    arrays |= {name: np.ones(32, np.float32) for name in ("blk.0.attn_norm", "blk.0.ffn_norm", "output_norm")}
    for name, array in arrays.items():
        if "ffn_up" in name:
            kind = gguf.GGMLQuantizationType.Q8_0
            blocks = gguf.quants.quantize(array, kind)
            arrays[name] = gguf.quants.dequantize(blocks, kind)
            writer.add_tensor(f"{name}.weight", blocks, raw_dtype=kind)
        else:
            writer.add_tensor(f"{name}.weight", array)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return arrays


def test_gguf_becomes_a_plain_folder_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import numpy as np

    pytest.importorskip("gguf")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "model").mkdir()
    arrays = write_gguf(tmp_path / "model" / "tiny.Q8_0.gguf")
    folder = dequantized(tmp_path / "model" / "tiny.Q8_0.gguf")
    written = (folder / "model.safetensors").stat().st_mtime_ns
    loaded = load_backbone(str(tmp_path / "model"), CLASSIFIER)  # a folder with one GGUF file will do
    assert loaded.place == str(folder)
    assert (folder / "model.safetensors").stat().st_mtime_ns == written
    weights = loaded.model.state_dict()
    for name, other in (("ffn_up", "mlp.up_proj"), ("ffn_down", "mlp.down_proj"), ("attn_v", "self_attn.v_proj")):
        assert np.array_equal(weights[f"model.layers.0.{other}.weight"].numpy(), arrays[f"blk.0.{name}"])
    described = json.loads((folder / "config.json").read_text())
    assert "quantization_config" not in described
    assert (described["pad_token_id"], loaded.tokenizer.pad_token) == (0, "<|endoftext|>")


def test_what_ends_a_text_is_what_the_gguf_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import transformers

    pytest.importorskip("gguf")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    read = transformers.AutoTokenizer.from_pretrained

    def misread(*args: Any, **options: Any) -> Any:  # as transformers 5.17 does
        tokenizer = read(*args, **options)
        tokenizer.eos_token = tokenizer.bos_token
        return tokenizer

    monkeypatch.setattr(transformers.AutoTokenizer, "from_pretrained", misread)
    write_gguf(tmp_path / "tiny.gguf")
    folder = dequantized(tmp_path / "tiny.gguf")
    assert read(str(folder)).eos_token == "<|im_end|>"


def test_the_packaged_backbone_is_named_not_placed(tmp_path: Path) -> None:
    (tmp_path / "adapter_config.json").write_text('{"r": 8, "base_model_name_or_path": "/somewhere/on/this/machine"}')
    name_base(tmp_path, Backbone(place="/cache/smollm2", base="smollm2", model=None, tokenizer=None))
    assert json.loads((tmp_path / "adapter_config.json").read_text()) == {
        "r": 8,
        "base_model_name_or_path": "smollm2",
    }
