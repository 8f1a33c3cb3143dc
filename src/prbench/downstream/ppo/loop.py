"""The loop: measure the policy on fresh answers, let it learn from them, go on; exactly, wherever it was interrupted.

Nothing is drawn from a state that is carried along: prompts, samples and the order of rows hang on the seed and the
step. So weights, optimiser and the reward's moments are all that a checkpoint needs.
"""

import math
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from prbench.backends.generation import Sampling
from prbench.downstream.ppo.folder import POLICY, PpoFolder, labels_shown, place_of_policy, read_steps
from prbench.downstream.ppo.model import LARGEST_GAP, Policy, SamplingCopy, chosen_dtype, make_batch
from prbench.downstream.ppo.rewards import Reward
from prbench.downstream.ppo.rollout import Answer, PromptTokenizer, Task, answer_tasks, sample_seed, tasks_of_step
from prbench.downstream.ppo.rules import RewardsFailedError, RunningMoments, ShapedRewards, check_failure_rate, earn
from prbench.downstream.ppo.settings import PpoSettings
from prbench.downstream.ppo.update import Experience, Measured, experience_of, learn, make_optimiser, measure
from prbench.errors import RunError
from prbench.judging import LabJudge
from prbench.schema import Json

Watch = Callable[[dict[str, Json]], None]  # hears every row
DIGITS = 6
BUDGET, DONE = "kl_budget", "steps"  # why a run ended
TIMING = ("seconds", "tokens_per_second", "rollout_tokens_per_second")  # what differs from run to run


def unwatched(row: dict[str, Json]) -> None:
    """Show nothing."""


