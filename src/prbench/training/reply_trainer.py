"""Fine-tuning on replies: batches, the loss of the replies' tokens alone, and transformers' trainer with that loss."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import Trainer

from prbench.backends.hf import hidden_states, logits_of

IGNORED = -100  # label of a token that is no part of the reply
_CLOSE = 1e-5  # of two losses that are the same; a router's own loss is some 5e-4 of the whole


def as_row(prompt: Sequence[int], reply: Sequence[int]) -> dict[str, list[int]]:
    """Return what the trainer takes of one example: the loss is that of the reply alone."""
    return {"input_ids": [*prompt, *reply], "labels": [IGNORED] * len(prompt) + list(reply)}


@dataclass(frozen=True)
class ReplyCollator:
    """Pads rows on the right; padding is not learned."""

    pad_id: int

    def __call__(self, rows: Sequence[dict[str, list[int]]]) -> dict[str, Tensor]:
        """Return one batch."""
        width = max(len(row["input_ids"]) for row in rows)

        def padded(values: Sequence[int], value: int) -> list[int]:
            return [*values, *[value] * (width - len(values))]

        return {
            "input_ids": torch.tensor([padded(row["input_ids"], self.pad_id) for row in rows]),
            "attention_mask": torch.tensor([padded([1] * len(row["input_ids"]), 0) for row in rows]),
            # Nothing predicts a first token.
            "labels": torch.tensor([padded([IGNORED, *row["labels"][1:]], IGNORED) for row in rows]),
        }


def reply_loss(lm: Any, ids: Tensor, labels: Tensor) -> Tensor:
    """Return the cross-entropy of all reply tokens, summed.

    Only their logits are computed: prompts are long and vocabularies large, and nothing is learned from prompts.
    """
    is_reply = labels[:, 1:] != IGNORED  # (rows, tokens - 1): where the next token is one of the reply
    states = hidden_states(lm, ids)[:, :-1][is_reply]  # (reply tokens, hidden)
    return nn.functional.cross_entropy(logits_of(lm, states), labels[:, 1:][is_reply], reduction="sum")


def knows_reply_loss(lm: Any, pad_id: int) -> bool:
    """Tell whether `reply_loss` is what the model itself computes as its loss; that is tried out.

    It is not where a model does more with its logits than is known here, adds a loss of its own, or where tokens see
    what comes after them; nor where an adapter sits on the output embedding, whose weights alone are read here.
    """
    head = lm.get_output_embeddings() if hasattr(lm, "get_decoder") else None
    if head is None or hasattr(head, "lora_A") or lm.config.is_encoder_decoder:
        return False
    words = [(pad_id + 1 + place) % lm.config.get_text_config().vocab_size for place in range(6)]
    rows = [{"input_ids": ids, "labels": [IGNORED, *ids[1:]]} for ids in (words, words[:2])]
    batch = {name: each.to(lm.device) for name, each in ReplyCollator(pad_id)(rows).items()}
    was_training = lm.training
    lm.eval()
    with torch.no_grad():
        own = float(lm(**batch).loss)
        try:
            ours = float(reply_loss(lm, batch["input_ids"], batch["labels"])) / 6  # 5 and 1 tokens are of replies
        except RuntimeError:  # states that the output embedding does not fit, as in Electra
            ours = float("nan")
    lm.train(was_training)
    return abs(ours - own) <= _CLOSE * abs(own)


class ReplyTrainer(Trainer):  # type: ignore[misc]  # transformers' types are partial
    """Trains on replies. With several passes to a step, every reply token of the step weighs the same."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.model_accepts_loss_kwargs = True  # so that the tokens of the whole step are counted for `compute_loss`

    def compute_loss(
        self,
        model: Any,
        inputs: dict[str, Tensor],
        return_outputs: bool = False,
        num_items_in_batch: Tensor | int | None = None,
    ) -> Any:
        """Return the loss per reply token, of the whole step where the number of those is known."""
        ids, labels = inputs["input_ids"], inputs["labels"]
        # The trainer leaves half precision to the forward of the whole model, which is not called.
        with torch.autocast(ids.device.type, dtype=torch.bfloat16, enabled=self.args.bf16):
            total = reply_loss(model, ids, labels)
        count = num_items_in_batch if num_items_in_batch is not None else (labels[:, 1:] != IGNORED).sum()
        loss = total / count
        return (loss, {}) if return_outputs else loss
