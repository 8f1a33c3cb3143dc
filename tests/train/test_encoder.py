"""Training head and encoder together: the folder scores as the trained module does, and a cut run goes on."""

from pathlib import Path

import numpy as np
import pytest
import torch
from tests.support.contexts import profile

from prbench.errors import UsageError
from prbench.reward_models import ModelSettings, load_reward_model
from prbench.schema import Aspect, Example, Post, RewardInput, User
from prbench.training.data import TrainingData, make_training_data
from prbench.training.encoder import EncoderConfig, TunedHead
from prbench.training.methods import load_method, run_method

TEXTS = (
    "I count my money .", "I am in a hurry .", "A walk by the sea .", "Take the cheap tea .", "Take the quick tea .",
    "What now ?", "cheap", "quick", "cheap.", "quick.",
)  # fmt: skip


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A BERT of two layers over the words of these tests."""
    from tests.support.tiny_llama import word_tokenizer
    from transformers import BertConfig, BertModel

    folder = tmp_path_factory.mktemp("encoder")
    tokenizer = word_tokenizer(TEXTS, chat_template=None)
    tokenizer.pad_token = "<unk>"
    config = BertConfig(
        vocab_size=len(tokenizer), hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2,
        max_position_embeddings=64,
    )  # fmt: skip
    torch.manual_seed(0)
    BertModel(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def example(number: int, split: str) -> Example:
    wanted, other = ("cheap", "quick") if number % 2 else ("quick", "cheap")
    post = "I count my money ." if number % 2 else "I am in a hurry ."
    return Example(
        id=f"{split}-{number}",
        user=User(
            id=f"{split}-{number}",
            profile=(Post(id=f"{split}-{number}", text=post), Post(id="n", text="A walk by the sea .")),
        ),
        question="What now ?",
        chosen=f"Take the {wanted} tea .",
        rejected=f"Take the {other} tea .",
        rubric=(Aspect(aspect=wanted),),
    )


def people() -> TrainingData:
    return make_training_data(
        [example(number, "train") for number in range(32)], [example(number, "validation") for number in range(8)]
    )


def config(tiny: Path, **changes: object) -> EncoderConfig:
    settings = {"encoder": str(tiny), "topics": 4, "epochs": 12, "batch_size": 8, "device": "cpu", "longest": 16}
    return EncoderConfig(**{**settings, "encoder_share": 0.3, "dropout": 0.0, **changes})  # type: ignore[arg-type]


def scores(spec: str, posts: str) -> tuple[float, float]:
    model = load_reward_model(spec, ModelSettings()).model
    asked = [
        RewardInput(question="What now ?", user=profile(posts), response=f"Take the {word} tea .")
        for word in ("cheap", "quick")
    ]
    cheap, quick = (score.value for score in model.score(asked))  # type: ignore[union-attr]
    return cheap, quick


def test_learns_a_population_and_its_folder_is_a_model(tiny: Path, tmp_path: Path) -> None:
    trained = run_method(load_method("encoder"), people(), config(tiny), tmp_path / "out")
    assert trained.facts["validation_accuracy"] == 1.0
    cheap, quick = scores(trained.spec, "I count my money .")
    assert cheap > quick
    cheap, quick = scores(trained.spec, "I am in a hurry .")
    assert quick > cheap


def test_the_encoder_is_trained_not_only_the_head(tiny: Path, tmp_path: Path) -> None:
    from transformers import AutoModel

    run_method(load_method("encoder"), people(), config(tiny, epochs=2), tmp_path / "out")
    before = AutoModel.from_pretrained(tiny).state_dict()
    after = AutoModel.from_pretrained(tmp_path / "out" / "encoder", dtype=torch.float32).state_dict()
    key = "encoder.layer.0.attention.self.query.weight"
    assert (before[key] - after[key]).abs().max() > 1e-3


class TruncatedJsonError(Exception):
    pass


def test_a_cut_run_comes_to_the_same_weights(tiny: Path, tmp_path: Path) -> None:
    settings = config(tiny, epochs=3)

    def cut(step: int, steps: int, text: str) -> None:
        if step == 2:
            raise TruncatedJsonError

    with pytest.raises(TruncatedJsonError):
        run_method(load_method("encoder"), people(), settings, tmp_path / "cut", cut)
    run_method(load_method("encoder"), people(), settings, tmp_path / "cut")
    run_method(load_method("encoder"), people(), settings, tmp_path / "whole")
    cut_arrays, whole = (np.load(tmp_path / name / "head.npz") for name in ("cut", "whole"))
    assert all(np.array_equal(cut_arrays[name], whole[name]) for name in whole.files)
    weights = [(tmp_path / name / "encoder" / "model.safetensors").read_bytes() for name in ("cut", "whole")]
    assert weights[0] == weights[1]


def test_hides_tokens_in_training_but_never_the_first() -> None:
    module = TunedHead(torch.nn.Identity(), torch.nn.Identity(), token_dropout=0.9)  # type: ignore[arg-type]
    mask = torch.ones(50, 8, dtype=torch.long)
    torch.manual_seed(0)
    seen = module._hide(mask)
    assert seen[:, 0].all()
    assert 0.03 < float(seen[:, 1:].float().mean()) < 0.2
    assert torch.equal(module.eval()._hide(mask), mask)


def test_refuses_what_cannot_be_trained() -> None:
    with pytest.raises(UsageError, match="epochs=0 cannot be used"):
        EncoderConfig(epochs=0)
    with pytest.raises(UsageError, match="token_dropout=1"):
        EncoderConfig(token_dropout=1.0)
