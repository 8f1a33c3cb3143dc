"""Throughput of the reward server with and without batching, on one machine and in one run.

    python benchmarks/serve.py --out results/speed/serve_cpu.json
    python benchmarks/serve.py --soak --requests 10000

A random Llama-shaped classifier is served twice, one process after the other: with `--max-batch 1` and no memory for
prefixes, so that every request is a forward pass of its own, and as it comes. The same clients send the same
candidates of a few prompts, each prompt with a long profile, one candidate per request, after a warm-up on other
prompts. `--soak` sends requests of every bad kind instead.
"""

import argparse
import asyncio
import json
import os
import platform
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from string import ascii_lowercase
from typing import Any

import httpx
from soak import add_soak_options, knock, nap, run_soak, serve_for_soak

LOAD = ("clients", "prompts", "profile", "response", "requests", "warm_up")
VOCABULARY = 8192  # only the bytes are used; the rest makes up the size of a small model
SIZES = {
    "tiny": {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2},
    "30m": {"hidden_size": 512, "intermediate_size": 1408, "num_hidden_layers": 8, "num_attention_heads": 8},
    "3b": {
        "hidden_size": 3072,
        "intermediate_size": 8192,
        "num_hidden_layers": 28,
        "num_attention_heads": 24,
        "num_key_value_heads": 8,
    },
}
CHAT = (
    "{{ bos_token }}{% for message in messages %}<|{{ message.role }}|> {{ message.content }} <|end|> {% endfor %}"
    "{% if add_generation_prompt %}<|assistant|> {% endif %}"
)


def save_model(folder: Path, size: str, dtype: str) -> int:
    """Save a random classifier whose tokens are single bytes, and return how many parameters it has."""
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForSequenceClassification, PreTrainedTokenizerFast

    special = ["<s>", "</s>", "<|user|>", "<|assistant|>", "<|end|>"]
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: index for index, token in enumerate([*special, *alphabet])}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", extra_special_tokens=special[2:]
    )
    fast.chat_template = CHAT
    fast.save_pretrained(folder)
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        max_position_embeddings=8192,
        num_labels=1,
        bos_token_id=0,
        eos_token_id=1,
        pad_token_id=None,
        **SIZES[size],
    )
    model = LlamaForSequenceClassification(config).to(getattr(torch, dtype))
    model.save_pretrained(folder)
    return sum(each.numel() for each in model.parameters())


def make_inputs(prompts: int, requests: int, profile: int, response: int, seed: int = 0) -> list[dict[str, str]]:
    """Return candidates of a few prompts, shuffled, every one different."""
    dice = random.Random(seed)

    def text(tokens: int) -> str:
        return "".join(dice.choices(ascii_lowercase, k=tokens))

    heads = [{"context": text(profile), "question": text(20)} for _ in range(prompts)]
    inputs = [{**heads[i % prompts], "response": text(response)} for i in range(requests)]
    dice.shuffle(inputs)
    return inputs


@contextmanager
def serving(folder: Path, *options: str) -> Iterator[str]:
    """Run `prbench serve` and give its address."""
    environment = {name: value for name, value in os.environ.items() if name != "PRBENCH_SERVER_TOKEN"}
    command = [sys.executable, "-m", "prbench", "serve", "--model", f"classifier:{folder}", "--port", "0", "--json"]
    process = subprocess.Popen([*command, *options], stdout=subprocess.PIPE, text=True, env=environment)
    try:
        assert process.stdout is not None
        yield json.loads(process.stdout.readline())["url"]
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()


async def send_all(url: str, inputs: list[dict[str, str]], clients: int) -> tuple[float, list[float], list[float]]:
    """Let the clients share the inputs; return the seconds in all, each input's score and each request's seconds."""
    scores, seconds = [0.0] * len(inputs), [0.0] * len(inputs)
    left = iter(range(len(inputs)))

    async def client() -> None:
        async with httpx.AsyncClient(base_url=url, timeout=None, verify=False, trust_env=False) as http:
            for number in left:
                began = time.monotonic()
                reply = await http.post("/score", json=inputs[number])
                seconds[number] = time.monotonic() - began
                scores[number] = reply.raise_for_status().json()["scores"][0]["value"]

    began = time.monotonic()
    await asyncio.gather(*(client() for _ in range(clients)))
    return time.monotonic() - began, scores, seconds


