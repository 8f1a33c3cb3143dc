"""The loop: measure the policy on fresh answers, let it learn from them, go on; exactly, wherever it was interrupted.

Nothing is drawn from a state that is carried along: prompts, samples and the order of rows depend only on the seed and
the step. So weights, optimizer and the reward's moments are all that a checkpoint needs.

In the folder of a run, `steps.jsonl` has one row per measured policy, `step` being the updates behind it; it is only
ever appended to, and of several rows of one step the latest counts. `checkpoint.pt` is where to resume,
`policies/step-000010` are policies that were kept, and `policy` is the last one. `summary.json` has the same bytes
whether the run was interrupted or not.
"""

import copy
import math
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from prbench.backends.generation import Sampler, Sampling
from prbench.downstream.ppo.learner import (
    LARGEST_GAP,
    ActorCritic,
    Measured,
    chosen_dtype,
    experience_of,
    learn,
    make_batch,
    make_optimizer,
    measure,
)
from prbench.downstream.ppo.rollout import (
    PromptTokenizer,
    Reward,
    RewardsFailedError,
    Rollout,
    RolloutTask,
    RunningMoments,
    ShapedRewards,
    check_failure_rate,
    sample_rollouts,
    sample_seed,
    shape_rewards,
    tasks_of_step,
)
from prbench.downstream.ppo.settings import PpoSettings
from prbench.errors import RunError
from prbench.judging import LabJudge
from prbench.runs import MANIFEST, SUMMARY, Layout, RowLog, RunStore, read_latest
from prbench.runs.files import EVALUATION, EVALUATION_ROWS, PPO, read_json
from prbench.schema import Json, Score

STEPS, CHECKPOINT = "steps.jsonl", "checkpoint.pt"
POLICY, POLICIES = "policy", "policies"
TRAINER = ".trainer"  # checkpoints of a trainer that keeps its own
LAYOUT = Layout(
    kind=PPO,
    made=(STEPS, SUMMARY, CHECKPOINT, EVALUATION, EVALUATION_ROWS, POLICY, POLICIES, TRAINER, "*.svg", "*.html"),
    is_alone=True,
)
DIGITS = 6
BUDGET, DONE = "kl_budget", "steps"  # why a run ended
TIMING = ("seconds", "tokens_per_second", "rollout_tokens_per_second")  # what differs from run to run
_STEP = "step-"
StepCallback = Callable[[dict[str, Json]], None]  # gets every row


@dataclass(frozen=True, kw_only=True)
class PpoSetup:
    """What does not change during a run."""

    settings: PpoSettings
    tasks: Sequence[RolloutTask]
    tokenizer: PromptTokenizer
    reward: Reward
    run: RunStore
    steps: RowLog
    save: Callable[[Any, Path, torch.dtype], None]  # writes a language model into a folder that `--policy` takes
    on_step: StepCallback = lambda row: None
    judge: LabJudge | None = None  # knows what answers are worth, where that is known


def run_ppo(lm: Any, setup: PpoSetup) -> dict[str, Json]:
    """Train the policy in `lm`, from the last checkpoint if there is one, and return the summary."""
    # Gradients are summed in a fixed order where that can be had; by default, threads add them as they come.
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(not torch.cuda.is_available(), warn_only=True)
    try:
        learner = PpoLearner(lm, setup)
        kept = setup.run.checkpoint(CHECKPOINT).load()
        if kept is not None:
            learner.restore(kept)
        ended = _run_steps(learner, setup)
        rows = read_steps(setup.run.folder)
        final = next(row for row in reversed(rows) if row["step"] == learner.step)
        policy = learner.policy
        summary = summarize_run(setup, rows, final, kl="kl", ended=ended, updates=learner.step, module=policy)
        setup.save(policy.merged(), setup.run.folder / POLICY, torch.float32)
        setup.run.finish(summary)
    finally:
        torch.use_deterministic_algorithms(before)
    return summary


