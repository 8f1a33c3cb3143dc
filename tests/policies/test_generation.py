"""Sampling: a row depends on its own prompt and seed, and its log-probabilities are the model's."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs pip install 'prbench[hf]'")

import torch
from transformers import FalconConfig, FalconForCausalLM, LlamaConfig, LlamaForCausalLM
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from prbench.backends.generation import Generated, Sampler, Sampling, gumbel_noise
from prbench.errors import UsageError

VOCABULARY, END, PAD = 23, 2, 0
SIZES = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}


@pytest.fixture(scope="module")
def model() -> Any:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCABULARY, num_key_value_heads=2, max_position_embeddings=64, initializer_range=0.2, **SIZES
    )
    return LlamaForCausalLM(config).eval()


PROMPTS = [[5, 6, 7], [9], [4, 4, 8, 11, 3, 12, 17], [20, 3], [1, 19, 5, 5, 5]]


def sample(model: Any, prompts: Sequence[Sequence[int]], seeds: Sequence[int], **changes: Any) -> list[Generated]:
    batch_size = changes.pop("batch_size", 8)
    how = Sampling(**{"max_new_tokens": 12, **changes})
    return Sampler(model, eos_ids=[END], pad_id=PAD).generate(prompts, how, seeds=seeds, batch_size=batch_size)


def test_a_row_does_not_depend_on_the_batch(model: Any) -> None:
    seeds = [11, 12, 13, 14, 15]
    together = sample(model, PROMPTS, seeds)
    alone = [sample(model, [prompt], [seed])[0] for prompt, seed in zip(PROMPTS, seeds, strict=True)]
    backwards = sample(model, PROMPTS[::-1], seeds[::-1], batch_size=2)[::-1]
    for others in (alone, backwards):
        assert [each.tokens for each in others] == [each.tokens for each in together]
        for one, other in zip(together, others, strict=True):
            assert one.logprobs == pytest.approx(other.logprobs, abs=1e-5)


def test_the_same_seed_gives_the_same_sample_and_another_seed_another(model: Any) -> None:
    prompts = [PROMPTS[0]] * 3
    first, again, other = sample(model, prompts, [1, 1, 2])
    assert first.tokens == again.tokens
    assert first.tokens != other.tokens


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_logprobs_are_those_of_a_full_forward_pass(model: Any, temperature: float) -> None:
    for prompt, made in zip(PROMPTS, sample(model, PROMPTS, range(5), temperature=temperature), strict=True):
        with torch.no_grad():
            logits = model(torch.tensor([[*prompt, *made.tokens]])).logits[0].float() / temperature
        expected = logits.log_softmax(-1)[len(prompt) - 1 : -1].gather(1, torch.tensor(made.tokens)[:, None])
        assert made.logprobs == pytest.approx(expected.squeeze(1).tolist(), abs=1e-5)


def test_a_model_that_asks_by_name_how_to_attend_is_sampled_as_it_is() -> None:
    """Falcon chooses the form of its mask by the name of its attention; its heads share keys."""
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "num_kv_heads": 2}
    config = FalconConfig(
        vocab_size=VOCABULARY, new_decoder_architecture=True, alibi=False, initializer_range=0.2, **sizes
    )
    falcon = FalconForCausalLM(config).eval()
    for prompt, made in zip(PROMPTS, sample(falcon, PROMPTS, range(5)), strict=True):
        with torch.no_grad():
            logits = falcon(torch.tensor([[*prompt, *made.tokens]])).logits[0, len(prompt) - 1 : -1]
        expected = logits.log_softmax(-1)[range(len(made.tokens)), list(made.tokens)]
        assert made.logprobs == pytest.approx(expected.tolist(), abs=1e-4)


def test_sampling_copies_no_keys(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    kept = sdpa_attention_forward

    def counted(module: Any, query: Any, *rest: Any, **options: Any) -> Any:
        read.append(query.shape[2])
        return kept(module, query, *rest, **options)

    monkeypatch.setattr("transformers.integrations.sdpa_attention.sdpa_attention_forward", counted)
    sample(model, PROMPTS, range(5))
    assert read == [7, 7]  # the prompts in both layers, and no token after them


def test_a_sample_ends_at_an_end_token_or_at_the_length(model: Any) -> None:
    made = sample(model, [PROMPTS[0]] * 64, range(64), max_new_tokens=10)
    assert {each.finish for each in made} == {"stop", "length"}
    for each in made:
        assert END not in each.ids
        assert (each.end == END) == (each.finish == "stop")
        assert len(each.logprobs) == len(each.tokens) == (len(each.ids) + (each.finish == "stop"))
        assert each.finish == "stop" or len(each.ids) == 10


def test_tokens_come_as_often_as_the_softmax_says(model: Any) -> None:
    count = 4000
    made = sample(model, [PROMPTS[0]] * count, range(count), max_new_tokens=1, batch_size=count, temperature=0.8)
    with torch.no_grad():
        chances = (model(torch.tensor([PROMPTS[0]])).logits[0, -1] / 0.8).softmax(-1)
    seen = Counter(each.tokens[0] for each in made)
    statistic = sum((seen[token] - count * chance) ** 2 / (count * chance) for token, chance in enumerate(chances))
    assert float(statistic) < 48.3  # chi-squared with 22 degrees of freedom: 0.999


def test_top_p_leaves_the_likeliest_tokens(model: Any) -> None:
    with torch.no_grad():
        chances = model(torch.tensor([PROMPTS[0]])).logits[0, -1].softmax(-1)
    ordered = chances.sort(descending=True)
    allowed = set(ordered.indices[: int((ordered.values.cumsum(0) < 0.5).sum()) + 1].tolist())
    made = sample(model, [PROMPTS[0]] * 300, range(300), max_new_tokens=1, top_p=0.5, batch_size=300)
    assert {each.tokens[0] for each in made} == allowed


def test_temperature_zero_takes_the_likeliest_token(model: Any) -> None:
    made = sample(model, [PROMPTS[2]] * 2, [1, 2], temperature=0.0)
    with torch.no_grad():
        best = model(torch.tensor([PROMPTS[2]])).logits[0, -1].argmax()
    assert made[0].tokens == made[1].tokens
    assert made[0].tokens[0] == best


def test_noise_is_gumbel() -> None:
    noise = gumbel_noise(torch.tensor([[3, 99], [4, 99]]), 200_000).double()
    assert noise.mean().item() == pytest.approx(0.5772, abs=0.01)  # Euler's constant
    assert noise.var().item() == pytest.approx(torch.pi**2 / 6, abs=0.02)
    assert torch.corrcoef(noise)[0, 1].abs().item() < 0.01
    assert bool(noise.isfinite().all())


def test_a_prompt_beyond_the_window_is_one_line(model: Any) -> None:
    with pytest.raises(UsageError, match="do not fit the policy's window of 64"):
        sample(model, [[5] * 60], [0])


def test_training_mode_is_left_as_it_was(model: Any) -> None:
    model.train()
    sample(model, [[5]], [0])
    assert model.training
    model.eval()
