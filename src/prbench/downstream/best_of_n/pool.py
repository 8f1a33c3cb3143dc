"""The pool: as many answers to every question as were asked for, sampled once and kept for every later command."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

from prbench.backends.own_code import plain_identity
from prbench.backends.policy import FAILED, FailedSample, Policy, Prompt, Releasable, Sample, samples_of
from prbench.context import ContextMaker, contexts_of, fit_for
from prbench.downstream.best_of_n.questions import Question, place_in
from prbench.errors import DataError, UsageError
from prbench.runs import MANIFEST, Layout, RunConfig, RunStore, read_latest, run_id
from prbench.runs.files import read_json
from prbench.runs.names import POOL
from prbench.schema import Json, Progress, UserContext

POOLS, SAMPLES = "pools", "samples.jsonl"
LAYOUT = Layout(kind=POOL, made=(SAMPLES,))
Rows = Mapping[tuple[Json, ...], Mapping[str, Json]]
AT_ONCE = 256  # samples between two writes, unless a policy is too slow for that; at least those of one question


@runtime_checkable
class Windowed(Protocol):
    """A policy that can tell whether a prompt leaves room for an answer."""

    def fits(self, prompt: Prompt) -> bool:
        """Tell whether it does."""
        ...


@runtime_checkable
class HasBatchSize(Protocol):
    """A policy that says how many samples it draws together, so that no more are lost when it is killed."""

    @property
    def at_once(self) -> int:
        """So many samples."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """The answers to every question that has all of them."""

    id: str
    folder: Path
    n: int
    answers: Mapping[str, tuple[str, ...]]  # by question id
    cut_off: float  # share of answers that ran out of tokens
    incomplete: Mapping[str, str]  # question id -> why an answer is missing; the next run asks again


def make_pool(
    questions: Sequence[Question],
    policy: Policy,
    maker: ContextMaker,
    out: Path,
    *,
    n: int,
    seed: int,
    data_hash: str,
    progress: Progress | None = None,
) -> Pool:
    """Sample what is not there yet, and return the pool. Its folder is named after all that changes it."""
    if n < 1:
        raise UsageError(f"--n {n}: the best of nothing is nothing. Give 1 or more.")
    config: dict[str, Json] = {
        "policy": plain_identity(policy.name, policy.identity),
        "data_hash": data_hash,
        "context": dict(maker.identity),
        "n": n,
        "seed": seed,
    }
    name = run_id(config)
    folder = out / POOLS / name
    with RunStore.open(folder, LAYOUT, RunConfig(config=config)) as run:
        log = run.rows(SAMPLES)
        complete = log.completed(retry=lambda row: not _is_complete(row))
        missing = [question for question in questions if (question.id,) not in complete]
        step = max(1, (policy.at_once if isinstance(policy, HasBatchSize) else AT_ONCE) // n)
        done = len(questions) - len(missing)
        for start in range(0, len(missing), step):
            some = missing[start : start + step]
            drawn = _draw(some, policy, maker, n=n, seed=seed)
            log.append([_row(question, samples) for question, samples in zip(some, drawn, strict=True)])
            if progress:
                progress(done + start + len(some), len(questions))
        if isinstance(policy, Releasable):
            policy.release()
        log.compact(place_in(questions))
        return _read(name, folder, n, questions, log.read())


def kept_pool(folder: Path, questions: Sequence[Question], *, data_hash: str) -> Pool:
    """Return a pool that was sampled before, perhaps on another machine: nothing of its policy is needed."""
    if not all((folder / name).is_file() for name in (MANIFEST, SAMPLES)):
        raise UsageError(f"{folder}: is no pool. Name a folder with {MANIFEST} and {SAMPLES}.")
    manifest = read_json(folder / MANIFEST)
    config = manifest.get("config", {})
    if manifest.get("kind") != POOL or "n" not in config:
        raise DataError(f"{folder / MANIFEST}: does not say how many answers a question has. It is no pool of ours.")
    if config.get("data_hash") != data_hash:
        raise DataError(f"{folder}: was sampled for other rows. Give the data that it was sampled for.")
    rows = read_latest(folder / SAMPLES)
    missing = [question.id for question in questions if (question.id,) not in rows]
    if missing:
        raise DataError(f"{folder}: has no answers to {missing[0]}. Sample it to the end first.")
    return _read(folder.name, folder, config["n"], questions, rows)


def _draw(
    questions: Sequence[Question], policy: Policy, maker: ContextMaker, *, n: int, seed: int
) -> list[Sequence[Sample]]:
    """Return `n` samples for every question; all fail where the policy could not be told of the user."""
    told = list(zip(questions, contexts_of(maker, [question.example for question in questions]), strict=True))
    prompts = [_prompt(question, user, policy) for question, user in told if not user.problem]
    sampled = policy.sample(prompts, n=n, seed=seed) if prompts else []
    drawn = iter(samples_of(policy.name, sampled, prompts=len(prompts), n=n))
    return [
        [FailedSample(error=user.detail or user.problem.value)] * n if user.problem else next(drawn)
        for _, user in told
    ]


def _prompt(question: Question, user: UserContext, policy: Policy) -> Prompt:
    asked = question.example.question
    if isinstance(policy, Windowed):
        user = fit_for(_Asking(policy=policy, id=question.id), user, question=asked)
    # Where nothing fits, the policy is asked all the same: its failed sample says why.
    return Prompt(id=question.id, question=asked, context="" if user.problem else user.text)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asking:
    """A policy that is about to be asked; it leaves room for its own answer."""

    policy: Windowed
    id: str

    def holds(self, user: UserContext, *, question: str, responses: Sequence[str], reserve_tokens: int) -> bool:
        return self.policy.fits(Prompt(id=self.id, question=question, context=user.text))


def _row(question: Question, samples: Sequence[Sample]) -> dict[str, Json]:
    return {"id": question.id, "user_id": question.example.user.id, "samples": [_sample(each) for each in samples]}


def _sample(sample: Sample) -> dict[str, Json]:
    """Return a sample as it is kept; one that failed has no text at all."""
    if isinstance(sample, FailedSample) or sample.finish == FAILED:
        return {"error": getattr(sample, "error", "")}
    return {"text": sample.text, "finish": sample.finish, "tokens": sample.tokens}


def _is_complete(row: Mapping[str, Json]) -> bool:
    return all("text" in sample for sample in row["samples"])


def _read(name: str, folder: Path, n: int, questions: Sequence[Question], rows: Rows) -> Pool:
    answers: dict[str, tuple[str, ...]] = {}
    incomplete: dict[str, str] = {}
    ends: list[str] = []
    for question in questions:
        samples = rows[question.id,]["samples"]
        errors = [str(sample["error"]) for sample in samples if "error" in sample]
        if errors:
            incomplete[question.id] = errors[0]
        else:
            answers[question.id] = tuple(sample["text"] for sample in samples)
            ends += [sample["finish"] for sample in samples]
    cut_off = ends.count("length") / len(ends) if ends else 0.0
    return Pool(id=name, folder=folder, n=n, answers=answers, cut_off=cut_off, incomplete=incomplete)