@dataclass(kw_only=True)
class State:
    """All that the next step depends on."""

    policy: Policy
    optimiser: torch.optim.Optimizer
    step: int = 0  # updates behind the policy
    moments: RunningMoments = field(default_factory=RunningMoments)
    within: dict[str, Tensor] | None = None  # weights that were measured within the KL budget
    within_step: int = 0

    def snapshot(self) -> dict[str, Any]:
        """Return it as a checkpoint."""
        return {
            "weights": {name: weight.detach() for name, weight in self.policy.trained().items()},
            "optimiser": self.optimiser.state_dict(),
            "step": self.step,
            "moments": asdict(self.moments),
            "within": self.within,
            "within_step": self.within_step,
        }

    def restore(self, kept: dict[str, Any]) -> None:
        """Take a checkpoint over."""
        self.policy.restore(kept["weights"])
        self.optimiser.load_state_dict(kept["optimiser"])
        self.step, self.moments = kept["step"], RunningMoments(**kept["moments"])
        self.within, self.within_step = kept["within"], kept["within_step"]


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What does not change during a run."""

    settings: PpoSettings
    tasks: Sequence[Task]
    tokenizer: PromptTokenizer
    reward: Reward
    save: Callable[[Any, Path, torch.dtype], None]  # writes a language model into a folder that `--policy` takes
    judge: LabJudge | None = None  # knows what answers are worth, where that is known


def run_ppo(lm: Any, setting: Setting, folder: PpoFolder, watch: Watch = unwatched) -> dict[str, Json]:
    """Train the policy in `lm`, from the last checkpoint if there is one, and return the summary."""
    with _deterministic():
        policy = Policy(lm, setting.settings)
        state = State(policy=policy, optimiser=make_optimiser(policy, setting.settings))
        kept = folder.checkpoint.load()
        if kept is not None:
            state.restore(kept)
        ended = _run(state, setting, folder, watch)
        summary = _summary(state, setting, folder, ended)
        setting.save(state.policy.merged(), folder.path / POLICY, torch.float32)
        folder.finish(summary)
    return summary


def _run(state: State, setting: Setting, folder: PpoFolder, watch: Watch) -> str:
    """Go from step to step, and return why it ended. The last policy is measured as well."""
    settings = setting.settings
    turn = _PpoStep(state, setting)
    while True:
        started = time.monotonic()
        try:
            seen = turn.measure()
        except RewardsFailedError:
            folder.checkpoint.save(state.snapshot())
            raise
        is_beyond = settings.kl_budget is not None and seen.kl > settings.kl_budget
        learned = {} if is_beyond or state.step >= settings.steps else turn.learn(seen)
        row = _row(state, settings, seen, learned, beyond=is_beyond, seconds=time.monotonic() - started)
        folder.append(row)
        watch(row)
        if is_beyond:
            _take_back(state, folder)
            _add_missing_gold(state, turn, folder)
            return BUDGET
        if not learned:
            return DONE
        state.step += 1
        if state.step % settings.checkpoint_every == 0 or state.step == settings.steps:
            setting.save(state.policy.merged(), place_of_policy(folder.path, state.step), turn.dtype)
            folder.checkpoint.save(state.snapshot())


@dataclass(frozen=True, kw_only=True)
class RolloutBatch:
    """The answers of one step, measured."""

    answers: Sequence[Answer]
    earned: ShapedRewards
    measured: Measured
    facts: dict[str, float | None]
    sampling_seconds: float

    @property
    def kl(self) -> float:
        """Nats per answer."""
        return self.facts["kl"] or 0.0


class _PpoStep:
    """One step's two halves: measuring, and learning from what was measured."""

    def __init__(self, state: State, setting: Setting) -> None:
        self._state, self._setting = state, setting
        settings, tokenizer = setting.settings, setting.tokenizer
        self.dtype = chosen_dtype(settings.dtype, state.policy.device)
        self._sampling = SamplingCopy(state.policy, self.dtype, eos_ids=tokenizer.ends, pad_id=tokenizer.pad)
        self._how = Sampling(max_new_tokens=settings.max_new_tokens, temperature=settings.temperature)
        self._judge = setting.judge

    def measure(self) -> RolloutBatch:
        """Ask the policy, score its answers, and read them with policy and reference."""
        settings, step = self._setting.settings, self._state.step
        answers = self._answers(self._setting.reward)
        sampling_seconds = self._sampling.sampler.seconds
        scores = [answer.score for answer in answers]
        check_failure_rate(scores, step, most=settings.max_failed)
        cut_off = [answer.was_cut_off for answer in answers]
        earned = earn(
            scores,
            cut_off,
            self._state.moments,
            truncated=settings.truncated,
            penalty=settings.truncation_penalty,
            whiten=settings.whiten_rewards,
        )
        tokens = [answer.made.tokens for answer in answers]
        prompts = [answer.task.prompt for answer in answers]
        batch = make_batch(prompts, tokens, self._setting.tokenizer.pad, self._state.policy.device)
        measured = measure(self._state.policy, batch, microbatch=settings.microbatch, dtype=self.dtype)
        gap = _sampling_gap(answers, measured)
        if step == 0 and self.dtype == torch.float32:
            check_logprob_gap(gap)
        facts = {**_reward_facts(answers, earned), **measured.facts(), "sampling_gap": gap}
        check_finite(facts, step)
        if self._judge is not None and self._is_time_for_gold():
            facts["gold"] = _mean_gold(self._judge, answers)
        return RolloutBatch(
            answers=answers, earned=earned, measured=measured, facts=facts, sampling_seconds=sampling_seconds
        )

    def gold(self) -> float | None:
        """Return the gold of the answers that the policy gives at this step; none where it is not known."""
        return None if self._judge is None else _mean_gold(self._judge, self._answers(None))

    def _is_time_for_gold(self) -> bool:
        step, every = self._state.step, self._setting.settings.gold_every
        return step == self._setting.settings.steps or (every > 0 and step % every == 0)

    def learn(self, seen: RolloutBatch) -> dict[str, float]:
        """Change the policy, and return figures of the losses."""
        state, settings = self._state, self._setting.settings
        if settings.kl_budget is not None:
            state.within, state.within_step = state.policy.copy_of_trained(), state.step
        state.moments = seen.earned.moments
        experience: Experience | None = experience_of(seen.measured, seen.earned.rewards, settings)
        if experience is None:  # every answer was masked out: nothing to learn from this step
            return {"masked": float(len(seen.answers))}
        masked = len(seen.answers) - len(experience.batch)
        found = learn(state.policy, state.optimiser, experience, settings, state.step, self.dtype)
        check_finite(found, state.step)
        return {"masked": float(masked), **found}

    def _answers(self, reward: Reward | None) -> list[Answer]:
        settings, tasks, step = self._setting.settings, self._setting.tasks, self._state.step
        places = tasks_of_step(len(tasks), step, settings.rollout_batch, seed=settings.seed)
        return answer_tasks(
            [tasks[place] for place in places],
            self._sampling.follow(),
            self._setting.tokenizer,
            self._how,
            seeds=[sample_seed("answer", settings.seed, step, number, place) for number, place in enumerate(places)],
            batch_size=settings.generation_batch,
            reward=reward,
        )


def _take_back(state: State, folder: PpoFolder) -> None:
    """Return to the last policy that was measured within the KL budget."""
    shutil.rmtree(place_of_policy(folder.path, state.step), ignore_errors=True)
    if state.within is not None:
        state.policy.restore(state.within)
        state.step = state.within_step


def _mean_gold(judge: LabJudge, answers: Sequence[Answer]) -> float:
    values = judge.values([(answer.task.example, answer.text) for answer in answers])
    return sum(values) / len(values)


def _add_missing_gold(state: State, turn: _PpoStep, folder: PpoFolder) -> None:
    """Write the row of the policy that the run ends with again where its gold was not measured.

    Samples hang on seed and step, so these are the answers that the row tells of.
    """
    row = next(row for row in read_steps(folder.path) if row["step"] == state.step)
    if row.get("gold") is None and (gold := turn.gold()) is not None:
        folder.append({**row, "gold": round(gold, DIGITS)})


