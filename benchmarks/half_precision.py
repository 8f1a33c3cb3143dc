"""Compare scores in bfloat16: packed against padded, and padded against padded with another batch size.

    python benchmarks/half_precision.py --shape 3b --out FILE

2,000 pairs behind prompts of 100 to 600 tokens. Rounding depends on the batch in any case; packing must not add to it.
`--kernel flash` gives the padded passes the attention kernel that packs use. That kernel takes no mask, so lengths are
drawn from a few values and only equally long sequences share a batch.

The first `--exact` pairs are scored in float32 as well, which tells how far each way is from what all of them mean.
"""

import argparse
import json
import random
from collections.abc import Iterator
from contextlib import nullcontext
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from prbench.backends.shared_prefix.batching import TokenCount, Tokens, by_length
from prbench.backends.shared_prefix.packed import PackRunner, compute_packed
from prbench.backends.shared_prefix.prefixes import Pack
from prbench.evaluation.bench import SHAPES, BenchSettings, build_model


def main() -> None:
    """Measure and record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", default="30m")
    parser.add_argument("--pairs", type=int, default=2000)
    parser.add_argument("--exact", type=int, default=500, help="pairs that are scored in float32 too")
    parser.add_argument("--sizes", type=int, nargs="+", default=[1, 4, 16, 64], help="padded batch sizes")
    parser.add_argument("--kernel", choices=["default", "flash"], default="default")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = build_model(BenchSettings(shape=arguments.shape, dtype="bfloat16"), device)
    is_flash = arguments.kernel == "flash"
    rows = draw_pairs(arguments.pairs, SHAPES[arguments.shape]["vocab_size"], step=100 if is_flash else 1)
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION) if is_flash else nullcontext():
        ways = {f"padded {size}": padded(model, rows, size, device) for size in arguments.sizes}
    ways["packed"] = packed(model, rows)
    exact = padded(model.float(), rows[: 2 * arguments.exact], 16, device)
    result = {
        "command": f"python benchmarks/half_precision.py --shape {arguments.shape} --kernel {arguments.kernel}",
        "device": torch.cuda.get_device_name() if device.type == "cuda" else "cpu",
        "pairs": arguments.pairs,
        "standard deviation of scores": float(np.std(ways["packed"])),
        "differences": {f"{a} - {b}": gaps(ways[a], ways[b]) for a, b in combinations(ways, 2)},
        "differences from float32": {name: gaps(found[: len(exact)], exact) for name, found in ways.items()},
    }
    arguments.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(result, indent=1))


def gaps(one: np.ndarray, other: np.ndarray) -> dict[str, float]:
    """Return how far two ways are apart, and in how many pairs they prefer another response."""
    off = np.abs(one - other)
    flipped = (one[::2] > one[1::2]) != (other[::2] > other[1::2])
    return {"mean": float(off.mean()), "max": float(off.max()), "pairs decided otherwise": float(flipped.mean())}


def draw_pairs(pairs: int, vocabulary: int, step: int = 1) -> list[Tokens]:
    """Return pairs of candidates of random lengths behind prompts of random lengths, all multiples of `step`."""
    dice = random.Random(0)

    def text(least: int, most: int) -> tuple[int, ...]:
        length = max(step, dice.randint(least, most) // step * step)
        return tuple(dice.randrange(1, vocabulary) for _ in range(length))

    prompts = [text(100, 600) for _ in range(pairs)]
    return [Tokens(prompt + text(20, 200)) for prompt in prompts for _ in range(2)]


def padded(model: torch.nn.Module, rows: list[Tokens], batch_size: int, device: torch.device) -> np.ndarray:
    """Return scores by padded batches."""
    found: dict[Tokens, float] = {}
    for batch in batches(rows, batch_size):
        longest = max(len(each.ids) for each in batch)
        ids = torch.tensor([[*each.ids, *[0] * (longest - len(each.ids))] for each in batch], device=device)
        with torch.inference_mode():
            logits = model(input_ids=ids, attention_mask=(ids != 0).long(), use_cache=False).logits
        found.update(zip(batch, logits[:, 0].float().tolist(), strict=True))
    return np.array([found[each] for each in rows])


def batches(rows: list[Tokens], batch_size: int) -> Iterator[list[Tokens]]:
    """Give each sequence once; where many are equally long, batches need no padding."""
    lengths = {len(each.ids) for each in rows}
    if len(lengths) * 100 > len(rows):
        yield from by_length(rows, batch_size)
        return
    for length in sorted(lengths):
        yield from by_length([each for each in rows if len(each.ids) == length], batch_size)


def packed(model: Any, rows: list[Tokens]) -> np.ndarray:
    """Return scores behind shared prefixes."""
    runner = PackRunner(model.model)

    def read(hidden: torch.Tensor, pack: Pack) -> list[float]:
        last = torch.tensor([places.last for places in pack.places()], device=hidden.device)
        scores: list[float] = model.score(hidden[last])[:, 0].float().tolist()
        return scores

    return np.array(compute_packed(rows, runner.budget(None), runner, read, TokenCount()))


if __name__ == "__main__":
    main()
