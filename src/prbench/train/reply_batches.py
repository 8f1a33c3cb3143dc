"""Batches of lessons: what a language model reads, and which of its tokens it is taught."""

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

IGNORED = -100  # label of a token that is no part of the reply
_CLOSE = 1e-3  # of two losses that are the same


def computes_last_logits(model: Any, pad_id: int) -> bool:
    """Tell whether a model gives the logits of the last tokens alone, and reads the same after padding as without.

    It is tried out: some models take all that is needed, and read the padding.
    """
    import torch

    inner = model.get_base_model() if hasattr(model, "get_base_model") else model
    if not {"logits_to_keep", "position_ids"} <= set(inspect.signature(inner.forward).parameters):
        return False
    words = [(pad_id + 1 + place) % inner.config.get_text_config().vocab_size for place in range(6)]
    rows = [{"input_ids": ids, "labels": [IGNORED, *ids[1:]]} for ids in (words, words[:2])]
    was_training = model.training
    model.eval()
    losses = []
    with torch.no_grad():
        for collator in (Collator(pad_id), Collator(pad_id, replies_only=True)):
            batch = {
                name: each.to(inner.device) if isinstance(each, torch.Tensor) else each
                for name, each in collator(rows).items()
            }
            losses.append(float(model(**batch).loss))
    model.train(was_training)
    return abs(losses[1] - losses[0]) <= _CLOSE * abs(losses[0])


@dataclass(frozen=True)
class Collator:
    """Pads lessons; padding is neither read nor learned.

    With `replies_only` it pads on the left, so that all replies end together, and asks for no logits before the first
    token of the longest reply. Prompts are long and vocabularies large: the logits of prompts would take most of the
    memory, and nothing is learned from them.
    """

    pad_id: int
    replies_only: bool = False

    def __call__(self, rows: Sequence[dict[str, list[int]]]) -> dict[str, Any]:
        """Return one batch."""
        import torch

        width = max(len(row["input_ids"]) for row in rows)

        def padded(values: Sequence[int], value: int) -> list[int]:
            padding = [value] * (width - len(values))
            return [*padding, *values] if self.replies_only else [*values, *padding]

        batch: dict[str, Any] = {
            "input_ids": torch.tensor([padded(row["input_ids"], self.pad_id) for row in rows]),
            "attention_mask": torch.tensor([padded([1] * len(row["input_ids"]), 0) for row in rows]),
            # Nothing foretells a first token: before it there is nothing, or padding.
            "labels": torch.tensor([padded([IGNORED, *row["labels"][1:]], IGNORED) for row in rows]),
        }
        if self.replies_only:
            replies = [sum(label != IGNORED for label in row["labels"]) for row in rows]
            kept = min(width, 1 + max(replies))  # the token before the reply foretells its first
            batch["labels"] = batch["labels"][:, -kept:]
            batch["position_ids"] = (batch["attention_mask"].cumsum(1) - 1).clamp(min=0)
            batch["logits_to_keep"] = kept
        return batch
