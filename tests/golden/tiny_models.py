"""Tiny language models and classifiers with random weights, over whole words, saved to disk like real ones."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.golden.people import odd, population
from tests.support.tiny_llama import save_tiny_llama, word_tokenizer

WORDS = ("A", "B", "The", "question", "that", "this", "person", "asks", "now:", "Posts", "they", "wrote:", "-")
FEW_WORDS = (
    "A",
    "B",
    "costs",
    "cress,",
    "friends",
    "clover",
    "museum",
    "Ten",
    "picnic.",
    "lake",
)  # A and B are likely


@contextmanager
def one_thread() -> Iterator[None]:
    """Compute with one thread: the same sums on any number of cores, and no waiting on a busy machine."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def texts() -> list[str]:
    """All that the tokenizer should know word by word."""
    found = list(WORDS)
    for row in [*population(12, (0, 1, 2)), *odd()]:
        found += [row["question"], row["chosen"], row["rejected"], *(post["text"] for post in row["profile"])]
    return found


def language_model(folder: Path, words: Sequence[str] = (), *, seed: int) -> Path:
    """Save a causal language model whose log-probabilities differ from word to word; it may know few words only."""
    known = words or texts()
    return save_tiny_llama(folder, known, seed=seed, initializer_range=0.3, max_position_embeddings=2048)


def classifier(folder: Path, *, logits: int = 1, seed: int = 0) -> Path:
    """Save a decoder that ends in so many logits."""
    import torch
    from transformers import LlamaConfig, LlamaForSequenceClassification

    tokenizer = word_tokenizer(texts())
    settings: dict[str, Any] = {
        "vocab_size": len(tokenizer),
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 2048,
        "initializer_range": 0.3,
        "pad_token_id": None,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "num_labels": logits,
    }
    torch.manual_seed(seed)
    LlamaForSequenceClassification(LlamaConfig(**settings)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