def _run_steps(learner: "PpoLearner", setup: PpoSetup) -> str:
    """Go from step to step, and return why it ended. The last policy is measured as well."""
    settings, folder, checkpoint = setup.settings, setup.run.folder, setup.run.checkpoint(CHECKPOINT)
    while True:
        started = time.monotonic()
        try:
            batch = learner.measure()
        except RewardsFailedError:
            checkpoint.save(learner.snapshot())
            raise
        is_beyond = settings.kl_budget is not None and (batch.facts["kl"] or 0.0) > settings.kl_budget
        learned = {} if is_beyond or learner.step >= settings.steps else learner.learn(batch)
        row = _row(learner.step, batch, learned, beyond=is_beyond, seconds=time.monotonic() - started)
        setup.steps.append([row])
        setup.on_step(row)
        if is_beyond:
            learner.roll_back()
            return BUDGET
        if not learned:
            return DONE
        learner.step += 1
        if learner.step % settings.checkpoint_every == 0 or learner.step == settings.steps:
            setup.save(learner.policy.merged(), place_of_policy(folder, learner.step), learner.dtype)
            checkpoint.save(learner.snapshot())


@dataclass(frozen=True, kw_only=True)
class RolloutBatch:
    """The answers of one step, measured."""

    rollouts: Sequence[Rollout]
    shaped: ShapedRewards
    measured: Measured
    facts: dict[str, float | None]
    sampling_seconds: float


