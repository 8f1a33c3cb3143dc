"""Scores with a model in its parts: one forward pass of the backbone per input, then the head."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from prbench.backends.shared_prefix.batching import Tokens, rope_border
from prbench.errors import UsageError
from prbench.reward_models.adapters.parts import Parts
from prbench.reward_models.base import ModelSettings, failed
from prbench.reward_models.chat import CannotEncodeError, Chat
from prbench.reward_models.hf_models import Scorer, run
from prbench.schema import Json, RewardInput, Score

if TYPE_CHECKING:
    from prbench.backends.shared_prefix.prefixes import Pack


class AdaptedReward:
    """A reward model of the hub, or of a folder, whose head is our own."""

    def __init__(self, source: str, settings: ModelSettings, adapter: str, parts: Parts, *, bos: str = "one") -> None:
        self.name = source
        self.parts = parts
        self._chat = Chat(
            parts.loaded.tokenizer, parts.backbone.config, settings, bos=bos, may_pair=False, end_id=parts.end_id
        )
        self.identity: Mapping[str, Json] = {**parts.loaded.identity, "head": adapter, **self._chat.identity}
        self.template_hash = self._chat.template_hash
        self.fits = self._chat.fits
        trial = self._chat.encode(RewardInput(question="one", response="two"))
        try:
            parts.read_at(trial)
        except CannotEncodeError as error:  # a chat template that leaves out what the head reads
            raise UsageError(f"{source}: {error}.") from error
        self._scorer = Scorer(
            settings,
            backbone=parts.backbone,
            trial=self._chat.trial(),
            padded=self._forward,
            read=self._read_pack,
            border=rope_border(parts.backbone.config.get_text_config()),
        )
        self.note = self._scorer.note
        self.tokens = self._scorer.tokens

    def score(self, inputs: Sequence[RewardInput]) -> list[Score]:
        """Return one score per input, in the same order."""
        return self._scorer.scores([self._encode(each) for each in inputs])

    def _encode(self, each: RewardInput) -> Tokens | Score:
        tokens = self._chat.try_encode(each)
        if isinstance(tokens, Score):
            return tokens
        try:
            self.parts.read_at(tokens)
        except CannotEncodeError as error:
            return failed(str(error))
        return tokens

    def _forward(self, batch: Sequence[Tokens]) -> list[float]:
        import torch

        # Decoders never look to the right, so any id will do for padding there.
        hidden = run(self.parts.loaded, batch, 0, use_cache=False).last_hidden_state  # (batch, tokens, width)
        places = torch.tensor([self.parts.read_at(each) for each in batch], device=hidden.device)  # (batch, places)
        rows = torch.arange(len(batch), device=hidden.device)[:, None]
        with torch.inference_mode():
            values: list[float] = self.parts.head(hidden[rows, places]).tolist()
        return values

    def _read_pack(self, hidden: Any, pack: "Pack") -> list[float]:
        import torch

        places = [
            [places.of(token) for token in self.parts.read_at(each)]
            for places, each in zip(pack.places(), pack.members, strict=True)
        ]
        read = torch.tensor(places, device=hidden.device)
        values: list[float] = self.parts.head(hidden[read]).tolist()  # (members, places, width)
        return values
