"""The questions of Best-of-N; the pool, n answers to each, sampled once and kept for every later command; and what
reward models and a judge make of it: scores and grades of every answer, kept beside the pool."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

from prbench.backends.own_code import plain_identity
from prbench.backends.policy import FAILED, FailedSample, Policy, Prompt, Releasable, Sample, samples_of
from prbench.context import ContextMaker, contexts_of, fit_for
from prbench.data import ExampleStore
from prbench.downstream.best_of_n.pool_file import RecordedPolicy
from prbench.errors import DataError, UsageError
from prbench.evaluation.score import (
    PendingItem,
    asked_probes,
    can_swap,
    check_words_known,
    prepare,
    score_rows,
)
from prbench.judging import Judge, grades_of, name_of
from prbench.metrics.groups import name_of_group
from prbench.reward_models.base import LoadedModel, require_scores
from prbench.runs import MANIFEST, Layout, RowKey, RunConfig, RunStore, is_retried, read_latest, run_id
from prbench.runs.files import GRADES as GRADES_KIND
from prbench.runs.files import POOL, read_json
from prbench.runs.files import SCORES as SCORES_KIND
from prbench.schema import Example, Json, Probe, Progress, User, UserContext, gravest

POOLS, SAMPLES, SCORES, GRADES = "pools", "samples.jsonl", "scores.jsonl", "grades.jsonl"
LAYOUT = Layout(kind=POOL, made=(SAMPLES,))
SCORES_LAYOUT = Layout(kind=SCORES_KIND, made=(SCORES,))
GRADES_LAYOUT = Layout(kind=GRADES_KIND, made=(GRADES,))
WHO = "Best-of-N"  # needs a score for each answer
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


def group_of(question: PoolQuestion, name: str) -> str | None:
    """Return the group of a question by its category, split or user, or anything plain in its `meta`."""
    example = question.example
    facts = {**example.meta, "category": example.category, "split": example.split, "user_id": example.user.id}
    plain = {field: value for field, value in facts.items() if isinstance(value, str | bool | int | float)}
    return name_of_group({field: value for field, value in plain.items() if value != ""}, name)


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

    at_once: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """The answers to every question that has all of them."""

    id: str
    folder: Path
    n: int  # of every question at least; those that were sampled elsewhere may have more
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
            log.append(
                [
                    {
                        "id": question.id,
                        "user_id": question.example.user.id,
                        "samples": [
                            {"error": getattr(sample, "error", "")}  # one that failed has no text at all
                            if isinstance(sample, FailedSample) or sample.finish == FAILED
                            else {"text": sample.text, "finish": sample.finish, "tokens": sample.tokens}
                            for sample in samples
                        ],
                    }
                    for question, samples in zip(batch, drawn, strict=True)
                ]
            )
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
    each = None if isinstance(policy, RecordedPolicy) else n
    drawn = iter(samples_of(policy.name, sampled, prompts=len(prompts), n=each))
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


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardModelEntry:
    """A reward model, and what it may know of the user."""

    name: str  # as on the command line
    loaded: LoadedModel
    maker: ContextMaker

    @property
    def probes(self) -> tuple[Probe, ...]:
        """Who knows nothing of users has no other user to be shown, and a rubric belongs to its question."""
        probes = (Probe.OWN, Probe.SWAP) if self.maker.kind in ("profile", "plan") else (Probe.OWN,)
        return asked_probes(probes, self.loaded, self.maker.kind)

    def user_under(self, question: PoolQuestion, probe: Probe) -> User | None:
        """Return the user whom the model is told of; `None` where a swap would change nothing."""
        user, donor = question.example.user, question.donor
        if probe is Probe.OWN:
            return user
        return donor if can_swap(user, donor, self.maker.kind, labeled="labels" in self.maker.identity) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    """The scores of one model, by probe and question; questions without all of them are counted, not guessed."""

    id: str
    values: Mapping[Probe, Mapping[str, tuple[float, ...]]]
    missing: Mapping[Probe, Mapping[str, str]]  # question id -> why
    details: tuple[str, ...] = ()  # what those that have no score say of it


def score_pool(
    pool: Pool,
    questions: Sequence[PoolQuestion],
    entry: RewardModelEntry,
    *,
    seed: int,
    progress: Progress | None = None,
) -> Scores:
    """Score what has no score yet, all answers to a question in one call, and return all scores.

    A score of `RETRIED` is tried again by the next command; one that cannot be had is not.
    """
    require_scores(entry.loaded, WHO, of_items=True)
    check_words_known(entry.loaded, (question.example for question in questions))
    config: dict[str, Json] = {
        "pool": pool.id,
        "model": entry.loaded.spec,
        "model_identity": dict(entry.loaded.identity),
        "template_hash": entry.loaded.template_hash,
        "context": dict(entry.maker.identity),
        "seed": seed,
    }
    answered = [question for question in questions if question.id in pool.answers]
    name = run_id(config)
    with RunStore.open(pool.folder / "scores" / name, SCORES_LAYOUT, RunConfig(config=config)) as run:
        log = run.rows(SCORES, key=("id", "probe"))
        for done, rows in _score_batches(pool, answered, entry, log.completed(retry=is_retried)):
            log.append(rows)
            if progress:
                progress(done, len(answered))
        log.compact(place_in(questions))
        found = log.read()
    values: dict[Probe, dict[str, tuple[float, ...]]] = {probe: {} for probe in entry.probes}
    missing: dict[Probe, dict[str, str]] = {probe: {} for probe in entry.probes}
    for question in answered:
        for probe in entry.probes:
            row = found.get((question.id, probe.value))
            if row is None:
                missing[probe][question.id] = "no other user with other posts"
            elif row["reason"]:
                missing[probe][question.id] = row["reason"]
            else:
                values[probe][question.id] = tuple(row["scores"])
    details = tuple(str(row["detail"]) for row in found.values() if row["reason"] and row["detail"])
    return Scores(id=name, values=values, missing=missing, details=details)


def _score_batches(
    pool: Pool, questions: Sequence[PoolQuestion], entry: RewardModelEntry, final: AbstractSet[RowKey]
) -> Iterator[tuple[int, list[dict[str, Json]]]]:
    """Yield the rows of one batch after the other. Batches are cut by position, so a resumed run cuts them alike."""
    step = max(1, 2 * entry.loaded.items_per_step // pool.n)
    for start in range(0, len(questions), step):
        batch = questions[start : start + step]
        pending = [
            PendingItem(example=question.example, probe=probe, user=user, responses=pool.answers[question.id])
            for question in batch
            for probe in entry.probes
            if (question.id, probe.value) not in final and (user := entry.user_under(question, probe)) is not None
        ]
        rows: list[dict[str, Json]] = []
        for scored in score_rows(prepare(pending, entry.maker, entry.loaded), entry.loaded) if pending else []:
            item, worst = scored.item, gravest(score for score in scored.scores if score.value is None)
            rows.append(
                {
                    "id": item.example.id,
                    "user_id": item.example.user.id,
                    "probe": item.probe.value,
                    "scores": [score.value for score in scored.scores],
                    "reason": worst.problem.value if worst else "",
                    "detail": worst.detail if worst else "",
                    "posts_used": item.user.used,
                    "posts_dropped": item.user.dropped + item.user.truncated_posts,
                }
            )
        if rows:
            yield start + len(batch), rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Grades:
    """The grades of a pool, by question; questions without all of them are counted, not guessed."""

    id: str
    span: tuple[float, float]
    values: Mapping[str, tuple[float, ...]]
    quality: Mapping[str, tuple[float, ...]] | None
    missing: Mapping[str, str]  # question id -> why


def grade_pool(
    pool: Pool, questions: Sequence[PoolQuestion], judge: Judge, *, progress: Progress | None = None
) -> Grades:
    """Grade what has no grade yet, question by question; failed grades are tried again by the next command."""
    config: dict[str, Json] = {"pool": pool.id, "judge": plain_identity(name_of(judge), judge.identity)}
    name = run_id(config)
    answered = [question for question in questions if question.id in pool.answers]
    with RunStore.open(pool.folder / "grades" / name, GRADES_LAYOUT, RunConfig(config=config)) as run:
        log = run.rows(GRADES)
        graded = log.completed(retry=lambda row: bool(row["problem"]))
        for done, question in enumerate(answered, 1):
            if (question.id,) not in graded:
                answers = pool.answers[question.id]
                given = grades_of(name_of(judge), judge.grade(question.example, answers), count=len(answers))
                problem = next((grade.problem or "no grade" for grade in given if grade.value is None), "")
                log.append(
                    [
                        {
                            "id": question.id,
                            "user_id": question.example.user.id,
                            "values": [grade.value for grade in given],
                            "quality": [grade.quality for grade in given],
                            "problem": problem,
                        }
                    ]
                )
            if progress:
                progress(done, len(answered))
        log.compact(place_in(questions))
        found = log.read()
    rows = [found[question.id,] for question in answered]
    good = [row for row in rows if not row["problem"]]
    has_quality = all(None not in row["quality"] for row in good)
    return Grades(
        id=name,
        span=judge.span,
        values={row["id"]: tuple(row["values"]) for row in good},
        quality={row["id"]: tuple(row["quality"]) for row in good} if has_quality else None,
        missing={row["id"]: row["problem"] for row in rows if row["problem"]},
    )