class PpoLearner:
    """A policy with all that its next step depends on, and the halves of a step: measuring and learning."""

    def __init__(self, lm: Any, setup: PpoSetup) -> None:
        self._setup, settings = setup, setup.settings
        self.policy = ActorCritic(lm, settings)
        self.optimizer = make_optimizer(self.policy, settings)
        self.step = 0  # updates behind the policy
        self.moments = RunningMoments()
        self.within: dict[str, Tensor] | None = None  # weights that were measured within the KL budget
        self.within_step = 0
        self.dtype = chosen_dtype(settings.dtype, self.policy.device)
        # What samples is the policy itself, or a copy in half precision that follows it.
        is_same = self.dtype == next(self.policy.lm.parameters()).dtype and self.policy.adapted is None
        merged = self.policy.merged
        self._copy = None if is_same else copy.deepcopy(merged()).to(self.dtype).requires_grad_(False).eval()
        self._sampler = Sampler(
            self.policy.lm if self._copy is None else self._copy,
            eos_ids=setup.tokenizer.ends,
            pad_id=setup.tokenizer.pad,
            captured=self.policy.device.type == "cuda",
        )

    def snapshot(self) -> dict[str, Any]:
        """Return what a checkpoint holds."""
        return {
            "weights": {name: weight.detach() for name, weight in self.policy.trained().items()},
            "optimizer": self.optimizer.state_dict(),
            "step": self.step,
            "moments": asdict(self.moments),
            "within": self.within,
            "within_step": self.within_step,
        }

    def restore(self, kept: Mapping[str, Any]) -> None:
        """Take a checkpoint over."""
        self.policy.restore(kept["weights"])
        self.optimizer.load_state_dict(kept["optimizer"])
        self.step, self.moments = kept["step"], RunningMoments(**kept["moments"])
        self.within, self.within_step = kept["within"], kept["within_step"]

    def sample(self, reward: Reward | None) -> list[Rollout]:
        """Return the answers that the policy gives at this step, with scores where there is a reward."""
        settings, tasks, step = self._setup.settings, self._setup.tasks, self.step
        if self._copy is not None:  # its weights are taken over in place, so that captured steps stay valid
            with torch.no_grad():
                new = dict(self.policy.merged().named_parameters())
                for name, weight in self._copy.named_parameters():
                    weight.copy_(new[name])
        places = tasks_of_step(len(tasks), step, settings.rollout_batch, seed=settings.seed)
        return sample_rollouts(
            [tasks[place] for place in places],
            self._sampler,
            self._setup.tokenizer,
            Sampling(max_new_tokens=settings.max_new_tokens, temperature=settings.temperature),
            seeds=[sample_seed("answer", settings.seed, step, number, place) for number, place in enumerate(places)],
            batch_size=settings.generation_batch,
            reward=reward,
        )

    def measure(self) -> RolloutBatch:
        """Sample answers, score them, and read them with policy and reference."""
        settings, step, judge = self._setup.settings, self.step, self._setup.judge
        rollouts = self.sample(self._setup.reward)
        sampling_seconds = self._sampler.seconds
        scores = [rollout.score for rollout in rollouts]
        check_failure_rate(scores, step, most=settings.max_failed)
        shaped = shape_rewards(
            scores,
            [rollout.is_truncated for rollout in rollouts],
            self.moments,
            truncated=settings.truncated,
            penalty=settings.truncation_penalty,
            whiten=settings.whiten_rewards,
        )
        prompts = [rollout.task.prompt_ids for rollout in rollouts]
        tokens = [rollout.generated.tokens for rollout in rollouts]
        batch = make_batch(prompts, tokens, self._setup.tokenizer.pad, self.policy.device)
        measured = measure(self.policy, batch, microbatch=settings.microbatch, dtype=self.dtype)
        # How far the log-probabilities of sampling lie from those of learning, on average per token.
        width = measured.logprobs.shape[1]
        sampled = [[*each.generated.logprobs, *[0.0] * (width - len(each.generated.logprobs))] for each in rollouts]
        distance = (measured.logprobs - torch.tensor(sampled, device=measured.logprobs.device)).abs()
        gap = float(distance.sum() / batch.counts.sum())
        if step == 0 and self.dtype == torch.float32:
            check_logprob_gap(gap)
        facts = {**_reward_facts(scores, shaped), **measured.facts(), "sampling_gap": gap}
        check_finite(facts, step)
        is_time = step == settings.steps or (settings.gold_every > 0 and step % settings.gold_every == 0)
        if judge is not None and is_time:
            facts["gold"] = _mean_gold(judge, rollouts)
        return RolloutBatch(
            rollouts=rollouts, shaped=shaped, measured=measured, facts=facts, sampling_seconds=sampling_seconds
        )

    def learn(self, batch: RolloutBatch) -> dict[str, float]:
        """Change the policy, and return figures of the losses."""
        settings = self._setup.settings
        if settings.kl_budget is not None:
            self.within, self.within_step = self.policy.copy_of_trained(), self.step
        self.moments = batch.shaped.moments
        experience = experience_of(batch.measured, batch.shaped.rewards, settings)
        if experience is None:  # every answer was masked out: nothing to learn from this step
            return {"masked": float(len(batch.rollouts))}
        masked = len(batch.rollouts) - len(experience.batch)
        found = learn(self.policy, self.optimizer, experience, settings, self.step, self.dtype)
        check_finite(found, self.step)
        return {"masked": float(masked), **found}

    def roll_back(self) -> None:
        """Return to the last policy that was measured within the KL budget, and see that its row has gold."""
        folder, judge = self._setup.run.folder, self._setup.judge
        shutil.rmtree(place_of_policy(folder, self.step), ignore_errors=True)
        if self.within is not None:
            self.policy.restore(self.within)
            self.step = self.within_step
        row = next(row for row in read_steps(folder) if row["step"] == self.step)
        if row.get("gold") is None and judge is not None:
            # Samples depend only on seed and step, so these are the answers that the row is of.
            self._setup.steps.append([{**row, "gold": round(_mean_gold(judge, self.sample(None)), DIGITS)}])


def _mean_gold(judge: LabJudge, rollouts: Sequence[Rollout]) -> float:
    values = judge.values([(rollout.task.example, rollout.text) for rollout in rollouts])
    return sum(values) / len(values)


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


