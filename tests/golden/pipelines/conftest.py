"""A small population, tiny models over its words, and models trained on it: made once, for all pipelines."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.golden import extract_pipelines as ask
from tests.support.scripted_server import ScriptedServer, scripted_server
from tests.support.tiny_llama import word_tokenizer

TINY = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
LAB = "./lab"  # a folder of that name is the embedded lab, unless it is named as a path


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a population of 330 users, and with labelled pairs of those who are held out."""
    place = tmp_path_factory.mktemp("world")
    ask.make_lab(place, "lab", users=330, pairs=650, labels=4)
    return place


@pytest.fixture(scope="session")
def words(world: Path) -> list[str]:
    """All texts that learners meet."""
    rows = [row for split in ("train", "validation", "test") for row in ask.lab_rows(world / "lab", split)]
    return [text for row in rows for text in ask.row_texts(row)]


@pytest.fixture(scope="session")
def one_subject(world: Path) -> Path:
    """Rows about one subject, with their splits and their truth: four to learn from, four to hold out."""
    rows = {split: ask.lab_rows(world / "lab", split) for split in ("train", "test")}
    subject = rows["train"][0]["meta"]["subject"]
    some = [
        row for split in rows.values() for row in [each for each in split if each["meta"]["subject"] == subject][:4]
    ]
    return ask.write_rows(world / "one_subject.jsonl", some)


@pytest.fixture(scope="session")
def tiny_policy(world: Path, one_subject: Path) -> Path:
    """A random Llama of two layers to which every sentence about the subject is one token."""
    from transformers import LlamaConfig, LlamaForCausalLM

    rows = ask.lines_of(one_subject)
    tokenizer = word_tokenizer([row["question"] for row in rows[:2]])
    tokenizer.add_tokens(sorted({text for row in rows for text in ask.sentences_of_answers(row)}))
    torch.manual_seed(0)
    ends = {"pad_token_id": None, "bos_token_id": 1, "eos_token_id": 2}
    size = {"vocab_size": len(tokenizer), "max_position_embeddings": 2048, "num_key_value_heads": 2}
    model = LlamaForCausalLM(LlamaConfig(**TINY, **size, **ends, initializer_range=0.1))
    model.save_pretrained(world / "policy")
    tokenizer.save_pretrained(world / "policy")
    return world / "policy"


@pytest.fixture(scope="session")
def tiny_encoder(world: Path, words: list[str]) -> Path:
    """A random BERT of two layers over the words of the population."""
    from transformers import BertConfig, BertModel

    tokenizer = word_tokenizer(words, chat_template=None)
    tokenizer.pad_token = "<unk>"
    torch.manual_seed(0)
    config = BertConfig(vocab_size=len(tokenizer), max_position_embeddings=128, initializer_range=0.2, **TINY)
    BertModel(config).save_pretrained(world / "encoder")
    tokenizer.save_pretrained(world / "encoder")
    return world / "encoder"


@pytest.fixture(scope="session")
def trained(world: Path, tiny_encoder: Path) -> Callable[..., dict[str, Any]]:
    """Train a model on the population by a method with the tiny encoder, once; `out` is its folder in the world."""
    made: dict[str, dict[str, Any]] = {}

    def make(method: str, out: str, **changes: object) -> dict[str, Any]:
        if out not in made:
            made[out] = ask.train(world, method, LAB, out, {"encoder": tiny_encoder} | changes)
        return made[out]

    return make


@pytest.fixture
def serve() -> Iterator[Callable[..., ScriptedServer]]:
    """Start servers that answer by script, and end them with the test."""
    from contextlib import ExitStack

    with ExitStack() as stack:
        yield lambda script: stack.enter_context(scripted_server(script))


@pytest.fixture
def pairs(tmp_path: Path, rows: Callable[[int], list[dict[str, Any]]]) -> Path:
    """A file of twelve good pairs."""
    return ask.write_rows(tmp_path / "pairs.jsonl", rows(12))
