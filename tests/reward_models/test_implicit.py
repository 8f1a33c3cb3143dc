from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs pip install 'prbench[hf]'")

from prbench.errors import UsageError
from prbench.reward_models import ModelSettings, load_reward_model
from prbench.reward_models.implicit import ImplicitOptions, ImplicitReward, PmiOptions, PmiReward
from prbench.schema import Problem, RewardInput, UserContext

CPU = {"device": "cpu"}
INPUTS = [
    RewardInput(question="Q?", user=UserContext.from_text(context), response=response)
    for context in ("", "I row.", "I hike far and write long letters home.")
    for response in ("Yes.", "No, never at night.", "x")
]
TURN = "{context}\n\nThe question that this person asks now:\n\n{question}"


@pytest.fixture(scope="module")
def reference(save_llama: Callable[..., Path], make_tokenizer: Callable[..., Any]) -> Path:
    return save_llama("CausalLM", make_tokenizer(), seed=2)


def log_probability(folder: Path, each: RewardInput) -> tuple[float, int]:
    """log p of the response's tokens, one at a time and by hand, and how many there are."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(folder).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    turn = TURN.format(context=each.context, question=each.question) if each.context else each.question
    prompt = tokenizer.encode(f"<s><|user|>\n{turn}<|end|>\n<|assistant|>\n", add_special_tokens=False)
    response = tokenizer.encode(f"{each.response}<|end|>\n", add_special_tokens=False)
    total = 0.0
    for place, token in enumerate(response):
        with torch.inference_mode():
            logits = model(input_ids=torch.tensor([prompt + response[:place]])).logits[0, -1]
        total += (logits[token] - torch.logsumexp(logits, 0)).item()
    return total, len(response)


@pytest.mark.parametrize("batch_size", [1, 4, 16])
def test_implicit_reward_is_the_log_ratio_over_the_response_tokens_alone(
    language_model: Path, reference: Path, batch_size: int
) -> None:
    settings = ModelSettings(batch_size=batch_size)
    model = ImplicitReward(str(language_model), str(reference), settings, ImplicitOptions(beta=0.5, **CPU))
    scores = [score.value for score in model.score(INPUTS)]
    for place in (0, 4, 8):
        expected = log_probability(language_model, INPUTS[place])[0] - log_probability(reference, INPUTS[place])[0]
        assert scores[place] == pytest.approx(0.5 * expected, abs=1e-3)


def test_adapter_is_a_policy(language_model: Path, tmp_path: Path) -> None:
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM, AutoTokenizer

    torch.manual_seed(4)
    config = LoraConfig(task_type="CAUSAL_LM", r=2, target_modules=["q_proj", "v_proj"], init_lora_weights=False)
    model = get_peft_model(AutoModelForCausalLM.from_pretrained(language_model), config)
    model.save_pretrained(tmp_path / "adapter")
    model.merge_and_unload().save_pretrained(tmp_path / "merged")
    AutoTokenizer.from_pretrained(language_model).save_pretrained(tmp_path / "merged")
    adapter, merged = (
        [
            score.value
            for score in ImplicitReward(
                str(tmp_path / name), str(language_model), ModelSettings(), ImplicitOptions(**CPU)
            ).score(INPUTS)
        ]
        for name in ("adapter", "merged")
    )
    assert adapter == pytest.approx(merged, abs=1e-2)
    assert max(abs(value) for value in merged if value is not None) > 0.5


def test_mean_per_token_divides_by_the_number_of_response_tokens(language_model: Path, reference: Path) -> None:
    model = ImplicitReward(
        str(language_model), str(reference), ModelSettings(), ImplicitOptions(per_token=True, **CPU)
    )
    (score,) = model.score(INPUTS[4:5])
    (policy, count), (base, _) = log_probability(language_model, INPUTS[4]), log_probability(reference, INPUTS[4])
    assert count == len("No, never at night.") + 2  # one token per byte, then the end of the turn and a line break
    assert score.value == pytest.approx((policy - base) / count, abs=1e-4)


def test_a_policy_that_is_its_own_reference_gives_zero(language_model: Path) -> None:
    model = ImplicitReward(str(language_model), str(language_model), ModelSettings(), ImplicitOptions(**CPU))
    assert [score.value for score in model.score(INPUTS)] == [0.0] * len(INPUTS)


def test_pmi_is_what_the_context_adds(language_model: Path) -> None:
    model = PmiReward(str(language_model), ModelSettings(), PmiOptions(**CPU))
    known = INPUTS[4]
    unknown = RewardInput(question=known.question, response=known.response)
    (score,) = model.score([known])
    expected = log_probability(language_model, known)[0] - log_probability(language_model, unknown)[0]
    assert score.value == pytest.approx(expected, abs=1e-3)
    assert abs(expected) > 0.1


def test_pmi_without_context_ties_at_zero(language_model: Path) -> None:
    model = PmiReward(str(language_model), ModelSettings(), PmiOptions(**CPU))
    assert [score.value for score in model.score(INPUTS[:3])] == [0.0, 0.0, 0.0]


def test_pmi_reads_a_repeated_sequence_once(language_model: Path) -> None:
    loaded = load_reward_model(f"pmi:{language_model}?device=cpu&share_prefixes=no", ModelSettings())
    assert isinstance(loaded.model, PmiReward)
    loaded.model.score(INPUTS[:3])
    assert loaded.tokens is not None
    assert loaded.tokens()["total"] == 2 * loaded.tokens()["computed"]


def test_input_over_either_window_is_too_long(
    language_model: Path, save_llama: Callable[..., Path], make_tokenizer: Callable[..., Any]
) -> None:
    narrow = save_llama("CausalLM", make_tokenizer(), max_position_embeddings=64)
    model = ImplicitReward(str(language_model), str(narrow), ModelSettings(), ImplicitOptions(**CPU))
    long = RewardInput(question="Q?", response="x" * 100)
    short, over = model.score([INPUTS[0], long])
    assert short.value is not None
    assert over.problem is Problem.TOO_LONG
    assert model.fits(INPUTS[0])
    assert not model.fits(long)


def test_implicit_spec_names_two_models(language_model: Path, reference: Path) -> None:
    loaded = load_reward_model(f"implicit:{language_model},{reference}?beta=0.1&device=cpu", ModelSettings())
    assert loaded.kind == "implicit"
    assert loaded.identity["beta"] == 0.1
    assert loaded.identity["policy"] != loaded.identity["reference"]
    for target in (f"{language_model}", f"{language_model},", "a,b,c"):
        with pytest.raises(UsageError, match="two models and one comma"):
            load_reward_model(f"implicit:{target}", ModelSettings())