def _reward_facts(scores: Sequence[Score | None], shaped: ShapedRewards) -> dict[str, float | None]:
    """Return figures of the scores as the reward model gave them."""
    count = len(scores)
    own = RunningMoments().with_values([each.value for each in scores if each is not None and each.value is not None])
    return {
        "reward": own.mean if own.count else None,
        "reward_deviation": (own.squares / own.count) ** 0.5 if own.count else None,
        "failure_rate": shaped.failed / shaped.asked if shaped.asked else 0.0,
        "failed": float(shaped.failed),
        "empty": shaped.empty / count,
        "truncated": shaped.truncated / count,
    }


def _row(
    step: int, batch: RolloutBatch, learned: Mapping[str, float], *, beyond: bool, seconds: float
) -> dict[str, Json]:
    tokens = int(batch.measured.batch.counts.sum())
    figures = {**batch.facts, **learned}
    return {
        "step": step,
        **{name: None if value is None else round(value, DIGITS) for name, value in figures.items()},
        "beyond_budget": beyond,
        "rewards": batch.shaped.asked,
        "tokens": tokens,
        "seconds": round(seconds, 3),
        "tokens_per_second": round(tokens / seconds, 1) if seconds else None,
        "rollout_tokens_per_second": (round(tokens / batch.sampling_seconds, 1) if batch.sampling_seconds else None),
    }


def summarize_run(
    setup: PpoSetup,
    rows: Sequence[Mapping[str, Json]],
    final: Mapping[str, Json],
    *,
    kl: str,
    ended: str,
    updates: int,
    module: torch.nn.Module,
) -> dict[str, Json]:
    """Return the summary of a run of any algorithm; `kl` names the figure of the distance in its rows."""
    settings = setup.settings
    shown = ("reward", "gold", kl, "entropy", "length", "truncated", "empty")
    return {
        "run_id": setup.run.run_id,
        "algorithm": settings.algorithm,
        "policy": settings.policy,
        "reward_model": settings.reward,
        "context": settings.context,
        "reward_context": settings.context_of_reward,
        "labels": labels_shown(setup.run.folder),
        "seed": settings.seed,
        "ended": ended,
        "updates": updates,
        "weights": weights_hash(module),
        "first": {name: rows[0].get(name) for name in shown},
        "last": {name: final.get(name) for name in shown},
        "rewards_asked": sum(row["rewards"] for row in rows),
        "rewards_failed": int(sum(row["failed"] for row in rows)),
        "posts_dropped": sum(task.posts_dropped for task in setup.tasks),
    }


def weights_hash(module: torch.nn.Module) -> str:
    """Return a hash of all weights, the same for the same bits."""
    total = sha256()
    for name, weight in sorted(module.state_dict().items()):
        plain = weight.detach().cpu().contiguous()
        total.update(f"{name}:{tuple(plain.shape)}:{plain.dtype}".encode())
        total.update(plain.view(torch.uint8).numpy().tobytes() if plain.dim() else str(plain.item()).encode())
    return total.hexdigest()[:16]


def read_steps(path: Path) -> list[dict[str, Json]]:
    """Return the latest row of every step, in order; a line that is still being written is left out."""
    rows = read_latest(path / STEPS, key=("step",))
    return [rows[step] for step in sorted(rows)]


def labels_shown(path: Path) -> int:
    """Return how many labeled pairs of a user the reward model of a run may see."""
    context = read_json(path / MANIFEST)["config"].get("reward_context", {})
    return int(context.get("labels", {}).get("shots", 0))


def kept_policies(path: Path) -> dict[int, Path]:
    """Return the policies that were kept, by the updates behind them."""
    found = {}
    for folder in (path / POLICIES).glob(f"{_STEP}*"):
        if folder.name.removeprefix(_STEP).isdecimal() and (folder / "config.json").exists():
            found[int(folder.name.removeprefix(_STEP))] = folder
    return dict(sorted(found.items()))


def place_of_policy(path: Path, step: int) -> Path:
    """Return where the policy after so many updates is kept."""
    return path / POLICIES / f"{_STEP}{step:06d}"
