"""What a policy is worth to users it has not met, by gold, and which of two runs gained more at the same distance.

Every policy that a run kept answers every held-out question several times. `evaluation.jsonl` has one row per policy
and question: the mean over its answers of gold, of the distance from the reference in nats, and of the length.
Intervals are clustered by users. Runs are compared at equal distance: of each, the policy whose KL is nearest to a
value.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import ClassVar

import torch

from prbench.backends.generation import Sampler, Sampling
from prbench.data import content_hash
from prbench.downstream.ppo.learner import answer_logprobs, chosen_dtype, half_precision, kl_k1, make_batch
from prbench.downstream.ppo.loop import POLICY, kept_policies, labels_shown
from prbench.downstream.ppo.rollout import make_tasks, sample_rollouts, sample_seed
from prbench.downstream.ppo.settings import PpoSettings
from prbench.downstream.ppo.training import contexts_of, load_policy_backbone, tokenizer_of
from prbench.errors import DataError, RunError, UsageError
from prbench.judging import LabJudge
from prbench.metrics.estimate import clustered_ratios, ratio_estimates
from prbench.runs import MANIFEST, SUMMARY, Keyed, Keys
from prbench.runs.files import EVALUATION, EVALUATION_ROWS, lock_folder, read_json, read_lines, write_json, write_lines
from prbench.schema import Estimate, Example, Json, Progress

GOLD_SPAN = (-1.0, 1.0)
FAR_SHARE, FAR_NATS = 0.25, 0.5  # of the asked distance, or nats, whichever is more: beyond it, a pick is off


@dataclass(frozen=True, kw_only=True)
class HeldOutSettings(Keyed):
    """How held-out questions are asked."""

    samples: int = 4  # answers per question
    seed: int = 0
    split: str = "test"

    KEYS: ClassVar[Keys] = Keys(samples=4, seed=0, split="test")


def evaluate_run(
    run: Path, examples: Sequence[Example], how: HeldOutSettings, progress: Progress | None = None
) -> dict[str, Json]:
    """Measure the reference and every policy that the run kept; what was measured before is not measured again."""
    check_gold_known(examples)
    settings = settings_of(run)
    with lock_folder(run):
        asked = {"held_out": how.KEYS.values(how), "questions": content_hash(examples)}
        rows: list[dict[str, Json]] = []
        known = read_json(run / EVALUATION) if (run / EVALUATION).exists() else {}
        if {key: known.get(key) for key in asked} == asked and (run / EVALUATION_ROWS).exists():
            rows = [row for _, _, row in read_lines(run / EVALUATION_ROWS)]
        else:  # rows of other questions, or asked otherwise, are dropped
            write_json(run / EVALUATION, {**asked, "policies": []})
            (run / EVALUATION_ROWS).unlink(missing_ok=True)
        policies = {0: settings.policy, **{step: str(path) for step, path in kept_policies(run).items()}}
        if (run / SUMMARY).exists():  # a budget may end a run between two policies that are kept
            updates = int(read_json(run / SUMMARY)["updates"])
            policies.setdefault(updates, str(run / POLICY))
        missing = [step for step in policies if not any(row["step"] == step for row in rows)]
        if missing:
            evaluator = _Evaluator(settings, examples, how)
        for number, step in enumerate(missing, 1):
            rows += evaluator.rows(step, policies[step])
            write_lines(run / EVALUATION_ROWS, rows)
            if progress:
                progress(number, len(missing))
        content = {**asked, "run_id": read_json(run / MANIFEST)["run_id"], "policies": summarize(rows)}
        write_json(run / EVALUATION, content)
    return content


def check_gold_known(examples: Sequence[Example]) -> None:
    """Refuse held-out rows that cannot be measured."""
    if not examples:
        raise DataError("There are no held-out rows. Check --eval-split and --eval-limit.")
    LabJudge().check(examples)


def check_users_disjoint(learned_from: Sequence[Example], held_out: Sequence[Example]) -> None:
    """Refuse held-out rows of users whom the policy learns from."""
    shared = {example.user.id for example in learned_from} & {example.user.id for example in held_out}
    if shared:
        raise DataError(
            f"User {min(shared)!r} is among the training rows and the held-out rows ({len(shared)} such users). "
            "Name splits of different users with --split and --eval-split."
        )


def settings_of(run: Path) -> PpoSettings:
    """Return what a run was asked to do."""
    manifest = read_json(run / MANIFEST)
    try:
        return PpoSettings.from_config(manifest["config"]["settings"])
    except (KeyError, TypeError) as error:
        raise RunError(
            f"{run / MANIFEST}: is not of a PPO run ({error}). Name a folder that `prbench ppo` made."
        ) from None


def summarize(rows: Sequence[Mapping[str, Json]]) -> list[dict[str, Json]]:
    """Return one entry per policy: gold with intervals over users, also where the user is with the minority."""
    entries = []
    for step in sorted({row["step"] for row in rows}):
        some = [row for row in rows if row["step"] == step]
        sides = [[True, row["majority"] is True, row["majority"] is False] for row in some]
        known = [column for column in range(3) if any(side[column] for side in sides)]
        estimates = ratio_estimates(
            [[row["gold"] * side[column] for column in known] for row, side in zip(some, sides, strict=True)],
            [[float(side[column]) for column in known] for side in sides],
            [row["user_id"] for row in some],
            span=GOLD_SPAN,
        )
        found: dict[int, Estimate] = dict(zip(known, estimates, strict=True))
        names = ("gold", "gold_majority", "gold_minority")
        golds = {name: asdict(found[column]) if column in found else None for column, name in enumerate(names)}
        means = {name: round(fmean(row[name] for row in some), 6) for name in ("kl", "length", "truncated")}
        entries.append({"step": step, **means, **golds})
    return entries


@dataclass(frozen=True, kw_only=True)
class AtKl:
    """The policy of one run that lies nearest to a distance from the reference."""

    run: str
    step: int
    kl: float
    off_by: float  # nats from the asked distance
    gold: Estimate
    rows: tuple[Mapping[str, Json], ...]


def at_kl(run: Path, kl: float) -> AtKl:
    """Return the measured policy of a run whose KL is nearest to a value; of equals, the earlier one."""
    if not (run / EVALUATION_ROWS).exists():
        raise UsageError(f"{run}: was not evaluated yet. Run `prbench ppo` with --eval-split first.")
    content, rows = read_json(run / EVALUATION), [row for _, _, row in read_lines(run / EVALUATION_ROWS)]
    nearest = min(content["policies"], key=lambda entry: (abs(entry["kl"] - kl), entry["step"]))
    chosen = tuple(row for row in rows if row["step"] == nearest["step"])
    return AtKl(
        run=str(run),
        step=nearest["step"],
        kl=nearest["kl"],
        off_by=round(abs(nearest["kl"] - kl), 6),
        gold=Estimate(**nearest["gold"]),
        rows=chosen,
    )


def compare_at_kl(runs: Sequence[Path], kl: float) -> dict[str, Json]:
    """Return the gold of every run at that distance, and its difference from the first run, paired by question."""
    picks = [at_kl(run, kl) for run in runs]
    # Else gold and distances do not mean the same.
    conditions = [
        {
            "held-out settings": read_json(run / EVALUATION).get("held_out"),
            "reference weights": read_json(run / MANIFEST).get("config", {}).get("policy_weights"),
        }
        for run in runs
    ]
    for run, its in zip(runs, conditions, strict=True):
        for name, first in conditions[0].items():
            if its[name] != first:
                raise DataError(
                    f"{run}: has other {name} ({its[name]}) than {runs[0]} ({first}). "
                    "Compare runs from the same --policy, evaluated in the same way."
                )
    settings = [settings_of(run) for run in runs]
    rows_of = [{row["id"]: row for row in pick.rows} for pick in picks]  # of each run, by question
    shared = sorted(set(rows_of[0]).intersection(*rows_of))
    if not shared:
        raise DataError("The runs were evaluated on different questions. Evaluate all on the same split and limit.")
    golds = [[float(rows[item]["gold"]) for rows in rows_of] for item in shared]  # (questions, runs)
    ones = [[1.0] * len(runs) for _ in shared]
    users = [rows_of[0][item]["user_id"] for item in shared]
    draws = clustered_ratios(golds, ones, users, span=GOLD_SPAN)
    warnings, compared = [], []
    for place, (run, pick, its_settings) in enumerate(zip(runs, picks, settings, strict=True)):
        if pick.off_by > max(FAR_SHARE * kl, FAR_NATS):
            off = f"{pick.off_by:.2f} nats off the asked {kl:g}"
            warnings.append(f"{pick.run}: its nearest policy has a KL of {pick.kl:.2f}, {off}.")
        compared.append(
            {
                "run": pick.run,
                "step": pick.step,
                "kl": pick.kl,
                "off_by": pick.off_by,
                "reward_model": its_settings.reward,
                "context": its_settings.context,
                "reward_context": its_settings.context_of_reward,
                "labels": labels_shown(run),
                "gold": asdict(draws.estimate(place)),
                "difference_from_first": asdict(draws.estimate(place, minus=0)) if place else None,
            }
        )
    return {"kl": kl, "questions": len(shared), "warnings": warnings, "runs": compared}


class _Evaluator:
    """Asks policies the same questions with the same seeds."""

    def __init__(self, settings: PpoSettings, examples: Sequence[Example], how: HeldOutSettings) -> None:
        self._settings, self._how = settings, how
        reference = load_policy_backbone(settings.policy)
        self._reference = reference.model.requires_grad_(False).eval()
        self._device = next(self._reference.parameters()).device
        self._dtype = chosen_dtype(settings.dtype, self._device)
        self._tokenizer = tokenizer_of(reference, settings.policy)
        contexts = contexts_of(settings, None)
        self._tasks = make_tasks(examples, self._tokenizer, *contexts, max_new_tokens=settings.max_new_tokens)
        self._judge = LabJudge()

    def rows(self, step: int, policy: str) -> list[dict[str, Json]]:
        """Return one row per question."""
        settings, samples = self._settings, self._how.samples
        lm = load_policy_backbone(policy).model.to(self._dtype).requires_grad_(False).eval()
        on_gpu = self._device.type == "cuda"
        tasks = [task for task in self._tasks for _ in range(samples)]
        rollouts = sample_rollouts(
            tasks,
            Sampler(lm, eos_ids=self._tokenizer.ends, pad_id=self._tokenizer.pad, captured=on_gpu),
            self._tokenizer,
            Sampling(max_new_tokens=settings.max_new_tokens, temperature=settings.temperature),
            seeds=[
                sample_seed("held out", self._how.seed, task.example.id, number % samples)
                for number, task in enumerate(tasks)
            ],
            batch_size=settings.generation_batch,
            reward=None,
        )
        golds = self._judge.values([(rollout.task.example, rollout.text) for rollout in rollouts])
        tokens = [rollout.generated.tokens for rollout in rollouts]
        batch = make_batch([task.prompt_ids for task in tasks], tokens, self._tokenizer.pad, self._device)
        kls: list[float] = []  # log p − log q of every answer
        for places in torch.split(torch.arange(len(batch), device=self._device), settings.microbatch):
            part = batch.rows(places)
            with half_precision(self._device, self._dtype):
                ours = answer_logprobs(lm, part, settings.temperature)
                theirs = answer_logprobs(self._reference, part, settings.temperature)
            kls += kl_k1(ours, theirs).sum(1).tolist()  # (rows, answer) -> (rows,)
        return [
            {
                "step": step,
                "id": task.example.id,
                "user_id": task.example.user.id,
                "majority": task.example.meta.get("majority"),
                "gold": round(fmean(golds[start : start + samples]), 6),
                "kl": round(fmean(kls[start : start + samples]), 6),
                "length": fmean(len(each) for each in tokens[start : start + samples]),
                "truncated": fmean(each.is_truncated for each in rollouts[start : start + samples]),
            }
            for start, task in zip(range(0, len(tasks), samples), self._tasks, strict=True)
        ]
