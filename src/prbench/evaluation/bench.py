"""How much shared prefixes save: the padded forward pass against packs, on the same model and rows."""

import random
import resource
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch

from prbench.backends.shared_prefix.batching import TokenCount, Tokens, by_length
from prbench.backends.shared_prefix.packed import PackRunner, compute_packed
from prbench.backends.shared_prefix.prefixes import Pack, group_by_prefix
from prbench.errors import UsageError
from prbench.reward_models.base import PADDED
from prbench.schema import Json

# Llama-shaped decoders with random weights: speed does not depend on what the weights are.
SHAPES: Mapping[str, Mapping[str, int]] = {
    "tiny": {"hidden_size": 64, "intermediate_size": 160, "num_hidden_layers": 2, "num_attention_heads": 4,
             "num_key_value_heads": 2, "vocab_size": 1000},
    "30m": {"hidden_size": 512, "intermediate_size": 1408, "num_hidden_layers": 8, "num_attention_heads": 8,
            "num_key_value_heads": 8, "vocab_size": 8000},
    "3b": {"hidden_size": 3072, "intermediate_size": 8192, "num_hidden_layers": 28, "num_attention_heads": 24,
           "num_key_value_heads": 8, "vocab_size": 128256},
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class BenchSettings:
    """What to measure."""

    shape: str = "30m"
    prefix: int = 1000
    response: int = 100
    candidates: int = 16
    prompts: int = 1
    vary: float = 0.0  # prompts differ in length by up to this share
    repeats: int = 3
    dtype: str = "float32"
    device: str = "auto"
    compile: bool = False
    seed: int = 0


@dataclass(frozen=True)
class Timing:
    """Seconds of one way of computing all scores, and the scores."""

    seconds: float  # median
    scores: Sequence[float]


def run_sweep(
    settings: BenchSettings, candidates: Sequence[int], note: Callable[[str], None] = lambda line: None
) -> dict[str, Json]:
    """Measure with each of these numbers of candidates per prompt, on one model, and return all figures."""
    device = _device(settings.device)
    model = build_model(settings, device)
    matmul = matmul_rate(device, getattr(torch, settings.dtype))
    points = [_figures(replace(settings, candidates=count), model, device, matmul, note) for count in candidates]
    return {"device": points[0]["device"], "settings": asdict(settings), "points": points}


def doubling(most: int) -> list[int]:
    """Return 2, 4, 8, … up to `most`, which is the last in any case."""
    return [2**power for power in range(1, most.bit_length()) if 2**power < most] + [most]


def _figures(
    settings: BenchSettings, model: Any, device: torch.device, matmul: float, note: Callable[[str], None]
) -> dict[str, Json]:
    rows = draw_rows(settings, SHAPES[settings.shape]["vocab_size"])
    note(f"{settings.shape}: {len(rows)} sequences on {device}")
    naive, ours, computed = _measure(model, rows, settings, device, note)
    total = sum(len(each.ids) for each in rows)
    work = flops(model, rows)
    gap = max(abs(one - other) for one, other in zip(naive.scores, ours.scores, strict=True))
    return {
        "settings": asdict(settings),
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else str(device),
        "ratio": round(naive.seconds / ours.seconds, 3),
        "token_ratio": round(total / computed, 3),
        "parity_max_abs": gap,
        "naive_seconds": round(naive.seconds, 5),
        "seconds": round(ours.seconds, 5),
        "tokens": total,
        "unique_tokens": computed,
        "tokens_per_second": round(total / ours.seconds),
        "unique_tokens_per_second": round(computed / ours.seconds),
        "naive_tokens_per_second": round(total / naive.seconds),
        "flops": work,
        "matmul_flops_per_second": matmul,
        "share_of_matmul_rate": round(work / ours.seconds / matmul, 4),
        "peak_memory_bytes": torch.cuda.max_memory_allocated(device)
        if device.type == "cuda"
        else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,  # KiB on Linux
    }


def build_model(settings: BenchSettings, device: torch.device) -> Any:
    """Return a random classifier of the shape, the same for the same seed."""
    from transformers import LlamaConfig, LlamaForSequenceClassification

    if settings.shape not in SHAPES:
        raise UsageError(f"--shape {settings.shape} is not known. Use one of: {', '.join(SHAPES)}.")
    length = int(settings.prefix * (1 + settings.vary)) + settings.response
    config = LlamaConfig(
        **SHAPES[settings.shape], num_labels=1, pad_token_id=0, max_position_embeddings=max(2048, length)
    )
    torch.manual_seed(settings.seed)
    dtype = torch.get_default_dtype()
    torch.set_default_dtype(getattr(torch, settings.dtype))
    try:
        with device:
            return LlamaForSequenceClassification(config).eval()
    finally:
        torch.set_default_dtype(dtype)


def draw_rows(settings: BenchSettings, vocabulary: int) -> list[Tokens]:
    """Return random prompts, each with its candidates."""
    dice = random.Random(settings.seed)

    def text(length: int) -> tuple[int, ...]:
        return tuple(dice.randrange(1, vocabulary) for _ in range(length))

    lengths = [
        round(settings.prefix * (1 + settings.vary * (2 * number / max(1, settings.prompts - 1) - 1)))
        for number in range(settings.prompts)
    ]
    prompts = [text(max(1, length)) for length in lengths]
    return [Tokens(prompt + text(settings.response)) for prompt in prompts for _ in range(settings.candidates)]


def _measure(
    model: Any, rows: Sequence[Tokens], settings: BenchSettings, device: torch.device, note: Callable[[str], None]
) -> tuple[Timing, Timing, int]:
    runner = PackRunner(model.model, compiled=settings.compile)
    budget = runner.budget(None)
    count = TokenCount()

    def read(hidden: Any, pack: Pack) -> list[float]:
        last = torch.tensor([places.last for places in pack.places()], device=hidden.device)
        scores: list[float] = model.score(hidden[last])[:, 0].float().tolist()
        return scores

    def ours() -> list[float]:
        count.computed = 0
        values = compute_packed(rows, budget, runner, read, count)
        failed = [value for value in values if isinstance(value, MemoryError)]
        if failed:
            raise failed[0]
        return [float(value) for value in values]  # type: ignore[arg-type]

    ways = {"naive": lambda: naive_scores(model, rows, device), "ours": ours}
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    scores: dict[str, list[float]] = {}
    for turn in range(settings.repeats + 1):  # the first turn warms up
        for name, compute in ways.items():
            _wait(device)
            started = time.perf_counter()
            scores[name] = compute()
            _wait(device)
            if turn:
                seconds[name].append(time.perf_counter() - started)
                note(f"{name}: {seconds[name][-1]:.3f} s")
    medians = {name: statistics.median(found) for name, found in seconds.items()}
    return Timing(medians["naive"], scores["naive"]), Timing(medians["ours"], scores["ours"]), count.computed


def naive_scores(model: Any, rows: Sequence[Tokens], device: torch.device) -> list[float]:
    """Return scores as everybody computes them: padded batches of 16, the whole sequence each time."""
    found: dict[Tokens, float] = {}
    for batch in by_length(rows, PADDED):
        longest = max(len(each.ids) for each in batch)
        ids = torch.tensor([[*each.ids, *[0] * (longest - len(each.ids))] for each in batch], device=device)
        with torch.inference_mode():
            logits = model(input_ids=ids, attention_mask=(ids != 0).long(), use_cache=False).logits
        found.update(zip(batch, logits[:, 0].float().tolist(), strict=True))
    return [found[each] for each in rows]


def flops(model: Any, rows: Sequence[Tokens]) -> int:
    """Return the floating-point operations that the distinct tokens need: weights, and attended pairs."""
    config = model.config
    weights = sum(each.numel() for name, each in model.named_parameters() if "embed_tokens" not in name)
    total = 0
    for group in group_by_prefix(rows):
        tails = sum(tail * group.prefix + tail * (tail + 1) // 2 for tail in group.tails)
        pairs = group.prefix * (group.prefix + 1) // 2 + tails
        total += 2 * weights * group.tokens + 4 * config.num_hidden_layers * config.hidden_size * pairs
    return int(total)


def matmul_rate(device: torch.device, dtype: torch.dtype) -> float:
    """Return the floating-point operations per second of a large square product, the best of several."""
    size, repeats = (8192, 20) if device.type == "cuda" else (1024, 10)
    one, other = (torch.randn(size, size, device=device).to(dtype) for _ in range(2))
    best = 0.0
    for _ in range(5):
        _wait(device)
        started = time.perf_counter()
        for _ in range(repeats):
            one @ other
        _wait(device)
        best = max(best, repeats * 2 * size**3 / (time.perf_counter() - started))
    return best


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _device(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if name not in ("cpu", "cuda"):
        raise UsageError(f"--device {name} is not known. Use cpu or cuda.")
    if name == "cuda" and not torch.cuda.is_available():
        raise UsageError("--device cuda: this machine has none that PyTorch can use. Use cpu.")
    return torch.device(name)
