"""Ends the run when too many answers have no score.

verl goes on without the answers whose reward failed, and does not say how many they were. This buffer, which verl
loads by `trainer.v1.sampler.custom_sampler`, counts them over all workers, where batches are put together: it logs
their number with every step, and raises, which ends the run, when their share of one batch passes the limit.
"""

from typing import Any

from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer  # type: ignore[import-not-found,unused-ignore]


class StoppingReplayBuffer(ReplayBuffer):  # type: ignore[misc,unused-ignore]
    """verl's own buffer for on-policy training, with a limit on failures."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.trainer_mode != "sync":
            raise ValueError(f"This buffer is for trainer.v1.trainer_mode=sync, not {self.trainer_mode}.")
        self._max_failed = float(self.sampler_kwargs["max_failed"])
        self._answers = {"train": int(self.sampler_kwargs["answers_per_prompt"]), "val": 1}
        self._missing = 0  # answers of the latest batch

    def sample(self, global_steps: int, partition_id: str, batch_size: int) -> tuple[Any, dict[str, Any]]:
        """Return the next batch, and say how many answers it lacks."""
        batch, metrics = super().sample(global_steps, partition_id, batch_size)
        share = self._missing / (batch_size * self._answers[partition_id])
        prefix = self._metrics_prefix(partition_id)
        return batch, {
            **metrics,
            f"{prefix}/no_score/answers": self._missing,
            f"{prefix}/no_score/share": share,
        }

    def _materialize_batch(
        self, partition_id: str, selected_prompt_uids: list[str], partition_snapshot: dict[str, dict[str, Any]]
    ) -> Any:
        selected = set(selected_prompt_uids)
        # A key is made of the prompt's id, the number of the answer, and that of a part of it.
        there = {tuple(key.split("_")[:2]) for key in partition_snapshot if key.split("_")[0] in selected}
        asked = len(selected) * self._answers[partition_id]
        self._missing = asked - len(there)
        if self._missing > self._max_failed * asked:
            raise RuntimeError(
                f"{self._missing} of {asked} answers have no score, and at most {self._max_failed:.0%} may. "
                "Look for `No score` in the log, mend the reward server, and start again."
            )
        return super()._materialize_batch(partition_id, selected_prompt_uids, partition_snapshot)
