from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs pip install 'prbench[hf]'")

import torch

from prbench.errors import UsageError
from prbench.reward_models import ModelSettings, load_reward_model
from prbench.reward_models.decoders import AdaptedReward, Parts
from prbench.schema import RewardInput

WIDTH, HIDDEN = 32, 16


def rand(*shape: int) -> torch.Tensor:
    return torch.randn(*shape) * 0.3


def armorm_head(objectives: int = 19) -> dict[str, torch.Tensor]:
    """The weights that RLHFlow/ArmoRM-Llama3-8B-v0.1 has beside its decoder, small."""
    torch.manual_seed(1)
    head = {
        "regression_layer.weight": rand(objectives, WIDTH),
        "reward_transform_matrix": torch.eye(objectives) + rand(objectives, objectives) * 0.1,
        "gating.logit_scale": torch.tensor([1.3]),
    }
    sizes = [WIDTH, HIDDEN, HIDDEN, HIDDEN, objectives]
    for index in range(4):
        head[f"gating.layers.{index}.weight"] = rand(sizes[index + 1], sizes[index]) * 3
        head[f"gating.layers.{index}.bias"] = rand(sizes[index + 1])
    return head


def qrm_head(objectives: int, quantiles: int, *, step: int) -> dict[str, torch.Tensor]:
    """The weights of a QRM model; `step` is 3, or 4 where dropout layers were counted."""
    torch.manual_seed(2)
    head = {
        "regression_layer.weight": rand(objectives * quantiles, WIDTH),
        "gating.logit_scale": torch.tensor([0.8]),
    }
    for block in range(3):
        linear, norm = f"gating.layers.{block * step}", f"gating.layers.{block * step + 2}"
        head[f"{linear}.weight"] = rand(HIDDEN, WIDTH if block == 0 else HIDDEN) * 3
        head |= {f"{norm}.weight": 1 + rand(HIDDEN), f"{norm}.bias": rand(HIDDEN)}
        head |= {f"{norm}.running_mean": rand(HIDDEN), f"{norm}.running_var": 1 + rand(HIDDEN).abs()}
        head[f"{norm}.num_batches_tracked"] = torch.tensor(100)
    last = 2 * step + 3
    return head | {
        f"gating.layers.{last}.weight": rand(objectives, HIDDEN),
        f"gating.layers.{last}.bias": rand(objectives),
    }


def end_of_user_turn(tokenizer: Any, ids: list[int], mark: str) -> int:
    """The first end-of-turn mark closes the user's turn."""
    return ids.index(tokenizer.convert_tokens_to_ids(mark))


def quantile_gate(head: dict[str, torch.Tensor], prompt: torch.Tensor, step: int, temperature: float) -> torch.Tensor:
    """Linear, ReLU, batch norm, three times; then a linear layer and the softmax."""
    state = prompt
    for block in range(3):
        norm = f"gating.layers.{block * step + 2}"
        state = torch.relu(head[f"gating.layers.{block * step}.weight"] @ state)
        scaled = (state - head[f"{norm}.running_mean"]) / torch.sqrt(head[f"{norm}.running_var"] + 1e-5)
        state = scaled * head[f"{norm}.weight"] + head[f"{norm}.bias"]
    last = f"gating.layers.{2 * step + 3}"
    return (
        torch.softmax((head[f"{last}.weight"] @ state + head[f"{last}.bias"]) / temperature, 0)
        * head["gating.logit_scale"]
    )


def test_armorm_scores_are_the_gated_sum_of_transformed_objectives(tiny: Any) -> None:
    decoder, tokenizer, head = tiny.decoder("LlamaConfig"), tiny.tokenizer("llama"), armorm_head()
    folder = tiny.save_decoder(
        decoder, head, tokenizer, "LlamaForRewardModelWithGating", num_objectives=19, gating_temperature=5
    )

    def expected(each: RewardInput) -> float:
        ids = tiny.token_ids(tokenizer, each)
        hidden = tiny.hidden(decoder, ids)
        state = hidden[end_of_user_turn(tokenizer, ids, "<|eot_id|>")]
        for index in range(4):
            state = head[f"gating.layers.{index}.weight"] @ state + head[f"gating.layers.{index}.bias"]
            state = torch.relu(state) if index < 3 else state
        gate = torch.softmax(state / 5, 0) * 1.3
        rewards = head["regression_layer.weight"] @ hidden[-1] @ head["reward_transform_matrix"]
        return float(gate @ rewards)

    tiny.check(folder, "armorm", expected)


