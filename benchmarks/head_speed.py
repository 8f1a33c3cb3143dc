"""Measure what a head costs on the default lab: seconds to train, candidates per second to score.

    python benchmarks/head_speed.py

Scoring is timed on the candidates of the validation split with whole profiles, in batches as the evaluation asks for
them, once their texts are embedded; the best of some rounds counts, as other work on the machine only slows it down.
Prints JSON. `cpu_seconds` are those of all threads of this process: on a busy machine they say more than `seconds`.
"""

import argparse
import json
import os
import platform
import shlex
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch

from prbench.backends.encoders import load_encoder
from prbench.context import Ask, make_context
from prbench.lab import LAB
from prbench.reward_models.head import HeadReward
from prbench.schema import Example, RewardInput
from prbench.training.data import load_training_data
from prbench.training.head import HeadConfig, learn_head

BATCH = 512  # candidates: 256 pairs
POSTS = 30
ROUNDS = 5

Times = dict[str, dict[str, float]]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--limit", type=int, help="train on the first N pairs only, to try it out")
    arguments = parser.parse_args()
    times: Times = {}
    with timed("make the lab", times):
        data = load_training_data(LAB, limit=arguments.limit)
    with timed("load the encoder", times):
        encoder = load_encoder()
    with timed("embed and train one epoch", times):
        learn_head(data, HeadConfig(epochs=1), encoder)
    inputs = list(candidates(data.validation))
    with timed("train, embeddings cached", times):
        head = learn_head(data, HeadConfig(), encoder)
    machine = {"processor": platform.machine(), "cores": os.cpu_count(), "threads": torch.get_num_threads()}
    report = {
        "command": shlex.join(["python", "benchmarks/head_speed.py", *sys.argv[1:]]),
        "machine": {**machine, "load": round(os.getloadavg()[0], 1)},
        "train_pairs": len(data.train),
        "candidates": len(inputs),
        "candidates_per_second": round(rate(HeadReward(head.weights, encoder), inputs)),
        "times": times,
    }
    print(json.dumps(report, indent=1))


@contextmanager
def timed(what: str, times: Times) -> Iterator[None]:
    """Note how long the block took."""
    started, cpu = time.perf_counter(), time.process_time()
    yield
    times[what] = {
        "seconds": round(time.perf_counter() - started, 2),
        "cpu_seconds": round(time.process_time() - cpu, 2),
    }


def candidates(examples: Sequence[Example]) -> Iterator[RewardInput]:
    """Yield both responses of every pair, with the user's whole profile."""
    maker = make_context("profile", posts=POSTS)
    users = maker.contexts([Ask(user=example.user, question=example.question) for example in examples])
    for example, user in zip(examples, users, strict=True):
        for response in (example.chosen, example.rejected):
            yield RewardInput(question=example.question, user=user, response=response)


def rate(model: HeadReward, inputs: Sequence[RewardInput]) -> float:
    """Return candidates per second, of the fastest round."""
    batches = [inputs[start : start + BATCH] for start in range(0, len(inputs), BATCH)]
    for batch in batches:
        model.score(batch)
    fastest = float("inf")
    for _ in range(ROUNDS):
        started = time.perf_counter()
        for batch in batches:
            model.score(batch)
        fastest = min(fastest, time.perf_counter() - started)
    return len(inputs) / fastest


if __name__ == "__main__":
    main()
