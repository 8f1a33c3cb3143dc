from itertools import pairwise
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs pip install 'prbench[hf]'")

import torch

from prbench.errors import UsageError
from prbench.reward_models import ModelSettings, load_reward_model
from prbench.schema import RewardInput

WIDTH = 32


def rand(*shape: int) -> torch.Tensor:
    return torch.randn(*shape) * 0.5


def stack(prefix: str, sizes: list[int]) -> dict[str, torch.Tensor]:
    """Linear layers at the even numbers of a sequence, activations at the odd ones."""
    torch.manual_seed(3)
    weights = {}
    for place, (inner, outer) in enumerate(pairwise(sizes)):
        weights[f"{prefix}{2 * place}.weight"] = rand(outer, inner)
        weights[f"{prefix}{2 * place}.bias"] = rand(outer)
    return weights


def test_urm_weighs_the_means_and_ignores_the_spreads(tiny: Any) -> None:
    decoder, tokenizer = tiny.decoder("LlamaConfig"), tiny.tokenizer("llama")
    head = {**stack("weights.fc.", [WIDTH, WIDTH, WIDTH, 5]), "score.weight": rand(10, WIDTH)}
    folder = tiny.save_decoder(
        decoder, head, tokenizer, "LlamaForSequenceClassificationWithNormal_Weights", num_labels=10
    )

    def expected(each: RewardInput) -> float:
        last = tiny.hidden(decoder, tiny.token_ids(tokenizer, each))[-1]
        state = last
        for index in (0, 2, 4):
            state = head[f"weights.fc.{index}.weight"] @ state + head[f"weights.fc.{index}.bias"]
            state = torch.nn.functional.selu(state) if index < 4 else state
        means = (head["score.weight"] @ last).reshape(5, 2)[:, 0]
        return float(state @ means)

    tiny.check(folder, "urm", expected)


def test_urm_without_learned_weights_is_refused(tiny: Any) -> None:
    folder = tiny.save_decoder(
        tiny.decoder("LlamaConfig"), {"score.weight": rand(10, WIDTH)}, tiny.tokenizer("llama"), "Other"
    )
    with pytest.raises(UsageError, match=r"weights\.fc\.0\.weight is not among the saved weights"):
        load_reward_model(f"classifier:{folder}?device=cpu&adapter=urm", ModelSettings())


@pytest.mark.parametrize(
    ("config", "family", "architecture"),
    [
        ("Qwen2Config", "chatml", "Qwen2ForRewardModel"),
        ("LlamaConfig", "llama", "INFORMForSequenceClassification"),
    ],
)
def test_mlp_score_of_qwen_and_inf(tiny: Any, config: str, family: str, architecture: str) -> None:
    decoder, tokenizer = tiny.decoder(config), tiny.tokenizer(family)
    head = stack("score.", [WIDTH, WIDTH, 1])
    folder = tiny.save_decoder(decoder, head, tokenizer, architecture, num_labels=1)

    def expected(each: RewardInput) -> float:
        last = tiny.hidden(decoder, tiny.token_ids(tokenizer, each))[-1]
        state = torch.relu(head["score.0.weight"] @ last + head["score.0.bias"])
        return float(head["score.2.weight"] @ state + head["score.2.bias"])

    tiny.check(folder, "mlp", expected)


def test_mlp_with_several_outputs_is_refused(tiny: Any) -> None:
    folder = tiny.save_decoder(
        tiny.decoder("Qwen2Config"),
        stack("score.", [WIDTH, WIDTH, 2]),
        tiny.tokenizer("chatml"),
        "Qwen2ForRewardModel",
    )
    with pytest.raises(UsageError, match=r"score\.2\.weight has the shape \(2, 32\) and not \(1, 32\)"):
        load_reward_model(f"classifier:{folder}?device=cpu", ModelSettings())


@pytest.mark.parametrize(
    ("config", "family"), [("LlamaConfig", "llama"), ("GemmaConfig", "gemma"), ("Gemma2Config", "gemma")]
)
def test_grm_value_head_of_two_layers(tiny: Any, config: str, family: str) -> None:
    decoder, tokenizer = tiny.decoder(config), tiny.tokenizer(family)
    head = stack("v_head.summary.", [WIDTH, 16, 1])
    language_head = {"lm_head.weight": rand(270, WIDTH)}  # saved beside it, and not part of the score
    folder = tiny.save_decoder(decoder, {**head, **language_head}, tokenizer, "GRewardModel")

    def expected(each: RewardInput) -> float:
        last = tiny.hidden(decoder, tiny.token_ids(tokenizer, each))[-1]
        state = torch.relu(head["v_head.summary.0.weight"] @ last + head["v_head.summary.0.bias"])
        return float(head["v_head.summary.2.weight"] @ state + head["v_head.summary.2.bias"])

    tiny.check(folder, "grm", expected)


def test_grm_value_head_of_one_layer(tiny: Any) -> None:
    decoder, tokenizer = tiny.decoder("LlamaConfig"), tiny.tokenizer("llama")
    torch.manual_seed(4)
    head = {"v_head.summary.weight": rand(1, WIDTH), "v_head.summary.bias": rand(1)}
    folder = tiny.save_decoder(decoder, head, tokenizer, "GRewardModel", vhead_layer_type="linear")

    def expected(each: RewardInput) -> float:
        last = tiny.hidden(decoder, tiny.token_ids(tokenizer, each))[-1]
        return float(head["v_head.summary.weight"] @ last + head["v_head.summary.bias"])

    tiny.check(folder, "grm", expected)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_backbone_has_the_dtype_asked_for_and_the_head_stays_exact(tiny: Any, dtype: str) -> None:
    decoder, tokenizer = tiny.decoder("LlamaConfig"), tiny.tokenizer("llama")
    folder = tiny.save_decoder(decoder, stack("v_head.summary.", [WIDTH, 16, 1]), tokenizer, "GRewardModel")
    loaded = load_reward_model(f"classifier:{folder}?device=cpu&dtype={dtype}", ModelSettings())
    exact = tiny.scores(f"classifier:{folder}?device=cpu", tiny.inputs())
    rounded = tiny.scores(f"classifier:{folder}?device=cpu&dtype={dtype}", tiny.inputs())
    assert loaded.identity["dtype"] == dtype
    assert rounded == pytest.approx(exact, abs=0.5)
    assert rounded != exact
    assert {weight.dtype for weight in loaded.model.parts.head.state_dict().values()} == {torch.float32}