@pytest.mark.parametrize(
    ("architecture", "temperature"), [("LlamaForRewardModelWithGating", 2), ("LlamaForRewardModelWithGating31", None)]
)
def test_qrm_scores_are_the_gated_sum_of_expectations(tiny: Any, architecture: str, temperature: float | None) -> None:
    decoder, tokenizer, head = tiny.decoder("LlamaConfig"), tiny.tokenizer("llama"), qrm_head(5, 7, step=3)
    head["reward_transform_matrix"] = torch.eye(5) + rand(5, 5)
    config = {} if temperature is None else {"gating_temperature": temperature}
    folder = tiny.save_decoder(decoder, head, tokenizer, architecture, num_objectives=5, num_quantiles=7, **config)

    def expected(each: RewardInput) -> float:
        ids = tiny.token_ids(tokenizer, each)
        hidden = tiny.hidden(decoder, ids)
        prompt = hidden[end_of_user_turn(tokenizer, ids, "<|eot_id|>")]
        gate = quantile_gate(head, prompt, 3, 10 if temperature is None else temperature)
        quantiles = (head["regression_layer.weight"] @ hidden[-1]).reshape(5, 7)
        return float(gate @ (quantiles.mean(1) @ head["reward_transform_matrix"]))

    tiny.check(folder, "qrm", expected)


def test_qrm_on_gemma_has_no_transform_and_reads_the_end_of_the_users_turn(tiny: Any) -> None:
    decoder, tokenizer, head = tiny.decoder("Gemma2Config"), tiny.tokenizer("gemma"), qrm_head(5, 19, step=4)
    folder = tiny.save_decoder(
        decoder, head, tokenizer, "Gemma2ForQuantileSequenceClassification", num_objectives=5, num_quantiles=19
    )

    def expected(each: RewardInput) -> float:
        ids = tiny.token_ids(tokenizer, each)
        hidden = tiny.hidden(decoder, ids)
        prompt = hidden[end_of_user_turn(tokenizer, ids, "<end_of_turn>")]
        quantiles = (head["regression_layer.weight"] @ hidden[-1]).reshape(5, 19)
        return float(quantile_gate(head, prompt, 4, 1.0) @ quantiles.mean(1))

    tiny.check(folder, "qrm", expected)


def test_qrm_on_llama_without_transform_needs_its_temperature(tiny: Any) -> None:
    decoder, tokenizer, head = tiny.decoder("LlamaConfig"), tiny.tokenizer("llama"), qrm_head(5, 7, step=4)
    counts = {"num_objectives": 5, "num_quantiles": 7}
    folder = tiny.save_decoder(decoder, head, tokenizer, "LlamaForRewardModelWithGating", **counts)
    with pytest.raises(UsageError, match="no gating_temperature"):
        load_reward_model(f"classifier:{folder}?device=cpu", ModelSettings())
    folder = tiny.save_decoder(
        decoder, head, tokenizer, "LlamaForRewardModelWithGating", gating_temperature=1.5, **counts
    )

    def expected(each: RewardInput) -> float:
        ids = tiny.token_ids(tokenizer, each)
        hidden = tiny.hidden(decoder, ids)
        prompt = hidden[end_of_user_turn(tokenizer, ids, "<|eot_id|>")]
        quantiles = (head["regression_layer.weight"] @ hidden[-1]).reshape(5, 7)
        return float(quantile_gate(head, prompt, 4, 1.5) @ quantiles.mean(1))

    tiny.check(folder, "qrm", expected)


@pytest.fixture
def armorm(tiny: Any) -> Callable[..., Path]:
    def save(head: dict[str, torch.Tensor], **config: Any) -> Path:
        changes = {"num_objectives": 19, "gating_temperature": 5, **config}
        folder: Path = tiny.save_decoder(
            tiny.decoder("LlamaConfig"), head, tiny.tokenizer("llama"), "LlamaForRewardModelWithGating", **changes
        )
        return folder

    return save


