"""transformers' trainer, with a loss that computes the logits of replies alone."""

from typing import Any

import torch
from torch import Tensor
from transformers import Trainer

from prbench.training.reply_batches import IGNORED, reply_loss


class ReplyTrainer(Trainer):  # type: ignore[misc]  # transformers' types are partial
    """Trains on lessons. With several passes to a step, every taught token of the step weighs the same."""

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
        """Return the loss per taught token, of the whole step where the number of those is known."""
        ids, labels = inputs["input_ids"], inputs["labels"]
        # The trainer leaves half precision to the forward of the whole model, which is not called.
        with torch.autocast(ids.device.type, dtype=torch.bfloat16, enabled=self.args.bf16):
            total = reply_loss(model, ids, labels)
        count = num_items_in_batch if num_items_in_batch is not None else (labels[:, 1:] != IGNORED).sum()
        loss = total / count
        return (loss, {}) if return_outputs else loss
