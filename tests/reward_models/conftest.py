"""Tiny models with random weights, saved to disk like real ones. Each is made once per test session."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

CHAT_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}<|{{ message.role }}|>\n{{ message.content }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>\n{% endif %}"
)


def build_tokenizer(
    *, chat_template: str | None = CHAT_TEMPLATE, adds_bos: bool = True, pad: str | None = None
) -> Any:
    """A tokenizer of single bytes, so that any text has tokens and token counts can be worked out by hand."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    special = ["<s>", "</s>", "<|user|>", "<|assistant|>", "<|end|>", "<pad>"]
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: index for index, token in enumerate([*special, *alphabet])}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    if adds_bos:
        tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token="<s>",
        eos_token="</s>",
        pad_token=pad,
        extra_special_tokens=["<|user|>", "<|assistant|>", "<|end|>"],
    )
    fast.chat_template = chat_template
    return fast


def build_pair_tokenizer() -> Any:
    """A tokenizer of single bytes with [CLS] and [SEP], as encoders have them."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    special = ["[PAD]", "[CLS]", "[SEP]"]
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: index for index, token in enumerate([*special, *alphabet])}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 1), ("[SEP]", 2)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        cls_token="[CLS]",
        sep_token="[SEP]",
        pad_token="[PAD]",
        model_input_names=["input_ids", "token_type_ids", "attention_mask"],
    )


def llama_config(**changes: Any) -> Any:
    from transformers import LlamaConfig

    settings = {
        "vocab_size": 262,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 512,
        "initializer_range": 0.3,  # large, so that scores differ by more than rounding
        "pad_token_id": None,
        "bos_token_id": 0,
        "eos_token_id": 1,
    }
    return LlamaConfig(**{**settings, **changes})


@pytest.fixture(scope="session")
def make_tokenizer() -> Callable[..., Any]:
    """Return `make_tokenizer(chat_template=..., adds_bos=True, pad=None)`: single bytes, and chat marks."""
    return build_tokenizer


@pytest.fixture(scope="session")
def make_pair_tokenizer() -> Callable[..., Any]:
    """Return a function that makes a tokenizer of single bytes with [CLS] and [SEP]."""
    return build_pair_tokenizer


@pytest.fixture(scope="session")
def one_thread() -> Iterator[None]:
    """Tiny models gain nothing from threads, and threads that wait for each other are slow on a busy machine."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def save_llama(one_thread: None, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Return a function that saves a tiny Llama: `save_llama(head, tokenizer, seed=0, **config)`."""
    import torch
    import transformers

    def save(head: str, tokenizer: Any, *, seed: int = 0, **config: Any) -> Path:
        folder = tmp_path_factory.mktemp("llama")
        torch.manual_seed(seed)
        getattr(transformers, f"LlamaFor{head}")(llama_config(**config)).save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        return folder

    return save


@pytest.fixture(scope="session")
def llama_classifier(save_llama: Callable[..., Path]) -> Path:
    """A decoder with one logit, a chat template and no pad token."""
    return save_llama("SequenceClassification", build_tokenizer(), num_labels=1)


@pytest.fixture(scope="session")
def language_model(save_llama: Callable[..., Path]) -> Path:
    """A causal language model with a chat template."""
    return save_llama("CausalLM", build_tokenizer(), seed=1)


@pytest.fixture(scope="session")
def bert_classifier(one_thread: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An encoder with one logit, which reads (turn, response) as a text pair."""
    import torch
    from transformers import BertConfig, BertForSequenceClassification

    folder = tmp_path_factory.mktemp("bert")
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=259,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=512,
        initializer_range=0.3,
        pad_token_id=0,
        num_labels=1,
    )
    BertForSequenceClassification(config).save_pretrained(folder)
    build_pair_tokenizer().save_pretrained(folder)
    return folder
