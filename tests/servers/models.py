"""Small models with random weights, of the kinds that engines serve: saved like real ones, and quick on two cores.

As a script: `python -m tests.servers.models FOLDER` saves all of them, each in a folder of its name.
"""

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tests.golden.tiny_models import texts
from tests.support.tiny_llama import TRIED_OUT, word_tokenizer

WINDOW = 256  # of the models that have one
SIZES: Mapping[str, Any] = {  # vLLM's kernels for CPUs want heads of at least 32
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
}


def save_decoder(folder: Path) -> Path:
    """Save a classifier over a Llama: one logit, read at the last token of the chat."""
    import torch
    from transformers import LlamaConfig, LlamaForSequenceClassification

    tokenizer = word_tokenizer(texts())
    torch.manual_seed(0)
    LlamaForSequenceClassification(LlamaConfig(**_llama(len(tokenizer)), num_labels=1)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def save_chat(folder: Path) -> Path:
    """Save a model that writes, and for which A and B are as likely as any other of its few words."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    tokenizer = word_tokenizer([*texts(), "A B Result: result: Which response would this person prefer?"])
    torch.manual_seed(1)
    LlamaForCausalLM(LlamaConfig(**{**_llama(len(tokenizer)), "max_position_embeddings": 1024})).save_pretrained(
        folder
    )
    tokenizer.save_pretrained(folder)
    return folder


def save_pair_encoder(folder: Path) -> Path:
    """Save a classifier over a BERT: one logit, read from two texts with a mark between them."""
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import BertConfig, BertForSequenceClassification, PreTrainedTokenizerFast

    special = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")
    words = sorted({word for text in texts() for word in text.split()} | set(TRIED_OUT))
    known = {word: place for place, word in enumerate([*special, *words])}
    tokenizer = Tokenizer(models.WordLevel(known, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        model_input_names=["input_ids", "token_type_ids", "attention_mask"],
        **{f"{name.strip('[]').lower()}_token": name for name in special},
    )
    torch.manual_seed(2)
    config = BertConfig(
        vocab_size=len(fast), max_position_embeddings=WINDOW, initializer_range=0.1, num_labels=1, **SIZES
    )
    BertForSequenceClassification(config).save_pretrained(folder)
    fast.save_pretrained(folder)
    return folder


def _llama(words: int) -> dict[str, Any]:
    return {
        **SIZES,
        "vocab_size": words,
        "num_key_value_heads": 1,
        "max_position_embeddings": WINDOW,
        "initializer_range": 0.1,
        "pad_token_id": None,
        "bos_token_id": 1,
        "eos_token_id": 2,
    }


MODELS: Mapping[str, Callable[[Path], Path]] = {
    "decoder": save_decoder,
    "encoder": save_pair_encoder,
    "chat": save_chat,
}

if __name__ == "__main__":
    for name, save in MODELS.items():
        save(Path(sys.argv[1]) / name)
