"""Small models with random weights, of the kinds that engines serve: saved like real ones, and quick on two cores.

As a script: `python -m tests.servers.models FOLDER` saves all of them, each in a folder of its name.
"""

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tests.golden.people import population
from tests.golden.stand_in import pick
from tests.golden.tiny_models import texts
from tests.support.tiny_llama import TRIED_OUT, word_tokenizer

from prbench.prompts import load_template

WINDOW = 256  # of classifiers, in tokens, which are words here
CHAT_WINDOW = 448  # as served; the instructions of a judge take 170 of them
LEARNING_STEPS = 240
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
    """Save a model that was taught, in a few seconds, to answer as a judge does: `Result: A`, or the letter alone."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    turns = (turn["content"] for chat, _ in _lessons() for turn in chat)
    tokenizer = word_tokenizer([*texts(), "A B Result:", *turns])
    lessons = [
        (tokenizer.apply_chat_template(list(chat), add_generation_prompt=True, return_dict=True)["input_ids"], answer)
        for chat, answer in _lessons()
    ]
    torch.manual_seed(1)
    torch.set_num_threads(1)
    config = LlamaConfig(**{**_llama(len(tokenizer)), "max_position_embeddings": 512})
    model = LlamaForCausalLM(config)
    learning = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for step in range(LEARNING_STEPS):
        prompt, answer = lessons[step * 7 % len(lessons)]
        said = [*tokenizer(answer, add_special_tokens=False)["input_ids"], tokenizer.eos_token_id]
        ids = torch.tensor([[*prompt, *said]])
        labels = torch.tensor([[*[-100] * len(prompt), *said]])
        model(input_ids=ids, labels=labels).loss.backward()
        learning.step()
        learning.zero_grad()
    _without_favorite(model, tokenizer, lessons)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def _without_favorite(model: Any, tokenizer: Any, lessons: list[tuple[list[int], str]]) -> None:
    """Take from both letters what makes one of them likelier on average, so that prompts decide which one it is."""
    import torch

    first, second = tokenizer.convert_tokens_to_ids(["A", "B"])
    means = []
    for begun in ([], tokenizer("Result:", add_special_tokens=False)["input_ids"]):
        inputs = [
            torch.tensor([[*prompt, *begun]])
            for prompt, answer in lessons
            if answer.startswith("Result") == bool(begun)
        ]
        with torch.no_grad():
            states = [model.model(input_ids=ids).last_hidden_state[0, -1] for ids in inputs]
        means.append(torch.stack(states).mean(0))
    mean = torch.stack(means)  # (with and without `Result:`, hidden)
    weights = model.lm_head.weight.data
    margin = mean @ (weights[first] - weights[second])
    weights[first] -= torch.linalg.lstsq(mean, margin.unsqueeze(1)).solution.squeeze(1)


def _lessons() -> list[tuple[tuple[dict[str, str], ...], str]]:
    """Return prompts of judges with answers that only show the form: which letter it is means nothing."""
    lessons = []
    for number, row in enumerate(population(12)):
        letter = "AB"[pick(row["id"]) % 2]
        for name, answer in (("judge_pair", f"Result: {letter}"), ("judge_pair_direct", letter)):
            slots = {"question": row["question"], "first": row["chosen"], "second": row["rejected"]}
            posts = "\n\n".join(post["text"] for post in row["profile"][: number % 4])
            turns = load_template(name).fill(context=posts, **slots)
            lessons.append((tuple({"role": role, "content": text} for role, text in turns), answer))
    return lessons


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
