"""The trainers of others, with what is done otherwise here: TRL's on pairs, and transformers' on replies.

On pairs: rows sorted by length, the accuracy on held-out users, silence. On replies: the loss of the replies' tokens
alone. They are classes over those of heavy packages, so `bt` and `lm_trainer` import this module only to train.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import Sampler
from transformers import Trainer
from trl import RewardTrainer

from prbench.backends.hf import hidden_states, logits_of
from prbench.backends.shared_prefix.batching import Tokens

ACCURACY = "eval_accuracy"
IGNORED = -100  # label of a token that is no part of the reply
_POOL = 50  # batches whose rows are sorted by length together
_CLOSE_SCORES = 1e-4  # of two numbers that are the same
_CLOSE_LOSSES = 1e-5  # likewise; a router's own loss is some 5e-4 of the whole


def _padded(rows: Sequence[Sequence[int]], value: int) -> Tensor:
    """Return the rows as one tensor, filled up on the right."""
    longest = max(map(len, rows))
    return torch.tensor([[*row, *[value] * (longest - len(row))] for row in rows])


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
    same = [torch.allclose(one, other, rtol=_CLOSE_SCORES, atol=_CLOSE_SCORES) for one, other in (begins, scores)]
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


def as_row(prompt: Sequence[int], reply: Sequence[int]) -> dict[str, list[int]]:
    """Return what the trainer takes of one example: the loss is that of the reply alone."""
    return {"input_ids": [*prompt, *reply], "labels": [IGNORED] * len(prompt) + list(reply)}


@dataclass(frozen=True)
class ReplyCollator:
    """Pads rows on the right; padding is not learned."""

    pad_id: int

    def __call__(self, rows: Sequence[dict[str, list[int]]]) -> dict[str, Tensor]:
        """Return one batch."""
        ids = [row["input_ids"] for row in rows]
        # Nothing predicts a first token.
        labels = [[IGNORED, *row["labels"][1:]] for row in rows]
        return {
            "input_ids": _padded(ids, self.pad_id),  # (rows, tokens)
            "attention_mask": _padded([[1] * len(each) for each in ids], 0),
            "labels": _padded(labels, IGNORED),
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
    return abs(ours - own) <= _CLOSE_LOSSES * abs(own)


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