def measure(
    folder: Path, warm_up: list[dict[str, str]], inputs: list[dict[str, str]], clients: int, *options: str
) -> tuple[dict[str, Any], list[float]]:
    """Return the figures of one server, and the scores that it gave."""
    with serving(folder, *options) as url:
        asyncio.run(send_all(url, warm_up, clients))
        before = httpx.get(url + "/metrics", trust_env=False).text
        total, scores, seconds = asyncio.run(send_all(url, inputs, clients))
        page = httpx.get(url + "/metrics", trust_env=False).text

    def grown(name: str) -> float:
        return metric(page, name) - metric(before, name)

    batches = grown("prbench_batch_inputs_count")
    seconds.sort()
    figures = {
        "seconds": round(total, 3),
        "requests_per_second": round(len(inputs) / total, 3),
        "median_seconds": round(seconds[len(seconds) // 2], 3),
        "p95_seconds": round(seconds[int(len(seconds) * 0.95)], 3),
        "model_calls": int(batches),
        "mean_batch": round(len(inputs) / batches, 2),
        "compute_seconds": round(grown("prbench_compute_seconds_sum"), 3),
        "tokens_total": grown('prbench_tokens_total{kind="total"}'),
        "tokens_computed": grown('prbench_tokens_total{kind="computed"}'),
    }
    return figures, scores


def metric(page: str, name: str) -> float:
    """Return one value of a page for Prometheus."""
    return next(float(line.rpartition(" ")[2]) for line in page.splitlines() if line.startswith(name + " "))


def compare(arguments: argparse.Namespace) -> dict[str, Any]:
    """Measure both servers and return everything that is worth keeping."""
    sizes = (arguments.profile, arguments.response)
    inputs = make_inputs(arguments.prompts, arguments.requests, *sizes)
    # Other prompts, so that nothing of the load is known before it begins.
    warm_up = make_inputs(arguments.prompts, arguments.warm_up, *sizes, seed=1)
    with tempfile.TemporaryDirectory() as place:
        parameters = save_model(Path(place), arguments.size, arguments.dtype)
        alone = ("--max-batch", "1", "--prefix-memory-mb", "0")
        unbatched, expected = measure(Path(place), warm_up, inputs, arguments.clients, *alone)
        batched, scores = measure(Path(place), warm_up, inputs, arguments.clients)
    return {
        "command": "python benchmarks/serve.py " + " ".join(sys.argv[1:]),
        "machine": {"processor": platform.machine(), "cores": os.cpu_count(), "device": device()},
        "model": {"shape": f"Llama {arguments.size}", "parameters": parameters, "dtype": arguments.dtype},
        "load": {
            name: getattr(arguments, name)
            for name in ("clients", "prompts", "profile", "response", "requests", "warm_up")
        },
        "unbatched": unbatched,
        "batched": batched,
        "ratio": round(batched["requests_per_second"] / unbatched["requests_per_second"], 2),
        "parity_max_abs": max(abs(one - two) for one, two in zip(scores, expected, strict=True)),
    }


def device() -> str:
    """Return what the model runs on."""
    import torch

    return torch.cuda.get_device_name(0) if torch.cuda.is_available() else "cpu"


def soak(arguments: argparse.Namespace) -> dict[str, Any]:
    """Send good and bad requests to a stand-in, or to a tiny classifier."""
    with tempfile.TemporaryDirectory() as place:
        if arguments.soak_model == "classifier":
            save_model(Path(place), "tiny", "float32")
        return run_soak(arguments, Path(__file__), place if arguments.soak_model == "classifier" else "")


def main() -> None:
    """Measure, print and perhaps write."""
    if sys.argv[1:2] == ["--soak-server"]:
        serve_for_soak(*sys.argv[2:])
        return
    if sys.argv[1:2] == ["--soak-knock"]:
        knock(sys.argv[2])
        return
    if sys.argv[1:2] == ["--soak-nap"]:
        nap(int(sys.argv[2]))
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=SIZES, default="30m")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--prompts", type=int, default=8)
    parser.add_argument("--profile", type=int, default=1000, help="tokens")
    parser.add_argument("--response", type=int, default=100, help="tokens")
    parser.add_argument("--requests", type=int, default=None)
    parser.add_argument("--warm-up", type=int, default=8, help="requests before the clock starts")
    parser.add_argument("--out", type=Path, default=None)
    add_soak_options(parser)
    arguments = parser.parse_args()
    if arguments.requests is None:
        arguments.requests = 10_000 if arguments.soak else 128
    figures = soak(arguments) if arguments.soak else compare(arguments)
    print(json.dumps(figures, indent=1))
    if arguments.out:
        arguments.out.write_text(json.dumps(figures, indent=1) + "\n")
    if arguments.soak and not figures["passed"]:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