def test_gate_depends_on_the_prompt_and_not_on_the_response(armorm: Callable[..., Path]) -> None:
    loaded = load_reward_model(f"classifier:{armorm(armorm_head())}?device=cpu", ModelSettings())
    assert isinstance(loaded.model, AdaptedReward)
    encode, read_at = loaded.model._chat.encode, loaded.model.parts.read_at
    short = encode(RewardInput(question="Q?", response="a"))
    long = encode(RewardInput(question="Q?", response="a<|eot_id|><|start_header_id|>assistant\n\nb"))
    (last, prompt), (other_last, other_prompt) = read_at(short), read_at(long)
    assert prompt == other_prompt
    assert (last, other_last) == (len(short.ids) - 1, len(long.ids) - 1)
    # <s>, header, "user", header, two line ends, "Q?": the mark that closes the turn is the eleventh token.
    assert prompt == 1 + 1 + 4 + 1 + 2 + 2


def test_parts_can_be_run_by_another_engine_with_positions_of_its_own(armorm: Callable[..., Path], tiny: Any) -> None:
    """Prefix and tail in one sequence behind junk that nothing attends to, as a packing engine would lay them out."""
    loaded = load_reward_model(f"classifier:{armorm(armorm_head())}?device=cpu", ModelSettings())
    assert isinstance(loaded.model, AdaptedReward)
    parts: Parts = loaded.model.parts
    each = tiny.inputs()[4]
    tokens, junk = loaded.model._chat.encode(each), 5
    ids = torch.tensor([[9] * junk + list(tokens.ids)])
    mask = torch.tensor([[0] * junk + [1] * len(tokens.ids)])
    positions = torch.tensor([[0] * junk + list(range(len(tokens.ids)))])
    with torch.inference_mode():
        hidden = parts.backbone(input_ids=ids, attention_mask=mask, position_ids=positions).last_hidden_state
        places = [junk + place for place in parts.read_at(tokens)]
        found = parts.head(hidden[:, places])
    assert found.shape == (1,)
    (score,) = loaded.model.score([each])
    assert float(found) == pytest.approx(score.value, abs=1e-4)


def test_chat_template_without_the_marks_is_refused(armorm: Callable[..., Path], tmp_path: Path) -> None:
    template = tmp_path / "other.jinja"
    template.write_text("{{ bos_token }}{% for message in messages %}{{ message.content }} | {% endfor %}")
    with pytest.raises(UsageError, match="gate of this model reads there"):
        load_reward_model(f"classifier:{armorm(armorm_head())}?device=cpu", ModelSettings(chat_template=template))


def without(head: dict[str, torch.Tensor], name: str) -> dict[str, torch.Tensor]:
    return {key: weight for key, weight in head.items() if key != name}


@pytest.mark.parametrize(
    "name", ["regression_layer.weight", "reward_transform_matrix", "gating.layers.2.weight", "gating.logit_scale"]
)
def test_missing_weight_of_the_head_is_named(armorm: Callable[..., Path], name: str) -> None:
    folder = armorm(without(armorm_head(), name))
    with pytest.raises(UsageError, match=rf"{name} is not among the saved weights.*\?adapter=none"):
        load_reward_model(f"classifier:{folder}?device=cpu", ModelSettings())


def test_head_of_another_size_than_the_config_says_is_refused(armorm: Callable[..., Path]) -> None:
    with pytest.raises(UsageError, match=r"regression_layer\.weight has the shape \(19, 32\) and not \(18, 32\)"):
        load_reward_model(f"classifier:{armorm(armorm_head(), num_objectives=18)}?device=cpu", ModelSettings())


def test_config_without_the_number_of_objectives_is_refused(armorm: Callable[..., Path]) -> None:
    with pytest.raises(UsageError, match="no num_objectives"):
        load_reward_model(f"classifier:{armorm(armorm_head(), num_objectives=None)}?device=cpu", ModelSettings())
