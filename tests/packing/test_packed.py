"""Packed scores are the padded ones, on every architecture that packs; others say that they do not."""

import random
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor

from prbench.backends.shared_prefix import packed as packed_module
from prbench.backends.shared_prefix.batching import TokenCount, Tokens, memory_errors
from prbench.backends.shared_prefix.packed import Budget, PackRunner, compute_packed, find_runner, find_store
from prbench.backends.shared_prefix.prefixes import Group, Kept, KeptPrefixes, Pack

SIZES = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 300,
    "pad_token_id": 0,
    "num_labels": 1,
}
ARCHITECTURES = {
    "Llama": {},
    "Qwen2": {},
    "Qwen3": {"head_dim": 16},
    "Gemma": {"head_dim": 16},
    "Gemma2": {"head_dim": 16, "sliding_window": 12},  # capped logits, and layers that look back 12 tokens
    "Mistral": {"sliding_window": 10},
    "Phi3": {"sliding_window": None},
}


def last_token(each: Tokens) -> int:
    return len(each.ids) - 1


def build(name: str, kind: str = "ForSequenceClassification", **changes: Any) -> Any:
    torch.manual_seed(0)
    config = getattr(transformers, f"{name}Config")(**{**SIZES, **ARCHITECTURES[name], **changes})
    return getattr(transformers, f"{name}{kind}")(config).eval()


def draw(seed: int, candidates: int, longest: int = 40) -> list[Tokens]:
    """Prompts of random lengths with up to so many candidates each, and one loner."""
    dice = random.Random(seed)

    def text(least: int, most: int) -> tuple[int, ...]:
        return tuple(dice.randrange(1, 300) for _ in range(dice.randint(least, most)))

    prompts = [text(1, longest) for _ in range(3)]
    return [Tokens(prompt + text(1, 20)) for prompt in prompts for _ in range(candidates)] + [Tokens(text(1, 60))]


def naive(model: Any, sequences: list[Tokens]) -> list[float]:
    with torch.no_grad():
        return [float(model(torch.tensor([each.ids])).logits) for each in sequences]


def packed(
    model: Any, sequences: list[Tokens], budget: Budget | None = None, kept: KeptPrefixes | None = None
) -> tuple[list[Any], TokenCount]:
    count = TokenCount()

    def read(hidden: Tensor, pack: Pack) -> list[float]:
        return model.score(hidden[[places.last for places in pack.places()]])[:, 0].tolist()

    return compute_packed(sequences, budget or Budget(8192), PackRunner(model.model), read, count, kept), count


@pytest.mark.parametrize("candidates", [1, 2, 7, 128])
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_packed_scores_are_the_naive_ones(name: str, candidates: int) -> None:
    model = build(name)
    sequences = draw(candidates, candidates)
    values, count = packed(model, sequences)
    assert values == pytest.approx(naive(model, sequences), abs=1e-4)
    assert count.total == sum(len(each.ids) for each in sequences)
    if candidates > 2:
        assert count.computed < 0.8 * count.total


def test_small_packs_give_the_same_scores() -> None:
    model = build("Llama")
    sequences = draw(5, 9)
    expected = naive(model, sequences)
    for budget in (Budget(50), Budget(8192, 1), Budget(8192, 4)):
        assert packed(model, sequences, budget)[0] == pytest.approx(expected, abs=1e-4)


def test_scores_in_bfloat16_are_as_near_to_float32_as_the_naive_ones() -> None:
    sequences = [each for seed in range(60) for each in draw(seed, 5)[:-1]]
    truth = torch.tensor(naive(build("Llama"), sequences))
    model = build("Llama").to(torch.bfloat16)
    padded_gap = (torch.tensor(naive(model, sequences)) - truth).abs()
    packed_gap = (torch.tensor(packed(model, sequences)[0]) - truth).abs()
    assert float(packed_gap.mean()) <= 1.1 * float(padded_gap.mean())
    assert float(packed_gap.max()) <= 1.5 * float(padded_gap.max())


def test_a_pack_that_memory_does_not_hold_is_halved_and_that_is_remembered() -> None:
    model = build("Llama")
    sequences = draw(2, 8)
    expected = naive(model, sequences)

    class Small(PackRunner):
        def hidden(self, pack: Pack, kept: KeptPrefixes | None) -> Tensor:
            if pack.tokens > 100:
                raise MemoryError("full")
            return super().hidden(pack)

    def read(hidden: Tensor, pack: Pack) -> list[float]:
        return model.score(hidden[[places.last for places in pack.places()]])[:, 0].tolist()

    budget = Budget(8192)
    values = compute_packed(sequences, budget, Small(model.model), read, TokenCount())
    assert values == pytest.approx(expected, abs=1e-4)
    assert budget.tokens < 8192
    (too_long,) = compute_packed([Tokens(tuple(range(1, 200)))], budget, Small(model.model), read, TokenCount())
    assert isinstance(too_long, MemoryError)


