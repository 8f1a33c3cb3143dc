"""The questions of Best-of-N, and the pool: n answers to each, sampled once and kept for every later command."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

from prbench.backends.own_code import plain_identity
from prbench.backends.policy import FAILED, FailedSample, Policy, Prompt, Releasable, Sample, samples_of
from prbench.context import ContextMaker, contexts_of, fit_for
from prbench.data import ExampleStore
from prbench.errors import DataError, UsageError
from prbench.runs import MANIFEST, Layout, RowKey, RunConfig, RunStore, read_latest, run_id
from prbench.runs.files import POOL, read_json
from prbench.schema import Example, Json, Progress, User, UserContext

POOLS, SAMPLES = "pools", "samples.jsonl"
LAYOUT = Layout(kind=POOL, made=(SAMPLES,))
FEWEST_USERS = 2
AT_ONCE = 256  # samples between two writes, unless a policy is too slow for that; at least those of one question


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolQuestion:
    """One question of one user. Of several rows that ask the same, the first one stands for all."""

    example: Example
    donor: User | None  # whose profile stands in for the user's under the swap probe

    @property
    def id(self) -> str:
        """The id of its row."""
        return self.example.id


def select_questions(
    store: ExampleStore, *, users: int | None = None, limit: int | None = None, seed: int = 0
) -> list[PoolQuestion]:
    """Return the questions of the first `users` users, and of those the first `limit`, in the order of the rows."""
    found: list[PoolQuestion] = []
    people: set[str] = set()
    seen: set[tuple[str, str]] = set()
    for position in range(len(store)):
        example = store[position]
        if not isinstance(example, Example):
            raise UsageError(f"{store.name}: Best-of-N needs questions with a rubric, and rated rows have none.")
        key = (example.user.id, example.question)
        if key in seen or (example.user.id not in people and len(people) == users):
            continue
        people.add(example.user.id)
        seen.add(key)
        found.append(PoolQuestion(example=example, donor=store.donor(position, seed)))
        if len(found) == limit:
            break
    if len({question.example.user.id for question in found}) < FEWEST_USERS:
        raise UsageError("Intervals are over users, and these questions have one. Take at least 2 users.")
    return found


def group_of(question: PoolQuestion, field: str) -> str | None:
    """Return the group of a question by a field: its category, its split or anything plain in its `meta`."""
    example = question.example
    facts = {**example.meta, "category": example.category, "split": example.split}
    value = facts.get(field)
    return str(value) if isinstance(value, str | bool | int | float) and value != "" else None


def place_in(questions: Sequence[PoolQuestion]) -> Callable[[RowKey], int | None]:
    """Return the function by which rows are sorted: where their question stands; others have no place."""
    places = {question.id: place for place, question in enumerate(questions)}
    return lambda key: places.get(str(key[0]))


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
    truncated: float  # share of answers that ran out of tokens
    incomplete: Mapping[str, str]  # question id -> why an answer is missing; the next run asks again


def make_pool(
    questions: Sequence[PoolQuestion],
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
    folder = out / POOLS / run_id(config)
    with RunStore.open(folder, LAYOUT, RunConfig(config=config)) as run:
        log = run.rows(SAMPLES)
        complete = log.completed(retry=lambda row: any("text" not in sample for sample in row["samples"]))
        missing = [question for question in questions if (question.id,) not in complete]
        step = max(1, (policy.at_once if isinstance(policy, HasBatchSize) else AT_ONCE) // n)
        done = len(questions) - len(missing)
        for start in range(0, len(missing), step):
            batch = missing[start : start + step]
            drawn = _draw(batch, policy, maker, n=n, seed=seed)
            log.append([_row(question, samples) for question, samples in zip(batch, drawn, strict=True)])
            if progress:
                progress(done + start + len(batch), len(questions))
        if isinstance(policy, Releasable):
            policy.release()
        log.compact(place_in(questions))
        return _as_pool(folder, n, questions, log.read())


def kept_pool(folder: Path, questions: Sequence[PoolQuestion], *, data_hash: str) -> Pool:
    """Return a pool that was sampled before, perhaps on another machine: nothing of its policy is needed."""
    if not all((folder / name).is_file() for name in (MANIFEST, SAMPLES)):
        raise UsageError(f"{folder}: is no pool. Name a folder with {MANIFEST} and {SAMPLES}.")
    manifest = read_json(folder / MANIFEST)
    config = manifest.get("config", {})
    if manifest.get("kind") != POOL or "n" not in config:
        raise DataError(f"{folder / MANIFEST}: does not say how many answers a question has. It is no prbench pool.")
    if config.get("data_hash") != data_hash:
        raise DataError(f"{folder}: was sampled for other rows. Give the data that it was sampled for.")
    rows = read_latest(folder / SAMPLES)
    missing = [question.id for question in questions if (question.id,) not in rows]
    if missing:
        raise DataError(f"{folder}: has no answers to {missing[0]}. Sample it to the end first.")
    return _as_pool(folder, config["n"], questions, rows)


def _draw(
    questions: Sequence[PoolQuestion], policy: Policy, maker: ContextMaker, *, n: int, seed: int
) -> list[Sequence[Sample]]:
    """Return `n` samples for every question; all fail where no context of the user could be made."""
    users = contexts_of(maker, [question.example for question in questions])
    prompts = []
    for question, user in zip(questions, users, strict=True):
        if not user.problem:
            asked = question.example.question
            window = _PolicyWindow(policy=policy, id=question.id) if isinstance(policy, Windowed) else None
            fitted = user if window is None else fit_for(window, user, question=asked)
            # Where nothing fits, the policy is asked all the same: its failed sample says why.
            prompts.append(Prompt(id=question.id, question=asked, context="" if fitted.problem else fitted.text))
    sampled = policy.sample(prompts, n=n, seed=seed) if prompts else []
    drawn = iter(samples_of(policy.name, sampled, prompts=len(prompts), n=n))
    return [
        [FailedSample(error=user.detail or user.problem.value)] * n if user.problem else next(drawn) for user in users
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class _PolicyWindow:
    """What a policy holds beside one question; it leaves room for its own answer."""

    policy: Windowed
    id: str

    def holds(self, user: UserContext, *, question: str, responses: Sequence[str], reserve_tokens: int) -> bool:
        return self.policy.fits(Prompt(id=self.id, question=question, context=user.text))


def _row(question: PoolQuestion, samples: Sequence[Sample]) -> dict[str, Json]:
    """Return samples as they are kept; one that failed has no text at all."""
    rows: list[Json] = [
        {"error": getattr(sample, "error", "")}
        if isinstance(sample, FailedSample) or sample.finish == FAILED
        else {"text": sample.text, "finish": sample.finish, "tokens": sample.tokens}
        for sample in samples
    ]
    return {"id": question.id, "user_id": question.example.user.id, "samples": rows}


def _as_pool(
    folder: Path, n: int, questions: Sequence[PoolQuestion], rows: Mapping[RowKey, Mapping[str, Json]]
) -> Pool:
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
    truncated = ends.count("length") / len(ends) if ends else 0.0
    return Pool(id=folder.name, folder=folder, n=n, answers=answers, truncated=truncated, incomplete=incomplete)
