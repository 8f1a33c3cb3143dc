"""From scores to rewards: what an answer earns that is empty, cut off, or could not be scored.

- A failed score is no reward. Its answer is masked out of the batch, and counted.
- An empty answer is never sent to the reward model; it earns the lowest score that was read in its batch.
- An answer that was cut off is scored as it stands and loses a penalty (`penalise`), or does not (`score`), or is
  masked out and counted apart (`mask`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from prbench.errors import PrbenchError
from prbench.schema import Problem, Score

Truncated = Literal["penalise", "score", "mask"]
EMPTY = "the answer is empty"


class RewardsFailedError(PrbenchError):
    """Too many rewards failed for the step to mean anything."""

    exit_code = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningMoments:
    """Mean and variance of all that was seen so far; batches are merged as Chan, Golub and LeVeque (1983) do."""

    count: int = 0
    mean: float = 0.0
    squares: float = 0.0  # sum of squared distances from the mean

    @property
    def deviation(self) -> float:
        """The standard deviation; 1 where nothing varied yet, so that one may always divide by it."""
        spread = (self.squares / self.count) ** 0.5 if self.count else 0.0
        return spread if spread > 1e-8 else 1.0

    def with_values(self, values: Sequence[float]) -> "RunningMoments":
        """Return the moments with a further batch in them."""
        if not values:
            return self
        mean = sum(values) / len(values)
        squares = sum((value - mean) ** 2 for value in values)
        count = self.count + len(values)
        distance = mean - self.mean
        return RunningMoments(
            count=count,
            mean=self.mean + distance * len(values) / count,
            squares=self.squares + squares + distance**2 * self.count * len(values) / count,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapedRewards:
    """What the answers of one step earned; `None` masks an answer out."""

    rewards: tuple[float | None, ...]
    asked: int  # empty answers are not sent
    failed: int
    empty: int
    truncated: int
    moments: RunningMoments


def earn(
    scores: Sequence[Score | None],
    was_cut_off: Sequence[bool],
    moments: RunningMoments,
    *,
    truncated: str,
    penalty: float,
    whiten: bool,
) -> ShapedRewards:
    """Return the rewards of a step; `None` among the scores is an empty answer, which was not asked about."""
    read = [score.value for score in scores if score is not None and score.value is not None]
    updated = moments.with_values(read)
    centre, spread = (updated.mean, updated.deviation) if whiten else (0.0, 1.0)
    rewards: list[float | None] = []
    for score, cut in zip(scores, was_cut_off, strict=True):
        value = min(read, default=None) if score is None else score.value
        if value is None or (cut and truncated == "mask"):
            rewards.append(None)
            continue
        reward = (value - centre) / spread
        if cut and truncated == "penalise":
            reward -= penalty * (1.0 if whiten else updated.deviation)
        rewards.append(reward)
    return ShapedRewards(
        rewards=tuple(rewards),
        asked=sum(score is not None for score in scores),
        failed=sum(score is not None and score.value is None for score in scores),
        empty=sum(score is None for score in scores),
        truncated=sum(was_cut_off),
        moments=updated,
    )


def check_failure_rate(scores: Sequence[Score | None], step: int, *, most: float) -> None:
    """Stop the run where more than this share of the rewards that were asked for failed."""
    asked = [score for score in scores if score is not None]
    failed = [score for score in asked if score.value is None]
    if not failed or len(failed) <= most * len(asked):
        return
    last = failed[-1]
    reason = last.detail or (last.problem if last.problem is not Problem.NONE else "no score")
    raise RewardsFailedError(
        f"step {step}: {len(failed)} of {len(asked)} rewards failed ({len(failed) / len(asked):.0%}), more than "
        f"--max-failed {most:g} allows; the last: {reason}. Mend the reward model, and run the same command again."
    )
