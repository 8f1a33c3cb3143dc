"""Numbers for token sequences: packed behind shared prefixes where a model allows it, else in padded batches."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from prbench.backends.shared_prefix.batching import Forward, TokenCount, Tokens, compute_each_once
from prbench.reward_models.settings import ModelSettings

if TYPE_CHECKING:
    from prbench.backends.shared_prefix.packed import ReadPack


class Scorer:
    """Computes one number per sequence, each distinct sequence once.

    `padded` runs a padded batch. `read` takes the numbers off the hidden states of a pack; `backbone` is the decoder
    that gives those, or `None` where the model has none. Whether packing works is tried out on `trial`. Prefixes are
    only kept for later calls where it is known at which token the number is read (`read_at`): the states of a kept
    prefix are gone. Texts beyond `border` tokens change the positions of the others in their call, so they go alone.
    """

    def __init__(
        self,
        settings: ModelSettings,
        *,
        backbone: Any,
        trial: Sequence[Tokens],
        padded: Forward,
        read: "ReadPack[float]",
        read_at: Callable[[Tokens], int] | None = None,
        border: int | None = None,
    ) -> None:
        self._border = border
        self._batch_size = settings.padded_batch
        self._padded = padded
        self._count = TokenCount()
        self._packs: Callable[[Sequence[Tokens]], list[float | MemoryError]] | None = None
        self.note = ""
        if not settings.share_prefixes:
            return
        from prbench.backends.shared_prefix.packed import compute_packed, find_runner, find_store

        runner, reason = find_runner(backbone, trial, padded, read, compiled=settings.compile)
        if runner is None:
            self.note = f"prefixes are not shared: {reason}"
            return
        budget = runner.budget(settings.batch_size or None)
        kept = None
        if settings.keep_prefixes:
            reason = "where its score is read is not known"
            if read_at is not None:
                kept, reason = find_store(runner, settings.keep_prefixes, trial, read, read_at)
            self.note = "" if kept is not None else f"prompts are not kept between calls: {reason}"
        self._packs = lambda sequences: compute_packed(sequences, budget, runner, read, self._count, kept)

    def values(self, sequences: Sequence[Tokens]) -> list[float | MemoryError]:
        """Return the numbers, in order."""
        if self._border is None:
            return self._compute(sequences)
        short = [each for each in sequences if len(each.ids) <= self._border]
        found = dict(zip(short, self._compute(short), strict=True)) if short else {}
        for each in sequences:
            if each not in found:
                (found[each],) = self._compute([each])
        return [found[each] for each in sequences]

    def _compute(self, sequences: Sequence[Tokens]) -> list[float | MemoryError]:
        if self._packs is not None:
            return self._packs(sequences)
        return compute_each_once(sequences, self._batch_size, self._padded, self._count)

    def tokens(self) -> Mapping[str, int]:
        """Return how many tokens were asked for and how many were computed."""
        return self._count.as_mapping()
