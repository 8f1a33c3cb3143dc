"""Tiny random reward models in the layouts that real ones were published in.

A test takes the fixture `tiny`, builds a model under the published weight names, and works out the expected scores
with plain torch from transformers' own hidden states.
"""

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from prbench.reward_models import ModelSettings, RewardModel, load_reward_model
from prbench.reward_models.classifier import choose_adapter
from prbench.schema import Problem, RewardInput, UserContext

LLAMA_3 = (
    "{{ bos_token }}{% for message in messages %}<|start_header_id|>{{ message.role }}<|end_header_id|>\n\n"
    "{{ message.content | trim }}<|eot_id|>{% endfor %}"
    "{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}"
)
GEMMA = (
    "{{ bos_token }}{% for message in messages %}<start_of_turn>"
    "{{ 'model' if message.role == 'assistant' else message.role }}\n{{ message.content | trim }}<end_of_turn>\n"
    "{% endfor %}{% if add_generation_prompt %}<start_of_turn>model\n{% endif %}"
)
CHATML = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
TEMPLATES = {"llama": LLAMA_3, "gemma": GEMMA, "chatml": CHATML, "internlm": "{{ bos_token }}" + CHATML}
MARKS = {
    "llama": ["<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"],
    "gemma": ["<start_of_turn>", "<end_of_turn>"],
    "chatml": ["<|im_start|>", "<|im_end|>"],
    "internlm": ["<|im_start|>", "<|im_end|>"],
}


def build_tokenizer(family: str) -> Any:
    """Single bytes, and the marks of one family's chat template."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    special = ["<s>", "</s>", *MARKS[family]]
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={token: i for i, token in enumerate([*special, *alphabet])}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    bos = {}
    if "bos_token" in TEMPLATES[family]:
        tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
        bos = {"bos_token": "<s>"}
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token="</s>", extra_special_tokens=MARKS[family], **bos
    )
    fast.chat_template = TEMPLATES[family]
    return fast


class Tiny:
    """Makes tiny models, and asks them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def tokenizer(self, family: str) -> Any:
        """Single bytes, and the chat template and marks of `llama`, `gemma`, `chatml` or `internlm`."""
        return build_tokenizer(family)

    def config(self, class_name: str, **changes: Any) -> Any:
        """A decoder's config, small enough for a test."""
        import transformers

        settings = {
            "vocab_size": 270,
            "hidden_size": 32,
            "intermediate_size": 48,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "head_dim": 8,
            "max_position_embeddings": 512,
            "initializer_range": 0.3,  # large, so that scores differ by more than rounding
            "pad_token_id": None,
            "bos_token_id": 0,
            "eos_token_id": 1,
        }
        return getattr(transformers, class_name)(**{**settings, **changes})

    def decoder(self, class_name: str, **changes: Any) -> Any:
        """transformers' own decoder without a head, with random weights."""
        import torch
        from transformers import AutoModel

        torch.manual_seed(0)
        return AutoModel.from_config(self.config(class_name, **changes)).eval()

    def save(self, config: dict[str, Any], weights: dict[str, Any], tokenizer: Any) -> Path:
        """Write a checkpoint with these weight names, as the hub holds it."""
        from safetensors.torch import save_file

        folder = self.folder / f"model-{len(list(self.folder.iterdir()))}"
        folder.mkdir()
        whole = {name: weight.contiguous() for name, weight in weights.items()}
        save_file(whole, folder / "model.safetensors", {"format": "pt"})
        (folder / "config.json").write_text(json.dumps(config))
        tokenizer.save_pretrained(folder)
        assert sum(path.stat().st_size for path in folder.iterdir()) < 1_000_000
        return folder

    def save_decoder(
        self, decoder: Any, head: dict[str, Any], tokenizer: Any, architecture: str, **config: Any
    ) -> Path:
        """Write a decoder under `model.`, and the weights of a head beside it."""
        weights = {f"model.{name}": weight for name, weight in decoder.state_dict().items()}
        saved = {**decoder.config.to_dict(), **config, "architectures": [architecture]}
        return self.save(saved, {**weights, **head}, tokenizer)

    def inputs(self) -> list[RewardInput]:
        """Inputs of very different lengths, with two duplicates."""
        rng = random.Random(0)
        texts = ["".join(rng.choices("abcdef", k=rng.randint(1, 90))) for _ in range(7)]
        made = [
            RewardInput(question=f"Q{i}?", user=UserContext.from_text(text[: i * 3]), response=text)
            for i, text in enumerate(texts)
        ]
        return [*made, made[0], made[3]]

    def token_ids(self, tokenizer: Any, each: RewardInput) -> list[int]:
        """What the chat template makes of an input."""
        turn = (
            f"{each.context}\n\nThe question that this person asks now:\n\n{each.question}"
            if each.context
            else each.question
        )
        messages = [{"role": "user", "content": turn}, {"role": "assistant", "content": each.response}]
        ids: list[int] = tokenizer.apply_chat_template(messages, return_dict=True)["input_ids"]
        return ids

    def hidden(self, decoder: Any, ids: list[int]) -> Any:
        """The hidden states of one input, alone and without padding (tokens, width)."""
        import torch

        with torch.inference_mode():
            return decoder(input_ids=torch.tensor([ids])).last_hidden_state[0]

    def scores(self, spec: str, asked: list[RewardInput], **settings: Any) -> list[float]:
        """The scores of a model named as on the command line."""
        model = load_reward_model(spec, ModelSettings(**settings)).model
        assert isinstance(model, RewardModel)
        found = model.score(asked)
        assert all(score.problem is Problem.NONE for score in found), found
        return [score.value for score in found if score.value is not None]

    def check(self, folder: Path, adapter: str, expected: Callable[[RewardInput], float]) -> None:
        """The config names the adapter, and its scores are the expected ones at any batch size and in any order."""
        asked = self.inputs()
        want = [expected(each) for each in asked]
        assert max(want) - min(want) > 0.01
        spec = f"classifier:{folder}?device=cpu"
        assert choose_adapter(str(folder)) == adapter
        assert self.scores(spec, asked, batch_size=1) == pytest.approx(want, abs=1e-4)
        assert self.scores(spec, asked[::-1], batch_size=4) == pytest.approx(want[::-1], abs=1e-4)


@pytest.fixture
def tiny(one_thread: None, tmp_path: Path) -> Tiny:
    """Makes and asks tiny models."""
    return Tiny(tmp_path)