def test_a_decoder_whose_numbers_differ_when_packed_is_not_packed() -> None:
    model = build("Llama")
    trial = draw(1, 2)
    runner, reason = find_runner(
        model.model,
        trial,
        lambda batch: [0.0] * len(batch),
        lambda hidden, pack: [1.0 + index for index in range(len(pack.members))],
        compiled=False,
    )
    assert runner is None
    assert "other scores" in reason


@pytest.mark.parametrize("name", ["Llama", "Qwen3", "Gemma", "Phi3"])
def test_kept_prefixes_give_the_same_scores_for_fewer_tokens(name: str) -> None:
    model = build(name)
    dice = random.Random(3)
    prompts = [tuple(dice.randrange(1, 300) for _ in range(length)) for length in (80, 50, 40)]

    def candidates(*numbers: int) -> list[Tokens]:
        return [
            Tokens(prompts[number] + tuple(dice.randrange(1, 300) for _ in range(7)), prompt=len(prompts[number]))
            for number in numbers
        ]

    kept = KeptPrefixes(1 << 20, last_token)
    # One prompt with a single candidate, one with two; then both again beside a new one; then all of them.
    for batch, computed in (
        (candidates(0, 1, 1), 87 + 50 + 14),
        (candidates(0, 1, 1, 2), 7 + 14 + 47),
        (candidates(2, 0, 0, 1), 7 + 14 + 7),
    ):
        values, count = packed(model, batch, kept=kept)
        assert values == pytest.approx(naive(model, batch), abs=1e-4)
        assert count.computed == computed
    assert len(kept) == 3


def test_kept_prefixes_stay_within_their_bytes() -> None:
    model = build("Llama")
    dice = random.Random(4)
    kept = KeptPrefixes(
        3 * 2 * 2 * 16 * 4 * 100, last_token
    )  # 3 layers, keys and values, 2 heads of 16 floats: 100 tokens
    first = Tokens(tuple(dice.randrange(1, 300) for _ in range(60)), prompt=50)
    for seed in range(5):
        other = Tokens(tuple(random.Random(seed).randrange(1, 300) for _ in range(60)), prompt=50)
        packed(model, [first], kept=kept)
        packed(model, [other], kept=kept)
        assert (len(kept), kept.bytes) == (2, 3 * 2 * 2 * 16 * 4 * 100)
    _, count = packed(model, [first], kept=kept)
    assert count.computed == 10  # used each time, so it was never let go
    _, count = packed(model, [Tokens(tuple(dice.randrange(1, 300) for _ in range(120)), prompt=110)], kept=kept)
    assert len(kept) == 2  # what is larger than all the bytes is not kept


def test_lack_of_memory_lets_kept_prefixes_go() -> None:
    model = build("Llama")
    kept = KeptPrefixes(1 << 20, last_token)
    batch = [Tokens((*range(1, 60), last), prompt=59) for last in (100, 101, 102, 103)]
    packed(model, batch[:1], kept=kept)
    runner, calls = PackRunner(model.model), []

    class Tight:
        def hidden(self, pack: Pack, kept: KeptPrefixes | None) -> Tensor:
            calls.append(len(pack.members))
            if len(calls) == 1:
                raise MemoryError("full")
            return runner.hidden(pack, kept)

    def read(hidden: Tensor, pack: Pack) -> list[float]:
        return model.score(hidden[[places.last for places in pack.places()]])[:, 0].tolist()

    with torch.no_grad():
        values = compute_packed(batch, Budget(8192), Tight(), read, TokenCount(), kept)  # type: ignore[arg-type]
    assert values == pytest.approx(naive(model, batch), abs=1e-4)
    assert calls == [4, 4]  # without the kept prefix, and then it fits
    assert (len(kept), kept.bytes) == (0, 0)


def test_a_common_header_does_not_keep_prompts_from_being_kept() -> None:
    model = build("Llama")
    dice = random.Random(5)
    header = tuple(dice.randrange(1, 300) for _ in range(40))
    prompts = [header + tuple(dice.randrange(1, 300) for _ in range(60)) for _ in range(4)]
    kept = KeptPrefixes(1 << 22, last_token)
    costs = []
    for _ in range(2):
        for prompt in prompts:
            one = Tokens(prompt + tuple(dice.randrange(1, 300) for _ in range(5)), prompt=100)
            values, count = packed(model, [one], kept=kept)
            assert values == pytest.approx(naive(model, [one]), abs=1e-4)
            costs.append(count.computed)
    assert costs == [105, 65, 65, 65, 5, 5, 5, 5]


