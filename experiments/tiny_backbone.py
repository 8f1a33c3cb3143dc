"""A random Llama of two layers, to rehearse what is meant for a GPU."""

from collections.abc import Collection
from pathlib import Path


def tiny_backbone(folder: Path, texts: Collection[str]) -> Path:
    """Save one over the words of some texts, unless it is there."""
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    if (folder / "config.json").exists():
        return folder
    special = ["<unk>", "<s>", "</s>"]
    words = special + sorted({word for text in texts for word in text.split()})
    tokenizer = Tokenizer(models.WordLevel({word: place for place, word in enumerate(words)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    names = dict(zip(("unk_token", "bos_token", "eos_token"), special, strict=True))
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names).save_pretrained(folder)
    shape = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
    shape |= {"vocab_size": len(words), "max_position_embeddings": 2048}
    torch.manual_seed(0)
    config = LlamaConfig(bos_token_id=1, eos_token_id=2, pad_token_id=None, **shape)
    LlamaForCausalLM(config).save_pretrained(folder)
    return folder
