"""How fast a policy writes: tokens a second while PPO samples, with shared keys and, beside it, with copied ones.

    python benchmarks/rollout_speed.py --policy models/sft --set context=oracle --out FILE

Questions of the lab's `train`, batches of `rollout_batch` answers of up to `max_new_tokens` tokens, as `prbench ppo`
samples them: in bfloat16 and with captured steps on a GPU. The two ways take turns, so that whatever else runs on the
machine hits both. Only tokens of answers count, with the one that ends them; what is padded after that does not.
`--whole` forbids answers to end, for figures that do not depend on how long a policy's answers are.
"""

import argparse
import json
import shlex
import sys
from contextlib import nullcontext
from pathlib import Path
from statistics import median
from typing import Any
from unittest.mock import patch

import torch

from prbench.backends import generation
from prbench.backends.generation import Sampler, Sampling
from prbench.downstream.ppo.learner import chosen_dtype
from prbench.downstream.ppo.rollout import PromptTokenizer, make_tasks
from prbench.downstream.ppo.settings import PpoSettings, read_settings
from prbench.downstream.ppo.training import contexts_of, load_policy_backbone, tokenizer_of
from prbench.lab import default_dataset

NOWHERE = -1  # a token that no model writes


def main() -> None:
    """Measure and record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--policy", required=True)
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="as for `prbench ppo`")
    parser.add_argument("--rounds", type=int, default=5, help="batches for each way, after one to warm up")
    parser.add_argument("--whole", action="store_true", help="let no answer end before its last token")
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args()
    settings = read_settings(asked.set, policy=asked.policy, reward="control:gold")
    backbone = load_policy_backbone(asked.policy)
    tokenizer = tokenizer_of(backbone, asked.policy)
    dtype = chosen_dtype(settings.dtype, next(backbone.model.parameters()).device)
    model = backbone.model.to(dtype)
    prompts = prompts_of(settings, tokenizer)
    ends = [NOWHERE] if asked.whole else tokenizer.ends
    samplers = {
        way: Sampler(model, eos_ids=ends, pad_id=tokenizer.pad, captured=True)
        for way in ("shared keys", "copied keys")
    }
    rates: dict[str, list[float]] = {way: [] for way in samplers}
    for number in range(asked.rounds + 1):
        for way, sampler in samplers.items():
            rates[way].append(rate(sampler, prompts, settings, number, is_plain=way == "copied keys"))
            print(f"{way}, {number}: {rates[way][-1]:.0f} tokens/s", flush=True)
    record = {
        "command": shlex.join(["python", "benchmarks/rollout_speed.py", *sys.argv[1:]]),
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu",
        "torch": torch.__version__,
        "dtype": str(dtype),
        "batch": len(prompts),
        "prompt_tokens": {"mean": sum(map(len, prompts)) / len(prompts), "longest": max(map(len, prompts))},
        "max_new_tokens": settings.max_new_tokens,
        "tokens_per_second": {way: [round(each) for each in found[1:]] for way, found in rates.items()},
        "median": {way: round(median(found[1:])) for way, found in rates.items()},
    }
    asked.out.parent.mkdir(parents=True, exist_ok=True)
    asked.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(record["median"]))


def prompts_of(settings: PpoSettings, tokenizer: PromptTokenizer) -> list[tuple[int, ...]]:
    """Return the prompts of one batch."""
    rows = default_dataset("train")[: settings.rollout_batch]
    tasks = make_tasks(rows, tokenizer, *contexts_of(settings, None), max_new_tokens=settings.max_new_tokens)
    return [task.prompt_ids for task in tasks]


def rate(
    sampler: Sampler, prompts: list[tuple[int, ...]], settings: PpoSettings, number: int, *, is_plain: bool
) -> float:
    """Sample one batch, and return its tokens per second."""
    how = Sampling(max_new_tokens=settings.max_new_tokens, temperature=settings.temperature)
    seeds = range(number * len(prompts), (number + 1) * len(prompts))
    with patch.object(generation, "shared_keys", unchanged) if is_plain else nullcontext():
        made = sampler.generate(prompts, how, seeds=seeds, batch_size=settings.generation_batch)
    return sum(len(each.tokens) for each in made) / sampler.seconds


def unchanged(model: Any) -> nullcontext[None]:
    """Leave a model as it is."""
    return nullcontext()


if __name__ == "__main__":
    main()
