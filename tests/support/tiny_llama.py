"""A tiny Llama over whole words, saved to disk like a real backbone."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

CHAT = (
    "{{ bos_token }}{% for message in messages %}<|{{ message.role }}|> {{ message.content }} <|end|> {% endfor %}"
    "{% if add_generation_prompt %}<|assistant|> {% endif %}"
)
TRIED_OUT = ("one", "two", "three", "four", "five", "six", "and")  # by `Chat`, which must tell these texts apart
SPECIAL = ("<unk>", "<s>", "</s>", "<|user|>", "<|assistant|>", "<|end|>")


def word_tokenizer(texts: Iterable[str], *, chat_template: str | None = CHAT) -> Any:
    """A tokenizer of whole words without a pad token; `<unk>` is the only token for what it has not seen."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    words = sorted({word for text in texts for word in text.split()} | set(TRIED_OUT))
    tokenizer = Tokenizer(
        models.WordLevel({word: place for place, word in enumerate([*SPECIAL, *words])}, unk_token="<unk>")
    )
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token="<s>",
        eos_token="</s>",
        unk_token="<unk>",
        extra_special_tokens=["<|user|>", "<|assistant|>", "<|end|>"],
    )
    fast.chat_template = chat_template
    return fast


def save_tiny_llama(
    folder: Path, texts: Iterable[str], *, chat_template: str | None = CHAT, seed: int = 0, **changes: Any
) -> Path:
    """Save a language model of two layers for these words, without a pad token, and return its folder."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    tokenizer = word_tokenizer(texts, chat_template=chat_template)
    settings = {
        "vocab_size": len(tokenizer),
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 256,
        "initializer_range": 0.1,
        "pad_token_id": None,
        "bos_token_id": 1,
        "eos_token_id": 2,
    }
    torch.manual_seed(seed)
    LlamaForCausalLM(LlamaConfig(**{**settings, **changes})).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