def test_what_is_read_inside_the_prompt_is_computed() -> None:
    kept = KeptPrefixes(1 << 20, lambda each: 30, fewest=8)
    group = Group(0, (Tokens(tuple(range(1, 60)), prompt=50),))
    assert kept.wanted(Pack([group])) == {0: 30}
    kept.add(group, 50, [(torch.zeros(2, 50, 4), torch.zeros(2, 50, 4))])
    assert kept.use(group).prefix == 30


def test_a_layer_that_attends_twice_has_no_store() -> None:
    torch.manual_seed(0)
    model = transformers.DiffLlamaForSequenceClassification(transformers.DiffLlamaConfig(**SIZES)).eval()
    trial = [Tokens((*range(1, 90), 5)), Tokens((*range(1, 90), 6, 7)), Tokens((8, 9))]

    def read(hidden: Tensor, pack: Pack) -> list[float]:
        return model.score(hidden[[places.last for places in pack.places()]])[:, 0].tolist()

    with torch.no_grad():
        runner = PackRunner(model.model)
        kept, reason = find_store(runner, 1 << 20, trial, read, last_token)
        fine, _ = find_store(
            PackRunner(build("Llama").model), 1 << 20, trial, lambda h, p: [0.0] * len(p.members), last_token
        )
    assert kept is None
    assert "attends twice" in reason
    assert fine is not None


def test_two_models_can_be_packed_in_two_threads_at_once() -> None:
    models = [build("Llama"), build("Qwen3")]
    rows = [draw(seed, 3) for seed in range(6)]
    expected = [[naive(model, each) for each in rows] for model in models]
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(lambda model: [packed(model, each)[0] for each in rows], models))
    for one, other in zip(found, expected, strict=True):
        for ours, theirs in zip(one, other, strict=True):
            assert ours == pytest.approx(theirs, abs=1e-4)


def test_lack_of_memory_is_one_error_on_every_device() -> None:
    with pytest.raises(MemoryError, match="out of memory"), memory_errors():
        raise RuntimeError("[enforce fail at alloc_cpu.cpp:117] err == 0. DefaultCPUAllocator: can't allocate memory")
    with pytest.raises(MemoryError, match="out of memory"), memory_errors():
        raise torch.OutOfMemoryError("CUDA out of memory")
    with pytest.raises(RuntimeError, match="shapes"), memory_errors():
        raise RuntimeError("shapes do not match")


def varlen(
    query: Tensor, key: Tensor, value: Tensor, query_cuts: Tensor, key_cuts: Tensor, *rest: Any, **more: Any
) -> tuple[Tensor, Tensor]:
    """What the CUDA kernel computes, written out: (tokens, heads, size), and the log-sum-exp (heads, tokens)."""
    _, _, causal, scale = rest
    repeats = query.shape[1] // key.shape[1]
    outs, weights = [], []
    for number in range(len(query_cuts) - 1):
        q = query[query_cuts[number] : query_cuts[number + 1]].transpose(0, 1)
        k, v = (each[key_cuts[number] : key_cuts[number + 1]].transpose(0, 1) for each in (key, value))
        logits = q @ k.repeat_interleave(repeats, 0).transpose(1, 2) * scale
        if causal:
            behind = k.shape[1] - q.shape[1]
            logits = logits.masked_fill(~torch.ones(logits.shape[1:], dtype=bool).tril(behind), -torch.inf)
        outs.append((logits.softmax(-1) @ v.repeat_interleave(repeats, 0)).transpose(0, 1))
        weights.append(logits.logsumexp(-1))
    return torch.cat(outs), torch.cat(weights, 1)


@pytest.mark.parametrize("way", ["_copied_on_cuda", "_merged_on_cuda"])
def test_both_ways_on_cuda_cut_the_pack_as_the_cpu_does(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    kept = Kept(5, [(torch.randn(2, 9, 16), torch.randn(2, 9, 16))])
    members = [tuple(Tokens((*range(length), number)) for number in (100, 101)) for length in (4, 5, 6)]
    loner = Group(0, (Tokens((7, 8, 9)),))
    pack = Pack([Group(4, members[0]), Group(5, members[1], kept), Group(6, members[2]), loner])
    query, (key, value) = torch.randn(1, 4, pack.tokens, 16), torch.randn(2, 1, 2, pack.tokens, 16)
    layout = packed_module.PackLayout(pack.spans, pack.tokens, torch.device("cpu"))
    expected = packed_module._merged_on_cpu(query, key, value, layout, 0.25, 0)
    monkeypatch.setattr(packed_module, "_flash_cuda", varlen)
    turned = [each[0].transpose(0, 1) for each in (query, key, value)]
    found = getattr(packed_module, way)(*turned, layout, 0.25, 0)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
