"""Make a small language model whose words are the lab's sentences: a policy that PPO moves in seconds on two cores.

    python experiments/sentence_policy.py --split validation --out models/sentences/empty

A Llama of less than half a million weights with nothing learned. Its tokens are whole sentences of the answers of one
of the lab's splits, best of one that no reward model learned from, and whole lines of the rubrics that tell it of a
user; any other line, such as a question or a piece of evidence, is one unknown token, in training as in testing. So it
can write what the lab's sentence sampler writes, and learn which of it to write for whom. `prbench train --method sft`
teaches it to; docs/how-to/ppo.md has the commands.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from prbench.backends.policy import Prompt, messages_of
from prbench.context import contexts_of, make_context
from prbench.lab import DEFAULT_SIZES, SEED, make_split
from prbench.schema import Example

SHAPE = {
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 128,
    "tie_word_embeddings": True,
}
BOUNDARY = r"(?<=[.!?])\s+(?=[A-Z])|\s*\n\s*"  # between sentences, and between lines
UNKNOWN, END, ROLES = "<|unknown|>", "<|end|>", ("<|system|>", "<|user|>", "<|assistant|>")
TEMPLATE = (
    "{% for message in messages %}{{ '<|' + message['role'] + '|>' + message['content'] }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)
UNSHARED = ("Evidence: ", "Question: ")  # how lines begin that no two splits share


def main() -> None:
    """Write the folder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--split", default="validation")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    rows = list(
        make_split(asked.split, DEFAULT_SIZES["train"], seed=SEED)
    )  # enough of them that no sentence is missing
    write_policy(asked.out, texts_of(rows), seed=asked.seed)


def texts_of(rows: Sequence[Example]) -> list[str]:
    """Return what a policy reads and writes about these rows, without what no two splits share."""
    contexts = [user.text for user in contexts_of(make_context("oracle"), rows)]
    lines = {line.strip() for context in contexts for line in context.splitlines()}
    system = messages_of(Prompt(id="", question="", context=""))[0].content
    answers = [answer for row in rows for answer in (row.chosen, row.rejected)]
    return [system, *sorted(line for line in lines if not line.startswith(UNSHARED)), *answers]


def write_policy(folder: Path, texts: Sequence[str], *, seed: int) -> None:
    """Save a model with random weights, and the tokenizer of these texts."""
    import torch
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    split = pre_tokenizers.Split(Regex(BOUNDARY), behavior="removed")
    parts = dict.fromkeys(part for text in texts for part, _ in split.pre_tokenize_str(text))
    words = [UNKNOWN, END, *ROLES, *parts]
    tokenizer = Tokenizer(models.WordLevel({word: place for place, word in enumerate(words)}, unk_token=UNKNOWN))
    tokenizer.pre_tokenizer = split
    names = {"unk_token": UNKNOWN, "eos_token": END, "pad_token": END, "additional_special_tokens": list(ROLES)}
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, chat_template=TEMPLATE, **names)
    fast.save_pretrained(folder)
    torch.manual_seed(seed)
    ends = {"bos_token_id": None, "eos_token_id": fast.eos_token_id, "pad_token_id": fast.pad_token_id}
    LlamaForCausalLM(LlamaConfig(vocab_size=len(fast), **ends, **SHAPE)).save_pretrained(folder)


if __name__ == "__main__":
    main()