def check_logprob_gap(gap: float) -> None:
    """Stop where sampling and learning disagree before anything was learned, in float32."""
    if not gap <= LARGEST_GAP:
        raise RunError(
            f"step 0: sampling and learning disagree by {gap:.2g} nats per token, more than {LARGEST_GAP:g}, so "
            "ratios and KL would be wrong. Use another --policy."
        )


def check_finite(facts: Mapping[str, float | None], step: int) -> None:
    """Stop where a figure is not finite; nothing that follows would mean anything."""
    for name, value in facts.items():
        if value is not None and not math.isfinite(value):
            cause = (
                "Mend the reward model"
                if name.startswith("reward")
                else "The policy diverged: use a smaller --learning-rate"
            )
            raise RunError(f"step {step}: {name} is {value}. {cause}, and start again with --fresh.")


def _reward_facts(answers: Sequence[Answer], earned: ShapedRewards) -> dict[str, float | None]:
    """Return figures of the scores as the reward model gave them."""
    count = len(answers)
    read = [each.score.value for each in answers if each.score is not None and each.score.value is not None]
    own = RunningMoments().with_values(read)
    return {
        "reward": own.mean if own.count else None,
        "reward_deviation": (own.squares / own.count) ** 0.5 if own.count else None,
        "failure_rate": earned.failed / earned.asked if earned.asked else 0.0,
        "failed": float(earned.failed),
        "empty": earned.empty / count,
        "truncated": earned.truncated / count,
    }


def _sampling_gap(answers: Sequence[Answer], measured: Measured) -> float:
    """Return how far the log-probabilities of sampling lie from those of learning, on average per token."""
    width = measured.logprobs.shape[1]
    sampled = [[*each.made.logprobs, *[0.0] * (width - len(each.made.logprobs))] for each in answers]
    distance = (measured.logprobs - torch.tensor(sampled, device=measured.logprobs.device)).abs()
    return float(distance.sum() / measured.batch.counts.sum())


def _row(
    state: State, settings: PpoSettings, seen: RolloutBatch, learned: dict[str, float], *, beyond: bool, seconds: float
) -> dict[str, Json]:
    tokens = int(seen.measured.batch.counts.sum())
    figures = {
        name: None if value is None else round(value, DIGITS) for name, value in {**seen.facts, **learned}.items()
    }
    return {
        "step": state.step,
        **figures,
        "beyond_budget": beyond,
        "rewards": seen.earned.asked,
        "tokens": tokens,
        "seconds": round(seconds, 3),
        "tokens_per_second": _rate(tokens, seconds),
        "rollout_tokens_per_second": _rate(tokens, seen.sampling_seconds),
    }


def _rate(tokens: int, seconds: float) -> float | None:
    return round(tokens / seconds, 1) if seconds else None


def summary_head(settings: PpoSettings, folder: PpoFolder) -> dict[str, Json]:
    """Return what every summary begins with: which run this is."""
    return {
        "run_id": folder.run_id,
        "algorithm": settings.algorithm,
        "policy": settings.policy,
        "reward_model": settings.reward,
        "context": settings.context,
        "reward_context": settings.context_of_reward,
        "labels": labels_shown(folder.path),
        "seed": settings.seed,
    }


def _summary(state: State, setting: Setting, folder: PpoFolder, ended: str) -> dict[str, Json]:
    rows = [{key: value for key, value in row.items() if key not in TIMING} for row in read_steps(folder.path)]
    final = next(row for row in reversed(rows) if row["step"] == state.step)
    shown = ("reward", "gold", "kl", "entropy", "length", "truncated", "empty")
    return {
        **summary_head(setting.settings, folder),
        "ended": ended,
        "updates": state.step,
        "weights": weights_hash(state.policy),
        "first": {name: rows[0].get(name) for name in shown},
        "last": {name: final.get(name) for name in shown},
        "rewards_asked": sum(row["rewards"] for row in rows),
        "rewards_failed": int(sum(row["failed"] for row in rows)),
        "posts_dropped": sum(task.posts_dropped for task in setting.tasks),
    }


def weights_hash(module: torch.nn.Module) -> str:
    """Return a hash of all weights, the same for the same bits."""
    total = sha256()
    for name, weight in sorted(module.state_dict().items()):
        plain = weight.detach().cpu().contiguous()
        total.update(f"{name}:{tuple(plain.shape)}:{plain.dtype}".encode())
        total.update(plain.view(torch.uint8).numpy().tobytes() if plain.dim() else str(plain.item()).encode())
    return total.hexdigest()[:16]


@contextmanager
def _deterministic() -> Iterator[None]:
    """Sum gradients in a fixed order where that can be had; by default, threads add them as they come."""
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(not torch.cuda.is_available(), warn_only=True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)


__all__ = [
    "BUDGET",
    "DONE",
    "Setting",
    "State",
    "Watch",
    "check_finite",
    "check_logprob_gap",
    "run_ppo",
    "summary_head",
    "unwatched",
    "weights_hash",
]
