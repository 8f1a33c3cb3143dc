"""TRL's RewardTrainer, with what is done otherwise here: its batches, the held-out accuracy, and that it is silent."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Sampler
from trl import RewardTrainer

from prbench.backends.shared_prefix.batching import Tokens

ACCURACY = "eval_accuracy"
_POOL = 50  # batches whose rows are sorted by length together
_CLOSE = 1e-4  # of two numbers that are the same


@dataclass(frozen=True, kw_only=True)
class TokenPair:
    """One pair as the model reads it."""

    chosen: Tokens
    rejected: Tokens
    margin: float = 0.0

    @property
    def tokens(self) -> int:
        """Tokens of both."""
        return len(self.chosen.ids) + len(self.rejected.ids)


def as_columns(pairs: Sequence[TokenPair]) -> dict[str, list[Any]]:
    """Return pairs in the columns that RewardTrainer takes for tokenized rows; types and margins where there are any.

    TRL hands margins on to the model's forward, too, and not every model takes unknown arguments.
    """
    columns: dict[str, list[Any]] = {
        "chosen_ids": [list(pair.chosen.ids) for pair in pairs],
        "rejected_ids": [list(pair.rejected.ids) for pair in pairs],
    }
    if pairs[0].chosen.types:
        columns["chosen_types"] = [list(pair.chosen.types) for pair in pairs]
        columns["rejected_types"] = [list(pair.rejected.types) for pair in pairs]
    if any(pair.margin for pair in pairs):
        columns["margin"] = [pair.margin for pair in pairs]
    return columns


@dataclass(frozen=True)
class PairCollator:
    """Pads on the right, the chosen ones first, as RewardTrainer's loss expects it; with segment ids for encoders."""

    pad_id: int
    masked: bool = True  # where the mask hides nothing, attention has faster ways

    def __call__(self, rows: Sequence[dict[str, Any]]) -> dict[str, Tensor]:
        """Return one batch."""
        ids = [row["chosen_ids"] for row in rows] + [row["rejected_ids"] for row in rows]
        batch = {
            "input_ids": _padded(ids, self.pad_id),  # (2 * pairs, tokens)
            "attention_mask": _padded([[1] * len(each) for each in ids], 0 if self.masked else 1),
        }
        if "chosen_types" in rows[0]:
            types = [row["chosen_types"] for row in rows] + [row["rejected_types"] for row in rows]
            batch["token_type_ids"] = _padded(types, 0)
        if "margin" in rows[0]:
            batch["margin"] = torch.tensor([row["margin"] for row in rows], dtype=torch.float)
        return batch


def needs_mask(model: Any, pad_id: int) -> bool:
    """Tell whether padding on the right must be hidden; it is tried out.

    It must where tokens see what follows them, as in encoders, and where the mask says where the score is read.
    """
    inner = model.get_base_model() if hasattr(model, "get_base_model") else model
    if inner.config.is_encoder_decoder:
        return True
    size = inner.config.get_text_config().vocab_size
    words = [word % size for word in range(pad_id + 1, pad_id + 7)]
    ends = torch.tensor([words, [*words[:3], *words[:3]]], device=inner.device)
    short = [{"chosen_ids": words, "rejected_ids": words[:3]}]
    was_training = model.training
    model.eval()
    with torch.no_grad():
        begins = getattr(inner, inner.base_model_prefix)(input_ids=ends).last_hidden_state[:, :3]
        batches = [PairCollator(pad_id, masked=masked)(short) for masked in (True, False)]
        scores = [model(**{name: each.to(inner.device) for name, each in batch.items()}).logits for batch in batches]
    model.train(was_training)
    same = [torch.allclose(one, other, rtol=_CLOSE, atol=_CLOSE) for one, other in (begins, scores)]
    return not all(same)


class ByLength(Sampler[int]):
    """Rows in an order that depends on seed and epoch alone, so that neighbors are about equally long.

    Rows are shuffled, sorted by length within pools of some batches, and the batches shuffled again.
    """

    def __init__(self, lengths: Sequence[int], batch_size: int, seed: int) -> None:
        self._lengths, self._batch_size, self._seed = lengths, batch_size, seed
        self._epoch = 0

    def __len__(self) -> int:
        return len(self._lengths)

    def set_epoch(self, epoch: int) -> None:
        """Choose the order of that epoch."""
        self._epoch = epoch

    def __iter__(self) -> Iterator[int]:
        generator = torch.Generator().manual_seed(1_000_003 * self._seed + self._epoch)
        order = torch.randperm(len(self), generator=generator).tolist()
        pool = _POOL * self._batch_size
        batches = []
        for start in range(0, len(order), pool):
            some = sorted(order[start : start + pool], key=lambda row: -self._lengths[row])
            batches += [some[at : at + self._batch_size] for at in range(0, len(some), self._batch_size)]
        # Only the very last batch may be short: it stays last, or the loader would cut all others elsewhere.
        whole, rest = (batches, []) if len(batches[-1]) == self._batch_size else (batches[:-1], batches[-1:])
        shuffled = [whole[at] for at in torch.randperm(len(whole), generator=generator).tolist()]
        return iter([row for batch in shuffled + rest for row in batch])


class PairTrainer(RewardTrainer):  # type: ignore[misc]  # TRL ships no types
    """RewardTrainer over tokenized pairs, evaluated by its accuracy on `held_out`."""

    def __init__(self, *, held_out: Sequence[TokenPair], lengths: Sequence[int], **options: Any) -> None:
        self._held_out = held_out
        self._row_lengths = lengths
        super().__init__(**options)

    def evaluate(self, *args: Any, **kwargs: Any) -> dict[str, float]:
        """Return the share of held-out pairs won by the chosen response; a tie gives half a point."""
        margins = self.margins(self._held_out)
        metrics = {ACCURACY: ((margins > 0).float() + 0.5 * (margins == 0).float()).mean().item()}
        self.state.log_history.append({**metrics, "step": self.state.global_step, "epoch": self.state.epoch})
        self.callback_handler.on_evaluate(self.args, self.state, self.control, metrics)  # it changes `control` itself
        return metrics

    def margins(self, pairs: Sequence[TokenPair]) -> Tensor:
        """Return score(chosen) - score(rejected) of each pair, in order."""
        longest_first = sorted(range(len(pairs)), key=lambda at: -pairs[at].tokens)
        found = torch.zeros(len(pairs))
        columns = as_columns(pairs)
        was_training = self.model.training
        self.model.eval()
        with torch.inference_mode(), self.compute_loss_context_manager():
            for start in range(0, len(pairs), self.args.eval_batch_size):
                places = longest_first[start : start + self.args.eval_batch_size]
                batch = self.data_collator([{name: values[at] for name, values in columns.items()} for at in places])
                batch = {name: value.to(self.args.device) for name, value in batch.items() if name != "margin"}
                chosen, rejected = self.model(**batch, use_cache=False).logits.float().squeeze(-1).chunk(2)
                found[places] = (chosen - rejected).cpu()
        self.model.train(was_training)
        return found

    def _get_train_sampler(self, *args: Any, **kwargs: Any) -> ByLength:
        return ByLength(self._row_lengths, self.args.train_batch_size, self.args.seed)

    def create_model_card(self, *args: Any, **kwargs: Any) -> None:
        """Write none: `prbench.training.folder` has the card."""

    def _send_telemetry(self) -> None:
        """Send nothing: what is trained here stays here."""


def _padded(rows: Sequence[Sequence[int]], value: int) -> Tensor:
    longest = max(map(len, rows))
    return torch.tensor([[*row, *[value] * (longest - len(row))] for row in rows])
